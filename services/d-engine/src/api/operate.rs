//! Our own dialect: many operations a frame, replies out of order. See `proto/storebench/dengine/v1.proto`.
//!
//! What waits is bounded by the number of requests without a reply, not by the size of replies: a read looks at the state only when
//! there is room to send what it finds.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use d_engine_client::wire::{self, request::Body};
use d_engine_client::{Error, Query, ReadLevel, ReadOptions};
use prost::Message;
use service_kit::grpc::{self, Requests, Responses, Status};
use tokio::sync::Notify;

use super::{access, decode, gone, only};
use crate::engine::{Address, Durability, MemberChange, Node};
use crate::settings::is_address;

/// Requests without a reply on a stream. Beyond, the client is not listened to.
const OUTSTANDING_MAX: usize = 10_000;
/// A frame of replies is sent when it has so many bytes.
const FRAME_BYTES: usize = 256 << 10;

/// Its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Operations.
    Operate,
    /// Watches.
    Watch,
    /// What the member is.
    Status,
    /// All of the state.
    Snapshot,
    /// Changes the members.
    ChangeMembers,
    /// Changes users.
    ChangeUsers,
    /// Who the users are.
    ListUsers,
}

impl Method {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "Operate" => Some(Self::Operate),
            "Watch" => Some(Self::Watch),
            "Status" => Some(Self::Status),
            "Snapshot" => Some(Self::Snapshot),
            "ChangeMembers" => Some(Self::ChangeMembers),
            "ChangeUsers" => Some(Self::ChangeUsers),
            "ListUsers" => Some(Self::ListUsers),
            _ => None,
        }
    }
}

/// What has become ready.
enum Ready {
    Reply(wire::Reply),
    /// The state is fresh enough for this read, or will not be.
    Look {
        id: u64,
        query: Query,
        options: ReadOptions,
        ticket: Result<replog::runtime::Ticket, Error>,
    },
}

/// What has become ready and was not sent.
#[derive(Default)]
struct Done {
    ready: Mutex<Vec<Ready>>,
    wake: Notify,
}

