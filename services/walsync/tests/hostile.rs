//! Files of others that say what cannot be: a database, or a replica, of which one is made as large as it claims to be would take the disk.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ltx::{FileName, Header, Layout};
use rusqlite::Connection;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use support::{Walsync, walsync};
use walsync::arena::Arena;
use walsync::config::{Location, S3Options};
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::follow::{Follower, Step};
use walsync::position::Position;
use walsync::source::{Since, SourceError, Staged, Stamp, stage_changes, stage_image};
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes, size_max};

const IMAGE: Stamp = Stamp { min_txid: 1, max_txid: 1, timestamp_millis: 0, node_id: 1, follows: 0 };
const CHANGES: Stamp = Stamp { min_txid: 2, max_txid: 2, ..IMAGE };

fn image(path: &Path) -> Result<Position, SourceError> {
    let arena = Arena::new(0, std::env::temp_dir());
    let image = stage_image(&DatabaseFiles::open(path).unwrap(), IMAGE, None, None, &arena, || Ok(None))?;
    Ok(image.staged.position)
}

fn changes(path: &Path, position: &Position) -> Result<Staged, SourceError> {
    let arena = Arena::new(0, std::env::temp_dir());
    match stage_changes(&DatabaseFiles::open(path).unwrap(), position, CHANGES, &arena)? {
        Since::Staged(staged) => Ok(*staged),
        Since::Nothing { .. } => panic!("nothing was committed"),
        Since::Lost(why) => panic!("{why}"),
    }
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
        let position = image(&path).unwrap();
        commit(&path, size);
        let seen_live = said(changes(&path, &position).map(drop));
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
    let staged = changes(&path, &position).unwrap();
    assert_eq!((staged.position.size, image(&path).unwrap().size), (most, most));
    commit(&path, most + 1024);
    assert!(changes(&path, &position).is_ok(), "a second frame names as many");
    commit(&path, most + 2 * 1024 + 1);
    assert!(matches!(changes(&path, &position), Err(SourceError::Refused(_))));
}

#[test]
fn a_database_that_grows_by_much_in_one_transaction_is_replicated() {
    for page_size in [512, 4096, 65_536] {
        let folder = harness::folder();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        let begin = format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=WAL; CREATE TABLE t(v)");
        connection.execute_batch(&begin).unwrap();
        let position = image(&path).unwrap();
        connection.execute_batch("BEGIN; INSERT INTO t VALUES (zeroblob(20000000)); DELETE FROM t; COMMIT").unwrap();
        let staged = changes(&path, &position).unwrap();
        assert!(staged.position.size > 20_000_000 / page_size, "{page_size}: {} pages", staged.position.size);
        image(&path).unwrap();
    }
}

/// A file of a replica, with these pages.
fn put(replica: &Path, txids: (u64, u64), page_size: u32, commit: u32, pages: &[u32]) {
    let content = |number: &u32| (*number, vec![*number as u8; page_size as usize]);
    put_pages(replica, txids, page_size, commit, pages.iter().map(content));
}

/// The same, with the content of each.
fn put_pages(
    replica: &Path,
    txids: (u64, u64),
    page_size: u32,
    commit: u32,
    pages: impl Iterator<Item = (u32, Vec<u8>)>,
) {
    let (min_txid, max_txid) = txids;
    let timestamp_millis = 1_790_000_000_000 + (max_txid % 1000) as i64 * 1000;
    let flags = ltx::NO_CHECKSUM;
    let header = Header { flags, page_size, commit, min_txid, max_txid, timestamp_millis, ..Header::default() };
    let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
    for (number, page) in pages {
        encoder.page(number, &page).unwrap();
    }
    let path = replica.join(Layout::Files.key(0, FileName { min_txid, max_txid }));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, encoder.finish().unwrap().0).unwrap();
}

/// Exit code and words of a verb.
fn said(verb: &str, replica: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = walsync();
    command.arg(verb).arg(replica);
    if verb == "restore" {
        command.arg("-o").arg(replica.join("restored.db")).args(more);
    }
    support::said(&mut command)
}

