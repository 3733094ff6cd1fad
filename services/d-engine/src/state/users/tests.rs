//! Each kind of operation with and without permission, decided where it is applied.

use d_engine_client::{Compare, Condition, OperationResult, Stamp};
use proptest::prelude::*;

use super::*;
use crate::state::{Command, Memory, Outcome, State, write_rows};

#[test]
fn a_row_stays_as_it_is() {
    let grants = [("".into(), Access::READ), ("a/".into(), Access::WRITE), ("b".into(), Access::BOTH)];
    for is_admin in [false, true] {
        let user = User { is_admin, since: 7, hash: "h".into(), grants: grants.clone().into() };
        assert_eq!(User::decode(&user.encode()), Ok(user));
    }
    assert!(User::decode(&Bytes::from_static(&[2])).is_err());
}

#[test]
fn a_range_is_covered_by_one_prefix_or_not_at_all() {
    let user = |prefix: &'static str| User { grants: [(Bytes::from(prefix), Access::READ)].into(), ..User::default() };
    let may = |prefix, start: &str, end: Option<&str>| {
        user(prefix).may(start.as_bytes(), end.map(str::as_bytes), Access::READ)
    };
    assert!(may("a/", "a/", Some("a0")), "exactly the prefix");
    assert!(may("a/", "a/b", Some("a/c")));
    assert!(!may("a/", "a/", Some("a1")), "wider at the end");
    assert!(!may("a/", "a", Some("a0")), "wider at the beginning");
    assert!(!may("a/", "a/", None), "to the end of all keys");
    assert!(may("", "", None), "the empty prefix is that of all keys");
    assert!(!user("a/").may(b"a/b", Some(b"a/c"), Access::WRITE));
}

/// A state with users, and the index of its next entry.
struct World {
    state: State<Memory>,
    index: u64,
}

impl World {
    /// Root administers; anna may write and read what begins with a/, and read what begins with r/.
    fn new() -> Self {
        let mut world = Self { state: State::new(Memory::default()).unwrap(), index: 1 };
        for (name, is_admin) in [("root", true), ("anna", false), ("ben", false)] {
            world
                .change(&Principal::Nobody, UserChange::Add { name: name.into(), hash: "h".into(), is_admin })
                .unwrap();
        }
        world.grant("anna", "a/", Access::BOTH);
        world.grant("anna", "r/", Access::READ);
        world.grant("anna", "w/", Access::WRITE);
        world.grant("ben", "a/", Access::BOTH);
        for key in ["a/1", "r/1", "w/1", "x/1"] {
            let put = Operation::Put { key: key.into(), value: "1".into(), ttl_millis: 0 };
            world.write(&Principal::Process, Transaction::of(put)).unwrap();
        }
        world.change(&Principal::Nobody, UserChange::Enable(true)).unwrap();
        world
    }

    fn apply(&mut self, command: &Command) -> Outcome {
        // As other members have it: by its bytes.
        let applied = self.state.apply(self.index, 1, 1_000, command.encode()).unwrap();
        self.index += 1;
        self.state.commit(self.index - 1).unwrap();
        applied.outcome
    }

    fn change(&mut self, who: &Principal, change: UserChange) -> Outcome {
        self.apply(&Command::Users(who.clone(), change))
    }

    fn grant(&mut self, name: &'static str, prefix: &'static str, access: Access) {
        let root = self.root();
        self.change(&root, UserChange::Grant { name: name.into(), prefix: prefix.into(), access }).unwrap();
    }

    fn user(&self, name: &'static str) -> Principal {
        let since = self.state.users().all().get(name.as_bytes()).map_or(0, |user| user.since);
        Principal::User { name: name.into(), since }
    }

    fn root(&self) -> Principal {
        self.user("root")
    }

    fn write(&mut self, who: &Principal, transaction: Transaction) -> Outcome {
        self.stamped(who, transaction, None)
    }

    fn stamped(&mut self, who: &Principal, transaction: Transaction, stamp: Option<Stamp>) -> Outcome {
        let write = Command::Write(transaction, stamp);
        match who {
            Principal::Nobody => self.apply(&write),
            who => self.apply(&Command::As(who.clone(), Box::new(write))),
        }
    }

    fn one(&mut self, who: &Principal, operation: Operation) -> Outcome {
        self.write(who, Transaction::of(operation))
    }

    /// All of it, to see that nothing has changed.
    fn rows(&self) -> Vec<u8> {
        let mut rows = Vec::new();
        write_rows(&*self.state.view(), &mut rows).unwrap();
        rows
    }
}

