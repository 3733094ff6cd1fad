//! Blocks that verify, made of a seed: for tests, for the simulator, for loads. Their proof is the dummy, which a node accepts only
//! where it is told to.

mod traffic;

pub use traffic::Traffic;

use bytes::Bytes;
use prost::Message as _;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use crate::block::{
    Chain, Era, FOOTER_FIELD, Footer, HEADER_FIELD, ITEMS_FIELD, Item, PROOF_FIELD, RootHasher, Version, dummy,
};
use crate::hash::{HASH_BYTES, Hash};
use crate::messages::{items, proto};
use crate::wire::put_bytes;

/// The version of its protocol that a crafted block names; its rules are today's.
const VERSION: Version = Version { major: 0, minor: 77, patch: 0 };
/// Fields of items between header and footer, one behind the other: transaction, result, state changes.
const FIELDS: [u32; 3] = [4, 5, 7];
/// Seconds from 1970 to the first block's time, which is fixed so that blocks are the same every time.
const GENESIS_SECONDS: i64 = 1_790_000_000;

/// How large a block shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Items between header and footer.
    pub items: usize,
    /// Content of each, bytes.
    pub item_bytes: usize,
}

impl Shape {
    /// About so many bytes in all, in items of 1,000 bytes or less.
    pub fn of_bytes(block_bytes: usize) -> Self {
        // Header, event header, footer and proof take about 220 bytes, the frame of each item about 6.
        let left = block_bytes.saturating_sub(220).max(1);
        let items = left.div_ceil(1_000);
        Self { items, item_bytes: (left / items).saturating_sub(6).max(1) }
    }
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crafted {
    /// Its number.
    pub number: u64,
    /// Its `Block` message.
    pub bytes: Vec<u8>,
    /// Its root hash.
    pub root: Hash,
}

/// Makes a chain of blocks. The same seed makes the same blocks.
#[derive(Clone, Debug)]
pub struct Crafter {
    random: SmallRng,
    chain: Chain,
    version: Version,
}

impl Crafter {
    /// A chain that begins with this number.
    pub fn new(seed: u64, first: u64) -> Self {
        Self::in_version(seed, first, VERSION)
    }

    /// A chain whose headers name this version, and whose hashes follow its rules.
    ///
    /// # Panics
    /// If the rules of that version are not known.
    pub fn in_version(seed: u64, first: u64, version: Version) -> Self {
        assert!(Era::of(version).is_ok(), "the rules of {version} are not known");
        Self { random: SmallRng::seed_from_u64(seed), chain: Chain::from(first), version }
    }

    /// Number of the next block.
    pub fn number(&self) -> u64 {
        self.chain.next()
    }

    /// The next block.
    pub fn next(&mut self, shape: Shape) -> Crafted {
        let number = self.chain.next();
        let mut items = vec![self.header(number), field(2, &self.content(16))];
        for index in 0..shape.items {
            let content = self.content(shape.item_bytes);
            items.push(field(FIELDS[index % FIELDS.len()], &content));
        }
        self.finish(items)
    }

    /// The next block, of these items between header and footer.
    pub fn next_of(&mut self, items: impl IntoIterator<Item = Vec<u8>>) -> Crafted {
        let header = self.header(self.chain.next());
        self.finish(std::iter::once(header).chain(items).collect())
    }

    fn finish(&mut self, mut items: Vec<Vec<u8>>) -> Crafted {
        let number = self.chain.next();
        let era = Era::of(self.version).unwrap_or(Era::MountainTop);
        let footer = self.footer(era);
        if let Some(all_previous_root) = &footer.all_previous_root {
            let encoded = proto::BlockFooter {
                previous_block_root_hash: Bytes::copy_from_slice(&footer.previous_root),
                root_hash_of_all_block_hashes_tree: Bytes::copy_from_slice(all_previous_root),
                start_of_block_state_root_hash: Bytes::new(),
            };
            items.push(field(FOOTER_FIELD, &encoded.encode_to_vec()));
        }
        let mut hasher = RootHasher::new(era);
        for item in &items {
            if let Ok(read) = Item::of(item) {
                hasher.add(read.category, item);
            }
        }
        let root = hasher.root(&timestamp(number).encode_to_vec(), &footer);
        items.push(field(PROOF_FIELD, &proof(number, &footer, &root)));
        self.chain.extend(root);
        let mut bytes = Vec::with_capacity(items.iter().map(|item| item.len() + 6).sum());
        items.iter().for_each(|item| put_bytes(&mut bytes, ITEMS_FIELD, item));
        Crafted { number, bytes, root }
    }

