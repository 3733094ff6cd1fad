//! Watches; what they promise stands at [`Watch`].

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};

use crate::{Error, KEY_BYTES_MAX, end_of_prefix};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was given a value.
    Put,
    /// It was deleted, or was not there when it should be.
    Delete,
    /// Its time to live was over.
    Expire,
}

/// Something that happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// The key.
    pub key: Bytes,
    /// Its new value; empty unless it was put.
    pub value: Bytes,
    /// The index in the log at which it happened.
    pub revision: u64,
    /// The value before, if that was asked for and there was one.
    pub previous: Option<Bytes>,
}

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// The first key.
    pub start: Bytes,
    /// What is behind the last key, if it is a range; `None`: the one key `start`, and not the rest of them as in [`crate::Scan`].
    pub end: Option<Bytes>,
    /// Events from this revision on; 0: from now on.
    pub from_revision: u64,
    /// With the values before.
    pub with_previous: bool,
}

impl WatchOptions {
    /// One key, from now on.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self { start: key.into(), ..Self::default() }
    }

    /// Keys that begin so, all of them where that is nothing; from now on.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        // Behind the longest key there may be.
        let end = end_of_prefix(&start).unwrap_or_else(|| vec![u8::MAX; KEY_BYTES_MAX + 1].into());
        Self { start, end: Some(end), ..Self::default() }
    }

    /// Whether this key is watched.
    pub fn covers(&self, key: &[u8]) -> bool {
        match &self.end {
            None => *key == *self.start,
            Some(end) => *key >= *self.start && *key < **end,
        }
    }
}

/// Events that are told together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In order; none where only the index has moved.
    pub events: Vec<Event>,
    /// Everything up to this index of the log has been told with these. Events of the revision behind it may be among these: the others come next.
    pub index: u64,
}

/// Events as they come, several at a time.
pub type Batches = Pin<Box<dyn Stream<Item = Result<Batch, Error>> + Send>>;

/// A watch, until it is dropped or has ended: what happens to keys, in the order of the log, without a gap. Where that cannot be, it ends with an
/// error that says so. It does not go to another member by itself: begin another one with [`WatchOptions::from_revision`] at
/// [`Watch::next_revision`], and it misses nothing, or says [`Error::TooOld`].
pub struct Watch {
    batches: Batches,
    ready: VecDeque<Event>,
    /// Everything up to it has been told once what is ready has been.
    index: u64,
    next_revision: u64,
}

impl Watch {
    /// Of batches.
    pub fn of(batches: Batches) -> Self {
        Self { batches, ready: VecDeque::new(), index: 0, next_revision: 0 }
    }

    /// From where another watch of the same keys misses nothing of what this one has not told yet: for [`WatchOptions::from_revision`]. Events of
    /// that revision may have been told already, where one transaction made too many of them for one message. 0 as long as nothing is
    /// known: what happened since this watch began may be missed.
    pub fn next_revision(&self) -> u64 {
        self.next_revision
    }

    /// The next event; `None`: the member has ended. After an error there is no more.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            let event = self.ready.pop_front();
            if self.ready.is_empty() && self.index > 0 {
                self.next_revision = self.index + 1;
            }
            if let Some(event) = event {
                return Some(Ok(event));
            }
            match self.batches.next().await? {
                Ok(Batch { events, index }) => {
                    self.ready.extend(events);
                    self.index = index;
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
