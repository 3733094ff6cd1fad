//! Our own dialect: many operations a frame, replies out of order. See `proto/storebench/dengine/v1.proto`.
//!
//! What waits is bounded by the number of requests without a reply, not by the size of replies: a read looks at the state only when
//! there is room to send what it finds. What a write has read is known when it is applied: a stream has few such writes on their way, and
//! long answers that no client takes are bounded at the whole member. A frame is cut into requests, and each of them is decoded when its turn comes: many small things
//! in a frame take many times its bytes once they are decoded.

mod ready;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use d_engine_client::wire::{self, request::Body};
use d_engine_client::{Error, Query, ReadLevel, ReadOptions};
use prost::Message;
use service_kit::grpc::{self, Code, Requests, Responses, Status};
use tokio::time::timeout;

use ready::{Done, Ready, SHORT_BYTES};

use super::fields::{self, Fields};
use super::{MAJORITY_TIMEOUT, PROGRESS, access, errors, gone, malformed, only};
use crate::engine::{Address, Begun, Durability, MemberChange, Node};
use crate::settings::address_of;
use crate::state::{Defragmented, answer_bytes_max, bytes_of};

/// Requests without a reply on a stream, and requests of a frame. Beyond, the client is not listened to, and the frame is refused.
const OUTSTANDING_MAX: usize = 10_000;
/// What reads without a reply hold in memory, bytes: beyond, no other request is begun.
const READS_BYTES_MAX: usize = 16 << 20;
/// What writes without a reply may have read, bytes: beyond, no other request is begun.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
/// Replies that a stream always has room for, however few there are.
const READY_ROOM: usize = 16;
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
    /// Rewrites the files of the state.
    Defragment,
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
            "Defragment" => Some(Self::Defragment),
            _ => None,
        }
    }
}

/// Understands a frame.
pub(super) fn understand(frame: &Bytes) -> Result<(), Status> {
    for request in cut(frame)? {
        match understood(&request)?.body {
            Some(Body::Write(write)) => drop(write.parse()),
            Some(Body::Read(read)) => drop(read.parse()),
            Some(Body::OpenSession(_) | Body::CloseSession(_)) | None => {}
        }
    }
    Ok(())
}

/// The requests of a frame, not decoded. They share its memory.
fn cut(frame: &Bytes) -> Result<VecDeque<Bytes>, Status> {
    let mut requests = VecDeque::new();
    for field in Fields::of(frame) {
        // Its only field.
        if let (1, content) = field.map_err(malformed)? {
            let content = content.ok_or_else(|| malformed("requests are messages"))?;
            if requests.len() == OUTSTANDING_MAX {
                let text = format!("a frame has more than {OUTSTANDING_MAX} requests: send several frames");
                return Err(Status::new(Code::InvalidArgument, text));
            }
            requests.push_back(frame.slice_ref(content));
        }
    }
    Ok(requests)
}

/// Decodes a request. What it says shares no memory with others of its frame, if it stays after this request was begun.
fn understood(request: &Bytes) -> Result<wire::Request, Status> {
    // Fields of `Request`, and of `Read`: several of the same number are one message.
    const WRITE: u32 = 2;
    const READ: u32 = 3;
    const GET_MANY: u32 = 7;
    fields::bound(request, &[WRITE])?;
    fields::bound(request, &[READ, GET_MANY])?;
    let is_read = Fields::of(request).any(|field| matches!(field, Ok((READ, _))));
    let request = if is_read { Bytes::copy_from_slice(request) } else { request.clone() };
    wire::Request::decode(request).map_err(malformed)
}

/// What a read holds while it waits, bytes.
fn held_by(query: &Query) -> usize {
    let length = |key: &Option<Bytes>| key.as_ref().map_or(0, Bytes::len);
    let held = match query {
        Query::Get(key) => key.len(),
        Query::GetMany(keys) => keys.iter().map(|key| size_of::<Bytes>() + key.len()).sum(),
        Query::Scan(scan) => scan.start.len() + length(&scan.end) + length(&scan.after),
    };
    size_of::<Ready>() + held
}

