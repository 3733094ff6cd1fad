//! What rots costs no more than itself: a flipped bit anywhere in any file, at the next start and while the store is open.

use super::*;

const ONE_SEGMENT: Options = Options { segment_bytes: 1 << 20, ..OPTIONS };

/// Whichever block is damaged of so many; each of the others is what was appended.
fn wrong(reader: &Reader<SimulatedDirectory>, blocks: &[Crafted]) -> Vec<u64> {
    let is_wrong = |block: &&Crafted| match reader.read(block.number) {
        Ok(found) => found.bytes != block.bytes,
        Err(ReadError::Damaged { .. }) => true,
        Err(other) => panic!("{other}"),
    };
    blocks.iter().filter(is_wrong).map(|block| block.number).collect()
}

/// Of one batch, as an import of few blocks leaves it.
fn one_batch(count: usize) -> (SimulatedDirectory, Vec<Crafted>) {
    let blocks = blocks(count);
    let batch: Vec<_> = blocks.iter().map(prepared).collect();
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
    store.append(&batch).unwrap();
    (directory, blocks)
}

#[test]
fn a_flipped_bit_in_the_last_batch_does_not_cost_the_blocks_behind_it() {
    let (directory, blocks) = one_batch(40);
    let length = directory.contents(&scan::name(1)).unwrap().len();
    for place in (0..length).step_by(61) {
        let directory = directory.copy();
        directory.damage(&scan::name(1), |bytes| bytes[place] ^= 0x04).unwrap();
        let damaged = directory.contents(&scan::name(1)).unwrap();
        let mut store = Store::open(directory.clone(), ONE_SEGMENT).unwrap();
        let reader = store.reader();
        assert_eq!(store.chain().next(), 40, "byte {place}: a block that was acknowledged is no longer known");
        let wrong = wrong(&reader, &blocks);
        assert!(wrong.len() <= 1, "byte {place}: {wrong:?}");
        assert_eq!(reader.quarantined_blocks(0, 9), wrong, "byte {place}");
        let now = directory.contents(&scan::name(1)).unwrap();
        let behind = |from: usize| now.get(from..) == damaged.get(from..);
        assert!(behind(place + 8), "byte {place}: what is whole was overwritten");
        let [repaired] = wrong[..] else { continue };
        store.repair(&prepared(&blocks[repaired as usize])).unwrap();
        drop(store);
        let store = Store::open(directory, ONE_SEGMENT).unwrap();
        check(&store, &blocks, 40);
        assert!(store.chain().knows_all(), "byte {place}");
    }
}

#[test]
fn a_flipped_bit_anywhere_in_any_file_costs_one_block_at_most_and_no_number_is_given_anew() {
    let blocks = blocks(40);
    let original = SimulatedDirectory::default();
    append_all(&mut Store::open(original.clone(), OPTIONS).unwrap(), &blocks);
    for name in original.names().unwrap() {
        for place in (0..original.contents(&name).unwrap().len()).step_by(29) {
            let directory = original.copy();
            let open = Store::open(directory.clone(), OPTIONS).unwrap();
            directory.damage(&name, |bytes| bytes[place] ^= 0x10).unwrap();
            let again = Store::open(directory.copy(), OPTIONS).unwrap();
            for (store, what) in [(&open, "open"), (&again, "opened again")] {
                let reader = store.reader();
                assert_eq!((reader.first(), reader.next()), (0, 40), "{name}, byte {place}, {what}");
                let wrong = wrong(&reader, &blocks);
                assert!(
                    wrong.len() <= usize::from(name.ends_with(".blocks")),
                    "{name}, byte {place}, {what}: {wrong:?}"
                );
                assert_eq!(reader.quarantined_blocks(0, 9), wrong, "{name}, byte {place}, {what}");
            }
        }
    }
}

#[test]
fn a_page_that_is_lost_in_the_last_batch_costs_the_blocks_in_it() {
    let (directory, blocks) = one_batch(60);
    let length = directory.contents(&scan::name(1)).unwrap().len();
    assert!(length > 5 * 4_096);
    for page in 0..length.div_ceil(4_096) {
        let directory = directory.copy();
        let lost = 4_096 * page..length.min(4_096 * (page + 1));
        directory.damage(&scan::name(1), |bytes| bytes[lost.clone()].fill(0)).unwrap();
        let store = Store::open(directory.clone(), OPTIONS).unwrap();
        assert_eq!(store.chain().next(), 60, "page {page}");
        let wrong = wrong(&store.reader(), &blocks);
        assert!((1..=9).contains(&wrong.len()), "page {page}: {wrong:?}");
        assert_eq!(wrong.len() as u64, wrong.last().unwrap() - wrong[0] + 1, "one gap: {wrong:?}");
    }
    directory.damage(&scan::name(1), |bytes| bytes.truncate(length / 2)).unwrap();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    assert_eq!(store.chain().next(), 60, "the file was cut");
    let lost = wrong(&store.reader(), &blocks);
    assert!(lost.len() > 20 && lost.last() == Some(&59), "{lost:?}");
    lost.iter().for_each(|number| store.repair(&prepared(&blocks[*number as usize])).unwrap());
    drop(store);
    check(&Store::open(directory, OPTIONS).unwrap(), &blocks, 60);
}

#[test]
fn a_damaged_head_of_the_second_segment_does_not_end_retention() {
    let blocks = blocks(60);
    let options = Options { keep_blocks: Some(10), ..OPTIONS };
    let directory = SimulatedDirectory::default();
    append_all(&mut Store::open(directory.clone(), OPTIONS).unwrap(), &blocks[..50]);
    directory.damage(&scan::name(2), |bytes| bytes[20] ^= 1).unwrap();
    let mut store = Store::open(directory, options).unwrap();
    append_all(&mut store, &blocks);
    assert!(store.remove_old().unwrap() > 3);
    let reader = store.reader();
    assert!((30..=50).contains(&reader.first()), "{}", reader.first());
    assert!(wrong(&reader, &blocks[reader.first() as usize..]).is_empty());
}

#[test]
fn a_page_of_the_index_that_is_lost_costs_no_block() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    damage(&directory, &reader, 9);
    directory.damage("00000000000000000000.index", |bytes| bytes[..30 * 16].fill(0)).unwrap();
    assert_eq!(wrong(&reader, &blocks), [9]);
    assert!(reader.entry(3).is_some(), "the entry is written again");
    drop(store);
    assert_eq!(wrong(&Store::open(directory, OPTIONS).unwrap().reader(), &blocks), [9]);
}
