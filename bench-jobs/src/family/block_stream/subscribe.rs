//! Subscribers: every block that comes must be the next one, and the one that was published.

use std::time::Instant;

use bytes::Bytes;
use storebench_crds::workload::block_stream::BLOCK_BYTES;
use tokio::time::sleep;

use super::client::Client;
use super::messages::NO_BLOCK;
use super::publish::Publishing;
use super::{BlockStream, name};
use crate::failure::Failure;
use crate::load::session::Session;

impl BlockStream {
    /// One subscriber's load: the blocks that are there, from the first to the last, again and again.
    pub(super) async fn read_history(&self, client: &mut Client, session: &Session) -> Result<(), Failure> {
        let end = self.chain.borrow().next();
        loop {
            let mut subscription = client.subscribe(0, end - 1).await?;
            for number in 0..end {
                let Some(mut batch) = session.next().await else { return Ok(()) };
                let Some((found, block)) = subscription.next().await? else {
                    session.answered_uncounted(&mut batch, 1);
                    session.wrong(
                        name(number),
                        format!("was not sent: the subscription of blocks 0 to {} ended", end - 1),
                    );
                    return Ok(());
                };
                session.answered(&mut batch, 1, Instant::now());
                session.count(BLOCK_BYTES, block.len() as u64);
                if !self.check_next(number, found, &block, session) {
                    return Ok(());
                }
            }
            self.expect_end(&mut subscription, end, session).await?;
        }
    }

    /// Reads blocks by a subscription and hands each over; `session` counts none of them.
    pub(super) async fn read_range(
        &self,
        client: &mut Client,
        range: std::ops::Range<u64>,
        session: &Session,
        mut each: impl FnMut(u64, u64, &Bytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if range.is_empty() {
            return Ok(());
        }
        let mut subscription = client.subscribe(range.start, range.end - 1).await?;
        for number in range.clone() {
            let mut batch = session.begin(1);
            let block = subscription.next().await?;
            session.answered_uncounted(&mut batch, 1);
            let Some((found, block)) = block else {
                session.wrong(name(number), "was not sent: the subscription ended before it");
                return Ok(());
            };
            each(number, found, &block)?;
        }
        self.expect_end(&mut subscription, range.end, session).await
    }

    /// After the last block comes the end.
    async fn expect_end(
        &self,
        subscription: &mut super::client::Subscription,
        end: u64,
        session: &Session,
    ) -> Result<(), Failure> {
        let mut batch = session.begin(1);
        let more = subscription.next().await?;
        session.answered_uncounted(&mut batch, 1);
        if let Some((number, _)) = more {
            session.wrong(name(number), format!("was sent, though the last that was asked for was {}", end - 1));
        }
        Ok(())
    }

    /// One subscriber's load: the blocks that are published meanwhile, from `first` on.
    pub(super) async fn follow(
        &self,
        publishing: &Publishing,
        first: u64,
        client: &mut Client,
        session: &Session,
    ) -> Result<(), Failure> {
        let limit = self.seat.context.timeout;
        let mut watch = publishing.watch();
        let mut subscription = client.subscribe(first, NO_BLOCK).await?;
        let mut number = first;
        loop {
            watch.borrow_and_update();
            if publishing.ends_before(number) {
                return Ok(());
            }
            let delivered = tokio::select! {
                delivered = subscription.next() => delivered?,
                _ = watch.changed() => continue,
                () = sleep(limit) => {
                    if publishing.acknowledged() > number {
                        session.wrong(name(number), format!("was acknowledged, but not delivered within {limit:?}"));
                        return Err(Failure::new(format_args!("a subscriber was not sent block {number}")));
                    }
                    continue;
                }
            };
            let now = Instant::now();
            let Some((found, block)) = delivered else {
                return Err(Failure::new(format_args!(
                    "subscribeBlockStream: the node ended it before block {number}"
                )));
            };
            if !self.check_next(number, found, &block, session) {
                return Err(Failure::new(format_args!("a subscriber was sent a wrong block {number}")));
            }
            // What was made here and is on its way has left at some time.
            if let Some((due, sent)) = publishing.delivered(session.place() as usize, number) {
                session.delivered(due, sent, now);
                session.count(BLOCK_BYTES, block.len() as u64);
            }
            number += 1;
        }
    }

    /// Whether a subscriber was sent the block that is next; the session is told.
    pub(super) fn check_next(&self, number: u64, found: u64, block: &[u8], session: &Session) -> bool {
        let checked = match found == number {
            true => self.chain.borrow().check(number, block).map_err(|detail| format!("was sent wrongly: {detail}")),
            false => Err(format!("was expected by a subscriber, which was sent block {found}")),
        };
        match checked {
            Ok(()) => session.verified(1),
            Err(detail) => {
                session.wrong(name(number), detail);
                return false;
            }
        }
        true
    }
}
