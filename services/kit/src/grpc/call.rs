//! What a service sees of a call, and what it answers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::grpc::compression::Compression;
use crate::grpc::connection::Asking;
use crate::grpc::frame::{Deframer, split_first};
use crate::grpc::memory::{Kept, Share, Taken};
use crate::grpc::status::{Code, Status, success};
use crate::http::{Body, Incoming};

/// Decompresses a message to at most so many bytes. Before its result grows it asks for room, for so many bytes more, and ends with the
/// error that it is answered.
pub type Decompress = fn(&[u8], usize, &mut dyn FnMut(usize) -> Result<(), Status>) -> Result<Vec<u8>, Status>;

/// Answers calls. One lives on each worker thread; what threads share, it holds itself.
pub trait Service: 'static {
    /// Names a method.
    type Method: Copy + 'static;

    /// The method with this path, and whether requests or answers are a stream. It decides which of the next two is asked.
    fn method(&self, path: &str) -> Option<(Self::Method, bool)>;

    /// How long a request of this call may be, bytes, or what the call ends with before anything of it is read: who may not call is told here,
    /// before he has sent anything that takes memory. What was learnt of him may be kept in the method, for whoever answers.
    fn admit(&self, method: &mut Self::Method, caller: &Caller) -> Result<usize, Status> {
        let _ = (method, caller);
        Ok(usize::MAX)
    }

    /// Answers a unary call, at once if nothing must be waited for.
    fn unary(&self, method: Self::Method, caller: Caller, message: Bytes) -> Unary;

    /// Answers a streaming call. The future is dropped when the client has gone, or waits no longer.
    fn stream(&self, method: Self::Method, caller: Caller, requests: Requests, responses: Responses) -> Stream;

    /// How messages of a client that names this `grpc-encoding` are decompressed; `None`: it is not understood.
    fn decompress(&self, encoding: &str) -> Option<Decompress> {
        let _ = encoding;
        None
    }

    /// How this call is answered, whose client must [accept](super::accepts) that; `None`: with messages as they are. The client is told
    /// by whoever asks this; the messages themselves are compressed by the service, with [`Compression::frames`].
    fn compression(&self, method: Self::Method, headers: &HeaderMap) -> Option<Compression> {
        let _ = (method, headers);
        None
    }

    /// What clients are told to be understood, in `grpc-accept-encoding`.
    fn accepted_encodings(&self) -> Option<HeaderValue> {
        None
    }

    /// Answers a request that is no gRPC, if anything is served besides.
    fn http(&self, head: request::Parts, body: Incoming, peer: Rc<Peer>) -> Option<HttpAnswer> {
        drop((head, body, peer));
        None
    }

    /// What a stream ends with that is under way when the server stops.
    fn stopped(&self) -> Status {
        Status::new(Code::Unavailable, "the server is stopping; connect to it, or to another, again")
    }
}

/// The answer to a request that is no gRPC, under way.
pub type HttpAnswer = Pin<Box<dyn Future<Output = Response<Body>>>>;

/// The answer to a unary call: a message that [`crate::grpc::encode`] has framed, or an error.
pub enum Unary {
    /// It is here.
    Now(Result<Bytes, Status>),
    /// It comes. Dropped when the client has gone, or waits no longer.
    Later(Pin<Box<dyn Future<Output = Result<Bytes, Status>>>>),
}

/// A streaming call under way.
pub type Stream = Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// The other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The common name of its certificate, if it showed one that was verified.
    pub common_name: Option<String>,
    /// Whether it came by TLS.
    pub is_tls: bool,
    /// Where it comes from, as logs say it; empty where nobody knows.
    pub address: String,
    /// On which socket it came, in the order of [`crate::server::Bound::addresses`].
    pub listener: usize,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The metadata.
    pub headers: HeaderMap,
    /// The other end.
    pub peer: Rc<Peer>,
}

/// The client has gone; nobody waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A request, of the message that came.
pub fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message)
        .map_err(|error| Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}")))
}

/// The requests of a call, one by one.
pub struct Requests {
    source: Source,
    counted: Option<Count>,
    asking: Option<Rc<Asking>>,
}

/// Told how many bytes of messages came or go.
type Count = Rc<dyn Fn(usize)>;

