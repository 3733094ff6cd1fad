//! The store on a disk that loses power, fails and rots.

mod damage;
mod digests;
mod full;
mod rot;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use wal::files::{CountingDirectory, Directory as _, Fault, HeldDirectory, SimulatedDirectory};

use super::*;
use crate::block::{Evidence, Footer, Verified};
use crate::craft::{Crafted, Crafter, Shape, Traffic};
use crate::hash::sha384;

const DIGESTS: &str = "00000000000000000000.digests";

/// Some batches to a segment, some blocks to a batch.
const OPTIONS: Options =
    Options { segment_bytes: 6_375, first_block: 0, keep_blocks: None, salt: 77, compression_level: LEVEL };

fn blocks(count: usize) -> Vec<Crafted> {
    let mut crafter = Crafter::new(1, 0);
    (0..count).map(|index| crafter.next(Shape { items: 3 + index % 5, item_bytes: 100 })).collect()
}

/// A block as it is verified, with a digest of its own.
fn verified(block: &Crafted) -> Verified {
    let footer = Footer { previous_root: [0; 48], all_previous_root: Some([0; 48]), state_root: None };
    let (number, bytes, root) = (block.number, block.bytes.clone(), block.root);
    let digest = *sha384(&[&bytes]).first_chunk().unwrap();
    Verified { number, bytes, root, digest, footer, evidence: Evidence::Dummy, items: 0 }
}

fn prepared(block: &Crafted) -> Prepared {
    Prepared::of(&verified(block))
}

/// Appends batches of 1, 2, 3, 1, 2, 3 … blocks until the end or an error; how many were acknowledged.
fn append_all(store: &mut Store<SimulatedDirectory>, blocks: &[Crafted]) -> usize {
    let mut acknowledged = store.chain().next() as usize;
    let mut size = 1;
    while acknowledged < blocks.len() {
        let batch = &blocks[acknowledged..(acknowledged + size).min(blocks.len())];
        let batch: Vec<_> = batch.iter().map(prepared).collect();
        if store.append(&batch).is_err() {
            assert!(store.append(&batch).is_err(), "after a failure nothing may be appended");
            return acknowledged;
        }
        acknowledged += batch.len();
        store.prepare();
        size = size % 3 + 1;
    }
    acknowledged
}

