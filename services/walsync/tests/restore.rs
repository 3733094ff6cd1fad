//! A restore that takes long, beside a replicator that merges and removes what it reads.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ltx::FileName;
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::Meddled;
use walsync::chain::{Chain, NoWay};
use walsync::fetch::ReadAhead;
use walsync::replica::{RemoteFile, Replica};
use walsync::restore::{RestoreError, Restored, Target, restore};
use walsync::store::Store;
use walsync::store::memory::MemoryStore;

const PAGES: u32 = 40;
const PAGE_BYTES: usize = 512;
const PART_BYTES: u64 = 700;

/// What a page has after a transaction; it does not shrink, so that a file takes several parts.
fn page(number: u32, txid: u64) -> Vec<u8> {
    let mut random = harness::Random::new(txid * 1000 + u64::from(number));
    (0..PAGE_BYTES / 8).flat_map(|_| random.draw().to_le_bytes()).collect()
}

/// Whether a transaction changes a page: the first one makes all of them.
fn changes(txid: u64, number: u32) -> bool {
    txid == 1 || number == 1 || u64::from(number) % 12 == txid % 12
}

/// The transaction that changed a page last, of some.
fn last_change(number: u32, txids: impl Iterator<Item = u64>) -> Option<u64> {
    txids.filter(|txid| changes(*txid, number)).max()
}

/// The file of some transactions.
fn content(min_txid: u64, max_txid: u64) -> Vec<u8> {
    let flags = ltx::NO_CHECKSUM;
    let header =
        ltx::Header { flags, page_size: PAGE_BYTES as u32, commit: PAGES, min_txid, max_txid, ..Default::default() };
    let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
    for number in 1..=PAGES {
        if let Some(txid) = last_change(number, min_txid..=max_txid) {
            encoder.page(number, &page(number, txid)).unwrap();
        }
    }
    encoder.finish().unwrap().0
}

fn key(level: u8, min_txid: u64, max_txid: u64) -> String {
    format!("a.db/{}", ltx::Layout::Objects.key(level, FileName { min_txid, max_txid }))
}

fn put(store: &MemoryStore, level: u8, min_txid: u64, max_txid: u64) {
    let content = content(min_txid, max_txid);
    let length = content.len() as u64;
    store.create(&key(level, min_txid, max_txid), &mut Cursor::new(content), length, &Default::default()).unwrap();
}

/// A store with a file for each of so many transactions.
fn store_of(transactions: u64) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    (1..=transactions).for_each(|txid| put(&store, 0, txid, txid));
    store
}

/// What comes of restoring the newest state while somebody meddles; with the content.
fn restored(
    store: Arc<MemoryStore>,
    before_part: impl Fn(&MemoryStore, &str, u64) + Send + Sync + 'static,
) -> Result<(Restored, Vec<u8>), RestoreError> {
    let folder = harness::folder();
    let output = folder.path().join("a.db");
    let replica = Replica::new(Arc::new(Meddled::new(store, before_part)), ltx::Layout::Objects, "a.db");
    let replica = replica.reading_ahead(ReadAhead { part_bytes: PART_BYTES, parts: 1 });
    restore(&replica, Target::Latest, &output, false).map(|restored| (restored, std::fs::read(&output).unwrap()))
}

fn expected(txid: u64) -> Vec<u8> {
    (1..=PAGES).flat_map(|number| page(number, last_change(number, 1..=txid).unwrap())).collect()
}

#[test]
fn what_is_applied_stays_where_files_are_merged_and_removed_again_and_again() {
    let firsts = Arc::new(AtomicUsize::new(0));
    let counted = firsts.clone();
    // Each file but the first is replaced in the middle, by one that has what comes after it, too.
    let next = Mutex::new(2);
    let (result, bytes) = restored(store_of(14), move |store, asked, start| {
        counted.fetch_add(usize::from(asked == key(0, 1, 1)), Ordering::SeqCst);
        let mut next = next.lock().unwrap();
        if asked == key(0, *next, *next) && start > 0 && *next < 13 {
            store.delete(asked).unwrap();
            store.delete(&key(0, *next + 1, *next + 1)).unwrap();
            put(store, 1, *next, *next + 1);
            *next += 2;
        }
    })
    .unwrap();
    assert_eq!(result.txid, 14);
    assert!(bytes == expected(14));
    let parts = content(1, 1).len().div_ceil(PART_BYTES as usize);
    assert_eq!(firsts.load(Ordering::SeqCst), parts, "what was applied was read again");
}

#[test]
fn a_replica_that_is_begun_anew_while_it_is_read_is_not_mixed_into_what_was_applied() {
    let store = store_of(5);
    let done = AtomicUsize::new(0);
    let (result, bytes) = restored(store, move |store, asked, _| {
        if asked == key(0, 4, 4) && done.fetch_add(1, Ordering::SeqCst) == 0 {
            // The other one has a longer first file, and leads to the same transaction.
            for object in store.list("").unwrap() {
                store.delete(&object.key).unwrap();
            }
            put(store, 0, 1, 2);
            put(store, 0, 3, 5);
        }
    })
    .unwrap();
    assert_eq!((result.txid, result.files.len()), (5, 2), "all of it is of the other one: {result:?}");
    assert!(bytes == expected(5));
}

#[test]
fn a_file_that_nothing_replaces_is_a_hole_and_no_endless_plan() {
    let error = restored(store_of(5), |store, asked, _| {
        if asked == key(0, 4, 4) {
            store.delete(asked).unwrap();
        }
    })
    .map(|(restored, _)| restored)
    .unwrap_err();
    assert!(
        matches!(&error, RestoreError::NoWay(NoWay::Hole { missing, below: Some(3), .. }) if missing.contains("TXID 4")),
        "{error}"
    );
}

#[test]
fn a_hole_is_named_also_where_a_later_snapshot_leads_past_it() {
    let uploads = (1..=30).filter(|txid| *txid != 5).map(|txid| (0, txid, txid));
    let file = |(level, min_txid, max_txid)| RemoteFile {
        level,
        name: FileName { min_txid, max_txid },
        size: 1,
        modified_millis: 0,
    };
    let chain = Chain::new(uploads.chain([(9, 1, 19)]).map(file).collect());
    for target in [6, 7, 18] {
        let said = chain.plan(target).unwrap_err().to_string();
        assert!(said.contains("the file of TXID 5 is missing"), "{target}: {said}");
    }
    assert!(chain.plan(19).is_ok() && chain.plan(30).is_ok());
    assert_eq!(chain.stranded().collect::<Vec<_>>(), (6..19).collect::<Vec<_>>());
}

#[test]
fn a_hole_is_named_where_a_merged_file_reaches_over_it() {
    let file = |level, min_txid, max_txid| walsync::replica::RemoteFile {
        level,
        name: ltx::FileName { min_txid, max_txid },
        size: 1,
        modified_millis: 0,
    };
    let chain = walsync::chain::Chain::new(vec![
        file(0, 1, 1),
        file(0, 2, 2),
        file(0, 3, 3),
        file(1, 3, 20),
        file(0, 5, 5),
        file(0, 6, 6),
        file(0, 21, 21),
    ]);
    for target in [5, 6] {
        let error = chain.plan(target).unwrap_err().to_string();
        assert!(error.contains("the file of TXID 4 is missing"), "{target}: {error}");
    }
}
