//! What a block is byte for byte. Its root hash does not say that: it leaves out proofs and items that no rule hashes, how a footer is
//! written, and how items of one subtree stand among those of others.
//!
//! The digest is the beginning of SHA-384 over each item, in order: of one that goes into the root hash the number of its subtree (1 byte), of any
//! other 0, its length (8 bytes, little-endian) and all of it; behind them the root hash. How many items each subtree has is told by the first, and so
//! what they are by the last: who finds another block with the same digest has broken SHA-384. What was hashed for the root hash is not hashed
//! once more.

use std::fmt;

use ring::digest::{Context, SHA384};

use super::Category;
use crate::hash::Hash;

/// Length of a digest, bytes.
pub const DIGEST_BYTES: usize = 32;

/// What a block is, byte for byte.
pub type Digest = [u8; DIGEST_BYTES];

/// Takes a block's items, in order.
#[derive(Clone)]
pub(super) struct Digester(Context);

impl Default for Digester {
    fn default() -> Self {
        Self(Context::new(&SHA384))
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Digester")
    }
}

impl Digester {
    /// Adds an item that goes into the root hash there, or nowhere.
    pub(super) fn add(&mut self, category: Category, item: &[u8]) {
        match category.leaf() {
            Some(subtree) => self.0.update(&[subtree as u8]),
            None => self.add_whole(item),
        }
    }

    /// Adds all of an item.
    pub(super) fn add_whole(&mut self, item: &[u8]) {
        self.0.update(&[0]);
        self.0.update(&(item.len() as u64).to_le_bytes());
        self.0.update(item);
    }

    /// The digest of a block that has this root hash.
    pub(super) fn finish(mut self, root: &Hash) -> Digest {
        self.0.update(root);
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&self.0.finish().as_ref()[..DIGEST_BYTES]);
        digest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use crate::block::{Item, Limits, ProofRules, Verified, Version, items};
    use crate::craft::{Crafter, Shape, Traffic, field, signed};
    use crate::hash::sha384;
    use crate::wire::put_bytes;

    fn verified(items: &[Vec<u8>]) -> Verified {
        let mut block = Vec::new();
        items.iter().for_each(|item| put_bytes(&mut block, 1, item));
        Verified::of(&block, Limits { block_bytes_max: 1 << 20 }, &ProofRules::accepted_before()).unwrap()
    }

    fn items_of(block: &[u8]) -> Vec<Vec<u8>> {
        items(block).map(|item| item.unwrap().to_vec()).collect()
    }

    fn crafted(minor: u32) -> Vec<Vec<u8>> {
        let version = Version { major: 0, minor, patch: 1 };
        items_of(&Crafter::in_version(1, 0, version).next(Shape { items: 6, item_bytes: 40 }).bytes)
    }

    /// All these blocks have one root hash, and no two of them one digest.
    fn are_told_apart(blocks: &[Vec<Vec<u8>>]) {
        let [found, again] = [(); 2].map(|()| blocks.iter().map(|items| verified(items)).collect::<Vec<_>>());
        assert!(found.iter().all(|block| block.root == found[0].root));
        let digests: BTreeSet<_> = found.iter().map(|block| block.digest).collect();
        assert_eq!(digests.len(), blocks.len());
        assert_eq!(found, again, "the same block has the same digest");
    }

    #[test]
    fn what_leaves_the_root_hash_as_it_is_changes_the_digest() {
        for minor in [76, 77] {
            let block = crafted(minor);
            let (footer, proof) = (block.len() - 2, block.len() - 1);
            let mut blocks = vec![block.clone()];
            let mut changed = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
                let mut items = block.clone();
                change(&mut items);
                blocks.push(items);
            };
            // Signatures that nobody checks, of one length.
            for byte in [1, 2] {
                changed(&|items| {
                    let mut block = Vec::new();
                    items.iter().for_each(|item| put_bytes(&mut block, 1, item));
                    *items = items_of(&signed(&block, 0, &[byte; 2_920]));
                });
            }
            changed(&|items| items.push(items[proof].clone()));
            // A transaction behind its result.
            changed(&|items| items.swap(2, 3));
            changed(&|items| items.swap(3, 4));
            // The hashes of a footer in another order.
            changed(&|items| {
                let content = Item::of(&items[footer]).unwrap().content.to_vec();
                items[footer] = field(12, &[&content[50..], &content[..50]].concat());
            });
            // Items that no rule hashes: there, not there, others, elsewhere, in two.
            for (place, contents) in
                [(2, vec!["a"]), (3, vec!["a"]), (2, vec!["b"]), (2, vec!["a", "b"]), (2, vec!["ab"])]
            {
                changed(&|items| {
                    contents.iter().rev().for_each(|content| items.insert(place, field(20, content.as_bytes())));
                });
            }
            are_told_apart(&blocks);
        }
        let mut swapped = crafted(62);
        swapped.swap(2, 3);
        are_told_apart(&[crafted(62), swapped]);
    }

    /// What this thread has taken of a processor.
    fn cpu_micros() -> f64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    }

    /// Prints what the digest of a block takes beside all hashes of it, and what SHA-384 of the whole would.
    #[test]
    #[ignore = "a measurement"]
    fn what_a_digest_costs() {
        let mut crafter = Crafter::new(1, 0);
        let shapes = [13_000, 500_000].map(|bytes| (bytes, crafter.next(Shape::of_bytes(bytes)).bytes));
        let traffic = [13, 500].map(|count| crafter.next_of(Traffic::new(1).items(count)).bytes);
        let traffic = traffic.map(|block| (block.len(), block));
        for (bytes, block) in shapes.into_iter().chain(traffic) {
            let parts = items_of(&block);
            let parts: Vec<_> = parts.iter().map(|item| (Item::of(item).unwrap().category, item)).collect();
            let (limits, rules) = (Limits { block_bytes_max: usize::MAX }, ProofRules::accepted_before());
            let micros = |work: &dyn Fn()| {
                let rounds = 200_000_000 / block.len() / 10;
                let runs = (0..5).map(|_| {
                    let began = cpu_micros();
                    (0..rounds).for_each(|_| work());
                    (cpu_micros() - began) / rounds as f64
                });
                runs.fold(f64::MAX, f64::min)
            };
            let digest = micros(&|| {
                let mut digester = Digester::default();
                parts.iter().for_each(|(category, item)| digester.add(*category, item));
                std::hint::black_box(digester.finish(&[7; 48]));
            });
            let whole = micros(&|| {
                std::hint::black_box(sha384(&[&block]));
            });
            let verify = micros(&|| drop(std::hint::black_box(Verified::of(&block, limits, &rules).unwrap())));
            println!(
                "{bytes:>7} bytes, {:>4} items: digest {digest:.2} µs, SHA-384 of the whole {whole:.1} µs, all of verifying {verify:.1} µs",
                parts.len()
            );
        }
    }
}
