//! The messages of a call, one by one: taken off its HTTP/2 stream as they come, counted, and unpacked.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::grpc::call::Decompress;
use crate::grpc::connection::Asking;
use crate::grpc::frame::Deframer;
use crate::grpc::memory::{Kept, Place, Share, Taken};
use crate::grpc::status::{Code, Status};
use crate::grpc::unpacking::{Unpacking, at_once, elsewhere};

/// The requests of a call, one by one.
pub struct Requests {
    source: Source,
    counted: Option<Counted>,
    /// Told when more has come of a message that is not whole, and how much had come when that was looked at last.
    pieces: Option<(Box<dyn Fn()>, usize)>,
    asking: Option<Rc<Asking>>,
}

/// Told how many bytes of messages came or go.
pub(crate) type Count = Rc<dyn Fn(usize)>;

/// Where what a client sends is left by a service that reads no more of it.
pub(crate) type Left = Rc<Cell<Option<RecvStream>>>;

/// Who is told of messages, and what has come of one that may never be whole.
struct Counted {
    count: Count,
    /// `None`: it is told of whole ones alone.
    begun: Option<usize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(bytes) = self.begun.filter(|bytes| *bytes > 0) {
            (self.count)(bytes);
        }
    }
}

struct Unread {
    stream: Option<RecvStream>,
    left: Option<Left>,
}

impl Unread {
    /// Nothing more is read of it; where nobody else has it, HTTP/2 throws away what comes.
    fn leave(&mut self) {
        let stream = self.stream.take();
        if let (Some(left), Some(stream)) = (&self.left, stream) {
            left.set(Some(stream));
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Where they come from.
#[expect(clippy::large_enum_variant, reason = "nearly all are framed, and are not allocated for the others' sake")]
enum Source {
    /// The client's own HTTP/2 stream.
    Framed(Framed),
    /// Somebody who speaks for the client.
    Messages(mpsc::Receiver<Bytes>),
}

struct Framed {
    body: Unread,
    deframer: Deframer,
    is_over: bool,
    memory: Share,
    decompress: Option<Decompress>,
    /// A message that is whole, and how long it is as it came.
    unpacking: Option<(Unpacking, usize)>,
    /// Of the message that is under way, and of the last one that came, until the next is asked for.
    taken: Option<Taken>,
    /// Among all messages of which more is to come. It goes when what was taken is given back.
    place: Option<Rc<Place>>,
    /// What its call holds, which goes with it: until the first message is whole, or as long as it lasts.
    call_bytes: usize,
    /// Of the messages that a client need not send, since anybody may call: it never ceases to wait.
    is_for_anybody: bool,
    /// No message has come yet.
    is_first: bool,
    patience: Patience,
    /// Rings when nothing has come for that long of a message that was begun, or of the first.
    still: Option<Pin<Box<Sleep>>>,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// To begin its first message.
    pub(crate) first: Duration,
    /// For something more of a message that was begun.
    pub(crate) more: Duration,
}

impl fmt::Debug for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Requests")
    }
}

fn without_message() -> Status {
    Status::new(Code::Internal, "grpc: a request without a message")
}

impl Requests {
    pub(crate) fn new(
        body: RecvStream,
        message_bytes_max: usize,
        memory: Share,
        decompress: Option<Decompress>,
        patience: Patience,
    ) -> Self {
        let deframer = Deframer::new(message_bytes_max);
        let deframer = if decompress.is_some() { deframer.taking_compressed() } else { deframer };
        let source = Source::Framed(Framed {
            body: Unread { stream: Some(body), left: None },
            deframer,
            is_over: false,
            memory,
            decompress,
            unpacking: None,
            taken: None,
            place: None,
            call_bytes: 0,
            is_for_anybody: false,
            is_first: true,
            patience,
            still: None,
        });
        Self { source, counted: None, pieces: None, asking: None }
    }

    /// Messages that came another way.
    pub fn of(messages: mpsc::Receiver<Bytes>) -> Self {
        Self { source: Source::Messages(messages), counted: None, pieces: None, asking: None }
    }

    /// The same; the call is told when the first has come, and has what is left.
    pub(crate) fn of_call(mut self, asking: Rc<Asking>, left: &Left) -> Self {
        if let Source::Framed(Framed { body, .. }) = &mut self.source {
            body.left = Some(Rc::clone(left));
        }
        Self { asking: Some(asking), ..self }
    }

