//! Memory for calls under way, before and after anybody has said who he is: their headers, messages whose end has not come yet or that
//! are being worked on, and answers that the client does not take.
//!
//! A message is counted as its bytes come: what is only claimed takes nothing. One connection cannot take what all have,
//! and all together cannot take more than the server may use: beyond, calls are refused. The first [`OWN_BYTES`] of each
//! connection are its own, so that small calls are served whatever others hold. While a client does not take its answers no more
//! are made for it: see [`Share::turn`]; and answers together take half at most, so that requests have room whoever takes no answer.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderName, HeaderValue, request};
use tokio::sync::Notify;

use crate::grpc::status::{Code, Status};

/// What all connections of a server share. Clones are the same.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes_max: usize,
    own_bytes: usize,
    taken: AtomicUsize,
    /// Of it, answers that wait for clients.
    answers: AtomicUsize,
}

/// What each connection may take whatever the others have: the sum is bounded by the number of connections.
const OWN_BYTES: usize = 32 << 10;

/// Answers of a connection that may wait for the client while more are made, bytes.
const ANSWERS_WAITING_BYTES: usize = 4 << 20;

/// Messages of streams of a connection that may wait for the client while more are made, bytes.
const STREAMED_WAITING_BYTES: usize = 4 << 20;

/// Answers that wait for clients may take such a part of all.
const ANSWERS_PART: usize = 2;

/// What a call costs besides its headers and messages, about: its stream, its future.
const CALL_BYTES: usize = 1 << 10;
const HEADER_BYTES: usize = 32;

impl Memory {
    /// So many bytes for all.
    pub fn new(bytes_max: usize) -> Self {
        Self::with_own(bytes_max, OWN_BYTES)
    }

    fn with_own(bytes_max: usize, own_bytes: usize) -> Self {
        Self(Arc::new(Shared { bytes_max, own_bytes, taken: AtomicUsize::new(0), answers: AtomicUsize::new(0) }))
    }

    /// Room that grows and shrinks, for who keeps something of a request elsewhere.
    pub fn room(&self) -> Room {
        Room { memory: self.clone(), bytes: 0 }
    }

    /// What is taken at the moment, bytes, besides what connections have of their own.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// The part of one connection.
    pub(crate) fn of_connection(&self, bytes_max: usize) -> Share {
        let (opened, unblocked, drained) = (Notify::new(), Notify::new(), Notify::new());
        let (taken, answers, streamed, is_blocked) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(false));
        let memory = self.clone();
        let connection =
            Connection { memory, bytes_max, taken, answers, streamed, is_blocked, opened, unblocked, drained };
        Share(Rc::new(connection))
    }
}

impl Shared {
    /// Takes so much, if there is; also a little more than there is, if `may_exceed`.
    fn take(&self, bytes: usize, may_exceed: bool) -> bool {
        let add = |taken: usize| {
            let after = taken.checked_add(bytes)?;
            (after <= self.bytes_max || may_exceed && taken < self.bytes_max).then_some(after)
        };
        bytes == 0 || self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// What of so much is not a connection's own.
    fn beyond_own(&self, taken: usize) -> usize {
        taken.saturating_sub(self.own_bytes)
    }
}

/// Room that somebody holds; given back when this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    bytes: usize,
}

impl Room {
    /// Takes more, if there is.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.memory.0.take(bytes, false);
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

/// What a connection may take. Clones are the same.
#[derive(Clone)]
pub(crate) struct Share(Rc<Connection>);

struct Connection {
    memory: Memory,
    bytes_max: usize,
    taken: Cell<usize>,
    /// Of it, answers that wait for the client.
    answers: Cell<usize>,
    /// Of it, messages of streams that wait for the client.
    streamed: Cell<usize>,
    /// The client does not read what was written.
    is_blocked: Cell<bool>,
    /// Wakes one whose turn may be now; it wakes the next.
    opened: Notify,
    /// Wakes all that wait for the client to read, whatever waits for its turn besides.
    unblocked: Notify,
    /// Wakes one stream that may have room now; it wakes the next.
    drained: Notify,
}

impl Share {
    /// Waits until the client has taken enough of what it asked for before.
    pub(crate) async fn turn(&self) {
        while !self.is_open() {
            self.0.opened.notified().await;
        }
        // What this call does about it is seen when the next one looks.
        self.0.opened.notify_one();
    }

