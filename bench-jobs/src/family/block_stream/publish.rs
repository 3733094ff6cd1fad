//! Publishers: all of them have the same blocks, as consensus nodes have, and the store lets one of them send each.
//!
//! Blocks are made one after the other, as many ahead of the acknowledgements as the window allows. A publisher sends each block that
//! is not acknowledged, in order, unless it is told that another one sends it; it goes back where it is told so. An acknowledgement that
//! any of them hears stands for the block and for all before it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use service_kit::client::{StreamReceiver, StreamSender};
use storebench_crds::workload::block_stream::{ACKNOWLEDGEMENT, BLOCK_BYTES, UNNAMED_BLOCKS};
use tokio::sync::watch;
use tokio::time::timeout;

use super::block::parts;
use super::client::Client;
use super::messages::{
    BlockNumber, EndStream, PublishRequest, PublishResponse, Published, Told, code, end_of_publishing,
};
use super::{BlockStream, name};
use crate::failure::Failure;
use crate::load::pace::Timetable;
use crate::load::session::{Batch, Session};

/// Items are sent in messages of about this size, as consensus nodes do.
const MESSAGE_BYTES: usize = 1 << 20;

/// When the next block is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// When the load may send its next request, which it is.
    Load,
    /// At once, until the chain has so many blocks.
    UntilThereAre(u64),
    /// So many a second, until the others have done their load.
    EverySecond(u32),
}

/// What an acknowledgement counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// As an operation.
    Operation,
    /// As an acknowledgement alone.
    Acknowledgement,
    /// As nothing.
    Nothing,
}

/// Blocks on their way, of one phase.
#[derive(Debug)]
pub(super) struct Publishing {
    pace: Pace,
    counts: Counts,
    /// One behind the last block that was made.
    made: Cell<u64>,
    /// One behind the last block that a publisher has sent to its end.
    sent: Cell<u64>,
    /// One behind the last block that is acknowledged.
    acknowledged: Cell<u64>,
    /// One behind the last block that each subscriber has; empty where none must keep up.
    delivered: RefCell<Vec<u64>>,
    on_their_way: RefCell<BTreeMap<u64, OnItsWay>>,
    /// When blocks were due and left, for subscribers, until all have them.
    departures: RefCell<BTreeMap<u64, (Option<Instant>, Instant)>>,
    /// When it was decided that no more blocks are made.
    over_since: Cell<Option<Instant>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct OnItsWay {
    bytes: Bytes,
    batch: Batch,
    /// Where blocks come at a rate: when this one was due. Else when it left.
    due: Instant,
}

/// How a publisher's stream ended.
enum Ended {
    /// Everything is acknowledged.
    Done,
    /// It was so far behind the others that the node wants it to begin anew.
    Duplicate,
}

impl Publishing {
    /// From block `next` on. `subscribers`: how many must have a block before many more are made.
    pub(super) fn new(pace: Pace, counts: Counts, next: u64, subscribers: usize) -> Self {
        Self {
            pace,
            counts,
            made: Cell::new(next),
            sent: Cell::new(next),
            acknowledged: Cell::new(next),
            delivered: RefCell::new(vec![next; subscribers]),
            on_their_way: RefCell::default(),
            departures: RefCell::default(),
            over_since: Cell::new(None),
            changed: watch::Sender::new(()),
        }
    }

    /// No more blocks are made.
    pub(super) fn end(&self) {
        self.over_since.set(self.over_since.get().or_else(|| Some(Instant::now())));
        self.change();
    }

    fn is_over(&self) -> bool {
        self.over_since.get().is_some()
    }

    /// Whether everything that will be made is acknowledged.
    fn is_done(&self) -> bool {
        self.is_over() && self.acknowledged.get() == self.made.get()
    }

    /// One behind the last block that is acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.get()
    }

    /// Whether block `number` will never be.
    pub(super) fn ends_before(&self, number: u64) -> bool {
        self.is_over() && number >= self.made.get()
    }

    /// Waits until something is different from when `watch` was last looked at.
    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn change(&self) {
        self.changed.send_modify(|()| {});
    }

    /// One behind the last block that everyone has done with.
    fn floor(&self) -> u64 {
        let delivered = self.delivered.borrow().iter().copied().min();
        delivered.unwrap_or(u64::MAX).min(self.acknowledged.get())
    }

    /// A subscriber has a block: when that was due and left. `None`: it was not on its way.
    pub(super) fn delivered(&self, subscriber: usize, number: u64) -> Option<(Option<Instant>, Instant)> {
        let departure = self.departures.borrow().get(&number).copied();
        if let Some(place) = self.delivered.borrow_mut().get_mut(subscriber) {
            *place = number + 1;
        }
        let floor = self.delivered.borrow().iter().copied().min().unwrap_or_default();
        self.departures.borrow_mut().retain(|number, _| *number >= floor);
        self.change();
        departure
    }