/// Serves a stream of operations.
///
/// A client that takes no reply for longer than `patience` is not served any more: it holds room that others need.
pub(super) async fn operate(
    node: Node,
    mut requests: Requests,
    responses: Responses,
    patience: Duration,
) -> Result<(), Status> {
    responses.open().map_err(gone)?;
    let done = Arc::new(Done::default());
    let (mut outstanding, mut is_over) = (Outstanding::default(), false);
    let (mut frame, mut begun, mut ready) = (VecDeque::new(), Begun::default(), Vec::new());
    let mut ending = pin!(node.ending());
    let mut forgotten = pin!(node.forgotten());
    loop {
        done.take(&mut ready);
        if !ready.is_empty() {
            send(&node, &mut ready, &done, (&responses, patience), &mut outstanding).await?;
            ready.shrink_to(READY_ROOM);
            continue;
        }
        while outstanding.has_room()
            && let Some(request) = frame.pop_front()
        {
            begin(&node, understood(&request)?, &done, &mut begun, &mut outstanding);
        }
        node.submit(&mut begun);
        if is_over && frame.is_empty() && outstanding.requests == 0 {
            return Ok(());
        }
        if !node.is_asked_by_somebody() {
            return Err(access::nobody());
        }
        tokio::select! {
            biased;
            () = done.wake.notified() => {}
            () = &mut forgotten => return Err(access::nobody()),
            // A member that ends answers what it was asked, and lets the client go to another.
            () = &mut ending, if !is_over => is_over = true,
            next = requests.next(), if !is_over && frame.is_empty() && outstanding.has_room() => match next? {
                None => is_over = true,
                Some(next) => frame = cut(&next)?,
            }
        }
    }
}

/// What was begun and has no reply.
#[derive(Default)]
struct Outstanding {
    requests: usize,
    /// What the reads among them hold.
    reads_bytes: usize,
    /// What the writes among them may have read.
    answers_bytes: usize,
}

impl Outstanding {
    fn has_room(&self) -> bool {
        self.requests < OUTSTANDING_MAX && self.reads_bytes < READS_BYTES_MAX && self.answers_bytes < ANSWERS_BYTES_MAX
    }
}

/// Begins a request; it ends by one [`Ready`].
fn begin(
    node: &Node,
    wire::Request { id, body }: wire::Request,
    done: &Arc<Done>,
    begun: &mut Begun,
    outstanding: &mut Outstanding,
) {
    outstanding.requests += 1;
    let done = Arc::clone(done);
    // Who writes is told where that is quicker.
    let leader = || node.leader_elsewhere().map(|leader| leader.address).unwrap_or_default();
    match body {
        Some(Body::Write(write)) => match write.parse() {
            Ok((transaction, stamp)) => {
                let (leader, room) = (leader(), node.room_for_answers());
                let answer_bytes = answer_bytes_max(&transaction);
                outstanding.answers_bytes += answer_bytes;
                node.write_then(begun, transaction, stamp, move |written| {
                    let reply = wire::Reply::of_write(id, written).forwarded_to(leader);
                    done.push_later(Ready::written(reply, answer_bytes, room))
                });
            }
            Err(error) => done.push(Ready::Reply(wire::Reply::of_error(id, error))),
        },
        Some(Body::Read(read)) => match read.parse() {
            Ok((query, options)) => {
                let held = held_by(&query);
                let mut room = (held > SHORT_BYTES).then(|| node.room_for_reads());
                if room.as_mut().is_some_and(|room| !room.grow(held)) {
                    return done.push(Ready::Reply(wire::Reply::of_error(id, Error::Busy)));
                }
                outstanding.reads_bytes += held;
                node.read_then(options, move |ticket| done.push(Ready::Look { id, query, options, ticket, room }));
            }
            Err(error) => done.push(Ready::Reply(wire::Reply::of_error(id, error))),
        },
        Some(Body::OpenSession(wire::OpenSession {})) => {
            let leader = leader();
            node.session_then(begun, None, move |opened| {
                done.push_later(Ready::Reply(wire::Reply::of_session(id, None, opened).forwarded_to(leader)))
            });
        }
        Some(Body::CloseSession(wire::CloseSession { session })) => {
            node.session_then(begun, Some(session), move |closed| {
                done.push_later(Ready::Reply(wire::Reply::of_session(id, Some(session), closed)))
            });
        }
        None => {
            let error = Error::Invalid("the request is empty, or of a later version of the protocol".into());
            done.push(Ready::Reply(wire::Reply::of_error(id, error)));
        }
    }
}

