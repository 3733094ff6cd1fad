//! Puts a block together from its items, and verifies it on the way: each item is hashed when it comes, and the root is there
//! with the last one.

use crate::block::ITEMS_FIELD;
use crate::block::{Evidence, FilteredItem, Footer, Header, Item, ItemError, Kind, OldProof, ProofError, ProofRules};
use crate::block::{Proven, record_file_hash};
use crate::hash::{Era, EraError, Hash, RootHasher};
use crate::messages::items;
use crate::wire::{WireError, put_bytes, varint_bytes};

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
    /// A header without a timestamp.
    #[error("the header has no timestamp, which is part of the root hash")]
    NoTimestamp,
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
    bytes: Vec<u8>,
    items: usize,
    has_record_file: bool,
    /// What nodes sign of it.
    record_file: Option<Hash>,
    footer: Option<Footer>,
    /// Contents of proof items.
    proofs: Vec<Vec<u8>>,
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
        self.put(bytes)
    }

    fn keep(&mut self, item: &Item<'_>, bytes: &[u8]) -> Result<(), BuilderError> {
        if !self.era.has(item.field, item.category) {
            return Err(ItemError::Unknown(item.field).into());
        }
        self.put(bytes)?;
        self.hasher.add(item.category, bytes);
        if item.kind() == Kind::Proof {
            self.proofs.push(item.content.to_vec());
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
        let proof = OldProof::of(self.proofs.first().ok_or(BuilderError::Missing("proof"))?)?;
        let footer = proof.footer;
        let root = self.hasher.root(&self.timestamp, &footer);
        let evidence = rules.check_old(&proof, self.number, &root)?;
        Ok(Verified { number: self.number, bytes: self.bytes, root, footer, evidence, items: self.items })
    }

    fn finish_with_footer(self, rules: &ProofRules) -> Result<Verified, BuilderError> {
        let footer = self.footer.ok_or(BuilderError::Missing("footer"))?;
        let root = self.hasher.root(&self.timestamp, &footer);
        let (has_record_file, record_file) = (self.has_record_file, self.record_file.as_ref());
        let proven = Proven { number: self.number, root: &root, has_record_file, record_file };
        let mut evidence: Option<Evidence> = None;
        for proof in &self.proofs {
            // One valid proof is enough, and one that is not valid is too many.
            let found = rules.check(proof, proven)?;
            evidence = Some(evidence.map_or(found, |before| before.stronger(found)));
        }
        let evidence = evidence.ok_or(BuilderError::Missing("proof"))?;
        Ok(Verified { number: self.number, bytes: self.bytes, root, footer, evidence, items: self.items })
    }
}

