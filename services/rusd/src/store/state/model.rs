//! Puts, deletions, transactions and leases as one would explain them: a map that is copied for every transaction.

use std::collections::{BTreeMap, BTreeSet};

use super::super::error::Error;
use super::super::keys::Keys;
use super::pb;
use crate::proto::etcdserverpb::compare::TargetUnion;
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::etcdserverpb::response_op::Response as Answer;
use crate::proto::mvccpb::KeyValue;

type Map = BTreeMap<Vec<u8>, KeyValue>;

#[derive(Clone, Debug)]
pub struct Model {
    pub now: Map,
    pub revision: i64,
    pub leases: BTreeSet<i64>,
}

impl Default for Model {
    fn default() -> Self {
        Self { now: Map::new(), revision: 1, leases: BTreeSet::new() }
    }
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

impl Model {
    /// One transaction: whole or not at all, with one revision.
    pub fn txn(&mut self, txn: &pb::TxnRequest) -> Result<pb::TxnResponse, Error> {
        let mut next = self.clone();
        let mut changed = false;
        let mut response = next.run(self, txn, &mut changed)?;
        next.revision = self.revision + i64::from(changed);
        response.header = header(next.revision);
        *self = next;
        Ok(response)
    }

    fn run(&mut self, before: &Self, txn: &pb::TxnRequest, changed: &mut bool) -> Result<pb::TxnResponse, Error> {
        let succeeded = txn.compare.iter().all(|compare| before.holds(compare));
        let mut responses = Vec::new();
        for operation in if succeeded { &txn.success } else { &txn.failure } {
            let response = match operation.request.as_ref().unwrap() {
                Operation::RequestRange(request) => {
                    let mut response = self.range(request);
                    response.header = header(before.revision + i64::from(*changed));
                    Answer::ResponseRange(response)
                }
                Operation::RequestPut(put) => Answer::ResponsePut(self.put(before, put, changed)?),
                Operation::RequestDeleteRange(delete) => {
                    Answer::ResponseDeleteRange(self.delete(before, delete, changed))
                }
                Operation::RequestTxn(nested) => Answer::ResponseTxn(self.run(before, nested, changed)?),
            };
            responses.push(pb::ResponseOp { response: Some(response) });
        }
        Ok(pb::TxnResponse { header: Some(pb::ResponseHeader::default()), succeeded, responses })
    }

    fn put(&mut self, before: &Self, put: &pb::PutRequest, changed: &mut bool) -> Result<pb::PutResponse, Error> {
        if put.lease != 0 && !self.leases.contains(&put.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (put.ignore_value || put.ignore_lease) && !before.now.contains_key(&put.key[..]) {
            return Err(Error::KeyNotFound);
        }
        *changed = true;
        let mod_revision = before.revision + 1;
        let old = self.now.get(&put.key[..]).cloned();
        let kept = old.clone().unwrap_or_default();
        let new = KeyValue {
            key: put.key.clone(),
            value: if put.ignore_value { kept.value } else { put.value.clone() },
            lease: if put.ignore_lease { kept.lease } else { put.lease },
            create_revision: if old.is_some() { kept.create_revision } else { mod_revision },
            mod_revision,
            version: kept.version + 1,
        };
        self.now.insert(put.key.to_vec(), new);
        Ok(pb::PutResponse { header: header(mod_revision), prev_kv: old.filter(|_| put.prev_kv) })
    }

    fn delete(
        &mut self,
        before: &Self,
        delete: &pb::DeleteRangeRequest,
        changed: &mut bool,
    ) -> pb::DeleteRangeResponse {
        let keys = Keys::new(&delete.key, &delete.range_end);
        let doomed: Vec<_> = self.now.values().filter(|kv| keys.contains(&kv.key)).cloned().collect();
        self.now.retain(|key, _| !keys.contains(key));
        *changed |= !doomed.is_empty();
        let deleted = doomed.len() as i64;
        let prev_kvs = if delete.prev_kv { doomed } else { Vec::new() };
        pb::DeleteRangeResponse { header: header(before.revision + i64::from(*changed)), deleted, prev_kvs }
    }

    pub fn revoke(&mut self, id: i64) {
        let before = self.now.len();
        self.now.retain(|_, kv| kv.lease != id);
        self.revision += i64::from(before != self.now.len());
        self.leases.remove(&id);
    }

    fn holds(&self, compare: &pb::Compare) -> bool {
        let keys = Keys::new(&compare.key, &compare.range_end);
        let mut found: Vec<_> = self.now.values().filter(|kv| keys.contains(&kv.key)).cloned().collect();
        if found.is_empty() {
            if matches!(compare.target_union, Some(TargetUnion::Value(_))) {
                return false;
            }
            found.push(KeyValue::default());
        }
        found.iter().all(|kv| {
            let ordering = match compare.target_union.as_ref().unwrap() {
                TargetUnion::Version(wanted) => kv.version.cmp(wanted),
                TargetUnion::CreateRevision(wanted) => kv.create_revision.cmp(wanted),
                TargetUnion::ModRevision(wanted) => kv.mod_revision.cmp(wanted),
                TargetUnion::Value(wanted) => kv.value.cmp(wanted),
                TargetUnion::Lease(wanted) => kv.lease.cmp(wanted),
            };
            [ordering.is_eq(), ordering.is_gt(), ordering.is_lt(), ordering.is_ne()][compare.result as usize]
        })
    }

    /// Of now: filter, sort, limit.
    pub fn range(&self, request: &pb::RangeRequest) -> pb::RangeResponse {
        let keys = Keys::new(&request.key, &request.range_end);
        let mut kvs: Vec<_> = self.now.values().filter(|kv| keys.contains(&kv.key)).cloned().collect();
        let count = kvs.len() as i64;
        let empty = pb::RangeResponse { header: header(self.revision), count, ..Default::default() };
        if request.count_only {
            return empty;
        }
        kvs.retain(|kv| {
            kv.mod_revision >= request.min_mod_revision
                && kv.create_revision >= request.min_create_revision
                && (request.max_mod_revision == 0 || kv.mod_revision <= request.max_mod_revision)
                && (request.max_create_revision == 0 || kv.create_revision <= request.max_create_revision)
        });
        let filtered = request.min_mod_revision != 0 || request.max_mod_revision != 0;
        let filtered = filtered || request.min_create_revision != 0 || request.max_create_revision != 0;
        // Not documented: without an order, the limit comes before the sort.
        if request.limit > 0 && request.sort_order == 0 && !filtered {
            kvs.truncate(request.limit as usize + 1);
        }
        if request.sort_order != 0 || request.sort_target != 0 {
            kvs.sort_by(|a, b| {
                let (a, b) = if request.sort_order == 2 { (b, a) } else { (a, b) };
                match request.sort_target {
                    0 => a.key.cmp(&b.key),
                    1 => a.version.cmp(&b.version),
                    2 => a.create_revision.cmp(&b.create_revision),
                    3 => a.mod_revision.cmp(&b.mod_revision),
                    _ => a.value.cmp(&b.value),
                }
            });
        }
        let more = request.limit > 0 && kvs.len() as i64 > request.limit;
        if more {
            kvs.truncate(request.limit as usize);
        }
        if request.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
                kv.lease = if request.sort_target == 4 { kv.lease } else { 0 };
            }
        }
        pb::RangeResponse { kvs, more, ..empty }
    }
}
