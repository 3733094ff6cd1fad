//! The root hash of a block, item by item, in the era that the block itself names.
//!
//! | era | subtrees | root |
//! | --- | --- | --- |
//! | two trees (block node 0.13 and 0.14) | 2 | `H(H(previous‖inputs) ‖ H(outputs‖state))`, without prefixes |
//! | legacy (block node 0.28 to 0.40) | 8 | `H(02 ‖ H(00‖timestamp) ‖ H(01‖T))` |
//! | mountain top (from 0.41 on) | 16 | `H(02 ‖ H(00‖timestamp) ‖ T)` |
//!
//! T is the tree over: root of the previous block, root of the tree of all previous roots, state at the start, then the roots of
//! the subtrees consensus, inputs, outputs, state changes, traces; and, in the mountain top, of eight subtrees for extensions.
//! Of two trees the inputs are consensus and inputs, the outputs are outputs and state changes, each in the order of the block.

use std::sync::LazyLock;

use super::{Category, Footer, Version};
use crate::hash::{HASH_BYTES, Hash, PaddedTree, Tree, empty, inner, leaf, sha384, single_child};

/// Hash rules of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Block node 0.13 and 0.14: what a footer says later stands in the proof.
    TwoTrees,
    /// Block node 0.28 to 0.40.
    Legacy,
    /// Block node 0.41 and later.
    MountainTop,
}

/// A block of a time whose rules are not implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "blocks of hapi_proto_version {0} cannot be verified: hash rules are known of {FIRST_TWO_TREES} to 0.63 and from {FIRST_LEGACY} on"
)]
pub struct EraError(pub Version);

/// Block node 0.13 went with consensus node 0.62.2 and 0.63.9.
const FIRST_TWO_TREES: Version = Version { major: 0, minor: 62, patch: 0 };
/// Block node 0.15 hashed five subtrees without prefixes, which nobody keeps.
const FIRST_FIVE_TREES: Version = Version { major: 0, minor: 64, patch: 0 };
/// Consensus nodes that went with block node 0.28.
const FIRST_LEGACY: Version = Version { major: 0, minor: 71, patch: 0 };
/// Consensus node 0.76.1 still signs legacy roots, though block node 0.41 was built with its messages; `testing/block-node/java` asks
/// its classes. The change is consensus node's pull request 26918.
const FIRST_MOUNTAIN_TOP: Version = Version { major: 0, minor: 77, patch: 0 };

impl Era {
    /// The rules of a block whose header names this version of its protocol.
    pub fn of(version: Version) -> Result<Self, EraError> {
        match version {
            version if version >= FIRST_MOUNTAIN_TOP => Ok(Self::MountainTop),
            version if version >= FIRST_LEGACY => Ok(Self::Legacy),
            version if (FIRST_TWO_TREES..FIRST_FIVE_TREES).contains(&version) => Ok(Self::TwoTrees),
            version => Err(EraError(version)),
        }
    }

    /// Whether items of this field exist, which goes into the hash there.
    pub fn has(self, field: u32, category: Category) -> bool {
        match self {
            // event_header, round_header, transaction and its results, state changes, header and proof.
            Self::TwoTrees => matches!(field, 1..=7 | 9),
            Self::Legacy => !matches!(category, Category::Extension(_)),
            Self::MountainTop => true,
        }
    }

    /// Whether a block has a footer, and any number of proofs; otherwise it has one proof that says the same.
    pub fn has_footer(self) -> bool {
        self != Self::TwoTrees
    }
}

const EXTENSIONS: usize = 8;

/// Takes a block's items, in order.
#[derive(Clone, Debug)]
pub enum RootHasher {
    /// Of the time of two trees.
    TwoTrees {
        /// Consensus and inputs.
        inputs: PaddedTree,
        /// Outputs and state changes.
        outputs: PaddedTree,
    },
    /// Of the time of prefixes.
    Prefixed(Box<Prefixed>),
}

/// Subtrees of the time of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Prefixed {
    has_extensions: bool,
    consensus: Tree,
    inputs: Tree,
    outputs: Tree,
    state_changes: Tree,
    traces: Tree,
    extensions: [Tree; EXTENSIONS],
}

impl RootHasher {
    /// For a block of this era.
    pub fn new(era: Era) -> Self {
        match era {
            Era::TwoTrees => Self::TwoTrees { inputs: PaddedTree::default(), outputs: PaddedTree::default() },
            Era::Legacy => Self::Prefixed(Box::default()),
            Era::MountainTop => Self::Prefixed(Box::new(Prefixed { has_extensions: true, ..Prefixed::default() })),
        }
    }

