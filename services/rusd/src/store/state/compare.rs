//! What the comparisons of a transaction come to, all of them of the state before it.
//!
//! Those of ranges, of nested transactions too, are made together when the first of them is asked for, in one walk through the keys: a record
//! is looked at once, however many comparisons are of it, and no more by those that have failed. Equal ones are made once. So a transaction
//! costs little more than its longest walk, as long as it has few of them, which [`super::super::check::txn`] sees to where a client asks.
//! Nothing is refused here: what is in the log comes to the same, whichever release put it there.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::super::keys::Keys;
use super::super::keyspace::Keyspace;
use super::super::record::{Fields, Record};
use super::pb;
use crate::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// The comparisons of a transaction and of all that are nested in it.
pub(super) struct Comparisons<'a> {
    space: &'a Keyspace,
    txn: &'a pb::TxnRequest,
    /// What those of ranges come to, once one was asked for.
    of_ranges: Option<HashMap<&'a pb::Compare, bool>>,
}

impl<'a> Comparisons<'a> {
    pub fn new(space: &'a Keyspace, txn: &'a pb::TxnRequest) -> Self {
        Self { space, txn, of_ranges: None }
    }

    /// Whether all of these hold, which are some of the transaction's.
    pub fn all_hold(&mut self, compares: &'a [pb::Compare]) -> bool {
        compares.iter().all(|compare| match is_of_range(compare) {
            true => self.of_ranges().get(compare).is_some_and(|holds| *holds),
            false => holds(compare, &Seen::of(self.space.get(&compare.key))),
        })
    }

    fn of_ranges(&mut self) -> &HashMap<&'a pb::Compare, bool> {
        self.of_ranges.get_or_insert_with(|| {
            let mut compares = HashMap::new();
            collect(self.txn, &mut compares);
            walk(self.space, &mut compares);
            compares
        })
    }
}

fn is_of_range(compare: &pb::Compare) -> bool {
    !compare.range_end.is_empty()
}

/// Those of ranges, with what they come to where there are no keys.
fn collect<'a>(txn: &'a pb::TxnRequest, compares: &mut HashMap<&'a pb::Compare, bool>) {
    let of_ranges = txn.compare.iter().filter(|compare| is_of_range(compare));
    compares.extend(of_ranges.map(|compare| (compare, holds(compare, &Seen::of(None)))));
    for operation in txn.success.iter().chain(&txn.failure) {
        if let Some(Operation::RequestTxn(nested)) = &operation.request {
            collect(nested, compares);
        }
    }
}

/// Makes comparisons of ranges.
fn walk(space: &Keyspace, compares: &mut HashMap<&pb::Compare, bool>) {
    let mut waiting: Vec<_> = compares
        .iter_mut()
        .map(|(compare, holds)| (Keys::new(&compare.key, &compare.range_end), *compare, holds))
        .collect();
    // The next one is the last.
    waiting.sort_unstable_by(|(a, ..), (b, ..)| b.start().cmp(a.start()));
    let mut under_way = Vec::new();
    while let Some((next, ..)) = waiting.last() {
        let mut records = space.range(Keys::From(next.start()), space.revision());
        loop {
            // Behind the last key there is nothing for those that wait.
            let Some(record) = records.next() else { return };
            let key = record.key();
            while let Some(begun) = waiting.pop_if(|(keys, ..)| keys.start() <= key) {
                under_way.push(begun);
            }
            let seen = Seen::of(Some(record));
            under_way.retain_mut(|(keys, compare, is_held)| {
                if !keys.contains(key) {
                    return false;
                }
                **is_held = holds(compare, &seen);
                **is_held
            });
            if under_way.is_empty() {
                break;
            }
        }
    }
}

/// What is compared: a record, or the lack of one, whose numbers are 0.
struct Seen<'a> {
    record: Option<&'a Record>,
    fields: OnceCell<Fields>,
    /// It may have to be read from a file.
    value: OnceCell<Cow<'a, [u8]>>,
}

impl<'a> Seen<'a> {
    fn of(record: Option<&'a Record>) -> Self {
        Self { record, fields: OnceCell::new(), value: OnceCell::new() }
    }

    fn number(&self, of_fields: fn(&Fields) -> i64) -> i64 {
        self.record.map_or(0, |record| of_fields(self.fields.get_or_init(|| record.fields())))
    }
}

fn holds(compare: &pb::Compare, seen: &Seen<'_>) -> bool {
    let wanted = &compare.target_union;
    let ordering = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Value) => {
            // There is no way to write a missing value, so that comparing one fails.
            let Some(record) = seen.record else { return false };
            let wanted = if let Some(TargetUnion::Value(wanted)) = wanted { &wanted[..] } else { &[] };
            seen.value.get_or_init(|| record.value())[..].cmp(wanted)
        }
        Ok(CompareTarget::Create) => {
            let wanted = if let Some(TargetUnion::CreateRevision(wanted)) = wanted { *wanted } else { 0 };
            seen.number(|fields| fields.create_revision).cmp(&wanted)
        }
        Ok(CompareTarget::Mod) => {
            let wanted = if let Some(TargetUnion::ModRevision(wanted)) = wanted { *wanted } else { 0 };
            seen.number(|fields| fields.mod_revision).cmp(&wanted)
        }
        Ok(CompareTarget::Version) => {
            let wanted = if let Some(TargetUnion::Version(wanted)) = wanted { *wanted } else { 0 };
            seen.number(|fields| fields.version).cmp(&wanted)
        }
        Ok(CompareTarget::Lease) => {
            let wanted = if let Some(TargetUnion::Lease(wanted)) = wanted { *wanted } else { 0 };
            seen.number(|fields| fields.lease).cmp(&wanted)
        }
        // A target of a later release compares equal, as in etcd.
        Err(_) => std::cmp::Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}
