//! A segment's file of any content: opening the store gives blocks that were there, or a refusal; never a block that was not; and what
//! was opened takes the next block and has it the next time.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use block_node::block::{Builder, Limits, ProofRules, Verified};
use block_node::craft::{Crafter, Shape};
use block_node::messages::items;
use block_node::store::{LEVEL, Options, Prepared, Store};
use libfuzzer_sys::fuzz_target;
use wal::files::{Directory as _, SimulatedDirectory};

const OPTIONS: Options =
    Options { segment_bytes: 2_000, first_block: 0, keep_blocks: None, salt: 5, compression_level: LEVEL };

fn blocks(count: usize) -> Vec<Verified> {
    let mut crafter = Crafter::new(1, 0);
    let rules = ProofRules::accepted_before();
    let verified = (0..count).map(|_| {
        let block = crafter.next(Shape { items: 2, item_bytes: 60 });
        let items: Vec<_> = items(&block.bytes).map(|item| item.expect("crafted")).collect();
        let mut builder = Builder::begin(items[0], Limits { block_bytes_max: 1 << 20 }).expect("crafted");
        items[1..].iter().for_each(|item| builder.add(item).expect("crafted"));
        builder.finish(&rules).expect("crafted")
    });
    verified.collect()
}

fn check(store: &Store<SimulatedDirectory>, blocks: &[Verified]) {
    let reader = store.reader();
    for number in reader.first()..reader.next() {
        if let Ok(found) = reader.read(number) {
            assert_eq!(found.bytes, blocks[number as usize].bytes);
        }
    }
}

// The fuzzer cannot make a checksum: what it changes is a store that is right. The first byte says how many blocks that has; after it
// come triples, a file and an offset and what is put there.
fuzz_target!(|data: &[u8]| {
    let [count, changes @ ..] = data else { return };
    let blocks = blocks(usize::from(count % 12) + 1);
    let directory = SimulatedDirectory::default();
    let mut store = Store::open(directory.clone(), OPTIONS).expect("an empty directory");
    let (last, before) = blocks.split_last().expect("one at least");
    before.iter().for_each(|block| store.append(&[Prepared::with(block, None, LEVEL)]).expect("a disk"));
    drop(store);
    let mut names = directory.names().expect("names");
    names.sort();
    for change in changes.chunks_exact(3) {
        let Some(name) = names.get(usize::from(change[0] >> 4) % names.len().max(1)) else { break };
        let offset = usize::from(change[0] & 15) << 8 | usize::from(change[1]);
        let put = |bytes: &mut Vec<u8>| {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= change[2];
            }
        };
        directory.damage(name, put).expect("a name");
    }
    let Ok(mut store) = Store::open(directory.clone(), OPTIONS) else { return };
    check(&store, &blocks);
    if store.chain().next() == last.number {
        store.append(&[Prepared::with(last, None, LEVEL)]).expect("a disk");
        drop(store);
        let Ok(store) = Store::open(directory, OPTIONS) else { return };
        assert_eq!(store.reader().read(last.number).expect("it was acknowledged").bytes, last.bytes);
    }
});
