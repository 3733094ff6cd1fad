//! Which keys a transaction changes, and whether one of them twice: etcd's `checkIntervals`.
//!
//! What nested transactions change moves up level by level, and always the smaller part into the larger: so that the work is little more than
//! the number of changes, however they are nested.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;

use super::super::error::Error;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// What one branch of a transaction changes.
#[derive(Default)]
pub(super) struct Changed<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Spans<'a>,
}

/// No key may be put twice, or put and deleted, by what can happen together.
pub(super) fn changed_keys(operations: &[pb::RequestOp]) -> Result<Changed<'_>, Error> {
    let mut changed = Changed::default();
    for operation in operations {
        // As etcd: a deletion of everything from its key on is compared with nothing.
        if let Some(Operation::RequestDeleteRange(request)) = &operation.request
            && request.range_end != b"\0"[..]
        {
            let end = match &request.range_end[..] {
                [] => Cow::Owned([&request.key, &b"\0"[..]].concat()),
                end => Cow::Borrowed(end),
            };
            changed.deletes.insert(Cow::Borrowed(&request.key), end);
        }
    }
    for operation in operations {
        if let Some(Operation::RequestTxn(request)) = &operation.request {
            let (then, otherwise) = (changed_keys(&request.success)?, changed_keys(&request.failure)?);
            // Only one of both happens, so that both may put the same key.
            for branch in [&then, &otherwise] {
                let (few, many) = in_order(&changed.puts, &branch.puts);
                if few.iter().any(|key| many.contains(key))
                    || branch.puts.iter().any(|key| changed.deletes.contain(key))
                {
                    return Err(Error::DuplicateKey);
                }
            }
            for branch in [then, otherwise] {
                let (few, many) = in_order(mem::take(&mut changed.puts), branch.puts);
                changed.puts = many;
                changed.puts.extend(few);
                changed.deletes = mem::take(&mut changed.deletes).and(branch.deletes);
            }
        }
    }
    for operation in operations {
        if let Some(Operation::RequestPut(request)) = &operation.request
            && (changed.deletes.contain(&request.key) || !changed.puts.insert(&request.key))
        {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(changed)
}

/// The smaller set first.
fn in_order<'a, S: std::borrow::Borrow<BTreeSet<&'a [u8]>>>(one: S, other: S) -> (S, S) {
    if one.borrow().len() < other.borrow().len() { (one, other) } else { (other, one) }
}

/// Ranges that do not touch: where each begins, and where it ends.
#[derive(Default)]
struct Spans<'a>(BTreeMap<Cow<'a, [u8]>, Cow<'a, [u8]>>);

impl<'a> Spans<'a> {
    fn insert(&mut self, mut start: Cow<'a, [u8]>, mut end: Cow<'a, [u8]>) {
        if start >= end {
            return;
        }
        // Those that it touches, the last first, become part of it.
        while let Some((other, its_end)) = self
            .0
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(&*end)))
            .next_back()
            .filter(|(_, its_end)| **its_end >= start)
        {
            let (other, its_end) = (other.clone(), its_end.clone());
            self.0.remove(&other);
            start = start.min(other);
            end = end.max(its_end);
        }
        self.0.insert(start, end);
    }

    fn contain(&self, key: &[u8]) -> bool {
        self.0
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()
            .is_some_and(|(_, end)| key < &**end)
    }

    fn and(self, other: Self) -> Self {
        let (few, mut many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.into_iter().for_each(|(start, end)| many.insert(start, end));
        many
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::keys::Keys;

    /// Puts, and deletions with their ends.
    type Slow = (BTreeSet<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

    /// As etcd does it, word by word: each put against all that came before.
    fn slowly(operations: &[pb::RequestOp]) -> Result<Slow, Error> {
        let (mut puts, mut deletes) = (BTreeSet::new(), Vec::new());
        for operation in operations {
            match &operation.request {
                Some(Operation::RequestDeleteRange(it)) if it.range_end != b"\0"[..] => {
                    deletes.push((it.key.to_vec(), it.range_end.to_vec()))
                }
                _ => {}
            }
        }
        let is_deleted = |deletes: &[(Vec<u8>, Vec<u8>)], key: &[u8]| {
            deletes.iter().any(|(start, end)| Keys::new(start, end).contains(key))
        };
        for operation in operations {
            let Some(Operation::RequestTxn(it)) = &operation.request else { continue };
            let (then, otherwise) = (slowly(&it.success)?, slowly(&it.failure)?);
            for (key, safe) in
                then.0.iter().map(|key| (key, false)).chain(otherwise.0.iter().map(|key| (key, then.0.contains(key))))
            {
                if puts.contains(key) && !safe || is_deleted(&deletes, key) {
                    return Err(Error::DuplicateKey);
                }
                puts.insert(key.clone());
            }
            deletes.extend(then.1.into_iter().chain(otherwise.1));
        }
        for operation in operations {
            if let Some(Operation::RequestPut(it)) = &operation.request
                && (is_deleted(&deletes, &it.key) || !puts.insert(it.key.to_vec()))
            {
                return Err(Error::DuplicateKey);
            }
        }
        Ok((puts, deletes))
    }

    fn operation() -> impl Strategy<Value = pb::RequestOp> {
        let key = || "[a-h]{1,2}".prop_map(bytes::Bytes::from);
        let end = prop_oneof![2 => Just(bytes::Bytes::new()), 1 => Just(bytes::Bytes::from("\0")), 3 => key()];
        let leaf = prop_oneof![
            3 => key().prop_map(|key| Operation::RequestPut(pb::PutRequest { key, ..Default::default() })),
            2 => (key(), end).prop_map(|(key, range_end)| {
                Operation::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end, ..Default::default() })
            }),
        ];
        let some = |operation: BoxedStrategy<Operation>| {
            proptest::collection::vec(operation.prop_map(|request| pb::RequestOp { request: Some(request) }), 0..3)
        };
        let nested = leaf.prop_recursive(3, 16, 3, move |inner| {
            (some(inner.clone()), some(inner)).prop_map(|(success, failure)| {
                Operation::RequestTxn(pb::TxnRequest { compare: Vec::new(), success, failure })
            })
        });
        nested.prop_map(|request| pb::RequestOp { request: Some(request) })
    }

    proptest! {
        #[test]
        fn what_is_changed_twice_is_what_etcd_finds(operations in proptest::collection::vec(operation(), 0..5)) {
            let (found, expected) = (changed_keys(&operations), slowly(&operations));
            prop_assert_eq!(found.as_ref().map(|_| ()).err(), expected.as_ref().map(|_| ()).err());
            if let (Ok(found), Ok((puts, deletes))) = (found, expected) {
                prop_assert!(found.puts.iter().copied().eq(puts.iter().map(Vec::as_slice)));
                for key in ["a", "b", "bb", "cd", "dc", "ea", "f", "gh", "h"] {
                    let is_deleted = deletes.iter().any(|(start, end)| Keys::new(start, end).contains(key.as_bytes()));
                    prop_assert_eq!(found.deletes.contain(key.as_bytes()), is_deleted, "{}", key);
                }
            }
        }
    }

    /// 860 KB of puts and deletions, each compared with each and again at every level, held a connection's thread for eight seconds.
    #[test]
    fn tens_of_thousands_of_changes_are_compared_quickly() {
        let key = |number: usize| bytes::Bytes::from(format!("{number:06}"));
        let put = |number| Operation::RequestPut(pb::PutRequest { key: key(number), ..Default::default() });
        let delete =
            |number| Operation::RequestDeleteRange(pb::DeleteRangeRequest { key: key(number), ..Default::default() });
        let op = |request| pb::RequestOp { request: Some(request) };
        // Half of them side by side in small ones, and all of these far down.
        let small = |number: usize| pb::TxnRequest {
            success: (0..40)
                .flat_map(|at| [op(delete(80 * number + 2 * at)), op(put(80 * number + 2 * at + 1))])
                .collect(),
            ..Default::default()
        };
        let mut txn = pb::TxnRequest {
            success: (0..800).map(|number| op(Operation::RequestTxn(small(number)))).collect(),
            ..Default::default()
        };
        for _ in 0..25 {
            txn = pb::TxnRequest { success: vec![op(Operation::RequestTxn(txn))], ..Default::default() };
        }
        let begun = harness::processor_time::of_thread();
        assert!(changed_keys(&txn.success).is_ok());
        let took = harness::processor_time::of_thread() - begun;
        assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    }
}
