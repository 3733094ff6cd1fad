//! Whether a store that was told to sync each write before it acknowledges it can have done so. Pure.
//!
//! One sync makes at most as many writes safe as wait at a time: those that are on their way
//! ([`storebench_crds::workload::Parameters::in_flight_max`]), of each client a whole pipeline where it sends one. So acknowledged writes, divided
//! by these, are the fewest syncs that there can have been, however well the store groups them.
//!
//! In a group each write must have been synced by a majority, though not always the same one. So all members together took at least as many
//! syncs as a majority of such members, where none counts for more than the fewest: a leader that syncs every write by itself makes none safe on
//! the disks of the others.

use storebench_crds::workload::syncs::{fewest_syncs, majority};

/// Syncs that may be missing all the same: a store may count a little late, and writes of before the phase may share its first.
const COUNTED_LATE: u64 = 8;

/// Of how many at most, where a few are all that there can have been.
fn credited(fsyncs: u64, fewest: u64) -> u64 {
    let half_of_few = 2 * (fsyncs + 1);
    (fsyncs + COUNTED_LATE).min(half_of_few).min(fewest)
}

/// What is wrong, if there cannot have been so few syncs. `fsyncs` has those of each member.
pub fn broken_word(fsyncs: &[u64], writes: u64, in_flight_max: u32) -> Option<String> {
    let fewest = fewest_syncs(writes, in_flight_max);
    let majority = majority(fsyncs.len() as u64);
    let credited: u64 = fsyncs.iter().map(|fsyncs| credited(*fsyncs, fewest)).sum();
    (!fsyncs.is_empty() && credited < majority * fewest).then(|| {
        let takes = format!(
            "durability Fsync is not kept: {writes} writes were acknowledged, of which at most {in_flight_max} were on their way at a time: that \
             takes at least {fewest} syncs"
        );
        match fsyncs {
            [fsyncs] => format!("{takes}, and the store counts {fsyncs}"),
            members => {
                let counts: Vec<String> = members.iter().map(u64::to_string).collect();
                format!(
                    "{takes} of each of {majority} of {} members, and they count {}",
                    members.len(),
                    counts.join(", ")
                )
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_groups_as_well_as_can_be_keeps_its_word() {
        assert_eq!(broken_word(&[400], 40_000, 100), None);
        assert_eq!(broken_word(&[392], 40_000, 100), None, "it counts a little late");
        assert_eq!(broken_word(&[0], 150, 100), None, "too few writes to tell");
    }

    /// Half of them were enough.
    #[test]
    fn a_store_that_syncs_every_other_write_does_not() {
        assert!(broken_word(&[4_999], 10_000, 1).is_some());
        assert!(broken_word(&[391], 40_000, 100).is_some());
        assert!(broken_word(&[40_000, 190, 190], 40_000, 100).is_some(), "nor do followers that share the syncs");
    }

    #[test]
    fn a_store_that_syncs_by_the_clock_does_not() {
        let said = broken_word(&[10], 40_000, 100).unwrap();
        assert!(said.contains("at least 400 syncs, and the store counts 10"), "{said}");
        assert!(broken_word(&[0], 1_000, 1).is_some());
    }

    /// It was called a liar: 40,000 writes of 50 clients took 800 syncs, and it had 50.
    #[test]
    fn a_store_that_makes_all_pipelines_safe_with_one_sync_keeps_its_word_and_one_that_never_syncs_does_not() {
        let (clients, pipeline) = (50, 16);
        assert_eq!(broken_word(&[50], 40_000, clients * pipeline), None);
        let said = broken_word(&[0], 40_000, clients * pipeline).unwrap();
        assert!(said.contains("at most 800 were on their way at a time: that takes at least 50 syncs"), "{said}");
        assert!(broken_word(&[41], 40_000, clients * pipeline).is_some(), "fewer than the 50");
    }

    /// The syncs that may be missing were more than there could have been.
    #[test]
    fn a_store_of_which_a_few_syncs_are_asked_is_not_let_off_with_none() {
        let (clients, pipeline) = (50, 16);
        assert!(broken_word(&[0], 4_000, clients * pipeline).is_some());
        assert_eq!(broken_word(&[2], 4_000, clients * pipeline), None, "it counts a little late");
    }

    #[test]
    fn a_leader_does_not_sync_for_followers_that_never_do() {
        let said = broken_word(&[40_000, 3, 2], 40_000, 100).unwrap();
        assert!(said.contains("at least 400 syncs of each of 2 of 3 members, and they count 40000, 3, 2"), "{said}");
        assert!(broken_word(&[400, 400, 0, 0, 0], 40_000, 100).is_some(), "two of five are no majority");
    }

    #[test]
    fn a_group_of_which_some_majority_synced_each_write_keeps_its_word() {
        assert_eq!(broken_word(&[400, 400, 0], 40_000, 100), None, "one that stands still is not needed");
        assert_eq!(broken_word(&[40_000, 200, 200], 40_000, 100), None, "now one follower was faster, now the other");
        assert_eq!(broken_word(&[0, 0, 0], 150, 100), None, "too few writes to tell");
        assert_eq!(broken_word(&[], 40_000, 100), None, "nobody counts");
    }
}
