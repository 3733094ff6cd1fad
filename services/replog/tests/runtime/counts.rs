//! Syncs are counted, not timed: one command at a time costs one, many together share them.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};

use futures::executor::block_on;
use replog::runtime::{Limits, LocalNetwork, Origin, Proposal, ProposeError};
use replog::{Membership, Role, Settings};
use wal::files::{CountingDirectory, HeldDirectory, RealDirectory};

use crate::group::{LONG, Running, directories, settings, start_in};

fn counted(scratch: &std::path::Path) -> (Running, CountingDirectory<RealDirectory>) {
    let (wal, snapshots) = directories(scratch);
    let (wal, snapshots) = (CountingDirectory::new(wal), CountingDirectory::new(snapshots));
    let origin = Origin::Found(Membership::of([1]));
    let transport = LocalNetwork::default().join(1);
    let running = start_in(1, settings(), Limits::default(), (wal.clone(), snapshots), origin, transport).unwrap();
    running.propose("first").unwrap();
    (running, wal)
}

#[test]
fn one_command_at_a_time_costs_exactly_one_sync_each() {
    let scratch = harness::folder();
    let (running, wal) = counted(scratch.path());
    let before = wal.counts().data_syncs;
    for number in 0..200 {
        running.propose(&format!("{number} {}", "x".repeat(250))).unwrap();
    }
    assert_eq!(wal.counts().data_syncs - before, 200);
}

/// The watcher holds the core thread until a thousand wait, as they do while a disk syncs: how many meet in a batch does not depend
/// on this machine's speed.
#[test]
fn a_thousand_in_flight_cost_at_most_five_syncs() {
    let scratch = harness::folder();
    let (running, wal) = counted(scratch.path());
    for round in 0..10 {
        let (go_on, wait) = channel::<()>();
        let (is_held, held) = channel();
        let mut wait = Some((is_held, wait));
        running
            .handle
            .watch_leader(move |_| {
                if let Some((is_held, wait)) = wait.take() {
                    is_held.send(()).unwrap();
                    let _ = wait.recv();
                }
            })
            .unwrap();
        held.recv().unwrap();
        let before = wal.counts().data_syncs;
        let waiting: Vec<_> = (0..1_000)
            .map(|number| running.handle.propose_async(format!("{round} {number} {}", "x".repeat(250)).into()))
            .collect();
        drop(go_on);
        waiting.into_iter().for_each(|outcome| assert!(block_on(outcome).is_ok()));
        let syncs = wal.counts().data_syncs - before;
        assert!(syncs <= 5, "{syncs} syncs for 1,000 commands");
    }
}

/// A disk whose syncs wait until they are let through, once it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    /// Syncs since it was shut: those that were begun, and those that may go on.
    begun: u64,
    may_pass: u64,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn sync(&self) {
        let mut state = self.state.lock().unwrap();
        if state.is_shut {
            state.begun += 1;
            let number = state.begun;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| state.is_shut && state.may_pass < number).unwrap());
        }
    }

    fn wait_until_begun(&self, syncs: u64) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, LONG, |state| state.begun < syncs).unwrap();
        assert_eq!(state.begun, syncs, "syncs that were begun");
    }
}

/// However slow the disks are: a put waits for the syncs that are under way when it comes, and for its own. The disks of all three work
/// at the same time, and a sync takes all that has come.
#[test]
fn a_command_waits_for_two_syncs_at_most_and_disks_work_at_the_same_time() {
    let scratch = harness::folder();
    let network = LocalNetwork::default();
    // A leader whose disk is silent for two elections hands over.
    let settings = Settings { election_ticks: 200, ..settings() };
    let gates: [Arc<Gate>; 3] = Default::default();
    let members: Vec<Running> = (1..=3)
        .map(|id| {
            let (wal, snapshots) = directories(&scratch.path().join(id.to_string()));
            let gate = Arc::clone(&gates[id as usize - 1]);
            let held = (HeldDirectory::new(wal, move || gate.sync()), HeldDirectory::new(snapshots, || ()));
            let origin = Origin::Found(Membership::of(1..=3));
            start_in(id, settings.clone(), Limits::default(), held, origin, network.join(id)).unwrap()
        })
        .collect();
    let leads = |running: &&Running| {
        running.handle.wait_for(|status| status.leader.is_some(), LONG).is_ok_and(|status| status.role == Role::Leader)
    };
    let leader = members.iter().find(leads).expect("all know who leads, and it is one of them");
    let first = leader.propose("first").unwrap();
    members.iter().for_each(|running| running.wait_until_applied(first.index));

    gates.iter().for_each(|gate| gate.change(|state| state.is_shut = true));
    let one = leader.handle.propose_async("one".into());
    // Without an answer of any disk.
    gates.iter().for_each(|gate| gate.wait_until_begun(1));
    let (told, outcomes) = channel();
    let many = (0..1_000).map(|number| {
        let told = told.clone();
        Proposal::new(format!("many {number}").into(), move |outcome| {
            told.send(outcome.map(|committed| committed.index)).unwrap();
            None
        })
    });
    leader.handle.propose_all(many.collect());
    for running in &members {
        running.handle.wait_for(|status| status.last == first.index + 1_001, LONG).expect("it comes while disks work");
    }
    gates.iter().for_each(|gate| gate.change(|state| state.may_pass = 1));
    assert_eq!(block_on(one).unwrap().index, first.index + 1);
    gates.iter().for_each(|gate| gate.wait_until_begun(2));
    assert!(outcomes.try_recv().is_err(), "nothing is acknowledged before it is safe");
    gates.iter().for_each(|gate| gate.change(|state| state.may_pass = 2));
    for index in first.index + 2..=first.index + 1_001 {
        assert_eq!(outcomes.recv_timeout(LONG).unwrap(), Ok::<_, ProposeError>(index));
    }
    gates.iter().for_each(|gate| gate.wait_until_begun(2));
    gates.iter().for_each(|gate| gate.change(|state| state.is_shut = false));
}
