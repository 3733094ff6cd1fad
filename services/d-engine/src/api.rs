//! What the server speaks on its port: both dialects of the original, and a streaming RPC of our own. What every server has besides
//! (health, reflection, probes, metrics) goes with it from [`service_kit`].
//!
//! | file | serves |
//! | --- | --- |
//! | `first` | packages `raft.*`, as clients of release 0.1.4 speak them |
//! | `second` | packages `d_engine.*`, as clients of release 0.2.4 do |
//! | `cluster` | who the members are, and changes of them, in both |
//! | `operate` | `storebench.dengine.v1`: many operations a frame, replies out of order |
//! | `snapshot` | all of the state, piece by piece |
//! | `access` | who calls |
//! | `users` | changes of users |
//!
//! Reads of any level are answered by any member: strong ones with a round to the leader. The original refuses them where nobody
//! leads; clients that ask the leader notice no difference. Writes that come by our own door are handed to the leader; those of the
//! original's clients, which look for the leader when they are refused, only where the settings say so.

mod access;
mod cluster;
mod errors;
mod fields;
mod first;
mod operate;
mod second;
mod snapshot;
#[cfg(test)]
mod tests;
mod users;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use d_engine_client::wire;
use http::HeaderValue;
use prost::Message;
use service_kit::grpc::{self, Caller, Code, Decompress, Requests, Responses, Service, Status, Stream, Unary};

use crate::engine::{Node, NotLeading};
use crate::state::Principal;
pub use access::SignedIn;
use access::Who;

/// How long a member that is asked whether it is ready waits for a majority.
pub(crate) const MAJORITY_TIMEOUT: Duration = Duration::from_secs(1);

/// What is streamed may wait so many times as long for the client to take it as an answer may take.
const TAKEN_PATIENCES: u32 = 10;

/// How often somebody who watches is told how far the state is, where nothing happens to what is watched. The original's too.
const PROGRESS: Duration = Duration::from_secs(30);

/// What is said about members at a time, bytes.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// All of a state may have to be read and written.
const DEFRAGMENT_PATIENCE: Duration = Duration::from_secs(3600);

/// A method of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Of release 0.1.4.
    First(first::Method),
    /// Of release 0.2.4.
    Second(second::Method),
    /// Of our own.
    Own(operate::Method),
}

impl Method {
    /// The method with this path.
    pub fn of(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        match service {
            "raft.client.RaftClientService" => first::Method::of_client(method).map(Self::First),
            "raft.cluster.ClusterManagementService" => {
                cluster::Method::of(method).map(first::Method::Cluster).map(Self::First)
            }
            "d_engine.client.RaftClientService" => second::Method::of_client(method).map(Self::Second),
            "d_engine.server.cluster.ClusterManagementService" => {
                cluster::Method::of(method).map(second::Method::Cluster).map(Self::Second)
            }
            "storebench.dengine.v1.Store" => operate::Method::of(method).map(Self::Own),
            _ => None,
        }
    }

    // No match on a method has a last arm: what is added says in each of them what it is.
    fn is_stream(self) -> bool {
        use {operate::Method as Own, second::Method as Second};
        match self {
            Self::Second(Second::Watch | Second::WatchMembership)
            | Self::Own(Own::Operate | Own::Watch | Own::Snapshot) => true,
            Self::First(first::Method::Write | first::Method::Read | first::Method::Cluster(_))
            | Self::Second(Second::Write | Second::Read | Second::Scan | Second::Cluster(_))
            | Self::Own(Own::Status | Own::ChangeMembers | Own::ChangeUsers | Own::ListUsers | Own::Defragment) => {
                false
            }
        }
    }
}

