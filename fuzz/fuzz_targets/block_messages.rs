//! What a publisher sends, and what a block holds: any bytes give a verified block or an error, what is verified is exactly what came, and
//! reading it again, or as a subscriber who filters does, gives the same.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use block_node::block::{Builder, Limits, ProofRules, Verified};
use block_node::messages::{PublishRequest, item_ranges, items, sets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(PublishRequest::Items(range)) = PublishRequest::of(data) else { return };
    let set = &data[range];
    let ranges: Result<Vec<_>, _> = item_ranges(set).collect();
    let Ok(ranges) = ranges else { return };
    let pieces = sets(set, 64).expect("items that were read");
    assert_eq!(pieces.iter().flat_map(|piece| set[piece.clone()].to_vec()).collect::<Vec<_>>(), set);
    let Some((_, first)) = ranges.first() else { return };
    let Ok(mut builder) = Builder::begin(&set[first.clone()], Limits { block_bytes_max: 1 << 20 }) else { return };
    for (_, item) in &ranges[1..] {
        if builder.add(&set[item.clone()]).is_err() {
            return;
        }
    }
    let rules = ProofRules::accepted_before();
    let limits = Limits { block_bytes_max: 1 << 20 };
    let filtered = Verified::of_filtered(set, limits, &rules);
    if let Ok(verified) = builder.finish(&rules) {
        assert_eq!(filtered.as_ref().map(|filtered| filtered.root), Ok(verified.root));
        let before: Vec<_> = ranges.iter().map(|(_, item)| &set[item.clone()]).collect();
        let after: Vec<_> = items(&verified.bytes).map(|item| item.expect("a block that was made here")).collect();
        assert_eq!(after, before);
    }
});