    /// Waits until the client reads what is written.
    pub(crate) async fn unblocked(&self) {
        // Nothing comes between the look and the wait: a connection is one task.
        while self.0.is_blocked.get() {
            self.0.unblocked.notified().await;
        }
    }

    /// Whether a call's turn is now.
    pub(crate) fn is_open(&self) -> bool {
        self.0.answers.get() < ANSWERS_WAITING_BYTES && !self.0.is_blocked.get()
    }

    /// Whether the client reads what is written.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        if self.0.is_blocked.replace(is_blocked) && !is_blocked {
            self.0.unblocked.notify_waiters();
            self.0.opened.notify_one();
        }
    }

    /// Takes room for a call that waits for something.
    pub(crate) fn take_call(&self, head: &request::Parts, message: usize) -> Result<Taken, Status> {
        let of_header = |(name, value): (&HeaderName, &HeaderValue)| HEADER_BYTES + name.as_str().len() + value.len();
        let headers: usize = head.headers.iter().map(of_header).sum();
        self.take(CALL_BYTES + headers + head.uri.path().len() + message)
    }

    /// Takes room for an answer that waits for the client; the first is only refused when others have taken everything.
    pub(crate) fn take_answer(&self, bytes: usize) -> Result<Waiting, Status> {
        let Shared { answers, bytes_max, .. } = &*self.0.memory.0;
        let is_first = self.0.answers.get() == 0;
        let bytes_max = bytes_max / ANSWERS_PART;
        let one_more = |before: usize| {
            let after = before.checked_add(bytes)?;
            (after <= bytes_max || is_first && before < bytes_max).then_some(after)
        };
        if answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            let what = format!(
                "grpc: no room for an answer of {bytes} bytes: answers that clients do not take may take {bytes_max}"
            );
            return Err(Status::new(Code::ResourceExhausted, what));
        }
        match self.take_or_exceed(bytes, is_first) {
            Ok(taken) => {
                self.0.answers.set(self.0.answers.get() + bytes);
                Ok(Waiting(taken))
            }
            Err(status) => {
                answers.fetch_sub(bytes, Ordering::Relaxed);
                Err(status)
            }
        }
    }

    /// Room for what is kept of requests; none yet.
    pub(crate) fn keep(&self) -> Kept {
        Kept(Taken { share: self.clone(), bytes: 0 })
    }

    /// Waits until the client has taken enough of what streams have for it. Who asked has room at once, and takes it before it waits for anything.
    pub(crate) async fn stream_turn(&self) {
        while !self.may_stream() {
            self.0.drained.notified().await;
        }
        self.0.drained.notify_one();
    }

    fn may_stream(&self) -> bool {
        self.0.streamed.get() < STREAMED_WAITING_BYTES
    }

    /// Takes room for messages of a stream; refused only when all connections together have taken everything.
    pub(crate) fn take_streamed(&self, bytes: usize) -> Result<Streamed, Status> {
        let taken = self.take_or_exceed(bytes, true)?;
        self.0.streamed.set(self.0.streamed.get() + bytes);
        Ok(Streamed(taken))
    }

    /// Takes room for a message of this length, or says what the call must end with.
    pub(crate) fn take(&self, bytes: usize) -> Result<Taken, Status> {
        self.take_or_exceed(bytes, false)
    }

    fn take_or_exceed(&self, bytes: usize, may_exceed: bool) -> Result<Taken, Status> {
        let refused = |whose: &str, bytes_max: usize| {
            let what = format!(
                "grpc: no room for a message of {bytes} bytes: messages under way {whose} may take {bytes_max}"
            );
            Err(Status::new(Code::ResourceExhausted, what))
        };
        let Connection { memory: Memory(shared), bytes_max, taken, .. } = &*self.0;
        let before = taken.get();
        if bytes > bytes_max.saturating_sub(before) && !may_exceed {
            return refused("on a connection", *bytes_max);
        }
        if !shared.take(shared.beyond_own(before + bytes) - shared.beyond_own(before), may_exceed) {
            return refused("on all connections", shared.bytes_max);
        }
        taken.set(before + bytes);
        Ok(Taken { share: self.clone(), bytes })
    }
}

