//! Transactions. From etcd's `server/etcdserver/txn/txn.go`.
//!
//! First all comparisons, those of nested transactions that will be reached, too; then all checks; only then changes. So nothing
//! fails halfway. All changes have one revision, and what a transaction reads after a change it sees changed.

use super::super::error::Error;
use super::super::keyspace::Keyspace;
use super::super::{check, range};
use super::compare::Comparisons;
use super::{Changes, Room, State, header, pb};
use crate::proto::etcdserverpb::request_op::Request as Operation;
use crate::proto::etcdserverpb::response_op::Response as Answer;

/// Applies a transaction.
pub(super) fn apply(
    state: &mut State,
    txn: &pb::TxnRequest,
    scratch: &mut Vec<u8>,
    room: &mut Room,
) -> Result<pb::TxnResponse, Error> {
    if check::is_read_only(txn) {
        return read_only_within(&state.keyspace, txn, room);
    }
    let mut path = Vec::new();
    decide(&mut Comparisons::new(&state.keyspace, txn), txn, &mut path);
    check_branch(state, txn, &mut path.iter().copied())?;
    let mut changes = state.changes(scratch);
    let mut response = run(&mut changes, txn, &mut path.iter().copied(), room)?;
    response.header = header(changes.write.revision());
    Ok(response)
}

/// Answers a transaction that only reads.
pub fn read_only(space: &Keyspace, txn: &pb::TxnRequest) -> Result<pb::TxnResponse, Error> {
    let mut room = Room::FULL;
    let response = read_only_within(space, txn, &mut room)?;
    room.exceeded.map_or(Ok(response), Err)
}

fn read_only_within(space: &Keyspace, txn: &pb::TxnRequest, room: &mut Room) -> Result<pb::TxnResponse, Error> {
    let succeeded = Comparisons::new(space, txn).all_hold(&txn.compare);
    let operations = if succeeded { &txn.success } else { &txn.failure };
    let mut responses = Vec::with_capacity(operations.len());
    for operation in operations {
        if let Some(Operation::RequestRange(request)) = &operation.request {
            let response = read(space, request, room)?;
            responses.push(pb::ResponseOp { response });
        }
    }
    Ok(pb::TxnResponse { header: header(space.revision()), succeeded, responses })
}

/// Nothing where nobody waits for it, or where it would not fit; its revision was checked before.
fn read(space: &Keyspace, request: &pb::RangeRequest, room: &mut Room) -> Result<Option<Answer>, Error> {
    if !room.is_left() || !room.look_at(range::keys_looked_at(space, request)) {
        return Ok(None);
    }
    let found = range::range(space, request)?;
    Ok(room.take(found.encoded_len_about()).then(|| Answer::ResponseRange(found.response())))
}

/// Which branches are taken, of this transaction and then of those nested in the branch.
fn decide<'a>(comparisons: &mut Comparisons<'a>, txn: &'a pb::TxnRequest, path: &mut Vec<bool>) {
    let succeeded = comparisons.all_hold(&txn.compare);
    path.push(succeeded);
    for operation in branch(txn, succeeded) {
        if let Some(Operation::RequestTxn(nested)) = &operation.request {
            decide(comparisons, nested, path);
        }
    }
}

fn branch(txn: &pb::TxnRequest, succeeded: bool) -> &[pb::RequestOp] {
    if succeeded { &txn.success } else { &txn.failure }
}

fn check_branch(state: &State, txn: &pb::TxnRequest, path: &mut impl Iterator<Item = bool>) -> Result<(), Error> {
    for operation in branch(txn, path.next().unwrap_or(false)) {
        match &operation.request {
            Some(Operation::RequestRange(range)) => drop(state.keyspace.at(range.revision)?),
            Some(Operation::RequestPut(put)) => check_put(state, put)?,
            Some(Operation::RequestTxn(nested)) => check_branch(state, nested, path)?,
            Some(Operation::RequestDeleteRange(_)) | None => {}
        }
    }
    Ok(())
}

/// Whether a put can be done: its lease exists, and so does what it wants to keep of the key.
pub(super) fn check_put(state: &State, put: &pb::PutRequest) -> Result<(), Error> {
    if put.lease != 0 && state.leases.get(put.lease).is_none() {
        return Err(Error::LeaseNotFound);
    }
    let keeps = put.ignore_value || put.ignore_lease;
    if keeps && state.keyspace.get(&put.key).is_none() { Err(Error::KeyNotFound) } else { Ok(()) }
}

fn run(
    changes: &mut Changes<'_>,
    txn: &pb::TxnRequest,
    path: &mut impl Iterator<Item = bool>,
    room: &mut Room,
) -> Result<pb::TxnResponse, Error> {
    let succeeded = path.next().unwrap_or(false);
    let mut responses = Vec::new();
    for operation in branch(txn, succeeded) {
        let response = match &operation.request {
            Some(Operation::RequestRange(request)) => read(changes.space(), request, room)?,
            Some(Operation::RequestPut(put)) => Some(Answer::ResponsePut(changes.put(put, room))),
            Some(Operation::RequestDeleteRange(delete)) => {
                Some(Answer::ResponseDeleteRange(changes.delete_range(delete, room)))
            }
            Some(Operation::RequestTxn(nested)) => Some(Answer::ResponseTxn(run(changes, nested, path, room)?)),
            None => None,
        };
        responses.push(pb::ResponseOp { response });
    }
    // Of nested ones, etcd leaves the header empty.
    Ok(pb::TxnResponse { header: Some(pb::ResponseHeader::default()), succeeded, responses })
}
