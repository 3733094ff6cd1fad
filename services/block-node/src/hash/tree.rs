//! A Merkle tree that grows leaf by leaf and keeps one hash for each of its complete subtrees: 48 bytes for each bit that is set in
//! the number of leaves.

use super::{HASH_BYTES, Hash, empty, inner};

/// A tree of any number of leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    leaves: u64,
    /// Roots of complete subtrees, the largest first.
    pending: Vec<Hash>,
}

impl Tree {
    /// Adds the hash of a leaf.
    pub fn add(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.leaves.trailing_ones() {
            // There is one for each bit that is set.
            let Some(left) = self.pending.pop() else { break };
            hash = inner(&left, &hash);
        }
        self.pending.push(hash);
        self.leaves += 1;
        debug_assert_eq!(self.pending.len(), self.leaves.count_ones() as usize);
    }

    /// The root of what was added until now.
    pub fn root(&self) -> Hash {
        let mut pending = self.pending.iter().rev();
        let Some(last) = pending.next() else { return empty() };
        pending.fold(*last, |right, left| inner(left, &right))
    }

    /// How many leaves were added.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Number of leaves (8 bytes, little-endian), then the pending hashes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.leaves.to_le_bytes());
        self.pending.iter().for_each(|hash| out.extend(hash));
    }

    /// What [`Tree::encode`] has written, and what stands behind it; `None`: it is not whole.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (leaves, mut rest) = bytes.split_first_chunk::<8>()?;
        let leaves = u64::from_le_bytes(*leaves);
        let mut pending = Vec::new();
        for _ in 0..leaves.count_ones() {
            let (hash, behind) = rest.split_first_chunk::<HASH_BYTES>()?;
            pending.push(*hash);
            rest = behind;
        }
        Some((Self { leaves, pending }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by its definition: the largest power of two that is less than the number of leaves goes left.
    fn by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty(),
            [only] => *only,
            _ => {
                let left = leaves.len().next_power_of_two() / 2;
                inner(&by_definition(&leaves[..left]), &by_definition(&leaves[left..]))
            }
        }
    }

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|number| super::super::leaf(&number.to_le_bytes())).collect()
    }

    proptest! {
        #[test]
        fn the_streaming_root_is_that_of_the_whole_tree(count in 0_usize..200) {
            let leaves = leaves(count);
            let mut tree = Tree::default();
            leaves.iter().for_each(|leaf| tree.add(*leaf));
            prop_assert_eq!(tree.root(), by_definition(&leaves));
            let mut bytes = Vec::new();
            tree.encode(&mut bytes);
            bytes.push(7);
            prop_assert_eq!(Tree::decode(&bytes), Some((tree, &[7][..])));
            prop_assert_eq!(Tree::decode(&bytes[..bytes.len() - 2]), None);
        }
    }
}
