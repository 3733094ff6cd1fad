//! What the state machine has done since the process started, counted for monitoring; a start that reads the log again counts it again,
//! as etcd does.

use std::sync::atomic::{AtomicU64, Ordering};

use super::command::Request;
use super::state::{Outcome, Response};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::response_op::Response as Answer;

/// Counts by what they are of.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Counts {
    pub puts: AtomicU64,
    pub put_bytes: AtomicU64,
    pub deletes: AtomicU64,
    pub ranges: AtomicU64,
    /// Transactions of more than one operation, as in etcd.
    pub txns: AtomicU64,
    pub events: AtomicU64,
    pub leases_granted: AtomicU64,
    pub leases_revoked: AtomicU64,
}

/// What one transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Operations {
    puts: u64,
    deletes: u64,
    ranges: u64,
    deleted_keys: u64,
}

impl Operations {
    fn of(txn: &pb::TxnResponse) -> Self {
        txn.responses.iter().fold(Self::default(), |all, operation| match &operation.response {
            Some(Answer::ResponsePut(_)) => Self { puts: all.puts + 1, ..all },
            Some(Answer::ResponseDeleteRange(delete)) => {
                Self { deletes: all.deletes + 1, deleted_keys: all.deleted_keys + delete.deleted.unsigned_abs(), ..all }
            }
            Some(Answer::ResponseTxn(nested)) => {
                let nested = Self::of(nested);
                Self {
                    puts: all.puts + nested.puts,
                    deletes: all.deletes + nested.deletes,
                    ranges: all.ranges + nested.ranges,
                    deleted_keys: all.deleted_keys + nested.deleted_keys,
                }
            }
            // What nobody waits for has not been read.
            Some(Answer::ResponseRange(_)) => Self { ranges: all.ranges + 1, ..all },
            None => all,
        })
    }
}

impl Counts {
    /// Counts more of something.
    pub fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Ordering::Relaxed);
    }

    /// A transaction was answered.
    pub fn txn(&self, answer: &pb::TxnResponse) {
        let Operations { puts, deletes, ranges, deleted_keys } = Operations::of(answer);
        Self::add(&self.puts, puts);
        Self::add(&self.deletes, deletes);
        Self::add(&self.ranges, ranges);
        Self::add(&self.events, puts + deleted_keys);
        Self::add(&self.txns, u64::from(puts + deletes + ranges > 1));
    }

    /// What a request would put, to be counted if it does.
    pub(super) fn put_bytes_of(request: &Request) -> u64 {
        match request {
            Request::Put(put) => (put.key.len() + put.value.len()) as u64,
            _ => 0,
        }
    }

    /// A command was applied.
    pub(super) fn applied(&self, outcome: &Outcome, put_bytes: u64, is_revocation: bool) {
        match outcome {
            Ok(Response::Put(_)) => {
                Self::add(&self.puts, 1);
                Self::add(&self.put_bytes, put_bytes);
                Self::add(&self.events, 1);
            }
            Ok(Response::DeleteRange(delete)) => {
                Self::add(&self.deletes, 1);
                Self::add(&self.events, delete.deleted.unsigned_abs());
            }
            Ok(Response::Txn(txn)) => self.txn(txn),
            Ok(Response::LeaseGrant(_)) => Self::add(&self.leases_granted, 1),
            Ok(Response::Done(_)) if is_revocation => Self::add(&self.leases_revoked, 1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_transactions_count_and_those_of_nested_ones() {
        let op = |response| pb::ResponseOp { response: Some(response) };
        let nested = pb::TxnResponse {
            responses: vec![op(Answer::ResponsePut(Default::default())), op(Answer::ResponseRange(Default::default()))],
            ..Default::default()
        };
        let delete = pb::DeleteRangeResponse { deleted: 3, ..Default::default() };
        let responses = vec![op(Answer::ResponseDeleteRange(delete)), op(Answer::ResponseTxn(nested))];
        let counts = Counts::default();
        counts.txn(&pb::TxnResponse { responses, ..Default::default() });
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let seen = [&counts.puts, &counts.deletes, &counts.ranges, &counts.txns, &counts.events].map(read);
        assert_eq!(seen, [1, 1, 1, 1, 4]);
    }
}
