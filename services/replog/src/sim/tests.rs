use super::*;

#[test]
fn one_seed_replays_to_the_same_end() {
    for seed in 0..20 {
        let (first, second) = (run(seed, Options::default()), run(seed, Options::default()));
        assert_eq!((first.fingerprint, first.stats), (second.fingerprint, second.stats), "seed {seed}");
    }
}

/// The full bar is 10,000 seeds, of `replog-sim`: see the README.
#[test]
fn a_thousand_seeds_break_no_promise() {
    for seed in 0..1000 {
        let report = run(seed, Options::default());
        assert_eq!(report.violation, None, "seed {seed}");
    }
}

/// The simulator sees every error that can be planted. How many seeds that takes stands in the README.
#[test]
fn every_planted_error_is_seen() {
    for bug in Bug::ALL {
        // This one takes a leader that is alone, which not every seed has.
        let nodes = u64::from(bug == Bug::TermNotDurable);
        let options = Options { bug: Some(bug), nodes, ..Options::default() };
        let seen = (0..20_000).find(|seed| run(*seed, options).violation.is_some());
        assert!(seen.is_some(), "{bug:?} is not seen in 20,000 seeds");
        println!("{bug:?}: seed {seen:?}");
    }
}

/// A run that does nothing proves nothing.
#[test]
fn what_can_happen_does() {
    let mut all = Stats::default();
    for seed in 0..100 {
        let stats = run(seed, Options::default()).stats;
        all.elections += stats.elections;
        all.acknowledged += stats.acknowledged;
        all.reads += stats.reads;
        all.lease_reads += stats.lease_reads;
        all.crashes += stats.crashes;
        all.disk_faults += stats.disk_faults;
        all.pauses += stats.pauses;
        all.snapshots_installed += stats.snapshots_installed;
        all.long_steps += stats.long_steps;
        all.membership_changes += stats.membership_changes;
        all.transfers += stats.transfers;
        all.closed_links += stats.closed_links;
    }
    println!("{all:#?}");
    let least = [
        all.elections / 5,
        all.acknowledged / 50,
        all.reads / 100,
        all.lease_reads / 30,
        all.crashes / 3,
        all.disk_faults,
        all.pauses / 2,
        all.snapshots_installed,
        all.long_steps,
        all.membership_changes,
        all.transfers,
        all.closed_links / 10,
    ];
    assert!(least.iter().all(|count| *count >= 50), "{all:#?}");
}
