//! Transactions. From etcd's `server/etcdserver/txn/txn.go`.
//!
//! First all comparisons, those of nested transactions that will be reached, too; then all checks; only then changes. So nothing
//! fails halfway. All changes have one revision, and what a transaction reads after a change it sees changed.

use std::borrow::Cow;

use super::super::error::Error;
use super::super::keys::Keys;
use super::super::keyspace::Keyspace;
use super::super::record::Record;
use super::super::{check, range};
use super::{Changes, Room, State, header, pb};
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
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
    decide(&state.keyspace, txn, &mut path);
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
    if room.is_exceeded() { Err(Error::AnswerTooLarge) } else { Ok(response) }
}

fn read_only_within(space: &Keyspace, txn: &pb::TxnRequest, room: &mut Room) -> Result<pb::TxnResponse, Error> {
    let succeeded = compare_all(space, &txn.compare);
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
    if !room.is_left() {
        return Ok(None);
    }
    let found = range::range(space, request)?;
    Ok(room.take(found.encoded_len_about()).then(|| Answer::ResponseRange(found.response())))
}

/// Which branches are taken, of this transaction and then of those nested in the branch.
fn decide(space: &Keyspace, txn: &pb::TxnRequest, path: &mut Vec<bool>) {
    let succeeded = compare_all(space, &txn.compare);
    path.push(succeeded);
    for operation in branch(txn, succeeded) {
        if let Some(Operation::RequestTxn(nested)) = &operation.request {
            decide(space, nested, path);
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

fn compare_all(space: &Keyspace, compares: &[pb::Compare]) -> bool {
    compares.iter().all(|compare| {
        let keys = Keys::new(&compare.key, &compare.range_end);
        let mut records = space.range(keys, space.revision()).peekable();
        if records.peek().is_none() {
            // There is no way to write a missing value, so that comparing one fails; other fields are 0.
            return compare.target != CompareTarget::Value as i32 && holds(compare, None);
        }
        records.all(|record| holds(compare, Some(record)))
    })
}

fn holds(compare: &pb::Compare, record: Option<&Record>) -> bool {
    let fields = record.map(Record::fields);
    let number = |of_record: Option<i64>, wanted: i64| of_record.unwrap_or(0).cmp(&wanted);
    let fields = fields.as_ref();
    let ordering = match (CompareTarget::try_from(compare.target), &compare.target_union) {
        (Ok(CompareTarget::Value), wanted) => {
            let wanted = if let Some(TargetUnion::Value(wanted)) = wanted { &wanted[..] } else { &[] };
            record.map_or_else(Cow::default, Record::value)[..].cmp(wanted)
        }
        (Ok(CompareTarget::Create), wanted) => {
            let wanted = if let Some(TargetUnion::CreateRevision(wanted)) = wanted { *wanted } else { 0 };
            number(fields.map(|fields| fields.create_revision), wanted)
        }
        (Ok(CompareTarget::Mod), wanted) => {
            let wanted = if let Some(TargetUnion::ModRevision(wanted)) = wanted { *wanted } else { 0 };
            number(fields.map(|fields| fields.mod_revision), wanted)
        }
        (Ok(CompareTarget::Version), wanted) => {
            let wanted = if let Some(TargetUnion::Version(wanted)) = wanted { *wanted } else { 0 };
            number(fields.map(|fields| fields.version), wanted)
        }
        (Ok(CompareTarget::Lease), wanted) => {
            let wanted = if let Some(TargetUnion::Lease(wanted)) = wanted { *wanted } else { 0 };
            number(fields.map(|fields| fields.lease), wanted)
        }
        // A target of a later release compares equal, as in etcd.
        (Err(_), _) => std::cmp::Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}
