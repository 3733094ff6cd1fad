//! One HTTP/2 connection: its streams become calls of a service.
//!
//! All calls of a connection run in its task. What came with one read is answered with one write: all requests that are
//! there are taken first, then answered, and then what they said is flushed.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, StatusCode, Uri, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::grpc::answer::{SMALL_ANSWER_BYTES, answer_http, answer_later, answer_long, in_turn, run};
use crate::grpc::call::{Caller, Responses, Sender, Service, Unary};
use crate::grpc::cork::cork;
use crate::grpc::header_log;
use crate::grpc::memory::{Memory, Place, Share, Taken};
use crate::grpc::peer::Peer;
use crate::grpc::pings::{Pong, Pulse};
use crate::grpc::requests::{Coming, Left, Patience, Requests};
use crate::grpc::status::{Code, Status};
use crate::grpc::timeout as deadline;
use crate::http::{CutOff, Incoming};
use crate::places::{Life, Presence};

/// How long a client may go on to send on a stream that is answered in full; what comes is thrown away. When its stream is reset before
/// it has read the answer, the gRPC client of the Java consensus node (on Helidon) loses that, though HTTP/2 says that it must not.
pub(crate) const HEARING_OUT: Duration = Duration::from_secs(5);

/// When the server stops, how long a client may take to say that it has heard so once its calls have ended; and then, how long it may go on
/// to send. A socket that is closed while something comes resets the connection, and the client hears of that and not of what it was told.
const CLOSING: Duration = Duration::from_secs(1);

/// A stream may be opened before there is anything to ask.
const STREAM_PATIENCE: u32 = 5;

/// Streams of a connection, at a time, that its client need not have said for who it is: one of health for each service, one of reflection.
const OPEN_STREAMS_MAX: usize = 8;

/// What a connection may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest request, bytes.
    pub message_bytes_max: usize,
    /// What messages under way on a connection may take together, bytes; less than the longest message means as much as that. See
    /// [`Memory`].
    pub connection_messages_bytes_max: usize,
    /// What a client may send ahead on one stream, bytes; no less than 65,535, as HTTP/2 begins with.
    pub stream_window_bytes: u32,
    /// What a client may send ahead on all streams of a connection, bytes.
    pub connection_window_bytes: u32,
    /// The longest frame of HTTP/2 that is taken, bytes, from 16,384 to 16,777,215: longer ones cost less each byte.
    pub frame_bytes_max: u32,
    /// Calls of a connection at a time.
    pub streams_max: u32,
    /// How often a silent client is asked whether it is there; `None`: never.
    pub ping_interval: Option<Duration>,
    /// How long it may take to answer.
    pub ping_timeout: Duration,
    /// How long nothing may come of a message that was begun, or of the first of a unary call, before its call is ended; of the first of a stream
    /// five times as long. Where others want its room it goes before.
    pub message_patience: Duration,
    /// How long a client may take for 256 KiB of the answer to a unary call or to a request that is no gRPC, or for the rest of it, before
    /// that is ended.
    pub answer_patience: Duration,
    /// Whether headers are written to stderr: see [`header_log`].
    pub logs_headers: bool,
}

/// Calls of a connection at a time, if nothing else is said: what each costs is counted besides, see [`Memory`].
pub const STREAMS_MAX: u32 = 1 << 16;

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 2 << 20,
            connection_messages_bytes_max: 128 << 20,
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 1 << 20,
            frame_bytes_max: 16 << 10,
            streams_max: STREAMS_MAX,
            ping_interval: Some(Duration::from_secs(2 * 60 * 60)),
            ping_timeout: Duration::from_secs(20),
            message_patience: Duration::from_secs(60),
            answer_patience: Duration::from_secs(60),
            logs_headers: false,
        }
    }
}

impl Limits {
    /// What messages under way on a connection may take together.
    pub(crate) fn messages_bytes_max(&self) -> usize {
        self.connection_messages_bytes_max.max(self.message_bytes_max)
    }
}

/// How much frames of a few bytes may cost while nobody has read them, as `h2` counts it: 256 bytes each, less what they hold. About
/// 33,000 frames, of which h2's own choice for our window would be 2,200: a client that renews so many leases at once is no attacker.
const SMALL_FRAMES_BUDGET_BYTES: usize = 8 << 20;

