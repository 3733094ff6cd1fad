//! Whether the other side of a connection is there: it is asked by pings of HTTP/2.
//!
//! Promises: a connection on which nothing comes for [`SILENCE_MAX`] though it is asked is closed, so that nobody waits for ever on a member
//! that hangs or is cut off. Who has much to say is heard, however late its answer to a ping comes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Between two pings while somebody waits for an answer.
const INTERVAL: Duration = Duration::from_millis(500);
/// Nobody waits, or for events that are rare: so many intervals.
const IDLE_INTERVALS: u32 = 10;
/// After so long without an answer to a ping, others are asked before this one. Our servers take 50 ms to answer pings.
const STEP: Duration = Duration::from_millis(250);
/// The connection is closed after so many of these steps. They are counted, so that the time for which this process itself was stopped is not.
const STEPS_MAX: u32 = 8;
/// How long a server may be silent though it is asked.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(STEP.as_millis() as u64 * STEPS_MAX as u64);

/// What is known of the other side.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Calls that wait for an answer.
    waiting: AtomicUsize,
    /// Something came.
    heard: AtomicBool,
    listener: AtomicWaker,
    is_quiet: AtomicBool,
    is_dead: AtomicBool,
}

/// Calls that wait, for as long as this is there.
pub(crate) struct Waiting<'a>(&'a Pulse);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.answered(1);
    }
}

impl Pulse {
    /// A call waits.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.asked(1);
        Waiting(self)
    }

    /// So many calls more wait.
    pub(crate) fn asked(&self, calls: usize) {
        self.waiting.fetch_add(calls, Ordering::Relaxed);
    }

    /// So many wait no longer.
    pub(crate) fn answered(&self, calls: usize) {
        self.waiting.fetch_sub(calls, Ordering::Relaxed);
    }

    /// Whether it was asked a while ago whether it is there, and has not answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Whether the connection was closed because nothing came.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Waits for the first bytes that come.
    pub(crate) async fn heard(&self) {
        std::future::poll_fn(|context| {
            self.listener.register(context.waker());
            if self.heard.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Asks until the connection has ended; closes it when nothing comes.
    pub(crate) async fn watch(self: Arc<Self>, mut pings: PingPong, connection: AbortHandle) {
        let mut idle = 0;
        while !connection.is_finished() {
            sleep(INTERVAL).await;
            idle += 1;
            if self.waiting.load(Ordering::Relaxed) == 0 && idle < IDLE_INTERVALS {
                continue;
            }
            idle = 0;
            self.heard.store(false, Ordering::Relaxed);
            let mut silent = 0;
            let mut answer = std::pin::pin!(pings.ping(Ping::opaque()));
            while let Err(_is_late) = timeout(STEP, &mut answer).await {
                silent = if self.heard.swap(false, Ordering::Relaxed) { 0 } else { silent + 1 };
                self.is_quiet.store(silent > 0, Ordering::Relaxed);
                if silent >= STEPS_MAX {
                    self.is_dead.store(true, Ordering::Relaxed);
                    // Every call on it hears that it is over.
                    connection.abort();
                    return;
                }
            }
            self.is_quiet.store(false, Ordering::Relaxed);
        }
    }
}

/// A socket that says when something comes.
pub(crate) struct Heard<S> {
    pub(crate) socket: S,
    pub(crate) pulse: Arc<Pulse>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if buffer.filled().len() > before && !self.pulse.heard.swap(true, Ordering::Relaxed) {
            self.pulse.listener.wake();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
