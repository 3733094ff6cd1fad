//! What a service sees of a call, and what it answers.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request, response};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::grpc::compression::Compression;
use crate::grpc::frame::split_first;
use crate::grpc::memory::Share;
use crate::grpc::peer::Peer;
use crate::grpc::requests::{Count, Requests};
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
        let memory = self.memory.clone();
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
            memory.hand_over(part.len());
            stream.send_data(part, false).map_err(|_| Gone)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Answers a unary call whose message is small, and for which the client [has room](Self::has_room).
    pub(crate) fn answer(&mut self, message: Bytes) -> Result<(), Gone> {
        self.memory.hand_over(message.len());
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

    /// Begins the answer to a request that is not gRPC.
    pub(crate) fn begin_http(&mut self, mut head: response::Parts) -> Result<(), Gone> {
        // Of HTTP/1.1 only.
        head.headers.remove(header::CONNECTION);
        self.stream = Some(self.respond.send_response(Response::from_parts(head, ()), false).map_err(|_| Gone)?);
        Ok(())
    }

    /// Ends it; one that is not whole so that nobody takes it for that.
    pub(crate) fn finish_http(&mut self, is_whole: bool) {
        match &mut self.stream {
            Some(stream) if is_whole => {
                // An error says that the client has gone.
                let _ = stream.send_data(Bytes::new(), true);
            }
            _ => self.respond.send_reset(Reason::CANCEL),
        }
    }

    /// Ends the call at once; what the client has not taken is thrown away.
    fn reset(&mut self) {
        self.respond.send_reset(Reason::CANCEL);
    }

    /// Ends a request that is not gRPC and must make room for others.
    pub(crate) fn give_up_http(&mut self) {
        match self.stream {
            Some(_) => self.finish_http(false),
            None => self.refuse(StatusCode::TOO_MANY_REQUESTS),
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

    /// Whether its turn is now; who has waited for something else since asks again.
    pub fn is_turn(&self) -> bool {
        match &self.sink {
            Sink::Client(sender) => sender.borrow().memory.may_stream(),
            Sink::Channel(_) => true,
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

    /// For calls that anybody may make: sends what `make` makes in its turn, and ends when it was written. Until then it counts; a client that does not
    /// take it within `patience` is reset, so that nothing of it stays.
    pub async fn send_in_time(&self, patience: Duration, make: impl FnOnce() -> Bytes) -> Result<(), Status> {
        let sent = async {
            self.turn().await;
            let frames = make();
            let waiting = match &self.sink {
                Sink::Client(sender) => {
                    let memory = sender.borrow().memory.clone();
                    Some((memory.take_open(frames.len())?, memory))
                }
                Sink::Channel(_) => None,
            };
            self.send(frames).await.map_err(|Gone| Status::new(Code::Canceled, "the client has gone"))?;
            if let Some((_counted, memory)) = &waiting {
                memory.written().await;
            }
            Ok(())
        };
        if let Ok(sent) = timeout(patience, sent).await {
            return sent;
        }
        if let Sink::Client(sender) = &self.sink {
            sender.borrow_mut().reset();
        }
        let late = format!("grpc: an answer was not taken within {patience:?}: read what is answered, or end the call");
        Err(Status::new(Code::DeadlineExceeded, late))
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
