//! Disks that fail, logs that are lost, queues that are full: nothing is acknowledged that is not safe, and everybody who waits is
//! told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use futures::executor::block_on;
use replog::Membership;
use replog::runtime::identity::Begun;
use replog::runtime::{
    Limits, LocalNetwork, Member, MemberError, Origin, ProposeError, ReadError, RequestError, Start,
};
use replog::{Change, ReadLevel, Settings};
use wal::files::{Fault, HeldDirectory, SimulatedDirectory};

use crate::group::{Group, LONG, Running, WAL_OPTIONS, settings, start_in};
use crate::machine::{KeptList, List, SLOW};

fn alone(wal: &SimulatedDirectory, limits: Limits) -> Running {
    let directories = (wal.clone(), SimulatedDirectory::default());
    let origin = Origin::Found(Membership::of([1]));
    start_in(1, settings(), limits, directories, origin, LocalNetwork::default().join(1)).unwrap()
}

/// Who waited for one asked again and again, and was never told.
#[test]
fn who_wants_a_snapshot_that_finds_no_room_learns_it() {
    let (wal, snapshots) = (SimulatedDirectory::default(), SimulatedDirectory::default());
    let origin = Origin::Found(Membership::of([1]));
    let transport = LocalNetwork::default().join(1);
    let running = start_in(1, settings(), Limits::default(), (wal, snapshots.clone()), origin, transport).unwrap();
    let index = running.propose("first").unwrap().index;
    assert_eq!(running.handle.status().snapshot_failures.count, 0);
    snapshots.fail(Fault::Create, 0);
    running.handle.want_snapshot();
    let failed = running.handle.wait_for(|status| status.snapshot_failures.count > 0, LONG).unwrap();
    let said = failed.snapshot_failures;
    assert_eq!(said.count, 1);
    assert!(said.last.starts_with("no room for a snapshot") && said.last.ends_with("the disk is full"), "{said:?}");
    assert!(failed.snapshot_settled < index);
    running.handle.want_snapshot();
    running.handle.wait_for(|status| status.snapshot_settled >= index, LONG).unwrap();
}

#[test]
fn a_failed_sync_ends_the_member_and_nobody_waits_for_ever() {
    let wal = SimulatedDirectory::default();
    let running = alone(&wal, Limits::default());
    running.propose("first").unwrap();
    wal.fail(Fault::DataSync, 0);
    assert_eq!(running.propose("second"), Err(ProposeError::Unknown));
    let error = running.member.wait().unwrap_err().to_string();
    assert!(error.contains("out of service since a sync failed"), "{error}");
    assert_eq!(running.propose("third"), Err(ProposeError::Stopped));
    assert_eq!(running.handle.read_blocking(ReadLevel::Linearizable, 0), Err(ReadError::Stopped));
    assert_eq!(running.handle.try_read(ReadLevel::Lease, 0), None);
    let change = running.handle.change_membership(vec![Change::AddLearner(2)]);
    assert_eq!(block_on(change), Err(RequestError::Stopped));
}

/// The member's end waited for its writer's, and that for a write that had panicked; of a panic of the writer's own thread nobody was told.
#[test]
fn a_panic_while_the_log_is_written_ends_the_member_and_nobody_waits_for_ever() {
    // By the writer's thread; and by the member's own, after some that came one by one.
    for before in [1, 50] {
        let is_broken = Arc::new(AtomicBool::new(false));
        let directory = || {
            let is_broken = Arc::clone(&is_broken);
            let hold = move || assert!(!is_broken.load(Ordering::Relaxed), "on purpose");
            HeldDirectory::new(SimulatedDirectory::default(), hold)
        };
        let (directories, network) = ((directory(), directory()), LocalNetwork::default().join(1));
        let origin = Origin::Found(Membership::of([1]));
        let running = start_in(1, settings(), Limits::default(), directories, origin, network).unwrap();
        for number in 0..before {
            running.propose(&number.to_string()).unwrap();
        }
        is_broken.store(true, Ordering::Relaxed);
        let (tell, told) = channel();
        thread::spawn(move || {
            let proposed = running.propose("last");
            let ended = running.member.wait().map_err(|error| error.to_string());
            drop(running);
            tell.send((proposed, ended)).unwrap();
        });
        let (proposed, ended) = told.recv_timeout(LONG / 4).expect("somebody waits for ever");
        assert_eq!(proposed, Err(ProposeError::Unknown));
        let error = ended.unwrap_err();
        assert!(error.contains("out of service") && error.contains("on purpose"), "{error}");
    }
}

