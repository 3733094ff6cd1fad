//! Before the load: nothing under the prefix, then the keys that the load reads or deletes.

use std::time::Instant;

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::load::session::Session;
use crate::net::etcd::messages::{DeleteRangeRequest, PutRequest, RangeRequest};
use crate::net::etcd::store::{Store, revision_of};

/// Keys deleted at once: a store may hold millions from an earlier workload, and a single deletion of all would stall it
/// beyond any timeout.
const CLEAR_KEYS: i64 = 5_000;

/// Deletes whatever is under the prefix between this process's borders. The store's revision after that.
///
/// A key's counter starts at 1 with its creation, so this is what makes counters comparable with the puts of this
/// workload. On a fresh store it is one read.
pub async fn clear((start, end): &(Vec<u8>, Vec<u8>), store: &mut Store, session: &Session) -> Result<i64, Failure> {
    loop {
        let mut batch = session.begin(1);
        let page = RangeRequest {
            key: start.clone(),
            range_end: end.clone(),
            limit: CLEAR_KEYS,
            keys_only: true,
            ..RangeRequest::default()
        };
        let found = store.range(&page).await?;
        session.answered_uncounted(&mut batch, 1);
        let Some(last) = found.kvs.last() else {
            let revision = revision_of(found.header.as_ref());
            return match revision > 0 {
                true => Ok(revision),
                false => Err(Failure::new("Range: the answer has no revision")),
            };
        };
        let mut batch = session.begin(1);
        let request = DeleteRangeRequest { key: start.clone(), range_end: key_after(&last.key) };
        let deleted = store.delete(&request).await?.deleted;
        session.answered_uncounted(&mut batch, 1);
        if deleted < found.kvs.len() as i64 {
            let text = format!("DeleteRange found {deleted} of {} keys that Range had found", found.kvs.len());
            return Err(Failure::new(text));
        }
    }
}

/// Writes each key that the client owns once.
pub async fn fill(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let mut request = PutRequest::default();
    for slot in etcd.keys.owned_slots(session.place()) {
        let mut batch = session.begin(1);
        let version = etcd.fill_put(&mut request, slot);
        let answer = store.put(&request).await?;
        session.answered(&mut batch, 1, Instant::now());
        etcd.ledger.acknowledge(slot, version);
        etcd.written(session, slot, revision_of(answer.header.as_ref()));
    }
    Ok(())
}

/// The first key after `key`.
pub fn key_after(key: &[u8]) -> Vec<u8> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}

impl Etcd {
    /// Makes the request that writes the next version of the key in `slot`; that version's number.
    pub(super) fn fill_put(&self, request: &mut PutRequest, slot: u32) -> u32 {
        let (key, version) = (self.keys.key(slot), self.ledger.issue(slot));
        request.key.clear();
        self.names.write(key, &mut request.key);
        request.value.clear();
        self.values.write(key, version, &mut request.value);
        version
    }

    /// Makes the request name the key in `slot`.
    pub(super) fn fill_key(&self, name: &mut Vec<u8>, slot: u32) {
        name.clear();
        self.names.write(self.keys.key(slot), name);
    }
}