/// Room of an answer that waits for the client.
pub(crate) struct Waiting(Taken);

impl Drop for Waiting {
    fn drop(&mut self) {
        let share = &self.0.share;
        share.0.answers.set(share.0.answers.get() - self.0.bytes);
        share.0.memory.0.answers.fetch_sub(self.0.bytes, Ordering::Relaxed);
        if share.is_open() {
            share.0.opened.notify_one();
        }
    }
}

/// Room of messages of a stream that wait for the client.
pub(crate) struct Streamed(Taken);

impl Drop for Streamed {
    fn drop(&mut self) {
        let share = &self.0.share;
        share.0.streamed.set(share.0.streamed.get() - self.0.bytes);
        if share.may_stream() {
            share.0.drained.notify_one();
        }
    }
}

/// Room that is given back when this is dropped.
pub(crate) struct Taken {
    share: Share,
    bytes: usize,
}

impl Taken {
    /// How much this is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Status> {
        let mut more = self.share.take(bytes)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Connection { memory: Memory(shared), taken, .. } = &*self.share.0;
        let before = taken.get();
        let after = before - self.bytes;
        taken.set(after);
        shared.taken.fetch_sub(shared.beyond_own(before) - shared.beyond_own(after), Ordering::Relaxed);
    }
}

/// Room on a connection for what is kept of its requests for longer than they are under way; given back when this is dropped.
pub struct Kept(Taken);

impl Kept {
    /// Takes more, or gives back, until it is so much. An error: there is no room for it, and it stays as it is.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Status> {
        let Self(taken) = self;
        if bytes >= taken.bytes {
            return taken.grow(bytes - taken.bytes);
        }
        let spare = std::mem::replace(&mut taken.bytes, bytes) - bytes;
        drop(Taken { share: taken.share.clone(), bytes: spare });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use proptest::prelude::*;

    use super::*;

