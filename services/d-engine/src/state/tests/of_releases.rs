//! Members of two releases, and a member that reads a log which an earlier release wrote, have the same: what stands in an entry, what it does, and
//! what it makes of the state are what they were when this was written. Whoever turns this red changes what is in logs already: that needs another
//! version of a command, which earlier releases refuse, and the old one goes on doing what it did.

use super::super::users::{Access, Principal, UserChange};
use super::*;

/// Entries of all kinds; behind each, when it is applied.
fn entries() -> Vec<(Command, u64)> {
    let mut all = Vec::new();
    let mut add = |command, millis| all.push((command, millis));
    let write = |then: Vec<Operation>| Command::Write(Transaction { then, ..Transaction::default() }, None);
    let put = |key: &str, value: &str, ttl_millis| Operation::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl_millis,
    };
    let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    add(Command::Serial(77), 1);
    add(Command::Seen(vec![1, 2, 3]), 1);
    add(Command::Place(4, Place { client: "a:1".into(), peer: "a:2".into() }), 1);
    add(Command::Leave(4), 1);
    add(Command::Place(4, Place { client: "a:1".into(), peer: "a:2".into() }), 1);
    // 6: keys, with and without an end; counters.
    add(write(vec![put("a", "1", 0), put("b", "2", 50), put("n", "40", 0)]), 2);
    add(write(vec![Operation::Add { key: key("n"), delta: 2 }, Operation::Get { key: key("n") }]), 2);
    add(write(vec![Operation::Add { key: key("a"), delta: i64::MAX }]), 2);
    add(write(vec![put("c", "x", 0), Operation::Add { key: key("c"), delta: 1 }]), 2);
    let of_all_conditions = [
        Condition::ValueIs("1".into()),
        Condition::Exists(true),
        Condition::RevisionIs(6),
        Condition::RevisionBelow(7),
        Condition::RevisionAbove(5),
    ];
    let compares = of_all_conditions.map(|condition| Compare { key: key("a"), condition }).to_vec();
    let otherwise = vec![Operation::Delete { key: key("a") }];
    for extra in [Condition::Exists(false), Condition::Exists(true)] {
        let mut compares = compares.clone();
        compares.push(Compare { key: key("z"), condition: extra });
        let then = vec![put("a", "then", 0), Operation::Delete { key: key("z") }];
        add(Command::Write(Transaction { compares, then, otherwise: otherwise.clone() }, None), 3);
    }
    // 12: a session, and its answers.
    add(Command::OpenSession, 3);
    let stamped = |sequence, awaited_from, operation| {
        Command::Write(Transaction::of(operation), Some(Stamp { session: 12, sequence, awaited_from }))
    };
    for (sequence, awaited_from) in [(1, 1), (1, 1), (2, 1), (3, 3), (2, 3)] {
        add(stamped(sequence, awaited_from, Operation::Add { key: key("m"), delta: 1 }), 4);
    }
    for sequence in 4..4102 {
        add(stamped(sequence, 3, Operation::Get { key: key("m") }), 4);
    }
    // Leases: as many keys as one may have, and one more.
    add(write(vec![Operation::Grant { ttl_millis: 1000 }]), 5);
    let lease = all.len() as u64;
    let mut add = |command, millis| all.push((command, millis));
    for from in [0, 500, 1000] {
        let attached = (from..(from + 500).min(1001)).flat_map(|number| {
            let name = format!("l/{number}");
            [put(&name, "v", 0), Operation::Attach { key: name.into(), lease }]
        });
        add(write(attached.collect()), 6);
    }
    add(write(vec![Operation::KeepAlive { lease }, Operation::Revoke { lease: 1 }]), 7);
    add(write(vec![put("d", "v", 0), Operation::Attach { key: key("d"), lease: 1 }]), 7);
    add(Command::Renew(8), 8);
    // Users, and what they may.
    let name = || Bytes::from("anna");
    let process = || Principal::Process;
    add(Command::Users(process(), UserChange::Enable(true)), 9);
    add(Command::Users(process(), UserChange::Add { name: "root".into(), hash: "h".into(), is_admin: true }), 9);
    add(Command::Users(process(), UserChange::Add { name: name(), hash: "h".into(), is_admin: false }), 9);
    let since = all.len() as u64;
    let mut add = |command, millis| all.push((command, millis));
    let anna = || Principal::User { name: name(), since };
    let access = Access { read: true, write: true };
    add(Command::Users(process(), UserChange::Grant { name: name(), prefix: "p/".into(), access }), 9);
    add(Command::Users(process(), UserChange::Enable(true)), 9);
    add(Command::As(anna(), Box::new(write(vec![put("p/1", "v", 0)]))), 10);
    add(Command::As(anna(), Box::new(write(vec![put("q/1", "v", 0)]))), 10);
    for _ in 0..4097 {
        add(Command::As(anna(), Box::new(Command::OpenSession)), 10);
    }
    add(Command::As(anna(), Box::new(write(vec![Operation::Grant { ttl_millis: 10 }]))), 10);
    add(Command::Users(anna(), UserChange::Password { name: name(), hash: "i".into() }), 11);
    add(Command::Users(process(), UserChange::Revoke { name: name(), prefix: "p/".into() }), 11);
    add(Command::Users(process(), UserChange::RemoveAlone { name: name() }), 11);
    add(Command::Users(process(), UserChange::Remove { name: "root".into() }), 11);
    // More end at once than one entry ends; then the rest, and leases, and sessions.
    for from in [0, 600] {
        let many = (from..from + 600).map(|number| put(&format!("t/{number}"), "v", 1));
        add(write(many.collect()), 12);
    }
    for millis in [20, 20, 2000, 4000, 3_600_020, 3_600_020, 7_300_000, 7_300_000] {
        add(Command::As(process(), Box::new(write(vec![put("k", "v", 0)]))), millis);
        add(Command::Expire, millis);
    }
    add(Command::CloseSession(12), 7_300_000);
    all
}