/// Understands what a client says to a method, as far as that needs no state: for who wants to know whether any bytes do harm.
pub fn understand(method: Method, message: Bytes) -> Result<(), Status> {
    use d_engine_client::proto::{d_engine, raft};
    match method {
        Method::First(first::Method::Write) => first::transaction(decode_items(message)?).map(drop),
        Method::First(first::Method::Read) => decode_items(message).map(first::query).map(drop),
        Method::First(first::Method::Cluster(_)) => {
            decode_short::<raft::cluster::ClusterConfChangeRequest>(message).map(drop)
        }
        Method::Second(second::Method::Write) => second::transaction(decode(message)?).map(drop),
        Method::Second(second::Method::Read) => decode_items(message).map(second::query).map(drop),
        Method::Second(second::Method::Scan) => decode::<d_engine::client::ScanRequest>(message).map(drop),
        Method::Second(second::Method::Watch) => second::watched(decode(message)?).map(drop),
        Method::Second(second::Method::Cluster(_) | second::Method::WatchMembership) => {
            decode_short::<d_engine::server::cluster::ClusterConfChangeRequest>(message).map(drop)
        }
        Method::Own(operate::Method::ChangeMembers) => {
            decode::<d_engine_client::wire::ChangeMembersRequest>(message).map(drop)
        }
        Method::Own(operate::Method::ChangeUsers) => users::understood(decode(message)?).map(drop),
        Method::Own(
            operate::Method::Operate
            | operate::Method::Watch
            | operate::Method::Status
            | operate::Method::Snapshot
            | operate::Method::ListUsers
            | operate::Method::Defragment,
        ) => operate::understand(&message),
    }
}

/// The API on one worker thread.
#[derive(Clone)]
pub struct Api {
    node: Node,
    /// How long an answer may take.
    patience: Duration,
    /// What becomes of the dialects' writes where this member does not lead.
    not_leading: NotLeading,
    signed_in: Arc<SignedIn>,
}

impl Api {
    /// Of a member, whose threads share who has signed in. Who calls is nobody until it says who it is.
    pub fn new(node: Node, signed_in: Arc<SignedIn>, patience: Duration, not_leading: NotLeading) -> Self {
        Self { node: node.acting_for(Principal::Nobody), patience, not_leading, signed_in }
    }

    /// The same for a caller.
    fn acting_for(&self, who: Principal) -> Self {
        Self { node: self.node.acting_for(who), ..self.clone() }
    }

    /// For changes of members: the member waits as long as [`Api::patience`] for what it has begun, and says more of it.
    fn patience_of_changes(&self) -> Duration {
        self.patience + MAJORITY_TIMEOUT
    }

    /// Answers a caller that is known.
    fn answer(&self, method: Method, message: Bytes) -> Unary {
        let answer = match method {
            Method::First(method) => first::unary(self, method, message),
            Method::Second(method) => second::unary(self, method, message),
            Method::Own(operate::Method::ChangeMembers) => decode(message).map(|request| {
                let node = self.node.clone();
                later(self.patience_of_changes(), async move { operate::change_members(node, request).await })
            }),
            Method::Own(operate::Method::ChangeUsers) => decode(message).map(|request| {
                let (node, signed_in, patience) = (self.node.clone(), Arc::clone(&self.signed_in), self.patience);
                later(patience, async move { Ok(users::change(node, request, &signed_in, patience).await) })
            }),
            Method::Own(operate::Method::ListUsers) => Ok(now(users::list(&self.node))),
            Method::Own(operate::Method::Defragment) => decode(message).map(|wire::DefragmentRequest {}| {
                let node = self.node.clone();
                later(DEFRAGMENT_PATIENCE, async move { Ok(operate::defragment(node).await) })
            }),
            Method::Own(operate::Method::Status) => {
                let node = self.node.clone();
                Ok(later(self.patience + MAJORITY_TIMEOUT, async move { Ok(operate::status(&node).await) }))
            }
            Method::Own(operate::Method::Operate | operate::Method::Watch | operate::Method::Snapshot) => {
                Err(Status::new(Code::Internal, "the method is a stream"))
            }
        };
        answer.unwrap_or_else(|status| Unary::Now(Err(status)))
    }

