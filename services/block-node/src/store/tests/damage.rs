//! What is damaged, what only cannot be read for now, and what was repaired.

use rustix::io::Errno;

use super::*;

#[test]
fn of_a_block_that_was_repaired_and_one_published_in_its_place_the_later_is_served() {
    // As a store has it of which an earlier version forgot a repaired block that was the last.
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let (blocks, other) = (blocks(10), Crafter::new(2, 9).next(Shape { items: 4, item_bytes: 100 }));
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    damage(&directory, &reader, 9);
    assert!(reader.read(9).is_err());
    store.repair(&prepared(&blocks[9])).unwrap();
    let chain = Store::open(directory.clone(), one_segment).unwrap().chain().clone();
    assert_eq!(chain.next(), 10, "a block that was acknowledged and repaired is there");
    store.forget_last();
    store.append(&[prepared(&other)]).unwrap();
    drop(store);
    let store = Store::open(directory, one_segment).unwrap();
    assert_eq!(store.reader().read(9).unwrap().bytes, other.bytes);
    assert_eq!(store.chain().next(), 10);
}

#[test]
fn a_block_behind_the_last_whole_one_that_was_repaired_keeps_its_number_and_the_gap_is_told() {
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let blocks = blocks(10);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    damage(&directory, &reader, 9);
    assert!(reader.read(9).is_err());
    store.repair(&prepared(&blocks[9])).unwrap();
    damage(&directory, &reader, 8);
    drop(store);
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    let reader = store.reader();
    assert_eq!((reader.next(), reader.quarantined_blocks(0, 9)), (10, vec![8]));
    assert_eq!(reader.ranges(), [0..=7, 9..=9]);
    store.repair(&prepared(&blocks[8])).unwrap();
    drop(store);
    check(&Store::open(directory, one_segment).unwrap(), &blocks, 10);
}

#[test]
fn what_the_disk_cannot_read_is_quarantined_and_what_is_wrong_with_the_process_is_not() {
    let blocks = blocks(10);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { segment_bytes: 1 << 20, ..OPTIONS }).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    let (segment, offset) = reader.place(4);
    for passing in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
        directory.unreadable(&segment, offset + 100..offset + 101, passing.raw_os_error()).unwrap();
        assert!(matches!(reader.read(4), Err(ReadError::Files { number: 4, .. })), "{passing}");
        assert!(reader.read(3).is_ok() && reader.quarantined() == 0, "{passing}");
        directory.readable();
    }
    assert!(reader.read(4).is_ok());
    directory.unreadable(&segment, offset + 100..offset + 101, Errno::IO.raw_os_error()).unwrap();
    assert!(matches!(reader.read(4), Err(ReadError::Damaged { number: 4, .. })));
    assert_eq!(reader.quarantined_blocks(0, 9), [4]);
    store.repair(&prepared(&blocks[4])).unwrap();
    check(&store, &blocks, 10);
}

#[test]
fn a_dictionary_that_cannot_be_opened_for_now_quarantines_nothing() {
    let (blocks, dictionary) = alike(3);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { segment_bytes: 1 << 20, ..OPTIONS }).unwrap();
    blocks.iter().for_each(|block| store.append(&[prepared_with(block, &dictionary)]).unwrap());
    let name = scan::name(1);
    let scan = scanned(&directory);
    let (begin, end) = (scan.dictionaries[0].offset as usize, scan.blocks[0].offset as usize);
    directory.unreadable(&name, begin..end, Errno::MFILE.raw_os_error()).unwrap();
    assert!(matches!(store.reader().read(1), Err(ReadError::Files { number: 1, .. })));
    assert_eq!(store.reader().quarantined(), 0);
    directory.readable();
    check(&store, &blocks, 3);
}

#[test]
fn which_damaged_blocks_come_next_goes_round() {
    let blocks = blocks(10);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { segment_bytes: 1 << 20, ..OPTIONS }).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    for number in [1, 4, 7] {
        damage(&directory, &reader, number);
        assert!(reader.read(number).is_err());
    }
    assert_eq!(reader.quarantined_blocks(u64::MAX, 2), [7, 4]);
    assert_eq!(reader.quarantined_blocks(3, 2), [1, 7]);
    assert_eq!(reader.quarantined_blocks(0, 9), [7, 4, 1]);
}

/// As earlier versions have left it, a copy of no head is there.
fn without_copies(directory: &SimulatedDirectory) -> SimulatedDirectory {
    let directory = directory.copy();
    let names = directory.names().unwrap();
    names.iter().filter(|name| heads::is_head(name)).for_each(|copy| directory.remove(copy).unwrap());
    directory
}