fn checksum(parts: impl IntoIterator<Item = Vec<u8>>) -> u32 {
    parts.into_iter().fold(0, |sum, part| crc32c::crc32c_append(sum, &part))
}

#[test]
fn entries_do_what_they_did_in_earlier_releases() {
    let entries = entries();
    let mut state = State::new(Memory::default()).unwrap();
    let mut outcomes = Vec::new();
    for (index, (command, millis)) in (1..).zip(&entries) {
        let applied = state.apply(index, 1, *millis, command.encode()).unwrap();
        outcomes.push(format!("{:?}", applied.outcome).into_bytes());
    }
    // What it is red for must be in it.
    let said = String::from_utf8(outcomes.concat()).unwrap();
    for refusal in [
        Refusal::CounterOverflow,
        Refusal::NotACounter,
        Refusal::TooManyAnswers,
        Refusal::Forgotten,
        Refusal::TooManyLeaseKeys,
        Refusal::NoAdmin,
        Refusal::Denied,
        Refusal::TooManyOwnSessions,
        Refusal::NoLease,
        Refusal::MemberRemoved,
    ] {
        assert!(said.contains(&format!("{refusal:?}")), "{refusal:?}");
    }
    state.commit(entries.len() as u64).unwrap();
    let mut snapshot = Vec::new();
    state.snapshot()(&mut snapshot).unwrap();
    let sums = [
        checksum(entries.iter().map(|(command, _)| command.encode().to_vec())),
        checksum(outcomes),
        checksum([snapshot]),
    ];
    assert_eq!(sums.map(|sum| format!("{sum:08x}")), ["966de7d1", "b5ddc4bf", "334091f4"]);
}

#[test]
fn bounds_are_what_they_were_in_earlier_releases() {
    use super::super::bounds::*;
    assert_eq!([EXPIRED_MAX, ANSWER_BYTES_MAX, LOOKED_AT_BYTES_MAX, REVOKED_MAX], [1000, 4 << 20, 64 << 20, 10_000]);
    assert_eq!([SESSIONS_MAX, SESSIONS_OF_ONE_MAX, LEASES_MAX, LEASES_OF_ONE_MAX], [65_536, 4096, 1_000_000, 10_000]);
    assert_eq!((LEASE_KEYS_MAX, ANSWERS_MAX, USERS_MAX, GRANTS_MAX), (1000, 4096, 10_000, 1000));
    assert_eq!([IDLE_MILLIS, SESSION_BYTES_MAX, ALL_BYTES_MAX], [3_600_000, 16 << 20, 256 << 20]);
    assert_eq!([USER_BYTES_MAX, ANSWER_BYTES], [32 << 20, 64]);
}
