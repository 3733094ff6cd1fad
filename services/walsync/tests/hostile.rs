//! Files of others that say what cannot be: a database, or a replica, of which one is made as large as it claims to be would take the disk.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rusqlite::Connection;
use std::io::Write;
use std::path::{Path, PathBuf};
use walsync::arena::Arena;
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::position::Position;
use walsync::source::{SourceError, Staged, Stamp, stage_changes, stage_image};
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes, size_max};

const IMAGE: Stamp = Stamp { min_txid: 1, max_txid: 1, timestamp_millis: 0, node_id: 1 };
const CHANGES: Stamp = Stamp { min_txid: 2, max_txid: 2, ..IMAGE };

fn image(path: &Path) -> Result<Position, SourceError> {
    let arena = Arena::new(0, std::env::temp_dir());
    let image = stage_image(&DatabaseFiles::open(path).unwrap(), IMAGE, None, None, &arena, || Ok(None))?;
    Ok(image.staged.position)
}

fn changes(path: &Path, position: &mut Position) -> Result<Option<Staged>, SourceError> {
    let arena = Arena::new(0, std::env::temp_dir());
    let changes = stage_changes(&DatabaseFiles::open(path).unwrap(), position, CHANGES, &arena)?;
    Ok(changes.expect("nothing was missed"))
}

/// A database of two pages with a WAL, and no index: its application was killed, and the machine started anew.
fn database(folder: &Path) -> PathBuf {
    let (made, path) = (folder.join("made.db"), folder.join("app.db"));
    let connection = Connection::open(&made).unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v); INSERT INTO t VALUES ('x')").unwrap();
    for suffix in ["", "-wal"] {
        std::fs::copy(with_suffix(&made, suffix), with_suffix(&path, suffix)).unwrap();
    }
    path
}

/// Appends a frame that commits page 1 again, and a size of the database.
fn commit(path: &Path, size: u32) {
    let wal = std::fs::read(with_suffix(path, "-wal")).unwrap();
    let header = WalHeader::read(wal.as_slice()).unwrap().unwrap();
    let end = read_changes(wal.as_slice(), WalPosition::start(header), None).unwrap().end;
    let mut frame: Vec<u8> = [1, size, header.salt1, header.salt2].iter().flat_map(|word| word.to_be_bytes()).collect();
    let page = &wal[wal.len() - header.page_size as usize..];
    let sums = checksum(header.big_endian, checksum(header.big_endian, end.checksum, &frame[..8]), page);
    frame.extend(sums.iter().flat_map(|word| word.to_be_bytes()));
    frame.extend_from_slice(page);
    let mut file = std::fs::File::options().append(true).open(with_suffix(path, "-wal")).unwrap();
    file.write_all(&frame).unwrap();
}

#[test]
fn a_commit_of_more_pages_than_there_can_be_is_refused() {
    let said = |result: Result<(), SourceError>| match result {
        Err(SourceError::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(()) => "nothing".to_owned(),
    };
    for size in [u32::MAX, 100_000] {
        let folder = harness::folder();
        let path = database(folder.path());
        let mut position = image(&path).unwrap();
        commit(&path, size);
        let seen_live = said(changes(&path, &mut position).map(drop));
        assert!(seen_live.contains(&format!("its WAL says that it has {size} pages")), "{seen_live}");
        let from_the_start = said(image(&path).map(drop));
        assert!(from_the_start.contains(&format!("its WAL says that it has {size} pages")), "{from_the_start}");
    }
}

/// Pages that are in no frame can be there: those that a page in a frame names as free.
#[test]
fn a_commit_of_as_many_pages_as_there_can_be_is_taken() {
    let folder = harness::folder();
    let path = database(folder.path());
    let position = image(&path).unwrap();
    let most = u32::try_from(size_max(position.size, 1, 4096)).unwrap();
    commit(&path, most);
    let staged = changes(&path, &mut { position }).unwrap().unwrap();
    assert_eq!((staged.position.size, image(&path).unwrap().size), (most, most));
    commit(&path, most + 1024);
    assert!(changes(&path, &mut { position }).is_ok(), "a second frame names as many");
    commit(&path, most + 2 * 1024 + 1);
    assert!(matches!(changes(&path, &mut { position }), Err(SourceError::Refused(_))));
}

#[test]
fn a_database_that_grows_by_much_in_one_transaction_is_replicated() {
    for page_size in [512, 4096, 65_536] {
        let folder = harness::folder();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        let begin = format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=WAL; CREATE TABLE t(v)");
        connection.execute_batch(&begin).unwrap();
        let mut position = image(&path).unwrap();
        connection.execute_batch("BEGIN; INSERT INTO t VALUES (zeroblob(20000000)); DELETE FROM t; COMMIT").unwrap();
        let staged = changes(&path, &mut position).unwrap().unwrap();
        assert!(staged.position.size > 20_000_000 / page_size, "{page_size}: {} pages", staged.position.size);
        image(&path).unwrap();
    }
}
