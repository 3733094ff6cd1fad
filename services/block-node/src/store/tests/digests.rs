//! What a block is byte for byte is known when the block is damaged, with whatever is left of it.

use wal::files::File as _;

use super::*;
use crate::craft::signed;

const ONE_SEGMENT: Options = Options { segment_bytes: 1 << 20, ..OPTIONS };

/// Of so many blocks, each a batch of its own.
fn stored(count: usize) -> (SimulatedDirectory, Store<SimulatedDirectory>, Vec<Crafted>) {
    let (directory, blocks) = (SimulatedDirectory::default(), blocks(count));
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    blocks.iter().for_each(|block| store.append(&[prepared(block)]).unwrap());
    (directory, store, blocks)
}

/// Changes a bit of the record of a block: so many bytes behind its beginning, or before its end.
fn change(directory: &SimulatedDirectory, reader: &Reader<SimulatedDirectory>, number: u64, place: isize) {
    let entry = reader.entry(number).unwrap();
    let from = if place < 0 { entry.end() as usize } else { entry.offset as usize };
    let place = from.checked_add_signed(place).unwrap();
    directory.damage(&scan::name(entry.segment.into()), |bytes| bytes[place] ^= 1).unwrap();
}

fn digest(block: &Crafted) -> Option<crate::block::Digest> {
    Some(verified(block).digest)
}

#[test]
fn the_digest_of_a_damaged_block_is_known_while_the_store_is_open_and_when_it_is_opened_again() {
    let (directory, store, blocks) = stored(12);
    let reader = store.reader();
    // The block, the head of its record with the root hash, the digest in it (behind which are up to seven zeros), and the block and its head.
    for (number, places) in [(2, vec![120]), (4, vec![50]), (6, vec![-20]), (8, vec![50, 120])] {
        places.into_iter().for_each(|place| change(&directory, &reader, number, place));
    }
    let again = directory.copy();
    for store in [store, Store::open(again, ONE_SEGMENT).unwrap()] {
        let reader = store.reader();
        for (number, block) in (0..).zip(&blocks) {
            assert_eq!(reader.read(number).is_err(), [2, 4, 6, 8].contains(&number), "block {number}");
            assert_eq!(reader.digest(number), digest(block), "block {number}");
        }
        assert_eq!((reader.root(4), reader.digest(12)), (None, None));
    }
    // Each stands in for the other, and without both nothing is known.
    let reader = Store::open(directory.copy(), ONE_SEGMENT).unwrap().reader();
    directory.damage(DIGESTS, |bytes| bytes.fill(0)).unwrap();
    let open = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    let left: Vec<bool> = (0..12).map(|number| open.reader().digest(number).is_some()).collect();
    let lost = |number: &usize| !left[*number];
    assert_eq!((0..12).filter(lost).collect::<Vec<_>>(), [4, 6, 8], "the others are written again at a start");
    assert!((0..12).all(|number| reader.digest(number).is_some()));
}

#[test]
fn of_a_page_that_is_lost_all_digests_are_known() {
    let blocks = blocks(60);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    store.append(&blocks.iter().map(prepared).collect::<Vec<_>>()).unwrap();
    directory.damage(&scan::name(1), |bytes| bytes[8_192..12_288].fill(0)).unwrap();
    drop(store);
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    let reader = store.reader();
    let lost = reader.quarantined_blocks(u64::MAX, 60);
    assert!(lost.len() > 3, "{lost:?}");
    for number in lost {
        let block = &blocks[number as usize];
        assert_eq!(reader.digest(number), digest(block));
        store.repair(&prepared(block)).unwrap();
    }
    drop(store);
    check(&Store::open(directory, ONE_SEGMENT).unwrap(), &blocks, 60);
}

/// The index was not written out when the power went, and the file of the digests was: a block that it has was acknowledged.
#[test]
fn a_damaged_block_of_which_the_digest_alone_tells_that_it_was_safe_is_not_taken_for_one_that_was_cut_off() {
    let (blocks, directory) = (blocks(30), SimulatedDirectory::default());
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    for batch in [&blocks[..10], &blocks[10..]] {
        store.append(&batch.iter().map(prepared).collect::<Vec<_>>()).unwrap();
    }
    change(&directory, &store.reader(), 29, 120);
    drop(store);
    directory.damage("00000000000000000000.index", |bytes| bytes.truncate(10 * 16)).unwrap();
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    let reader = store.reader();
    assert_eq!((reader.next(), reader.quarantined_blocks(u64::MAX, 9)), (30, vec![29]), "no number is given anew");
    assert_eq!(reader.digest(29), digest(&blocks[29]));
    store.repair(&prepared(&blocks[29])).unwrap();
    drop(store);
    check(&Store::open(directory, ONE_SEGMENT).unwrap(), &blocks, 30);
}

/// What a release that kept no digests has written (`import` of version bbc83487): six small blocks of seed 1, of which the third has a signature that
/// nobody checked.
fn of_the_release_before() -> (SimulatedDirectory, Vec<Crafted>) {
    let directory = SimulatedDirectory::default();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/without_digests")).unwrap() {
        let file = file.unwrap();
        let (name, bytes) = (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap());
        directory.create_zeroed(&name, 0).unwrap().write_at(&bytes, 0).unwrap();
    }
    let mut crafter = Crafter::new(1, 0);
    let mut blocks: Vec<_> = (0..9).map(|_| crafter.next(Shape { items: 3, item_bytes: 100 })).collect();
    blocks[2].bytes = signed(&blocks[2].bytes, 2, &[7; 2_920]);
    (directory, blocks)
}

#[test]
fn a_store_of_the_release_before_is_served_and_repaired_and_has_digests_of_what_comes_from_now_on() {
    let (directory, blocks) = of_the_release_before();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    let reader = store.reader();
    assert_eq!((reader.next(), reader.quarantined()), (6, 0));
    for block in &blocks[..6] {
        let found = reader.read(block.number).unwrap();
        assert_eq!((&found.bytes, found.root, found.digest), (&block.bytes, block.root, None));
        assert_eq!(reader.digest(block.number), None);
    }
    assert!(store.chain().knows_all());
    assert!(!directory.names().unwrap().contains(&DIGESTS.to_owned()));
    blocks[6..].iter().for_each(|block| store.append(&[prepared(block)]).unwrap());
    for number in [1, 5] {
        change(&directory, &reader, number, 120);
        assert!(reader.read(number).is_err());
        assert_eq!((reader.root(number), reader.digest(number)), (Some(blocks[number as usize].root), None));
        store.repair(&prepared(&blocks[number as usize])).unwrap();
    }
    drop(store);
    let reader = Store::open(directory, OPTIONS).unwrap().reader();
    for block in &blocks {
        let has_digest = [1, 5, 6, 7, 8].contains(&block.number);
        let expected = if has_digest { digest(block) } else { None };
        let found = reader.read(block.number).unwrap();
        assert_eq!((&found.bytes, found.digest), (&block.bytes, expected), "block {}", block.number);
        assert_eq!(reader.digest(block.number), expected, "block {}", block.number);
    }
}
