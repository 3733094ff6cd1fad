use super::super::command::{Caller, IssuedToken};
use super::super::keys::Keys;
use super::super::lease::Leases;
use super::*;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// Root, and `ann`, who may read [a, c) and write [b, d).
fn auth() -> Auth {
    let mut auth = Auth::default();
    for name in ["root", "ann"] {
        let hashed_password = "aGFzaA==".to_owned();
        auth.add_user(&pb::AuthUserAddRequest { name: name.into(), hashed_password, ..Default::default() }).unwrap();
    }
    auth.grant_role("root", "root").unwrap();
    auth.add_role("part").unwrap();
    grant(&mut auth, "a", "b", permission::Type::Read);
    grant(&mut auth, "b", "c", permission::Type::Readwrite);
    grant(&mut auth, "c", "d", permission::Type::Write);
    auth.grant_role("ann", "part").unwrap();
    auth.enable().unwrap();
    auth
}

fn grant(auth: &mut Auth, key: &'static str, range_end: &'static str, kind: permission::Type) {
    let perm = Some(Permission { perm_type: kind as i32, key: key.into(), range_end: range_end.into() });
    auth.grant_permission(&pb::AuthRoleGrantPermissionRequest { name: "part".into(), perm }).unwrap();
}

fn caller(auth: &Auth, user: &str) -> Caller {
    Caller::Client { user: user.into(), auth_revision: auth.revision() }
}

fn ann(access: Access<'_>) -> Result<(), Error> {
    let auth = auth();
    access.check(&auth, &Leases::default(), &caller(&auth, "ann"))
}

fn put(key: &'static str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), ..Default::default() }
}

fn txn(request: Operation) -> pb::TxnRequest {
    pb::TxnRequest { failure: vec![pb::RequestOp { request: Some(request) }], ..Default::default() }
}

const DENIED: Result<(), Error> = Err(Error::PermissionDenied);

#[test]
fn neighbouring_ranges_permit_what_spans_both_and_nothing_more() {
    assert_eq!(ann(Access::Read(Keys::new(b"a", b"c"))), Ok(()));
    assert_eq!(ann(Access::Read(Keys::new(b"azz", b""))), Ok(()));
    assert_eq!(ann(Access::Read(Keys::new(b"a", b"c\0"))), DENIED);
    assert_eq!(ann(Access::Read(Keys::new(b"Z", b"b"))), DENIED);
    assert_eq!(ann(Access::Read(Keys::new(b"c", b""))), DENIED);
    // A range that means no key is not free either.
    assert_eq!(ann(Access::Read(Keys::new(b"x", b"b"))), DENIED);
}

#[test]
fn a_watch_from_a_key_to_the_end_needs_all_keys_from_there() {
    // GHSA-xg4h-6gfc-h4m8: an open end was checked like a single key.
    assert_eq!(ann(Access::Read(Keys::new(b"a", b"\0"))), DENIED);
    let mut auth = auth();
    grant(&mut auth, "a", "\0", permission::Type::Read);
    let caller = caller(&auth, "ann");
    assert_eq!(Access::Read(Keys::new(b"a", b"\0")).check(&auth, &Leases::default(), &caller), Ok(()));
    assert_eq!(Access::Read(Keys::new(b"Z", b"\0")).check(&auth, &Leases::default(), &caller), DENIED);
}

#[test]
fn nested_transactions_are_checked_in_both_branches() {
    // GHSA-rfx7-8w68-q57q: operations of nested transactions were not looked at.
    let nested = |operation| txn(Operation::RequestTxn(txn(operation)));
    assert_eq!(ann(Access::Txn(&nested(Operation::RequestPut(put("b"))))), Ok(()));
    assert_eq!(ann(Access::Txn(&nested(Operation::RequestPut(put("a"))))), DENIED);
    let range = pb::RangeRequest { key: "c".into(), ..Default::default() };
    assert_eq!(ann(Access::Txn(&nested(Operation::RequestRange(range)))), DENIED);
    let delete = pb::DeleteRangeRequest { key: "b".into(), range_end: "e".into(), prev_kv: false };
    assert_eq!(ann(Access::Txn(&nested(Operation::RequestDeleteRange(delete)))), DENIED);
    let compare = vec![pb::Compare { key: "c".into(), ..Default::default() }];
    assert_eq!(ann(Access::Txn(&pb::TxnRequest { compare, ..Default::default() })), DENIED);
}

#[test]
fn seeing_what_was_before_needs_the_right_to_read() {
    // GHSA-x35m-3gp4-4fh5: prev_kv of puts and deletions in transactions.
    let put_c = pb::PutRequest { prev_kv: true, ..put("c") };
    assert_eq!((ann(Access::Put(&put("c"))), ann(Access::Put(&put_c))), (Ok(()), DENIED));
    assert_eq!(ann(Access::Txn(&txn(Operation::RequestPut(put_c)))), DENIED);
    let delete = |prev_kv| pb::DeleteRangeRequest { key: "c".into(), range_end: "".into(), prev_kv };
    assert_eq!((ann(Access::Delete(&delete(false))), ann(Access::Delete(&delete(true)))), (Ok(()), DENIED));
    assert_eq!(ann(Access::Txn(&txn(Operation::RequestDeleteRange(delete(true))))), DENIED);
}

