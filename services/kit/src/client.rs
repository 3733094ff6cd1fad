//! A thin gRPC client over HTTP/2: unary calls and bidirectional streams, nothing else.
//!
//! It sits directly on the `h2` crate, without tonic, tower or hyper: a load generator shares the machine with what it
//! measures, so every microsecond that it spends on a request is one that the store does not get, and each layer left
//! out is boxes, tasks and copies left out. What a general client would add (name resolution, balancing, retries,
//! interceptors) a load generator must not have: a retried request would hide the very error it is to report.
//!
//! Promises: whatever a server sends, an exchange ends in an answer or a [`GrpcError`]; a unary call ends within its
//! time limit; no message of another request is ever taken for the answer. Source of the protocol: grpc/grpc
//! `doc/PROTOCOL-HTTP2.md`.

mod deadline;
mod error;
mod stream;
#[cfg(test)]
mod tests;
mod unvectored;

use std::fmt::Display;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderName, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::grpc::{Deframer, Status, encode, timeout as header};

use unvectored::Unvectored;

use deadline::paced;
pub use deadline::{Deadline, Elapsed};
pub use error::GrpcError;
pub use stream::{StreamReceiver, StreamSender};

/// What a connection may use, and how long it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Each unary call ends within this.
    pub limit: Duration,
    /// So many bytes of its answer give it a second more; `None`: the limit holds, however long the answer is.
    pub pace: Option<u32>,
    /// Whether the server is told that, in the header `grpc-timeout` of unary calls.
    pub tells_limit: bool,
    /// `https` instead of `http` is named to the server.
    pub is_tls: bool,
    /// The longest message that is accepted, bytes.
    pub message_bytes_max: usize,
    /// Receive window of a stream, bytes.
    pub stream_window_bytes: u32,
    /// Receive window of a connection, bytes.
    pub connection_window_bytes: u32,
}

impl Options {
    /// With windows so large that an answer hardly ever waits for a WINDOW_UPDATE, and messages up to 1 GiB.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            pace: None,
            tells_limit: false,
            is_tls: false,
            message_bytes_max: 1 << 30,
            stream_window_bytes: 16 << 20,
            connection_window_bytes: 256 << 20,
        }
    }
}

/// One connection as one client uses it: one unary call at a time, any number of streams. Cloning gives another client
/// on the same connection.
#[derive(Debug)]
pub struct Channel {
    requests: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
    headers: HeaderMap,
    /// The header `grpc-timeout` of unary calls.
    told_limit: Option<HeaderValue>,
    deadline: Deadline,
    pace: Option<u32>,
    message_bytes_max: usize,
}

impl Clone for Channel {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            scheme: self.scheme.clone(),
            authority: self.authority.clone(),
            headers: self.headers.clone(),
            told_limit: self.told_limit.clone(),
            deadline: Deadline::new(self.deadline.limit()),
            pace: self.pace,
            message_bytes_max: self.message_bytes_max,
        }
    }
}

/// A method of a service on one connection: prepared once, used for each call.
#[derive(Clone, Debug)]
pub struct Call(Uri);

impl Channel {
    /// Connects to `host:port` by TCP, with one attempt that may take as long as a call; then as [`Channel::over`].
    ///
    /// Errors: [`GrpcError::Connect`].
    pub async fn connect(endpoint: &str, options: Options) -> Result<Self, GrpcError> {
        let failed = |error: &dyn Display| GrpcError::Connect(format!("connect to {endpoint}: {error}"));
        let connected = timeout(options.limit, TcpStream::connect(endpoint)).await;
        let stream = connected.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Self::over(stream, endpoint, options).await
    }