/// Everything that is shown is what was appended, and at least what was acknowledged is shown.
fn check(store: &Store<SimulatedDirectory>, blocks: &[Crafted], acknowledged: usize) {
    let reader = store.reader();
    let next = reader.next() as usize;
    assert!(next >= acknowledged, "{acknowledged} were acknowledged, {next} are there");
    assert_eq!(store.chain().next() as usize, next);
    for block in &blocks[..next] {
        let found = reader.read(block.number).unwrap();
        assert_eq!((found.bytes, found.root), (block.bytes.clone(), block.root), "block {}", block.number);
        let digest = Some(verified(block).digest);
        assert_eq!((found.digest, reader.digest(block.number)), (digest, digest), "block {}", block.number);
        // Without room none is written there.
        let beside = reader.acknowledged(block.number);
        assert!(beside == digest || store.failed().is_some(), "block {}", block.number);
    }
    assert!(matches!(reader.read(next as u64), Err(ReadError::NotStored(_))));
    let expected = if next == 0 { vec![] } else { vec![0..=next as u64 - 1] };
    assert_eq!(reader.ranges(), expected);
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_every_operation() {
    let blocks = blocks(40);
    let operations = {
        let directory = SimulatedDirectory::default();
        let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
        assert_eq!(append_all(&mut store, &blocks), blocks.len());
        assert!(directory.names().unwrap().len() > 4, "several segments and an index");
        check(&store, &blocks, blocks.len());
        directory.operations()
    };
    for cut in 0..operations {
        for seed in 0..4 {
            let mut random = SmallRng::seed_from_u64(cut * 100 + seed);
            let directory = SimulatedDirectory::default();
            directory.fail(Fault::Power, cut);
            let acknowledged = match Store::open(directory.clone(), OPTIONS) {
                Ok(mut store) => append_all(&mut store, &blocks),
                Err(_) => 0,
            };
            directory.crash(|| random.next_u64());
            // And once more, while it is opened.
            directory.fail(Fault::Power, random.random_range(0..4));
            let _ = Store::open(directory.clone(), OPTIONS);
            directory.crash(|| random.next_u64());
            let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
            check(&store, &blocks, acknowledged);
            assert_eq!(append_all(&mut store, &blocks), blocks.len());
            drop(store);
            check(&Store::open(directory, OPTIONS).unwrap(), &blocks, blocks.len());
        }
    }
}

#[test]
fn old_blocks_go_and_a_power_cut_at_any_operation_leaves_the_newest_without_a_gap() {
    const KEEP: u64 = 12;
    let options = Options { keep_blocks: Some(KEEP), ..OPTIONS };
    let blocks = blocks(60);
    let run = |directory: &SimulatedDirectory| {
        let mut store = Store::open(directory.clone(), options).map_err(|_| 0_u64)?;
        for block in &blocks[store.chain().next() as usize..] {
            store.append(&[prepared(block)]).map_err(|_| block.number)?;
            // Several segments at a time. An error here ends nothing, but the power is gone then.
            if block.number % 20 == 19 {
                let _ = store.remove_old();
            }
        }
        Ok::<_, u64>(store)
    };
    let check = |store: &Store<SimulatedDirectory>, acknowledged: u64| {
        let reader = store.reader();
        assert!(reader.next() >= acknowledged, "{acknowledged} were acknowledged");
        assert!(reader.first() <= reader.next().saturating_sub(KEEP), "{} to {}", reader.first(), reader.next());
        for number in reader.first()..reader.next() {
            assert_eq!(reader.read(number).unwrap().bytes, blocks[number as usize].bytes);
        }
        if let Some(before) = reader.first().checked_sub(1) {
            assert!(matches!(reader.read(before), Err(ReadError::NotStored(_))));
        }
        assert_eq!(reader.quarantined(), 0);
    };
    let directory = SimulatedDirectory::default();
    let store = run(&directory).unwrap();
    check(&store, 60);
    assert!(store.reader().first() > 20, "nothing was removed");
    for cut in 0..directory.operations() {
        let mut random = SmallRng::seed_from_u64(cut);
        let directory = SimulatedDirectory::default();
        directory.fail(Fault::Power, cut);
        let acknowledged = run(&directory).map_or_else(|acknowledged| acknowledged, |_| 60);
        directory.crash(|| random.next_u64());
        let store = Store::open(directory.clone(), options).unwrap();
        check(&store, acknowledged);
        drop(store);
        check(&run(&directory).unwrap(), 60);
    }
}

#[test]
fn a_reader_of_a_block_that_goes_is_told_that_it_is_not_stored() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { keep_blocks: Some(5), ..OPTIONS }).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    assert!(reader.read(0).is_ok());
    assert!(store.remove_old().unwrap() > 1);
    // As one who looked at the first block's number just before.
    assert!(matches!(reader.read(0), Err(ReadError::NotStored(0))));
    assert_eq!((reader.quarantined(), reader.first() <= 35), (0, true));
    assert!(!directory.names().unwrap().contains(&scan::name(1)));
}

#[test]
fn who_has_read_damage_that_is_repaired_or_gone_meanwhile_quarantines_nothing() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), Options { keep_blocks: Some(5), ..OPTIONS }).unwrap();
    append_all(&mut store, &blocks);
    let reader = store.reader();
    let [gone, repaired] = [0, 38].map(|number| reader.entry(number));
    damage(&directory, &reader, 38);
    assert!(reader.quarantine(38, repaired), "this one is damaged");
    store.repair(&prepared(&blocks[38])).unwrap();
    assert!(!reader.quarantine(38, repaired));
    assert!(store.remove_old().unwrap() > 1);
    assert!(!reader.quarantine(0, gone));
    assert_eq!((reader.quarantined(), reader.ranges()), (0, vec![reader.first()..=39]));
    assert!(reader.read(38).is_ok());
    // A repair that comes too late writes nothing.
    let operations = directory.operations();
    store.repair(&prepared(&blocks[0])).unwrap();
    assert_eq!((directory.operations(), reader.quarantined()), (operations, 0));
    // An index that cannot be read costs no block that is whole, and names one that is damaged all the same.
    let lost = |bytes: &mut Vec<u8>| bytes[38 * 16] ^= 1;
    directory.damage("00000000000000000000.index", lost).unwrap();
    assert_eq!(reader.read(38).unwrap().bytes, blocks[38].bytes);
    damage(&directory, &reader, 38);
    directory.damage("00000000000000000000.index", lost).unwrap();
    assert!(matches!(reader.read(38), Err(ReadError::Damaged { number: 38, .. })));
    assert_eq!(reader.ranges(), [reader.first()..=37, 39..=39]);
}