    /// Makes blocks until there are to be no more.
    pub(super) async fn make(&self, family: &BlockStream, session: &Session) -> Result<(), Failure> {
        let mut watch = self.watch();
        let begun_with = self.made.get();
        let timetable = match self.pace {
            // One thread makes all blocks, until somebody says that there are enough.
            Pace::EverySecond(rate) => Some(Timetable::new(Instant::now(), rate.into(), u64::MAX, 0, 1)),
            Pace::Load | Pace::UntilThereAre(_) => None,
        };
        let window = u64::from(family.plan.parameters.window());
        while !session.is_stopped() && !self.is_over() {
            watch.borrow_and_update();
            if self.made.get() >= self.floor().saturating_add(window) {
                // The sender lives as long as `self`.
                let _ = watch.changed().await;
                continue;
            }
            let number = self.made.get();
            let at = timetable.as_ref().map(|timetable| timetable.due(number - begun_with));
            let batch = match (self.pace, at) {
                (Pace::Load, _) => session.next().await,
                (Pace::UntilThereAre(blocks), _) => (number < blocks).then(|| session.begin(1)),
                (Pace::EverySecond(_), None) => None,
                (Pace::EverySecond(_), Some(at)) => {
                    tokio::select! {
                        () = session.wait_until(at) => Some(session.begin(1)),
                        _ = watch.changed() => continue,
                    }
                }
            };
            let Some(batch) = batch else { break };
            let due = at.or_else(|| session.due(&batch)).unwrap_or_else(|| batch.sent());
            let bytes = Bytes::from(family.make_block(number)?);
            if !self.delivered.borrow().is_empty() {
                self.departures.borrow_mut().insert(number, (session.due(&batch), batch.sent()));
            }
            self.on_their_way.borrow_mut().insert(number, OnItsWay { bytes, batch, due });
            self.made.set(number + 1);
            self.change();
        }
        self.end();
        if let (Some(timetable), Some(end)) = (timetable, self.over_since.get()) {
            // The last one that was due has had no time to be sent yet. What the window had room for would have been, had the loader come to it.
            let due = timetable.due_by(end).saturating_sub(1);
            let sent = self.made.get().max(self.floor().saturating_add(window)) - begun_with;
            session.asked_beside(due, due.saturating_sub(sent));
        }
        Ok(())
    }

    /// One publisher, until everything is acknowledged.
    pub(super) async fn publish(&self, client: &mut Client, session: &Session) -> Result<(), Failure> {
        while let Ended::Duplicate = self.stream(client, session).await? {}
        Ok(())
    }

    /// One stream of a publisher.
    async fn stream(&self, client: &mut Client, session: &Session) -> Result<Ended, Failure> {
        let mut watch = self.watch();
        // The stream begins with its first message, and that with a block.
        let (number, bytes) = loop {
            watch.borrow_and_update();
            if self.is_done() {
                return Ok(Ended::Done);
            }
            match self.block(self.acknowledged.get()) {
                Some(found) => break found,
                None => drop(watch.changed().await),
            }
        };
        let at = Cell::new(number);
        let mut messages = messages(number, &bytes).into_iter();
        // A block has at least one message.
        let first = messages.next().unwrap_or_default();
        let (mut sender, mut receiver) = client.publish(&first).await?;
        let failed = |error: &dyn std::fmt::Display| client.failure("publishBlockStream", error);
        let listening = self.listen(&mut receiver, &at, session, &failed);
        tokio::pin!(listening);
        let ended = tokio::select! {
            ended = &mut listening => return ended,
            sent = self.send(&mut sender, messages.collect(), &at, &failed) => sent,
        };
        if let Err(failure) = ended {
            // What the node says of it explains more.
            return match timeout(Duration::from_millis(200), listening).await {
                Ok(Err(said)) => Err(said),
                Ok(Ok(Ended::Duplicate)) => Ok(Ended::Duplicate),
                _ => Err(failure),
            };
        }
        Ok(Ended::Done)
    }

    /// The first block from `number` on that is not acknowledged, if it was made.
    fn block(&self, number: u64) -> Option<(u64, Bytes)> {
        let number = number.max(self.acknowledged.get());
        self.on_their_way.borrow().get(&number).map(|block| (number, block.bytes.clone()))
    }

    /// Sends the rest of the first block, then all others.
    async fn send(
        &self,
        sender: &mut StreamSender<PublishRequest>,
        rest: Vec<PublishRequest>,
        at: &Cell<u64>,
        failed: &impl Fn(&dyn std::fmt::Display) -> Failure,
    ) -> Result<(), Failure> {
        let mut watch = self.watch();
        let (mut number, mut rest) = (at.get(), rest);
        loop {
            at.set(number + 1);
            for message in rest {
                sender.send(&message).await.map_err(|error| failed(&error))?;
            }
            self.sent.set(self.sent.get().max(number + 1));
            (number, rest) = loop {
                watch.borrow_and_update();
                if let Some((number, bytes)) = self.block(at.get()) {
                    break (number, messages(number, &bytes));
                }
                if self.is_done() {
                    let end = PublishRequest { request: Some(Published::EndStream(EndStream { code: code::RESET })) };
                    sender.send(&end).await.map_err(|error| failed(&error))?;
                    return sender.finish().map_err(|error| failed(&error));
                }
                let _ = watch.changed().await;
            };
        }
    }

