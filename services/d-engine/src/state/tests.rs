//! The state against a model that is too simple to be wrong.

mod of_memory;
mod of_releases;
mod of_sessions;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use d_engine_client::{
    Applied as Results, Compare, Condition, KeyValue, Lease, Operation, OperationResult, Query, Scan, Stamp,
    Transaction,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::command::{Command, CommandError};
use super::*;

/// Few keys, so that they meet.
fn key() -> impl Strategy<Value = Bytes> {
    vec(prop_oneof![Just(0), Just(b'a'), Just(u8::MAX)], 0..3).prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(Bytes::from("1")), Just(Bytes::from("-2")), vec(any::<u8>(), 0..4).prop_map(Bytes::from)]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (key(), value(), prop_oneof![Just(0), 1_u64..50])
            .prop_map(|(key, value, ttl_millis)| Operation::Put { key, value, ttl_millis }),
        2 => key().prop_map(|key| Operation::Delete { key }),
        1 => key().prop_map(|key| Operation::Get { key }),
        1 => (key(), -3_i64..3).prop_map(|(key, delta)| Operation::Add { key, delta }),
        2 => (key(), 1_u64..9).prop_map(|(key, lease)| Operation::Attach { key, lease }),
        1 => (1_u64..50).prop_map(|ttl_millis| Operation::Grant { ttl_millis }),
        1 => (1_u64..9).prop_map(|lease| Operation::KeepAlive { lease }),
        1 => (1_u64..9).prop_map(|lease| Operation::Revoke { lease }),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    let condition = prop_oneof![
        value().prop_map(Condition::ValueIs),
        any::<bool>().prop_map(Condition::Exists),
        (0_u64..20).prop_map(Condition::RevisionIs),
        (0_u64..20).prop_map(Condition::RevisionBelow),
        (0_u64..20).prop_map(Condition::RevisionAbove),
    ];
    (key(), condition).prop_map(|(key, condition)| Compare { key, condition })
}

fn transaction() -> impl Strategy<Value = Transaction> {
    (vec(compare(), 0..2), vec(operation(), 0..4), vec(operation(), 0..2))
        .prop_map(|(compares, then, otherwise)| Transaction { compares, then, otherwise })
}

fn place(host: &str) -> Place {
    Place { client: host.to_owned().into(), peer: "p".into() }
}

fn command() -> impl Strategy<Value = Command> {
    let stamp = (1_u64..6, 1_u64..6, 0_u64..7);
    let stamp = stamp.prop_map(|(session, sequence, awaited_from)| Stamp { session, sequence, awaited_from });
    prop_oneof![
        6 => (transaction(), option::weighted(0.3, stamp.clone()))
            .prop_map(|(write, stamp)| Command::Write(write, stamp)),
        // Where users are not asked for, it is all the same on whose behalf.
        2 => (any::<bool>(), transaction(), option::weighted(0.3, stamp)).prop_map(|(is_user, write, stamp)| {
            let who = if is_user { Principal::User { name: "u".into(), since: 1 } } else { Principal::Process };
            Command::As(who, Box::new(Command::Write(write, stamp)))
        }),
        1 => Just(Command::OpenSession),
        1 => (1_u64..6).prop_map(Command::CloseSession),
        2 => Just(Command::Expire),
        1 => (0_u64..400).prop_map(Command::Renew),
        1 => (1_u64..4).prop_map(Command::Serial),
        1 => vec(1_u64..4, 0..3).prop_map(Command::Seen),
        1 => (1_u64..4, "[a-c]{0,2}").prop_map(|(member, host)| Command::Place(member, place(&host))),
        1 => (1_u64..4).prop_map(Command::Leave),
    ]
}

/// What a key has: value, revision, end, lease.
type Row = (Bytes, u64, u64, u64);

#[derive(Clone, Debug, Default)]
struct Model {
    keys: BTreeMap<Bytes, Row>,
    /// Leases: time to live, and end.
    leases: BTreeMap<u64, (u64, u64)>,
    /// Sessions: awaited from, and answers.
    sessions: BTreeMap<u64, (u64, BTreeMap<u64, Applied>)>,
    removed: BTreeSet<u64>,
}

