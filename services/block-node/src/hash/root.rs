//! The root hash of a block, item by item, in the era that the block itself names.
//!
//! | era | subtrees | root |
//! | --- | --- | --- |
//! | legacy (block node 0.28 to 0.40) | 8 | `H(02 ‖ H(00‖timestamp) ‖ H(01‖T))` |
//! | mountain top (from 0.41 on) | 16 | `H(02 ‖ H(00‖timestamp) ‖ T)` |
//!
//! T is the tree over: root of the previous block, root of the tree of all previous roots, state at the start, then the roots of
//! the subtrees consensus, inputs, outputs, state changes, traces; and, in the mountain top, of eight subtrees for extensions.

use super::{HASH_BYTES, Hash, Tree, empty, inner, leaf, single_child};
use crate::block::{Category, Footer, Version};

/// Hash rules of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Block node 0.28 to 0.40.
    Legacy,
    /// Block node 0.41 and later.
    MountainTop,
}

/// A block of a time whose rules are not implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("blocks of hapi_proto_version {0} cannot be verified: hash rules are known from {FIRST_LEGACY} on")]
pub struct EraError(pub Version);

/// Consensus nodes that went with block node 0.28.
const FIRST_LEGACY: Version = Version { major: 0, minor: 71, patch: 0 };
/// Block node 0.40.1 went with consensus node 0.73, 0.41 with 0.76.
const FIRST_MOUNTAIN_TOP: Version = Version { major: 0, minor: 74, patch: 0 };

impl Era {
    /// The rules of a block whose header names this version of its protocol.
    pub fn of(version: Version) -> Result<Self, EraError> {
        match version {
            version if version >= FIRST_MOUNTAIN_TOP => Ok(Self::MountainTop),
            version if version >= FIRST_LEGACY => Ok(Self::Legacy),
            version => Err(EraError(version)),
        }
    }

    /// Whether items of this category exist.
    pub fn has(self, category: Category) -> bool {
        self == Self::MountainTop || !matches!(category, Category::Extension(_))
    }
}

const EXTENSIONS: usize = 8;

/// Takes a block's items, in order.
#[derive(Clone, Debug)]
pub struct RootHasher {
    era: Era,
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
        Self {
            era,
            consensus: Tree::default(),
            inputs: Tree::default(),
            outputs: Tree::default(),
            state_changes: Tree::default(),
            traces: Tree::default(),
            extensions: Default::default(),
        }
    }

    /// Adds the exact bytes of an item.
    pub fn add(&mut self, category: Category, item: &[u8]) {
        debug_assert!(self.era.has(category));
        let tree = match category {
            Category::Consensus => &mut self.consensus,
            Category::Inputs => &mut self.inputs,
            Category::Outputs => &mut self.outputs,
            Category::StateChanges => &mut self.state_changes,
            Category::Traces => &mut self.traces,
            Category::Extension(number) => &mut self.extensions[usize::from(number) % EXTENSIONS],
            Category::NotHashed => return,
        };
        tree.add(leaf(item));
    }

    /// The root, given the exact bytes of the header's timestamp.
    pub fn root(&self, timestamp: &[u8], footer: &Footer) -> Hash {
        let missing_state = match self.era {
            Era::Legacy => [0; HASH_BYTES],
            Era::MountainTop => empty(),
        };
        let mut top = Tree::default();
        top.add(footer.previous_root);
        top.add(footer.all_previous_root);
        top.add(footer.state_root.unwrap_or(missing_state));
        for tree in [&self.consensus, &self.inputs, &self.outputs, &self.state_changes, &self.traces] {
            top.add(tree.root());
        }
        let below = match self.era {
            Era::Legacy => single_child(&top.root()),
            Era::MountainTop => {
                self.extensions.iter().for_each(|tree| top.add(tree.root()));
                top.root()
            }
        };
        inner(&leaf(timestamp), &below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_era() {
        let version = |minor, patch| Version { major: 0, minor, patch };
        assert_eq!(Era::of(version(71, 0)), Ok(Era::Legacy));
        assert_eq!(Era::of(version(73, 9)), Ok(Era::Legacy));
        assert_eq!(Era::of(version(74, 0)), Ok(Era::MountainTop));
        assert_eq!(Era::of(Version { major: 1, minor: 0, patch: 0 }), Ok(Era::MountainTop));
        let said = Era::of(version(62, 2)).unwrap_err().to_string();
        assert_eq!(said, "blocks of hapi_proto_version 0.62.2 cannot be verified: hash rules are known from 0.71.0 on");
    }
}
