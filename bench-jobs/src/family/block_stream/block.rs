//! Blocks: how the loader makes them, and how it reads them. Pure.
//!
//! A block is a header, items, a footer and a proof, in which the hash of the root hash stands for a signature. Its second item says
//! what it was made of ([`Recipe`]), so that whoever reads it can make it again and compare every byte:
//!
//! ```text
//! 0            8      16       24      28           32
//! ├────────────┼──────┼────────┼───────┼────────────┤
//! │ "storebch" │ seed │ number │ items │ item_bytes │   numbers in little-endian
//! ```
//!
//! Other items are half random, as signatures are, and half the same again and again, as accounts are: they shrink about as real
//! blocks do.

use std::ops::Range;

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use storebench_crds::workload::block_stream::HashRules;

use crate::content::seeds::mix;

use super::hash::{Hash, Items, Past, dummy};

const HEADER: u32 = 1;
const RECIPE: u32 = 2;
/// Transaction, result, state changes.
const CONTENT: [u32; 3] = [4, 5, 7];
const PROOF: u32 = 9;
const FOOTER: u32 = 12;
/// Field of the items in a block and in a set of items, which have the same bytes.
const ITEM: u32 = 1;
const MARK: &[u8; 8] = b"storebch";
/// Length of what a recipe looks like.
const RECIPE_BYTES: usize = 32;
/// Random bytes, then as many that repeat.
const RUN_BYTES: usize = 32;
/// Time of block 0, seconds since 1970; blocks are two seconds apart and the same in every trial.
const FIRST_SECONDS: i64 = 1_790_000_000;
/// What header, recipe, footer and proof take, and the frame of each item, about, bytes.
const FRAME_BYTES: u32 = 230;
const ITEM_FRAME_BYTES: u32 = 6;

#[derive(Clone, PartialEq, Message)]
struct Version {
    #[prost(uint32, tag = "1")]
    major: u32,
    #[prost(uint32, tag = "2")]
    minor: u32,
    #[prost(uint32, tag = "3")]
    patch: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(message, optional, tag = "1")]
    protocol: Option<Version>,
    #[prost(message, optional, tag = "2")]
    software: Option<Version>,
    #[prost(uint64, tag = "3")]
    number: u64,
    /// The bytes of a [`Timestamp`], which are hashed.
    #[prost(bytes = "vec", tag = "4")]
    timestamp: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Footer {
    #[prost(bytes = "vec", tag = "1")]
    previous: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    all: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Signed {
    #[prost(bytes = "vec", tag = "1")]
    signature: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Proof {
    #[prost(uint64, tag = "1")]
    block: u64,
    #[prost(message, optional, tag = "2")]
    signed: Option<Signed>,
}

/// What the content of a block follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Differs for each trial and workload.
    pub seed: u64,
    /// The block's number.
    pub number: u64,
    /// Items between recipe and footer.
    pub items: u32,
    /// Length of each, bytes.
    pub item_bytes: u32,
}

impl Recipe {
    /// Of a block of about so many bytes.
    pub fn new(seed: u64, number: u64, block_bytes: u32, items: Option<u32>) -> Self {
        let content = block_bytes.saturating_sub(FRAME_BYTES);
        let items = items.unwrap_or_else(|| content.div_ceil(1_000)).max(1);
        Self { seed, number, items, item_bytes: (content / items).saturating_sub(ITEM_FRAME_BYTES).max(1) }
    }

    fn to_bytes(self) -> [u8; RECIPE_BYTES] {
        let mut bytes = [0; RECIPE_BYTES];
        bytes[..8].copy_from_slice(MARK);
        bytes[8..16].copy_from_slice(&self.seed.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.items.to_le_bytes());
        bytes[28..].copy_from_slice(&self.item_bytes.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECIPE_BYTES] = bytes.try_into().ok()?;
        let long = |at: usize| bytes[at..].first_chunk().map(|eight| u64::from_le_bytes(*eight));
        let short = |at: usize| bytes[at..].first_chunk().map(|four| u32::from_le_bytes(*four));
        let recipe = Self { seed: long(8)?, number: long(16)?, items: short(24)?, item_bytes: short(28)? };
        bytes.starts_with(MARK).then_some(recipe)
    }
}

/// A block that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its exact bytes.
    pub bytes: Vec<u8>,
    /// Its root hash.
    pub root: Hash,
}

