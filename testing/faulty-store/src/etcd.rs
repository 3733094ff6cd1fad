//! etcd's client connection taken apart into HTTP/2 streams, so that single writes can be lost and single values spoilt.
//!
//! Promises: every stream is carried on its own, in both directions at once, with its flow control, its trailers and
//! its cancellation, Watch and LeaseKeepAlive included; only Put, Txn and Range are ever altered, and only where the
//! altered answer is one that etcd could have given, at that time or before.
//!
//! Counted as writes: Put without `prev_kv`, and Txn which on success does nothing but such puts. Counted as reads:
//! answers to Range with a value that is not empty. A request that the client gives up after it was sent in full is
//! still made upstream, and its answer thrown away.

use std::future::Future;
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream, client, server};
use http::{HeaderMap, Request, Response};

use crate::protobuf::{Fabricable, Header, frame, last_byte_of_value, unframe, without_compares};
use crate::tally::Tally;

const PUT: &str = "/etcdserverpb.KV/Put";
const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";

/// How much may be on its way unread, per stream and per connection, in bytes: enough never to be what slows a test.
const WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// The header of the newest answer that passed on any connection: what fabricated answers are made from.
#[derive(Debug, Default)]
pub struct Newest(Mutex<Header>);

impl Newest {
    fn look(&self, body: &[u8]) {
        let Some(header) = unframe(body).and_then(|message| Header::of(&body[message])) else {
            return;
        };
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if header.revision >= newest.revision {
            *newest = header;
        }
    }

    fn get(&self) -> Header {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries one connection until it ends.
pub fn carry(socket: TcpStream, upstream: SocketAddr, tally: &Arc<Tally>, newest: &Arc<Newest>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let store = tokio::net::TcpStream::connect(upstream).await.context("the store does not answer")?;
        store.set_nodelay(true)?;
        let mut server = server::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake::<_, Bytes>(socket)
            .await?;
        let (sender, connection) = client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .enable_push(false)
            .handshake::<_, Bytes>(store)
            .await?;
        let mut store = tokio::spawn(connection);
        loop {
            tokio::select! {
                accepted = server.accept() => {
                    let Some(accepted) = accepted else { return Ok(()) };
                    let (request, respond) = accepted?;
                    tally.request_passed();
                    let exchange =
                        Exchange { respond, sender: sender.clone(), tally: tally.clone(), newest: newest.clone() };
                    tokio::spawn(exchange.run(request));
                }
                ended = &mut store => return Ok(ended??),
            }
        }
    })
}

/// One request and its answer.
struct Exchange {
    respond: SendResponse<Bytes>,
    sender: SendRequest<Bytes>,
    tally: Arc<Tally>,
    newest: Arc<Newest>,
}

impl Exchange {
    async fn run(mut self, request: Request<RecvStream>) {
        if let Err(error) = self.relay(request).await {
            // What the store's side of the stream ended with, the client's side ends with; and the other way round,
            // because a stream that is dropped unfinished is reset by h2.
            self.respond.send_reset(error.reason().unwrap_or(Reason::CANCEL));
        }
    }

