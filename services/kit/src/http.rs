//! What is no gRPC: bodies of requests and of answers, which HTTP/1.1 and requests over HTTP/2 share.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};

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
        // What it has taken beyond its end would count nowhere.
        Self::Full(Some(text.into_bytes().into_boxed_slice().into()))
    }

    /// The next piece.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Stream(stream) => stream.poll_next_unpin(context),
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

/// The values of a parameter of a query, as they stand there.
pub fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| value)
}