fn put(key: &'static str) -> Operation {
    Operation::Put { key: key.into(), value: "2".into(), ttl_millis: 0 }
}

fn add(key: &'static str) -> Operation {
    Operation::Add { key: key.into(), delta: 1 }
}

fn get(key: &'static str) -> Operation {
    Operation::Get { key: key.into() }
}

fn delete(key: &'static str) -> Operation {
    Operation::Delete { key: key.into() }
}

#[test]
fn a_lease_is_not_kept_or_revoked_by_who_may_not_write_its_keys_any_more() {
    let mut world = World::new();
    let (root, anna) = (world.root(), world.user("anna"));
    let lease = world.index;
    world.one(&anna, Operation::Grant { ttl_millis: 60_000 }).unwrap();
    for key in ["a/1", "a/9", "w/1"] {
        world.one(&anna, Operation::Attach { key: key.into(), lease }).unwrap();
    }
    let both = [Operation::KeepAlive { lease }, Operation::Revoke { lease }];
    world.change(&root, UserChange::Revoke { name: "anna".into(), prefix: "a/".into() }).unwrap();
    let before = world.rows();
    for operation in &both {
        assert_eq!(world.one(&anna, operation.clone()), Err(Refusal::Denied), "it has keys that others may write");
    }
    // What it may write with is left, and none of it.
    world.change(&root, UserChange::Grant { name: "anna".into(), prefix: "a/".into(), access: Access::READ }).unwrap();
    world.change(&root, UserChange::Revoke { name: "anna".into(), prefix: "w/".into() }).unwrap();
    for operation in &both {
        assert_eq!(world.one(&anna, operation.clone()), Err(Refusal::Denied));
        assert_eq!(world.one(&anna, put("a/1")), Err(Refusal::Denied));
    }
    assert_ne!(world.rows(), before, "the grants have changed");
    world.grant("anna", "", Access::WRITE);
    for operation in both {
        assert!(world.one(&anna, operation).is_ok());
    }
}

#[test]
fn a_change_of_one_user_copies_no_other() {
    let mut world = World::new();
    let before = Arc::clone(world.state.users());
    world.grant("ben", "b/", Access::READ);
    let after = world.state.users();
    let is_same = |name: &[u8]| Arc::ptr_eq(&before.all()[name], &after.all()[name]);
    assert_eq!([is_same(b"anna"), is_same(b"root"), is_same(b"ben")], [true, true, false]);
}

#[test]
fn each_kind_of_operation_takes_its_permission() {
    let mut world = World::new();
    let anna = world.user("anna");
    for allowed in [put("a/2"), put("w/2"), add("a/1"), get("a/1"), get("r/1"), delete("w/2"), delete("a/2")] {
        assert!(world.one(&anna, allowed.clone()).is_ok(), "{allowed:?}");
    }
    let before = world.rows();
    let denied = [
        put("x/1"),
        put("r/1"),
        put("a"),
        add("x/1"),
        add("r/1"),
        add("w/1"),
        get("x/1"),
        get("w/1"),
        delete("x/1"),
        delete("r/1"),
    ];
    for denied in denied {
        assert_eq!(world.one(&anna, denied.clone()), Err(Refusal::Denied), "{denied:?}");
    }
    assert!(world.rows() == before, "what was denied has done nothing");
    // Who is nobody may do nothing, and the program itself and administrators everything.
    assert_eq!(world.one(&Principal::Nobody, get("a/1")), Err(Refusal::Denied));
    for who in [Principal::Process, world.root()] {
        assert!(world.one(&who, add("x/1")).is_ok(), "{who:?}");
    }
}

#[test]
fn one_forbidden_branch_or_compare_forbids_a_transaction() {
    let mut world = World::new();
    let anna = world.user("anna");
    let exists = |key: &'static str| Compare { key: key.into(), condition: Condition::Exists(true) };
    let whole = |compared, then, otherwise| Transaction {
        compares: vec![exists(compared)],
        then: vec![then],
        otherwise: vec![otherwise],
    };
    assert!(world.write(&anna, whole("r/1", put("a/1"), put("w/1"))).is_ok());
    let before = world.rows();
    // The branch that would not be taken counts, too: what is taken would tell what is not to be read.
    for forbidden in [
        whole("r/1", put("a/1"), put("x/1")),
        whole("r/1", put("x/1"), put("a/1")),
        whole("x/1", put("a/1"), put("a/1")),
        whole("w/1", put("a/1"), put("a/1")),
    ] {
        assert_eq!(world.write(&anna, forbidden.clone()), Err(Refusal::Denied), "{forbidden:?}");
    }
    assert!(world.rows() == before);
}

