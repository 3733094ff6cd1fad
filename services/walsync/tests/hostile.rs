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
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes};

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

/// Pages that are taken and given back within one transaction have no frame: those that name them as free have.
#[test]
fn a_database_that_grows_by_far_more_pages_than_its_wal_has_frames_is_replicated() {
    for page_size in [512, 4096, 65_536] {
        let folder = harness::folder();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        let begin = format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=WAL; CREATE TABLE t(v)");
        connection.execute_batch(&begin).unwrap();
        let mut position = image(&path).unwrap();
        let grow =
            "BEGIN; INSERT INTO t SELECT zeroblob(20000000) FROM (SELECT 1 UNION SELECT 2); DELETE FROM t; COMMIT";
        connection.execute_batch(&format!("PRAGMA cache_size=-100000; {grow}")).unwrap();
        let staged = changes(&path, &mut position).unwrap().unwrap();
        let (size, frames) = (staged.position.size, staged.position.wal.unwrap().frames);
        assert!(size > 40_000_000 / page_size && frames < size / 20, "{page_size}: {size} pages, {frames} frames");
        image(&path).unwrap();
    }
}
