//! Hashes of blocks: SHA-384, leaves, inner nodes, the streaming tree that both prefixed eras share, and the padded tree of the time
//! before them.
//!
//! Source: HIP-1056 as implemented from block node 0.28 on; for the time before, see [`PaddedTree`]. A leaf is `H(00‖content)`, an inner node
//! `H(02‖left‖right)`, a node with one child `H(01‖child)`, an empty tree `H(00)`.

mod padded;
mod tree;

pub use padded::PaddedTree;
pub use tree::Tree;

use std::sync::LazyLock;

use ring::digest::{Context, SHA384};

/// Length of a hash, bytes.
pub const HASH_BYTES: usize = 48;

/// A SHA-384 hash.
pub type Hash = [u8; HASH_BYTES];

const LEAF: u8 = 0;
const SINGLE_CHILD: u8 = 1;
const INNER: u8 = 2;

/// SHA-384 of these pieces, one behind the other.
pub fn sha384(pieces: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA384);
    for piece in pieces {
        context.update(piece);
    }
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The hash of a leaf.
pub fn leaf(content: &[u8]) -> Hash {
    sha384(&[&[LEAF], content])
}

/// The hash of a node with two children.
pub fn inner(left: &Hash, right: &Hash) -> Hash {
    sha384(&[&[INNER], left, right])
}

/// The hash of a node with one child.
pub fn single_child(child: &Hash) -> Hash {
    sha384(&[&[SINGLE_CHILD], child])
}

/// The hash of an empty tree, and of what was before the first block.
pub fn empty() -> Hash {
    // Most subtrees of most blocks are empty.
    static EMPTY: LazyLock<Hash> = LazyLock::new(|| leaf(&[]));
    *EMPTY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_hash_is_the_one_that_is_published() {
        assert_eq!(empty()[..8], [0xbe, 0xc0, 0x21, 0xb4, 0xf3, 0x68, 0xe3, 0x06]);
    }

    #[test]
    fn pieces_are_hashed_as_one() {
        assert_eq!(sha384(&[b"ab", b"", b"c"]), sha384(&[b"abc"]));
        // FIPS 180-4's example.
        assert_eq!(sha384(&[b"abc"])[..6], [0xcb, 0x00, 0x75, 0x3f, 0x45, 0xa3]);
    }
}
