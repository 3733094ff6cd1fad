//! Syncs are counted, not timed: one command at a time costs one, many together share them.

use std::sync::mpsc::channel;

use futures::executor::block_on;
use replog::Membership;
use replog::runtime::{Limits, LocalNetwork, Origin};
use wal::files::{CountingDirectory, RealDirectory};

use crate::group::{Running, directories, settings, start_in};

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