/// Sends what is ready, which is outstanding no more.
async fn send(
    node: &Node,
    ready: &mut Vec<Ready>,
    done: &Arc<Done>,
    (responses, patience): (&Responses, Duration),
    outstanding: &mut Outstanding,
) -> Result<(), Status> {
    let late = |_| Status::new(Code::DeadlineExceeded, format!("no reply was taken within {patience:?}: ask again"));
    let send = async |frame: &wire::Replies| {
        let sent = timeout(patience, responses.send_counted(grpc::encode(frame))).await;
        sent.map_err(late)?
    };
    let (mut bytes, mut rooms) = (0, Vec::new());
    let mut frame = wire::Replies { replies: Vec::with_capacity(ready.len()) };
    for ready in ready.drain(..) {
        let reply = match ready {
            Ready::Reply(reply) => reply,
            Ready::Written { reply, answer_bytes, room } => {
                outstanding.answers_bytes -= answer_bytes;
                rooms.extend(room);
                reply
            }
            Ready::Look { id, query, options, ticket, room } => {
                let held = held_by(&query);
                let looked = match &ticket {
                    Err(error) => Some(Err(error.clone())),
                    Ok(ticket) => node.look_with(&query, *ticket).await,
                };
                let is_much = matches!(&looked, Some(Ok(seen)) if bytes_of(&seen.value.items) > SHORT_BYTES);
                let looked = match &ticket {
                    // What the client has not taken is enough: this is looked at again when it has, and not kept.
                    Ok(ticket) if is_much && !responses.is_turn() => {
                        drop(looked);
                        if !frame.replies.is_empty() {
                            send(&std::mem::take(&mut frame)).await?;
                            rooms.clear();
                            bytes = 0;
                        }
                        timeout(patience, responses.turn()).await.map_err(late)?;
                        node.look_with(&query, *ticket).await
                    }
                    _ => looked,
                };
                let Some(seen) = looked else {
                    // The lease is over: a round will tell.
                    let options = ReadOptions { level: ReadLevel::Linearizable, ..options };
                    let done = Arc::clone(done);
                    node.read_then(options, move |ticket| done.push(Ready::Look { id, query, options, ticket, room }));
                    continue;
                };
                drop(room);
                outstanding.reads_bytes -= held;
                wire::Reply::of_read(id, seen)
            }
        };
        outstanding.requests -= 1;
        bytes += reply.encoded_len();
        frame.replies.push(reply);
        if bytes >= FRAME_BYTES {
            send(&std::mem::take(&mut frame)).await?;
            rooms.clear();
            bytes = 0;
        }
    }
    if !frame.replies.is_empty() {
        send(&frame).await?;
    }
    Ok(())
}

