//! Room that counts among what all have, and in no connection's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::{Memory, OF_ALL, OF_CONNECTION, Place, no_room};
use crate::grpc::coming::Asker;
use crate::grpc::status::Status;

/// Room that somebody holds; given back when this is dropped.
#[derive(Debug)]
pub struct Room {
    pub(super) memory: Memory,
    pub(super) bytes: usize,
}

impl Room {
    /// Takes more, if there is.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.memory.0.take(bytes, false);
        self.has_grown(bytes, has_room)
    }

    fn has_grown(&mut self, bytes: usize, has_room: bool) -> bool {
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Gives some back.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.0.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// Room for a message that comes piece by piece. While its end has not come it makes room for others that come, as messages of gRPC do for
/// each other.
pub struct Arriving {
    pub(super) room: Room,
    pub(super) place: Place,
    pub(super) origin: Arc<str>,
}

impl Arriving {
    /// Takes more for a piece that has come, if there is, or others make it.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let asker = Asker { origin: &self.origin, message: Some(&*self.place.message) };
        let has_room = self.room.memory.0.take_or_make_room(bytes, asker);
        let has_grown = self.room.has_grown(bytes, has_room);
        self.place.holds(self.room.bytes);
        has_grown
    }

    /// Gives some back, and waits for the rest.
    pub fn shrink(&mut self, bytes: usize) {
        self.room.shrink(bytes);
        self.place.holds(self.room.bytes);
    }

    /// Its end has come: it stays, until it grows or shrinks.
    pub fn has_come(&self) {
        self.place.holds(0);
    }

    /// Ready when it must make room: then this must be dropped.
    pub fn poll_must_go(&self, context: &Context<'_>) -> Poll<()> {
        self.place.message().poll_must_go(context)
    }
}

/// Room for what another thread makes of a message; see [`Taken::adopt`].
pub(crate) struct Elsewhere {
    pub(super) room: Room,
    pub(super) origin: Arc<str>,
    pub(super) left: usize,
    pub(super) bytes_max: usize,
}

impl Elsewhere {
    /// Takes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        if self.room.bytes + bytes > self.left {
            return Err(no_room(bytes, OF_CONNECTION, self.bytes_max));
        }
        let shared = &self.room.memory.0;
        let has_room = shared.take_or_make_room(bytes, Asker { origin: &self.origin, message: None });
        match self.room.has_grown(bytes, has_room) {
            true => Ok(()),
            false => Err(no_room(bytes, OF_ALL, self.room.memory.0.bytes_max)),
        }
    }
}
