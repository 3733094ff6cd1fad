//! Tries out what of the etcd v3 API a store serves: each kind of request once.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use service_kit::client::{StreamReceiver, StreamSender};
use tokio::time::timeout;

use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::family::check::tried;
use crate::net::etcd::messages::{
    Compare, DeleteRangeRequest, EVENT_PUT, LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse, compare, path, request_op, watch_request,
};
use crate::net::etcd::store::{Store, revision_of};
use crate::net::grpc::connect;

/// For everything together.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// What is tried on etcd, in this order.
const ETCD: [&str; 7] = ["Put", "Range", "Txn", "Watch", "LeaseGrant", "LeaseRevoke", "DeleteRange"];

/// Tries everything out on a key that nobody else has, within 5 s.
pub fn surface(store: SocketAddr, key: &str) -> Vec<Check> {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ETCD.map(|name| tried(name, Err(Failure::io("start", &error)))).into(),
    };
    let checks = RefCell::new(Vec::with_capacity(ETCD.len()));
    let ended = runtime.block_on(async { timeout(TIME_LIMIT, try_out(store, key, &checks)).await });
    let why_not = match ended {
        Ok(Err(failure)) => failure,
        Ok(Ok(())) => Failure::new("not tried"),
        Err(_) => Failure::new(format_args!("no answer within {TIME_LIMIT:?}")),
    };
    let mut checks = checks.into_inner();
    let not_tried = ETCD.iter().skip(checks.len()).map(|name| tried(name, Err(why_not.clone())));
    checks.extend(not_tried.collect::<Vec<_>>());
    checks
}

/// Adds one check for each of [`ETCD`], in order. Errors: the store cannot be reached at all.
async fn try_out(address: SocketAddr, key: &str, checks: &RefCell<Vec<Check>>) -> Result<(), Failure> {
    let address = address.to_string();
    let channel = connect(&address, TIME_LIMIT).await?;
    let mut store = Store::new(&channel, &address);
    let note = |outcome: Result<String, Failure>| {
        let mut checks = checks.borrow_mut();
        let name = ETCD[checks.len()];
        checks.push(tried(name, outcome));
    };
    let put = put(&mut store, key).await;
    let revision = put.clone().unwrap_or_default();
    note(put.map(|revision| format!("revision {revision}")));
    note(range(&mut store, key).await);
    note(transact(&mut store, key).await);
    note(watch(&mut store, key, revision).await);
    let granted = grant(&mut store).await;
    let lease = granted.clone().unwrap_or_default();
    note(granted.map(|lease| format!("lease {lease}")));
    note(revoke(&mut store, lease).await);
    note(delete(&mut store, key).await);
    Ok(())
}

async fn put(store: &mut Store, key: &str) -> Result<i64, Failure> {
    let answer = store.put(&PutRequest { key: key.into(), value: b"probe".into() }).await?;
    match revision_of(answer.header.as_ref()) {
        0 => Err(Failure::new("the answer has no revision")),
        revision => Ok(revision),
    }
}

/// Linearizable.
async fn range(store: &mut Store, key: &str) -> Result<String, Failure> {
    let found = store.range(&RangeRequest { key: key.into(), ..RangeRequest::default() }).await?;
    match found.kvs.as_slice() {
        [pair] if pair.value == b"probe"[..] => Ok("the value that was put".into()),
        found => Err(Failure::new(format_args!("expected the value that was put, found {} keys", found.len()))),
    }
}

/// A condition that holds, and a put.
async fn transact(store: &mut Store, key: &str) -> Result<String, Failure> {
    let is_first = Compare {
        result: compare::EQUAL,
        target: compare::VERSION,
        key: key.into(),
        target_union: Some(compare::TargetUnion::Version(1)),
    };
    let put = request_op::Request::Put(PutRequest { key: key.into(), value: b"again".into() });
    let request = TxnRequest { compare: vec![is_first], success: vec![RequestOp { request: Some(put) }] };
    let answer = store.transact(&request).await?;
    match answer.succeeded && answer.responses.len() == 1 {
        true => Ok("the condition held".into()),
        false => Err(Failure::new("expected the condition to hold and one answer")),
    }
}

/// From the first put on: its event must come.
async fn watch(store: &mut Store, key: &str, revision: i64) -> Result<String, Failure> {
    let create = WatchCreateRequest { key: key.into(), start_revision: revision, ..WatchCreateRequest::default() };
    let create = WatchRequest { request: Some(watch_request::Request::Create(create)) };
    let opened = store.stream::<_, WatchResponse>(path::WATCH, &create).await?;
    let (_sender, mut receiver): (StreamSender<WatchRequest>, StreamReceiver<WatchResponse>) = opened;
    loop {
        let told = receiver.next().await.map_err(|error| store.failure("Watch", &error))?;
        let Some(told) = told.filter(|told| !told.canceled) else {
            return Err(Failure::new("the store ended the watch"));
        };
        let Some(event) = told.events.first() else { continue };
        let value = event.kv.as_ref().map(|pair| pair.value.clone()).unwrap_or_default();
        return match event.kind == EVENT_PUT && value == b"probe"[..] {
            true => Ok("told of the put".into()),
            false => Err(Failure::new("told of something else than the put")),
        };
    }
}

async fn grant(store: &mut Store) -> Result<i64, Failure> {
    let granted = store.grant(&LeaseGrantRequest { ttl: 60 }).await?;
    match granted.id != 0 && granted.error.is_empty() {
        true => Ok(granted.id),
        false => Err(Failure::new(format_args!("not granted: {:?}", granted.error))),
    }
}

async fn revoke(store: &mut Store, lease: i64) -> Result<String, Failure> {
    match lease {
        0 => Err(Failure::new("there is no lease to revoke")),
        id => store.revoke(&LeaseRevokeRequest { id }).await.map(|_| "revoked".into()),
    }
}

async fn delete(store: &mut Store, key: &str) -> Result<String, Failure> {
    let answer = store.delete(&DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() }).await?;
    match answer.deleted {
        1 => Ok("1 key".into()),
        deleted => Err(Failure::new(format_args!("expected 1 key, found {deleted}"))),
    }
}
