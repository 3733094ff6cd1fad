//! What takes the state machine longer than an election does not cost the group its leader.

use std::time::Duration;

use replog::Settings;

use crate::group::{Group, LONG, settings};
use crate::machine::{SLOW, SLOW_TO_RESTORE};

/// A part of the second that who follows waits for its leader.
const LATE_MIN: Duration = Duration::from_millis(100);

/// An election takes a second, and what is slow here several.
fn one_second() -> Settings {
    Settings { tick_micros: 10_000, heartbeat_ticks: 5, election_ticks: 100, ..settings() }
}

#[test]
fn a_command_that_takes_long_leaves_the_leader_in_place() {
    harness::again_if_late(LATE_MIN, || {
        let group = Group::of(3, one_second());
        let (leader, _) = group.propose("first");
        let leading = group.member(leader);
        let term = leading.handle.status().term;
        let committed = leading.propose(SLOW).map_err(|error| format!("of what takes long: {error}"))?;
        let after = leading.propose("after").map_err(|error| format!("of what comes after: {error}"))?;
        if (committed.term, after.term) != (term, term) {
            return Err(format!("somebody asked for votes meanwhile: {term}, {}, {}", committed.term, after.term));
        }
        assert_eq!(after.reply, committed.reply + 1, "it was applied behind what took long");
        group.wait_until_all_have(after.index);
        Ok(())
    });
}

#[test]
fn who_installs_a_large_snapshot_acknowledges_meanwhile() {
    harness::again_if_late(LATE_MIN, || {
        let settings =
            Settings { snapshot_entries: 10, snapshot_keep_entries: 0, lagging_log_bytes: 0, ..one_second() };
        let mut group = Group::of(3, settings);
        let (leader, committed) = group.propose("first");
        group.wait_until_all_have(committed.index);
        let [lagging, other] = [1, 2].map(|step| (leader + step - 1) % 3 + 1);
        group.stop(lagging);
        let led = |error| format!("before anybody restores: {error}");
        group.member(leader).propose(SLOW_TO_RESTORE).map_err(led)?;
        for number in 0..40 {
            group.member(leader).propose(&format!("command {number}")).map_err(led)?;
        }
        group.member(leader).handle.wait_for(|status| status.snapshot > 10, LONG).expect("a snapshot is made");
        let term = group.member(leader).handle.status().term;
        // From now on nothing is decided without who needs the snapshot.
        group.start(lagging);
        group.stop(other);
        let decided = group.member(leader).propose("while it restores").map_err(|error| error.to_string())?;
        if decided.term != term {
            return Err(format!("somebody asked for votes meanwhile: {term}, {}", decided.term));
        }
        group.member(lagging).wait_until_applied(decided.index);
        assert_eq!(group.member(lagging).commands(), group.member(leader).commands());
        Ok(())
    });
}

#[test]
fn a_member_is_stopped_while_something_takes_long() {
    let mut group = Group::of(1, one_second());
    group.propose("first");
    let outcome = group.member(1).handle.propose_async(SLOW.into());
    group.stop(1);
    let outcome = futures::executor::block_on(outcome);
    group.start(1);
    group.propose("after");
    assert!(group.member(1).commands().iter().filter(|command| *command == SLOW).count() <= 1, "{outcome:?}");
}