impl Model {
    fn apply(&mut self, index: u64, time: u64, command: &Command) -> Applied {
        let applied = |outcome| Applied { index, term: 1, outcome };
        let nothing = applied(Ok(Results { succeeded: true, results: Vec::new() }));
        match command {
            Command::Write(transaction, None) => applied(self.transact(index, time, transaction)),
            Command::Write(transaction, Some(stamp)) => {
                let Some((awaited_from, answers)) = self.sessions.get_mut(&stamp.session) else {
                    return applied(Err(Refusal::NoSession));
                };
                if stamp.sequence < *awaited_from {
                    return applied(Err(Refusal::Forgotten));
                }
                if let Some(before) = answers.get(&stamp.sequence) {
                    return before.clone();
                }
                *awaited_from = stamp.awaited_from.clamp(*awaited_from, stamp.sequence);
                let forgotten = *awaited_from;
                answers.retain(|sequence, _| *sequence >= forgotten);
                let applied = applied(self.transact(index, time, transaction));
                if let Some((_, answers)) = self.sessions.get_mut(&stamp.session) {
                    answers.insert(stamp.sequence, applied.clone());
                }
                applied
            }
            Command::OpenSession => {
                self.sessions.insert(index, (1, BTreeMap::new()));
                nothing
            }
            Command::CloseSession(session) => {
                self.sessions.remove(session);
                nothing
            }
            Command::Expire => {
                self.leases.retain(|_, (_, end)| *end > time);
                let leases = &self.leases;
                self.keys.retain(|_, (_, _, end, lease)| {
                    (*end == 0 || *end > time) && (*lease == 0 || leases.contains_key(lease))
                });
                nothing
            }
            Command::Renew(since) => {
                self.leases.values_mut().for_each(|(ttl, end)| *end = (*end).max((*since).min(time) + *ttl));
                nothing
            }
            Command::Seen(_) | Command::Serial(_) => nothing,
            // Users are not asked for here; see `users`.
            Command::As(_, command) => self.apply(index, time, command),
            Command::Users(..) => panic!("nobody makes one"),
            Command::Place(member, _) if self.removed.contains(member) => applied(Err(Refusal::MemberRemoved)),
            Command::Place(..) => nothing,
            Command::Leave(member) => {
                self.removed.insert(*member);
                nothing
            }
        }
    }

    fn transact(&mut self, index: u64, time: u64, transaction: &Transaction) -> Outcome {
        let succeeded = transaction.compares.iter().all(|Compare { key, condition }| {
            let row = self.keys.get(key);
            let revision = row.map_or(0, |(_, revision, ..)| *revision);
            match condition {
                Condition::ValueIs(value) => row.is_some_and(|(is, ..)| is == value),
                Condition::Exists(exists) => row.is_some() == *exists,
                Condition::RevisionIs(other) => revision == *other,
                Condition::RevisionBelow(other) => revision < *other,
                Condition::RevisionAbove(other) => revision > *other,
            }
        });
        let (mut keys, mut leases) = (self.keys.clone(), self.leases.clone());
        let mut results = Vec::new();
        for operation in if succeeded { &transaction.then } else { &transaction.otherwise } {
            results.push(match operation.clone() {
                Operation::Put { key, value, ttl_millis } => {
                    let end = if ttl_millis == 0 { 0 } else { time + ttl_millis };
                    keys.insert(key, (value, index, end, 0));
                    OperationResult::Put
                }
                Operation::Delete { key } => OperationResult::Deleted(keys.remove(&key).is_some()),
                Operation::Get { key } => OperationResult::Got(keys.get(&key).map(|row| item(&key, row))),
                Operation::Add { key, delta } => {
                    let (before, _, end, lease) = keys.get(&key).cloned().unwrap_or(("0".into(), 0, 0, 0));
                    let number = std::str::from_utf8(&before).ok().and_then(|text| text.parse::<i64>().ok());
                    let sum = number.ok_or(Refusal::NotACounter)? + delta;
                    keys.insert(key, (sum.to_string().into(), index, end, lease));
                    OperationResult::Sum(sum)
                }
                Operation::Attach { key, lease } => {
                    leases.get(&lease).ok_or(Refusal::NoLease)?;
                    let row = keys.get_mut(&key);
                    OperationResult::Attached(row.map(|row| (row.1, row.3) = (index, lease)).is_some())
                }
                Operation::Grant { ttl_millis } => {
                    leases.insert(index, (ttl_millis, time + ttl_millis));
                    OperationResult::Lease(Some(Lease { number: index, ttl_millis, expires_millis: time + ttl_millis }))
                }
                Operation::KeepAlive { lease } => OperationResult::Lease(leases.get_mut(&lease).map(|(ttl, end)| {
                    *end = time + *ttl;
                    Lease { number: lease, ttl_millis: *ttl, expires_millis: *end }
                })),
                Operation::Revoke { lease } => {
                    keys.retain(|_, row| row.3 != lease);
                    OperationResult::Revoked(leases.remove(&lease).is_some())
                }
            });
        }
        (self.keys, self.leases) = (keys, leases);
        Ok(Results { succeeded, results })
    }
}

