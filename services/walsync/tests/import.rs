//! A replica of Litestream 0.3 is imported with its history, and what is wrong with it is named.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};
use support::{Application, Walsync, content, walsync};
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A frame of LZ4 in whose blocks everything is stored as it is.
fn frame(content: &[u8]) -> Vec<u8> {
    let mut frame = b"\x04\x22\x4d\x18\x60\x70\x73".to_vec();
    for block in content.chunks(4 << 20) {
        frame.extend((block.len() as u32 | 1 << 31).to_le_bytes());
        frame.extend(block);
    }
    frame.extend([0; 4]);
    frame
}

/// A database and what Litestream 0.3 makes of it.
struct Legacy {
    folder: TempDir,
    connection: Connection,
    /// Keeps the WAL from being begun anew, as Litestream does.
    reader: Option<Connection>,
    index: u32,
    offset: usize,
    /// What the database held after each piece of a WAL, and when that was.
    states: Vec<(Vec<u8>, i64)>,
}

impl Legacy {
    fn new() -> Legacy {
        Legacy::with_pages_of(4096)
    }

    fn with_pages_of(bytes: u32) -> Legacy {
        let folder = folder();
        let connection = Connection::open(folder.path().join("app.db")).unwrap();
        connection.pragma_update(None, "page_size", bytes).unwrap();
        let sql =
            "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";
        connection.execute_batch(sql).unwrap();
        connection.pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap_or_default();
        Legacy { folder, connection, reader: None, index: 0, offset: 0, states: Vec::new() }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old")
    }

    fn object(&self, name: &str) -> PathBuf {
        self.old().join("generations/1b26338c06ccb4c8").join(name)
    }

    /// Objects are written a minute after each other.
    fn put(&self, name: &str, content: &[u8]) -> i64 {
        let path = self.object(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, frame(content)).unwrap();
        let seconds = 1_700_000_000 + 60 * self.states.len() as u64;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        seconds as i64
    }

    /// The database file as it is, whatever of the WAL it has.
    fn snapshot(&self) {
        self.put(&format!("snapshots/{:08x}.snapshot.lz4", self.index), &std::fs::read(self.database()).unwrap());
    }

    /// A transaction, and the piece of the WAL that it is.
    fn commit(&mut self, sql: &str) {
        self.connection.execute_batch(sql).unwrap();
        let wal = std::fs::read(walsync::database::with_suffix(&self.database(), "-wal")).unwrap();
        let name = format!("wal/{:08x}_{:08x}.wal.lz4", self.index, self.offset);
        let seconds = self.put(&name, &wal[self.offset..]);
        self.offset = wal.len();
        self.states.push((content(&self.database()), seconds));
    }

    /// Puts a piece behind the last one that SQLite never writes: one frame, which has this page, and commits this size.
    fn forge(&self, page: u32, size: u32) {
        let wal = std::fs::read(walsync::database::with_suffix(&self.database(), "-wal")).unwrap();
        let header = WalHeader::read(wal.as_slice()).unwrap().unwrap();
        let end = read_changes(wal.as_slice(), WalPosition::start(header), None).unwrap().end;
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let content = &wal[wal.len() - header.page_size as usize..];
        let mut frame = words(&[page, size, header.salt1, header.salt2]);
        let sums = checksum(header.big_endian, checksum(header.big_endian, end.checksum, &frame[..8]), content);
        frame.extend(words(&sums));
        frame.extend_from_slice(content);
        self.put(&format!("wal/{:08x}_{:08x}.wal.lz4", self.index, self.offset), &frame);
    }

    /// Copies what the WAL has into the database file.
    fn copy_back(&mut self) {
        let reader = Connection::open(self.database()).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        let rows: i64 = reader.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        self.reader = Some(reader);
        let copied: i64 = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(2)).unwrap();
        assert!(rows > 0 && copied > 0);
    }

    fn next_wal(&mut self) {
        self.reader = None;
        let busy: i64 = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 0);
        (self.index, self.offset) = (self.index + 1, 0);
    }

    /// Four WALs and two snapshots, the second in the middle of a WAL.
    fn history() -> Legacy {
        let mut legacy = Legacy::new();
        legacy.next_wal();
        legacy.snapshot();
        for number in 0..12 {
            legacy.commit(&format!("INSERT INTO t(v) VALUES (randomblob({}))", 700 * number));
            match number {
                2 | 7 | 9 => legacy.next_wal(),
                4 => {
                    legacy.copy_back();
                    legacy.snapshot();
                }
                8 => legacy.commit("DELETE FROM t WHERE id > 4; VACUUM"),
                _ => {}
            }
        }
        legacy
    }

    fn new_place(&self) -> PathBuf {
        self.folder.path().join("new/app.db")
    }

    fn import(&self, arguments: &[&str]) -> Output {
        walsync().arg("import").arg(self.old()).arg("--to").arg(self.new_place()).args(arguments).output().unwrap()
    }

    /// What a restore to a time gives.
    fn restored(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        let mut command = walsync();
        harness::output(
            command.arg("restore").arg(self.new_place()).arg("-o").arg(&output).arg("--prove").args(arguments),
        );
        std::fs::read(output).unwrap()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap()
}

