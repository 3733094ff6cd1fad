//! A store with many small blocks that nobody could verify, written without a server: what bars and benchmarks of finding them begin with.

use std::path::Path;

use block_node::block::{Evidence, Footer, Verified};
use block_node::hash::leaf;
use block_node::store::{LEVEL, Options, Prepared, Store};
use wal::files::RealDirectory;

/// Appended at once.
const BATCH_BLOCKS: u64 = 4_096;

/// Fills a directory with so many blocks of one item, from block 0.
pub fn fill(directory: &Path, blocks: u64) {
    let options = Options { salt: 1, ..Options::default() };
    let mut store = Store::open(RealDirectory::open(directory).unwrap(), options).unwrap();
    for first in (0..blocks).step_by(BATCH_BLOCKS as usize) {
        let end = blocks.min(first + BATCH_BLOCKS);
        store.append(&(first..end).map(block).collect::<Vec<_>>()).unwrap();
    }
}

fn block(number: u64) -> Prepared {
    let root = leaf(&number.to_le_bytes());
    let footer = Footer { previous_root: root, all_previous_root: Some(root), state_root: None };
    // One item, which is a transaction.
    let bytes = [&[0x0a, 129, 1][..], &[0x22, 127], &root, &root, &[7; 31]].concat();
    let digest = *root.first_chunk().unwrap();
    Prepared::with(&Verified { number, bytes, root, digest, footer, evidence: Evidence::Dummy, items: 1 }, None, LEVEL)
}