    /// What this call, which has taken so much, waits for the rest of; when it must make room, the call must end.
    pub(crate) fn coming(&mut self, call_bytes: usize, is_for_anybody: bool) -> Option<Coming> {
        let Source::Framed(framed) = &mut self.source else { return None };
        (framed.call_bytes, framed.is_for_anybody) = (call_bytes, is_for_anybody);
        let place = framed.place.get_or_insert_with(|| Rc::new(framed.memory.place()));
        place.holds(call_bytes + framed.deframer.begun());
        Some(Coming { place: Rc::clone(place), call_bytes, memory: framed.memory.clone() })
    }

    /// The same; `count` is told the bytes of each message that comes.
    pub fn counted(self, count: impl Fn(usize) + 'static) -> Self {
        Self { counted: Some(Counted { count: Rc::new(count), begun: None }), ..self }
    }

    /// The same; `count` is told what has come of one, too, that will not be whole.
    pub fn counted_in_part(self, count: impl Fn(usize) + 'static) -> Self {
        Self { counted: Some(Counted { count: Rc::new(count), begun: Some(0) }), ..self }
    }

    /// The same; `tell` is called whenever more has come of a message that is not whole.
    pub fn telling_of_pieces(self, tell: impl Fn() + 'static) -> Self {
        Self { pieces: Some((Box::new(tell), 0)), ..self }
    }

    /// Room on the connection for what is kept of requests when the next is asked for; `None`: they came another way.
    pub fn room(&self) -> Option<Kept> {
        match &self.source {
            Source::Framed(framed) => Some(framed.memory.keep()),
            Source::Messages(_) => None,
        }
    }

    /// The next request; `None`: the client has sent its last. Errors: what the call must end with.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Requests::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let (next, uncounted) = match &mut self.source {
            Source::Framed(framed) => (framed.poll_next(context), framed.uncounted()),
            Source::Messages(messages) => (messages.poll_recv(context).map(Ok), 0),
        };
        if let Some(begun) = self.counted.as_mut().and_then(|counted| counted.begun.as_mut()) {
            *begun = uncounted;
        }
        if let Some((tell, before)) = &mut self.pieces {
            if next.is_pending() && uncounted > *before {
                tell();
            }
            *before = uncounted;
        }
        let next = ready!(next);
        if let (Some(asking), Ok(_)) = (&self.asking, &next) {
            asking.has_come();
        }
        if let (Some(counted), Ok(Some(message))) = (&self.counted, &next) {
            (counted.count)(message.len());
        }
        Poll::Ready(next)
    }

    /// The only request of a call that has no more: what the client sends behind it is thrown away, and takes no memory however long the call goes on.
    ///
    /// # Errors
    ///
    /// `Internal`, as of a unary call, if there is none.
    pub async fn only(mut self) -> Result<Bytes, Status> {
        self.next().await?.ok_or_else(without_message)
    }

    /// Whether something has come of a message that nobody has yet.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(&self.source, Source::Framed(framed) if framed.uncounted() > 0)
    }

    /// The only request of a unary call. What comes behind it is thrown away; what the message takes is kept until this is dropped.
    pub(crate) fn poll_only(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let next = ready!(self.poll_next(context));
        if let Source::Framed(Framed { body, .. }) = &mut self.source {
            body.leave();
        }
        match next? {
            Some(message) => Poll::Ready(Ok(message)),
            None => Poll::Ready(Err(without_message())),
        }
    }
}

impl Drop for Framed {
    fn drop(&mut self) {
        // Nobody is told to make room for what is not given back yet.
        self.taken = None;
        self.holds(0);
    }
}