/// Makes the block of a recipe behind these blocks.
pub fn make(recipe: Recipe, rules: HashRules, past: &Past) -> Made {
    let mut block = Block { bytes: Vec::new(), items: Items::default() };
    let timestamp = Timestamp { seconds: FIRST_SECONDS.wrapping_add(2 * recipe.number as i64), nanos: 1 };
    let timestamp = timestamp.encode_to_vec();
    let version = match rules {
        HashRules::Legacy => Version { major: 0, minor: 73, patch: 0 },
        HashRules::MountainTop => Version { major: 0, minor: 77, patch: 0 },
    };
    let header = Header {
        protocol: Some(version.clone()),
        software: Some(version),
        number: recipe.number,
        timestamp: timestamp.clone(),
    };
    block.add(HEADER, &header.encode_to_vec());
    block.add(RECIPE, &recipe.to_bytes());
    let mut random = SmallRng::seed_from_u64(mix(recipe.seed, recipe.number));
    let mut content = vec![0; recipe.item_bytes as usize];
    for index in 0..recipe.items as usize {
        for (run, bytes) in content.chunks_mut(RUN_BYTES).enumerate() {
            if run % 2 == 0 {
                random.fill_bytes(bytes);
            } else {
                bytes.iter_mut().enumerate().for_each(|(place, byte)| *byte = (40 * (run / 2 % 4) + place) as u8);
            }
        }
        block.add(CONTENT[index % CONTENT.len()], &content);
    }
    let footer = Footer { previous: past.previous.into(), all: past.all.into() };
    block.add(FOOTER, &footer.encode_to_vec());
    let root = block.items.root(rules, &timestamp, past);
    let signed = Signed { signature: dummy(&root).into() };
    block.add(PROOF, &Proof { block: recipe.number, signed: Some(signed) }.encode_to_vec());
    Made { bytes: block.bytes, root }
}

/// A block that is being made.
struct Block {
    bytes: Vec<u8>,
    items: Items,
}

impl Block {
    fn add(&mut self, field: u32, content: &[u8]) {
        let mut item = Vec::with_capacity(content.len() + 6);
        put(&mut item, field, content);
        // Whatever is made here has its place.
        let added = self.items.add(field, &item);
        debug_assert_eq!(added, Ok(()));
        put(&mut self.bytes, ITEM, &item);
    }
}

fn put(out: &mut Vec<u8>, field: u32, content: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// A block that was read: what it says of itself, and the root hash that follows from its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What its header names.
    pub rules: HashRules,
    /// What it says of the blocks before it.
    pub past: Past,
    /// What it was made of.
    pub recipe: Recipe,
    /// Its root hash, computed.
    pub root: Hash,
}

/// Reads a block and computes its root hash. Errors: what is wrong with it, as the end of a sentence about the block.
pub fn read(block: &[u8]) -> Result<Read, String> {
    let mut items = Items::default();
    let (mut header, mut recipe, mut past, mut proof) = (None, None, None, None);
    for item in fields(block) {
        let Field { number: ITEM, content: item, .. } = item? else {
            return Err("it has something besides items".into());
        };
        let mut all = fields(item);
        let (Some(only), None) = (all.next().transpose()?, all.next()) else {
            return Err("it has an item that is not one field".into());
        };
        items.add(only.number, item)?;
        match only.number {
            HEADER => header = Some(decode::<Header>(only.content)?),
            RECIPE => recipe = Recipe::of(only.content),
            FOOTER => past = past_of(&decode(only.content)?),
            PROOF => proof = Some(decode::<Proof>(only.content)?),
            _ => {}
        }
    }
    let (Some(header), Some(past), Some(proof)) = (header, past, proof) else {
        return Err("it has no header, no footer or no proof".into());
    };
    let recipe = recipe.ok_or("it is none of this loader's")?;
    let version = header.protocol.unwrap_or_default();
    let rules = if version.minor >= 77 { HashRules::MountainTop } else { HashRules::Legacy };
    let root = items.root(rules, &header.timestamp, &past);
    if header.number != recipe.number || proof.block != recipe.number {
        return Err(format!("it says it is {}, {} and {}", header.number, recipe.number, proof.block));
    }
    if proof.signed.is_none_or(|signed| signed.signature != dummy(&root)) {
        return Err("its items do not hash to what its proof says".into());
    }
    Ok(Read { rules, past, recipe, root })
}

fn past_of(footer: &Footer) -> Option<Past> {
    let hash = |bytes: &[u8]| Hash::try_from(bytes).ok();
    Some(Past { previous: hash(&footer.previous)?, all: hash(&footer.all)? })
}

fn decode<M: Message + Default>(content: &[u8]) -> Result<M, String> {
    M::decode(content).map_err(|error| format!("it cannot be read: {error}"))
}

/// A field with a length.
struct Field<'a> {
    number: u32,
    content: &'a [u8],
    end: usize,
}

/// All fields of a message in which every field has a length.
fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, String>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(rest);
        rest = field.as_ref().map_or(&[], |field| &rest[field.end..]);
        Some(field)
    })
}