#[test]
fn a_lease_is_its_owners() {
    let mut world = World::new();
    let (anna, ben, root) = (world.user("anna"), world.user("ben"), world.root());
    let lease = world.index;
    let granted = world.one(&anna, Operation::Grant { ttl_millis: 5_000 }).unwrap();
    assert!(matches!(granted.results[..], [OperationResult::Lease(Some(_))]));
    let attach = |key: &'static str| Operation::Attach { key: key.into(), lease };
    for (who, operation) in [
        (&ben, attach("a/1")),
        (&ben, Operation::KeepAlive { lease }),
        (&ben, Operation::Revoke { lease }),
        (&anna, attach("x/1")),
        (&Principal::Nobody, Operation::Revoke { lease }),
    ] {
        assert_eq!(world.one(who, operation.clone()), Err(Refusal::Denied), "{who:?} {operation:?}");
    }
    assert!(world.one(&anna, attach("a/1")).is_ok());
    assert!(world.one(&anna, Operation::KeepAlive { lease }).is_ok());
    // Kept alive by whom it is, it stays that one's.
    assert_eq!(world.one(&ben, Operation::Revoke { lease }), Err(Refusal::Denied));
    assert!(world.one(&root, Operation::Revoke { lease }).is_ok());
    // One that is not there is nobody's.
    assert!(world.one(&ben, Operation::Revoke { lease }).is_ok());
}

#[test]
fn a_session_is_its_owners_and_its_answers_are() {
    let mut world = World::new();
    let (anna, ben) = (world.user("anna"), world.user("ben"));
    let session = world.index;
    world.apply(&Command::As(anna.clone(), Box::new(Command::OpenSession))).unwrap();
    assert_eq!(world.apply(&Command::OpenSession), Err(Refusal::Denied), "nobody opens none");
    let stamp = Some(Stamp { session, sequence: 1, awaited_from: 1 });
    let read = Transaction::of(get("a/1"));
    let first = world.stamped(&anna, read.clone(), stamp).unwrap();
    assert_eq!(world.stamped(&ben, read.clone(), stamp), Err(Refusal::NoSession), "it is another one's answer");
    let close = |who: &Principal| Command::As(who.clone(), Box::new(Command::CloseSession(session)));
    assert_eq!(world.apply(&close(&ben)), Err(Refusal::NoSession));
    // What was answered is answered again, also after the permission is gone; what is new is not done, once and for all.
    world.change(&Principal::Process, UserChange::Revoke { name: "anna".into(), prefix: "a/".into() }).unwrap();
    assert_eq!(world.stamped(&anna, read.clone(), stamp), Ok(first));
    let next = Some(Stamp { session, sequence: 2, awaited_from: 1 });
    for _ in 0..2 {
        assert_eq!(world.stamped(&anna, Transaction::of(put("a/1")), next), Err(Refusal::Denied));
        world.grant("anna", "a/", Access::BOTH);
    }
    world.apply(&close(&anna)).unwrap();
}

#[test]
fn a_name_given_anew_inherits_no_session_no_answer_and_no_lease() {
    let mut world = World::new();
    let (anna, root) = (world.user("anna"), world.root());
    let (session, lease) = (world.index, world.index + 1);
    world.apply(&Command::As(anna.clone(), Box::new(Command::OpenSession))).unwrap();
    world.one(&anna, Operation::Grant { ttl_millis: 60_000 }).unwrap();
    world.one(&anna, Operation::Attach { key: "a/1".into(), lease }).unwrap();
    let stamp = Some(Stamp { session, sequence: 1, awaited_from: 1 });
    world.stamped(&anna, Transaction::of(get("a/1")), stamp).unwrap();
    world.change(&root, UserChange::Remove { name: "anna".into() }).unwrap();
    let add = UserChange::Add { name: "anna".into(), hash: "i".into(), is_admin: false };
    world.change(&root, add).unwrap();
    let other = world.user("anna");
    assert_eq!(world.stamped(&other, Transaction::of(get("x/1")), stamp), Err(Refusal::NoSession));
    for operation in [Operation::Revoke { lease }, Operation::KeepAlive { lease }] {
        assert_eq!(world.one(&other, operation.clone()), Err(Refusal::Denied), "{operation:?}");
    }
    // What was hers ends with the next entry that ends what is over.
    world.apply(&Command::Expire).unwrap();
    assert_eq!(world.state.sessions(), 0);
    assert_eq!(world.one(&root, Operation::KeepAlive { lease }).unwrap().results, [OperationResult::Lease(None)]);
    assert_eq!(world.one(&root, get("a/1")).unwrap().results, [OperationResult::Got(None)]);
}

