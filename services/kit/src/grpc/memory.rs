//! Memory for calls under way, before and after anybody has said who he is: their headers, messages whose end has not come yet or that
//! are being worked on, and answers that the client does not take.
//!
//! A message is counted as its bytes come: what is only claimed takes nothing. One connection cannot take what all have,
//! and all together cannot take more than the server may use: beyond, calls are refused. The first [`OWN_BYTES`] of each
//! connection are its own, so that small calls are served whatever others hold. Where all is taken, a message that has held much for long and
//! is still not whole makes room: see [`crate::grpc::coming`]. While a client does not take its answers no more
//! are made for it: see [`Share::turn`]; and answers together take half at most, so that requests have room whoever takes no answer, and those
//! for one [origin](crate::grpc::Peer::origin) three quarters of that, so that others are answered.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::{HeaderName, HeaderValue, request};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::grpc::coming::{Asker, Coming, Message};
use crate::grpc::status::{Code, Status};

mod room;

pub(crate) use room::Elsewhere;
pub use room::{Arriving, Room};

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
    /// The same, of each origin that is connected.
    answers_of: Mutex<HashMap<Arc<str>, Weak<AtomicUsize>>>,
    /// Of it, answers to calls that anybody may make.
    open: AtomicUsize,
    /// Messages whose end has not come.
    coming: Coming,
    /// For messages that are unpacked on threads of their own: one processor in two, so that the others go on to serve.
    unpacking: Arc<Semaphore>,
}

/// What each connection may take whatever the others have: the sum is bounded by the number of connections.
const OWN_BYTES: usize = 32 << 10;

/// Answers of a connection that may wait for the client while more are made, bytes.
const ANSWERS_WAITING_BYTES: usize = 4 << 20;

/// Messages of streams of a connection that may wait for the client while more are made, bytes.
const STREAMED_WAITING_BYTES: usize = 4 << 20;

/// Answers that wait for clients may take such a part of all.
const ANSWERS_PART: usize = 2;

/// Of what answers may take, those that wait for one origin may take so many quarters.
const ORIGIN_QUARTERS: usize = 3;

/// Answers on streams that anybody may open may take such a part of all, but for those that are short.
const OPEN_PART: usize = 16;
const OPEN_SHORT_BYTES: usize = 1 << 10;

/// Of what messages hold that were told to make room, such a part of all may be taken before they are gone.
const LEAVING_PART: usize = 8;

/// What a call costs besides its headers and messages, about: its stream, the table of its headers, its future, its clock.
pub const CALL_BYTES: usize = 6 << 10;
const HEADER_BYTES: usize = 32;

impl Memory {
    /// So many bytes for all.
    pub fn new(bytes_max: usize) -> Self {
        Self::with_own(bytes_max, OWN_BYTES)
    }

    fn with_own(bytes_max: usize, own_bytes: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Shared {
            bytes_max,
            own_bytes,
            taken: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            answers_of: Mutex::default(),
            open: AtomicUsize::new(0),
            coming: Coming::default(),
            unpacking: Arc::new(Semaphore::new((processors / 2).max(1))),
        }))
    }

    /// Room that grows and shrinks, for who keeps something of a request elsewhere.
    pub fn room(&self) -> Room {
        Room { memory: self.clone(), bytes: 0 }
    }

    /// Room for a message from this [origin](crate::grpc::Peer::origin) that comes piece by piece elsewhere.
    pub fn arriving(&self, origin: &str) -> Arriving {
        let origin: Arc<str> = origin.into();
        Arriving { room: self.room(), place: self.place(&origin), origin }
    }

    /// A place among the messages of which more is to come.
    fn place(&self, origin: &Arc<str>) -> Place {
        Place { memory: self.clone(), message: self.0.coming.begin(origin) }
    }

    /// What is taken at the moment, bytes, besides what connections have of their own.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// The part of one connection, of this [origin](crate::grpc::Peer::origin).
    pub(crate) fn of_connection(&self, bytes_max: usize, origin: &str) -> Share {
        let origin: Arc<str> = origin.into();
        Share(Rc::new(Connection {
            memory: self.clone(),
            answers_of_origin: self.0.answers_of(&origin),
            origin,
            bytes_max,
            taken: Cell::new(0),
            answers: Cell::new(0),
            streamed: Cell::new(0),
            handed_over: Cell::new(0),
            is_blocked: Cell::new(false),
            opened: Notify::new(),
            unblocked: Notify::new(),
            drained: Notify::new(),
            unpacking: Semaphore::new(1),
        }))
    }
}