fn field(message: &[u8]) -> Result<Field<'_>, String> {
    let broken = |error: &dyn std::fmt::Display| format!("it cannot be read: {error}");
    let mut rest = message;
    let (number, wire_type) = decode_key(&mut rest).map_err(|error| broken(&error))?;
    let length = decode_varint(&mut rest).map_err(|error| broken(&error))?;
    if wire_type != WireType::LengthDelimited || length > rest.len() as u64 {
        return Err(broken(&"a field has no length, or is cut short"));
    }
    let start = message.len() - rest.len();
    let end = start + length as usize;
    Ok(Field { number, content: &message[start..end], end })
}

/// Parts of a block of about so many bytes, each of whole items.
pub fn parts(block: &[u8], part_bytes: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    // What is cut here was made here.
    for item in fields(block).map_while(Result::ok) {
        let end = at + item.end;
        match parts.last_mut() {
            Some(part) if end - part.start <= part_bytes => part.end = end,
            _ => parts.push(at..end),
        }
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::block_stream::hash::{Tree, empty};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    const PAST: Past = Past { previous: [1; 48], all: [2; 48] };

    #[test]
    fn blocks_are_of_the_size_that_was_asked_for_and_the_same_every_time() {
        for wanted in [1_000, 13_000, 50_000, 500_000] {
            let recipe = Recipe::new(7, 3, wanted, None);
            let made = make(recipe, HashRules::MountainTop, &PAST);
            assert!(made.bytes.len().abs_diff(wanted as usize) < wanted as usize / 20, "{}", made.bytes.len());
            assert_eq!(made, make(recipe, HashRules::MountainTop, &PAST));
            let read = read(&made.bytes).unwrap();
            assert_eq!(read, Read { rules: HashRules::MountainTop, past: PAST, recipe, root: made.root });
        }
        let few = make(Recipe::new(7, 3, 13_000, Some(3)), HashRules::Legacy, &PAST);
        assert!(few.bytes.len().abs_diff(13_000) < 650, "{}", few.bytes.len());
        assert_eq!(fields(&few.bytes).count(), 3 + 4);
    }

    /// Every bit matters: of an item by the hash, of the proof by itself.
    #[test]
    fn a_flipped_bit_anywhere_is_seen() {
        let made = make(Recipe::new(1, 0, 1_000, Some(2)), HashRules::MountainTop, &PAST);
        let right = read(&made.bytes).unwrap();
        for bit in 0..made.bytes.len() * 8 {
            let mut bytes = made.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Where the footer lies about the past, the hash differs, and with it what the proof says.
            assert!(read(&bytes) != Ok(right), "bit {} of byte {}", bit % 8, bit / 8);
        }
    }

    proptest! {
        /// What comes from a store may be anything.
        #[test]
        fn whatever_bytes_there_are_they_are_a_block_or_an_error(bytes in vec(any::<u8>(), 0..300), at in 0..900_usize) {
            let _ = read(&bytes);
            let mut block = make(Recipe::new(1, 0, 1_000, Some(2)), HashRules::Legacy, &PAST).bytes;
            block.splice(at.min(block.len()).., bytes);
            let _ = read(&block);
        }
    }

    #[test]
    fn parts_are_the_block() {
        let made = make(Recipe::new(1, 0, 13_000, None), HashRules::MountainTop, &PAST);
        for part_bytes in [1, 3_000, 1 << 20] {
            let parts = parts(&made.bytes, part_bytes);
            assert_eq!(parts.iter().map(|part| &made.bytes[part.clone()]).collect::<Vec<_>>().concat(), made.bytes);
        }
        assert_eq!(parts(&made.bytes, 1 << 20).len(), 1);
    }

    /// `testing/block-hash` has the rules a third time, in another language and of another author's hand.
    #[test]
    fn root_hashes_are_those_of_an_independent_implementation() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/block-hash/block_hash.py");
        let mut python = Command::new("python3");
        let mut python = python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut all = Tree::default();
        let mut past = Past { previous: empty(), all: all.root() };
        let mut roots = String::new();
        let mut input = Vec::new();
        for number in 0..200 {
            let rules = if number < 100 { HashRules::Legacy } else { HashRules::MountainTop };
            let made = make(Recipe::new(5, number, 1_000, Some(1 + number as u32 % 20)), rules, &past);
            input.extend((made.bytes.len() as u32).to_be_bytes());
            input.extend(&made.bytes);
            roots.extend(made.root.iter().map(|byte| format!("{byte:02x}")));
            roots.push('\n');
            all.add(made.root);
            past = Past { previous: made.root, all: all.root() };
        }
        let mut stdin = python.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
        let output = python.wait_with_output().unwrap();
        writer.join().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), roots);
    }
}
