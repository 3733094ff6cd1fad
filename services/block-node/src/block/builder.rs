//! Puts a block together from its items, and verifies it on the way: each item is hashed when it comes, and the root is there
//! with the last one.

use std::ops::Range;

use crate::block::digest::{Digest, Digester};
use crate::block::{BLOCK_NUMBERS_END, Era, EraError, ITEMS_FIELD, RootHasher};
use crate::block::{Evidence, FilteredItem, Footer, Header, Item, ItemError, Kind, OldProof, ProofError, ProofRules};
use crate::block::{Proven, items, record_file_hash};
use crate::hash::Hash;
use crate::wire::{WireError, put_bytes, varint_bytes};

/// A header has some sixty bytes. It is kept before there is known to be room for its block.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Proofs of a block, …
const PROOFS_MAX: usize = 16;
/// … and what one takes: signatures of more nodes than any network has.
const PROOF_BYTES_MAX: usize = 512 << 10;

/// What a block may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of its `Block` message, bytes.
    pub block_bytes_max: usize,
}

/// Why items are no block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuilderError {
    /// An item.
    #[error("{0}")]
    Item(#[from] ItemError),
    /// A header or footer.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The time it was made in.
    #[error("{0}")]
    Era(#[from] EraError),
    /// Its proof.
    #[error("{0}")]
    Proof(#[from] ProofError),
    /// The first item.
    #[error("a block must begin with its header, not with field {0}")]
    NoHeader(u32),
    /// Order and number of items.
    #[error("field {0} cannot stand here: {1}")]
    Order(u32, &'static str),
    /// Hash of another kind.
    #[error("hash algorithm {0} is unknown; only 0, SHA-384, is accepted")]
    HashAlgorithm(u64),
    /// A number that no block has.
    #[error("no block has the number {0}: the last possible one is 2^63 - 1")]
    Number(u64),
    /// A header without a timestamp.
    #[error("the header has no timestamp, which is part of the root hash")]
    NoTimestamp,
    /// An item.
    #[error("an item of {1} bytes in field {0}: it may have {2}")]
    LongItem(u32, usize, usize),
    /// The end.
    #[error("the block has no {0}")]
    Missing(&'static str),
    /// It takes too much.
    #[error("the block has more than {0} bytes")]
    TooLarge(usize),
}

/// A whole block whose hash was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its number.
    pub number: u64,
    /// Its `Block` message: every item exactly as it came.
    pub bytes: Vec<u8>,
    /// Its root hash.
    pub root: Hash,
    /// What `bytes` are, which the root hash does not tell.
    pub digest: Digest,
    /// What it says of the blocks before.
    pub footer: Footer,
    /// What is known of its signature.
    pub evidence: Evidence,
    /// How many items it has.
    pub items: usize,
}

impl Verified {
    /// Verifies a `Block` message.
    pub fn of(block: &[u8], limits: Limits, rules: &ProofRules) -> Result<Self, BuilderError> {
        Self::read(block, limits, rules, false)
    }

    /// Verifies a `Block` message of which items may have been filtered: the root hash comes out all the same.
    pub fn of_filtered(block: &[u8], limits: Limits, rules: &ProofRules) -> Result<Self, BuilderError> {
        Self::read(block, limits, rules, true)
    }

    fn read(block: &[u8], limits: Limits, rules: &ProofRules, takes_filtered: bool) -> Result<Self, BuilderError> {
        let mut items = items(block);
        let header = items.next().ok_or(BuilderError::Missing("header"))??;
        let mut builder = Builder::begin(header, limits)?;
        for item in items {
            let item = item?;
            let filtered = if takes_filtered { FilteredItem::of(item)? } else { None };
            match filtered {
                Some(filtered) => builder.add_filtered(&filtered, item)?,
                None => builder.add(item)?,
            }
        }
        builder.finish(rules)
    }
}

/// A block in the making.
#[derive(Clone, Debug)]
pub struct Builder {
    limits: Limits,
    number: u64,
    /// Empty in the time of two trees.
    timestamp: Vec<u8>,
    era: Era,
    hasher: RootHasher,
    digester: Digester,
    bytes: Vec<u8>,
    items: usize,
    has_record_file: bool,
    /// What nodes sign of it.
    record_file: Option<Hash>,
    footer: Option<Footer>,
    /// Where contents of proof items stand in `bytes`.
    proofs: Vec<Range<usize>>,
}

impl Builder {
    /// The number of the block that begins with this header item: enough to tell whether anybody wants it.
    pub fn number_of(header_item: &[u8]) -> Result<u64, BuilderError> {
        Ok(header_of(header_item)?.1.number)
    }

    /// Begins with a block's header item.
    pub fn begin(header_item: &[u8], limits: Limits) -> Result<Self, BuilderError> {
        let (item, header, era) = header_of(header_item)?;
        let mut builder = Self {
            limits,
            number: header.number,
            timestamp: header.timestamp.unwrap_or_default(),
            era,
            hasher: RootHasher::new(era),
            digester: Digester::default(),
            bytes: Vec::new(),
            items: 0,
            has_record_file: false,
            record_file: None,
            footer: None,
            proofs: Vec::new(),
        };
        builder.keep(&item, header_item)?;
        Ok(builder)
    }

    /// Makes room for items of so many bytes, which have come: the block is not moved again and again while it grows.
    pub fn expect(&mut self, bytes: usize) {
        self.bytes.reserve(bytes.min(self.limits.block_bytes_max.saturating_sub(self.bytes.len())));
    }

    /// Adds the next item.
    pub fn add(&mut self, item_bytes: &[u8]) -> Result<(), BuilderError> {
        let item = Item::of(item_bytes)?;
        let kind = item.kind();
        match kind {
            Kind::Header => return Err(BuilderError::Order(item.field, "the block has a header")),
            Kind::Proof if self.footer.is_none() && self.era.has_footer() => {
                return Err(BuilderError::Order(item.field, "a proof stands behind the footer"));
            }
            _ if self.is_proven() && !self.era.has_footer() => {
                return Err(BuilderError::Order(item.field, "nothing stands behind the proof"));
            }
            Kind::Proof if self.proofs.len() == PROOFS_MAX => {
                return Err(BuilderError::Order(item.field, "the block has sixteen proofs"));
            }
            Kind::Proof if item.content.len() > PROOF_BYTES_MAX => {
                return Err(BuilderError::LongItem(item.field, item.content.len(), PROOF_BYTES_MAX));
            }
            Kind::Proof => {}
            _ if self.footer.is_some() => {
                return Err(BuilderError::Order(item.field, "only proofs stand behind the footer"));
            }
            Kind::RecordFile if self.has_record_file => {
                return Err(BuilderError::Order(item.field, "the block has a record file"));
            }
            Kind::RecordFile => {
                self.has_record_file = true;
                self.record_file = record_file_hash(item.content);
            }
            Kind::Footer => self.footer = Some(Footer::of(item.content)?),
            Kind::Other => {}
        }
        self.keep(&item, item_bytes)
    }

    /// Adds what stands in the place of an item that was filtered.
    fn add_filtered(&mut self, item: &FilteredItem, bytes: &[u8]) -> Result<(), BuilderError> {
        if self.footer.is_some() {
            return Err(BuilderError::Order(FilteredItem::FIELD, "only proofs stand behind the footer"));
        }
        if !self.hasher.add_leaf(item.category, item.hash) {
            return Err(ItemError::Incomplete(FilteredItem::FIELD).into());
        }
        self.digester.add_whole(bytes);
        self.put(bytes)
    }

    fn keep(&mut self, item: &Item<'_>, bytes: &[u8]) -> Result<(), BuilderError> {
        if !self.era.has(item.field, item.category) {
            return Err(ItemError::Unknown(item.field).into());
        }
        self.put(bytes)?;
        self.hasher.add(item.category, bytes);
        self.digester.add(item.category, bytes);
        if item.kind() == Kind::Proof {
            // It is the only field of its item, which was put last.
            self.proofs.push(self.bytes.len() - item.content.len()..self.bytes.len());
        }
        Ok(())
    }

    fn put(&mut self, item: &[u8]) -> Result<(), BuilderError> {
        let framed = 1 + varint_bytes(item.len() as u64) + item.len();
        if self.bytes.len() + framed > self.limits.block_bytes_max {
            return Err(BuilderError::TooLarge(self.limits.block_bytes_max));
        }
        put_bytes(&mut self.bytes, ITEMS_FIELD, item);
        self.items += 1;
        Ok(())
    }

    /// The block's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it takes until now, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has a proof: where publishers name no end of a block, it ends with that.
    pub fn is_proven(&self) -> bool {
        !self.proofs.is_empty()
    }

    /// All items are there.
    pub fn finish(self, rules: &ProofRules) -> Result<Verified, BuilderError> {
        match self.era.has_footer() {
            true => self.finish_with_footer(rules),
            false => self.finish_with_old_proof(rules),
        }
    }

    fn finish_with_old_proof(self, rules: &ProofRules) -> Result<Verified, BuilderError> {
        let proof = self.proofs.first().ok_or(BuilderError::Missing("proof"))?;
        let proof = OldProof::of(&self.bytes[proof.clone()])?;
        let footer = proof.footer;
        let root = self.hasher.root(&self.timestamp, &footer);
        let evidence = rules.check_old(&proof, self.number, &root)?;
        let (digest, bytes) = (self.digester.finish(&root), self.bytes);
        Ok(Verified { number: self.number, bytes, root, digest, footer, evidence, items: self.items })
    }

    fn finish_with_footer(self, rules: &ProofRules) -> Result<Verified, BuilderError> {
        let footer = self.footer.ok_or(BuilderError::Missing("footer"))?;
        let root = self.hasher.root(&self.timestamp, &footer);
        let (has_record_file, record_file) = (self.has_record_file, self.record_file.as_ref());
        let proven = Proven { number: self.number, root: &root, has_record_file, record_file };
        let mut evidence: Option<Evidence> = None;
        for proof in &self.proofs {
            // One valid proof is enough, and one that is not valid is too many.
            let found = rules.check(&self.bytes[proof.clone()], proven)?;
            evidence = Some(evidence.map_or(found, |before| before.stronger(found)));
        }
        let evidence = evidence.ok_or(BuilderError::Missing("proof"))?;
        let (digest, bytes) = (self.digester.finish(&root), self.bytes);
        Ok(Verified { number: self.number, bytes, root, digest, footer, evidence, items: self.items })
    }
}

/// Reads a header item of a block that can be verified.
fn header_of(item: &[u8]) -> Result<(Item<'_>, Header, Era), BuilderError> {
    let item = Item::of(item)?;
    if item.kind() != Kind::Header {
        return Err(BuilderError::NoHeader(item.field));
    }
    if item.content.len() > HEADER_BYTES_MAX {
        return Err(BuilderError::LongItem(item.field, item.content.len(), HEADER_BYTES_MAX));
    }
    let header = Header::of(item.content)?;
    if header.hash_algorithm != 0 {
        return Err(BuilderError::HashAlgorithm(header.hash_algorithm));
    }
    if header.number >= BLOCK_NUMBERS_END {
        return Err(BuilderError::Number(header.number));
    }
    let era = Era::of(header.version)?;
    if header.timestamp.is_none() && era.has_footer() {
        return Err(BuilderError::NoTimestamp);
    }
    Ok((item, header, era))
}

#[cfg(test)]
mod tests;
