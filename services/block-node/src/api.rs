//! The services on the wire, and what is served by HTTP beside them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, request};
use service_kit::grpc::{
    Caller, Code, Compression, Decompress, HttpAnswer, Peer, Requests, Responses, Service, Status, Stream, Unary,
    decode, encode, encode_with,
};
use service_kit::http::Incoming;
use service_kit::operations::Operations;

use crate::clients::{Call, ClientId, Clients, Right};
use crate::compressed::ContentCoding;
use crate::contents_proof::{ContentsProof, Sibling};
use crate::decompress;
use crate::messages::{BlockCode, ContentsProofCode, NO_BLOCK, proto, put_block_response};
use crate::node::Node;
use crate::publish_stream::publish;
use crate::recent::Shared;
use crate::status;
use crate::store::ReadError;
use crate::subscribe::subscribe;

/// A larger answer is made when it is its turn, one after the other: a client may ask for a hundred blocks at once and take none.
const AT_ONCE_BYTES: usize = 32 << 10;

/// A number, or nothing.
const SMALL_REQUEST_BYTES_MAX: usize = 16 << 10;

/// The methods that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// publishBlockStream.
    Publish,
    /// subscribeBlockStream.
    Subscribe,
    /// getBlock.
    GetBlock,
    /// serverStatus.
    Status,
    /// serverStatusDetail.
    StatusDetail,
    /// getBlockContentsProof.
    ContentsProof,
}

impl Method {
    /// Who may call it.
    fn right(self) -> Option<Right> {
        match self {
            Self::Publish => Some(Right::Publish),
            Self::Subscribe | Self::GetBlock | Self::ContentsProof => Some(Right::Read),
            // Publishers ask where to begin.
            Self::Status | Self::StatusDetail => None,
        }
    }
}

/// A method, and who calls it, where somebody is asked for his name.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    method: Method,
    client: Option<ClientId>,
}

/// Where each method is found, and whether it is a stream.
const METHODS: [(&str, Method, bool); 6] = [
    ("/org.hiero.block.api.BlockStreamPublishService/publishBlockStream", Method::Publish, true),
    ("/org.hiero.block.api.BlockStreamSubscribeService/subscribeBlockStream", Method::Subscribe, true),
    ("/org.hiero.block.api.BlockAccessService/getBlock", Method::GetBlock, false),
    ("/org.hiero.block.api.BlockNodeService/serverStatus", Method::Status, false),
    ("/org.hiero.block.api.BlockNodeService/serverStatusDetail", Method::StatusDetail, false),
    ("/org.hiero.block.api.ProofService/getBlockContentsProof", Method::ContentsProof, false),
];

/// Answers on one worker thread.
pub struct Api {
    node: Arc<Node>,
    /// `None`: everybody may do everything.
    clients: Option<Arc<Clients>>,
    operations: Operations,
}

impl Api {
    /// For this node and its clients.
    pub fn new(node: Arc<Node>, clients: Option<Arc<Clients>>, operations: Operations) -> Self {
        Self { node, clients, operations }
    }

    /// Begins a call of whoever was admitted.
    fn begin(&self, asked: Asked) -> Result<Call, Status> {
        self.clients.as_ref().map_or_else(|| Ok(Call::default()), |clients| clients.begin(asked.client))
    }

    /// How blocks are compressed for a client with these headers.
    fn encoding(&self, method: Method, headers: &HeaderMap) -> Option<ContentCoding> {
        match method {
            Method::GetBlock | Method::Subscribe => ContentCoding::of(headers, self.node.settings.compress_answers),
            Method::Publish | Method::Status | Method::StatusDetail | Method::ContentsProof => None,
        }
    }
}

/// Answers what is no stream, to the client of this name.
fn answer(
    node: &Arc<Node>,
    (method, encoding): (Method, Option<ContentCoding>),
    message: Bytes,
    client: impl FnOnce() -> String,
) -> Unary {
    match method {
        Method::GetBlock => get_block(node, encoding, message),
        Method::Status => {
            let request = decode(message);
            let answer = |proto::ServerStatusRequest {}| status::status_frame(&node.reader, node.settings.wire_era);
            Unary::Now(request.map(answer))
        }
        Method::StatusDetail => {
            let request = decode(message);
            Unary::Now(request.map(|proto::ServerStatusRequest {}| encode(&status::detail(node))))
        }
        Method::ContentsProof => answer_contents_proof(node, client(), message),
        Method::Publish | Method::Subscribe => Unary::Now(Err(Status::is_stream())),
    }
}

