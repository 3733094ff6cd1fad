//! What is wrong with a request, before anybody does anything about it. From etcd's `server/etcdserver/api/v3rpc/key.go`.

use std::collections::BTreeSet;

use super::error::Error;
use super::keys::Keys;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// Checks a range request.
pub fn range(request: &pb::RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let order = pb::range_request::SortOrder::try_from(request.sort_order);
    let target = pb::range_request::SortTarget::try_from(request.sort_target);
    if order.is_err() || target.is_err() { Err(Error::InvalidSortOption) } else { Ok(()) }
}

/// Checks a request for a stream of ranges.
pub fn range_stream(request: &pb::RangeRequest) -> Result<(), Error> {
    range(request)?;
    if !super::range::has_default_order(request) {
        return Err(Error::StreamSortOrder);
    }
    if super::range::has_revision_filter(request) { Err(Error::StreamRevisionFilter) } else { Ok(()) }
}

/// Checks a put.
pub fn put(request: &pb::PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 { Err(Error::LeaseProvided) } else { Ok(()) }
}

/// Checks a deletion.
pub fn delete_range(request: &pb::DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Checks a transaction and all that is nested in it.
pub fn txn(request: &pb::TxnRequest, operations_max: usize) -> Result<(), Error> {
    operations(request, operations_max)?;
    changed_keys(&request.success)?;
    changed_keys(&request.failure)?;
    Ok(())
}

fn operations(request: &pb::TxnRequest, operations_max: usize) -> Result<(), Error> {
    let count = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = operations_max.checked_sub(count).ok_or(Error::TooManyOps)?;
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for operation in request.success.iter().chain(&request.failure) {
        match &operation.request {
            Some(Operation::RequestRange(request)) => range(request)?,
            Some(Operation::RequestPut(request)) => put(request)?,
            Some(Operation::RequestDeleteRange(request)) => delete_range(request)?,
            Some(Operation::RequestTxn(request)) => operations(request, left)?,
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// What one branch of a transaction changes.
#[derive(Default)]
struct Changed<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Vec<Keys<'a>>,
}

impl<'a> Changed<'a> {
    fn put(&mut self, key: &'a [u8], safe: &BTreeSet<&[u8]>) -> Result<(), Error> {
        let twice = self.puts.contains(key) && !safe.contains(key);
        if twice || self.deletes.iter().any(|keys| keys.contains(key)) {
            return Err(Error::DuplicateKey);
        }
        self.puts.insert(key);
        Ok(())
    }
}

/// No key may be put twice, or put and deleted, by what can happen together: etcd's `checkIntervals`.
fn changed_keys(operations: &[pb::RequestOp]) -> Result<Changed<'_>, Error> {
    let mut changed = Changed::default();
    for operation in operations {
        // As etcd: a deletion of everything from its key on is compared with nothing.
        if let Some(Operation::RequestDeleteRange(request)) = &operation.request
            && request.range_end != b"\0"[..]
        {
            changed.deletes.push(Keys::new(&request.key, &request.range_end));
        }
    }
    for operation in operations {
        if let Some(Operation::RequestTxn(request)) = &operation.request {
            let (then, otherwise) = (changed_keys(&request.success)?, changed_keys(&request.failure)?);
            for key in &then.puts {
                changed.put(key, &BTreeSet::new())?;
            }
            // Only one of both happens, so that both may put the same key.
            for key in &otherwise.puts {
                changed.put(key, &then.puts)?;
            }
            changed.deletes.extend(then.deletes);
            changed.deletes.extend(otherwise.deletes);
        }
    }
    for operation in operations {
        if let Some(Operation::RequestPut(request)) = &operation.request {
            changed.put(&request.key, &BTreeSet::new())?;
        }
    }
    Ok(changed)
}

/// Whether a transaction changes nothing: etcd's `IsTxnReadonly`, for which a nested one is never that.
pub fn is_read_only(request: &pb::TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.all(|operation| matches!(operation.request, Some(Operation::RequestRange(_))))
}

/// Whether every range of a transaction that only reads may be answered from any member's state: etcd's `IsTxnSerializable`.
pub fn is_serializable(request: &pb::TxnRequest) -> bool {
    let mut operations = request.success.iter().chain(&request.failure);
    operations.all(|operation| matches!(&operation.request, Some(Operation::RequestRange(range)) if range.serializable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_op(key: &'static str) -> pb::RequestOp {
        let put = pb::PutRequest { key: key.into(), ..Default::default() };
        pb::RequestOp { request: Some(Operation::RequestPut(put)) }
    }

    fn delete_op(key: &'static str, range_end: &'static str) -> pb::RequestOp {
        let delete = pb::DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv: false };
        pb::RequestOp { request: Some(Operation::RequestDeleteRange(delete)) }
    }

    fn txn_op(success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>) -> pb::RequestOp {
        let txn = pb::TxnRequest { compare: vec![], success, failure };
        pb::RequestOp { request: Some(Operation::RequestTxn(txn)) }
    }

    fn check(success: Vec<pb::RequestOp>) -> Result<(), Error> {
        txn(&pb::TxnRequest { compare: vec![], success, failure: vec![] }, 128)
    }

    #[test]
    fn a_key_is_changed_once() {
        let twice = Err(Error::DuplicateKey);
        assert_eq!(check(vec![put_op("a"), put_op("b")]), Ok(()));
        assert_eq!(check(vec![put_op("a"), put_op("a")]), twice);
        assert_eq!(check(vec![put_op("b"), delete_op("a", "c")]), twice);
        // etcd takes the end of such a range for a key that lies before all others.
        assert_eq!(check(vec![put_op("b"), delete_op("a", "\0")]), Ok(()));
        assert_eq!(check(vec![delete_op("a", "c"), delete_op("b", "")]), Ok(()));
        assert_eq!(check(vec![put_op("a"), txn_op(vec![put_op("a")], vec![])]), twice);
        assert_eq!(check(vec![txn_op(vec![put_op("a")], vec![put_op("a")])]), Ok(()));
        assert_eq!(check(vec![txn_op(vec![put_op("a")], vec![]), txn_op(vec![], vec![put_op("a")])]), twice);
        assert_eq!(check(vec![delete_op("a", ""), txn_op(vec![put_op("a")], vec![])]), twice);
        assert_eq!(check(vec![txn_op(vec![delete_op("a", "")], vec![]), put_op("a")]), twice);
    }

    #[test]
    fn operations_are_counted_along_each_path() {
        let puts = |count: usize| (0..count).map(|n| delete_op(["a", "b", "c"][n % 3], "")).collect::<Vec<_>>();
        let with = |operations_max, success| txn(&pb::TxnRequest { success, ..Default::default() }, operations_max);
        assert_eq!(with(128, puts(128)), Ok(()));
        assert_eq!(with(128, puts(129)), Err(Error::TooManyOps));
        assert_eq!(with(4, vec![txn_op(puts(3), puts(3))]), Ok(()));
        assert_eq!(with(4, vec![txn_op(puts(4), vec![])]), Err(Error::TooManyOps));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(check(vec![put_op("")]), Err(Error::EmptyKey));
        assert_eq!(check(vec![pb::RequestOp { request: None }]), Err(Error::KeyNotFound));
        let put_with = |ignore_value, ignore_lease| {
            put(&pb::PutRequest {
                key: "a".into(),
                value: "v".into(),
                lease: 1,
                ignore_value,
                ignore_lease,
                prev_kv: false,
            })
        };
        assert_eq!(put_with(false, false), Ok(()));
        assert_eq!(put_with(true, false), Err(Error::ValueProvided));
        assert_eq!(put_with(false, true), Err(Error::LeaseProvided));
        let sorted = pb::RangeRequest { key: "a".into(), sort_order: 3, ..Default::default() };
        assert_eq!(range(&sorted), Err(Error::InvalidSortOption));
    }
}
