//! Replies that were made and that nobody has sent yet: what was read for them is memory that no connection answers for.
//!
//! Promises: all of them together have a bound. Who comes when it is reached has room for little, and is told so; nothing of it is in the
//! state, so that members may differ in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;

use super::state::{Outcome, Response, Room};

/// What all replies may have in them, bytes.
const ALL_MAX: usize = 96 << 20;
/// What each may, whatever the others have; and no less is counted.
const SMALL: usize = 64 << 10;

/// How much there is in replies.
#[derive(Clone, Debug, Default)]
pub(super) struct Replies(Arc<AtomicUsize>);

/// What a command came to, for whoever asked for it.
#[derive(Debug)]
pub struct Reply {
    /// That.
    pub outcome: Outcome,
    /// Its place among those that were not sent yet.
    pub held: Option<Held>,
}

/// A part of what replies may take; given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    replies: Replies,
    bytes: usize,
}

impl Replies {
    /// For the next one.
    pub fn room(&self) -> Room {
        Room::of_bytes(ALL_MAX.saturating_sub(self.0.load(Ordering::Relaxed)).max(SMALL))
    }

    /// As it goes out.
    pub fn reply(&self, outcome: Outcome) -> Reply {
        let bytes = match &outcome {
            Ok(Response::Put(put)) => put.encoded_len(),
            Ok(Response::DeleteRange(delete)) => delete.encoded_len(),
            Ok(Response::Txn(txn)) => txn.encoded_len(),
            _ => 0,
        };
        let held = (bytes > SMALL).then(|| {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Held { replies: self.clone(), bytes }
        });
        Reply { outcome, held }
    }
}

impl From<Outcome> for Reply {
    /// Of another member, which has counted it.
    fn from(outcome: Outcome) -> Self {
        Self { outcome, held: None }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.replies.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