fn imported(legacy: &Legacy) -> String {
    let output = legacy.import(&[]);
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

#[test]
fn every_state_of_a_replica_of_litestream_0_3_is_restored_at_its_time() {
    let legacy = Legacy::history();
    // The first WAL has three pieces, which are one state.
    assert!(
        imported(&legacy).contains("imported generation 1b26338c06ccb4c8: TXID 1 to 11, of 2023-11-14T22:15:20Z to ")
    );
    for (number, (state, seconds)) in legacy.states.iter().enumerate().skip(2) {
        let time = jiff::Timestamp::from_second(*seconds).unwrap().to_string();
        assert!(legacy.restored(&["--timestamp", &time]) == *state, "{number}");
    }
    let newest = &legacy.states.last().unwrap().0;
    assert!(legacy.restored(&[]) == *newest);
    let url = format!("file://{}", legacy.new_place().display());
    assert!(support::restored_by_litestream(&url, &[]) == *newest, "Litestream 0.5");
    // Once more: it is there already.
    imported(&legacy);
    // An import that was broken off goes on.
    let last = "ltx/0/000000000000000b-000000000000000b.ltx";
    std::fs::remove_file(legacy.new_place().join(last)).unwrap();
    imported(&legacy);
    assert!(legacy.restored(&[]) == *newest);
    // Without the oldest snapshot there is less of it.
    std::fs::remove_file(legacy.object("snapshots/00000001.snapshot.lz4")).unwrap();
    std::fs::remove_dir_all(legacy.new_place()).unwrap();
    assert!(imported(&legacy).contains("TXID 1 to 6, "));
    assert!(legacy.restored(&[]) == *newest);
}

#[test]
fn what_was_imported_is_continued() {
    let legacy = Legacy::history();
    imported(&legacy);
    let Legacy { folder, connection, .. } = &legacy;
    connection.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).unwrap();
    let mut application = Application::start(&legacy.database(), "INSERT INTO t(v) VALUES ('since')");
    let mut watching = Walsync::watch(&[&legacy.database()], &folder.path().join("new"), &folder.path().join("log"));
    watching.wait_durable(12);
    application.run("INSERT INTO t(v) VALUES ('and on')");
    watching.wait_durable(13);
    watching.stop();
    assert!(legacy.restored(&[]) == content(&legacy.database()));
    // What goes on is not written over.
    let output = legacy.import(&[]);
    assert!(!output.status.success() && text(&output).contains("another replica already"), "{}", text(&output));
    application.close();
}

fn edit(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let piece = |legacy: &Legacy, number: usize| {
        let mut all: Vec<_> =
            std::fs::read_dir(legacy.object("wal")).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all.remove(number)
    };
    let refused = |legacy: &Legacy, words: &str| {
        let said = legacy.import(&[]);
        assert!(said.status.code() == Some(1) && text(&said).contains(words), "{words}: {}", text(&said));
    };
    // A whole WAL, when there is no snapshot after it; a piece in the middle of one.
    let legacy = Legacy::history();
    std::fs::remove_file(piece(&legacy, 11)).unwrap();
    refused(&legacy, "generation 1b26338c06ccb4c8: the start of WAL 00000004 is missing");
    let legacy = Legacy::history();
    let missing = piece(&legacy, 4);
    std::fs::remove_file(&missing).unwrap();
    refused(&legacy, "the piece before it is missing, or ends at byte");
    // Bytes of a page that LZ4 has no checksum of here: SQLite's own does not hold.
    let legacy = Legacy::history();
    edit(&piece(&legacy, 5), 3000);
    refused(&legacy, "00000002_");
    let legacy = Legacy::history();
    edit(&legacy.object("snapshots/00000001.snapshot.lz4"), 11 + 18);
    refused(&legacy, "snapshots/00000001.snapshot.lz4: the database is not in WAL mode");
    // A size that no database can have: a page there would not even fit into a file.
    let refused_size = |mut legacy: Legacy, page: u32, size: u32| {
        legacy.next_wal();
        legacy.snapshot();
        legacy.commit("INSERT INTO t(v) VALUES (randomblob(20000))");
        legacy.forge(page, size);
        refused(&legacy, &format!("it says that the database has {size} pages, which cannot be"));
    };
    refused_size(Legacy::with_pages_of(65_536), u32::MAX, u32::MAX);
    // One frame names a thousand pages as free, however many came before it.
    refused_size(Legacy::new(), 1, 2000);
    // Nothing, no such generation, and what a restore says of such a place.
    assert!(
        text(&legacy.import(&["--generation", "0"]))
            .contains("there is no generation 0; those that are: 1b26338c06ccb4c8")
    );
    let said = walsync().arg("list").arg(legacy.old()).output().unwrap();
    assert!(text(&said).contains("is a replica of Litestream 0.3: `walsync import "), "{}", text(&said));
    std::fs::remove_dir_all(legacy.old()).unwrap();
    refused(&legacy, "there is no replica of Litestream 0.3 at ");
}
