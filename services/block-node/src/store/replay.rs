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

/// Goes through the blocks of a segment, and on to the number `end`, up to which there were blocks as far as the index tells. Where the root hash of
/// a block is lost, `known` may have it. Error: a record of a block that cannot stand there.
pub(super) fn replay<'a>(scan: &'a Scan, end: u64, known: Option<&Chain>) -> Result<Replayed, &'a Record> {
    let roots = |records: &[Record]| records.iter().map(|record| (record.head.number, record.head.root)).collect();
    let (repaired, damaged): (BTreeMap<u64, Hash>, BTreeMap<u64, Hash>) = (roots(&scan.repaired), roots(&scan.damaged));
    let mut replayed = Replayed { chain: scan.head.chain.clone(), quarantined: Vec::new() };
    for record in &scan.blocks {
        if record.head.number < replayed.chain.next() {
            return Err(record);
        }
        replayed.pass(record.head.number, &repaired, &damaged, known);
        replayed.chain.extend(record.head.root);
    }
    // The last blocks may be there as repaired ones alone, be damaged, or be known to the index alone.
    let behind = |roots: &BTreeMap<u64, Hash>| roots.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
    replayed.pass(end.max(behind(&repaired)).max(behind(&damaged)), &repaired, &damaged, known);
    Ok(replayed)
}

impl Replayed {
    /// Goes on to this block, over those before it that are not whole where they stood first.
    fn pass(&mut self, end: u64, repaired: &BTreeMap<u64, Hash>, damaged: &BTreeMap<u64, Hash>, known: Option<&Chain>) {
        for missing in self.chain.next()..end {
            if let Some(root) = repaired.get(&missing) {
                self.chain.extend(*root);
                continue;
            }
            self.quarantined.push(missing);
            match damaged.get(&missing) {
                Some(root) => self.chain.extend(*root),
                // Without its root the tree of all roots is not known, either.
                None => {
                    let known = known.filter(|known| known.next() == missing + 1);
                    self.chain = known.cloned().unwrap_or_else(|| Chain::unknown(missing + 1));
                }
            }
        }
    }
}
