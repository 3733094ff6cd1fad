//! Requests as clients might send them, for property tests: few keys, so that much happens to each.

use proptest::prelude::*;

use super::super::command::{Caller, Command, IssuedToken, MemberRemoval, Request};
use super::pb;
use crate::proto::etcdserverpb::compare::TargetUnion;
use crate::proto::etcdserverpb::request_op::Request as Operation;

fn key() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec!["a", "b", "c", "d", "e", "a/1", "a/2"])
}

fn range_end() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just("\0"), 3 => proptest::sample::select(vec!["b", "c", "e", "z"])]
}

fn put() -> impl Strategy<Value = pb::PutRequest> {
    let flags =
        proptest::sample::select(vec![(false, false), (false, false), (true, false), (false, true), (true, true)]);
    (key(), "[xyz]{0,3}", 0..4i64, any::<bool>(), flags).prop_map(|(key, value, lease, prev_kv, flags)| {
        let (ignore_value, ignore_lease) = flags;
        let value = if ignore_value { String::new() } else { value };
        let lease = if ignore_lease { 0 } else { lease };
        pb::PutRequest { key: key.into(), value: value.into(), lease, prev_kv, ignore_value, ignore_lease }
    })
}

fn delete() -> impl Strategy<Value = pb::DeleteRangeRequest> {
    (key(), range_end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| pb::DeleteRangeRequest {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv,
    })
}

pub fn range() -> impl Strategy<Value = pb::RangeRequest> {
    let filters = proptest::option::weighted(0.3, (0..12i64, 0..12i64, 0..12i64, 0..12i64));
    let order = (0..3i32, 0..5i32);
    (key(), range_end(), 0..4i64, order, filters, 0..4u8).prop_map(|(key, range_end, limit, order, filters, what)| {
        let (min_mod, max_mod, min_create, max_create) = filters.unwrap_or_default();
        pb::RangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            limit,
            sort_order: order.0,
            sort_target: order.1,
            keys_only: what == 1,
            count_only: what == 2,
            min_mod_revision: min_mod,
            max_mod_revision: max_mod,
            min_create_revision: min_create,
            max_create_revision: max_create,
            ..Default::default()
        }
    })
}

fn compare() -> impl Strategy<Value = pb::Compare> {
    let wanted = prop_oneof![
        (0..6i64).prop_map(TargetUnion::Version),
        (0..12i64).prop_map(TargetUnion::CreateRevision),
        (0..12i64).prop_map(TargetUnion::ModRevision),
        "[xyz]{0,2}".prop_map(|value| TargetUnion::Value(value.into())),
        (0..4i64).prop_map(TargetUnion::Lease),
    ];
    (0..4i32, key(), range_end(), wanted).prop_map(|(result, key, range_end, wanted)| {
        let target = match &wanted {
            TargetUnion::Version(_) => 0,
            TargetUnion::CreateRevision(_) => 1,
            TargetUnion::ModRevision(_) => 2,
            TargetUnion::Value(_) => 3,
            TargetUnion::Lease(_) => 4,
        };
        pb::Compare { result, target, key: key.into(), range_end: range_end.into(), target_union: Some(wanted) }
    })
}

/// Mostly few, so that some transactions succeed; many share their keys.
fn compares() -> impl Strategy<Value = Vec<pb::Compare>> {
    prop_oneof![4 => proptest::collection::vec(compare(), 0..2), 1 => proptest::collection::vec(compare(), 2..6)]
}

pub fn txn() -> impl Strategy<Value = pb::TxnRequest> {
    let leaf = prop_oneof![
        4 => put().prop_map(Operation::RequestPut),
        2 => delete().prop_map(Operation::RequestDeleteRange),
        2 => range().prop_map(Operation::RequestRange),
    ];
    let operations = |operation: BoxedStrategy<Operation>| {
        let operation = operation.prop_map(|request| pb::RequestOp { request: Some(request) });
        proptest::collection::vec(operation, 0..4)
    };
    let whole = move |operation: BoxedStrategy<Operation>| {
        let branches = (operations(operation.clone()), operations(operation));
        (compares(), branches).prop_map(|(compare, (success, failure))| pb::TxnRequest { compare, success, failure })
    };
    let nested = leaf.boxed().prop_recursive(2, 12, 3, move |inner| whole(inner).prop_map(Operation::RequestTxn));
    whole(nested.boxed()).prop_filter("duplicate keys", |txn| super::super::check::txn(txn, 128).is_ok())
}