    /// Each of thousands of watches of a connection that were not read kept its next frame in memory.
    #[test]
    fn streams_that_nobody_reads_wait_together() {
        let memory = Memory::with_own(3 * STREAMED_WAITING_BYTES, 0);
        let share = memory.of_connection(10);
        let is_ready = |turn: &mut std::pin::Pin<&mut dyn Future<Output = ()>>| {
            turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        let take = |bytes| share.take_streamed(bytes).map_err(|status| status.message).unwrap();
        let small = take(1);
        assert!(is_ready(&mut (pin!(share.stream_turn()) as _)));
        let large = take(STREAMED_WAITING_BYTES);
        let (mut one, mut other) = (pin!(share.stream_turn()), pin!(share.stream_turn()));
        assert!(!is_ready(&mut (one.as_mut() as _)) && !is_ready(&mut (other.as_mut() as _)));
        assert!(share.is_open(), "calls that are no streams go on");
        drop(large);
        // Each lets the next one look.
        assert!(is_ready(&mut (one as _)) && is_ready(&mut (other as _)));
        let all = take(3 * STREAMED_WAITING_BYTES);
        let refused = memory.of_connection(10).take_streamed(1).err().unwrap();
        assert_eq!(refused.code, Code::ResourceExhausted);
        drop((small, all));
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn a_connection_cannot_take_what_all_have() {
        let memory = Memory::with_own(100, 0);
        let (one, other) = (memory.of_connection(60), memory.of_connection(60));
        let first = one.take(50).map_err(|status| status.message).unwrap();
        let said = one.take(11).err().unwrap();
        assert_eq!(said.code, Code::ResourceExhausted);
        assert_eq!(
            said.message,
            "grpc: no room for a message of 11 bytes: messages under way on a connection may take 60"
        );
        let second = other.take(50).map_err(|status| status.message).unwrap();
        assert!(one.take(10).err().unwrap().message.ends_with("on all connections may take 100"));
        drop(first);
        assert_eq!(memory.taken(), 50);
        assert!(one.take(50).is_ok());
        drop((one, other, second));
        assert_eq!(memory.taken(), 0);
    }

    /// Keys of watches were kept for as long as their streams, and counted while their requests came.
    #[test]
    fn what_is_kept_of_requests_counts_until_it_is_given_back() {
        let memory = Memory::with_own(100, 0);
        let share = memory.of_connection(60);
        let mut kept = share.keep();
        assert!(kept.resize(50).is_ok() && memory.taken() == 50);
        assert_eq!(kept.resize(61).err().map(|status| status.code), Some(Code::ResourceExhausted));
        assert!(share.take(11).is_err() && memory.taken() == 50);
        assert!(kept.resize(40).is_ok() && share.take(20).is_ok() && memory.taken() == 40);
        drop(kept);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn a_small_call_has_room_whatever_others_hold() {
        let memory = Memory::with_own(100, 10);
        let (one, other) = (memory.of_connection(1_000), memory.of_connection(1_000));
        let held = one.take(110).map_err(|status| status.message).unwrap();
        assert_eq!(memory.taken(), 100);
        assert!(one.take(1).is_err() && other.take(11).is_err());
        let small = other.take(10).map_err(|status| status.message).unwrap();
        assert!(other.take(1).is_err());
        drop((held, small));
        assert_eq!((memory.taken(), one.0.taken.get(), other.0.taken.get()), (0, 0, 0));
    }

    #[test]
    fn a_large_answer_goes_where_nothing_else_waits() {
        let memory = Memory::with_own(100, 0);
        let (one, other) = (memory.of_connection(50), memory.of_connection(50));
        let large = one.take_answer(200).map_err(|status| status.message).unwrap();
        assert!(one.take_answer(1).is_err() && other.take_answer(1).is_err(), "now there is no room");
        drop(large);
        assert!(other.take_answer(1).is_ok());
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn answers_that_nobody_takes_leave_room_for_requests() {
        let memory = Memory::with_own(100, 0);
        let connections = [(); 8].map(|()| memory.of_connection(50));
        let held: Vec<_> = connections.iter().filter_map(|connection| connection.take_answer(20).ok()).collect();
        assert!(held.len() <= 3 && memory.taken() <= 60, "{} bytes", memory.taken());
        assert!(memory.of_connection(50).take(40).is_ok());
        drop(held);
        let half = memory.of_connection(100).take(50).map_err(|status| status.message).unwrap();
        assert!(connections[0].take_answer(40).is_ok(), "requests leave room for answers");
        drop(half);
        assert_eq!((memory.taken(), memory.0.answers.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_call_whose_turn_is_not_yet_takes_no_wake_up_from_an_answer_that_goes_on() {
        let share = Memory::new(ANSWERS_WAITING_BYTES * 2).of_connection(ANSWERS_WAITING_BYTES * 2);
        let waiting = share.take_answer(ANSWERS_WAITING_BYTES).map_err(|status| status.message).unwrap();
        share.set_blocked(true);
        let context = &mut Context::from_waker(Waker::noop());
        let (mut turn, mut first, mut second) = (pin!(share.turn()), pin!(share.unblocked()), pin!(share.unblocked()));
        assert!(turn.as_mut().poll(context).is_pending());
        assert!(first.as_mut().poll(context).is_pending() && second.as_mut().poll(context).is_pending());
        share.set_blocked(false);
        assert!(turn.as_mut().poll(context).is_pending(), "too many answers wait");
        assert!(first.as_mut().poll(context).is_ready() && second.as_mut().poll(context).is_ready());
        drop(waiting);
        assert!(turn.poll(context).is_ready());
    }

    proptest! {
        #[test]
        fn never_more_than_there_is_and_all_of_it_comes_back(
            steps in proptest::collection::vec((0..3_usize, 0..50_usize, any::<bool>()), 0..60),
        ) {
            let memory = Memory::with_own(100, 0);
            let connections = [40, 60, 100].map(|bytes_max| memory.of_connection(bytes_max));
            let mut held: Vec<Taken> = Vec::new();
            for (connection, bytes, gives_back) in steps {
                if gives_back && !held.is_empty() {
                    held.swap_remove(bytes % held.len());
                } else {
                    held.extend(connections[connection].take(bytes));
                }
                let sum = held.iter().map(|taken| taken.bytes).sum::<usize>();
                prop_assert!(sum <= 100);
                prop_assert_eq!(sum, memory.taken());
                for Share(connection) in &connections {
                    prop_assert!(connection.taken.get() <= connection.bytes_max);
                }
            }
            drop(held);
            prop_assert_eq!(memory.taken(), 0);
        }
    }
}
