//! What a stream of operations has become ready to say, from whatever thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use d_engine_client::wire;
use d_engine_client::{Error, Query, ReadOptions};
use prost::Message as _;
use service_kit::grpc::Room;
use tokio::sync::Notify;

/// A longer reply to a write takes room of all streams until it is sent.
pub(super) const SHORT_BYTES: usize = 1 << 10;

/// What has become ready.
pub(super) enum Ready {
    Reply(wire::Reply),
    /// To a write.
    Written {
        reply: wire::Reply,
        /// What it may have read at most.
        answer_bytes: usize,
        /// What a long one takes.
        room: Option<Room>,
    },
    /// The state is fresh enough for this read, or will not be.
    Look {
        id: u64,
        query: Query,
        options: ReadOptions,
        ticket: Result<replog::runtime::Ticket, Error>,
        /// What it takes until then, if that is much.
        room: Option<Room>,
    },
}

impl Ready {
    /// A reply to a write, if there is room for it; without, the client can ask again.
    pub(super) fn written(reply: wire::Reply, answer_bytes: usize, mut room: Room) -> Self {
        let bytes = reply.encoded_len();
        if bytes <= SHORT_BYTES {
            return Self::Written { reply, answer_bytes, room: None };
        }
        if room.grow(bytes) {
            return Self::Written { reply, answer_bytes, room: Some(room) };
        }
        let text = "it was done, but its answer finds no room: clients take too few of theirs; in a session, ask again";
        let reply = wire::Reply::of_error(reply.id, Error::UnknownOutcome(text.into()));
        Self::Written { reply, answer_bytes, room: None }
    }
}

/// What has become ready and was not sent.
#[derive(Default)]
pub(super) struct Done {
    ready: Mutex<Vec<Ready>>,
    pub(super) wake: Notify,
}

impl Wake for Done {
    fn wake(self: Arc<Self>) {
        self.wake.notify_one();
    }
}

impl Done {
    pub(super) fn push(&self, ready: Ready) {
        self.add(ready);
        self.wake.notify_one();
    }

    /// As [`Done::push`], for who wakes the stream later.
    pub(super) fn push_later(self: Arc<Self>, ready: Ready) -> Option<Waker> {
        self.add(ready);
        Some(self.into())
    }

    fn add(&self, ready: Ready) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(ready);
    }

    /// Gives what is ready for an empty place, whose room is used again.
    pub(super) fn take(&self, place: &mut Vec<Ready>) {
        std::mem::swap(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner), place);
    }
}
