//! A position against a WAL and an index that do not fit it: what cannot be proved is told, never passed over.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use walsync::arena::Arena;
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::position::Position;
use walsync::source::{Since, Source, Stamp, stage_changes, stage_image};
use walsync::wal_index::WalIndex;
use walsync::wal_reader::ReadAt;

const IMAGE: Stamp = Stamp { min_txid: 1, max_txid: 1, timestamp_millis: 0, node_id: 1, follows: 0 };
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
    match stage_changes(&files, position, CHANGES, &arena).unwrap() {
        Since::Nothing { counter } => {
            position.changes = counter;
            Ok(None)
        }
        Since::Staged(staged) => Ok(Some(staged.position.wal.unwrap().frames)),
        Since::Lost(why) => Err(why),
    }
}

fn position(path: &Path) -> Position {
    let arena = Arena::new(0, std::env::temp_dir());
    stage_image(&DatabaseFiles::open(path).unwrap(), IMAGE, None, None, &arena, || Ok(None)).unwrap().staged.position
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

/// The first transaction of a new WAL, seen between its last frame and the moment at which the index tells of it.
#[test]
fn a_first_transaction_that_the_index_does_not_tell_of_yet_is_not_passed_over() {
    let folder = harness::folder();
    let database = folder.path().join("app.db");
    Connection::open(&database).unwrap().execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)").unwrap();
    // The last connection took the WAL along; this one makes another.
    let connection = Connection::open(&database).unwrap();
    connection.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
    let before = std::fs::read(with_suffix(&database, "-shm")).unwrap();
    connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    let copy = folder.path().join("copy.db");
    for suffix in ["", "-wal", "-shm"] {
        std::fs::copy(with_suffix(&database, suffix), with_suffix(&copy, suffix)).unwrap();
    }
    let after = std::fs::read(with_suffix(&copy, "-shm")).unwrap();
    std::fs::write(with_suffix(&copy, "-shm"), before).unwrap();
    let mut end = position(&copy);
    assert_eq!(changes_after(&copy, &mut end), Ok(None));
    std::fs::write(with_suffix(&copy, "-shm"), after).unwrap();
    assert!(matches!(changes_after(&copy, &mut end), Ok(Some(1..))), "it is in no file: {end:?}");
}

/// A database whose index tells what it is made to.
struct Altered<F> {
    files: DatabaseFiles,
    index: F,
}

impl<F: Fn(Option<WalIndex>) -> Option<WalIndex> + Send> Source for Altered<F> {
    fn is_current(&self) -> std::io::Result<bool> {
        self.files.is_current()
    }

    fn database(&self) -> &dyn ReadAt {
        self.files.database()
    }

    fn database_state(&self) -> std::io::Result<(u64, i64, i64)> {
        self.files.database_state()
    }

    fn wal(&self) -> Option<&dyn ReadAt> {
        self.files.wal()
    }

    fn wal_index(&self) -> std::io::Result<Option<WalIndex>> {
        Ok((self.index)(self.files.wal_index()?))
    }
}

/// Whether nothing came since an image that was taken with `before`, when the WAL is empty and its index says `after`.
fn is_nothing_told(path: &Path, before: WalIndex, after: WalIndex) -> bool {
    let arena = Arena::new(0, std::env::temp_dir());
    let source = Altered { files: DatabaseFiles::open(path).unwrap(), index: |_| Some(before) };
    let position = stage_image(&source, IMAGE, None, None, &arena, || Ok(None)).unwrap().staged.position;
    std::fs::File::options().write(true).open(with_suffix(path, "-wal")).unwrap().set_len(0).unwrap();
    let source = Altered { files: source.files, index: |_| Some(after) };
    match stage_changes(&source, &position, CHANGES, &arena).unwrap() {
        Since::Nothing { .. } => true,
        Since::Lost(_) => false,
        Since::Staged(_) => panic!("there is nothing to stage"),
    }
}

/// Somebody was killed after a commit and before the index told of it, and who recovered it began the counter where it stood.
#[test]
fn a_wal_that_was_emptied_after_a_recovery_is_told_by_the_indexs_checksum() {
    for other in [false, true] {
        let folder = harness::folder();
        let [path, second] = history(folder.path());
        let index = |path: &Path| DatabaseFiles::open(path).unwrap().wal_index().unwrap().unwrap();
        let full = WalIndex { life: 7, changes: 0, ..index(&path) };
        let checksum = if other { index(&second).checksum } else { full.checksum };
        let emptied = WalIndex { frames: 0, checksum, salts: [full.salts[0].wrapping_add(1), 5], ..full };
        assert_eq!(is_nothing_told(&path, full, emptied), !other);
    }
}

/// A file that looks as it did says less than a counter that does not.
#[test]
fn a_counter_that_went_on_is_not_outvoted_by_a_database_file_that_looks_as_it_did() {
    for (changes, checksum, is_nothing) in [(3, [1, 2], true), (4, [1, 2], false), (3, [1, 3], false)] {
        let folder = harness::folder();
        let [path, _] = history(folder.path());
        std::fs::File::options().write(true).open(with_suffix(&path, "-wal")).unwrap().set_len(0).unwrap();
        let index = DatabaseFiles::open(&path).unwrap().wal_index().unwrap().unwrap();
        let before = WalIndex { life: 7, frames: 0, changes: 3, checksum: [1, 2], ..index };
        let told = is_nothing_told(&path, before, WalIndex { changes, checksum, ..before });
        assert_eq!(told, is_nothing, "{changes} {checksum:?}");
        // Within another life the file is all there is to go by.
        assert!(is_nothing_told(&path, before, WalIndex { changes: 0, life: 8, checksum: [0, 0], ..before }));
    }
}

#[test]
fn an_image_beyond_which_a_check_point_has_gone_meanwhile_is_none() {
    let folder = harness::folder();
    let [_, database] = history(folder.path());
    let image = |second: fn(WalIndex) -> Option<WalIndex>| {
        let files = DatabaseFiles::open(&database).unwrap();
        // Others make something of it while it is read.
        let looks = std::cell::Cell::new(0);
        let index = move |index: Option<WalIndex>| {
            let is_first = looks.replace(looks.get() + 1) == 0;
            if is_first { index } else { index.and_then(second) }
        };
        let source = Altered { files, index };
        let arena = Arena::new(0, std::env::temp_dir());
        match stage_image(&source, IMAGE, None, None, &arena, || Ok(None)) {
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    };
    assert_eq!(image(Some), None);
    assert_eq!(image(|index| Some(WalIndex { backfill_attempted: index.frames, ..index })), None);
    let beyond = image(|index| Some(WalIndex { backfill_attempted: index.frames + 1, ..index }));
    assert!(beyond.unwrap().contains("a check point went beyond"));
    assert!(image(|_| None).unwrap().contains("its index is being written"));
}