#[test]
fn a_file_that_cannot_follow_is_told_by_verify_as_by_a_restore_and_so_is_what_restores_without_it() {
    type Put = fn(&Path);
    let large: Put = |replica| put(replica, (4, 4), 4096, 0xf000_0000, &[1]);
    let other_pages: Put = |replica| put(replica, (4, 4), 512, 2, &[1]);
    let damaged: Put = |replica| {
        put(replica, (4, 4), 4096, 2, &[1]);
        let path = replica.join(Layout::Files.key(0, FileName { min_txid: 4, max_txid: 4 }));
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    for (put_fourth, why) in [
        (large, "it says that the database has 4026531840 pages, which cannot be: it had 2, and 1 are in this file"),
        (other_pages, "its page size is not that of the files before"),
        (damaged, "file checksum mismatch"),
    ] {
        let folder = harness::folder();
        let replica = folder.path().join("a.db");
        put(&replica, (1, 1), 4096, 2, &[1, 2]);
        (2..=3).for_each(|txid| put(&replica, (txid, txid), 4096, 2, &[1]));
        put_fourth(&replica);
        (5..=6).for_each(|txid| put(&replica, (txid, txid), 4096, 2, &[1]));
        let fourth = "ltx/0/0000000000000004-0000000000000004.ltx";
        let (code, text) = said("restore", &replica, &[]);
        assert!(code == Some(1) && text.contains(fourth) && text.contains(why), "{text}");
        assert!(text.contains("nearest points that do not need this file: TXID 3 before, none after"), "{text}");
        assert!(!replica.join("restored.db").exists());
        let (code, text) = said("verify", &replica, &[]);
        assert!(code == Some(1) && text.contains(&format!("TXID 4 to 6 need {fourth}")), "{text}");
        assert!(text.contains("newest point that restores: TXID 3, committed 2026-09-21T14:13:23Z"), "{text}");
        assert!(!text.contains("TXID 6, restores"), "{text}");
        let (code, text) = said("restore", &replica, &["--txid", "3"]);
        assert_eq!(code, Some(0), "{text}");
        // A snapshot that came later does without it.
        put(&replica, (1, 7), 4096, 2, &[1, 2]);
        std::fs::remove_file(replica.join("restored.db")).unwrap();
        let (code, text) = said("restore", &replica, &["--txid", "5"]);
        assert!(code == Some(1) && text.contains("this file: TXID 3 before, TXID 7 after"), "{text}");
    }
}

#[test]
fn a_follower_writes_no_more_pages_than_there_can_be_whatever_a_file_claims() {
    let folder = harness::folder();
    let (path, place, output) =
        (folder.path().join("app.db"), folder.path().join("store"), folder.path().join("copy.db"));
    let begin = "PRAGMA journal_mode=WAL; CREATE TABLE t(v); INSERT INTO t VALUES ('x')";
    Connection::open(&path).unwrap().execute_batch(begin).unwrap();
    let database = std::fs::read(&path).unwrap();
    let pages = || (1..).zip(database.chunks(4096).map(<[u8]>::to_vec));
    let size = pages().count() as u32;
    put_pages(&place, (1, 1), 4096, size, pages());
    let replica = Location::open(place.to_str().unwrap(), &S3Options::default()).unwrap().replica("");
    let (mut follower, _) = Follower::start(replica, "here", &output, false).unwrap();
    let go_on = AtomicBool::new(false);
    let most = u32::try_from(size_max(size, 1, 4096)).unwrap();
    for claimed in [most + 1, u32::MAX] {
        put_pages(&place, (2, 2), 4096, claimed, pages().take(1));
        let error = follower.step(&go_on).unwrap_err().to_string();
        let what = format!(
            "it says that the database has {claimed} pages, which cannot be: it had {size}, and 1 are in this file"
        );
        assert!(error.contains("0000000000000002.ltx") && error.contains(&what), "{error}");
        assert!(std::fs::metadata(with_suffix(&output, "-wal")).map_or(0, |wal| wal.len()) < 100_000);
    }
    put_pages(&place, (2, 2), 4096, most, pages().take(1));
    assert!(matches!(follower.step(&go_on), Ok(Step::Applied { txid: 2, .. })));
}

#[test]
fn after_the_last_transaction_nothing_is_called_durable() {
    let folder = harness::folder();
    let (path, store, log) = (folder.path().join("app.db"), folder.path().join("store"), folder.path().join("log"));
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)").unwrap();
    put(&store.join("app.db"), (1, 1), 4096, 2, &[1, 2]);
    put(&store.join("app.db"), (2, ltx::TXID_MAX), 4096, 2, &[1]);
    let running = Walsync::watch(&[&path], &store, &log);
    harness::until("a refusal", || running.log().contains("not replicated"));
    assert!(running.log().contains("the last one that there is"), "{}", running.log());
    assert!(!running.log().contains(" durable "), "{}", running.log());
    running.kill();
}