/// Where what a client sends is left by a service that reads no more of it.
pub(crate) type Left = Rc<Cell<Option<RecvStream>>>;

struct Unread {
    stream: Option<RecvStream>,
    left: Option<Left>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(left) = &self.left {
            left.set(self.stream.take());
        }
    }
}

/// Where they come from.
enum Source {
    /// The client's own HTTP/2 stream.
    Framed {
        body: Unread,
        deframer: Deframer,
        is_over: bool,
        memory: Share,
        decompress: Option<Decompress>,
        /// Of the message that is under way, and of the last one that came, until the next is asked for.
        taken: Option<Taken>,
        patience: Duration,
        /// Rings when nothing has come for that long of a message that was begun.
        still: Option<Pin<Box<Sleep>>>,
    },
    /// Somebody who speaks for the client.
    Messages(mpsc::Receiver<Bytes>),
}

impl fmt::Debug for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Requests")
    }
}

impl Requests {
    pub(crate) fn new(
        body: RecvStream,
        message_bytes_max: usize,
        memory: Share,
        decompress: Option<Decompress>,
        patience: Duration,
    ) -> Self {
        let deframer = Deframer::new(message_bytes_max);
        let deframer = if decompress.is_some() { deframer.taking_compressed() } else { deframer };
        let body = Unread { stream: Some(body), left: None };
        Self {
            source: Source::Framed {
                body,
                deframer,
                is_over: false,
                memory,
                decompress,
                taken: None,
                patience,
                still: None,
            },
            counted: None,
            asking: None,
        }
    }

    /// Messages that came another way.
    pub fn of(messages: mpsc::Receiver<Bytes>) -> Self {
        Self { source: Source::Messages(messages), counted: None, asking: None }
    }

    /// The same; the call is told when the first has come, and has what is left.
    pub(crate) fn of_call(mut self, asking: Rc<Asking>, left: &Left) -> Self {
        if let Source::Framed { body, .. } = &mut self.source {
            body.left = Some(Rc::clone(left));
        }
        Self { asking: Some(asking), ..self }
    }

    /// The same; `count` is told the bytes of each message that comes.
    pub fn counted(self, count: impl Fn(usize) + 'static) -> Self {
        Self { counted: Some(Rc::new(count)), ..self }
    }

    /// Room on the connection for what is kept of requests when the next is asked for; `None`: they came another way.
    pub fn room(&self) -> Option<Kept> {
        match &self.source {
            Source::Framed { memory, .. } => Some(memory.keep()),
            Source::Messages(_) => None,
        }
    }

    /// The next request; `None`: the client has sent its last. Errors: what the call must end with.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Requests::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let next = ready!(self.poll_message(context));
        if let (Some(asking), Ok(_)) = (&self.asking, &next) {
            asking.has_come();
        }
        if let (Some(count), Ok(Some(message))) = (&self.counted, &next) {
            count(message.len());
        }
        Poll::Ready(next)
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        let (body, deframer, is_over, memory, decompress, taken, patience, still) = match &mut self.source {
            Source::Framed { body, deframer, is_over, memory, decompress, taken, patience, still } => {
                (body, deframer, is_over, memory, decompress, taken, *patience, still)
            }
            Source::Messages(messages) => return messages.poll_recv(context).map(Ok),
        };
        loop {
            if deframer.begun() == 0 {
                (*taken, *still) = (None, None);
            }
            if let Some(message) = deframer.message()? {
                let Some(decompress) = decompress.filter(|_| deframer.is_compressed()) else {
                    return Poll::Ready(Ok(Some(message)));
                };
                // What comes out of it counts until the next message is asked for.
                let taken = match taken {
                    Some(taken) => taken,
                    None => taken.insert(memory.take(0)?),
                };
                let plain = decompress(&message, deframer.length_max(), &mut |bytes| taken.grow(bytes))?;
                return Poll::Ready(Ok(Some(plain.into())));
            }
            // What has come, and not what is claimed: a claim costs nothing.
            match taken {
                Some(taken) => taken.grow(deframer.begun().saturating_sub(taken.bytes()))?,
                None if deframer.begun() > 0 => *taken = Some(memory.take(deframer.begun())?),
                None => {}
            }
            if *is_over {
                deframer.finish()?;
                return Poll::Ready(Ok(None));
            }
            let Some(body) = &mut body.stream else { return Poll::Ready(Ok(None)) };
            let Poll::Ready(data) = body.poll_data(context) else {
                if deframer.begun() == 0 {
                    return Poll::Pending;
                }
                let still = still.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(still.as_mut().poll(context));
                let message = format!("grpc: nothing came of a message that was begun for {patience:?}");
                return Poll::Ready(Err(Status::new(Code::DeadlineExceeded, message)));
            };
            if let Some(still) = still {
                still.as_mut().reset(Instant::now() + patience);
            }
            match data {
                Some(Ok(chunk)) => {
                    // What is in the deframer is bounded by the longest message.
                    let _ = body.flow_control().release_capacity(chunk.len());
                    *is_over = body.is_end_stream();
                    deframer.push(chunk);
                }
                Some(Err(error)) => return Poll::Ready(Err(Status::new(Code::Canceled, error.to_string()))),
                None => *is_over = true,
            }
        }
    }

    /// The only request of a unary call.
    pub(crate) fn poll_only(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        match ready!(self.poll_next(context))? {
            Some(message) => Poll::Ready(Ok(message)),
            None => Poll::Ready(Err(Status::new(Code::Internal, "grpc: a request without a message"))),
        }
    }
}