#[test]
fn one_user_does_not_take_all_sessions_and_leases() {
    let mut world = World::new();
    let (anna, ben, root) = (world.user("anna"), world.user("ben"), world.root());
    let open =
        |world: &mut World, who: &Principal| world.apply(&Command::As(who.clone(), Box::new(Command::OpenSession)));
    let grant = Operation::Grant { ttl_millis: 60_000 };
    let session = world.index;
    for _ in 0..4_096 {
        open(&mut world, &anna).unwrap();
    }
    assert!(open(&mut world, &anna).is_err());
    let lease = world.index;
    for _ in 0..10_000 {
        world.one(&anna, grant.clone()).unwrap();
    }
    assert!(world.one(&anna, grant.clone()).is_err());
    // Others have room, and so does she when something of hers has ended; also at a member that took a snapshot in.
    let mut copy = State::new(Memory::default()).unwrap();
    copy.restore(&mut world.rows().as_slice()).unwrap();
    world.state = copy;
    for who in [&ben, &root] {
        open(&mut world, who).unwrap();
        world.one(who, grant.clone()).unwrap();
    }
    assert!(open(&mut world, &anna).is_err() && world.one(&anna, grant.clone()).is_err());
    world.apply(&Command::As(anna.clone(), Box::new(Command::CloseSession(session)))).unwrap();
    world.one(&anna, Operation::Revoke { lease }).unwrap();
    open(&mut world, &anna).unwrap();
    world.one(&anna, grant).unwrap();
}

#[test]
fn who_may_write_nothing_has_no_session_and_no_lease() {
    let mut world = World::new();
    let root = world.root();
    world.change(&root, UserChange::Add { name: "guest".into(), hash: "h".into(), is_admin: false }).unwrap();
    world.grant("guest", "r/", Access::READ);
    let guest = world.user("guest");
    let open = Command::As(guest.clone(), Box::new(Command::OpenSession));
    let grant = Operation::Grant { ttl_millis: 60_000 };
    assert_eq!(world.apply(&open), Err(Refusal::Denied));
    assert_eq!(world.one(&guest, grant.clone()), Err(Refusal::Denied));
    world.grant("guest", "w/", Access::WRITE);
    assert!(world.apply(&open).is_ok() && world.one(&guest, grant).is_ok());
}

#[test]
fn scans_and_watches_are_within_a_prefix() {
    let world = World::new();
    let (users, anna) = (world.state.users(), world.user("anna"));
    let scan = |prefix: &'static str| Query::Scan(Scan::prefix(prefix));
    for (query, is_allowed) in [
        (scan("a/"), true),
        (scan("a/1"), true),
        (scan("a"), false),
        (scan(""), false),
        (scan("w/"), false),
        (Query::Scan(Scan { end: None, ..Scan::prefix("a/") }), false),
        (Query::Get("a/1".into()), true),
        (Query::Get("x/1".into()), false),
        (Query::GetMany(vec!["a/1".into(), "r/1".into()]), true),
        (Query::GetMany(vec!["a/1".into(), "x/1".into()]), false),
    ] {
        assert_eq!(users.may_read(&anna, &query), is_allowed, "{query:?}");
        assert!(users.may_read(&world.root(), &query) && !users.may_read(&Principal::Nobody, &query), "{query:?}");
    }
    assert!(users.may_watch(&anna, b"a/", Some(b"a0")) && users.may_watch(&anna, b"a/1", None));
    assert!(!users.may_watch(&anna, b"a/", Some(b"b")) && !users.may_watch(&anna, b"x", None));
}

