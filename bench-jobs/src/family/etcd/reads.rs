//! Load that reads: single keys, alone or mixed with puts, and prefixes.

use std::time::Instant;

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::load::session::Session;
use crate::net::etcd::messages::{PutRequest, RangeRequest};
use crate::net::etcd::store::{Store, revision_of};

/// Reads and puts of single keys: `read_percent` of 100 requests read.
pub async fn mixed(etcd: &Etcd, store: &mut Store, session: &Session, read_percent: u32) -> Result<(), Failure> {
    let parameters = &etcd.plan.parameters;
    if etcd.plan.is_serializable() {
        catch_up(etcd, store, session).await?;
    }
    let mut picker = etcd.picker(session);
    let mut put = PutRequest::default();
    let mut range = RangeRequest {
        serializable: etcd.plan.is_serializable(),
        count_only: parameters.count_only,
        keys_only: parameters.keys_only,
        ..RangeRequest::default()
    };
    while let Some(mut batch) = session.next().await {
        if read_percent == 100 || picker.is_read(read_percent) {
            let slot = picker.slot_to_read();
            etcd.fill_key(&mut range.key, slot);
            // A stale answer is allowed to be any version that was ever acknowledged; the first was before the load.
            let floor = if range.serializable { 1 } else { etcd.ledger.floor(slot) };
            let answer = store.range(&range).await?;
            session.answered(&mut batch, 1, Instant::now());
            match etcd.check_key(slot, floor, &range, &answer) {
                Ok(()) => session.verified(1),
                Err(detail) => session.wrong(etcd.name_of(slot), detail),
            }
        } else {
            let slot = picker.slot_to_write();
            let version = etcd.fill_put(&mut put, slot);
            let answer = store.put(&put).await?;
            session.answered(&mut batch, 1, Instant::now());
            etcd.ledger.acknowledge(slot, version);
            etcd.written(session, slot, revision_of(answer.header.as_ref()));
        }
    }
    Ok(())
}

/// Reads of all keys under the prefix, up to `limit`. Nobody writes meanwhile, so every answer is known beforehand.
pub async fn prefix(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let parameters = &etcd.plan.parameters;
    if etcd.plan.is_serializable() {
        catch_up(etcd, store, session).await?;
    }
    let request = RangeRequest {
        key: etcd.plan.prefix.first.clone().into(),
        range_end: etcd.plan.prefix.end.clone().into(),
        limit: parameters.limit.map_or(0, i64::from),
        serializable: etcd.plan.is_serializable(),
        count_only: parameters.count_only,
        keys_only: parameters.keys_only,
        ..RangeRequest::default()
    };
    while let Some(mut batch) = session.next().await {
        let answer = store.range(&request).await?;
        session.answered(&mut batch, 1, Instant::now());
        match etcd.check_prefix(&request, &answer) {
            Ok(()) => session.verified(1),
            Err((key, detail)) => session.wrong(key, detail),
        }
    }
    Ok(())
}

/// A linearizable read, not counted. Once a member has answered it, the member has applied everything that was
/// acknowledged before, so that its serializable answers must know every key from then on.
async fn catch_up(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let request = RangeRequest { key: etcd.plan.prefix.first.clone().into(), ..RangeRequest::default() };
    let mut batch = session.begin(1);
    store.range(&request).await?;
    session.answered_uncounted(&mut batch, 1);
    Ok(())
}