fn get_block(node: &Arc<Node>, encoding: Option<ContentCoding>, message: Bytes) -> Unary {
    use proto::block_request::BlockSpecifier::{BlockNumber, RetrieveLatest};
    let began = Instant::now();
    let specifier = match decode::<proto::BlockRequest>(message) {
        Ok(request) => request.block_specifier,
        Err(status) => return Unary::Now(Err(status)),
    };
    let last = node.reader.last();
    let number = match specifier {
        Some(BlockNumber(NO_BLOCK)) | Some(RetrieveLatest(true)) => last,
        Some(BlockNumber(number)) => Some(number),
        Some(RetrieveLatest(false)) | None => return Unary::Now(Ok(refusal(node, BlockCode::InvalidRequest))),
    };
    let is_here = |number: &u64| *number >= node.reader.first() && last.is_some_and(|last| *number <= last);
    let Some(number) = number.filter(is_here) else {
        node.metrics.get_block_refusals.inc();
        return Unary::Now(Ok(refusal(node, BlockCode::NotAvailable)));
    };
    if let Some(block) = node.recent.get(number).filter(|block| block.block_bytes() <= AT_ONCE_BYTES)
        && encoding.is_none()
    {
        return Unary::Now(Ok(hit(node, &block, began)));
    }
    let node = Arc::clone(node);
    Unary::Later(Box::pin(async move {
        let hit = |block: &Shared| hit(&node, block, began);
        let answer = match encoding {
            // What is held is counted as an answer from here on.
            None => node.hold(number).await.map(|held| hit(held.block())),
            Some(encoding) => node.compressed_answer(number, encoding, hit).await,
        };
        match answer {
            Ok(answer) => Ok(answer),
            Err(ReadError::NotStored(_) | ReadError::Damaged { .. }) => {
                node.metrics.get_block_refusals.inc();
                Ok(refusal(&node, BlockCode::NotAvailable))
            }
            Err(ReadError::Files { .. }) => Ok(refusal(&node, BlockCode::Error)),
        }
    }))
}

fn answer_contents_proof(node: &Arc<Node>, client: String, message: Bytes) -> Unary {
    let node = Arc::clone(node);
    Unary::Later(Box::pin(async move {
        let request: proto::BlockContentsProofRequest = match message.len() {
            // It holds an item at most; but it may come as anything.
            AT_ONCE_BYTES.. => {
                let decoded = tokio::task::spawn_blocking(|| decode(message)).await;
                decoded.unwrap_or_else(|error| Err(Status::new(Code::Internal, error.to_string())))?
            }
            _ => decode(message)?,
        };
        let proven = node.proofs.contents_proof(&client, request, |number| node.read(number)).await;
        let code = proven.as_ref().err().copied().unwrap_or(ContentsProofCode::Success);
        Ok(encode(&proto::BlockContentsProofResponse {
            status: code.number(node.settings.wire_era),
            block_content_proof: proven.ok().map(|ContentsProof { item, siblings, signature }| {
                let sibling = |Sibling { is_first, hash }: &Sibling| proto::MerkleSiblingHash {
                    is_first: *is_first,
                    sibling_hash: Bytes::copy_from_slice(hash),
                };
                proto::BlockContentsProof {
                    block_item: item.into(),
                    sibling_hashes: siblings.iter().map(sibling).collect(),
                    block_signature: signature.into(),
                }
            }),
        }))
    }))
}

/// A `BlockResponse` with a block, in its frame.
fn hit(node: &Node, block: &Shared, began: Instant) -> Bytes {
    let (length, era) = (block.block_bytes(), node.settings.wire_era);
    let write = |out: &mut BytesMut| {
        put_block_response(out, BlockCode::Success, Some(length), era);
        block.put_block(out);
    };
    let frame = encode_with(write, 16 + length);
    node.metrics.get_block_hits.inc();
    node.metrics.get_block.observe(began.elapsed());
    frame
}

