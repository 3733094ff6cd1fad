//! getBlockContentsProof: that an item is part of a block, shown with a few hashes instead of the block. Pure. It keeps a few hashes, too, however
//! many items a block has.
//!
//! Who asks computes `H(00‖item)`, then for each sibling `H(02‖sibling‖hash)` if that is first, else `H(02‖hash‖sibling)`. What comes out is
//! the block's root hash, over which the signature is. In blocks before hapi_proto_version 0.77 a node has one child, or none has a
//! prefix: their proofs cannot be said in this message, and are NOT_AVAILABLE.

use crate::block::{Era, Footer, Header, Item, Kind, signature_of};
use crate::hash::{Hash, empty, inner, leaf};
use crate::messages::ContentsProofCode;
use crate::wire::WireError;

/// Which item of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The one with these bytes.
    Item(&'a [u8]),
    /// The one of this hash, `H(00‖item)`.
    Hash(&'a [u8]),
    /// The one at this place, of all items, from 0 on.
    Index(usize),
}

/// A hash beside the way from a leaf to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Whether it comes first.
    pub is_first: bool,
    /// The hash.
    pub hash: Hash,
}

/// An item and its way to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsProof {
    /// The item's exact bytes.
    pub item: Vec<u8>,
    /// From the leaf up.
    pub siblings: Vec<Sibling>,
    /// Of the block, over the root.
    pub signature: Vec<u8>,
}

impl ContentsProof {
    /// The root hash that it leads to.
    pub fn root(&self) -> Hash {
        self.siblings.iter().fold(leaf(&self.item), |hash, sibling| match sibling.is_first {
            true => inner(&sibling.hash, &hash),
            false => inner(&hash, &sibling.hash),
        })
    }
}

/// A hash of a tree, and whether what is wanted lies below it.
#[derive(Clone, Copy)]
struct Node {
    hash: Hash,
    is_on_way: bool,
}

/// The node above two others. If one of them is on the way, the other one stands beside it.
fn join(left: Node, right: Node, beside: &mut Vec<Sibling>) -> Node {
    if right.is_on_way {
        beside.push(Sibling { is_first: true, hash: left.hash });
    } else if left.is_on_way {
        beside.push(Sibling { is_first: false, hash: right.hash });
    }
    Node { hash: inner(&left.hash, &right.hash), is_on_way: left.is_on_way || right.is_on_way }
}

/// Grows as [`Tree`](crate::hash::Tree) does, and tells what stands beside the way of one leaf, from that up.
#[derive(Default)]
struct Way {
    leaves: u64,
    /// Roots of complete subtrees, the largest first.
    pending: Vec<Node>,
}

impl Way {
    fn add(&mut self, leaf: Node, beside: &mut Vec<Sibling>) {
        let mut node = leaf;
        for _ in 0..self.leaves.trailing_ones() {
            // There is one for each bit that is set.
            let Some(left) = self.pending.pop() else { break };
            node = join(left, node, beside);
        }
        self.pending.push(node);
        self.leaves += 1;
    }

    fn root(self, beside: &mut Vec<Sibling>) -> Node {
        let above = |right, left| join(left, right, beside);
        self.pending.into_iter().rev().reduce(above).unwrap_or(Node { hash: empty(), is_on_way: false })
    }
}