#[test]
fn who_is_removed_or_has_another_password_is_somebody_else() {
    let mut world = World::new();
    let (anna, root) = (world.user("anna"), world.root());
    let again = UserChange::Password { name: "anna".into(), hash: "i".into() };
    assert_eq!(world.change(&world.user("ben"), again.clone()), Err(Refusal::Denied));
    world.change(&anna, again).unwrap();
    assert!(!world.state.users().knows(&anna), "its own password is everybody's to change");
    assert_eq!(world.one(&anna, get("a/1")), Err(Refusal::Denied));
    let anna = world.user("anna");
    assert!(world.one(&anna, get("a/1")).is_ok(), "what it may do stays");
    world.change(&root, UserChange::Remove { name: "anna".into() }).unwrap();
    world.change(&root, UserChange::Add { name: "anna".into(), hash: "i".into(), is_admin: true }).unwrap();
    assert_eq!(world.one(&anna, get("a/1")), Err(Refusal::Denied), "another one of that name");
}

#[test]
fn there_is_always_somebody_who_administers() {
    let mut empty = World { state: State::new(Memory::default()).unwrap(), index: 1 };
    assert_eq!(empty.change(&Principal::Nobody, UserChange::Enable(true)), Err(Refusal::NoAdmin));
    let mut world = World::new();
    let root = world.root();
    assert_eq!(world.change(&root, UserChange::Remove { name: "root".into() }), Err(Refusal::NoAdmin));
    let anna = world.user("anna");
    for change in [
        UserChange::Enable(false),
        UserChange::Grant { name: "anna".into(), prefix: "".into(), access: Access::BOTH },
        UserChange::Add { name: "eve".into(), hash: "h".into(), is_admin: true },
    ] {
        for who in [&anna, &Principal::Nobody] {
            assert_eq!(world.change(who, change.clone()), Err(Refusal::Denied), "{change:?}");
        }
    }
    assert_eq!(world.change(&root, UserChange::Remove { name: "eve".into() }), Err(Refusal::NoUser));
    let again = UserChange::Add { name: "anna".into(), hash: "h".into(), is_admin: false };
    assert_eq!(world.change(&root, again), Err(Refusal::UserExists));
    assert_eq!(
        world.change(&root, UserChange::Revoke { name: "anna".into(), prefix: "a".into() }),
        Err(Refusal::NoGrant)
    );
    world.change(&root, UserChange::Enable(false)).unwrap();
    assert!(world.one(&Principal::Nobody, put("x/1")).is_ok());
}

#[test]
fn a_snapshot_has_the_users_and_one_without_is_as_it_was_before_there_were_any() {
    let world = World::new();
    let mut copy = State::new(Memory::default()).unwrap();
    copy.restore(&mut world.rows().as_slice()).unwrap();
    assert_eq!(copy.users(), world.state.users());
    let mut none = Vec::new();
    write_rows(&*State::new(Memory::default()).unwrap().view(), &mut none).unwrap();
    assert_eq!(&none[..], b"storebench-d-engine-2\n\0\0\0\0\0\0\0\0\0");
}

fn principal() -> impl Strategy<Value = Principal> {
    prop_oneof![
        Just(Principal::Nobody),
        Just(Principal::Process),
        ("[a-z]{0,3}", any::<u64>()).prop_map(|(name, since)| Principal::User { name: name.into(), since }),
    ]
}

fn change() -> impl Strategy<Value = UserChange> {
    let text = || "[a-z]{0,3}".prop_map(Bytes::from);
    prop_oneof![
        (text(), text(), any::<bool>()).prop_map(|(name, hash, is_admin)| UserChange::Add { name, hash, is_admin }),
        (text(), text()).prop_map(|(name, hash)| UserChange::Password { name, hash }),
        text().prop_map(|name| UserChange::Remove { name }),
        text().prop_map(|name| UserChange::RemoveAlone { name }),
        (text(), text(), 1_u8..4).prop_map(|(name, prefix, access)| {
            UserChange::Grant { name, prefix, access: Access::of(access).unwrap() }
        }),
        (text(), text()).prop_map(|(name, prefix)| UserChange::Revoke { name, prefix }),
        any::<bool>().prop_map(UserChange::Enable),
    ]
}

proptest! {
    #[test]
    fn changes_stay_as_they_are(who in principal(), change in change()) {
        let command = Command::Users(who.clone(), change);
        prop_assert_eq!(Command::decode(command.encode()), Ok(command));
        if who != Principal::Nobody {
            let command = Command::As(who.clone(), Box::new(Command::CloseSession(7)));
            prop_assert_eq!(Command::decode(command.encode()), Ok(command.clone()));
            // On behalf of somebody who is on behalf of somebody is no command.
            let twice = Command::As(who, Box::new(command));
            prop_assert!(Command::decode(twice.encode()).is_err());
        }
    }
}