#[test]
fn a_process_that_was_killed_leaves_whole_blocks() {
    // The machine goes on: everything that was written is there, synced or not, and must then be synced.
    let blocks = blocks(20);
    for sync in 0..20 {
        let directory = SimulatedDirectory::default();
        directory.fail(Fault::DataSync, sync);
        let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
        let acknowledged = append_all(&mut store, &blocks);
        drop(store);
        if acknowledged == blocks.len() {
            assert!(sync > 5, "no sync has failed");
            break;
        }
        let shown = {
            let store = Store::open(directory.clone(), OPTIONS).unwrap();
            check(&store, &blocks, acknowledged);
            store.reader().next() as usize
        };
        // What was shown once must stay, whatever the disk lost behind the failed sync.
        directory.crash(|| 0);
        check(&Store::open(directory, OPTIONS).unwrap(), &blocks, shown);
    }
}

#[test]
fn a_full_disk_or_a_failed_write_ends_it_and_loses_nothing() {
    let blocks = blocks(30);
    for fault in [Fault::Write, Fault::DataSync, Fault::NameSync, Fault::Create] {
        for after in 0..12 {
            let mut random = SmallRng::seed_from_u64(after);
            let directory = SimulatedDirectory::default();
            let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
            directory.fail(fault, after);
            let acknowledged = append_all(&mut store, &blocks);
            let reader = store.reader();
            assert_eq!(reader.next() as usize, acknowledged, "nothing is shown that was not acknowledged");
            blocks[..acknowledged].iter().for_each(|block| assert!(reader.read(block.number).is_ok()));
            directory.crash(|| random.next_u64());
            check(&Store::open(directory, OPTIONS).unwrap(), &blocks, acknowledged);
        }
    }
}

#[test]
fn a_damaged_block_is_quarantined_and_the_others_are_served() {
    let blocks = blocks(12);
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let original = SimulatedDirectory::default();
    let mut store = Store::open(original.clone(), one_segment).unwrap();
    for block in &blocks {
        store.append(&[prepared(block)]).unwrap();
    }
    drop(store);
    let name = scan::name(1);
    let length = original.contents(&name).unwrap().len();
    let head_end = scan::SegmentHead::decode(1, &original.contents(&name).unwrap()).unwrap().1;
    for offset in (head_end..length).step_by(13) {
        // While it runs, a reader finds it; when it starts again, opening does.
        let directory = original.copy();
        let running = Store::open(directory.clone(), one_segment).unwrap();
        directory.damage(&name, |bytes| bytes[offset] ^= 0x10).unwrap();
        let reopened = Store::open(directory.copy(), one_segment).unwrap();
        for store in [&running, &reopened] {
            let reader = store.reader();
            let mut damaged = Vec::new();
            for block in &blocks[..reader.next() as usize] {
                match reader.read(block.number) {
                    Ok(found) => assert_eq!(found.bytes, block.bytes),
                    Err(ReadError::Damaged { .. }) => damaged.push(block.number),
                    Err(other) => panic!("{other}"),
                }
            }
            // Zeros that fill up are no part of a block.
            assert!(damaged.len() <= 1 && reader.next() as usize == blocks.len());
            assert_eq!(reader.quarantined(), damaged.len());
            if let [number] = damaged[..] {
                let served: Vec<u64> = reader.ranges().into_iter().flatten().collect();
                assert_eq!(served, (0..reader.next()).filter(|other| *other != number).collect::<Vec<_>>());
            }
        }
    }
}

/// Changes a bit of a block where it stands.
fn damage(directory: &SimulatedDirectory, reader: &Reader<SimulatedDirectory>, number: u64) {
    let (segment, offset) = reader.place(number);
    directory.damage(&segment, |bytes| bytes[offset + 120] ^= 1).unwrap();
}

/// A store of 30 blocks in one segment whose power went before the sync of the last batch was over: of block 12 some sectors did not arrive,
/// and neither an entry of the index nor a digest of those behind it.
fn cut_off(blocks: &[Crafted]) -> (SimulatedDirectory, Options) {
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    store.append(&blocks[..10].iter().map(prepared).collect::<Vec<_>>()).unwrap();
    store.append(&blocks[10..].iter().map(prepared).collect::<Vec<_>>()).unwrap();
    damage(&directory, &store.reader(), 12);
    drop(store);
    forget_from(&directory, 10);
    (directory, one_segment)
}