#[test]
fn a_lease_with_keys_of_others_is_not_ones_own() {
    // Of the same advisory: whoever puts a key on a lease, or revokes it, decides over all its keys.
    let auth = auth();
    let mut leases = Leases::default();
    leases.grant(1, 10).unwrap();
    leases.move_key(b"b", 0, 1);
    let check = |leases: &Leases, access: Access<'_>| access.check(&auth, leases, &caller(&auth, "ann"));
    let on_lease = pb::PutRequest { lease: 1, ..put("b") };
    assert_eq!(check(&leases, Access::Put(&on_lease)), Ok(()));
    assert_eq!(check(&leases, Access::ControlLease(1)), Ok(()));
    leases.move_key(b"z", 0, 1);
    assert_eq!(check(&leases, Access::Put(&on_lease)), DENIED);
    assert_eq!(check(&leases, Access::Txn(&txn(Operation::RequestPut(on_lease)))), DENIED);
    for access in [Access::ControlLease(1), Access::SeeLease(1), Access::SeeLeases] {
        assert_eq!(check(&leases, access), DENIED);
        assert_eq!(access.check(&auth, &leases, &caller(&auth, "root")), Ok(()));
    }
}

#[test]
fn without_credentials_nothing_is_permitted() {
    // GHSA-q8m4-xhhv-38mg: some requests were answered to nobody in particular.
    let auth = auth();
    let (put, delete, txn) =
        (put("b"), pb::DeleteRangeRequest { key: "b".into(), ..Default::default() }, pb::TxnRequest::default());
    let all = [
        Access::Authenticated,
        Access::Administrate,
        Access::Read(Keys::One(b"b")),
        Access::Put(&put),
        Access::Delete(&delete),
        Access::Txn(&txn),
        Access::ControlLease(1),
        Access::SeeLease(1),
        Access::SeeLeases,
        Access::SeeUser("ann"),
        Access::SeeRole("part"),
    ];
    for access in all {
        assert_eq!(access.check(&auth, &Leases::default(), &Caller::NOBODY), Err(Error::UserEmpty), "{access:?}");
        assert_eq!(access.check(&Auth::default(), &Leases::default(), &Caller::NOBODY), Ok(()), "{access:?}");
        let root = caller(&auth, "root");
        assert_eq!(access.check(&auth, &Leases::default(), &root), Ok(()), "{access:?}");
    }
}

#[test]
fn administration_is_for_root_and_everybody_sees_itself() {
    assert_eq!(ann(Access::Administrate), DENIED);
    assert_eq!(ann(Access::Authenticated), Ok(()));
    assert_eq!((ann(Access::SeeUser("ann")), ann(Access::SeeUser("root"))), (Ok(()), DENIED));
    assert_eq!((ann(Access::SeeRole("part")), ann(Access::SeeRole("other"))), (Ok(()), DENIED));
}

#[test]
fn credentials_of_before_a_change_are_old() {
    let mut auth = auth();
    let before = caller(&auth, "ann");
    auth.add_role("new").unwrap();
    let read = Access::Read(Keys::One(b"a"));
    assert_eq!(read.check(&auth, &Leases::default(), &before), Err(Error::AuthOldRevision));
    assert_eq!(read.check(&auth, &Leases::default(), &caller(&auth, "ann")), Ok(()));
    assert_eq!(read.check(&auth, &Leases::default(), &caller(&auth, "gone")), DENIED);
}

#[test]
fn root_cannot_be_locked_out() {
    let mut auth = auth();
    assert_eq!(auth.delete_user("root"), Err(Error::InvalidAuthManagement));
    assert_eq!(auth.revoke_role("root", "root"), Err(Error::InvalidAuthManagement));
    assert_eq!(auth.delete_role("root"), Err(Error::InvalidAuthManagement));
    let mut empty = Auth::default();
    assert_eq!(empty.enable(), Err(Error::RootUserNotExist));
    empty.add_user(&pb::AuthUserAddRequest { name: "root".into(), ..Default::default() }).unwrap();
    assert_eq!(empty.enable(), Err(Error::RootRoleNotExist));
}

#[test]
fn what_a_role_permits_ends_with_the_role() {
    let mut auth = auth();
    auth.delete_role("part").unwrap();
    let caller = caller(&auth, "ann");
    assert_eq!(Access::Read(Keys::One(b"a")).check(&auth, &Leases::default(), &caller), DENIED);
    assert_eq!(auth.user("ann").map(|user| user.roles.len()), Ok(0));
}

fn issued(user: &str, token: &str) -> IssuedToken {
    IssuedToken { user: user.into(), token: token.into(), ttl_seconds: 10, auth_revision: 0 }
}

fn user_of(auth: &Auth, now_millis: u64) -> Option<&str> {
    auth.token("first", now_millis).map(|token| token.user.as_str())
}