/// Serves a watch. Its first frame, often without events, says that nothing is missed from here on; where nothing happens to what is watched, others
/// say from time to time how far the log has come since.
pub(super) async fn watch(node: Node, requests: Requests, responses: Responses) -> Result<(), Status> {
    let request: wire::WatchRequest = only(requests).await?;
    let ended = |error| wire::Events { error: Some(wire::Error::of(error)), ..wire::Events::default() };
    let mut watching = match node.watch_now(request.parse()) {
        Ok(watching) => watching,
        Err(error) => return responses.send(grpc::encode(&ended(error))).await.map_err(gone),
    };
    let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    let mut is_due = true;
    loop {
        responses.turn().await;
        let step = match watching.step() {
            Ok(step) => step,
            Err(error) => return responses.send(grpc::encode(&ended(error))).await.map_err(gone),
        };
        if is_due || !step.events.is_empty() {
            is_due = false;
            let events = step.events.into_iter().map(wire::Event::of).collect();
            let frame = wire::Events { events, index: step.index, error: None };
            responses.send_counted(grpc::encode(&frame)).await?;
        }
        if step.has_more {
            continue;
        }
        tokio::select! {
            changed = watching.changed() => if changed.is_err() {
                return responses.send(grpc::encode(&ended(Error::Stopped))).await.map_err(gone);
            },
            _ = progress.tick() => is_due = true,
        }
    }
}