/// Takes so much of `bytes_max`, if there is; also a little more than there is, if `may_exceed`.
fn take(taken: &AtomicUsize, bytes: usize, bytes_max: usize, may_exceed: bool) -> bool {
    let add = |taken: usize| {
        let after = taken.checked_add(bytes)?;
        (after <= bytes_max || may_exceed && taken < bytes_max).then_some(after)
    };
    bytes == 0 || taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Shared {
    /// Takes so much, if there is; also a little more than there is, if `may_exceed`.
    fn take(&self, bytes: usize, may_exceed: bool) -> bool {
        take(&self.taken, bytes, self.bytes_max, may_exceed)
    }

    /// The same; where there is not enough, messages make room, if others have held more for longer than who asks.
    fn take_or_make_room(&self, bytes: usize, asker: Asker<'_>) -> bool {
        self.take(bytes, false) || {
            let missing = || (self.taken.load(Ordering::Relaxed) + bytes).saturating_sub(self.bytes_max);
            let take = |leaving| {
                let add = |taken: usize| taken.checked_add(bytes).filter(|after| *after <= self.bytes_max + leaving);
                self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
            };
            self.coming.make_room(asker, bytes, self.bytes_max / LEAVING_PART, missing, take)
        }
    }

    /// What answers for an origin take, which all of its connections count in.
    fn answers_of(&self, origin: &Arc<str>) -> Arc<AtomicUsize> {
        let mut answers_of = self.answers_of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = answers_of.get(origin).and_then(Weak::upgrade) {
            return answers;
        }
        // Now and then, those that are not connected any more are forgotten.
        if answers_of.len() == answers_of.capacity() {
            answers_of.retain(|_, answers| answers.strong_count() > 0);
        }
        let answers = Arc::default();
        answers_of.insert(Arc::clone(origin), Arc::downgrade(&answers));
        answers
    }

    /// What of so much is not a connection's own.
    fn beyond_own(&self, taken: usize) -> usize {
        taken.saturating_sub(self.own_bytes)
    }
}

/// What a connection may take. Clones are the same.
#[derive(Clone)]
pub(crate) struct Share(Rc<Connection>);

struct Connection {
    memory: Memory,
    origin: Arc<str>,
    bytes_max: usize,
    taken: Cell<usize>,
    /// Of it, answers that wait for the client.
    answers: Cell<usize>,
    /// The same, of all connections of its origin.
    answers_of_origin: Arc<AtomicUsize>,
    /// Of it, messages of streams that wait for the client.
    streamed: Cell<usize>,
    /// What HTTP/2 has, since all that it had was written.
    handed_over: Cell<usize>,
    /// The client does not read what was written.
    is_blocked: Cell<bool>,
    /// Wakes one whose turn may be now; it wakes the next.
    opened: Notify,
    /// Wakes all that wait for the client to read, or for what was handed over to be written, whatever waits for its turn besides.
    unblocked: Notify,
    /// Wakes one stream that may have room now; it wakes the next.
    drained: Notify,
    /// Of its messages one is unpacked at a time on a thread of its own.
    unpacking: Semaphore,
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

    /// Waits until the client reads what was written.
    pub(crate) async fn unblocked(&self) {
        // Nothing comes between the look and the wait: a connection is one task.
        while self.0.is_blocked.get() {
            self.0.unblocked.notified().await;
        }
    }

    /// Waits until all is written that was handed over.
    pub(crate) async fn written(&self) {
        while self.0.handed_over.get() > 0 {
            self.0.unblocked.notified().await;
        }
    }

    /// Whether a call's turn is now.
    pub(crate) fn is_open(&self) -> bool {
        self.0.answers.get() + self.0.handed_over.get() < ANSWERS_WAITING_BYTES && !self.0.is_blocked.get()
    }

    /// So much was handed over to HTTP/2, which keeps it until it is written.
    pub(crate) fn hand_over(&self, bytes: usize) {
        self.0.handed_over.update(|handed_over| handed_over + bytes);
    }

    /// HTTP/2 has written all that it may, or as much as the client reads.
    pub(crate) fn set_written(&self, is_blocked: bool) {
        let (was_open, might_stream) = (self.is_open(), self.may_stream());
        let was_blocked = self.0.is_blocked.replace(is_blocked);
        if is_blocked {
            return;
        }
        let has_written = self.0.handed_over.replace(0) > 0;
        if was_blocked || has_written {
            self.0.unblocked.notify_waiters();
        }
        if !was_open {
            self.0.opened.notify_one();
        }
        if !might_stream {
            self.0.drained.notify_one();
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
        let Connection { memory: Memory(shared), answers_of_origin: of_origin, .. } = &*self.0;
        let is_first = self.0.answers.get() == 0;
        let bytes_max = shared.bytes_max / ANSWERS_PART;
        let of_origin_max = bytes_max / 4 * ORIGIN_QUARTERS;
        let no_room = |clients: &str, bytes_max: usize| {
            let what = format!(
                "grpc: no room for an answer of {bytes} bytes: answers that {clients} not take may take {bytes_max}"
            );
            Err(Status::new(Code::ResourceExhausted, what))
        };
        if !take(of_origin, bytes, of_origin_max, is_first) {
            return no_room("clients of this host do", of_origin_max);
        }
        let give_back = |answers: &AtomicUsize| answers.fetch_sub(bytes, Ordering::Relaxed);
        if !take(&shared.answers, bytes, bytes_max, is_first) {
            give_back(of_origin);
            return no_room("clients do", bytes_max);
        }
        match self.take_or_exceed(bytes, is_first) {
            Ok(taken) => {
                self.0.answers.set(self.0.answers.get() + bytes);
                Ok(Waiting(taken))
            }
            Err(status) => {
                give_back(of_origin);
                give_back(&shared.answers);
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

    /// Whether streams have room at the moment.
    pub(crate) fn may_stream(&self) -> bool {
        self.0.streamed.get() + self.0.handed_over.get() < STREAMED_WAITING_BYTES
    }

    /// Takes room for messages of a stream; refused only when all connections together have taken everything.
    pub(crate) fn take_streamed(&self, bytes: usize) -> Result<Streamed, Status> {
        let taken = self.take_or_exceed(bytes, true)?;
        self.0.streamed.set(self.0.streamed.get() + bytes);
        Ok(Streamed(taken))
    }

    /// Takes room for an answer on a stream that anybody may open.
    pub(crate) fn take_open(&self, bytes: usize) -> Result<Open, Status> {
        let Memory(shared) = &self.0.memory;
        let bytes_max = shared.bytes_max / OPEN_PART;
        let counted = if bytes <= OPEN_SHORT_BYTES { 0 } else { bytes };
        if !take(&shared.open, counted, bytes_max, false) {
            let what = format!(
                "grpc: no room for an answer of {bytes} bytes: answers of health and reflection that clients do not take may take {bytes_max}"
            );
            return Err(Status::new(Code::ResourceExhausted, what));
        }
        // From here on it is given back whatever comes.
        let mut open = Open { memory: self.0.memory.clone(), counted, _streamed: None };
        open._streamed = Some(self.take_streamed(bytes)?);
        Ok(open)
    }

    /// Takes room for a message of this length, or says what the call must end with.
    pub(crate) fn take(&self, bytes: usize) -> Result<Taken, Status> {
        self.take_for(bytes, None)
    }

    /// The same for more of this message.
    fn take_for(&self, bytes: usize, message: Option<&Message>) -> Result<Taken, Status> {
        let Connection { memory: Memory(shared), bytes_max, taken, origin, .. } = &*self.0;
        if bytes > bytes_max.saturating_sub(taken.get()) {
            return Err(no_room(bytes, OF_CONNECTION, *bytes_max));
        }
        self.take_where(bytes, |bytes| shared.take_or_make_room(bytes, Asker { origin, message }))
    }

    fn take_or_exceed(&self, bytes: usize, may_exceed: bool) -> Result<Taken, Status> {
        let Connection { memory: Memory(shared), bytes_max, taken, origin, .. } = &*self.0;
        if bytes > bytes_max.saturating_sub(taken.get()) && !may_exceed {
            return Err(no_room(bytes, OF_CONNECTION, *bytes_max));
        }
        // Answers have their part: where it is taken, messages have more than theirs.
        let asker = Asker { origin, message: None };
        self.take_where(bytes, |bytes| shared.take(bytes, may_exceed) || shared.take_or_make_room(bytes, asker))
    }

    /// Takes what is not this connection's own with `take`.
    fn take_where(&self, bytes: usize, take: impl FnOnce(usize) -> bool) -> Result<Taken, Status> {
        let Connection { memory: Memory(shared), taken, .. } = &*self.0;
        let before = taken.get();
        if !take(shared.beyond_own(before + bytes) - shared.beyond_own(before)) {
            return Err(no_room(bytes, OF_ALL, shared.bytes_max));
        }
        taken.set(before + bytes);
        Ok(Taken { share: self.clone(), bytes })
    }

    /// A place among the messages of which more is to come.
    pub(crate) fn place(&self) -> Place {
        self.0.memory.place(&self.0.origin)
    }

    /// What a call is told that must make room, and so much of whose message has come.
    pub(crate) fn made_room(&self, bytes: usize) -> Status {
        let bytes_max = self.0.memory.0.bytes_max;
        let what = match bytes {
            0 => "a call that waited for its client".to_owned(),
            bytes => format!("a message of which {bytes} bytes had come"),
        };
        let what = format!("grpc: {what} made room for others: messages under way {OF_ALL} may take {bytes_max}");
        Status::new(Code::ResourceExhausted, what)
    }

    /// The turn of a message of this connection to be unpacked on a thread of its own; where there are several they come one after the other.
    pub(crate) async fn unpacking_turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.0.unpacking.acquire().await.ok()
    }

    /// The same among all connections, from when it is there.
    pub(crate) async fn unpacking_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.memory.0.unpacking).acquire_owned().await.ok()
    }

    /// Room for a message of this connection that is unpacked on another thread.
    pub(crate) fn room_elsewhere(&self) -> Elsewhere {
        let Connection { memory, origin, bytes_max, taken, .. } = &*self.0;
        let (room, left) = (memory.room(), bytes_max.saturating_sub(taken.get()));
        Elsewhere { room, origin: Arc::clone(origin), left, bytes_max: *bytes_max }
    }
}

const OF_CONNECTION: &str = "on a connection";
const OF_ALL: &str = "on all connections";

fn no_room(bytes: usize, whose: &str, bytes_max: usize) -> Status {
    let what = format!("grpc: no room for a message of {bytes} bytes: messages under way {whose} may take {bytes_max}");
    Status::new(Code::ResourceExhausted, what)
}

/// The place of a call among the messages of which more is to come; it is given up when this is dropped.
pub(crate) struct Place {
    memory: Memory,
    message: Arc<Message>,
}

impl Place {
    /// So much of its message is here, with what else goes when its call does.
    pub(crate) fn holds(&self, bytes: usize) {
        self.memory.0.coming.holds(&self.message, bytes);
    }

    /// Whether its call must make room.
    pub(crate) fn must_go(&self) -> bool {
        self.message.bytes() > 0 && self.message.must_go()
    }

    /// The message itself.
    pub(crate) fn message(&self) -> &Arc<Message> {
        &self.message
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.holds(0);
    }
}

/// Room of an answer that waits for the client.
pub(crate) struct Waiting(Taken);

impl Drop for Waiting {
    fn drop(&mut self) {
        let share = &self.0.share;
        share.0.answers.set(share.0.answers.get() - self.0.bytes);
        share.0.memory.0.answers.fetch_sub(self.0.bytes, Ordering::Relaxed);
        share.0.answers_of_origin.fetch_sub(self.0.bytes, Ordering::Relaxed);
        if share.is_open() {
            share.0.opened.notify_one();
        }
    }
}

/// Room of an answer on a stream that anybody may open.
pub(crate) struct Open {
    memory: Memory,
    counted: usize,
    _streamed: Option<Streamed>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.memory.0.open.fetch_sub(self.counted, Ordering::Relaxed);
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
        self.grow_for(bytes, None)
    }

    /// Takes more of a message that has this place.
    pub(crate) fn grow_for(&mut self, bytes: usize, place: Option<&Place>) -> Result<(), Status> {
        let mut more = self.share.take_for(bytes, place.map(|place| &*place.message))?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }

    /// Takes over what was taken elsewhere.
    pub(crate) fn adopt(&mut self, Elsewhere { mut room, .. }: Elsewhere) {
        let bytes = std::mem::take(&mut room.bytes);
        let Connection { memory: Memory(shared), taken, .. } = &*self.share.0;
        let before = taken.get();
        taken.set(before + bytes);
        self.bytes += bytes;
        // There its connection's own did not count.
        let own = bytes - (shared.beyond_own(before + bytes) - shared.beyond_own(before));
        shared.taken.fetch_sub(own, Ordering::Relaxed);
    }

    /// Of a call: gives back what its headers took, which nobody has any more.
    pub(crate) fn without_headers(&mut self) {
        self.shrink(self.bytes.saturating_sub(CALL_BYTES));
    }

    /// Gives some back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        let Connection { memory: Memory(shared), taken, .. } = &*self.share.0;
        let before = taken.get();
        let after = before - bytes;
        taken.set(after);
        self.bytes -= bytes;
        shared.taken.fetch_sub(shared.beyond_own(before) - shared.beyond_own(after), Ordering::Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shrink(self.bytes);
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
        taken.shrink(taken.bytes - bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