impl Done {
    fn push(&self, ready: Ready) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push(ready);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<Ready> {
        std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Understands a frame.
pub(super) fn understand(frame: wire::Requests) {
    for request in frame.requests {
        match request.body {
            Some(Body::Write(write)) => drop(write.parse()),
            Some(Body::Read(read)) => drop(read.parse()),
            Some(Body::OpenSession(_) | Body::CloseSession(_)) | None => {}
        }
    }
}

/// Serves a stream of operations.
pub(super) async fn operate(node: Node, mut requests: Requests, responses: Responses) -> Result<(), Status> {
    responses.open().map_err(gone)?;
    let done = Arc::new(Done::default());
    let (mut outstanding, mut is_over) = (0, false);
    let mut ending = pin!(node.ending());
    let mut users = node.shown().users();
    loop {
        let ready = done.take();
        if !ready.is_empty() {
            outstanding -= send(&node, ready, &done, &responses).await?;
            continue;
        }
        if is_over && outstanding == 0 {
            return Ok(());
        }
        if !node.users().knows(node.principal()) {
            return Err(access::nobody());
        }
        tokio::select! {
            biased;
            () = done.wake.notified() => {}
            // An error: the member has ended, which is heard elsewhere, too.
            Ok(()) = users.changed() => {}
            // A member that ends answers what it was asked, and lets the client go to another.
            () = &mut ending, if !is_over => is_over = true,
            frame = requests.next(), if !is_over && outstanding < OUTSTANDING_MAX => match frame? {
                None => is_over = true,
                Some(frame) => {
                    let frame: wire::Requests = decode(frame)?;
                    outstanding += frame.requests.len();
                    for request in frame.requests {
                        begin(&node, request, &done);
                    }
                }
            }
        }
    }
}

/// Begins a request; it ends by one [`Ready`].
fn begin(node: &Node, wire::Request { id, body }: wire::Request, done: &Arc<Done>) {
    let done = Arc::clone(done);
    // Who writes is told where that is quicker.
    let leader = || node.leader_elsewhere().map(|leader| leader.address).unwrap_or_default();
    match body {
        Some(Body::Write(write)) => match write.parse() {
            Ok((transaction, stamp)) => {
                let leader = leader();
                node.write_then(transaction, stamp, move |written| {
                    done.push(Ready::Reply(wire::Reply::of_write(id, written).forwarded_to(leader)));
                });
            }
            Err(error) => done.push(Ready::Reply(wire::Reply::of_error(id, error))),
        },
        Some(Body::Read(read)) => match read.parse() {
            Ok((query, options)) => node.read_then(options, move |ticket| {
                done.push(Ready::Look { id, query, options, ticket });
            }),
            Err(error) => done.push(Ready::Reply(wire::Reply::of_error(id, error))),
        },
        Some(Body::OpenSession(wire::OpenSession {})) => {
            let leader = leader();
            node.session_then(None, move |session| {
                done.push(Ready::Reply(wire::Reply::of_session(id, session).forwarded_to(leader)));
            });
        }
        Some(Body::CloseSession(wire::CloseSession { session })) => {
            node.session_then(Some(session), move |session| {
                done.push(Ready::Reply(wire::Reply::of_session(id, session)));
            });
        }
        None => {
            let error = Error::Invalid("the request is empty, or of a later version of the protocol".into());
            done.push(Ready::Reply(wire::Reply::of_error(id, error)));
        }
    }
}

/// Sends what is ready; how many requests have got their reply.
async fn send(node: &Node, ready: Vec<Ready>, done: &Arc<Done>, responses: &Responses) -> Result<usize, Status> {
    let (mut answered, mut bytes) = (0, 0);
    let mut frame = wire::Replies::default();
    for ready in ready {
        let reply = match ready {
            Ready::Reply(reply) => reply,
            Ready::Look { id, query, options, ticket } => match ticket {
                Err(error) => wire::Reply::of_error(id, error),
                Ok(ticket) => match node.look_with(&query, ticket) {
                    Some(seen) => wire::Reply::of_read(id, seen),
                    None => {
                        // The lease is over: a round will tell.
                        let options = ReadOptions { level: ReadLevel::Linearizable, ..options };
                        let done = Arc::clone(done);
                        node.read_then(options, move |ticket| done.push(Ready::Look { id, query, options, ticket }));
                        continue;
                    }
                },
            },
        };
        answered += 1;
        bytes += reply.encoded_len();
        frame.replies.push(reply);
        if bytes >= FRAME_BYTES {
            responses.send(grpc::encode(&std::mem::take(&mut frame))).await.map_err(gone)?;
            bytes = 0;
        }
    }
    if !frame.replies.is_empty() {
        responses.send(grpc::encode(&frame)).await.map_err(gone)?;
    }
    Ok(answered)
}

/// Serves a watch. Its first frame, often without events, says that nothing is missed from here on.
pub(super) async fn watch(node: Node, mut requests: Requests, responses: Responses) -> Result<(), Status> {
    let request: wire::WatchRequest = only(&mut requests).await?;
    let ended = |error| wire::Events { error: Some(wire::Error::of(error)), ..wire::Events::default() };
    let mut watching = match node.watch_now(request.parse()) {
        Ok(watching) => watching,
        Err(error) => return responses.send(grpc::encode(&ended(error))).await.map_err(gone),
    };
    let mut is_first = true;
    loop {
        let step = match watching.step() {
            Ok(step) => step,
            Err(error) => return responses.send(grpc::encode(&ended(error))).await.map_err(gone),
        };
        if is_first || !step.events.is_empty() {
            is_first = false;
            let events = step.events.into_iter().map(wire::Event::of).collect();
            let frame = wire::Events { events, index: step.index, error: None };
            responses.send(grpc::encode(&frame)).await.map_err(gone)?;
        }
        if !step.has_more && watching.changed().await.is_err() {
            return responses.send(grpc::encode(&ended(Error::Stopped))).await.map_err(gone);
        }
    }
}

/// Changes the members; what is wrong is in the answer.
pub(super) async fn change_members(node: Node, request: wire::ChangeMembersRequest) -> wire::ChangeMembersReply {
    use wire::change_members_request::Change;
    let change = match request.change {
        Some(Change::Add(wire::AddMember { id, client_address, peer_address })) => {
            match is_address(&client_address) && is_address(&peer_address) {
                true => Ok(MemberChange::Add(id, Address { client: client_address, peer: peer_address })),
                false => Err(Error::Invalid("add: both addresses are host:port".into())),
            }
        }
        Some(Change::Promote(id)) => Ok(MemberChange::Promote(id)),
        Some(Change::Remove(id)) => Ok(MemberChange::Remove(id)),
        Some(Change::Transfer(id)) => Ok(MemberChange::Transfer(id)),
        None => Err(Error::Invalid("the request has no change, or one of a later version".into())),
    };
    let changed = match change {
        Ok(change) => node.change_members(change).await,
        Err(error) => Err(error),
    };
    wire::ChangeMembersReply { error: changed.err().map(wire::Error::of) }
}

/// What the member is.
pub(super) fn status(node: &Node) -> wire::StatusReply {
    let status = node.handle().status();
    let options = node.options();
    let leader = node.leader(status.leader).unwrap_or_default();
    let times = node.handle().sync_times();
    let is_synced = options.durability == Durability::Fsync;
    let syncs = if is_synced { times.syncs() } else { 0 };
    let member = |(id, address): (&u64, &Address)| wire::Member {
        id: *id,
        address: address.client.clone(),
        is_voter: status.membership.voters.contains(id),
    };
    let leadership = *node.leadership().borrow();
    wire::StatusReply {
        member_id: options.id,
        cluster_id: options.group_number(),
        leader_id: leader.id,
        leader_address: leader.address,
        term: status.term,
        applied: status.applied,
        committed: status.commit,
        members: node.members().iter().map(member).collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        durability: options.durability.name().into(),
        syncs,
        sync_mean_micros: times.sum_nanos.checked_div(syncs).unwrap_or_default() / 1000,
        is_ready: leadership.leader.is_some() && (leadership.leader != Some(options.id) || leadership.is_ready_leader),
    }
}
