//! An etcd client as small as the tests need: h2 for the frames, prost for the messages, so that neither the proxy's
//! own reading of etcd's messages nor its writing of them is what judges it.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use tokio::runtime::Runtime;

use harness::eventually;

use super::{Faulty, PATIENCE};

#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// `PutRequest`, and enough of `RangeRequest`, which has its key in the same field.
#[derive(Clone, PartialEq, Message)]
pub struct Put {
    #[prost(bytes, tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes, tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PutAnswer {
    #[prost(message, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Range {
    #[prost(bytes, tag = "1")]
    pub key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(bytes, tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes, tag = "5")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RangeAnswer {
    #[prost(message, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Operation {
    #[prost(message, tag = "2")]
    pub put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Txn {
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TxnAnswer {
    #[prost(message, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<Operation>,
}

/// `WatchRequest { create_request: WatchCreateRequest { key } }`.
#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    #[prost(message, tag = "1")]
    pub create: Option<Range>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchEvent {
    #[prost(message, tag = "2")]
    pub kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WatchAnswer {
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

/// One connection.
pub struct Etcd {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

/// A call that goes on in both directions.
pub struct Stream {
    to: SendStream<Bytes>,
    from: RecvStream,
    buffer: Vec<u8>,
}

impl Etcd {
    pub fn connect(faulty: &Faulty) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = eventually("HTTP/2", || {
            let socket = faulty.connect();
            socket.set_nonblocking(true).unwrap();
            runtime.block_on(patiently(async {
                let socket = tokio::net::TcpStream::from_std(socket).unwrap();
                let (sender, connection) = h2::client::handshake(socket).await.ok()?;
                tokio::spawn(connection);
                sender.ready().await.ok()
            }))
        });
        let mut etcd = Self { runtime, sender };
        // etcd takes connections some time before it has a leader.
        eventually("a leader", || etcd.call("KV/Range", &Range { key: b"?".into() }).ok());
        etcd
    }

    /// A unary call, its answer undecoded; the error is the `grpc-status` or what else went wrong.
    pub fn call(&mut self, method: &str, message: &impl Message) -> Result<Bytes, String> {
        let call = unary(self.sender.clone(), method, message.encode_to_vec());
        self.runtime.block_on(patiently(call))
    }

    /// Many unary calls at once.
    pub fn call_all(&mut self, calls: Vec<(&'static str, Vec<u8>)>) -> Vec<Result<Bytes, String>> {
        let sender = &self.sender;
        self.runtime.block_on(patiently(async {
            let start = |(method, message)| tokio::spawn(unary(sender.clone(), method, message));
            let calls: Vec<_> = calls.into_iter().map(start).collect();
            let mut answers = vec![];
            for call in calls {
                answers.push(call.await.unwrap());
            }
            answers
        }))
    }

    pub fn put(&mut self, key: &str, value: &[u8]) -> PutAnswer {
        let answer = self.call("KV/Put", &Put { key: key.into(), value: value.to_vec() }).unwrap();
        PutAnswer::decode(answer).unwrap()
    }

    /// The value of a key, if it is there.
    pub fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let answer = self.call("KV/Range", &Range { key: key.into() }).unwrap();
        RangeAnswer::decode(answer).unwrap().kvs.pop().map(|pair| pair.value)
    }

    pub fn open(&mut self, method: &str, message: &impl Message) -> Stream {
        let mut sender = self.sender.clone();
        self.runtime.block_on(patiently(async {
            let (answer, mut to) = sender.send_request(request(method), false).unwrap();
            to.send_data(frame(&message.encode_to_vec()), false).unwrap();
            let from = answer.await.unwrap().into_body();
            Stream { to, from, buffer: vec![] }
        }))
    }

    pub fn next<M: Message + Default>(&mut self, stream: &mut Stream) -> M {
        self.runtime.block_on(patiently(async {
            loop {
                if let Some((head, rest)) = stream.buffer.split_first_chunk::<5>() {
                    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                    if rest.len() >= length {
                        let message = M::decode(&rest[..length]).unwrap();
                        stream.buffer.drain(..5 + length);
                        return message;
                    }
                }
                let chunk = stream.from.data().await.expect("the stream goes on").unwrap();
                stream.from.flow_control().release_capacity(chunk.len()).unwrap();
                stream.buffer.extend_from_slice(&chunk);
            }
        }))
    }

    pub fn send(&mut self, stream: &mut Stream, message: &impl Message) {
        let _entered = self.runtime.enter();
        stream.to.send_data(frame(&message.encode_to_vec()), false).unwrap();
    }
}

async fn unary(sender: SendRequest<Bytes>, method: &str, message: Vec<u8>) -> Result<Bytes, String> {
    let text = |error: h2::Error| error.to_string();
    let mut sender = sender.ready().await.map_err(text)?;
    let (answer, mut to) = sender.send_request(request(method), false).map_err(text)?;
    let mut rest = frame(&message);
    while !rest.is_empty() {
        to.reserve_capacity(rest.len());
        let capacity = std::future::poll_fn(|context| to.poll_capacity(context)).await.unwrap().map_err(text)?;
        let piece = rest.split_to(capacity.min(rest.len()));
        to.send_data(piece, rest.is_empty()).map_err(text)?;
    }
    let (head, mut body) = answer.await.map_err(text)?.into_parts();
    let mut bytes = vec![];
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(text)?;
        body.flow_control().release_capacity(chunk.len()).map_err(text)?;
        bytes.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await.map_err(text)?.unwrap_or(head.headers);
    match trailers.get("grpc-status").map(|status| status.as_bytes()) {
        Some(b"0") if bytes.len() >= 5 => Ok(Bytes::from(bytes).split_off(5)),
        status => Err(format!("{method}: {status:?} {:?}", trailers.get("grpc-message"))),
    }
}

fn request(method: &str) -> Request<()> {
    let request = Request::post(format!("http://localhost/etcdserverpb.{method}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

fn frame(message: &[u8]) -> Bytes {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat().into()
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE + Duration::from_secs(1), future).await.expect("an answer in time")
}