/// Files without content are not what a member had whose vote and whose entries were in them.
#[test]
fn a_member_that_had_a_log_does_not_go_on_without_one() {
    for origin in [Origin::GoOn, Origin::Alone] {
        let directories = (SimulatedDirectory::default(), SimulatedDirectory::default());
        let network = LocalNetwork::default().join(1);
        let refused = start_in(1, settings(), Limits::default(), directories, origin.clone(), network);
        assert!(matches!(refused, Err(MemberError::LogLost)));
        let kept = Arc::new(Mutex::new(7));
        let refused = Member::start(Start {
            id: 1,
            settings: settings(),
            limits: Limits::default(),
            wal_options: WAL_OPTIONS,
            machine: KeptList { list: List::new(&Arc::default()), kept: Arc::clone(&kept) },
            wal: SimulatedDirectory::default(),
            snapshots: SimulatedDirectory::default(),
            origin,
            begun: Begun::unwritten(),
            transport: LocalNetwork::default().join(1),
        });
        assert!(matches!(refused, Err(MemberError::LogLost)));
        assert_eq!(*kept.lock().unwrap(), 7, "what may be all that is left was forgotten");
    }
    let (wal, snapshots) = (SimulatedDirectory::default(), SimulatedDirectory::default());
    let start = |origin| {
        let (directories, network) = ((wal.clone(), snapshots.clone()), LocalNetwork::default().join(1));
        start_in(1, settings(), Limits::default(), directories, origin, network).unwrap()
    };
    for origin in [Origin::Found(Membership::of([1])), Origin::GoOn] {
        let running = start(origin);
        running.wait_until_it_leads();
        running.propose("command").unwrap();
    }
}

#[test]
fn a_full_disk_ends_the_member_and_the_next_start_finds_what_was_acknowledged() {
    let wal = SimulatedDirectory::default();
    let snapshots = SimulatedDirectory::default();
    let start = || {
        let origin = Origin::Found(Membership::of([1]));
        let directories = (wal.clone(), snapshots.clone());
        start_in(1, settings(), Limits::default(), directories, origin, LocalNetwork::default().join(1)).unwrap()
    };
    let running = start();
    running.propose("first").unwrap();
    let mut acknowledged = vec!["first".to_owned()];
    // Whoever makes the next segment, ahead or when it is needed, finds no room.
    (0..64).for_each(|attempt| wal.fail(Fault::Create, attempt));
    let large = "x".repeat(50_000);
    let end = (0..1_000).find_map(|number| {
        let command = format!("{number} {large}");
        let outcome = running.propose(&command);
        if outcome.is_ok() {
            acknowledged.push(command);
        }
        outcome.err()
    });
    assert_eq!(end, Some(ProposeError::Unknown));
    let error = running.member.wait().unwrap_err().to_string();
    assert!(error.contains("no new segment can be made") && error.contains("free some space"), "{error}");
    running.member.stop().unwrap_err();
    let rest = wal.copy();
    let running = start_in(
        1,
        settings(),
        Limits::default(),
        (rest, snapshots.clone()),
        Origin::Join,
        LocalNetwork::default().join(1),
    )
    .unwrap();
    running.propose("last").unwrap();
    assert_eq!(running.commands()[..acknowledged.len()], acknowledged[..]);
}

/// Deletes a follower's log behind its back and starts it under its old number: the leader knows that it once had more.
#[test]
fn a_member_that_lost_its_log_ends_and_says_so() {
    // The leader must still lead, and remember what the follower had.
    let mut group = Group::of(3, Settings { election_ticks: 300, ..settings() });
    let (leader, committed) = group.propose("first");
    group.wait_until_all_have(committed.index);
    let follower = if leader == 1 { 2 } else { 1 };
    group.stop(follower);
    fs::remove_dir_all(group.path(follower)).unwrap();
    let running = group.start_as(follower, Origin::Join).unwrap();
    let error = running.member.wait().unwrap_err().to_string();
    assert!(error.contains("has lost what it had on disk") && error.contains("under a new id"), "{error}");
}

