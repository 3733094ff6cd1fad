//! What the blocks of a segment make of what was before them. Pure.

use std::collections::BTreeMap;

use super::scan::{Record, Scan};
use crate::block::Chain;
use crate::hash::Hash;

/// What is known behind a segment.
pub(super) struct Replayed {
    /// What the next block continues.
    pub(super) chain: Chain,
    /// Blocks that were stored and are damaged, in order.
    pub(super) quarantined: Vec<u64>,
}

/// Goes through the blocks of a segment, and on to the number `end`, up to which there were blocks as far as the index tells. Error: a
/// record of a block that cannot stand there.
pub(super) fn replay(scan: &Scan, end: u64) -> Result<Replayed, &Record> {
    let roots = |records: &[Record]| records.iter().map(|record| (record.head.number, record.head.root)).collect();
    let (repaired, damaged): (BTreeMap<u64, Hash>, BTreeMap<u64, Hash>) = (roots(&scan.repaired), roots(&scan.damaged));
    let mut replayed = Replayed { chain: scan.head.chain.clone(), quarantined: Vec::new() };
    for record in &scan.blocks {
        if record.head.number < replayed.chain.next() {
            return Err(record);
        }
        replayed.pass(record.head.number, &repaired, &damaged);
        replayed.chain.extend(record.head.root);
    }
    // The last blocks may be there as repaired ones alone, be damaged, or be known to the index alone.
    let behind = |roots: &BTreeMap<u64, Hash>| roots.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
    replayed.pass(end.max(behind(&repaired)).max(behind(&damaged)), &repaired, &damaged);
    Ok(replayed)
}

impl Replayed {
    /// Goes on to this block, over those before it that are not whole where they stood first.
    fn pass(&mut self, end: u64, repaired: &BTreeMap<u64, Hash>, damaged: &BTreeMap<u64, Hash>) {
        for missing in self.chain.next()..end {
            if let Some(root) = repaired.get(&missing) {
                self.chain.extend(*root);
                continue;
            }
            self.quarantined.push(missing);
            match damaged.get(&missing) {
                Some(root) => self.chain.extend(*root),
                // Without its root the tree of all roots is not known, either.
                None => self.chain = Chain::unknown(missing + 1),
            }
        }
    }
}