fn refusal(node: &Node, code: BlockCode) -> Bytes {
    encode_with(|out| put_block_response(out, code, None, node.settings.wire_era), 2)
}

impl Service for Api {
    type Method = Asked;

    fn method(&self, path: &str) -> Option<(Asked, bool)> {
        let (_, method, is_stream) = METHODS.iter().find(|(known, ..)| *known == path)?;
        Some((Asked { method: *method, client: None }, *is_stream))
    }

    fn admit(&self, asked: &mut Asked, caller: &Caller) -> Result<usize, Status> {
        if let Some(clients) = &self.clients {
            asked.client = Some(clients.admit(&caller.headers, &caller.peer, asked.method.right())?);
        }
        Ok(match asked.method {
            Method::GetBlock | Method::Status | Method::StatusDetail => SMALL_REQUEST_BYTES_MAX,
            // A request to subscribe that is too long is answered with a code of its own.
            Method::Publish | Method::Subscribe | Method::ContentsProof => usize::MAX,
        })
    }

    fn unary(&self, asked: Asked, caller: Caller, message: Bytes) -> Unary {
        let method = asked.method;
        let call = match self.begin(asked) {
            Ok(call) => call,
            Err(status) => return Unary::Now(Err(status)),
        };
        let encoding = self.encoding(method, &caller.headers);
        if self.clients.is_none() {
            return answer(&self.node, (method, encoding), message, || call.client(&caller.peer));
        }
        let node = Arc::clone(&self.node);
        Unary::Later(Box::pin(async move {
            call.turn().await;
            call.charge(message.len());
            // Not before: what waits for its turn takes no memory.
            let answer = match answer(&node, (method, encoding), message, || call.client(&caller.peer)) {
                Unary::Now(answer) => answer,
                Unary::Later(answer) => answer.await,
            };
            call.charge(answer.as_ref().map_or(0, Bytes::len));
            answer
        }))
    }

    fn stream(&self, asked: Asked, caller: Caller, requests: Requests, responses: Responses) -> Stream {
        let (node, method) = (Arc::clone(&self.node), asked.method);
        let call = match self.begin(asked) {
            Ok(call) => Rc::new(call),
            Err(status) => return Box::pin(async move { Err(status) }),
        };
        let encoding = self.encoding(method, &caller.headers);
        let (requests, responses) = match &self.clients {
            None => (requests, responses),
            Some(_) => {
                let [of_requests, of_responses] = [(); 2].map(|()| Rc::clone(&call));
                // What never comes whole has cost as much.
                let requests = requests.counted_in_part(move |bytes| of_requests.charge(bytes));
                (requests, responses.counted(move |bytes| of_responses.charge(bytes)))
            }
        };
        match method {
            Method::Publish => {
                let client = call.client(&caller.peer);
                Box::pin(publish(node, (call, client), requests, responses))
            }
            Method::Subscribe => Box::pin(subscribe(node, call, encoding, requests, responses)),
            Method::GetBlock | Method::Status | Method::StatusDetail | Method::ContentsProof => {
                Box::pin(async { Err(Status::is_no_stream()) })
            }
        }
    }

    fn decompress(&self, encoding: &str) -> Option<Decompress> {
        decompress::of(encoding)
    }

    fn compression(&self, asked: Asked, headers: &HeaderMap) -> Option<Compression> {
        self.encoding(asked.method, headers).map(ContentCoding::compression)
    }

    fn accepted_encodings(&self) -> Option<HeaderValue> {
        Some(decompress::ACCEPTED)
    }

    fn http(&self, mut head: request::Parts, _: Incoming, _: Rc<Peer>) -> Option<HttpAnswer> {
        // Where the Java node has its probes.
        head.uri = head.uri.path_and_query()?.as_str().strip_prefix("/healthz")?.parse().ok()?;
        self.operations.answer(&head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use service_kit::reflection::Reflection;

    #[test]
    fn every_service_is_described() {
        let reflection = Reflection::new(&[proto::DESCRIPTORS]).unwrap();
        for (path, ..) in METHODS {
            let service = path.trim_start_matches('/').split('/').next().unwrap();
            assert!(reflection.has_service(service), "{service}");
        }
    }
}
