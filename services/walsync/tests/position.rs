//! A position against a WAL and an index that do not fit it: what cannot be proved is told, never passed over.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use walsync::arena::Arena;
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::position::Position;
use walsync::source::{Stamp, stage_changes, stage_image};

const IMAGE: Stamp = Stamp { min_txid: 1, max_txid: 1, timestamp_millis: 0, node_id: 1 };
const CHANGES: Stamp = Stamp { min_txid: 2, max_txid: 2, ..IMAGE };

/// Copies of a database's files after each of two transactions.
fn history(folder: &Path) -> [PathBuf; 2] {
    let database = folder.join("app.db");
    let connection = Connection::open(&database).unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)").unwrap();
    ["first.db", "second.db"].map(|name| {
        connection.execute_batch("INSERT INTO t VALUES (randomblob(9000))").unwrap();
        let copy = folder.join(name);
        for suffix in ["", "-wal", "-shm"] {
            std::fs::copy(with_suffix(&database, suffix), with_suffix(&copy, suffix)).unwrap();
        }
        copy
    })
}

/// Puts the index beside `from` beside `to`.
fn replace_index(from: &Path, to: &Path) {
    std::fs::copy(with_suffix(from, "-shm"), with_suffix(to, "-shm")).unwrap();
}

fn changes_after(path: &Path, position: &mut Position) -> Result<Option<u32>, &'static str> {
    let arena = Arena::new(0, std::env::temp_dir());
    let files = DatabaseFiles::open(path).unwrap();
    let staged = stage_changes(&files, position, CHANGES, &arena).unwrap();
    staged.map(|staged| staged.map(|staged| staged.position.wal.unwrap().frames))
}

fn position(path: &Path) -> Position {
    let arena = Arena::new(0, std::env::temp_dir());
    stage_image(&DatabaseFiles::open(path).unwrap(), IMAGE, None, None, &arena).unwrap().staged.position
}

#[test]
fn an_index_that_ends_before_our_place_is_told() {
    let folder = harness::folder();
    let [first, second] = history(folder.path());
    let mut end = position(&second);
    assert_eq!(changes_after(&second, &mut end), Ok(None));
    replace_index(&first, &second);
    assert!(changes_after(&second, &mut end).is_err());
}

#[test]
fn transactions_that_the_index_has_and_the_wal_has_not_are_told() {
    let folder = harness::folder();
    let [first, second] = history(folder.path());
    let mut end = position(&first);
    assert_eq!(changes_after(&first, &mut end), Ok(None));
    assert!(matches!(changes_after(&second, &mut end), Ok(Some(_))), "with its frames they are staged");
    replace_index(&second, &first);
    assert!(changes_after(&first, &mut end).is_err());
}