    /// Hears what the node says, until it ends the stream.
    async fn listen(
        &self,
        receiver: &mut StreamReceiver<PublishResponse>,
        at: &Cell<u64>,
        session: &Session,
        failed: &impl Fn(&dyn std::fmt::Display) -> Failure,
    ) -> Result<Ended, Failure> {
        let mut heard = None;
        loop {
            let message = receiver.next().await.map_err(|error| failed(&error))?;
            let Some(PublishResponse { response }) = message else {
                return match self.is_done() {
                    true => Ok(Ended::Done),
                    false => Err(failed(&"the node ended the stream")),
                };
            };
            match response {
                Some(Told::Acknowledgement(BlockNumber { number })) => {
                    if let Err(detail) = self.hear(number, heard, session) {
                        session.wrong(name(number), detail);
                        // Nothing that is said of acknowledgements can be believed any more.
                        return Err(failed(&format!("a wrong acknowledgement of block {number}")));
                    }
                    heard = Some(number);
                }
                Some(Told::Skip(BlockNumber { number })) => at.set(at.get().max(number + 1)),
                Some(Told::Resend(BlockNumber { number })) => at.set(at.get().min(number)),
                // The last that it has; where it has none, all are wanted.
                Some(Told::Behind(BlockNumber { number })) => at.set(at.get().min(number.wrapping_add(1))),
                Some(Told::EndOfStream(end)) if end.code == code::DUPLICATE_BLOCK => return Ok(Ended::Duplicate),
                Some(Told::EndOfStream(end)) => {
                    let what = end_of_publishing(end.code);
                    return Err(failed(&format!(
                        "the node ended the stream: {what} ({}), block {}",
                        end.code, end.last
                    )));
                }
                None => return Err(failed(&"a message says nothing")),
            }
            self.change();
        }
    }

    /// A publisher is told that a block is safe, and all before it with it. Errors: it cannot be.
    fn hear(&self, number: u64, heard: Option<u64>, session: &Session) -> Result<(), String> {
        check_order(number, heard, self.sent.get())?;
        let now = Instant::now();
        self.acknowledged.set(self.acknowledged.get().max(number + 1));
        let mut on_their_way = self.on_their_way.borrow_mut();
        if let (Some(_), true) = (heard, self.counts != Counts::Nothing) {
            // The Java node says the last one alone where several become safe at once. A stream that has heard nothing yet may have begun behind them.
            session.count(UNNAMED_BLOCKS, on_their_way.range(..number).count() as u64);
        }
        while let Some(first) = on_their_way.first_entry().filter(|first| *first.key() <= number) {
            let OnItsWay { bytes, mut batch, due } = first.remove();
            if self.counts != Counts::Nothing {
                session.took(ACKNOWLEDGEMENT, now.saturating_duration_since(due));
            }
            match self.counts {
                Counts::Operation => {
                    session.count(BLOCK_BYTES, bytes.len() as u64);
                    session.answered(&mut batch, 1, now);
                }
                Counts::Acknowledgement | Counts::Nothing => session.answered_uncounted(&mut batch, 1),
            }
        }
        Ok(())
    }
}

/// Acknowledgements of a stream rise, and none is of a block that nobody has sent whole.
fn check_order(number: u64, heard: Option<u64>, sent: u64) -> Result<(), String> {
    if number >= sent {
        let until = sent.checked_sub(1).map_or("none was".to_owned(), |last| format!("the last was block {last}"));
        return Err(format!("was acknowledged before it was sent: {until}"));
    }
    match heard {
        Some(heard) if number <= heard => Err(format!("was acknowledged after block {heard}")),
        _ => Ok(()),
    }
}

/// A block as it is sent.
fn messages(number: u64, bytes: &Bytes) -> Vec<PublishRequest> {
    let items = parts(bytes, MESSAGE_BYTES).into_iter().map(|part| Published::Items(bytes.slice(part)));
    let end = Published::EndOfBlock(BlockNumber { number });
    items.chain([end]).map(|request| PublishRequest { request: Some(request) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_that_cannot_be_is_told() {
        assert_eq!(check_order(3, Some(2), 4), Ok(()));
        assert_eq!(check_order(3, None, 4), Ok(()));
        let early = "was acknowledged before it was sent: the last was block 3";
        assert_eq!(check_order(4, Some(3), 4), Err(early.into()));
        assert!(check_order(0, None, 0).unwrap_err().ends_with("none was"));
        assert_eq!(check_order(3, Some(3), 9), Err("was acknowledged after block 3".into()));
    }

    #[test]
    fn the_slowest_subscriber_holds_the_next_block_up() {
        let publishing = Publishing::new(Pace::Load, Counts::Acknowledgement, 10, 2);
        publishing.acknowledged.set(14);
        assert_eq!(publishing.floor(), 10);
        for number in 10..14 {
            publishing.delivered(0, number);
        }
        assert_eq!(publishing.floor(), 10);
        publishing.delivered(1, 10);
        assert_eq!(publishing.floor(), 11);
        assert_eq!(Publishing::new(Pace::Load, Counts::Operation, 10, 0).floor(), 10);
    }
}
