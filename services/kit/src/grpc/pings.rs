//! Pings of HTTP/2: when a client's is answered, and how one that says nothing is asked whether it is there.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use h2::server::Connection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::grpc::connection::Limits;

/// How long the answer to a ping may wait for another answer that takes it along. Go's client pings with nearly every request,
/// to estimate the bandwidth: an answer of its own would cost as much again as the request.
const PONG_DELAY: Duration = Duration::from_millis(50);

/// Holds the answer to a ping back for a moment.
#[derive(Default)]
pub(super) struct Pong {
    /// Is left running when the answer has gone with another: setting a clock for each costs more than one that rings in vain.
    due: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Pong {
    /// Ready when what is held back may go.
    pub(super) fn poll_wait(&mut self, holds_only_pong: bool, context: &mut Context<'_>) -> Poll<()> {
        if holds_only_pong && self.due.is_none() {
            self.due = Some(Box::pin(tokio::time::sleep(PONG_DELAY)));
        }
        let Some(due) = &mut self.due else { return Poll::Ready(()) };
        if due.as_mut().poll(context).is_ready() {
            self.due = None;
            return Poll::Ready(());
        }
        if holds_only_pong { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Asks a silent client now and then whether it is there.
pub(super) struct Pulse {
    pings: h2::PingPong,
    interval: Interval,
    timeout: Duration,
    dead_at: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Pulse {
    pub(super) fn new<T: AsyncRead + AsyncWrite + Unpin>(
        connection: &mut Connection<T, Bytes>,
        limits: &Limits,
    ) -> Option<Self> {
        let every = limits.ping_interval?;
        let mut interval = interval_at(Instant::now() + every, every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(Self { pings: connection.ping_pong()?, interval, timeout: limits.ping_timeout, dead_at: None })
    }

    /// Ready when a ping was not answered in time.
    pub(super) fn poll_dead(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.interval.poll_tick(context).is_ready() {
            if self.dead_at.is_none() && self.pings.send_ping(Ping::opaque()).is_ok() {
                self.dead_at = Some(Box::pin(tokio::time::sleep(self.timeout)));
            }
        }
        let Some(dead_at) = &mut self.dead_at else { return Poll::Pending };
        if self.pings.poll_pong(context).is_ready() {
            self.dead_at = None;
            return Poll::Pending;
        }
        dead_at.as_mut().poll(context)
    }
}