    fn footer(&self, era: Era) -> Footer {
        let footer = self.chain.footer(None);
        match era.has_footer() {
            true => footer,
            false => Footer {
                previous_root: if self.chain.next() == 0 { [0; HASH_BYTES] } else { footer.previous_root },
                all_previous_root: None,
                state_root: Some([0; HASH_BYTES]),
            },
        }
    }

    fn header(&self, number: u64) -> Vec<u8> {
        let Version { major, minor, patch } = self.version;
        let version = |pre: &str| proto::SemanticVersion {
            major: major as i32,
            minor: minor as i32,
            patch: patch as i32,
            pre: pre.into(),
            build: String::new(),
        };
        let header = proto::BlockHeader {
            hapi_proto_version: Some(version("")),
            software_version: Some(version("crafted")),
            number,
            block_timestamp: Some(timestamp(number)),
            hash_algorithm: 0,
        };
        field(HEADER_FIELD, &header.encode_to_vec())
    }

    /// Half of it random, as signatures and hashes are, half of it the same again and again, as accounts and field tags are: that
    /// shrinks about as much as the published model says of real blocks (2.39 times).
    fn content(&mut self, bytes: usize) -> Vec<u8> {
        const RUN_BYTES: usize = 32;
        let mut content = vec![0; bytes];
        for (index, run) in content.chunks_mut(RUN_BYTES).enumerate() {
            if index % 2 == 0 {
                self.random.fill_bytes(run);
            } else {
                let kind = self.random.random_range(0..4_u8);
                run.iter_mut().enumerate().for_each(|(place, byte)| *byte = kind * 40 + place as u8);
            }
        }
        content
    }
}

/// The content of a proof item, with the dummy in the signature's place.
fn proof(number: u64, footer: &Footer, root: &Hash) -> Vec<u8> {
    let block_signature = Bytes::copy_from_slice(&dummy(root));
    match (footer.all_previous_root, footer.state_root) {
        (None, Some(state_root)) => proto::OldBlockProof {
            block: number,
            previous_block_root_hash: Bytes::copy_from_slice(&footer.previous_root),
            start_of_block_state_root_hash: Bytes::copy_from_slice(&state_root),
            block_signature,
        }
        .encode_to_vec(),
        _ => {
            let signed = proto::SignedBlockProof { block_signature };
            proto::BlockProof { block: number, signed_block_proof: Some(signed) }.encode_to_vec()
        }
    }
}

/// A crafted block of today's era with this in its signature's place.
pub fn signed(block: &[u8], number: u64, signature: &[u8]) -> Vec<u8> {
    let block_signature = Bytes::copy_from_slice(signature);
    let signed = proto::SignedBlockProof { block_signature };
    let proof = proto::BlockProof { block: number, signed_block_proof: Some(signed) }.encode_to_vec();
    let mut items: Vec<&[u8]> = items(block).filter_map(Result::ok).collect();
    items.pop();
    let mut bytes = Vec::with_capacity(block.len() + signature.len());
    items.iter().for_each(|item| put_bytes(&mut bytes, ITEMS_FIELD, item));
    put_bytes(&mut bytes, ITEMS_FIELD, &field(PROOF_FIELD, &proof));
    bytes
}

fn timestamp(number: u64) -> proto::Timestamp {
    proto::Timestamp { seconds: GENESIS_SECONDS.wrapping_add((number as i64).wrapping_mul(2)), nanos: 1 }
}

/// An item with this field.
pub fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut item = Vec::with_capacity(content.len() + 6);
    put_bytes(&mut item, number, content);
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_blocks_of_about_the_size_that_was_asked_for() {
        let (mut one, mut other) = (Crafter::new(5, 0), Crafter::new(5, 0));
        for wanted in [1_000_usize, 13_000, 50_000, 500_000] {
            let block = one.next(Shape::of_bytes(wanted));
            assert!(block.bytes.len().abs_diff(wanted) < wanted / 10, "{} for {wanted}", block.bytes.len());
            assert_eq!(block, other.next(Shape::of_bytes(wanted)));
        }
        assert_ne!(
            Crafter::new(6, 0).next(Shape::of_bytes(1_000)).root,
            Crafter::new(5, 0).next(Shape::of_bytes(1_000)).root
        );
    }
}