    /// Speaks over a connection that is there, to a server that is called `authority`: `host:port`. Starts the task that
    /// drives the connection; it ends when the connection breaks or the last client and stream on it is dropped.
    ///
    /// Errors: [`GrpcError::Connect`]. A server that does not speak HTTP/2 shows at the first call.
    pub async fn over<T>(io: T, authority: &str, options: Options) -> Result<Self, GrpcError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let authority = Authority::try_from(authority)
            .map_err(|error| GrpcError::Connect(format!("{authority} is not an address: {error}")))?;
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(options.stream_window_bytes)
            .initial_connection_window_size(options.connection_window_bytes);
        let (requests, connection) = builder.handshake(Unvectored(io)).await?;
        // Its error is not lost: each open stream and each later request gets it.
        tokio::spawn(async move { drop(connection.await) });
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        Ok(Self {
            requests,
            scheme: if options.is_tls { Scheme::HTTPS } else { Scheme::HTTP },
            authority,
            headers,
            told_limit: options.tells_limit.then(|| header::value(options.limit)),
            deadline: Deadline::new(options.limit),
            pace: options.pace,
            message_bytes_max: options.message_bytes_max,
        })
    }

    /// Says this with each call from now on, such as a token.
    pub fn set_metadata(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// Prepares a method, named by its path: `/package.Service/Method`.
    pub fn call(&self, path: &'static str) -> Call {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static(path));
        // Scheme, authority and path are all there, so this cannot fail; if it did, the server would refuse the path.
        Call(Uri::from_parts(parts).unwrap_or_default())
    }

    /// Sends one message and waits for the one that answers it.
    ///
    /// Errors: every kind; after [`GrpcError::TimedOut`] the server may still carry the request out.
    pub async fn unary<A, B>(&mut self, call: &Call, request: &A) -> Result<B, GrpcError>
    where
        A: Message,
        B: Message + Default,
    {
        let mut http_request = self.request(call);
        if let Some(limit) = &self.told_limit {
            http_request.headers_mut().insert(header::NAME, limit.clone());
        }
        let limit = self.deadline.limit();
        let (message_bytes_max, came) = (self.message_bytes_max, AtomicUsize::new(0));
        let exchange = async {
            // Sending the last of the request lets go of the sending half at once.
            let (response, _) = open(&mut self.requests, http_request, encode(request), true).await?;
            answer(response.await?, message_bytes_max, &came).await
        };
        let exchanged = match self.pace {
            None => self.deadline.run(exchange).await,
            Some(pace) => paced(exchange, limit, pace, &came).await,
        };
        let bytes = exchanged.map_err(|Elapsed| GrpcError::TimedOut(limit))??;
        B::decode(bytes).map_err(|error| GrpcError::Decode(error.to_string()))
    }

    /// Opens a stream with its first message. The server's answer is awaited by [`StreamReceiver::next`], because a
    /// server may owe its answer's head only after several messages.
    ///
    /// Errors: a broken connection, or no room for another stream within the time limit.
    pub async fn stream<A, B>(
        &mut self,
        call: &Call,
        first: &A,
    ) -> Result<(StreamSender<A>, StreamReceiver<B>), GrpcError>
    where
        A: Message,
        B: Message + Default,
    {
        let http_request = self.request(call);
        let limit = self.deadline.limit();
        let opening = open(&mut self.requests, http_request, encode(first), false);
        let (response, body) = self.deadline.run(opening).await.map_err(|_| GrpcError::TimedOut(limit))??;
        Ok((StreamSender::new(body), StreamReceiver::new(response, self.message_bytes_max)))
    }

    fn request(&self, call: &Call) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = call.0.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Sends the head and the first message of a request, as soon as the server admits another stream.
async fn open(
    requests: &mut SendRequest<Bytes>,
    request: Request<()>,
    first: Bytes,
    last: bool,
) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), GrpcError> {
    poll_fn(|context| requests.poll_ready(context)).await?;
    let (response, mut body) = requests.send_request(request, false)?;
    body.send_data(first, last)?;
    Ok((response, body))
}

/// How the call ended, by its trailers, or by the headers of an answer that has no body ("Trailers-Only").
fn outcome(trailers: &HeaderMap) -> Result<(), GrpcError> {
    match Status::of(trailers) {
        Some(Ok(())) => Ok(()),
        Some(Err(status)) => Err(GrpcError::Status(status)),
        None => Err(GrpcError::Protocol("the answer ended without a grpc-status that can be read".into())),
    }
}

/// Checks the head of an answer.
fn body_of(response: Response<RecvStream>) -> Result<RecvStream, GrpcError> {
    let (head, body) = response.into_parts();
    if head.headers.contains_key("grpc-status") {
        outcome(&head.headers)?;
    }
    if head.status != StatusCode::OK {
        return Err(GrpcError::Protocol(format!("HTTP status {}", head.status)));
    }
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    if !content_type.starts_with(b"application/grpc") {
        let shown = String::from_utf8_lossy(content_type);
        return Err(GrpcError::Protocol(format!("content-type {shown:?}")));
    }
    Ok(body)
}

/// Reads the one message of a unary answer, then its status.
async fn answer(
    response: Response<RecvStream>,
    message_bytes_max: usize,
    came: &AtomicUsize,
) -> Result<Bytes, GrpcError> {
    let mut body = body_of(response)?;
    let mut deframer = Deframer::new(message_bytes_max);
    let mut message = None;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        came.fetch_add(chunk.len(), Ordering::Relaxed);
        if !body.is_end_stream() {
            body.flow_control().release_capacity(chunk.len())?;
        }
        deframer.push(chunk);
        while let Some(next) = deframer.message()? {
            if message.replace(next).is_some() {
                return Err(GrpcError::Protocol("more than one message answers a unary call".into()));
            }
        }
    }
    // The status before the complaint about a missing message: it says why.
    let trailers = body.trailers().await?.unwrap_or_default();
    outcome(&trailers)?;
    deframer.finish()?;
    message.ok_or_else(|| GrpcError::Protocol("success without a message".into()))
}