/// Speaks HTTP/2 until the client or `stop` ends it: then no call is accepted any more, streams are ended, and unary calls are
/// still answered.
///
/// `memory` is what messages under way on all connections take theirs from.
pub async fn serve<S: Service, T>(
    io: T,
    service: Rc<S>,
    peer: Rc<Peer>,
    (limits, memory): (Limits, Memory),
    (presence, stop): Life,
) where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_frame_size(limits.frame_bytes_max)
        .max_concurrent_streams(limits.streams_max)
        .data_frame_budget(SMALL_FRAMES_BUDGET_BYTES)
        .max_header_list_size(64 << 10);
    let (io, cork) = cork(io);
    let mut handshake = pin!(builder.handshake::<_, Bytes>(io));
    let handshake = poll_fn(|context| {
        let result = handshake.as_mut().poll(context).map(Result::ok);
        match cork.poll_release(context) {
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Ready(Ok(())) | Poll::Pending => result,
        }
    });
    // An error is the client's: it spoke no HTTP/2, or went away.
    let Some(mut connection) = handshake.await else { return };
    let mut pulse = Pulse::new(&mut connection, &limits);
    let mut pong = Pong::default();
    let memory = memory.of_connection(limits.messages_bytes_max(), &peer.origin());
    let running = FuturesUnordered::new();
    let asked = Rc::new(Asked::default());
    let mut calls = Calls { service, peer, limits, memory, stop: stop.clone(), running, asked: Rc::clone(&asked) };
    let mut stop = pin!(stopped(stop));
    let (mut is_stopping, mut closing) = (false, None);
    let mut accepted = Vec::new();
    let run = poll_fn(|context| {
        if !is_stopping && stop.as_mut().poll(context).is_ready() {
            is_stopping = true;
            connection.graceful_shutdown();
            closing = Some(Box::pin(sleep(CLOSING)));
        }
        if pulse.as_mut().is_some_and(|pulse| pulse.poll_dead(context).is_ready()) {
            return Poll::Ready(());
        }
        loop {
            let is_late = closing.as_mut().is_some_and(|closing| closing.as_mut().poll(context).is_ready());
            if is_late && calls.running.is_empty() {
                closing = None;
                connection.abrupt_shutdown(Reason::NO_ERROR);
            }
            let mut is_over = false;
            while let Poll::Ready(next) = connection.poll_accept(context) {
                match next {
                    Some(Ok(request)) => accepted.push(request),
                    Some(Err(_)) | None => {
                        is_over = true;
                        break;
                    }
                }
            }
            if is_over {
                return Poll::Ready(());
            }
            // It writes what it has before it looks for more.
            calls.memory.set_written(cork.is_blocked());
            let mut has_worked = !accepted.is_empty();
            for (request, respond) in accepted.drain(..) {
                calls.begin(request, respond, context);
            }
            while let Poll::Ready(Some(())) = calls.running.poll_next_unpin(context) {
                has_worked = true;
            }
            if !has_worked {
                asked.tell(&presence);
                if pong.poll_wait(cork.holds_only_pong(), context).is_pending() {
                    return Poll::Pending;
                }
                let released = cork.poll_release(context);
                // Who waited for that is woken, and with it this task.
                calls.memory.set_written(cork.is_blocked());
                return match released {
                    Poll::Ready(Err(_)) => Poll::Ready(()),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                };
            }
        }
    });
    run.await;
    drop((calls, connection));
    if is_stopping {
        // An error: it has gone.
        let _ = timeout(CLOSING, cork.read_out()).await;
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // Without a sender nobody will ask to stop gently.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// What a client has asked for in full. What is begun and not said keeps no place: a header is cheap, and who waits for the rest may wait
/// for ever.
#[derive(Debug, Default)]
struct Asked {
    under_way: Cell<usize>,
    /// Streams of [`OPEN_SERVICES`].
    open_streams: Cell<usize>,
    /// Since this was last told.
    has_ended: Cell<bool>,
}

impl Asked {
    fn tell(&self, presence: &Presence) {
        if self.under_way.get() > 0 {
            presence.busy();
        } else if self.has_ended.take() {
            presence.idle();
        }
    }
}

/// A call, from its header to its end.
#[derive(Debug)]
pub(crate) struct Asking {
    asked: Rc<Asked>,
    is_whole: Cell<bool>,
    /// Whoever it is may ask for these, and wait for ever.
    keeps_place: bool,
    /// It counts among those of which a connection has few.
    is_open_stream: Cell<bool>,
}

/// Services that anybody may call.
const OPEN_SERVICES: [&str; 2] = ["/grpc.health.", "/grpc.reflection."];

impl Asking {
    fn new(asked: &Rc<Asked>, uri: &Uri) -> Self {
        let keeps_place = !OPEN_SERVICES.iter().any(|service| uri.path().starts_with(service));
        Self { asked: Rc::clone(asked), is_whole: Cell::new(false), keeps_place, is_open_stream: Cell::new(false) }
    }

    /// A stream of services that anybody may call takes a place among few.
    fn begin_stream(&self) -> Result<(), Status> {
        if self.keeps_place {
            return Ok(());
        }
        if self.asked.open_streams.get() >= OPEN_STREAMS_MAX {
            let what = format!(
                "grpc: a connection may have {OPEN_STREAMS_MAX} streams of health and reflection at a time: end one of them before the next"
            );
            return Err(Status::new(Code::ResourceExhausted, what));
        }
        self.asked.open_streams.update(|streams| streams + 1);
        self.is_open_stream.set(true);
        Ok(())
    }

    /// The request, or the first of a stream, is there.
    pub(crate) fn has_come(&self) {
        if self.keeps_place && !self.is_whole.replace(true) {
            self.asked.under_way.update(|calls| calls + 1);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.is_whole.get() {
            self.asked.under_way.update(|calls| calls - 1);
            self.asked.has_ended.set(true);
        }
        if self.is_open_stream.get() {
            self.asked.open_streams.update(|streams| streams - 1);
        }
    }
}

/// The calls of a connection.
struct Calls<S> {
    service: Rc<S>,
    peer: Rc<Peer>,
    limits: Limits,
    memory: Share,
    stop: watch::Receiver<bool>,
    running: FuturesUnordered<Running>,
    asked: Rc<Asked>,
}

impl<S: Service> Calls<S> {
    fn begin(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>, context: &mut Context<'_>) {
        if self.limits.logs_headers {
            header_log::write(&request);
        }
        let mut sender = Sender::new(respond, self.memory.clone(), self.service.accepted_encodings());
        let asking = Asking::new(&self.asked, request.uri());
        if let Err(refusal) = is_grpc(&request) {
            let (head, body) = request.into_parts();
            let Ok(taken) = self.memory.take_call(&head, 0) else {
                sender.refuse(StatusCode::TOO_MANY_REQUESTS);
                return;
            };
            let (asking, patience) = (Rc::new(asking), self.limits.answer_patience);
            let coming = (!body.is_end_stream()).then(|| Coming::of(&self.memory, taken.bytes()));
            let unread = coming.as_ref().map(|coming| Unread(coming.place()));
            let pieces = pieces(body, (Rc::clone(&asking), unread, self.limits.message_patience));
            match self.service.http(head, pieces, Rc::clone(&self.peer)) {
                Some(answer) => self.running.push(Box::pin(async move {
                    let _kept = (taken, asking);
                    let memory = sender.memory().clone();
                    let sender = RefCell::new(sender);
                    let answer = async {
                        memory.turn().await;
                        answer_http(answer.await, &sender, patience).await;
                        Ok(())
                    };
                    if let Some(Err(_)) = run(answer, &sender, None, coming).await {
                        sender.borrow_mut().give_up_http();
                    }
                })),
                None => sender.refuse(refusal),
            }
            return;
        }
        let (head, body) = request.into_parts();
        let Some((mut method, is_stream)) = self.service.method(head.uri.path()) else {
            let (service, method) = head.uri.path().trim_start_matches('/').rsplit_once('/').unwrap_or_default();
            let message = format!("unknown method {method} for service {service}");
            sender.finish(Err(Status::new(Code::Unimplemented, message)));
            return;
        };
        if let Err(status) = if is_stream { asking.begin_stream() } else { Ok(()) } {
            return sender.finish(Err(status));
        }
        let deadline = deadline::of(&head.headers).map(|timeout| Instant::now() + timeout);
        let taken = self.memory.take_call(&head, 0);
        let encoding = head.headers.get("grpc-encoding").and_then(|encoding| encoding.to_str().ok());
        let decompress = encoding.and_then(|encoding| self.service.decompress(encoding));
        if let Some(compression) = self.service.compression(method, &head.headers) {
            sender.set_encoding(compression.encoding);
        }
        let caller = Caller { headers: head.headers, peer: Rc::clone(&self.peer) };
        let mut taken = match taken {
            Ok(taken) => taken,
            Err(status) => return sender.finish(Err(status)),
        };
        let bytes_max = match self.service.admit(&mut method, &caller) {
            Ok(bytes_max) => bytes_max,
            Err(status) => {
                sender.finish(Err(status));
                taken.without_headers();
                self.running.push(Box::pin(async move {
                    let _taken = taken;
                    let _ = timeout(HEARING_OUT, hear_out(body)).await;
                }));
                return;
            }
        };
        let (bytes_max, more) = (self.limits.message_bytes_max.min(bytes_max), self.limits.message_patience);
        let patience = Patience { first: if is_stream { more * STREAM_PATIENCE } else { more }, more };
        let requests = Requests::new(body, bytes_max, self.memory.clone(), decompress, patience);
        if is_stream {
            let asking = Rc::new(asking);
            let left = Left::default();
            let mut requests = requests.of_call(Rc::clone(&asking), &left);
            let coming = requests.coming(taken.bytes(), !asking.keeps_place);
            self.running.push(Box::pin(self.stream(
                method,
                caller,
                (requests, left, coming),
                sender,
                (deadline, taken, asking),
            )));
        } else {
            self.unary(method, caller, requests, sender, (deadline, taken, asking), context);
        }
    }

    fn stream(
        &self,
        method: S::Method,
        caller: Caller,
        (requests, left, coming): (Requests, Left, Option<Coming>),
        sender: Sender,
        (deadline, mut taken, asking): (Option<Instant>, Taken, Rc<Asking>),
    ) -> impl Future<Output = ()> + 'static {
        let sender = Rc::new(RefCell::new(sender));
        let answer = self.service.stream(method, caller, requests, Responses::new(&sender));
        let (stop, stop_later) = (stopped(self.stop.clone()), stopped(self.stop.clone()));
        let service = Rc::clone(&self.service);
        let place = coming.as_ref().map(Coming::place);
        async move {
            let stopped = async {
                stop.await;
                Err(service.stopped())
            };
            let hear = poll_fn(|context| poll_end(&left, context));
            let answer = async {
                tokio::select! { biased; result = answer => result, result = stopped => result, never = hear => match never {} }
            };
            let Some(result) = run(answer, &sender, deadline, coming).await else { return };
            sender.borrow_mut().finish(result);
            // Nobody waits for it any more.
            drop(asking);
            taken.without_headers();
            if place.as_ref().is_some_and(|place| place.must_go()) {
                // Others have its room at once: it is heard no further, and leaves when all is given back.
                drop((taken, left));
                return;
            }
            drop(place);
            let Some(body) = left.take() else { return };
            tokio::select! {
                biased;
                () = hear_out(body) => {}
                () = stop_later => {}
                () = sleep(HEARING_OUT) => {}
            }
        }
    }

    /// Answers at once where that is possible: most requests are there in full, and most reads wait for nothing.
    fn unary(
        &mut self,
        method: S::Method,
        caller: Caller,
        mut requests: Requests,
        mut sender: Sender,
        (deadline, mut taken, asking): (Option<Instant>, Taken, Asking),
        context: &mut Context<'_>,
    ) {
        let patience = self.limits.answer_patience;
        // What a client whose turn it is not sends stays in its window.
        let polled = if self.memory.is_open() { requests.poll_only(context) } else { Poll::Pending };
        let message = match polled {
            Poll::Ready(Ok(message)) => message,
            Poll::Ready(Err(status)) => {
                sender.finish(Err(status));
                return;
            }
            Poll::Pending => {
                let service = Rc::clone(&self.service);
                let coming = requests.coming(taken.bytes(), false);
                self.running.push(Box::pin(async move {
                    let _taken = taken;
                    let memory = sender.memory().clone();
                    let answer = async {
                        // One of which something has come is taken to its end whatever others have taken: it is waited for, and may be
                        // unpacked on a thread that others wait for.
                        let polled = |context: &mut Context<'_>| {
                            (memory.is_open() || requests.has_begun()).then(|| requests.poll_only(context))
                        };
                        let message = in_turn(async || memory.turn().await, polled).await?;
                        asking.has_come();
                        match service.unary(method, caller, message) {
                            Unary::Now(result) => result,
                            Unary::Later(answer) => answer.await,
                        }
                    };
                    answer_later(answer, sender, (deadline, patience), coming).await;
                }));
                return;
            }
        };
        if let Err(status) = taken.grow(message.len()) {
            return sender.finish(Err(status));
        }
        asking.has_come();
        match self.service.unary(method, caller, message) {
            Unary::Now(Ok(message)) if message.len() <= SMALL_ANSWER_BYTES && sender.has_room(message.len()) => {
                // An error says that the client has gone.
                let _ = sender.answer(message);
            }
            Unary::Now(Err(status)) => sender.finish(Err(status)),
            // It has its room at once: of what comes after it in the same read nothing is answered that has none.
            Unary::Now(Ok(message)) => {
                if let Some(answer) = answer_long(message, RefCell::new(sender), (deadline, patience)) {
                    self.running.push(Box::pin(async move {
                        let _kept = (taken, asking);
                        answer.await;
                    }));
                }
            }
            Unary::Later(answer) => self.running.push(Box::pin(async move {
                let _kept = (taken, asking);
                answer_later(answer, sender, (deadline, patience), None).await;
            })),
        }
    }
}