/// As if neither entries of the index nor digests of this block and later ones had been written out.
fn forget_from(directory: &SimulatedDirectory, number: usize) {
    directory.damage("00000000000000000000.index", |bytes| bytes.truncate(number * 16)).unwrap();
    directory.damage(DIGESTS, |bytes| bytes.truncate(number * 36)).unwrap();
}

/// Damages some blocks where they stand, quarantines them, and repairs them; how many were repaired. The last of all is damaged while the
/// store is open, others before: at a start that one cannot be told from what a crash has left.
fn damage_and_repair(directory: &SimulatedDirectory, blocks: &[Crafted], numbers: &[u64]) -> usize {
    let next = Store::open(directory.copy(), OPTIONS).unwrap().chain().next();
    for number in numbers.iter().filter(|number| **number + 1 < next) {
        damage(directory, &Store::open(directory.copy(), OPTIONS).unwrap().reader(), *number);
    }
    let Ok(mut store) = Store::open(directory.clone(), OPTIONS) else { return 0 };
    let reader = store.reader();
    numbers.iter().filter(|number| **number + 1 == next).for_each(|last| damage(directory, &reader, *last));
    numbers.iter().for_each(|number| assert!(reader.read(*number).is_err(), "block {number} is not damaged"));
    assert_eq!(reader.quarantined_blocks(u64::MAX, 9), numbers.iter().rev().copied().collect::<Vec<_>>());
    numbers.iter().take_while(|number| store.repair(&prepared(&blocks[**number as usize])).is_ok()).count()
}

#[test]
fn a_damaged_block_is_repaired_for_good_in_whatever_segment_it_was() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    append_all(&mut Store::open(directory.clone(), OPTIONS).unwrap(), &blocks[..37]);
    // In the first segment, in another one, and in the last one, where damage is found at the start.
    let numbers = [2, 17, 34, 36];
    assert_eq!(damage_and_repair(&directory, &blocks, &numbers), 4);
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    check(&store, &blocks, 37);
    assert!(store.chain().knows_all(), "the tree of all root hashes is whole again");
    append_all(&mut store, &blocks);
    drop(store);
    // In later segments, and with an index that is made again.
    check(&Store::open(directory.clone(), OPTIONS).unwrap(), &blocks, 40);
    directory.remove("00000000000000000000.index").unwrap();
    check(&Store::open(directory.clone(), OPTIONS).unwrap(), &blocks, 40);
    assert_eq!(damage_and_repair(&directory, &blocks, &[17]), 1, "what was repaired is damaged once more");
    check(&Store::open(directory, OPTIONS).unwrap(), &blocks, 40);
}

#[test]
fn a_power_cut_at_any_operation_of_a_repair_loses_nothing_that_was_whole() {
    let blocks = blocks(40);
    let original = SimulatedDirectory::default();
    append_all(&mut Store::open(original.clone(), OPTIONS).unwrap(), &blocks);
    let numbers = [2, 17, 36, 39];
    for cut in 0.. {
        let mut random = SmallRng::seed_from_u64(cut);
        let directory = original.copy();
        for number in &numbers[..3] {
            damage(&directory, &Store::open(directory.copy(), OPTIONS).unwrap().reader(), *number);
        }
        let before = directory.operations();
        directory.fail(Fault::Power, cut);
        let repaired = match Store::open(directory.clone(), OPTIONS) {
            Err(_) => 0,
            Ok(mut store) => {
                damage(&directory, &store.reader(), 39);
                let repair = |number: &&u64| store.repair(&prepared(&blocks[**number as usize])).is_ok();
                numbers.iter().take_while(repair).count()
            }
        };
        if repaired == numbers.len() {
            assert!(cut > 3 && directory.operations() > before, "nothing was cut");
            break;
        }
        directory.crash(|| random.next_u64());
        let store = Store::open(directory, OPTIONS).unwrap();
        let reader = store.reader();
        // The last one, damaged, is as what a crash leaves; it is fetched as a block that is missing.
        assert!(
            reader.next() == 40 || reader.next() == 39 && repaired < 4,
            "cut {cut}: {} after {repaired}",
            reader.next()
        );
        for block in &blocks[..reader.next() as usize] {
            match reader.read(block.number) {
                Ok(found) => assert_eq!(found.bytes, block.bytes),
                Err(error) => {
                    let open = &numbers[repaired..];
                    assert!(open.contains(&block.number), "cut {cut}: block {}: {error}", block.number);
                }
            }
        }
    }
}

