//! A disk that is full when a store is opened: what is stored is served, and nothing taken until there is room and it is opened again.

use super::*;

/// Everything up to there is read, nothing is taken, and with room again nothing is lost; the directory then.
fn is_served_and_takes_nothing(
    directory: &SimulatedDirectory,
    options: Options,
    blocks: &[Crafted],
    count: usize,
) -> SimulatedDirectory {
    let mut store = Store::open(directory.clone(), options).unwrap();
    let said = store.failed().unwrap().to_string();
    assert!(said.contains("the disk is full") && said.contains("correct the cause and restart"), "{said}");
    check(&store, blocks, count);
    assert_eq!((store.chain().next() as usize, append_all(&mut store, blocks)), (count, count));
    drop(store);
    let directory = directory.copy();
    let mut store = Store::open(directory.clone(), options).unwrap();
    assert!(store.failed().is_none());
    check(&store, blocks, count);
    assert_eq!(append_all(&mut store, blocks), blocks.len());
    drop(store);
    check(&Store::open(directory.clone(), options).unwrap(), blocks, blocks.len());
    directory
}

/// The next page of the index had no room, and the node did not start again.
#[test]
fn without_room_for_the_index_all_blocks_are_served_from_the_last_segment_and_from_those_before() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    append_all(&mut Store::open(directory.clone(), OPTIONS).unwrap(), &blocks[..37]);
    directory.remove("00000000000000000000.index").unwrap();
    // Of the last segment; and of each before it, whose reader would write its entries again.
    (0..200).for_each(|after| directory.fail(Fault::Create, after));
    let segments = directory.names().unwrap().iter().filter(|name| scan::number(name).is_some()).count();
    assert!(segments >= 3, "{segments} segments");
    is_served_and_takes_nothing(&directory, OPTIONS, &blocks, 37);
}

#[test]
fn what_was_cut_off_stays_in_its_place_where_there_is_no_room_to_keep_it_aside() {
    let blocks = blocks(30);
    let (directory, one_segment) = cut_off(&blocks);
    let before = directory.contents(&scan::name(1)).unwrap();
    directory.fail(Fault::Create, 0);
    let store = Store::open(directory.clone(), one_segment).unwrap();
    assert_eq!(directory.contents(&scan::name(1)).unwrap(), before);
    drop(store);
    directory.fail(Fault::Create, 0);
    let directory = is_served_and_takes_nothing(&directory, one_segment, &blocks, 12);
    assert!(before.ends_with(&directory.contents("00000000000000000001.blocks.torn-1").unwrap()));
}

#[test]
fn a_segment_whose_first_write_was_cut_off_waits_for_room_to_be_kept_aside() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    let mut count = 0;
    while count == 0 || !store.is_full() {
        store.append(&[prepared(&blocks[count])]).unwrap();
        count += 1;
    }
    store.append(&blocks[count..count + 3].iter().map(prepared).collect::<Vec<_>>()).unwrap();
    drop(store);
    // Of the first write nothing is left of head and first record, and no entry of the index.
    directory.damage(&scan::name(2), |bytes| bytes[..300].fill(0)).unwrap();
    directory.remove("00000000000000000002.head").unwrap();
    forget_from(&directory, count);
    directory.fail(Fault::Create, 0);
    is_served_and_takes_nothing(&directory, OPTIONS, &blocks, count);
}
