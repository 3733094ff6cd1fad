//! What lies in the bucket of Litestream 0.3 is imported or refused: what was imported restores, and is the same when it is imported again. The
//! fuzzer cannot make checksums: pieces of a WAL are right, of frames of the fuzzer's, until it changes a byte of an object.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::type_complexity, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::sync::Arc;
use walsync::arena::Arena;
use walsync::chain::Chain;
use walsync::import::{LegacyReplica, import};
use walsync::replica::Replica;
use walsync::store::memory::MemoryStore;
use walsync::store::{Attributes, Store};
use walsync::wal_reader::checksum;

const PAGE_BYTES: usize = 512;

fn frame_of_lz4(content: &[u8]) -> Vec<u8> {
    let mut frame = b"\x04\x22\x4d\x18\x60\x70\x73".to_vec();
    for block in content.chunks(4 << 20) {
        frame.extend((block.len() as u32 | 1 << 31).to_le_bytes());
        frame.extend(block);
    }
    frame.extend([0; 4]);
    frame
}

/// Pieces of one WAL: frames of a page number, a size where they commit, and the byte that fills them.
fn wal(salt: u32, pieces: &[Vec<(u8, u8, u8)>]) -> Vec<Vec<u8>> {
    let mut piece = Vec::new();
    for word in [0x377f_0682, 3_007_000, PAGE_BYTES as u32, 0, salt, salt] {
        piece.extend(word.to_be_bytes());
    }
    let mut sums = checksum(false, [0, 0], &piece);
    sums.iter().for_each(|sum| piece.extend(sum.to_be_bytes()));
    let mut all = Vec::new();
    for frames in pieces {
        for &(number, size, filling) in frames {
            let page = [filling; PAGE_BYTES];
            let head = [u32::from(number), u32::from(size)].map(u32::to_be_bytes).concat();
            sums = checksum(false, checksum(false, sums, &head), &page);
            piece.extend(head);
            [salt, salt, sums[0], sums[1]].iter().for_each(|word| piece.extend(word.to_be_bytes()));
            piece.extend(page);
        }
        all.push(std::mem::take(&mut piece));
    }
    all
}

type Pieces = Vec<Vec<(u8, u8, u8)>>;

fuzz_target!(|parts: (Vec<u8>, Vec<(Vec<u8>, Pieces)>, Vec<(u8, u16, u8)>)| {
    let (database, generations, changes) = parts;
    let mut objects = Vec::new();
    let mut snapshot = database[..database.len() / PAGE_BYTES * PAGE_BYTES].to_vec();
    if let Some(header) = snapshot.get_mut(..100) {
        header[..20].copy_from_slice(b"SQLite format 3\0\x02\0\x02\x02");
    }
    objects.push(("generations/a/snapshots/00000000.snapshot.lz4".to_owned(), frame_of_lz4(&snapshot)));
    for (index, (_, pieces)) in generations.iter().enumerate() {
        let mut offset = 0;
        for piece in wal(index as u32, pieces) {
            objects.push((format!("generations/a/wal/{index:08x}_{offset:08x}.wal.lz4"), frame_of_lz4(&piece)));
            offset += piece.len();
        }
    }
    for (object, at, byte) in changes {
        let count = objects.len();
        let content = &mut objects[usize::from(object) % count].1;
        let length = content.len();
        content[usize::from(at) % length] = byte;
    }
    let store = Arc::new(MemoryStore::default());
    for (key, content) in objects {
        let length = content.len() as u64;
        // Two pieces of one offset, where one has no frame.
        if store.create(&key, &mut Cursor::new(content), length, &Attributes::default()).is_err() {
            return;
        }
    }
    let arena = Arena::new(16 << 20, std::env::temp_dir());
    let from = LegacyReplica::new(store.clone(), "");
    let to = Replica::new(store, ltx::Layout::Objects, "to");
    let Ok(imported) = import(&from, None, &to, &arena, &std::env::temp_dir()) else { return };
    let again = import(&from, None, &to, &arena, &std::env::temp_dir()).expect("it is there already");
    assert_eq!((imported.txid, imported.millis), (again.txid, again.millis));
    let chain = Chain::new(to.files().expect("memory"));
    assert_eq!(chain.newest(), Some(imported.txid));
    for file in chain.plan(imported.txid).expect("all of it") {
        to.read(&file, |header, number, _| {
            assert!(number <= header.commit);
            Ok(())
        })
        .expect("what was imported is whole");
    }
});