#[test]
fn a_damaged_head_without_a_copy_is_known_from_the_segment_before_and_a_safe_one_alone_is_no_torn_segment() {
    let blocks = blocks(30);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    append_all(&mut store, &blocks);
    drop(store);
    let segments = directory.names().unwrap().iter().filter_map(|name| scan::number(name)).count() as u64;
    for segment in [1, 2, segments] {
        let directory = without_copies(&directory);
        directory.damage(&scan::name(segment), |bytes| bytes[20] ^= 1).unwrap();
        let store = Store::open(directory.clone(), OPTIONS).unwrap();
        check(&store, &blocks, 30);
        assert!(store.chain().knows_all(), "segment {segment}");
        drop(store);
        check(&Store::open(directory, OPTIONS).unwrap(), &blocks, 30);
    }
    // Of one batch, which tells nothing of a later one: the index does.
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { segment_bytes: 1 << 20, ..OPTIONS }).unwrap();
    store.append(&blocks.iter().map(prepared).collect::<Vec<_>>()).unwrap();
    drop(store);
    let directory = without_copies(&directory);
    directory.damage(&scan::name(1), |bytes| bytes[20] ^= 1).unwrap();
    let refused = Store::open(directory.clone(), OPTIONS).err().unwrap().to_string();
    assert!(refused.contains("00000000000000000001.blocks: damaged at byte 0"), "{refused}");
    directory.damage(&scan::name(1), |bytes| bytes[20] ^= 1).unwrap();
    directory.fail(Fault::Create, 0);
    check(&Store::open(directory.clone(), OPTIONS).unwrap(), &blocks, 30);
    check(&Store::open(directory.clone(), OPTIONS).unwrap(), &blocks, 30);
    // Now there is a copy.
    directory.damage(&scan::name(1), |bytes| bytes[20] ^= 1).unwrap();
    check(&Store::open(directory.clone(), OPTIONS).unwrap(), &blocks, 30);
    directory.remove(&scan::name(1)).unwrap();
    let refused = Store::open(directory, OPTIONS).err().unwrap().to_string();
    assert!(refused.contains("it names block 0, but no segment is there"), "{refused}");
}

/// The power went before the sync of the last batch was over: some of its sectors arrived, and no entry of the index.
#[test]
fn whole_blocks_behind_a_write_that_was_cut_off_are_kept_aside() {
    let blocks = blocks(30);
    let (directory, one_segment) = cut_off(&blocks);
    let bytes = directory.contents(&scan::name(1)).unwrap();
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    check(&store, &blocks, 12);
    assert_eq!(store.chain().next(), 12);
    let aside = directory.contents("00000000000000000001.blocks.torn-1").unwrap();
    assert!(bytes.ends_with(&aside) && aside.len() > 1_000, "{} bytes", aside.len());
    append_all(&mut store, &blocks);
    drop(store);
    check(&Store::open(directory.clone(), one_segment).unwrap(), &blocks, 30);
    assert_eq!(directory.names().unwrap().iter().filter(|name| name.contains("torn")).count(), 1);
}

#[test]
fn the_root_hash_of_a_damaged_block_is_known_where_its_head_is_whole_and_of_the_last_one_in_any_case() {
    let blocks = blocks(10);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { segment_bytes: 1 << 20, ..OPTIONS }).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    for number in [3, 9] {
        damage(&directory, &reader, number);
        assert!(reader.read(number).is_err());
        assert_eq!(reader.root(number), Some(blocks[number as usize].root));
    }
    for number in [5, 9] {
        let (segment, offset) = reader.place(number);
        directory.damage(&segment, |bytes| bytes[offset + 50] ^= 1).unwrap();
    }
    assert_eq!((reader.root(5), reader.root(9), reader.root(10)), (None, Some(blocks[9].root), None));
    assert!(store.chain().knows_all());
}

#[test]
fn damage_in_the_last_batch_costs_the_block_that_is_damaged_and_none_behind_it() {
    let blocks = blocks(30);
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    for damaged in [0, 3, 28] {
        let directory = SimulatedDirectory::default();
        let mut store = Store::open(directory.clone(), one_segment).unwrap();
        store.append(&blocks.iter().map(prepared).collect::<Vec<_>>()).unwrap();
        damage(&directory, &store.reader(), damaged);
        drop(store);
        for start in 0..2 {
            let reader = Store::open(directory.clone(), one_segment).unwrap().reader();
            assert_eq!((reader.next(), reader.quarantined_blocks(0, 9)), (30, vec![damaged]), "start {start}");
            for block in blocks.iter().filter(|block| block.number != damaged) {
                assert_eq!(reader.read(block.number).unwrap().bytes, block.bytes);
            }
        }
    }
}
