//! What is wrong with a request, before anybody does anything about it. From etcd's `server/etcdserver/api/v3rpc/key.go`.

use super::error::Error;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

mod changed;

use changed::changed_keys;

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
///
/// Of ranges it may have `operations_max` comparisons in all, where etcd bounds each list of them only: every member makes them, at each of
/// its starts again, and a request of 50 KB with thousands of them over everything stopped a group for minutes. Their number is what can
/// be checked here; how many keys they are of may change until they are made.
pub fn txn(request: &pb::TxnRequest, operations_max: usize) -> Result<(), Error> {
    operations(request, operations_max)?;
    if compared_ranges(request) > operations_max {
        return Err(Error::TooManyOps);
    }
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

fn compared_ranges(request: &pb::TxnRequest) -> usize {
    let nested = request.success.iter().chain(&request.failure).map(|operation| match &operation.request {
        Some(Operation::RequestTxn(nested)) => compared_ranges(nested),
        _ => 0,
    });
    let own = request.compare.iter().filter(|compare| !compare.range_end.is_empty()).count();
    own + nested.sum::<usize>()
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

    /// Side by side, nested transactions have many more than one list may.
    #[test]
    fn comparisons_of_ranges_are_counted_in_all_of_a_transaction() {
        let nested = |count: usize, range_end: &'static str| {
            let compare = pb::Compare { key: "a".into(), range_end: range_end.into(), ..Default::default() };
            let request = pb::TxnRequest { compare: vec![compare; count], ..Default::default() };
            pb::RequestOp { request: Some(Operation::RequestTxn(request)) }
        };
        let check = |success, failure| txn(&pb::TxnRequest { compare: vec![], success, failure }, 128);
        assert_eq!(check(vec![nested(60, "b")], vec![nested(60, "b"), nested(8, "\0")]), Ok(()));
        assert_eq!(check(vec![nested(60, "b")], vec![nested(60, "b"), nested(9, "\0")]), Err(Error::TooManyOps));
        assert_eq!(check(vec![nested(60, ""); 60], vec![]), Ok(()), "of one key each there may be many");
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
