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
    let scan = scan::scan(1, &directory.contents(&name).unwrap(), false).unwrap();
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
    assert_eq!(reader.quarantined_blocks(0, 2), [1, 4]);
    assert_eq!(reader.quarantined_blocks(5, 2), [7, 1]);
    assert_eq!(reader.quarantined_blocks(8, 9), [1, 4, 7]);
}
