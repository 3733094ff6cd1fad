//! Reads at every level, with and without the core thread.

use futures::executor::block_on;
use replog::runtime::{ReadError, Ticket};
use replog::{ReadLevel, ReadPath, Role, Settings};

use crate::group::{Group, LONG, Running, settings};

/// Asks for as long as it takes until there is a quorum.
fn read(running: &Running, level: ReadLevel, at_least: u64) -> Ticket {
    loop {
        match running.handle.read_blocking(level, at_least) {
            Ok(ticket) => return ticket,
            Err(error) => assert_eq!(error, ReadError::NoQuorum),
        }
    }
}

#[test]
fn every_member_answers_strong_reads() {
    let group = Group::of(3, settings());
    for number in 0..20 {
        let command = format!("command {number}");
        let (_, committed) = group.propose(&command);
        for running in group.running() {
            let ticket = read(running, ReadLevel::Linearizable, 0);
            assert!(ticket.index >= committed.index && ticket.path == ReadPath::ReadIndex);
            assert!(running.commands().contains(&command), "{} answers with an old state", running.id);
        }
    }
}

#[test]
fn a_leader_with_a_lease_asks_nobody() {
    let group = Group::of(3, settings());
    let (leader, committed) = group.propose("first");
    let running = group.member(leader);
    running.handle.wait_for(|_| running.handle.try_read(ReadLevel::Lease, 0).is_some(), LONG).expect("it has a lease");
    // Nobody else can be asked now, and the lease lasts for a while; how long depends on this machine.
    for other in group.running().filter(|other| other.id != leader) {
        group.network.cut(leader, other.id, true);
    }
    if let Some(ticket) = running.handle.try_read(ReadLevel::Lease, 0) {
        assert!(ticket.index >= committed.index && ticket.path == ReadPath::Lease);
    }
    // It ends, and nothing strong is answered any more.
    running.handle.wait_for(|_| running.handle.try_read(ReadLevel::Lease, 0).is_none(), LONG).expect("the lease ends");
    assert_eq!(running.handle.read_blocking(ReadLevel::Linearizable, 0), Err(ReadError::NoQuorum));
    assert!(running.handle.try_read(ReadLevel::Eventual, 0).is_some());
}

#[test]
fn what_was_seen_with_a_lease_that_ran_out_is_not_told() {
    let group = Group::of(3, settings());
    let (leader, _) = group.propose("first");
    let running = group.member(leader);
    running.handle.wait_for(|_| running.handle.try_read(ReadLevel::Lease, 0).is_some(), LONG).expect("it has a lease");
    let ticket = loop {
        match running.handle.try_read(ReadLevel::Lease, 0) {
            Some(ticket) => break ticket,
            None => std::thread::yield_now(),
        }
    };
    for other in group.running().filter(|other| other.id != leader) {
        group.network.cut(leader, other.id, true);
        group.network.cut(other.id, leader, true);
    }
    running.handle.wait_for(|status| status.role != Role::Leader, LONG).expect("it steps down");
    assert!(!running.handle.confirm(&ticket));
}

#[test]
fn a_read_that_looks_too_late_looks_again() {
    let group = Group::of(1, settings());
    let (_, committed) = group.propose("first");
    let running = group.member(1);
    let (ticket, seen) = block_on(running.handle.look(ReadLevel::Lease, 0, || running.commands())).unwrap();
    assert!(ticket.index >= committed.index);
    assert_eq!(seen, ["first"]);
}

#[test]
fn a_bounded_read_is_no_older_than_it_says() {
    let group = Group::of(3, settings());
    group.propose("first");
    for running in group.running() {
        let level = ReadLevel::Bounded { max_staleness_micros: 60_000_000 };
        let ticket = read(running, level, 0);
        assert!(ticket.age_micros.unwrap() <= 60_000_000);
        let nobody_is_so_fresh = ReadLevel::Bounded { max_staleness_micros: 0 };
        assert!(read(running, nobody_is_so_fresh, 0).index > 0);
    }
}

#[test]
fn who_has_seen_an_index_sees_it_everywhere() {
    let group = Group::of(3, settings());
    let (_, committed) = group.propose("first");
    for running in group.running() {
        let ticket = read(running, ReadLevel::Eventual, committed.index);
        assert!(ticket.index >= committed.index);
        assert!(running.commands().contains(&"first".to_owned()));
    }
}

#[test]
fn reads_beyond_the_limit_are_refused() {
    let group = Group::of(3, Settings { reads_max: 2, ..settings() });
    let (leader, _) = group.propose("first");
    for other in group.running().filter(|other| other.id != leader) {
        group.network.cut(leader, other.id, true);
    }
    let reads: Vec<_> = (0..50).map(|_| group.member(leader).handle.read_async(ReadLevel::Linearizable, 0)).collect();
    let outcomes: Vec<_> = reads.into_iter().map(block_on).collect();
    assert!(outcomes.contains(&Err(ReadError::Busy)), "{outcomes:?}");
}
