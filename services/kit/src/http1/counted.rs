//! An answer that counts until the client has taken it: `hyper` drops what it was given when that is written.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Response, StatusCode};
use hyper::body::{Frame, SizeHint};

use crate::grpc::{SMALL_ANSWER_BYTES, Share, Status, Streamed, Waiting};
use crate::http::Body;

/// The body of an answer.
pub(super) struct Counted {
    body: Body,
    memory: Share,
    /// Of a body that is all there.
    waiting: Option<Waiting>,
}

impl Counted {
    /// This answer, if there is room for it.
    pub(super) fn answer(answer: Response<Body>, memory: Share) -> Response<Self> {
        let bytes = match answer.body() {
            Body::Full(Some(bytes)) => bytes.len(),
            Body::Full(None) | Body::Stream(_) => 0,
        };
        // A connection has one of them at a time. Probes are small, and are answered whatever others do not take.
        if bytes <= SMALL_ANSWER_BYTES {
            return answer.map(|body| Self { body, memory, waiting: None });
        }
        match memory.take_answer(bytes) {
            Ok(waiting) => answer.map(|body| Self { body, memory, waiting: Some(waiting) }),
            Err(_) => {
                let mut refusal = Response::new(Self { body: Body::Full(None), memory, waiting: None });
                *refusal.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                refusal
            }
        }
    }
}

impl hyper::body::Body for Counted {
    type Data = Piece;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Status>>> {
        let Some(bytes) = ready!(self.body.poll_piece(context)) else { return Poll::Ready(None) };
        let streamed = match self.body {
            Body::Full(_) => None,
            Body::Stream(_) => Some(self.memory.take_streamed(bytes.len())?),
        };
        let piece = Piece { bytes, _counts: (self.waiting.take(), streamed) };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Body::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

/// A piece of a body, and its room.
pub(super) struct Piece {
    bytes: Bytes,
    _counts: (Option<Waiting>, Option<Streamed>),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
