//! Whether a store that was told to sync each write before it acknowledges it can have done so. Pure.
//!
//! One sync makes at most as many writes safe as clients wait at a time: each has one on its way. So acknowledged writes, divided by
//! clients, are the fewest syncs that there can have been, however well the store groups them.

/// A store may count a little late, and writes of before the phase may share its first sync: half of the fewest is enough.
const LENIENCE: u64 = 2;

/// What is wrong, if there cannot have been so few syncs.
pub fn broken_word(fsyncs: u64, writes: u64, clients: u32) -> Option<String> {
    let clients = u64::from(clients.max(1));
    let fewest = writes.div_ceil(clients);
    (LENIENCE * (fsyncs + 1) < fewest).then(|| {
        format!(
            "durability Fsync is not kept: {writes} writes of at most {clients} clients at a time were acknowledged, which takes at least \
             {fewest} syncs, and the store counts {fsyncs}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_groups_as_well_as_can_be_keeps_its_word() {
        assert_eq!(broken_word(400, 40_000, 100), None);
        assert_eq!(broken_word(200, 40_000, 100), None, "it counts a little late");
        assert_eq!(broken_word(0, 150, 100), None, "too few writes to tell");
    }

    #[test]
    fn a_store_that_syncs_by_the_clock_does_not() {
        let said = broken_word(10, 40_000, 100).unwrap();
        assert!(said.contains("at least 400 syncs, and the store counts 10"), "{said}");
        assert!(broken_word(0, 1_000, 1).is_some());
    }
}