    /// Adds the exact bytes of an item.
    pub fn add(&mut self, category: Category, item: &[u8]) {
        match self {
            Self::TwoTrees { inputs, outputs } => match category {
                Category::Consensus | Category::Inputs => inputs.add(item),
                Category::Outputs | Category::StateChanges => outputs.add(item),
                Category::Traces | Category::Extension(_) | Category::NotHashed => {}
            },
            Self::Prefixed(_) if category == Category::NotHashed => {}
            Self::Prefixed(trees) => trees.add_leaf(category, leaf(item)),
        }
    }

    /// Adds the hash of an item that is not here; `false`: hashes of that time had no such place, or were made otherwise.
    pub fn add_leaf(&mut self, category: Category, leaf: Hash) -> bool {
        match (self, category) {
            (Self::TwoTrees { .. }, _) | (_, Category::NotHashed) => false,
            (Self::Prefixed(trees), Category::Extension(_)) if !trees.has_extensions => false,
            (Self::Prefixed(trees), category) => {
                trees.add_leaf(category, leaf);
                true
            }
        }
    }

    /// The root, given the exact bytes of the header's timestamp, which was no part of it in the time of two trees.
    pub fn root(&self, timestamp: &[u8], footer: &Footer) -> Hash {
        match self {
            Self::TwoTrees { inputs, outputs } => {
                let state = footer.state_root.unwrap_or([0; HASH_BYTES]);
                let left = sha384(&[&footer.previous_root, &inputs.root()]);
                sha384(&[&left, &sha384(&[&outputs.root(), &state])])
            }
            Self::Prefixed(trees) => trees.root(timestamp, footer),
        }
    }
}

impl Prefixed {
    fn add_leaf(&mut self, category: Category, leaf: Hash) {
        let tree = match category {
            Category::Consensus => &mut self.consensus,
            Category::Inputs => &mut self.inputs,
            Category::Outputs => &mut self.outputs,
            Category::StateChanges => &mut self.state_changes,
            Category::Traces => &mut self.traces,
            Category::Extension(number) => &mut self.extensions[usize::from(number) % EXTENSIONS],
            Category::NotHashed => return,
        };
        tree.add(leaf);
    }

    fn root(&self, timestamp: &[u8], footer: &Footer) -> Hash {
        let missing_state = if self.has_extensions { empty() } else { [0; HASH_BYTES] };
        let trees = [&self.consensus, &self.inputs, &self.outputs, &self.state_changes, &self.traces];
        let before = [
            footer.previous_root,
            footer.all_previous_root.unwrap_or_else(empty),
            footer.state_root.unwrap_or(missing_state),
        ];
        let first_eight = tree_of(before.into_iter().chain(trees.map(Tree::root)));
        let below = match self.has_extensions {
            true => inner(&first_eight, &self.extensions_root()),
            false => single_child(&first_eight),
        };
        inner(&leaf(timestamp), &below)
    }

    /// The tree over the other eight subtrees: a complete half of T.
    fn extensions_root(&self) -> Hash {
        // No block has extensions yet: seven hashes that need not be made for each.
        static WITHOUT: LazyLock<Hash> = LazyLock::new(|| tree_of([empty(); EXTENSIONS]));
        if self.extensions.iter().all(|tree| tree.leaves() == 0) {
            return *WITHOUT;
        }
        tree_of(self.extensions.iter().map(Tree::root))
    }
}

/// The root of the tree over these leaves.
fn tree_of(leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut tree = Tree::default();
    leaves.into_iter().for_each(|leaf| tree.add(leaf));
    tree.root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_era() {
        let version = |minor, patch| Version { major: 0, minor, patch };
        assert_eq!(Era::of(version(62, 2)), Ok(Era::TwoTrees));
        assert_eq!(Era::of(version(63, 9)), Ok(Era::TwoTrees));
        assert_eq!(Era::of(version(71, 0)), Ok(Era::Legacy));
        assert_eq!(Era::of(version(76, 1)), Ok(Era::Legacy));
        assert_eq!(Era::of(version(77, 0)), Ok(Era::MountainTop));
        assert_eq!(Era::of(Version { major: 1, minor: 0, patch: 0 }), Ok(Era::MountainTop));
        let said = Era::of(version(65, 0)).unwrap_err().to_string();
        assert_eq!(
            said,
            "blocks of hapi_proto_version 0.65.0 cannot be verified: hash rules are known of 0.62.0 to 0.63 and from 0.71.0 on"
        );
        assert!(Era::of(version(61, 9)).is_err());
    }
}
