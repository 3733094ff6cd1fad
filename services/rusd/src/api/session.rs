//! What locks and elections stand on: a key for each who waits, under a common prefix, hanging on its lease; whose is the oldest has
//! won. From etcd's `client/v3/concurrency/{session,key}.go`, which the server uses as well.

use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Code, Service, Status, Unary, decode};

use crate::api::{Api, Method, kv};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::mvccpb::event::EventType;
use crate::proto::mvccpb::{Event, KeyValue};
use crate::store::Error;
use crate::store::command::Kind;
use crate::watches::Watching;

/// Of a lease that is granted to who brings none, in seconds.
const TTL_SECONDS: i64 = 60;

/// A client's own call, made on its behalf.
#[derive(Clone)]
pub(super) struct Session {
    api: Api,
    call: grpc::Caller,
}

/// An error that etcd's own client makes.
pub(super) fn unknown(message: &'static str) -> Status {
    Status::new(Code::Unknown, message)
}

impl Api {
    /// Calls of this client's.
    pub(super) fn session(&self, call: &grpc::Caller) -> Session {
        Session { api: self.clone(), call: call.clone() }
    }
}

impl Session {
    /// Calls a method as the client itself would. Errors lose their code, as in etcd, which makes these calls with its own client.
    pub async fn ask<M: Message + Default>(&self, method: Method, request: &impl Message) -> Result<M, Status> {
        let answer = match self.api.unary(method, self.call.clone(), request.encode_to_vec().into()) {
            Unary::Now(answer) => answer,
            Unary::Later(answer) => answer.await,
        };
        let answer = answer.map_err(|error| Status { code: Code::Unknown, ..error })?;
        decode(grpc::content(answer))
    }

    /// The lease to use: a new one for 0.
    pub async fn lease(&self, id: i64) -> Result<i64, Status> {
        if id != 0 {
            return Ok(id);
        }
        let grant = pb::LeaseGrantRequest { ttl: TTL_SECONDS, id: 0 };
        self.ask(Method::LeaseGrant, &grant).await.map(|granted: pb::LeaseGrantResponse| granted.id)
    }

    /// Waits until no key under the prefix is left that was created up to this revision.
    pub async fn wait_for_older(&self, prefix: &Bytes, create_revision_max: i64) -> Result<(), Status> {
        loop {
            let range = pb::RangeRequest {
                max_create_revision: create_revision_max,
                sort_order: SortOrder::Descend as i32,
                ..one_by_creation(prefix)
            };
            let found: pb::RangeResponse = self.ask(Method::Range, &range).await?;
            let Some(last) = found.kvs.first() else { return Ok(()) };
            let revision = kv::header_of_store(found.header)?.revision;
            let mut watch = self.watch(last.key.clone(), Bytes::new(), revision);
            while !watch.next().await?.iter().any(is_delete) {}
        }
    }

    /// The events of keys from a revision on.
    pub fn watch(&self, key: Bytes, range_end: Bytes, start_revision: i64) -> Events {
        let watching = self.api.watches.open();
        let request = pb::WatchCreateRequest { key, range_end, start_revision, ..Default::default() };
        watching.ask(|hub, id| hub.create(id, &request));
        Events(watching)
    }

    /// Deletes a key of this client if it was created at this revision, even when nobody waits any more.
    pub fn withdraw(&self, key: &Bytes, create_revision: i64) {
        let node = &self.api.node;
        let Ok(caller) = node.caller(&self.call, &node.reader.view()) else { return };
        let withdrawn = node.propose(&caller, Kind::Txn, &withdrawal(key, create_revision).encode_to_vec());
        // If it fails, the key goes with its lease.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(withdrawn.await) });
        }
    }
}

/// The events of a watch.
pub(super) struct Events(Watching);

impl Events {
    /// The next ones.
    pub async fn next(&mut self) -> Result<Vec<Event>, Status> {
        loop {
            while let Some(response) = self.0.next() {
                if response.compact_revision != 0 {
                    return Err(Error::Compacted.into());
                }
                if response.canceled {
                    return Err(unknown("lost watcher waiting for delete"));
                }
                if !response.events.is_empty() {
                    return Ok(response.message().events);
                }
            }
            self.0.ready().await;
        }
    }
}

/// Deletes the key of one who waited and has gone, unless told to keep it.
pub(super) struct Place {
    session: Session,
    key: Bytes,
    create_revision: i64,
    is_kept: bool,
}

impl Place {
    pub fn new(session: &Session, key: &Bytes, create_revision: i64) -> Self {
        Self { session: session.clone(), key: key.clone(), create_revision, is_kept: false }
    }

    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            self.session.withdraw(&self.key, self.create_revision);
        }
    }
}

pub(super) fn is_delete(event: &Event) -> bool {
    event.r#type == EventType::Delete as i32
}

/// `NAME/`.
pub(super) fn prefix_of(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// `NAME/LEASE` in hexadecimal digits: negative numbers as Go writes them.
pub(super) fn key_of(prefix: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    [prefix, format!("{sign}{:x}", lease.unsigned_abs()).as_bytes()].concat().into()
}

/// Behind all keys that begin like this.
pub(super) fn end_of(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        Some(last) => [&prefix[..last], &[prefix[last] + 1]].concat().into(),
        None => Bytes::from_static(&[0]),
    }
}

/// Of the keys under a prefix the one that was created first.
pub(super) fn one_by_creation(prefix: &Bytes) -> pb::RangeRequest {
    pb::RangeRequest {
        key: prefix.clone(),
        range_end: end_of(prefix),
        limit: 1,
        sort_target: SortTarget::Create as i32,
        sort_order: SortOrder::Ascend as i32,
        ..Default::default()
    }
}

pub(super) fn range_of(key: &Bytes) -> pb::RangeRequest {
    pb::RangeRequest { key: key.clone(), ..Default::default() }
}

pub(super) fn delete_of(key: &Bytes) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key.clone(), ..Default::default() }
}

pub(super) fn put_of(key: &Bytes, value: Bytes, lease: i64) -> pb::PutRequest {
    pb::PutRequest { key: key.clone(), value, lease, ..Default::default() }
}

pub(super) fn operation(request: Operation) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

/// A key was created at this revision; for 0, there is none.
pub(super) fn created_at(key: &Bytes, create_revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.clone(),
        range_end: Bytes::new(),
        target_union: Some(TargetUnion::CreateRevision(create_revision)),
    }
}

/// Deletes a key if it was created at this revision.
pub(super) fn withdrawal(key: &Bytes, create_revision: i64) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: vec![created_at(key, create_revision)],
        success: vec![operation(Operation::RequestDeleteRange(delete_of(key)))],
        failure: Vec::new(),
    }
}

/// What the n-th operation of a transaction read.
pub(super) fn read_by(response: &pb::TxnResponse, number: usize) -> Option<&KeyValue> {
    match response.responses.get(number)?.response.as_ref()? {
        pb::response_op::Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_those_who_wait_are_named_as_etcd_names_them() {
        assert_eq!(key_of(&prefix_of(b"lock"), 0x694d_1234), "lock/694d1234");
        assert_eq!(key_of(b"", -1), "-1");
        assert_eq!(end_of(b"lock/"), "lock0");
        assert_eq!(end_of(b"a\xff"), "b");
        assert_eq!(end_of(b"\xff\xff"), "\0");
    }
}