/// Blocks of a network's traffic, and a dictionary for them.
fn alike(count: usize) -> (Vec<Crafted>, Arc<Dictionary>) {
    let (mut crafter, mut traffic) = (Crafter::new(1, 0), Traffic::new(1));
    let mut trainer = Trainer::new(None);
    let blocks: Vec<_> = (0..count).map(|_| crafter.next_of(traffic.items(2))).collect();
    let training = blocks.iter().cycle().find_map(|block| trainer.take(&block.bytes)).unwrap();
    training.run(LEVEL);
    (blocks, trainer.dictionary().unwrap())
}

fn prepared_with(block: &Crafted, dictionary: &Arc<Dictionary>) -> Prepared {
    let prepared = Prepared::with(&verified(block), Some(Arc::clone(dictionary)), LEVEL);
    assert_eq!(prepared.encoding, StoredAs::Dictionary);
    prepared
}

#[test]
fn blocks_with_a_dictionary_survive_a_power_cut_at_every_operation() {
    let (blocks, dictionary) = alike(40);
    // Some batches to a segment, besides the dictionary.
    let options = Options { segment_bytes: 2 * dictionary.bytes().len() as u64 + 5_000, ..OPTIONS };
    let append = |store: &mut Store<SimulatedDirectory>| {
        while let Some(next) = blocks.get(store.chain().next() as usize..).filter(|next| !next.is_empty()) {
            // The first blocks come before there is a dictionary.
            let batch: Vec<_> = next[..next.len().min(3)]
                .iter()
                .map(|block| if block.number < 5 { prepared(block) } else { prepared_with(block, &dictionary) })
                .collect();
            if store.append(&batch).is_err() {
                break;
            }
        }
        store.chain().next() as usize
    };
    let operations = {
        let directory = SimulatedDirectory::default();
        let mut store = Store::open(directory.clone(), options).unwrap();
        assert_eq!(append(&mut store), blocks.len());
        check(&store, &blocks, blocks.len());
        assert!(directory.names().unwrap().len() > 3, "several segments");
        directory.operations()
    };
    for cut in 0..operations {
        let mut random = SmallRng::seed_from_u64(cut);
        let directory = SimulatedDirectory::default();
        directory.fail(Fault::Power, cut);
        let acknowledged = Store::open(directory.clone(), options).map_or(0, |mut store| append(&mut store));
        directory.crash(|| random.next_u64());
        let mut store = Store::open(directory.clone(), options).unwrap();
        check(&store, &blocks, acknowledged);
        assert_eq!(append(&mut store), blocks.len());
        drop(store);
        let store = Store::open(directory, options).unwrap();
        check(&store, &blocks, blocks.len());
        assert_eq!(store.dictionary().as_ref(), Some(&dictionary), "the next blocks go on with it");
    }
}

/// What the first segment holds.
fn scanned(directory: &SimulatedDirectory) -> scan::Scan {
    let bytes = directory.contents(&scan::name(1)).unwrap();
    let (head, _) = scan::SegmentHead::decode(1, &bytes).unwrap();
    scan::scan(1, head, &bytes, 0)
}

#[test]
fn damage_to_one_copy_of_a_dictionary_costs_nothing_and_to_both_no_other_segment() {
    let (blocks, dictionary) = alike(20);
    let directory = SimulatedDirectory::default();
    let one_segment = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let mut store = Store::open(directory.clone(), one_segment).unwrap();
    let batches: Vec<_> = blocks.iter().map(|block| prepared_with(block, &dictionary)).collect();
    batches.iter().for_each(|block| store.append(std::slice::from_ref(block)).unwrap());
    let name = scan::name(1);
    let scan = scanned(&directory);
    let copies: Vec<_> = scan.dictionaries.iter().map(|record| record.offset as usize).collect();
    assert_eq!(copies.len(), 2);
    for place in [copies[0] + 5, copies[0] + 1_000, copies[1] + 5, copies[1] + 1_000] {
        let directory = directory.copy();
        directory.damage(&name, |bytes| bytes[place] ^= 1).unwrap();
        let mut store = Store::open(directory.clone(), one_segment).unwrap();
        check(&store, &blocks, 20);
        // Blocks that come now need a copy, too.
        let more = { alike(21).0.swap_remove(20) };
        store.append(&[prepared_with(&more, &dictionary)]).unwrap();
        assert_eq!(store.reader().read(20).unwrap().bytes, more.bytes);
    }
    copies.iter().for_each(|copy| directory.damage(&name, |bytes| bytes[copy + 1_000] ^= 1).unwrap());
    let reader = Store::open(directory, one_segment).unwrap().reader();
    let said = reader.read(3).unwrap_err().to_string();
    assert!(said.contains("both copies of its dictionary are damaged"), "{said}");
}

