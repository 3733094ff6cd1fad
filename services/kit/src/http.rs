//! What is no gRPC: HTTP/1.1 on the same ports, and its bodies, which requests over HTTP/2 share.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::grpc::{Peer, Service};
use crate::listen::Life;

/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The client has gone in the middle of a request.
#[derive(Clone, Copy, Debug)]
pub struct CutOff;

/// The body of a request, piece by piece.
pub type Incoming = Pin<Box<dyn Stream<Item = Result<Bytes, CutOff>>>>;

/// The body of an answer.
pub enum Body {
    /// All of it; taken when it is sent.
    Full(Option<Bytes>),
    /// Piece by piece.
    Stream(Pin<Box<dyn Stream<Item = Bytes>>>),
}

impl Body {
    /// All of it.
    pub fn full(text: String) -> Self {
        Self::Full(Some(text.into()))
    }

    /// The next piece.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Stream(stream) => stream.poll_next_unpin(context),
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_piece(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Full(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}

/// An answer of plain text.
pub fn text(status: StatusCode, body: String) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An answer of this content type.
pub fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// There is nothing under this path.
pub fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n".into())
}

/// What is here is only to be read.
pub fn only_get() -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".into());
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    response
}

/// Speaks HTTP/1.1 until the client or `stop` ends it. What the service does not serve is answered with status 404.
pub async fn serve<S: Service, T>(io: T, service: Rc<S>, peer: Rc<Peer>, (presence, mut stop): Life)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (service, peer, presence) = (Rc::clone(&service), Rc::clone(&peer), presence.clone());
        async move {
            let (head, body) = request.into_parts();
            // Who has begun to ask and does not go on keeps no place.
            if body.is_end_stream() {
                presence.busy();
            }
            let body = Rc::new(RefCell::new(body.into_data_stream().fuse()));
            let shared = Rc::clone(&body);
            let asking = presence.clone();
            let pieces = futures::stream::poll_fn(move |context| {
                let piece = shared.borrow_mut().poll_next_unpin(context);
                if matches!(piece, Poll::Ready(None)) {
                    asking.busy();
                }
                piece
            });
            let pieces = Box::pin(pieces.map(|piece| piece.map_err(|_| CutOff)));
            let reply = match service.http(head, pieces, peer) {
                Some(reply) => reply.await,
                None => not_found(),
            };
            if matches!(reply.body(), Body::Full(_)) {
                // Who takes longer may lose the answer, and keeps no place.
                let _ = timeout(REST_TIMEOUT, read_rest(&body)).await;
            }
            // An answer that is a stream goes on: only the next request makes that connection an idle one.
            match reply.body() {
                Body::Full(_) => presence.idle(),
                Body::Stream(_) => presence.busy(),
            }
            Ok::<_, Infallible>(reply)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    // Errors are the client's.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stop.wait_for(|stop| *stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Of what nobody wants of a request, so much is read before it is answered, and not for longer; as Go's server does.
const REST_BYTES_MAX: usize = 256 << 10;
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads what is left of a request, within reason. A connection that is closed with something unread is reset, and the reset takes the
/// answer along before the client has seen it.
async fn read_rest<E>(body: &RefCell<impl Stream<Item = Result<Bytes, E>> + Unpin>) {
    let mut read = 0;
    while read < REST_BYTES_MAX {
        match std::future::poll_fn(|context| body.borrow_mut().poll_next_unpin(context)).await {
            Some(Ok(piece)) => read += piece.len(),
            Some(Err(_)) | None => return,
        }
    }
}

/// The values of a parameter of a query, as they stand there.
pub fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| value)
}