    /// Streams to a caller that is known.
    fn answers(&self, method: Method, requests: Requests, responses: Responses) -> Stream {
        let node = self.node.clone();
        let ending = node.ending();
        let stream: Stream = match method {
            // It ends by itself, with what it was asked answered.
            Method::Own(operate::Method::Operate) => {
                return Box::pin(operate::operate(node, requests, responses, TAKEN_PATIENCES * self.patience));
            }
            Method::Second(second::Method::Watch) => Box::pin(second::watch(node, requests, responses)),
            Method::Second(second::Method::WatchMembership) => Box::pin(cluster::watch(node, requests, responses)),
            Method::Own(operate::Method::Snapshot) => {
                Box::pin(snapshot::send(node, requests, responses, TAKEN_PATIENCES * self.patience))
            }
            Method::Own(operate::Method::Watch) => Box::pin(operate::watch(node, requests, responses)),
            Method::First(first::Method::Write | first::Method::Read | first::Method::Cluster(_))
            | Method::Second(
                second::Method::Write | second::Method::Read | second::Method::Scan | second::Method::Cluster(_),
            )
            | Method::Own(
                operate::Method::Status
                | operate::Method::ChangeMembers
                | operate::Method::ChangeUsers
                | operate::Method::ListUsers
                | operate::Method::Defragment,
            ) => Box::pin(async { Err(Status::is_no_stream()) }),
        };
        let node = self.node.clone();
        Box::pin(async move {
            tokio::select! {
                outcome = stream => outcome,
                () = ending => Err(Status::new(Code::Unavailable, "the member is ending")),
                () = node.forgotten() => Err(access::nobody()),
            }
        })
    }
}

/// An answer that comes in time, or [`Code::DeadlineExceeded`].
fn later<M: Message>(patience: Duration, answer: impl Future<Output = Result<M, Status>> + 'static) -> Unary {
    Unary::Later(Box::pin(async move {
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => Ok(grpc::encode(&answer?)),
            Err(_) => Err(Status::new(Code::DeadlineExceeded, "no answer in time")),
        }
    }))
}

fn now<M: Message>(answer: Result<M, Status>) -> Unary {
    Unary::Now(answer.map(|answer| grpc::encode(&answer)))
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(malformed)
}

/// A request that is a list: what each item takes once it is decoded is a multiple of its bytes.
fn decode_items<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    fields::bound(&message, &[])?;
    decode(message)
}

/// A request that names members, and may have a list of very many.
fn decode_short<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    if message.len() > SHORT_BYTES_MAX {
        let text = format!("a request about members has more than {SHORT_BYTES_MAX} bytes: send several");
        return Err(Status::new(Code::InvalidArgument, text));
    }
    decode(message)
}

fn malformed(error: impl std::fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, format!("the request is malformed: {error}"))
}

/// The only request of a stream of answers.
async fn only<M: Message + Default>(requests: Requests) -> Result<M, Status> {
    decode(requests.only().await?)
}

/// The client of a stream waits no longer.
fn gone(_: grpc::Gone) -> Status {
    Status::new(Code::Canceled, "the client has gone")
}

impl Service for Api {
    type Method = Method;

    fn method(&self, path: &str) -> Option<(Method, bool)> {
        let method = Method::of(path)?;
        Some((method, method.is_stream()))
    }

    fn unary(&self, method: Method, caller: Caller, message: Bytes) -> Unary {
        match self.who(&caller) {
            Who::Known(who) => self.acting_for(who).answer(method, message),
            Who::Unknown(status) => Unary::Now(Err(status)),
            Who::Claims(claim) => {
                let api = self.clone();
                Unary::Later(Box::pin(async move {
                    let who = api.signed_in.check(&api.node, claim, api.patience).await?;
                    match api.acting_for(who).answer(method, message) {
                        Unary::Now(answer) => answer,
                        Unary::Later(answer) => answer.await,
                    }
                }))
            }
        }
    }

    fn decompress(&self, encoding: &str) -> Option<Decompress> {
        (encoding == "gzip").then_some(grpc::gunzip)
    }

    fn accepted_encodings(&self) -> Option<HeaderValue> {
        Some(HeaderValue::from_static("gzip"))
    }

    fn stream(&self, method: Method, caller: Caller, requests: Requests, responses: Responses) -> Stream {
        match self.who(&caller) {
            Who::Known(who) => self.acting_for(who).answers(method, requests, responses),
            Who::Unknown(status) => Box::pin(async { Err(status) }),
            Who::Claims(claim) => {
                let api = self.clone();
                Box::pin(async move {
                    let who = api.signed_in.check(&api.node, claim, api.patience).await?;
                    api.acting_for(who).answers(method, requests, responses).await
                })
            }
        }
    }
}
