//! The Merkle tree of blocks of 2025 (block node 0.13 and 0.14): no prefixes, and as many empty leaves behind the others as make it
//! perfect. It grows leaf by leaf and keeps one hash for each of its complete subtrees.
//!
//! Source: HIP-1056 as the mirror node of that time implements it. A leaf is `H(content)`, an inner node `H(left‖right)`, an empty leaf
//! and an empty tree `H()`.

use super::{Hash, sha384};

/// A tree of any number of leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaddedTree {
    leaves: u64,
    /// Roots of complete subtrees, the largest first.
    pending: Vec<Hash>,
}

fn inner(left: &Hash, right: &Hash) -> Hash {
    sha384(&[left, right])
}

impl PaddedTree {
    /// Adds the exact bytes of a leaf.
    pub fn add(&mut self, content: &[u8]) {
        let mut hash = sha384(&[content]);
        for _ in 0..self.leaves.trailing_ones() {
            // There is one for each bit that is set.
            let Some(left) = self.pending.pop() else { break };
            hash = inner(&left, &hash);
        }
        self.pending.push(hash);
        self.leaves += 1;
    }

    /// The root of what was added until now.
    pub fn root(&self) -> Hash {
        let mut empty = sha384(&[]);
        let mut complete = self.pending.iter().rev();
        let height = self.leaves.next_power_of_two().trailing_zeros();
        let mut right: Option<Hash> = None;
        for level in 0..height {
            let left = if self.leaves >> level & 1 == 1 { complete.next() } else { None };
            right = match (left, right) {
                (Some(left), Some(right)) => Some(inner(left, &right)),
                (Some(left), None) => Some(inner(left, &empty)),
                (None, Some(alone)) => Some(inner(&alone, &empty)),
                (None, None) => None,
            };
            empty = inner(&empty, &empty);
        }
        match right {
            Some(root) => root,
            // A power of two; or nothing at all, for which the height is 0.
            None => complete.next().copied().unwrap_or(empty),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by its definition: level by level.
    fn by_definition(contents: &[[u8; 8]]) -> Hash {
        let mut level: Vec<Hash> = contents.iter().map(|content| sha384(&[content])).collect();
        level.resize(contents.len().next_power_of_two(), sha384(&[]));
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| inner(&pair[0], &pair[1])).collect();
        }
        level[0]
    }

    proptest! {
        #[test]
        fn the_streaming_root_is_that_of_the_padded_tree(count in 0_u64..300) {
            let contents: Vec<_> = (0..count).map(u64::to_le_bytes).collect();
            let mut tree = PaddedTree::default();
            contents.iter().for_each(|content| tree.add(content));
            prop_assert_eq!(tree.root(), by_definition(&contents));
        }
    }

    #[test]
    fn an_empty_tree_is_the_hash_of_nothing() {
        // FIPS 180-4: SHA-384 of no bytes begins so.
        assert_eq!(PaddedTree::default().root()[..6], [0x38, 0xb0, 0x60, 0xa7, 0x51, 0xac]);
    }
}
