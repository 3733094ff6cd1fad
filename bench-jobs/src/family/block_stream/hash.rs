//! Root hashes of blocks: the loader's own rules, without any code of a store. Pure.
//!
//! H is SHA-384. A leaf is H(00 ‖ item), an inner node H(02 ‖ left ‖ right), a node with one child H(01 ‖ child), an empty tree H(00).
//! The items of a block are leaves of five trees; their roots, behind those of the block's past, are leaves of the tree T:
//!
//! | rules | leaves of T | root |
//! | --- | --- | --- |
//! | [`HashRules::Legacy`] | previous root, tree of all previous roots, state, five trees | H(02 ‖ H(00 ‖ timestamp) ‖ H(01 ‖ T)) |
//! | [`HashRules::MountainTop`] | the same, then eight empty trees | H(02 ‖ H(00 ‖ timestamp) ‖ T) |

use ring::digest::{Context, SHA384};
use storebench_crds::workload::block_stream::HashRules;

/// Length of a hash, bytes.
pub const HASH_BYTES: usize = 48;
/// A hash.
pub type Hash = [u8; HASH_BYTES];
/// Trees for kinds of items that there are not yet.
const EXTENSIONS: usize = 8;

fn sha384(pieces: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA384);
    pieces.iter().for_each(|piece| context.update(piece));
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn leaf(content: &[u8]) -> Hash {
    sha384(&[&[0], content])
}

/// Stands for what is empty, and for what was before the first block.
pub fn empty() -> Hash {
    leaf(&[])
}

/// What stands in a signature's place where nobody signs.
pub fn dummy(root: &Hash) -> Hash {
    sha384(&[root])
}

/// A tree that grows: one hash for each bit that is set in the number of its leaves, the largest subtree first.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    leaves: u64,
    subtrees: Vec<Hash>,
}

impl Tree {
    /// Adds a leaf by its hash.
    pub fn add(&mut self, mut hash: Hash) {
        for _ in 0..self.leaves.trailing_ones() {
            let Some(left) = self.subtrees.pop() else { break };
            hash = sha384(&[&[2], &left, &hash]);
        }
        self.subtrees.push(hash);
        self.leaves += 1;
    }

    /// The root.
    pub fn root(&self) -> Hash {
        let mut from_right = self.subtrees.iter().rev().copied();
        let Some(last) = from_right.next() else { return empty() };
        from_right.fold(last, |right, left| sha384(&[&[2], &left, &right]))
    }
}

/// What a block says of the blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// Root of the block before.
    pub previous: Hash,
    /// Root of the tree of all roots before.
    pub all: Hash,
}

/// The trees of one block's items.
#[derive(Debug, Default)]
pub struct Items([Tree; 5]);

impl Items {
    /// Adds an item: the number of its only field, and its exact bytes. Errors: an item that this loader publishes in no block.
    pub fn add(&mut self, field: u32, item: &[u8]) -> Result<(), String> {
        let tree = match field {
            2 | 3 => 0,
            4 => 1,
            1 | 5 | 6 => 2,
            7 => 3,
            11 => 4,
            // Proof and footer say what the others hash to.
            9 | 12 => return Ok(()),
            other => return Err(format!("it has an item of kind {other}, which was never published")),
        };
        self.0[tree].add(leaf(item));
        Ok(())
    }

    /// The root of the block, whose state at the start is empty. `timestamp`: the exact bytes of the header's.
    pub fn root(&self, rules: HashRules, timestamp: &[u8], past: &Past) -> Hash {
        let state = match rules {
            HashRules::Legacy => [0; HASH_BYTES],
            HashRules::MountainTop => empty(),
        };
        let mut top = Tree::default();
        [past.previous, past.all, state].into_iter().for_each(|hash| top.add(hash));
        self.0.iter().for_each(|tree| top.add(tree.root()));
        let below = match rules {
            HashRules::Legacy => sha384(&[&[1], &top.root()]),
            HashRules::MountainTop => {
                (0..EXTENSIONS).for_each(|_| top.add(empty()));
                top.root()
            }
        };
        sha384(&[&[2], &leaf(timestamp), &below])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_hash_is_the_one_that_is_published() {
        assert_eq!(empty()[..8], [0xbe, 0xc0, 0x21, 0xb4, 0xf3, 0x68, 0xe3, 0x06]);
    }

    /// Against the definition: the left part is the largest complete tree that is smaller than all of it.
    #[test]
    fn a_tree_that_grows_is_the_tree_by_halves() {
        fn by_halves(leaves: &[Hash]) -> Hash {
            match leaves {
                [] => empty(),
                [only] => *only,
                _ => {
                    let left = 1 << (leaves.len() - 1).ilog2();
                    sha384(&[&[2], &by_halves(&leaves[..left]), &by_halves(&leaves[left..])])
                }
            }
        }
        let mut tree = Tree::default();
        let leaves: Vec<Hash> = (0..40_u8).map(|number| leaf(&[number])).collect();
        for count in 0..leaves.len() {
            assert_eq!(tree.root(), by_halves(&leaves[..count]), "{count} leaves");
            tree.add(leaves[count]);
        }
    }
}