/// With ten thousand sessions, each login copied all users and tokens on the thread that applies.
#[test]
fn a_login_copies_nothing_that_others_have() {
    let mut auth = auth();
    for number in 0..10_000 {
        auth.authenticate(&issued("ann", &number.to_string()), 1_000).unwrap();
    }
    let published = auth.clone();
    auth.authenticate(&issued("ann", "one more"), 2_000).unwrap();
    auth.renew_token(&issued("ann", "7"), 2_000);
    let shared = |before: &Auth, after: &Auth| {
        Arc::ptr_eq(&before.users, &after.users)
            && Arc::ptr_eq(&before.roles, &after.roles)
            && Arc::ptr_eq(&before.granted, &after.granted)
    };
    assert!(shared(&published, &auth));
    assert_eq!((published.tokens.len(), auth.tokens.len()), (10_000, 10_001));
    let ttl_millis = issued("ann", "").ttl_seconds * 1_000;
    assert!(auth.token("7", 1_000 + ttl_millis).is_some() && published.token("7", 1_000 + ttl_millis).is_none());
    // Those that have ended go with the next login.
    auth.authenticate(&issued("ann", "last"), 1_000 + ttl_millis).unwrap();
    assert_eq!(auth.tokens.len(), 3);
    auth.delete_user("ann").unwrap();
    assert_eq!(auth.tokens.len(), 0);
}

#[test]
fn tokens_live_for_a_while_and_die_with_the_password() {
    let mut auth = auth();
    let issued = issued("ann", "first");
    auth.authenticate(&issued, 1000).unwrap();
    assert_eq!(user_of(&auth, 10_999), Some("ann"));
    assert_eq!(user_of(&auth, 11_000), None);
    // One that is used lives on, but nobody else's, and not after its end.
    auth.renew_token(&IssuedToken { user: "root".into(), ..issued.clone() }, 5000);
    assert_eq!(user_of(&auth, 11_000), None);
    auth.renew_token(&issued, 5000);
    assert_eq!(user_of(&auth, 14_999), Some("ann"));
    auth.renew_token(&issued, 15_000);
    assert_eq!(user_of(&auth, 15_000), None);
    auth.authenticate(&issued, 20_000).unwrap();
    let hashed_password = "bmV3".to_owned();
    let change = pb::AuthUserChangePasswordRequest { name: "ann".into(), hashed_password, ..Default::default() };
    auth.change_password(&change).unwrap();
    auth.renew_token(&issued, 21_000);
    assert_eq!(user_of(&auth, 21_000), None);
    assert_eq!(auth.password("ann").map(|(hash, _)| &hash[..]), Ok(&b"new"[..]));
    assert_eq!(auth.authenticate(&super::tests::issued("nobody", "t"), 0), Err(Error::AuthFailed));
    auth.disable();
    assert_eq!((user_of(&auth, 0), auth.password("ann")), (None, Err(Error::AuthNotEnabled)));
}

/// A login that had checked the old password had its token after the change, and used it for ever.
#[test]
fn a_password_that_was_changed_while_it_was_checked_makes_no_token() {
    let mut auth = auth();
    let checked = IssuedToken { auth_revision: auth.revision(), ..issued("ann", "first") };
    let hashed_password = "bmV3".to_owned();
    let change = pb::AuthUserChangePasswordRequest { name: "ann".into(), hashed_password, ..Default::default() };
    auth.change_password(&change).unwrap();
    assert_eq!(auth.authenticate(&checked, 1000), Err(Error::AuthOldRevision));
    assert_eq!(user_of(&auth, 1000), None);
    let checked = IssuedToken { auth_revision: auth.revision(), ..checked };
    assert_eq!(auth.authenticate(&checked, 1000), Ok(()));
    // As an earlier release wrote it.
    auth.authenticate(&issued("ann", "first"), 2000).unwrap();
    assert_eq!(user_of(&auth, 2000), Some("ann"));
}

#[test]
fn a_permission_is_changed_where_it_stands() {
    let mut auth = auth();
    grant(&mut auth, "a", "b", permission::Type::Write);
    assert_eq!(auth.role("part").map(|permissions| permissions.len()), Ok(3));
    let revoke = |key: &'static str| pb::AuthRoleRevokePermissionRequest {
        role: "part".into(),
        key: key.into(),
        range_end: "b".into(),
    };
    assert_eq!(auth.revoke_permission(&revoke("a")), Ok(()));
    assert_eq!(auth.revoke_permission(&revoke("a")), Err(Error::PermissionNotGranted));
    let bad = |key: &'static str, range_end: &'static str| pb::AuthRoleGrantPermissionRequest {
        name: "part".into(),
        perm: Some(Permission { perm_type: 0, key: key.into(), range_end: range_end.into() }),
    };
    assert_eq!(auth.grant_permission(&bad("", "b")), Err(Error::InvalidAuthManagement));
    assert_eq!(auth.grant_permission(&bad("b", "a")), Err(Error::InvalidAuthManagement));
}

#[test]
fn a_password_in_the_clear_is_not_taken() {
    let request = pb::AuthUserAddRequest { name: "ann".into(), password: "secret".into(), ..Default::default() };
    assert_eq!(Auth::default().add_user(&request), Err(Error::MalformedCommand));
}