fn user() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["root", "ann", "ben"]).prop_map(String::from)
}

fn issued(ttl_seconds: u64) -> impl Strategy<Value = IssuedToken> {
    (user(), "[a-z]{4}", 0..4u64).prop_map(move |(user, token, auth_revision)| IssuedToken {
        user,
        token,
        ttl_seconds,
        auth_revision,
    })
}

fn administration() -> impl Strategy<Value = Request> {
    let role = || proptest::sample::select(vec!["root", "reader", "writer"]).prop_map(String::from);
    let permission = (0..3i32, key(), range_end()).prop_map(|(perm_type, key, range_end)| {
        crate::proto::authpb::Permission { perm_type, key: key.into(), range_end: range_end.into() }
    });
    prop_oneof![
        Just(Request::AuthEnable(pb::AuthEnableRequest {})),
        Just(Request::AuthDisable(pb::AuthDisableRequest {})),
        issued(5).prop_map(Request::Authenticate),
        issued(9).prop_map(Request::TokenRenew),
        user().prop_map(|name| Request::AuthUserAdd(pb::AuthUserAddRequest {
            name,
            hashed_password: "aGFzaA==".into(),
            ..Default::default()
        })),
        user().prop_map(|name| Request::AuthUserDelete(pb::AuthUserDeleteRequest { name })),
        (user(), role())
            .prop_map(|(user, role)| Request::AuthUserGrantRole(pb::AuthUserGrantRoleRequest { user, role })),
        (user(), role())
            .prop_map(|(name, role)| Request::AuthUserRevokeRole(pb::AuthUserRevokeRoleRequest { name, role })),
        role().prop_map(|name| Request::AuthRoleAdd(pb::AuthRoleAddRequest { name })),
        role().prop_map(|role| Request::AuthRoleDelete(pb::AuthRoleDeleteRequest { role })),
        (role(), permission).prop_map(|(name, perm)| {
            Request::AuthRoleGrantPermission(pb::AuthRoleGrantPermissionRequest { name, perm: Some(perm) })
        }),
        (0..3i32, 0..3u64, 0..3i32).prop_map(|(action, member_id, alarm)| Request::Alarm(pb::AlarmRequest {
            action,
            member_id,
            alarm
        })),
        (1..4u64, "[a-z]{1,4}").prop_map(|(id, name)| Request::MemberAdd(pb::Member {
            id,
            name,
            ..Default::default()
        })),
        (1..4u64, any::<bool>())
            .prop_map(|(id, keeps_a_voter)| Request::MemberRemove(MemberRemoval { id, keeps_a_voter })),
    ]
}

/// A command, and the time of its entry.
pub fn command() -> impl Strategy<Value = Command> {
    let request = prop_oneof![
        12 => put().prop_map(Request::Put),
        4 => delete().prop_map(Request::DeleteRange),
        10 => txn().prop_map(Request::Txn),
        2 => (1..40i64).prop_map(|revision| Request::Compaction(pb::CompactionRequest { revision, physical: false })),
        3 => (0..4i64, -1..100i64).prop_map(|(id, ttl)| Request::LeaseGrant(pb::LeaseGrantRequest { id, ttl })),
        1 => (0..4i64).prop_map(|id| Request::LeaseRevoke(pb::LeaseRevokeRequest { id })),
        1 => (1..4i64, 0..50i64).prop_map(|(id, remaining_ttl)| Request::LeaseCheckpoint(pb::LeaseCheckpointRequest {
            checkpoints: vec![pb::LeaseCheckpoint { id, remaining_ttl }],
        })),
        5 => administration(),
    ];
    let client = (user(), 0..12u64).prop_map(|(user, auth_revision)| Caller::Client { user, auth_revision });
    let caller = prop_oneof![3 => Just(Caller::Server), 1 => client];
    (caller, request).prop_map(|(caller, request)| Command { caller, request })
}