/// Reads a header item of a block that can be verified.
fn header_of(item: &[u8]) -> Result<(Item<'_>, Header, Era), BuilderError> {
    let item = Item::of(item)?;
    if item.kind() != Kind::Header {
        return Err(BuilderError::NoHeader(item.field));
    }
    let header = Header::of(item.content)?;
    if header.hash_algorithm != 0 {
        return Err(BuilderError::HashAlgorithm(header.hash_algorithm));
    }
    let era = Era::of(header.version)?;
    if header.timestamp.is_none() && era.has_footer() {
        return Err(BuilderError::NoTimestamp);
    }
    Ok((item, header, era))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::record_file_tests as record_file;
    use crate::block::{RecordFileRule, Version};
    use crate::craft::{Crafter, Shape, field};
    use crate::messages::proto;
    use proptest::prelude::*;
    use prost::Message as _;

    const LIMITS: Limits = Limits { block_bytes_max: 1 << 20 };

    fn rules() -> ProofRules {
        ProofRules::accepted_before()
    }

    fn build(items: &[Vec<u8>]) -> Result<Verified, BuilderError> {
        let mut builder = Builder::begin(&items[0], LIMITS)?;
        for item in &items[1..] {
            builder.add(item)?;
        }
        builder.finish(&rules())
    }

    fn crafted(seed: u64) -> Vec<Vec<u8>> {
        crafted_in(seed, Version { major: 0, minor: 76, patch: 1 })
    }

    fn crafted_in(seed: u64, version: Version) -> Vec<Vec<u8>> {
        let block = Crafter::in_version(seed, 0, version).next(Shape { items: 6, item_bytes: 40 });
        items(&block.bytes).map(|item| item.unwrap().to_vec()).collect()
    }

    #[test]
    fn every_flipped_bit_of_a_block_of_any_era_is_noticed() {
        for minor in [62, 73, 76] {
            let mut items = crafted_in(9, Version { major: 0, minor, patch: 1 });
            assert!(build(&items).is_ok(), "0.{minor}");
            for index in 0..items.len() {
                for place in 0..items[index].len() {
                    for bit in 0..8 {
                        items[index][place] ^= 1 << bit;
                        assert!(build(&items).is_err(), "0.{minor}: bit {bit} of byte {place} of item {index}");
                        items[index][place] ^= 1 << bit;
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_of_the_time_of_two_trees_ends_with_its_proof() {
        let items = crafted_in(3, Version { major: 0, minor: 62, patch: 2 });
        let last = items.len() - 1;
        let verified = build(&items).unwrap();
        assert_eq!((verified.footer.previous_root, verified.footer.all_previous_root), ([0; 48], None));
        assert_eq!(build(&items[..last]).unwrap_err(), BuilderError::Missing("proof"));
        for behind in [&items[last], &items[1]] {
            let again = [&items[..], std::slice::from_ref(behind)].concat();
            assert!(matches!(build(&again), Err(BuilderError::Order(_, "nothing stands behind the proof"))));
        }
        let mut footer = items.clone();
        footer.insert(last, crafted(3).swap_remove(last));
        assert!(build(&footer).is_err(), "there were no footers");
    }

    /// A block of a record file, with the proof that OpenSSL has made.
    fn of_record_file() -> Vec<Vec<u8>> {
        holding(&record_file::record_file(), &[record_file_proof()])
    }

    /// A block that holds this record file, with these proofs; with none, the hash of its root stands in a signature's place.
    fn holding(record_file: &[u8], proofs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let block = Crafter::new(1, 0).next_of([field(10, record_file)]);
        let mut items: Vec<_> = items(&block.bytes).map(|item| item.unwrap().to_vec()).collect();
        if !proofs.is_empty() {
            items.pop();
        }
        items.extend(proofs.iter().map(|proof| field(9, proof)));
        items
    }

    fn record_file_proof() -> Vec<u8> {
        let mut proof = vec![0x08, 0];
        put_bytes(&mut proof, 4, &record_file::proof(6, &record_file::signatures()));
        proof
    }

    /// What somebody who has no key can make.
    fn forged_proof(signature_bytes: usize) -> Vec<u8> {
        let (mut signed, mut proof) = (Vec::new(), vec![0x08, 0]);
        put_bytes(&mut signed, 1, &vec![7; signature_bytes]);
        put_bytes(&mut proof, 2, &signed);
        proof
    }

    fn finish(items: &[Vec<u8>], rules: &ProofRules) -> Result<Verified, BuilderError> {
        let mut builder = Builder::begin(&items[0], LIMITS)?;
        items[1..].iter().try_for_each(|item| builder.add(item))?;
        builder.finish(rules)
    }

    #[test]
    fn every_flipped_bit_of_a_record_file_or_its_signatures_is_noticed_and_none_of_the_header_which_nobody_signs() {
        let rules = ProofRules::published(false, record_file::rule(100));
        let mut items = of_record_file();
        assert_eq!(finish(&items, &rules).unwrap().evidence, Evidence::RecordFileSigned);
        // Header, record file, footer, proof.
        let contents = record_file_hash(&record_file::record_file());
        for index in [1, 3] {
            for place in 0..items[index].len() {
                items[index][place] ^= 4;
                match finish(&items, &rules) {
                    Err(_) => {}
                    // Creation time and sidecars stand beside what is signed; the root hash has them.
                    Ok(_) => {
                        assert_eq!(index, 1, "byte {place} of the proof");
                        let item = Item::of(&items[index]).unwrap();
                        assert_eq!(record_file_hash(item.content), contents, "byte {place}");
                    }
                }
                items[index][place] ^= 4;
            }
        }
        let root = finish(&items, &rules).unwrap().root;
        // The last byte is one of the time.
        *items[0].last_mut().unwrap() ^= 1;
        let changed = finish(&items, &rules).unwrap();
        assert_ne!(changed.root, root, "the next block tells that this is another one");
    }

    #[test]
    fn a_record_file_that_nobody_can_check_is_refused_unless_it_was_accepted_before() {
        let items = of_record_file();
        let refused = finish(&items, &ProofRules::published(true, RecordFileRule::Refuse)).unwrap_err();
        assert!(refused.to_string().contains("--rsa-address-book"), "{refused}");
        let known = finish(&items, &ProofRules::accepted_before()).unwrap();
        assert_eq!(known.evidence, Evidence::SignatureUnchecked);
        let without: Vec<_> =
            items.iter().enumerate().filter(|(index, _)| *index != 1).map(|(_, item)| item.clone()).collect();
        let refused = finish(&without, &ProofRules::published(true, record_file::rule(0))).unwrap_err();
        assert!(refused.to_string().contains("no record_file"), "{refused}");
    }

    #[test]
    fn an_unchecked_signature_does_not_stand_in_for_those_of_a_record_file() {
        let right = record_file::record_file();
        // Of contents that occur twice it cannot be told what is signed: it is a record file all the same.
        let twice = [&right[..], &right].concat();
        let record_file_rules = [RecordFileRule::Refuse, record_file::rule(0), record_file::rule(100)];
        for bytes in [2_920, 3_432] {
            let forged = forged_proof(bytes);
            let blocks = [
                ("alone", holding(&right, std::slice::from_ref(&forged))),
                ("before signatures", holding(&right, &[forged.clone(), record_file_proof()])),
                ("behind signatures", holding(&right, &[record_file_proof(), forged.clone()])),
                ("of a record file without contents", holding(&[], std::slice::from_ref(&forged))),
                ("of a record file with contents twice", holding(&twice, std::slice::from_ref(&forged))),
            ];
            for (what, items) in blocks {
                for rule in &record_file_rules {
                    let rules = ProofRules::published(true, rule.clone());
                    let found = finish(&items, &rules).map(|verified| verified.evidence);
                    assert!(matches!(found, Err(BuilderError::Proof(_))), "{bytes} bytes {what}: {found:?}");
                }
            }
            // Which proofs are good enough was decided before.
            let before = finish(&holding(&right, &[forged]), &ProofRules::accepted_before()).unwrap();
            assert_eq!(before.evidence, Evidence::SignatureUnchecked);
        }
    }

    #[test]
    fn the_dummy_of_a_record_files_block_is_accepted_where_that_was_asked_for() {
        let items = holding(&record_file::record_file(), &[]);
        let found = |accepts_dummy| finish(&items, &ProofRules::published(accepts_dummy, record_file::rule(100)));
        assert_eq!(found(true).unwrap().evidence, Evidence::Dummy);
        assert_eq!(found(false).unwrap_err(), BuilderError::Proof(ProofError::DummyRefused));
    }

    #[test]
    fn a_crafted_block_verifies_and_stays_as_it_came() {
        let mut crafter = Crafter::new(1, 0);
        for number in 0..5 {
            let block = crafter.next(Shape { items: 20, item_bytes: 100 });
            let items: Vec<_> = items(&block.bytes).map(|item| item.unwrap().to_vec()).collect();
            let verified = build(&items).unwrap();
            assert_eq!((verified.number, verified.root, verified.items), (number, block.root, items.len()));
            assert_eq!(verified.bytes, block.bytes);
            assert_eq!(verified.evidence, Evidence::Dummy);
        }
    }

    proptest! {
        #[test]
        fn a_flipped_bit_anywhere_is_noticed(seed in 0_u64..50, place: prop::sample::Index, bit in 0_u8..8) {
            let mut items = crafted(seed);
            let mut place = place.index(items.iter().map(Vec::len).sum());
            let item = items.iter_mut().find(|item| {
                let is_here = place < item.len();
                if !is_here {
                    place -= item.len();
                }
                is_here
            });
            item.unwrap()[place] ^= 1 << bit;
            let original = build(&crafted(seed)).unwrap();
            // What is not verified of a header, by itself, is part of the hash all the same.
            if let Ok(verified) = build(&items) {
                prop_assert!(false, "accepted: {:?} instead of {:?}", verified.number, original.number);
            }
        }
    }

    #[test]
    fn a_header_that_no_block_can_begin_with_has_no_number() {
        let header = proto::BlockHeader { number: 7, hash_algorithm: 1, ..proto::BlockHeader::default() };
        let items = [field(1, &header.encode_to_vec()), field(1, &[]), crafted(1).swap_remove(1), vec![0x0a, 1]];
        for item in items {
            assert_eq!(Builder::number_of(&item).unwrap_err(), Builder::begin(&item, LIMITS).unwrap_err());
        }
        assert_eq!(Builder::number_of(&crafted(1)[0]), Ok(0));
    }

    #[test]
    fn items_stand_in_their_order() {
        let items = crafted(3);
        let last = items.len() - 1;
        assert_eq!(build(&items[1..]).unwrap_err(), BuilderError::NoHeader(2));
        assert_eq!(build(&items[..last]).unwrap_err(), BuilderError::Missing("proof"));
        assert_eq!(build(&items[..last - 1]).unwrap_err(), BuilderError::Missing("footer"));
        let again = |index: usize| [&items[..], &items[index..=index]].concat();
        assert!(matches!(build(&again(0)), Err(BuilderError::Order(1, _))));
        assert!(matches!(build(&again(1)), Err(BuilderError::Order(2, _))));
        assert!(matches!(build(&again(last - 1)), Err(BuilderError::Order(12, _))));
        assert!(build(&again(last)).is_ok(), "a second proof that is valid");
        let mut swapped = items.clone();
        swapped.swap(last, last - 1);
        assert!(matches!(build(&swapped), Err(BuilderError::Order(9, _))));
    }

    #[test]
    fn a_block_that_grows_too_large_is_refused_before_it_is_kept() {
        let items = crafted(4);
        let mut builder = Builder::begin(&items[0], Limits { block_bytes_max: 100 }).unwrap();
        let refused = items[1..].iter().find_map(|item| builder.add(item).err());
        assert_eq!(refused, Some(BuilderError::TooLarge(100)));
        assert!(builder.bytes() <= 100);
    }
}
