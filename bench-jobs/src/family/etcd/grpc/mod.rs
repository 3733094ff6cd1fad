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
mod frame;
mod socket;
mod stream;

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use prost::Message;

use crate::failure::one_line;
use crate::net::dial::dial;

use deadline::Deadline;
use frame::Deframer;
use socket::Socket;

pub use error::GrpcError;
pub use frame::{FrameError, MESSAGE_BYTES_MAX};
pub use stream::{StreamReceiver, StreamSender};

/// Receive window of a stream, bytes: so large that an answer hardly ever waits for a WINDOW_UPDATE.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
/// Receive window of a connection, bytes.
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;

/// One connection as one client uses it: one unary call at a time, any number of streams. Cloning gives another client
/// on the same connection.
#[derive(Debug)]
pub struct Channel {
    requests: SendRequest<Bytes>,
    authority: Authority,
    headers: HeaderMap,
    deadline: Deadline,
}

impl Clone for Channel {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            authority: self.authority.clone(),
            headers: self.headers.clone(),
            deadline: Deadline::new(self.deadline.limit()),
        }
    }
}

/// A method of a service on one connection: prepared once, used for each call.
#[derive(Clone, Debug)]
pub struct Call(Uri);

impl Channel {
    /// Connects to `host:port`, as patiently as [`dial`], and starts the task that drives the connection. The task ends when the connection breaks or the last client and stream on it is dropped. `limit` bounds
    /// each unary call.
    ///
    /// Errors: [`GrpcError::Connect`]. A server that accepts the connection but does not speak HTTP/2 shows at the
    /// first call.
    pub async fn connect(endpoint: &str, limit: Duration) -> Result<Self, GrpcError> {
        let authority = Authority::try_from(endpoint)
            .map_err(|error| GrpcError::Connect(one_line(&format!("{endpoint} is not an address: {error}"))))?;
        let stream = dial(endpoint).await.map_err(|failure| GrpcError::Connect(failure.text().into()))?;
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let (requests, connection) = builder.handshake(Socket(stream)).await?;
        // Its error is not lost: each open stream and each later request gets it.
        tokio::spawn(async move { drop(connection.await) });
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        Ok(Self { requests, authority, headers, deadline: Deadline::new(limit) })
    }

    /// Prepares a method, named by its path: `/package.Service/Method`.
    pub fn call(&self, path: &'static str) -> Call {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
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
        let http_request = self.request(call);
        let limit = self.deadline.limit();
        let exchange = async {
            // Sending the last of the request lets go of the sending half at once.
            let (response, _) = open(&mut self.requests, http_request, frame::encode(request), true).await?;
            answer(response.await?).await
        };
        let bytes = self.deadline.run(exchange).await.map_err(|_| GrpcError::TimedOut(limit))??;
        B::decode(bytes).map_err(|error| GrpcError::Decode(one_line(&error.to_string())))
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
        let opening = open(&mut self.requests, http_request, frame::encode(first), false);
        let (response, body) = self.deadline.run(opening).await.map_err(|_| GrpcError::TimedOut(limit))??;
        Ok((StreamSender::new(body), StreamReceiver::new(response)))
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

/// Checks the head of an answer. `Ok(None)`: a success without a body.
fn body_of(response: Response<RecvStream>) -> Result<RecvStream, GrpcError> {
    let (head, body) = response.into_parts();
    if head.headers.contains_key("grpc-status") {
        error::status_of(&head.headers)?;
    }
    if head.status != StatusCode::OK {
        return Err(GrpcError::Protocol(format!("HTTP status {}", head.status)));
    }
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    if !content_type.starts_with(b"application/grpc") {
        let shown = one_line(&String::from_utf8_lossy(content_type));
        return Err(GrpcError::Protocol(format!("content-type {shown:?}")));
    }
    Ok(body)
}

/// Reads the one message of a unary answer, then its status.
async fn answer(response: Response<RecvStream>) -> Result<Bytes, GrpcError> {
    let mut body = body_of(response)?;
    let mut deframer = Deframer::default();
    let mut message = None;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        if !body.is_end_stream() {
            body.flow_control().release_capacity(chunk.len())?;
        }
        deframer.push(chunk);
        while let Some(next) = deframer.next()? {
            if message.replace(next).is_some() {
                return Err(GrpcError::Protocol("more than one message answers a unary call".into()));
            }
        }
    }
    // The status before the complaint about a missing message: it says why.
    let trailers = body.trailers().await?.unwrap_or_default();
    error::status_of(&trailers)?;
    deframer.finish()?;
    message.ok_or_else(|| GrpcError::Protocol("success without a message".into()))
}

#[cfg(test)]
mod tests;
