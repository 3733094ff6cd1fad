//! What is a block, and what is not.

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
    crafted_in(seed, Version { major: 0, minor: 77, patch: 0 })
}

fn crafted_in(seed: u64, version: Version) -> Vec<Vec<u8>> {
    let block = Crafter::in_version(seed, 0, version).next(Shape { items: 6, item_bytes: 40 });
    items(&block.bytes).map(|item| item.unwrap().to_vec()).collect()
}

#[test]
fn every_flipped_bit_of_a_block_of_any_era_is_noticed() {
    for minor in [62, 76, 77] {
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

/// A missing state root is hashed as an empty one, so that a tag with a flipped bit leaves the root hash as it was.
#[test]
fn what_a_footer_has_beside_its_hashes_is_refused() {
    let mut items = crafted(9);
    let footer = items.len() - 2;
    let Ok(Item { content, .. }) = Item::of(&items[footer]) else { panic!("no footer") };
    let hashes = Footer::of(content).unwrap();
    for (number, name) in [(3, true), (7, false), (11, false), (77, false)] {
        let mut content = Vec::new();
        put_bytes(&mut content, 1, &hashes.previous_root);
        put_bytes(&mut content, 2, &hashes.all_previous_root.unwrap());
        put_bytes(&mut content, number, &crate::hash::empty());
        assert_eq!(Footer::of(&content).is_ok(), name, "field {number}");
        items[footer] = field(12, &content);
        assert!(name || build(&items).is_err(), "field {number}");
    }
}

#[test]
fn a_number_that_cannot_be_counted_on_is_refused() {
    for (number, is_taken) in [(BLOCK_NUMBERS_END - 1, true), (BLOCK_NUMBERS_END, false)] {
        let header = Crafter::new(1, number).next(Shape { items: 1, item_bytes: 10 }).bytes;
        let header = items(&header).next().unwrap().unwrap().to_vec();
        assert_eq!(Builder::number_of(&header).is_ok(), is_taken, "{number}");
    }
}

#[test]
fn a_header_that_is_longer_than_any_is_refused_before_it_is_kept() {
    let mut items = crafted(9);
    let mut content = Item::of(&items[0]).unwrap().content.to_vec();
    put_bytes(&mut content, 99, &vec![0; 100_000]);
    items[0] = field(1, &content);
    assert!(Builder::number_of(&items[0]).is_err());
    assert!(build(&items).is_err());
}

#[test]
fn a_block_has_a_few_proofs_and_none_of_them_is_large() {
    let mut items = crafted(9);
    let proof = items[items.len() - 1].clone();
    items.extend(std::iter::repeat_n(proof, 15));
    assert!(build(&items).is_ok(), "sixteen");
    items.push(field(9, b""));
    let mut builder = Builder::begin(&items[0], LIMITS).unwrap();
    let added: Vec<_> = items[1..].iter().map(|item| builder.add(item)).collect();
    assert!(added.last().unwrap().is_err(), "seventeen");
    let mut items = crafted(9);
    items.push(field(9, &vec![0; 600_000]));
    let mut builder = Builder::begin(&items[0], LIMITS).unwrap();
    let added: Vec<_> = items[1..].iter().map(|item| builder.add(item)).collect();
    assert!(added.last().unwrap().is_err(), "600,000 bytes");
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
