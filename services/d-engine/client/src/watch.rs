//! Watches; what they promise stands at [`Watch`].

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};

use crate::Error;

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
    /// What is behind the last key, if it is a range; `None`: the one key `start`.
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

    /// Whether this key is watched.
    pub fn covers(&self, key: &[u8]) -> bool {
        match &self.end {
            None => *key == *self.start,
            Some(end) => *key >= *self.start && *key < **end,
        }
    }
}

/// Events as they come, several at a time.
pub type Batches = Pin<Box<dyn Stream<Item = Result<Vec<Event>, Error>> + Send>>;

/// A watch, until it is dropped or has ended: what happens to keys, in the order of the log, without a gap. Where that cannot be, it ends with an
/// error that says so. It does not go to another member by itself: begin another one with [`WatchOptions::from_revision`] one above the
/// last event's, and it misses nothing, or says [`Error::TooOld`].
pub struct Watch {
    batches: Batches,
    ready: VecDeque<Event>,
}

impl Watch {
    /// Of batches.
    pub fn of(batches: Batches) -> Self {
        Self { batches, ready: VecDeque::new() }
    }

    /// The next event; `None`: the member has ended. After an error there is no more.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.batches.next().await? {
                Ok(events) => self.ready.extend(events),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
