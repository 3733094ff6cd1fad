//! A gRPC client as small as can be, for messages of our own types: every answer becomes text that two servers can have in common.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use rusd::proto::etcdserverpb as pb;
use service_kit::grpc::{self, Deframer};
use tokio::net::TcpStream;
use tokio::time::timeout;

const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// For whatever waits for a server that may be slow.
pub const LONG: Duration = Duration::from_secs(120);

/// A connection to a server.
pub struct Connection(SendRequest<Bytes>);

/// What two servers cannot have in common is taken away.
pub trait Common: Message + Default + Debug {
    fn forget(&mut self);
}

/// The numbers of group and member, and the term.
pub fn forget_header(header: &mut Option<pb::ResponseHeader>) {
    if let Some(header) = header {
        (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    }
}

macro_rules! common {
    ($($message:ident)*) => {
        $(impl Common for pb::$message {
            fn forget(&mut self) {
                forget_header(&mut self.header);
            }
        })*
    };
}

common! {
    PutResponse RangeResponse DeleteRangeResponse TxnResponse CompactionResponse HashKvResponse LeaseGrantResponse LeaseRevokeResponse
}

impl Common for pb::LeaseTimeToLiveResponse {
    fn forget(&mut self) {
        forget_header(&mut self.header);
        // Seconds pass, more of them on one server than on the other.
        self.ttl = self.ttl.signum();
        self.keys.sort();
    }
}

impl Common for pb::LeaseLeasesResponse {
    fn forget(&mut self) {
        forget_header(&mut self.header);
        self.leases.sort_by_key(|lease| lease.id);
    }
}

impl Common for pb::RangeStreamResponse {
    fn forget(&mut self) {
        if let Some(range) = &mut self.range_response {
            forget_header(&mut range.header);
        }
    }
}

impl Connection {
    pub async fn to(address: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        // What watches are told waits here until somebody looks.
        const WAITING_BYTES_MAX: u32 = 64 << 20;
        let mut builder = Builder::new();
        builder.initial_window_size(WAITING_BYTES_MAX).initial_connection_window_size(WAITING_BYTES_MAX);
        let (send, connection) = builder.data_frame_budget(WAITING_BYTES_MAX as usize).handshake(socket).await.unwrap();
        tokio::task::spawn_local(connection);
        Self(send)
    }

    async fn call(&self, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post(format!("http://server/etcdserverpb.{path}")).header("te", "trailers");
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        self.0.clone().ready().await.unwrap().send_request(request, false).unwrap()
    }

    /// The answer as text; that of a stream as if it were one message.
    pub async fn ask<A: Common>(&self, path: &str, request: &impl Message) -> String {
        let (answer, mut stream) = self.call(path).await;
        stream.send_data(grpc::encode(request), true).unwrap();
        let read = async {
            let (head, body) = answer.await.unwrap().into_parts();
            let mut messages = Messages::of(body);
            let mut all = Vec::new();
            while let Some(message) = messages.next().await {
                all.extend_from_slice(&message);
            }
            let trailers = messages.body.trailers().await.unwrap().unwrap_or(head.headers);
            (all, trailers)
        };
        let (message, trailers) = timeout(LONG, read).await.unwrap();
        if trailers["grpc-status"] != "0" {
            return refusal(&trailers);
        }
        let mut answer = A::decode(message.as_slice()).unwrap();
        answer.forget();
        format!("{answer:?}")
    }

    /// A stream of watches, with its first request.
    pub async fn watch(&self, first: pb::watch_request::RequestUnion) -> Watching {
        let (answer, requests) = self.call("Watch/Watch").await;
        let mut watching = Watching { requests, messages: None };
        watching.send(first);
        let response = timeout(LONG, answer).await.unwrap().unwrap();
        watching.messages = Some(Messages::of(response.into_body()));
        watching
    }
}

fn refusal(trailers: &HeaderMap) -> String {
    format!("refused: {:?} {:?}", trailers["grpc-status"], trailers.get("grpc-message"))
}

/// A stream of watches.
pub struct Watching {
    requests: SendStream<Bytes>,
    messages: Option<Messages>,
}

impl Watching {
    pub fn send(&mut self, request: pb::watch_request::RequestUnion) {
        self.requests.send_data(grpc::encode(&pb::WatchRequest { request_union: Some(request) }), false).unwrap();
    }

    /// What comes next, if it comes within that time.
    pub async fn next(&mut self, patience: Duration) -> Option<pb::WatchResponse> {
        let message = timeout(patience, self.messages.as_mut().unwrap().next()).await.ok()?;
        let mut response = pb::WatchResponse::decode(message.expect("the stream goes on")).unwrap();
        forget_header(&mut response.header);
        Some(response)
    }

    /// What comes next; it must come.
    pub async fn expect(&mut self) -> pb::WatchResponse {
        self.next(LONG).await.expect("an answer within two minutes")
    }
}

/// The messages of an answer.
struct Messages {
    body: RecvStream,
    deframer: Deframer,
}

impl Messages {
    fn of(body: RecvStream) -> Self {
        Self { body, deframer: Deframer::new(MESSAGE_BYTES_MAX) }
    }

    /// May be dropped and asked again: nothing is lost.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(message) = self.deframer.message().unwrap() {
                return Some(message);
            }
            let chunk = self.body.data().await?.unwrap();
            let _ = self.body.flow_control().release_capacity(chunk.len());
            self.deframer.push(chunk);
        }
    }
}