#[test]
fn the_index_is_made_again_where_it_was_lost() {
    let blocks = blocks(40);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    append_all(&mut store, &blocks);
    drop(store);
    directory.remove("00000000000000000000.index").unwrap();
    check(&Store::open(directory, OPTIONS).unwrap(), &blocks, blocks.len());
}

#[test]
fn who_waits_for_a_sync_shares_the_next() {
    let blocks = blocks(100);
    let simulated = SimulatedDirectory::default();
    let is_held = Arc::new(AtomicBool::new(true));
    let hold = Arc::clone(&is_held);
    let directory = HeldDirectory::new(simulated, move || {
        while hold.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let store = Store::open(directory, OPTIONS).unwrap();
    let reader = store.reader();
    let (sender, told) = mpsc::channel();
    let writer = Writer::start(store, || 0, move |appended| sender.send(appended).unwrap()).unwrap();
    blocks.iter().for_each(|block| writer.append(prepared(block)));
    assert_eq!(reader.next(), 0, "nothing is shown before its sync");
    is_held.store(false, Ordering::Release);
    drop(writer);
    let told: Vec<u64> = told
        .iter()
        .map(|appended| match appended {
            Appended::Safe { last, .. } => last,
            Appended::Repaired(number) | Appended::Begun(number) => panic!("{number}"),
            Appended::Failed(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(told.last(), Some(&99));
    assert!(told.is_sorted() && told.len() <= 3, "{told:?}");
    assert_eq!(reader.last(), Some(99));
}

#[test]
fn a_batch_that_begins_a_segment_waits_for_its_own_syncs_alone_where_the_writer_had_time() {
    let directory = CountingDirectory::new(SimulatedDirectory::default());
    let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
    let mut begun = 0;
    for block in &blocks(40) {
        let before = directory.counts();
        store.append(&[prepared(block)]).unwrap();
        let after = directory.counts();
        let (data, names) = (after.data_syncs - before.data_syncs, after.name_syncs - before.name_syncs);
        if block.number > 0 {
            assert_eq!(data, 1, "block {}", block.number);
        }
        begun += names;
        store.prepare();
    }
    assert!(begun > 4, "{begun} segments");
}

#[test]
fn what_fails_before_a_segment_is_begun_is_told_by_the_next_append() {
    let blocks = blocks(40);
    for fault in [Fault::Create, Fault::Write, Fault::DataSync, Fault::NameSync] {
        let directory = SimulatedDirectory::default();
        let mut store = Store::open(directory.clone(), OPTIONS).unwrap();
        let mut rest = blocks.iter();
        while !store.is_full() {
            store.append(&[prepared(rest.next().unwrap())]).unwrap();
        }
        directory.fail(fault, 0);
        store.prepare();
        assert!(store.append(&[prepared(rest.next().unwrap())]).is_err(), "{fault:?}");
        let acknowledged = store.chain().next() as usize;
        drop(store);
        check(&Store::open(directory, OPTIONS).unwrap(), &blocks, acknowledged);
    }
}

#[test]
fn where_many_are_under_way_batches_are_a_millisecond_apart() {
    let store = Store::open(SimulatedDirectory::default(), OPTIONS).unwrap();
    let reader = store.reader();
    let (sender, told) = mpsc::channel();
    let writer = Writer::start(store, || 100, move |appended| sender.send(appended).unwrap()).unwrap();
    let began = Instant::now();
    for block in &blocks(100) {
        writer.append(prepared(block));
        std::thread::sleep(Duration::from_micros(100));
    }
    drop(writer);
    let (batches, took) = (told.iter().count(), began.elapsed());
    assert!(batches as u128 <= took.as_millis() + 2, "{batches} batches in {took:?}");
    assert_eq!(reader.last(), Some(99));
}
