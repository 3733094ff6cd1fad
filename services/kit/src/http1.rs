//! HTTP/1.1, for what is no gRPC, on the same ports. Answers have the bounds that they have over HTTP/2.

mod counted;
mod patient;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::grpc::{Limits, Memory, Peer, Service};
use crate::http::{Body, CutOff, not_found};
use crate::places::Life;
use counted::Counted;
use patient::Patient;

/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may be, bytes; as on connections of gRPC. It counts nowhere.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Speaks HTTP/1.1 until the client or `stop` ends it. What the service does not serve is answered with status 404. `memory` is what answers on
/// all connections take theirs from.
pub async fn serve<S: Service, T>(
    io: T,
    service: Rc<S>,
    peer: Rc<Peer>,
    (limits, memory): (Limits, Memory),
    (presence, mut stop): Life,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let io = Patient::new(io, limits.answer_patience);
    let memory = memory.of_connection(limits.messages_bytes_max(), &peer.origin());
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (service, peer, presence, memory) =
            (Rc::clone(&service), Rc::clone(&peer), presence.clone(), memory.clone());
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
            let is_stream = matches!(reply.body(), Body::Stream(_));
            let reply = Counted::answer(reply, memory);
            if is_stream {
                // It goes on: only the next request makes that connection an idle one.
                presence.busy();
            } else {
                // Who takes longer may lose the answer, and keeps no place.
                let _ = timeout(REST_TIMEOUT, read_rest(&body)).await;
                presence.idle();
            }
            Ok::<_, Infallible>(reply)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        // What is copied would count no more.
        .writev(true)
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
