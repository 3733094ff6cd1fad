//! How few syncs can have made so many writes safe: what both the load, which counts syncs, and the judge, who sees what reached the disk, hold a
//! store to. Pure.

/// How many of so many operations wrote at least, where so many in a hundred do and chance decides which: five standard deviations below that.
pub fn fewest_writes(operations: u64, percent: u32) -> u64 {
    let share = f64::from(percent.min(100)) / 100.0;
    let (expected, spread) = (operations as f64 * share, (operations as f64 * share * (1.0 - share)).sqrt());
    (expected - 5.0 * spread).max(0.0) as u64
}

/// The fewest syncs that so many writes take, however well a store groups them: one makes at most as many safe as are on their way at a time.
pub fn fewest_syncs(writes: u64, in_flight_max: u32) -> u64 {
    writes.div_ceil(u64::from(in_flight_max.max(1)))
}

/// How many of so many members must have synced a write before it is acknowledged.
pub fn majority(members: u64) -> u64 {
    members / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_now_and_then_is_not_held_to_the_very_share() {
        assert_eq!([fewest_writes(40_000, 100), fewest_writes(40_000, 0)], [40_000, 0]);
        assert_eq!([fewest_writes(10_000, 50), fewest_writes(4, 50)], [4_750, 0]);
    }

    #[test]
    fn a_sync_is_of_as_many_writes_as_are_on_their_way() {
        assert_eq!([fewest_syncs(40_000, 100), fewest_syncs(401, 100), fewest_syncs(0, 100)], [400, 5, 0]);
        assert_eq!(fewest_syncs(7, 0), 7, "a record from elsewhere may say so");
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
    }
}