impl Framed {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        if self.unpacking.is_some() {
            return self.poll_unpacked(context);
        }
        loop {
            if self.deframer.begun() == 0 && !self.is_first {
                (self.taken, self.still) = (None, None);
            }
            if let Some(message) = self.deframer.message()? {
                self.has_come();
                return match self.decompress.filter(|_| self.deframer.is_compressed()) {
                    Some(decompress) => self.poll_unpack(decompress, message, context),
                    None => Poll::Ready(Ok(Some(message))),
                };
            }
            // What has come, and not what is claimed: a claim costs nothing.
            let begun = self.deframer.begun();
            match &mut self.taken {
                Some(taken) => taken.grow_for(begun.saturating_sub(taken.bytes()), self.place.as_deref())?,
                None if begun > 0 => self.taken = Some(self.memory.take(begun)?),
                None => {}
            }
            self.holds(begun);
            if self.is_over {
                self.deframer.finish()?;
                self.has_come();
                return Poll::Ready(Ok(None));
            }
            let Some(body) = &mut self.body.stream else { return Poll::Ready(Ok(None)) };
            let Poll::Ready(data) = body.poll_data(context) else {
                return if begun == 0 && !self.is_first { Poll::Pending } else { self.poll_still(begun, context) };
            };
            match data {
                Some(Ok(chunk)) => {
                    // An empty frame brings nothing.
                    if let Some(still) = self.still.as_mut().filter(|_| !chunk.is_empty()) {
                        still.as_mut().reset(Instant::now() + self.patience.more);
                    }
                    // What is in the deframer is bounded by the longest message.
                    let _ = body.flow_control().release_capacity(chunk.len());
                    self.is_over = body.is_end_stream();
                    self.deframer.push(chunk);
                }
                Some(Err(error)) => return Poll::Ready(Err(Status::new(Code::Canceled, error.to_string()))),
                None => self.is_over = true,
            }
        }
    }

    /// So much is here of a message that is not whole.
    fn holds(&self, bytes: usize) {
        if let Some(place) = &self.place {
            place.holds(self.call_bytes + bytes);
        }
    }

    /// A message is whole, or the last one was: of who may call, what his call holds is his from now on.
    fn has_come(&mut self) {
        self.is_first = false;
        if !self.is_for_anybody {
            self.call_bytes = 0;
        }
        self.holds(0);
    }

    /// What has come and nobody was told of.
    fn uncounted(&self) -> usize {
        self.deframer.begun() + self.unpacking.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Ready when nothing has come for too long.
    fn poll_still<T>(&mut self, begun: usize, context: &mut Context<'_>) -> Poll<Result<T, Status>> {
        let Patience { first, more } = self.patience;
        let still = self.still.get_or_insert_with(|| Box::pin(sleep(if begun == 0 { first } else { more })));
        ready!(still.as_mut().poll(context));
        let message = match begun {
            0 => format!(
                "grpc: nothing came of the first message of a call for {first:?}: begin a call with its message"
            ),
            _ => format!("grpc: nothing came of a message that was begun for {more:?}"),
        };
        Poll::Ready(Err(Status::new(Code::DeadlineExceeded, message)))
    }

    /// What comes out of a message counts until the next one is asked for.
    fn poll_unpack(
        &mut self,
        decompress: Decompress,
        message: Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Status>> {
        let length_max = self.deframer.length_max();
        let taken = match &mut self.taken {
            Some(taken) => taken,
            None => self.taken.insert(self.memory.take(0)?),
        };
        if let Some(plain) = at_once(decompress, &message, length_max, taken) {
            return Poll::Ready(plain.map(|plain| Some(plain.into())));
        }
        let bytes = message.len();
        self.unpacking = Some((elsewhere(decompress, message, length_max, &self.memory), bytes));
        self.poll_unpacked(context)
    }

    fn poll_unpacked(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let Some((unpacking, _)) = &mut self.unpacking else { return Poll::Pending };
        let unpacked = ready!(unpacking.as_mut().poll(context));
        self.unpacking = None;
        let (plain, room) = unpacked?;
        if let Some(taken) = &mut self.taken {
            taken.adopt(room);
        }
        Poll::Ready(Ok(Some(plain.into())))
    }
}

/// Who looks whether a message must make room, whatever its service is at.
pub(crate) struct Coming {
    place: Rc<Place>,
    /// What it holds besides what has come, at first.
    call_bytes: usize,
    memory: Share,
}

impl Coming {
    /// Of a call that has taken so much, and whose request comes as no messages of gRPC.
    pub(crate) fn of(memory: &Share, call_bytes: usize) -> Self {
        let place = Rc::new(memory.place());
        place.holds(call_bytes);
        Self { place, call_bytes, memory: memory.clone() }
    }

    /// Where it says that nothing more is to come.
    pub(crate) fn place(&self) -> Rc<Place> {
        Rc::clone(&self.place)
    }
}

impl Coming {
    /// Ready when it must: with what its call ends with.
    pub(crate) fn poll_must_go(&self, context: &Context<'_>) -> Poll<Status> {
        let message = self.place.message();
        let begun = || message.bytes().saturating_sub(self.call_bytes);
        message.poll_must_go(context).map(|()| self.memory.made_room(begun()))
    }
}
