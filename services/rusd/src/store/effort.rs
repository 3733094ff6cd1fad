//! How much work commands are, about: whether they may hold up the member's protocol, or are applied beside it.
//!
//! Counted are keys that are changed or compared, and keys that are read for who waits. A count of a range is a walk down a tree,
//! whatever it comes to, and most commands have no range.

use replog::Entry;

use super::command::{Command, Kind, Request};
use super::keys::Keys;
use super::{State, range};
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// Keys that commands may change or read together and still be quick: a few dozen milliseconds.
const QUICK_KEYS: usize = 5_000;

/// Whether these commands, each with whether somebody waits for its answer, take long.
pub(super) fn is_long<'a>(state: &State, commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
    let mut keys = 0;
    for (entry, is_awaited) in commands {
        keys += keys_of(state, entry, is_awaited);
        if keys > QUICK_KEYS {
            return true;
        }
    }
    false
}

fn keys_of(state: &State, entry: &Entry, is_awaited: bool) -> usize {
    // Most commands are not decoded for this: what they change, or what they may have in them, is one key.
    match Kind::of_command(&entry.data) {
        Some(Kind::DeleteRange | Kind::Txn | Kind::LeaseRevoke) => {}
        _ => return 0,
    }
    let Ok(Command { request, .. }) = Command::decode(&entry.data) else { return 0 };
    match request {
        Request::DeleteRange(delete) => state.keyspace.len_about(Keys::new(&delete.key, &delete.range_end), 0),
        Request::LeaseRevoke(revoke) => state.leases.count_keys(revoke.id),
        Request::Txn(txn) => keys_of_txn(state, &txn, is_awaited),
        _ => 0,
    }
}

/// Of a transaction, in whichever branch.
pub(super) fn keys_of_txn(state: &State, txn: &pb::TxnRequest, is_awaited: bool) -> usize {
    let of_range = |key: &[u8], end: &[u8]| state.keyspace.len_about(Keys::new(key, end), 0);
    let compared = txn.compare.iter().map(|compare| of_range(&compare.key, &compare.range_end));
    let branch = |operations: &[pb::RequestOp]| -> usize {
        let keys = operations.iter().filter_map(|operation| operation.request.as_ref()).map(|request| match request {
            Operation::RequestPut(_) => 0,
            Operation::RequestRange(range) if !is_awaited => 0,
            Operation::RequestRange(range) => range::keys_looked_at(&state.keyspace, range),
            Operation::RequestDeleteRange(delete) => of_range(&delete.key, &delete.range_end),
            Operation::RequestTxn(nested) => keys_of_txn(state, nested, is_awaited),
        });
        keys.sum()
    };
    compared.sum::<usize>() + branch(&txn.success).max(branch(&txn.failure))
}