/// Waits for the end of what a client sends, if its service reads no more of it and still answers. When something else comes nothing is heard any
/// more: HTTP/2 throws it away, and would keep it as long as somebody might ask.
fn poll_end(left: &Left, context: &mut Context<'_>) -> Poll<Infallible> {
    while let Some(mut body) = left.take() {
        match body.poll_data(context) {
            Poll::Pending => {
                left.set(Some(body));
                break;
            }
            Poll::Ready(Some(Ok(piece))) if piece.is_empty() => left.set(Some(body)),
            Poll::Ready(Some(Ok(piece))) => {
                // What was not read is released by itself.
                let _ = body.flow_control().release_capacity(piece.len());
            }
            Poll::Ready(_) => {}
        }
    }
    Poll::Pending
}

/// Ends when the client has sent its last.
async fn hear_out(mut body: RecvStream) {
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
    }
}

/// The place of a call that waits for the first piece of a body: it is given up when that has come, or is not wanted any more.
struct Unread(Rc<Place>);

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.holds(0);
    }
}

/// A body, piece by piece. Until the first its call may have to make room, and waits for no longer than it has patience.
fn pieces(body: RecvStream, (asking, unread, patience): (Rc<Asking>, Option<Unread>, Duration)) -> Incoming {
    if body.is_end_stream() {
        asking.has_come();
    }
    let state = (body, asking, unread);
    Box::pin(futures::stream::unfold(state, move |(mut body, asking, unread)| async move {
        let piece = match &unread {
            Some(_) => match timeout(patience, body.data()).await {
                Ok(piece) => piece,
                Err(_) => return Some((Err(CutOff), (body, asking, unread))),
            },
            None => body.data().await,
        };
        drop(unread);
        let Some(piece) = piece else {
            asking.has_come();
            return None;
        };
        if let Ok(piece) = &piece {
            let _ = body.flow_control().release_capacity(piece.len());
        }
        Some((piece.map_err(|_| CutOff), (body, asking, None)))
    }))
}

/// What to say to a request that is no gRPC, where nothing else is served.
fn is_grpc(request: &Request<RecvStream>) -> Result<(), StatusCode> {
    let content_type = request.headers().get(header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    match content_type.starts_with(b"application/grpc") {
        true => Ok(()),
        false => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}