fn item(key: &Bytes, (value, revision, expires_millis, lease): &Row) -> KeyValue {
    let (revision, expires_millis, lease) = (*revision, *expires_millis, *lease);
    KeyValue { key: key.clone(), value: value.clone(), revision, expires_millis, lease }
}

fn state() -> State<Memory> {
    State::new(Memory::default()).unwrap()
}

fn bytes_of(state: &State<Memory>) -> Vec<u8> {
    let mut bytes = Vec::new();
    state.snapshot()(&mut bytes).unwrap();
    bytes
}

fn everything() -> Query {
    Query::Scan(Scan { limit: 1000, ..Scan::default() })
}

proptest! {
    #[test]
    fn the_state_does_what_the_model_does(commands in vec((command(), 0_u64..30), 0..40), cut in any::<prop::sample::Index>()) {
        let (mut model, mut state) = (Model::default(), state());
        let mut time = 0;
        let restored_at = cut.index(commands.len() + 1);
        for (at, (command, passed)) in commands.iter().enumerate() {
            if at == restored_at {
                // A member that gets a snapshot goes on as the others do.
                let bytes = bytes_of(&state);
                state = State::new(Memory::default()).unwrap();
                state.restore(&mut bytes.as_slice()).unwrap();
                state.commit(at as u64).unwrap();
                prop_assert_eq!(bytes_of(&state), bytes);
            }
            let index = at as u64 + 1;
            time += passed;
            let applied = state.apply(index, 1, time, command.encode()).unwrap();
            prop_assert_eq!(applied, model.apply(index, time, command), "{:?}", command);
            state.commit(index).unwrap();
            let items: Vec<_> = model.keys.iter().map(|(key, row)| item(key, row)).collect();
            prop_assert_eq!(answer(&*state.view(), &everything()).unwrap().items, items);
            let ends = model.keys.values().map(|(_, _, end, _)| *end).filter(|end| *end > 0);
            let next = ends.chain(model.leases.values().map(|(_, end)| *end)).min();
            let told = next_expiry(&*state.view()).unwrap();
            prop_assert!(next.is_none_or(|next| told.is_some_and(|told| told <= next)));
        }
    }

    #[test]
    fn changes_make_what_readers_see(commands in vec((command(), 0_u64..30), 0..40)) {
        let mut state = state();
        let mut followed = BTreeMap::new();
        let mut time = 0;
        for (at, (command, passed)) in commands.iter().enumerate() {
            time += passed;
            state.apply(at as u64 + 1, 1, time, command.encode()).unwrap();
            for Change { kind, key, value, revision, previous } in state.take_changes().0 {
                prop_assert_eq!(revision, at as u64 + 1);
                prop_assert_eq!(followed.get(&key), previous.as_ref());
                match kind {
                    ChangeKind::Put => drop(followed.insert(key, value)),
                    ChangeKind::Delete | ChangeKind::Expire => drop(followed.remove(&key)),
                }
            }
        }
        state.commit(commands.len() as u64).unwrap();
        let seen = answer(&*state.view(), &everything()).unwrap().items;
        let seen: BTreeMap<_, _> = seen.into_iter().map(|item| (item.key, item.value)).collect();
        prop_assert_eq!(followed, seen);
    }

    #[test]
    fn pages_are_together_what_is_in_the_range(
        keys in vec(key(), 0..20), start in key(), end in option::of(key()), limit in 1_u32..5,
    ) {
        let mut state = state();
        for (at, key) in keys.iter().enumerate() {
            state.apply(at as u64 + 1, 1, 0, Command::Write(Transaction::put(key.clone(), "v"), None).encode()).unwrap();
        }
        state.commit(keys.len() as u64).unwrap();
        let mut scan = Scan { start: start.clone(), end: end.clone(), limit, ..Scan::default() };
        let mut found = Vec::new();
        loop {
            let page = answer(&*state.view(), &Query::Scan(scan.clone())).unwrap();
            prop_assert!(page.items.len() <= limit as usize);
            found.extend(page.items.iter().map(|item| item.key.clone()));
            scan.after = found.last().cloned();
            if !page.has_more {
                break;
            }
        }
        let mut expected: Vec<_> = keys.into_iter().filter(|key| *key >= start && end.as_ref().is_none_or(|end| key < end)).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_command_is_read_as_it_was_written(command in command()) {
        prop_assert_eq!(Command::decode(command.encode()), Ok(command));
    }

    #[test]
    fn any_bytes_are_a_command_or_refused(bytes in vec(any::<u8>(), 0..60), index in any::<prop::sample::Index>()) {
        if let Ok(command) = Command::decode(bytes.clone().into()) {
            prop_assert_eq!(command.encode(), bytes);
        }
        // Beginnings of commands are none, and do nothing.
        let whole = Command::Write(Transaction::put("k", "v"), None).encode();
        let part = whole.slice(..index.index(whole.len()));
        prop_assert!(Command::decode(part.clone()).is_err());
        prop_assert_eq!(state().apply(1, 1, 0, part).map(|applied| applied.outcome), Ok(Err(Refusal::Malformed)));
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_read(commands in vec(command(), 0..8), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut state = state();
        for (at, command) in commands.iter().enumerate() {
            state.apply(at as u64 + 1, 1, 0, command.encode()).unwrap();
        }
        state.commit(1).unwrap();
        let whole = bytes_of(&state);
        let at = at.index(whole.len());
        prop_assert!(State::new(Memory::default()).unwrap().restore(&mut &whole[..at]).is_err());
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << bit;
        // The log around it has a checksum: here it must end, whatever it is.
        let _ = State::new(Memory::default()).unwrap().restore(&mut damaged.as_slice());
        let longer = [&whole[..], &[0]].concat();
        prop_assert!(State::new(Memory::default()).unwrap().restore(&mut longer.as_slice()).is_err());
    }
}

fn put(key: &'static str, ttl_millis: u64) -> Command {
    Command::Write(Transaction::of(Operation::Put { key: key.into(), value: "v".into(), ttl_millis }), None)
}

#[test]
fn a_command_of_another_version_ends_the_member() {
    let mut bytes = put("k", 0).encode().to_vec();
    bytes[0] = 6;
    let refused = state().apply(7, 1, 0, bytes.into());
    let Err(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error, apply::StateError::Version(7, CommandError::Version(6)));
    assert!(error.to_string().contains("entry 7: a command of version 6"));
}

#[test]
fn a_put_has_the_bytes_of_the_table() {
    let bytes = put("k", 5).encode();
    assert_eq!(&bytes[..], b"\x01\x01\0\0\0\0\x01\0\0\0\x01\x01\0\0\0k\x01\0\0\0v\x05\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn a_put_without_a_time_to_live_and_a_swap_end_the_one_that_was_there() {
    let swap = Transaction::compare_and_swap("k", Some("v".into()), "w");
    for second in [put("k", 0), Command::Write(swap, None)] {
        let mut state = state();
        state.apply(1, 1, 100, put("k", 10).encode()).unwrap();
        state.apply(2, 1, 105, second.encode()).unwrap();
        state.apply(3, 1, 1000, Command::Expire.encode()).unwrap();
        state.commit(3).unwrap();
        assert_eq!(answer(&*state.view(), &Query::Get("k".into())).unwrap().items.len(), 1);
        assert_eq!(next_expiry(&*state.view()), Ok(None));
    }
}

#[test]
fn a_key_ends_with_an_entry_and_not_before() {
    let mut state = state();
    let must_not_exist = Command::Write(Transaction::compare_and_swap("k", None, "w"), None);
    state.apply(1, 1, 100, put("k", 10).encode()).unwrap();
    let swapped = state.apply(2, 1, 200, must_not_exist.encode()).unwrap().outcome.unwrap().succeeded;
    state.take_changes();
    state.apply(3, 1, 200, Command::Expire.encode()).unwrap();
    assert_eq!(state.take_changes().0[0].kind, ChangeKind::Expire);
    let then = state.apply(4, 1, 200, must_not_exist.encode()).unwrap().outcome.unwrap().succeeded;
    assert_eq!((swapped, then), (false, true));
}

fn write(operations: Vec<Operation>) -> Bytes {
    Command::Write(Transaction { then: operations, ..Transaction::default() }, None).encode()
}

/// As the bytes say: a member that does not know leases must end, and not make something else of it.
#[test]
fn a_command_of_leases_has_its_own_version() {
    let bytes = write(vec![Operation::Attach { key: "k".into(), lease: 7 }]);
    assert_eq!(&bytes[..], b"\x02\x01\0\0\0\0\x01\0\0\0\x05\x01\0\0\0k\x07\0\0\0\0\0\0\0\0\0\0\0");
    let mut older = bytes.to_vec();
    older[0] = 1;
    assert!(matches!(Command::decode(older.into()), Err(CommandError::Malformed(_))));
}

#[test]
fn a_lease_ends_with_an_entry_and_takes_its_keys_along() {
    let mut state = state();
    let attach = |key: &'static str| Operation::Attach { key: key.into(), lease: 1 };
    let put = |key: &'static str| Operation::Put { key: key.into(), value: "v".into(), ttl_millis: 0 };
    state.apply(1, 1, 100, write(vec![Operation::Grant { ttl_millis: 10 }])).unwrap();
    state.apply(2, 1, 100, write(vec![put("a"), attach("a"), put("b"), attach("b"), put("c"), attach("c")])).unwrap();
    // A put without it takes a key out of the lease.
    state.apply(3, 1, 100, write(vec![put("c")])).unwrap();
    state.apply(4, 1, 109, write(vec![Operation::KeepAlive { lease: 1 }])).unwrap();
    state.take_changes();
    state.apply(5, 1, 111, Command::Expire.encode()).unwrap();
    assert_eq!(state.take_changes(), (Vec::new(), 0));
    state.apply(6, 1, 119, Command::Expire.encode()).unwrap();
    let ended: Vec<_> = state.take_changes().0.into_iter().map(|change| (change.kind, change.key)).collect();
    assert_eq!(ended, [(ChangeKind::Expire, "a".into()), (ChangeKind::Expire, "b".into())]);
    let kept = state.apply(7, 1, 119, write(vec![Operation::KeepAlive { lease: 1 }])).unwrap().outcome.unwrap();
    assert_eq!(kept.results, [OperationResult::Lease(None)]);
    state.commit(7).unwrap();
    assert_eq!(next_expiry(&*state.view()), Ok(None));
}

#[test]
fn what_a_lease_ends_with_is_bounded() {
    let mut state = state();
    state.apply(1, 1, 0, write(vec![Operation::Grant { ttl_millis: 10 }])).unwrap();
    let attach = |number: u32| {
        let key = Bytes::from(number.to_string());
        [Operation::Put { key: key.clone(), value: "v".into(), ttl_millis: 0 }, Operation::Attach { key, lease: 1 }]
    };
    assert!(state.apply(2, 1, 0, write((0..1000).flat_map(attach).collect())).unwrap().outcome.is_ok());
    // What is attached already takes no place.
    assert!(state.apply(3, 1, 0, write(attach(7).to_vec())).unwrap().outcome.is_ok());
    let refused = state.apply(4, 1, 0, write(attach(1000).to_vec())).unwrap();
    assert_eq!(refused.outcome, Err(Refusal::TooManyLeaseKeys));
    state.apply(5, 1, 0, write(vec![Operation::Delete { key: "7".into() }])).unwrap();
    assert!(state.apply(6, 1, 0, write(attach(1000).to_vec())).unwrap().outcome.is_ok());
    state.take_changes();
    state.apply(7, 1, 10, Command::Expire.encode()).unwrap();
    assert_eq!(state.take_changes().0.len(), 1000);
}

/// Leases that are full, and one entry that revokes as many as it may.
fn full_leases(state: &mut State<Memory>, count: u64) -> u64 {
    let mut index = 0;
    for _ in 0..count {
        index += 1;
        let lease = index;
        state.apply(index, 1, 0, write(vec![Operation::Grant { ttl_millis: 10 }])).unwrap();
        for half in 0..2 {
            let operations = (0..500).flat_map(|key| {
                let key = Bytes::from(format!("{lease}-{half}-{key}"));
                let put = Operation::Put { key: key.clone(), value: "v".into(), ttl_millis: 0 };
                [put, Operation::Attach { key, lease }]
            });
            index += 1;
            assert!(state.apply(index, 1, 0, write(operations.collect())).unwrap().outcome.is_ok());
        }
    }
    index
}

/// A thousand revokes of leases with a thousand keys each took minutes, on every member.
#[test]
fn one_entry_ends_a_bounded_number_of_keys_of_leases() {
    let mut state = state();
    let last = full_leases(&mut state, 12);
    let revokes = |count: u64| write((0..count).map(|lease| Operation::Revoke { lease: 3 * lease + 1 }).collect());
    let commands = [revokes(11)];
    assert!(state.takes_long(commands.iter()).unwrap());
    let refused = state.apply(last + 1, 1, 0, commands[0].clone()).unwrap();
    assert_eq!(refused.outcome, Err(Refusal::TooManyRevokedKeys));
    state.take_changes();
    assert!(state.apply(last + 2, 1, 0, revokes(10)).unwrap().outcome.is_ok());
    assert_eq!(state.take_changes().0.len(), 10_000);
    // Those that are there no more cost nothing.
    assert!(state.apply(last + 3, 1, 0, revokes(11)).unwrap().outcome.is_ok());
    assert_eq!(state.take_changes().0.len(), 1_000);
}

#[test]
fn what_takes_long_is_known_before() {
    let mut state = state();
    let last = full_leases(&mut state, 6);
    let is_long = |state: &State<Memory>, commands: &[Bytes]| state.takes_long(commands.iter()).unwrap();
    let revoke = |lease| write(vec![Operation::Revoke { lease }]);
    assert!(!is_long(&state, &[revoke(1)]));
    assert!(is_long(&state, &[1, 4, 7, 10, 13, 16].map(revoke)), "together they do");
    assert!(!is_long(&state, &vec![put("k", 0).encode(); 5_000]));
    let large = Operation::Put { key: "k".into(), value: vec![0; 1 << 20].into(), ttl_millis: 0 };
    assert!(!is_long(&state, &[write(vec![large])]));
    assert!(is_long(&state, &vec![Command::Expire.encode(); 6]));
    // A session that keeps many answers.
    state.apply(last + 1, 1, 0, Command::OpenSession.encode()).unwrap();
    for sequence in 1..=3_000 {
        let stamp = Stamp { session: last + 1, sequence, awaited_from: 1 };
        state
            .apply(last + 1 + sequence, 1, 0, Command::Write(Transaction::put("k", "v"), Some(stamp)).encode())
            .unwrap();
    }
    let close = Command::CloseSession(last + 1).encode();
    assert!(!is_long(&state, std::slice::from_ref(&close)) && is_long(&state, &[close.clone(), close]));
}

#[test]
fn a_key_that_changes_its_lease_within_a_transaction_ends_with_the_last_one() {
    let mut state = state();
    state.apply(1, 1, 0, write(vec![Operation::Grant { ttl_millis: 10 }])).unwrap();
    state.apply(2, 1, 0, write(vec![Operation::Grant { ttl_millis: 10 }])).unwrap();
    let put = Operation::Put { key: "k".into(), value: "v".into(), ttl_millis: 0 };
    let attach = |lease| Operation::Attach { key: "k".into(), lease };
    let moved = vec![put, attach(1), attach(2), Operation::Revoke { lease: 1 }, Operation::Get { key: "k".into() }];
    let results = state.apply(3, 1, 0, write(moved)).unwrap().outcome.unwrap().results;
    assert!(matches!(&results[4], OperationResult::Got(Some(item)) if item.lease == 2));
    let ended = state.apply(4, 1, 0, write(vec![attach(2), Operation::Revoke { lease: 2 }])).unwrap();
    assert!(ended.outcome.is_ok());
    state.commit(4).unwrap();
    assert_eq!(answer(&*state.view(), &everything()).unwrap().items, []);
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut state = state();
    state.apply(1, 1, 0, put("letters", 0).encode()).unwrap();
    let then = vec![
        Operation::Put { key: "other".into(), value: "v".into(), ttl_millis: 0 },
        Operation::Add { key: "letters".into(), delta: 1 },
    ];
    let write = Command::Write(Transaction { then, ..Transaction::default() }, None);
    assert_eq!(state.apply(2, 1, 0, write.encode()).unwrap().outcome, Err(Refusal::NotACounter));
    let add = |delta| Command::Write(Transaction::of(Operation::Add { key: "n".into(), delta }), None).encode();
    state.apply(3, 1, 0, add(i64::MAX)).unwrap();
    assert_eq!(state.apply(4, 1, 0, add(1)).unwrap().outcome, Err(Refusal::CounterOverflow));
    state.commit(4).unwrap();
    assert_eq!(answer(&*state.view(), &Query::Get("other".into())).unwrap().items, []);
}

#[test]
fn what_a_client_may_ask_for_is_bounded() {
    let of = |key: usize, value: usize| check(&Transaction::put(vec![0; key], vec![0; value]));
    assert_eq!(of(4096, 1 << 20), Ok(()));
    assert_eq!(of(4097, 0), Err(LimitError::Key(4097)));
    assert_eq!(of(0, (1 << 20) + 1), Err(LimitError::Value((1 << 20) + 1)));
    assert_eq!(check(&Transaction::default()), Err(LimitError::Empty));
    let many = |count, key| Transaction {
        then: vec![Operation::Delete { key: vec![0; key].into() }; count],
        ..Transaction::default()
    };
    assert_eq!(check(&many(1025, 1)), Err(LimitError::Operations(1025)));
    assert_eq!(check(&many(1018, 4096)), Ok(()));
    assert_eq!(check(&many(1019, 4096)), Err(LimitError::Transaction(1019 * 4120)));
}

#[test]
fn which_group_it_is_is_said_once_and_is_no_member_and_in_no_backup() {
    let mut state = State::new(Memory::default()).unwrap();
    assert_eq!(state.roster().serial, None);
    for (index, number) in [(1, 7), (2, 8)] {
        state.apply(index, 1, 1, Command::Serial(number).encode()).unwrap().outcome.unwrap();
    }
    state.apply(3, 1, 1, Command::Seen(vec![1]).encode()).unwrap().outcome.unwrap();
    state.commit(3).unwrap();
    let known = Roster::load(&*state.view()).unwrap();
    assert_eq!((known.serial, known.members.keys().collect::<Vec<_>>()), (Some(7), vec![&1]));
    assert_eq!(**state.roster(), known);
    let mut other = State::new(Memory::default()).unwrap();
    let mut snapshot = Vec::new();
    state.snapshot()(&mut snapshot).unwrap();
    other.restore(&mut &snapshot[..]).unwrap();
    other.commit(3).unwrap();
    assert_eq!(**other.roster(), known);
    // Earlier releases must not go on as if they knew it, and nobody says 0.
    assert_eq!(Command::Serial(7).encode()[..2], [5, 12]);
    assert!(Command::decode(Bytes::copy_from_slice(&[&[5, 12][..], &[0; 8]].concat())).is_err());
}
