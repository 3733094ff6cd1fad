//! What a request will cost in space. From etcd's `server/storage/quota.go`.
//!
//! The server asks before it proposes: when [`View::bytes`](super::View::bytes) and the cost exceed the quota, it raises the alarm
//! NOSPACE and answers [`Error::NoSpace`](super::Error::NoSpace). Commands themselves look at alarms only, so that members whose
//! compaction has come less far decide alike.

use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

const KEY_OVERHEAD_BYTES: u64 = 256;
const LEASE_OVERHEAD_BYTES: u64 = 64;

/// The cost of a put in bytes.
pub fn cost_of_put(put: &pb::PutRequest) -> u64 {
    KEY_OVERHEAD_BYTES + put.key.len() as u64 + put.value.len() as u64
}

/// The cost of a transaction's dearer branch in bytes.
pub fn cost_of_txn(txn: &pb::TxnRequest) -> u64 {
    let branch = |operations: &[pb::RequestOp]| -> u64 {
        let cost = |operation: &pb::RequestOp| match &operation.request {
            Some(Operation::RequestPut(put)) => cost_of_put(put),
            Some(Operation::RequestTxn(nested)) => cost_of_txn(nested),
            Some(Operation::RequestRange(_) | Operation::RequestDeleteRange(_)) | None => 0,
        };
        operations.iter().map(cost).sum()
    };
    branch(&txn.success).max(branch(&txn.failure))
}

/// The cost of a lease in bytes.
pub fn cost_of_lease() -> u64 {
    LEASE_OVERHEAD_BYTES
}
