//! What a group does when nothing fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use replog::runtime::identity::Begun;
use replog::runtime::{Limits, LocalNetwork, Member, MemberError, Origin, ProposeError, Start};
use replog::{Change, Membership, Role, Settings};

use crate::group::{Group, LONG, WAL_OPTIONS, directories, settings};
use crate::machine::{DatedList, KeptList, List};

#[test]
fn one_member_is_a_group() {
    let mut group = Group::of(1, settings());
    for number in 1..=10 {
        assert_eq!(group.propose(&format!("command {number}")).1.reply, number);
    }
    let before = group.member(1).commands();
    group.stop(1);
    group.start(1);
    assert_eq!(group.propose("after").1.reply, 11);
    let after = group.member(1).commands();
    assert_eq!((&after[..10], after[10].as_str()), (&before[..], "after"));
}

#[test]
fn what_is_proposed_at_once_is_applied_in_order() {
    let group = Group::of(1, settings());
    let one = group.member(1);
    one.wait_until_it_leads();
    let waiting: Vec<_> = (0..5_000).map(|number| one.handle.propose_async(number.to_string().into())).collect();
    let committed: Vec<_> = waiting.into_iter().map(|outcome| block_on(outcome).unwrap()).collect();
    assert!(committed.windows(2).all(|pair| pair[0].index + 1 == pair[1].index && pair[0].reply + 1 == pair[1].reply));
    assert_eq!(one.commands(), (0..5_000).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn three_members_apply_the_same() {
    let group = Group::of(3, settings());
    let mut last = 0;
    for number in 0..100 {
        last = group.propose(&format!("command {number}")).1.index;
    }
    group.wait_until_all_have(last);
    let all: Vec<_> = group.running().map(|running| running.commands()).collect();
    assert!(all.iter().all(|commands| *commands == all[0]), "{all:?}");
    assert!((0..100).all(|number| all[0].contains(&format!("command {number}"))));
}

#[test]
fn a_reply_is_made_once_and_where_somebody_waits_for_it() {
    let mut group = Group::of(3, settings());
    let mut last = 0;
    for number in 0..100 {
        last = group.propose(&format!("command {number}")).1.index;
    }
    group.wait_until_all_have(last);
    let replies = |group: &Group| group.running().map(|running| running.seen.lock().unwrap().replies).sum::<usize>();
    assert_eq!(replies(&group), 100);
    (1..=3).for_each(|id| group.stop(id));
    (1..=3).for_each(|id| group.start(id));
    group.wait_until_all_have(last);
    assert_eq!(replies(&group), 0, "the log was replayed for replies");
}

#[test]
fn who_follows_says_who_leads() {
    let group = Group::of(3, settings());
    let (leader, _) = group.propose("first");
    let follower = group.running().find(|running| running.id != leader).unwrap();
    follower.handle.wait_for(|status| status.leader == Some(leader), LONG).unwrap();
    assert_eq!(follower.propose("second"), Err(ProposeError::NotLeader(Some(leader))));
}

#[test]
fn a_command_that_is_too_large_is_refused_at_once() {
    let group = Group::of(1, Settings { command_bytes_max: 10, ..settings() });
    assert_eq!(group.member(1).propose("12345678901"), Err(ProposeError::TooLarge(11)));
}

#[test]
fn the_last_two_of_three_go_on() {
    let mut group = Group::of(3, settings());
    let (leader, _) = group.propose("first");
    group.stop(leader);
    let (second, committed) = group.propose("second");
    assert_ne!(second, leader);
    group.start(leader);
    group.member(leader).wait_until_applied(committed.index);
    assert!(group.member(leader).commands().contains(&"second".to_owned()));
}

/// With what it has, also what the others had not confirmed; and it can grow again.
#[test]
fn the_last_of_three_goes_on_alone_when_told_so() {
    let settings = Settings { snapshot_entries: 20, snapshot_keep_entries: 3, ..settings() };
    let mut group = Group::of(3, settings);
    let mut last = 0;
    for number in 0..50 {
        last = group.propose(&format!("command {number}")).1.index;
    }
    group.wait_until_all_have(last);
    let before = group.member(2).commands();
    (1..=3).for_each(|id| group.stop(id));
    group.members[1] = Some(group.start_as(2, Origin::Alone).unwrap());
    assert_eq!(group.propose("alone").0, 2);
    assert_eq!(group.member(2).commands()[..before.len()], before);
    // It stays so without being told again.
    group.stop(2);
    group.start(2);
    group.propose("still alone");
    let status = group.member(2).handle.status();
    assert_eq!(status.membership.voters, [2]);
    assert_eq!(group.member(2).commands().len(), before.len() + 2);
    block_on(group.member(2).handle.change_membership(vec![Change::AddLearner(4)])).unwrap();
    group.start(4);
    let (_, committed) = group.propose("with another one");
    group.member(4).wait_until_applied(committed.index);
    assert_eq!(group.member(4).commands(), group.member(2).commands());
}

/// Entries that were never decided would be in a state that outlives the attempt, and the group may decide others in their place.
#[test]
fn a_member_whose_state_keeps_itself_is_not_let_go_on_alone_and_nothing_is_changed() {
    for kept_before in [true, false] {
        let mut group = Group::of(3, settings());
        let (_, committed) = group.propose("first");
        group.wait_until_all_have(committed.index);
        (1..=3).for_each(|id| group.stop(id));
        let kept = Arc::new(Mutex::new(if kept_before { committed.index } else { 0 }));
        let (wal, snapshots) = directories(&group.path(2));
        let refused = Member::start(Start {
            id: 2,
            settings: group.settings.clone(),
            limits: Limits::default(),
            wal_options: WAL_OPTIONS,
            machine: KeptList { list: List::new(&Arc::default()), kept: Arc::clone(&kept) },
            wal,
            snapshots,
            origin: Origin::Alone,
            begun: Begun::unwritten(),
            transport: group.network.join(2),
        });
        assert!(matches!(refused, Err(MemberError::KeepsItself)));
        assert_eq!(*kept.lock().unwrap(), if kept_before { committed.index } else { 0 });
        (1..=3).for_each(|id| group.start(id));
        let (_, committed) = group.propose("second");
        group.wait_until_all_have(committed.index);
        assert_eq!(group.member(2).commands(), ["first", "second"], "the group is as it was");
    }
}

/// It knew none until the first entry came: what had ended lived again for as long as nobody wrote.
#[test]
fn a_state_machine_that_begins_with_a_snapshot_is_told_its_time() {
    let directory = harness::folder();
    let restored_millis = Arc::new(Mutex::new(Vec::new()));
    let start = || {
        let (wal, snapshots) = directories(directory.path());
        Member::start(Start {
            id: 1,
            settings: settings(),
            limits: Limits::default(),
            wal_options: WAL_OPTIONS,
            machine: DatedList { list: List::default(), restored_millis: Arc::clone(&restored_millis) },
            wal,
            snapshots,
            origin: Origin::Found(Membership::of([1])),
            begun: Begun::unwritten(),
            transport: LocalNetwork::default().join(1),
        })
        .unwrap()
    };
    let member = start();
    let handle = member.handle();
    handle.wait_for(|status| status.role == Role::Leader, LONG).expect("it leads some time");
    let committed = handle.propose_blocking(Bytes::from_static(b"command")).unwrap();
    handle.want_snapshot();
    handle.wait_for(|status| status.snapshot_settled >= committed.index, LONG).expect("a snapshot is made");
    member.stop().unwrap();
    assert_eq!(*restored_millis.lock().unwrap(), [0], "what a founder begins with is of no time");
    start().stop().unwrap();
    assert!(matches!(restored_millis.lock().unwrap()[..], [0, millis] if millis > 0));
}

/// The log is in memory: a hundred thousand commands of a megabyte would not fit.
#[test]
fn large_commands_do_not_wait_in_memory_until_there_are_many() {
    let settings = Settings { snapshot_entries: 1_000_000, snapshot_log_bytes: 10_000, ..settings() };
    let group = Group::of(1, settings);
    let large = "x".repeat(1_000);
    for _ in 0..15 {
        group.propose(&large);
    }
    group.member(1).handle.wait_for(|status| status.snapshot > 5, LONG).expect("a snapshot is made");
}

#[test]
fn a_new_member_gets_a_snapshot_and_may_vote_then() {
    let settings = Settings { snapshot_entries: 20, snapshot_keep_entries: 3, snapshot_chunk_bytes: 100, ..settings() };
    let mut group = Group::of(1, settings);
    for number in 0..100 {
        group.propose(&format!("command {number}"));
    }
    group.member(1).handle.wait_for(|status| status.snapshot > 50, LONG).expect("a snapshot is made");
    group.start(2);
    block_on(group.member(1).handle.change_membership(vec![Change::AddLearner(2)])).unwrap();
    let (_, committed) = group.propose("with a learner");
    group.member(2).wait_until_applied(committed.index);
    assert_eq!(group.member(2).commands(), group.member(1).commands());
    group
        .member(1)
        .handle
        .wait_for(|status| status.progress.iter().any(|(id, has)| *id == 2 && *has > 50), LONG)
        .unwrap();
    block_on(group.member(1).handle.change_membership(vec![Change::Promote(2)])).unwrap();
    // An offer that comes before the other knows that it may vote is of no use, and is withdrawn after a while.
    let attempts = LONG.as_secs() / 2;
    let leads = (0..attempts).any(|_| {
        let _ = block_on(group.member(1).handle.transfer_leader(2));
        group.member(2).handle.wait_for(|status| status.role == Role::Leader, Duration::from_secs(2)).is_ok()
    });
    assert!(leads);
    let (_, committed) = group.propose("under a new leader");
    group.member(2).wait_until_applied(committed.index);
    assert_eq!(group.member(2).handle.status().membership.voters, [1, 2]);
}

/// It ended, and could not start again, although all was in its memory.
#[test]
fn who_alone_votes_goes_on_with_a_damaged_snapshot_and_makes_another_for_a_learner() {
    let settings = Settings { snapshot_entries: 20, snapshot_keep_entries: 3, snapshot_chunk_bytes: 100, ..settings() };
    let mut group = Group::of(1, settings);
    for number in 0..100 {
        group.propose(&format!("command {number}"));
    }
    let (_, last) = group.propose("last");
    let handle = group.member(1).handle.clone();
    while handle.wait_for(|status| status.snapshot_settled >= last.index, Duration::from_millis(50)).is_err() {
        handle.want_snapshot();
    }
    let files = std::fs::read_dir(group.path(1).join("snapshots")).unwrap().map(|file| file.unwrap().path());
    let snapshot = files.filter(|path| path.to_string_lossy().contains("/snapshot-")).max().unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    group.start(2);
    block_on(handle.change_membership(vec![Change::AddLearner(2)])).unwrap();
    let (_, committed) = group.propose("with a learner");
    group.member(2).wait_until_applied(committed.index);
    assert_eq!(group.member(2).commands(), group.member(1).commands());
    harness::until("another one in its place", || !snapshot.exists());
}

#[test]
fn leadership_is_watched() {
    let group = Group::of(1, settings());
    let (sender, changes) = std::sync::mpsc::channel();
    group.member(1).handle.watch_leader(move |leadership| sender.send(leadership).unwrap_or_default()).unwrap();
    let leads = changes.iter().find(|leadership| leadership.is_ready_leader).unwrap();
    assert_eq!(leads.leader, Some(1));
    drop(group);
    let last = changes.iter().last().unwrap();
    assert_eq!((last.leader, last.is_ready_leader), (None, false), "who has ended leads nobody");
}

#[test]
fn the_membership_is_watched_and_the_status_is_never_older() {
    let group = Group::of(1, settings());
    group.propose("first");
    let handle = &group.member(1).handle;
    let mut membership = handle.membership();
    let index = block_on(handle.change_membership(vec![Change::AddLearner(2)])).unwrap();
    let told = block_on(membership.wait_for(|now| now.learners == [2])).unwrap().clone();
    let status = handle.status();
    assert_eq!((&status.membership, status.applied >= index), (&told, true));
}

#[test]
fn who_resigns_hands_over() {
    let group = Group::of(3, settings());
    let (leader, _) = group.propose("first");
    let running = group.member(leader);
    let term = running.handle.status().term;
    running.member.resign(LONG);
    assert_ne!(running.handle.status().role, Role::Leader);
    let (_, committed) = group.propose("second");
    assert!(committed.term > term);
}

#[test]
fn a_member_that_ended_says_so() {
    let mut group = Group::of(1, settings());
    group.propose("first");
    let handle = group.member(1).handle.clone();
    group.stop(1);
    assert_eq!(handle.propose_blocking("second".into()), Err(ProposeError::Stopped));
    assert!(handle.status().has_ended);
    assert!(group.start_as(1, Origin::Join).is_ok(), "its directories are free");
}