/// The chunk was left out without a word, and the follower asked for it for ever.
#[test]
fn a_leader_whose_snapshot_is_damaged_ends_and_another_one_sends_its_own() {
    // The leader must still lead when it is asked.
    let settings = Settings {
        election_ticks: 300,
        snapshot_entries: 20,
        snapshot_keep_entries: 3,
        lagging_log_bytes: 0,
        snapshot_chunk_bytes: 100,
        ..settings()
    };
    let mut group = Group::of(3, settings);
    let (_, committed) = group.propose("first");
    group.wait_until_all_have(committed.index);
    let (leader, _) = group.propose("second");
    let follower = leader % 3 + 1;
    group.stop(follower);
    for number in 0..100 {
        group.propose(&format!("command {number}"));
    }
    let (leader, last) = group.propose("last");
    // No newer one is made before something else is applied.
    let handle = &group.member(leader).handle;
    let is_settled = || handle.wait_for(|status| status.snapshot_settled >= last.index, Duration::from_millis(50));
    while is_settled().is_err() {
        handle.want_snapshot();
    }
    let files = fs::read_dir(group.path(leader).join("snapshots")).unwrap().map(|file| file.unwrap().path());
    let snapshot = files.filter(|path| path.to_string_lossy().contains("/snapshot-")).max().unwrap();
    let mut bytes = fs::read(&snapshot).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    group.start(follower);
    let error = group.member(leader).member.wait().unwrap_err().to_string();
    assert!(error.contains(snapshot.file_name().unwrap().to_str().unwrap()), "{error}");
    assert!(error.contains("is damaged: chunk") && error.contains("replace the member by a new one"), "{error}");
    group.member(follower).wait_until_applied(last.index);
}

#[test]
fn what_does_not_fit_is_busy_and_what_was_taken_succeeds() {
    let wal = SimulatedDirectory::default();
    let limits = Limits { proposals_max: 3, ..Limits::default() };
    let running = alone(&wal, limits);
    running.wait_until_it_leads();
    // A watcher that waits holds the core thread, so that nothing leaves the queue.
    let (go_on, wait) = channel::<()>();
    let (is_held, held) = channel();
    let wait = Mutex::new(Some((is_held, wait)));
    running
        .handle
        .watch_leader(move |_| {
            if let Some((is_held, wait)) = wait.lock().unwrap().take() {
                is_held.send(()).unwrap();
                let _ = wait.recv();
            }
        })
        .unwrap();
    held.recv().unwrap();
    let waiting: Vec<_> = (0..10).map(|number| running.handle.propose_async(format!("{number}").into())).collect();
    drop(go_on);
    let outcomes: Vec<_> = waiting.into_iter().map(block_on).collect();
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(outcomes[3..].iter().all(|outcome| *outcome == Err(ProposeError::Busy)), "{outcomes:?}");
}

/// Two founders that keep no more waiting than that.
fn two(limits: Limits) -> [Running; 2] {
    let network = LocalNetwork::default();
    [1, 2].map(|id| {
        let directories = (SimulatedDirectory::default(), SimulatedDirectory::default());
        start_in(id, settings(), limits, directories, Origin::Found(Membership::of([1, 2])), network.join(id)).unwrap()
    })
}

/// Nobody could tell a group that loses what it says from one on a bad network.
#[test]
fn messages_that_find_no_room_are_counted() {
    let both = two(Limits { message_bytes_max: 0, ..Limits::default() });
    harness::until("a message to be refused", || both.iter().any(|one| one.handle.counts().messages_refused > 0));
}

#[test]
fn entries_that_a_member_is_too_far_behind_for_are_counted() {
    let both = two(Limits { unsafe_bytes_max: 16 << 10, ..Limits::default() });
    let leads = |one: &&Running| one.handle.leader().1;
    harness::until("a leader", || both.iter().any(|one| leads(&one)));
    for one in both.iter().filter(leads) {
        one.handle.propose(SLOW.into(), |_| {});
    }
    harness::until("entries to be refused", || {
        both.iter().filter(leads).for_each(|one| one.handle.propose("x".repeat(20_000).into(), |_| {}));
        both.iter().any(|one| one.handle.counts().messages_refused > 0)
    });
}

#[test]
fn who_waits_while_leadership_is_lost_does_not_learn_what_nobody_knows() {
    let group = Group::of(3, settings());
    let (leader, _) = group.propose("first");
    for other in group.running().filter(|other| other.id != leader) {
        group.network.cut(leader, other.id, true);
        group.network.cut(other.id, leader, true);
    }
    let outcome = group.member(leader).propose("second");
    assert!(matches!(outcome, Err(ProposeError::Unknown | ProposeError::NotLeader(_))), "{outcome:?}");
    // The others go on.
    let others: Vec<&Running> = group.running().filter(|other| other.id != leader).collect();
    let third = loop {
        if let Some(committed) = others.iter().find_map(|other| other.propose("third").ok()) {
            break committed;
        }
        thread::yield_now();
    };
    for other in &others {
        group.network.cut(leader, other.id, false);
        group.network.cut(other.id, leader, false);
    }
    group.member(leader).wait_until_applied(third.index);
    assert_eq!(group.member(leader).commands(), ["first", "third"]);
    assert!(group.member(leader).handle.wait_for(|status| status.leader.is_some(), LONG).is_ok());
}