/// The proof of an item of a stored block, which was verified when it came, from all of its items.
pub fn prove<'a>(
    items: impl Iterator<Item = Result<&'a [u8], WireError>>,
    wanted: &Wanted<'_>,
) -> Result<ContentsProof, ContentsProofCode> {
    let damaged = |_| ContentsProofCode::Error;
    let (mut header, mut footer, mut signature): (Option<Header>, Option<Footer>, _) = (None, None, None);
    let mut below: [Way; 16] = Default::default();
    let (mut found, mut way) = (None, Vec::new());
    for (index, bytes) in items.enumerate() {
        let bytes = bytes.map_err(damaged)?;
        let item = Item::of(bytes).map_err(|_| ContentsProofCode::Error)?;
        match item.kind() {
            Kind::Header => header = Some(Header::of(item.content).map_err(damaged)?),
            Kind::Footer => footer = Some(Footer::of(item.content).map_err(damaged)?),
            Kind::Proof if signature.is_none() => signature = signature_of(item.content),
            Kind::Proof | Kind::RecordFile | Kind::Other => {}
        }
        // Footer, proofs and others that are no part of the hash cannot be proven.
        let Some(place) = item.category.leaf() else { continue };
        let hash = leaf(bytes);
        let is_wanted = match wanted {
            Wanted::Item(wanted) => *wanted == bytes,
            Wanted::Hash(wanted) => *wanted == hash,
            Wanted::Index(wanted) => *wanted == index,
        };
        if is_wanted && found.replace(bytes).is_some() {
            return Err(ContentsProofCode::Duplicate);
        }
        below[place].add(Node { hash, is_on_way: is_wanted }, &mut way);
    }
    let header = header.ok_or(ContentsProofCode::Error)?;
    if Era::of(header.version) != Ok(Era::MountainTop) {
        return Err(ContentsProofCode::NotAvailable);
    }
    let item = found.ok_or(ContentsProofCode::ItemNotFound)?;
    let footer = footer.ok_or(ContentsProofCode::Error)?;
    let signature = signature.ok_or(ContentsProofCode::NotAvailable)?;
    let mut top = below.map(|subtree| subtree.root(&mut way));
    top[0].hash = footer.previous_root;
    top[1].hash = footer.all_previous_root.ok_or(ContentsProofCode::Error)?;
    top[2].hash = footer.state_root.unwrap_or_else(empty);
    let mut tree = Way::default();
    top.into_iter().for_each(|subtree| tree.add(subtree, &mut way));
    tree.root(&mut way);
    let timestamp = header.timestamp.ok_or(ContentsProofCode::Error)?;
    way.push(Sibling { is_first: true, hash: leaf(&timestamp) });
    Ok(ContentsProof { item: item.to_vec(), siblings: way, signature })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Version, dummy};
    use crate::craft::{Crafter, field};
    use crate::messages::items;
    use proptest::prelude::*;

    const FIELDS: [u32; 8] = [2, 4, 5, 6, 7, 11, 28, 35];

    fn prove(block: &[u8], wanted: &Wanted<'_>) -> Result<ContentsProof, ContentsProofCode> {
        super::prove(items(block), wanted)
    }

    proptest! {
        #[test]
        fn every_item_that_is_hashed_leads_to_the_root(kinds in prop::collection::vec(0..FIELDS.len(), 0..40)) {
            let contents = kinds.iter().enumerate();
            let made = contents.map(|(index, kind)| field(FIELDS[*kind], &(index as u32).to_be_bytes()));
            let block = Crafter::new(1, 0).next_of(made);
            let all: Vec<Vec<u8>> = items(&block.bytes).map(|item| item.unwrap().to_vec()).collect();
            let (hashed, others) = all.split_at(all.len() - 2);
            for (index, item) in hashed.iter().enumerate() {
                let proof = prove(&block.bytes, &Wanted::Index(index)).unwrap();
                prop_assert_eq!((&proof.item, proof.root()), (item, block.root));
                prop_assert_eq!(&proof.signature[..], &dummy(&block.root)[..]);
                prop_assert_eq!(&prove(&block.bytes, &Wanted::Item(item)).unwrap(), &proof);
                prop_assert_eq!(&prove(&block.bytes, &Wanted::Hash(&leaf(item))).unwrap(), &proof);
                let mut forged = proof;
                forged.item[0] ^= 1;
                prop_assert_ne!(forged.root(), block.root);
            }
            for item in others {
                prop_assert_eq!(prove(&block.bytes, &Wanted::Item(item)), Err(ContentsProofCode::ItemNotFound));
            }
            prop_assert_eq!(prove(&block.bytes, &Wanted::Index(all.len())), Err(ContentsProofCode::ItemNotFound));
        }
    }

    #[test]
    fn of_two_items_alike_neither_is_meant_and_older_blocks_have_no_such_proofs() {
        let twice = [field(4, b"a"), field(5, b"b"), field(4, b"a")];
        let block = Crafter::new(1, 0).next_of(twice.clone());
        assert_eq!(prove(&block.bytes, &Wanted::Item(&twice[0])), Err(ContentsProofCode::Duplicate));
        assert_eq!(prove(&block.bytes, &Wanted::Index(3)).unwrap().root(), block.root);
        for minor in [62, 76] {
            let older = Crafter::in_version(1, 0, Version { major: 0, minor, patch: 0 }).next_of(twice.clone());
            assert_eq!(prove(&older.bytes, &Wanted::Index(1)), Err(ContentsProofCode::NotAvailable));
        }
        assert_eq!(prove(b"", &Wanted::Index(0)), Err(ContentsProofCode::Error));
    }
}