/// The way back of a call.
pub(crate) struct Sender {
    respond: SendResponse<Bytes>,
    stream: Option<SendStream<Bytes>>,
    memory: Share,
    accepted_encodings: Option<HeaderValue>,
    encoding: Option<&'static str>,
}

impl Sender {
    pub(crate) fn new(respond: SendResponse<Bytes>, memory: Share, accepted_encodings: Option<HeaderValue>) -> Self {
        Self { respond, stream: None, memory, accepted_encodings, encoding: None }
    }

    /// Messages may be compressed like this.
    pub(crate) fn set_encoding(&mut self, encoding: &'static str) {
        self.encoding = Some(encoding);
    }

    /// What the connection of this call may take.
    pub(crate) fn memory(&self) -> &Share {
        &self.memory
    }

    /// Whether the client takes so many bytes at once.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let is_open = self.memory.is_open();
        let Ok(stream) = self.open() else { return true };
        stream.reserve_capacity(bytes);
        is_open && stream.capacity() >= bytes
    }

    fn head(&self) -> Response<()> {
        let mut response = Response::new(());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let Some(accepted) = &self.accepted_encodings {
            response.headers_mut().insert("grpc-accept-encoding", accepted.clone());
        }
        response
    }

    /// Begins the answer, once.
    fn open(&mut self) -> Result<&mut SendStream<Bytes>, Gone> {
        if self.stream.is_none() {
            let mut head = self.head();
            if let Some(encoding) = self.encoding {
                head.headers_mut().insert("grpc-encoding", HeaderValue::from_static(encoding));
            }
            self.stream = Some(self.respond.send_response(head, false).map_err(|_| Gone)?);
        }
        self.stream.as_mut().ok_or(Gone)
    }

    /// Hands over as much as the client has room for, until all is handed over.
    pub(crate) fn poll_send(&mut self, message: &mut Bytes, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let stream = self.open()?;
        while !message.is_empty() {
            stream.reserve_capacity(message.len());
            let room = match stream.capacity() {
                0 => match ready!(stream.poll_capacity(context)) {
                    Some(Ok(room)) => room,
                    Some(Err(_)) | None => return Poll::Ready(Err(Gone)),
                },
                room => room,
            };
            let part = message.split_to(room.min(message.len()));
            stream.send_data(part, false).map_err(|_| Gone)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Answers a unary call whose message is small, and for which the client [has room](Self::has_room).
    pub(crate) fn answer(&mut self, message: Bytes) -> Result<(), Gone> {
        let stream = self.open()?;
        stream.send_data(message, false).map_err(|_| Gone)?;
        stream.send_trailers(success()).map_err(|_| Gone)
    }

    /// Ends the call.
    pub(crate) fn finish(&mut self, result: Result<(), Status>) {
        let trailers = result.map_or_else(|status| status.trailers(), |()| success());
        // An error here says that the client has gone.
        if let Some(stream) = &mut self.stream {
            let _ = stream.send_trailers(trailers);
            return;
        }
        let mut head = self.head();
        head.headers_mut().extend(trailers);
        let _ = self.respond.send_response(head, true);
    }

    /// Answers a request that is not gRPC.
    pub(crate) fn refuse(&mut self, status: StatusCode) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        let _ = self.respond.send_response(response, true);
    }

    /// Answers a request that is not gRPC, piece by piece; ends early when the client has gone.
    pub(crate) async fn answer_http(&mut self, response: Response<Body>) {
        let (mut head, mut body) = response.into_parts();
        // Of HTTP/1.1 only.
        head.headers.remove(header::CONNECTION);
        let Ok(stream) = self.respond.send_response(Response::from_parts(head, ()), false) else { return };
        self.stream = Some(stream);
        while let Some(mut piece) = poll_fn(|context| body.poll_piece(context)).await {
            if poll_fn(|context| self.poll_send(&mut piece, context)).await.is_err() {
                return;
            }
        }
        if let Some(stream) = &mut self.stream {
            let _ = stream.send_data(Bytes::new(), true);
        }
    }

    /// The client has given the call up.
    pub(crate) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let reset: Poll<Result<Reason, h2::Error>> = match &mut self.stream {
            Some(stream) => stream.poll_reset(context),
            None => self.respond.poll_reset(context),
        };
        reset.map(|_| ())
    }
}