/// Changes the members; what is wrong is in the answer.
pub(super) async fn change_members(
    node: Node,
    request: wire::ChangeMembersRequest,
) -> Result<wire::ChangeMembersReply, Status> {
    use wire::change_members_request::Change;
    let change = match request.change {
        Some(Change::Add(wire::AddMember { id, client_address, peer_address })) => {
            match address_of(&client_address, Some(&peer_address)) {
                Ok(address) => Ok(MemberChange::Add(id, address)),
                Err(mistake) => Err(Error::Invalid(format!("add: {mistake}"))),
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
    match changed {
        Err(error @ Error::Denied(_)) => Err(errors::status(error)),
        changed => Ok(wire::ChangeMembersReply { error: changed.err().map(wire::Error::of) }),
    }
}

/// Rewrites the files of the member's state.
pub(super) async fn defragment(node: Node) -> wire::DefragmentReply {
    match node.defragment().await {
        Ok(Defragmented { before_bytes, after_bytes }) => {
            wire::DefragmentReply { error: None, before_bytes, after_bytes }
        }
        Err(error) => wire::DefragmentReply { error: Some(wire::Error::of(error)), ..Default::default() },
    }
}

/// What the member is.
pub(super) async fn status(node: &Node) -> wire::StatusReply {
    let knows_leader = node.leadership().borrow().leader.is_some();
    let is_ready = knows_leader && matches!(timeout(MAJORITY_TIMEOUT, node.is_ready()).await, Ok(Ok(())));
    let (status, durability) = (node.status(), node.durability());
    let leader = node.leader(status.leader).unwrap_or_default();
    let times = node.sync_times();
    let is_synced = durability == Durability::Fsync;
    let syncs = if is_synced { times.syncs() } else { 0 };
    let member = |(id, address): (&u64, &Address)| wire::Member {
        id: *id,
        address: address.client.clone(),
        is_voter: status.membership.voters.contains(id),
    };
    wire::StatusReply {
        member_id: node.id(),
        cluster_id: node.group().number,
        leader_id: leader.id,
        leader_address: leader.address,
        term: status.term,
        applied: status.applied,
        committed: status.commit,
        members: node.members().iter().map(member).collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        durability: durability.name().into(),
        syncs,
        sync_mean_micros: times.sum_nanos.checked_div(syncs).unwrap_or_default() / 1000,
        sync_sum_micros: if is_synced { times.sum_nanos / 1000 } else { 0 },
        is_ready,
    }
}

#[cfg(test)]
mod tests {
    use d_engine_client::{Applied, KeyValue, Operation, OperationResult, Transaction, Written};

    use super::*;

    fn frame_of(requests: usize, request: &[u8]) -> Bytes {
        let mut frame = Vec::new();
        for _ in 0..requests {
            frame.push(1 << 3 | 2);
            prost::encoding::encode_varint(request.len() as u64, &mut frame);
            frame.extend_from_slice(request);
        }
        frame.into()
    }

    /// Eight mebibytes of them would take hundreds of mebibytes.
    #[test]
    fn a_frame_of_very_many_empty_requests_is_refused_before_it_is_decoded() {
        assert_eq!(cut(&frame_of(10_000, &[])).unwrap().len(), 10_000);
        let refused = cut(&frame_of(4 << 20, &[])).unwrap_err();
        assert_eq!((refused.code, refused.message.contains("more than 10000 requests")), (Code::InvalidArgument, true));
    }

    #[test]
    fn a_request_of_very_many_small_things_is_refused_before_it_is_decoded() {
        let of = |field: u8, items: &[u8]| {
            let mut request = vec![field << 3 | 2];
            prost::encoding::encode_varint(items.len() as u64, &mut request);
            request.extend_from_slice(items);
            Bytes::from(request)
        };
        let items = |field: u8, count| [field << 3 | 2, 0].repeat(count);
        let write = |compares, operations| of(2, &[items(1, compares), items(2, operations)].concat());
        let read = |keys| of(3, &of(7, &items(1, keys)));
        // Twice the same field is one message.
        let twice = |request: Bytes| Bytes::from([&request[..], &request].concat());
        for taken in [write(4_000, 6_000), read(10_000), twice(write(0, 5_000))] {
            assert!(understood(&taken).is_ok());
        }
        for refused in [write(4_001, 6_000), read(10_001), twice(write(0, 5_001)), twice(read(6_000))] {
            assert_eq!(understood(&refused).map_err(|refused| refused.code), Err(Code::InvalidArgument));
        }
    }

    #[test]
    fn long_answers_that_clients_do_not_take_have_a_bound_and_short_ones_are_always_given() {
        let memory = service_kit::grpc::Memory::new(10_000);
        let reply = |bytes: usize| {
            let value = vec![0; bytes].into();
            let got = KeyValue { key: "k".into(), value, revision: 1, expires_millis: 0, lease: 0 };
            let applied = Applied { succeeded: true, results: vec![OperationResult::Got(Some(got))] };
            wire::Reply::of_write(7, Ok(Written { revision: 3, term: 1, applied }))
        };
        let written = |bytes| Ready::written(reply(bytes), 1, memory.room());
        let outcome = |ready: &Ready| match ready {
            Ready::Written { reply, .. } => reply.clone().into_written().map(drop),
            _ => panic!("it was a write"),
        };
        let first = written(6_000);
        assert_eq!(outcome(&first), Ok(()));
        let refused = outcome(&written(6_000)).unwrap_err();
        assert!(
            matches!(&refused, Error::UnknownOutcome(text) if text.contains("in a session, ask again")),
            "{refused}"
        );
        assert_eq!(outcome(&written(1_000)), Ok(()));
        drop(first);
        assert_eq!(outcome(&written(6_000)), Ok(()));
    }

    #[test]
    fn few_writes_that_may_read_much_are_on_their_way_at_a_time() {
        let get = Operation::Get { key: "k".into() };
        let much = Transaction { then: vec![get; 4], ..Transaction::default() };
        let mut outstanding = Outstanding::default();
        while outstanding.has_room() {
            outstanding.requests += 1;
            outstanding.answers_bytes += answer_bytes_max(&much);
        }
        assert_eq!(outstanding.requests, 16);
        assert_eq!(answer_bytes_max(&Transaction::put("k", "v")), 0);
    }

    #[test]
    fn a_read_that_waits_keeps_nothing_of_its_frame() {
        let read = wire::Request {
            id: 1,
            body: Some(Body::Read(wire::Read::of(Query::Get("k".into()), ReadOptions::default()))),
        };
        let frame = [&frame_of(1, &read.encode_to_vec())[..], &[2 << 3 | 2, 100], &[0; 100]].concat();
        let frame = Bytes::from(frame);
        let request = cut(&frame).unwrap().remove(0).unwrap();
        let Some(Body::Read(read)) = understood(&request).unwrap().body else { panic!("it is a read") };
        let (query, _) = read.parse().unwrap();
        drop(request);
        assert_eq!(query, Query::Get("k".into()));
        assert!(frame.is_unique());
    }
}
