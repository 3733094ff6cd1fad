//! The blocks that a store has, as far as this loader knows: every one that it has made, and those that were there before, each read
//! and made again. Pure.
//!
//! Of each block its root hash is kept, with length and checksum of all its bytes: 56 bytes a block.

use storebench_crds::workload::block_stream::HashRules;

use super::block::{self, Made, Recipe};
use super::hash::{Hash, Past, Tree, empty};

/// A chain of blocks from block 0 on.
#[derive(Debug, Default)]
pub struct Chain {
    known: Vec<Known>,
    all: Tree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    root: Hash,
    length: u32,
    checksum: u32,
}

impl Known {
    fn of(root: Hash, bytes: &[u8]) -> Self {
        Self { root, length: bytes.len() as u32, checksum: crc32c::crc32c(bytes) }
    }
}

impl Chain {
    /// The number of the block that would be next.
    pub fn next(&self) -> u64 {
        self.known.len() as u64
    }

    fn past(&self) -> Past {
        Past { previous: self.known.last().map_or_else(empty, |known| known.root), all: self.all.root() }
    }

    /// Makes the next block, and knows it from then on.
    pub fn make(&mut self, seed: u64, block_bytes: u32, items: Option<u32>, rules: HashRules) -> Made {
        let recipe = Recipe::new(seed, self.next(), block_bytes, items);
        let made = block::make(recipe, rules, &self.past());
        self.add(made.root, &made.bytes);
        made
    }

    /// Takes the next block from a store that had it before: it must be the very one that its recipe makes. Errors: what is wrong with
    /// it, as the end of a sentence about the block.
    pub fn learn(&mut self, bytes: &[u8]) -> Result<(), String> {
        let read = block::read(bytes)?;
        if read.recipe.number != self.next() {
            return Err(format!("it is block {}", read.recipe.number));
        }
        if read.past != self.past() {
            return Err("it continues other blocks than those before it".into());
        }
        let Recipe { items, item_bytes, .. } = read.recipe;
        let is_plausible = u64::from(items) * u64::from(item_bytes) <= bytes.len() as u64;
        if !is_plausible || block::make(read.recipe, read.rules, &read.past).bytes != bytes {
            return Err("it is not what was published".into());
        }
        self.add(read.root, bytes);
        Ok(())
    }

    /// Compares a block that was read with what was published. Errors: as of [`Chain::learn`].
    pub fn check(&self, number: u64, bytes: &[u8]) -> Result<(), String> {
        let Some(known) = self.known.get(number as usize) else {
            return Err("it was never published".into());
        };
        let read = block::read(bytes)?;
        if read.recipe.number != number {
            return Err(format!("it is block {}", read.recipe.number));
        }
        if *known != Known::of(read.root, bytes) {
            return Err("it is not what was published".into());
        }
        Ok(())
    }

    fn add(&mut self, root: Hash, bytes: &[u8]) {
        self.known.push(Known::of(root, bytes));
        self.all.add(root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(seed: u64, blocks: u32) -> (Chain, Vec<Vec<u8>>) {
        let mut chain = Chain::default();
        let made = (0..blocks).map(|_| chain.make(seed, 2_000, Some(2), HashRules::MountainTop).bytes).collect();
        (chain, made)
    }

    #[test]
    fn what_was_published_is_right_and_known_to_whoever_reads_it() {
        let (chain, made) = chain(1, 20);
        let mut reader = Chain::default();
        for (number, bytes) in made.iter().enumerate() {
            assert_eq!(chain.check(number as u64, bytes), Ok(()));
            assert_eq!(reader.learn(bytes), Ok(()));
        }
        assert_eq!(reader.past(), chain.past());
    }

    /// A block that verifies by itself is not yet the right one.
    #[test]
    fn a_lie_is_told_however_well_it_is_made() {
        let (chain, made) = chain(1, 5);
        let (_, other) = self::chain(2, 5);
        let said = |number: u64, bytes: &[u8]| chain.check(number, bytes).unwrap_err();
        assert_eq!(said(3, &other[3]), "it is not what was published");
        assert_eq!(said(3, &made[2]), "it is block 2");
        assert_eq!(said(5, &made[4]), "it was never published");
        let mut flipped = made[3].clone();
        flipped[1_000] ^= 1;
        assert_eq!(said(3, &flipped), "its items do not hash to what its proof says");
        let cut = &made[3][..1_500];
        assert!(said(3, cut).starts_with("it "), "{}", said(3, cut));
        // An item that belongs to no hash: the root is right and the block is not.
        let mut longer = made[3].clone();
        longer.extend([0x0a, 2, 0x62, 0]);
        assert!(chain.check(3, &longer).is_err());
        let mut reader = Chain::default();
        assert_eq!(reader.learn(&made[1]), Err("it is block 1".into()));
        reader.learn(&other[0]).unwrap();
        assert_eq!(reader.learn(&made[1]), Err("it continues other blocks than those before it".into()));
    }
}