    async fn relay(&mut self, request: Request<RecvStream>) -> Result<(), h2::Error> {
        let (head, mut body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let request = Request::from_parts(head, ());
        let mut sender = self.sender.clone().ready().await?;
        if self.tally.faults().drop_write_every.is_some() && (path == PUT || path == TXN) {
            let (bytes, _) = collect(&mut body).await?;
            let fabricable = unframe(&bytes).and_then(|message| match path.as_str() {
                PUT => Fabricable::put(&bytes[message]),
                _ => Fabricable::txn(&bytes[message]),
            });
            if let Some(write) = fabricable
                && self.tally.drops_write()
            {
                return self.fabricate(&write).await;
            }
            let (answer, mut asking) = sender.send_request(request, false)?;
            send(&mut asking, bytes.into(), true).await?;
            return self.answer(answer, &path).await;
        }
        if self.tally.faults().ignore_compares && path == TXN {
            let (question, _) = collect(&mut body).await?;
            let ignored = unframe(&question).and_then(|message| without_compares(&question[message]));
            let (answer, mut asking) = sender.send_request(request, false)?;
            send(&mut asking, ignored.map_or(question, |message| frame(&message)).into(), true).await?;
            return self.answer(answer, &path).await;
        }
        if self.tally.faults().stale_read.is_some() && path == RANGE {
            let (question, _) = collect(&mut body).await?;
            if let Some(answer) = self.tally.recalls(&question) {
                return self.acknowledge(answer).await;
            }
            let (answer, mut asking) = sender.send_request(request, false)?;
            send(&mut asking, question.clone().into(), true).await?;
            return self.answer_remembered(answer, question).await;
        }
        let ended = body.is_end_stream();
        let (answer, asking) = sender.send_request(request, ended)?;
        if ended {
            return self.answer(answer, &path).await;
        }
        let asking = pin!(carry_body(body, asking, |_| ()));
        let answering = pin!(self.answer(answer, &path));
        both(asking, answering).await
    }

    /// Passes on the answer to a read, and remembers it if it has a value.
    async fn answer_remembered(&mut self, answer: ResponseFuture, question: Vec<u8>) -> Result<(), h2::Error> {
        let (head, mut body) = answer.await?.into_parts();
        let response = Response::from_parts(head, ());
        if body.is_end_stream() {
            return self.respond.send_response(response, true).map(drop);
        }
        let (bytes, trailers) = collect(&mut body).await?;
        if unframe(&bytes).is_some_and(|message| last_byte_of_value(&bytes[message]).is_some()) {
            self.tally.remembers(question, bytes.clone());
        }
        let mut answering = self.respond.send_response(response, false)?;
        send(&mut answering, bytes.into(), trailers.is_none()).await?;
        trailers.map_or(Ok(()), |trailers| answering.send_trailers(trailers))
    }

    /// Acknowledges a write that is not made.
    async fn fabricate(&mut self, write: &Fabricable) -> Result<(), h2::Error> {
        self.acknowledge(frame(&write.answer(self.newest.get()))).await
    }

    /// Answers without asking the store.
    async fn acknowledge(&mut self, answer: Vec<u8>) -> Result<(), h2::Error> {
        let mut response = Response::new(());
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        let mut answering = self.respond.send_response(response, false)?;
        send(&mut answering, answer.into(), false).await?;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        trailers.insert("grpc-message", http::HeaderValue::from_static(""));
        answering.send_trailers(trailers)
    }

    async fn answer(&mut self, answer: ResponseFuture, path: &str) -> Result<(), h2::Error> {
        let (head, mut body) = answer.await?.into_parts();
        let response = Response::from_parts(head, ());
        if body.is_end_stream() {
            return self.respond.send_response(response, true).map(drop);
        }
        if path != RANGE || self.tally.faults().flip_value_every.is_none() {
            let answering = self.respond.send_response(response, false)?;
            return carry_body(body, answering, |chunk| self.newest.look(chunk)).await;
        }
        let (mut bytes, trailers) = collect(&mut body).await?;
        let place = unframe(&bytes).and_then(|m| last_byte_of_value(&bytes[m.clone()]).map(|at| m.start + at));
        if let Some(byte) = place.filter(|_| self.tally.flips_value()).and_then(|place| bytes.get_mut(place)) {
            *byte ^= 1;
        }
        let mut answering = self.respond.send_response(response, false)?;
        send(&mut answering, bytes.into(), trailers.is_none()).await?;
        trailers.map_or(Ok(()), |trailers| answering.send_trailers(trailers))
    }
}

/// Until the answer is complete, whether the question is or not: a server may answer before it was asked in full, and
/// then wants no more of it. If it is the client that failed, the answer fails as well, because the stream was reset.
async fn both(
    mut asking: impl Future<Output = Result<(), h2::Error>> + Unpin,
    mut answering: impl Future<Output = Result<(), h2::Error>> + Unpin,
) -> Result<(), h2::Error> {
    tokio::select! {
        answered = &mut answering => answered,
        _ = &mut asking => answering.await,
    }
}

/// Carries one direction of a stream, and its end in whatever way it ends. `look` sees each piece of the body.
async fn carry_body(mut from: RecvStream, mut to: SendStream<Bytes>, look: impl Fn(&[u8])) -> Result<(), h2::Error> {
    loop {
        let chunk = match from.data().await {
            None => break,
            Some(Ok(chunk)) => chunk,
            Some(Err(error)) => {
                to.send_reset(error.reason().unwrap_or(Reason::CANCEL));
                return Err(error);
            }
        };
        from.flow_control().release_capacity(chunk.len())?;
        look(&chunk);
        let end = from.is_end_stream();
        send(&mut to, chunk, end).await?;
        if end {
            return Ok(());
        }
    }
    match from.trailers().await? {
        Some(trailers) => to.send_trailers(trailers),
        None => to.send_data(Bytes::new(), true),
    }
}

/// Sends as the other side's window allows.
async fn send(to: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        to.reserve_capacity(bytes.len());
        let Some(capacity) = std::future::poll_fn(|context| to.poll_capacity(context)).await else {
            return Err(Reason::CANCEL.into());
        };
        let piece = bytes.split_to(capacity?.min(bytes.len()));
        to.send_data(piece, end && bytes.is_empty())?;
        if bytes.is_empty() {
            return Ok(());
        }
    }
    if end { to.send_data(bytes, true) } else { Ok(()) }
}

async fn collect(body: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, body.trailers().await?))
}