/// The answers of a call.
#[derive(Clone)]
pub struct Responses {
    sink: Sink,
    counted: Option<Count>,
}

/// Where they go.
#[derive(Clone)]
enum Sink {
    Client(Rc<RefCell<Sender>>),
    Channel(mpsc::Sender<Bytes>),
}

impl fmt::Debug for Responses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Responses")
    }
}

impl Responses {
    pub(crate) fn new(sender: &Rc<RefCell<Sender>>) -> Self {
        Self { sink: Sink::Client(Rc::clone(sender)), counted: None }
    }

    /// Answers that go another way, in their frames.
    pub fn of(channel: mpsc::Sender<Bytes>) -> Self {
        Self { sink: Sink::Channel(channel), counted: None }
    }

    /// The same; `count` is told the bytes of all frames that are sent together.
    pub fn counted(self, count: impl Fn(usize) + 'static) -> Self {
        Self { counted: Some(Rc::new(count)), ..self }
    }

    /// Lets the client know that the call has begun, before there is anything to say.
    pub fn open(&self) -> Result<(), Gone> {
        match &self.sink {
            Sink::Client(sender) => sender.borrow_mut().open().map(|_| ()),
            Sink::Channel(channel) => {
                if channel.is_closed() {
                    Err(Gone)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Waits until the client has taken most of what the streams of its connection have made for it with [`Responses::send_counted`]: who makes
    /// large messages waits for that before it makes the next one.
    pub async fn turn(&self) {
        if let Sink::Client(sender) = &self.sink {
            let memory = sender.borrow().memory.clone();
            memory.stream_turn().await;
        }
    }

    /// As [`Responses::send`]; what waits for the client counts until it has taken it. An error is what the call ends with.
    pub async fn send_counted(&self, frames: Bytes) -> Result<(), Status> {
        let _waiting = match &self.sink {
            Sink::Client(sender) => Some(sender.borrow().memory.take_streamed(frames.len())?),
            Sink::Channel(_) => None,
        };
        self.send(frames).await.map_err(|Gone| Status::new(Code::Canceled, "the client has gone"))
    }

    /// Sends messages that [`crate::grpc::encode`] and others have framed, one or several one behind the other; ends when the
    /// client has room for the last byte.
    pub async fn send(&self, mut frames: Bytes) -> Result<(), Gone> {
        if let Some(count) = &self.counted {
            count(frames.len());
        }
        match &self.sink {
            Sink::Client(sender) => {
                let memory = sender.borrow().memory.clone();
                memory.unblocked().await;
                poll_fn(|context| sender.borrow_mut().poll_send(&mut frames, context)).await
            }
            Sink::Channel(channel) => {
                while let Some(frame) = split_first(&mut frames) {
                    channel.send(frame).await.map_err(|_| Gone)?;
                }
                Ok(())
            }
        }
    }
}
