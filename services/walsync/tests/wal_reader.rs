//! The reader against SQLite itself: what we make of a database file and its WAL, whole, cut or damaged, must equal what
//! SQLite makes of a copy of both.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use rusqlite::Connection;
use std::path::Path;
use walsync::wal_reader::{WalHeader, WalPosition, checksum, read_changes};

#[test]
fn the_bundled_sqlite_has_the_fix_of_the_wal_reset_bug() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u16),
    Update(u8),
    Delete(u8),
    /// Large enough to spill out of a small cache, and given up.
    SpillAndRollBack,
    SpillAndCommit,
    Vacuum,
    Checkpoint(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<u8>(), any::<u16>()).prop_map(|(rows, bytes)| Step::Insert(rows, bytes % 4000)),
        2 => any::<u8>().prop_map(Step::Update),
        2 => any::<u8>().prop_map(Step::Delete),
        1 => Just(Step::SpillAndRollBack),
        1 => Just(Step::SpillAndCommit),
        1 => Just(Step::Vacuum),
        2 => prop_oneof![Just("PASSIVE"), Just("FULL"), Just("RESTART"), Just("TRUNCATE")].prop_map(Step::Checkpoint),
    ]
}

const SPILL: &str = "INSERT INTO t(v) SELECT randomblob(700) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 \
                     FROM n WHERE i < 120) SELECT i FROM n)";

fn run(connection: &Connection, step: &Step) {
    let sql = match step {
        Step::Insert(rows, bytes) => format!(
            "BEGIN; INSERT INTO t(v) SELECT randomblob({bytes}) FROM (WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 \
             FROM n WHERE i < {}) SELECT i FROM n); COMMIT",
            rows % 20
        ),
        Step::Update(part) => format!("UPDATE t SET v = randomblob(300) WHERE id % 7 = {}", part % 7),
        Step::Delete(part) => format!("DELETE FROM t WHERE id % 3 = {}", part % 3),
        Step::SpillAndRollBack => format!("BEGIN; {SPILL}; ROLLBACK"),
        Step::SpillAndCommit => {
            format!("BEGIN; {SPILL}; UPDATE t SET v = randomblob(10) WHERE id % 2; {SPILL}; COMMIT")
        }
        Step::Vacuum => "VACUUM".into(),
        Step::Checkpoint(mode) => format!("PRAGMA wal_checkpoint({mode})"),
    };
    connection.execute_batch(&sql).unwrap();
}

/// The database as SQLite has it after recovering a copy. `None` where it finds it malformed: a WAL that is cut before what was
/// copied out of it leaves a mixture.
fn as_sqlite_reads(folder: &Path, database: &[u8], wal: &[u8]) -> Option<Vec<u8>> {
    let path = folder.join("copy.db");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.join(format!("copy.db{suffix}")));
    }
    std::fs::write(&path, database).unwrap();
    std::fs::write(folder.join("copy.db-wal"), wal).unwrap();
    let connection = Connection::open(&path).unwrap();
    match connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => return None,
        result => result.unwrap(),
    }
    let bytes = std::fs::read(&path).unwrap();
    drop(connection);
    Some(bytes)
}

/// The database as we have it.
fn as_we_read(database: &[u8], wal: &[u8]) -> Vec<u8> {
    let mut bytes = database.to_vec();
    let Some(header) = WalHeader::read(wal).unwrap() else { return bytes };
    let changes = read_changes(wal, WalPosition::start(header), None).unwrap();
    if changes.commits == 0 {
        return bytes;
    }
    let page_size = header.page_size as usize;
    bytes.resize(changes.size as usize * page_size, 0);
    for (page, frame) in changes.pages {
        let at = header.frame_offset(frame) as usize + 24;
        let page_at = (page as usize - 1) * page_size;
        bytes[page_at..page_at + page_size].copy_from_slice(&wal[at..at + page_size]);
    }
    bytes
}

/// The same WAL with checksums over big-endian words, as a machine of that kind would write it.
fn big_endian(wal: &[u8]) -> Vec<u8> {
    let mut wal = wal.to_vec();
    let Some(header) = WalHeader::read(wal.as_slice()).unwrap() else { return wal };
    let put = |bytes: &mut [u8], sums: [u32; 2]| {
        bytes[..4].copy_from_slice(&sums[0].to_be_bytes());
        bytes[4..8].copy_from_slice(&sums[1].to_be_bytes());
    };
    wal[..4].copy_from_slice(&0x377f_0683_u32.to_be_bytes());
    let mut chain = checksum(true, [0, 0], &wal[..24]);
    put(&mut wal[24..32], chain);
    for frame in wal[32..].chunks_exact_mut(header.frame_size() as usize) {
        chain = checksum(true, chain, &frame[..8]);
        chain = checksum(true, chain, &frame[24..]);
        put(&mut frame[16..24], chain);
    }
    wal
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn we_read_what_sqlite_reads(
        shift in 9..=16u32,
        steps in prop::collection::vec(step(), 1..14),
        cut in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let folder = harness::folder();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(&format!(
                "PRAGMA page_size={}; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=10; \
                 PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)",
                1 << shift
            ))
            .unwrap();
        for step in &steps {
            run(&connection, step);
        }
        let (database, wal) = (std::fs::read(&path).unwrap(), std::fs::read(folder.path().join("app.db-wal")).unwrap());
        let mut damaged = wal.clone();
        if !damaged.is_empty() {
            let at = cut.index(damaged.len());
            damaged[at] ^= 1 << bit;
        }
        prop_assert!(as_sqlite_reads(folder.path(), &database, &wal) == Some(as_we_read(&database, &wal)));
        for wal in [&wal[..cut.index(wal.len() + 1)], &damaged] {
            let ours = as_we_read(&database, wal);
            if let Some(theirs) = as_sqlite_reads(folder.path(), &database, wal) {
                prop_assert!(ours == theirs, "{} bytes of WAL", wal.len());
            }
        }
        // Stale frames of an older generation keep their words: only a WAL of one generation can be turned around.
        if !steps.iter().any(|step| matches!(step, Step::Checkpoint(_))) {
            let turned = big_endian(&wal);
            let ours = as_we_read(&database, &turned);
            prop_assert!(as_sqlite_reads(folder.path(), &database, &turned).as_ref() == Some(&ours), "big-endian");
            prop_assert!(ours == as_we_read(&database, &wal), "the byte order of checksums changes no page");
        }
    }

    #[test]
    fn reading_in_pieces_equals_reading_at_once(steps in prop::collection::vec(step(), 2..8)) {
        let folder = harness::folder();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=10; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
            .unwrap();
        let read = || std::fs::read(folder.path().join("app.db-wal")).unwrap();
        let start = WalPosition::start(WalHeader::read(read().as_slice()).unwrap().unwrap());
        let (mut position, mut pages, mut commits) = (start, std::collections::BTreeMap::new(), 0);
        // The first piece is what made the table.
        let steps = steps.iter().filter(|step| !matches!(step, Step::Checkpoint(_)));
        for step in std::iter::once(None).chain(steps.map(Some)) {
            if let Some(step) = step {
                run(&connection, step);
            }
            let piece = read_changes(read().as_slice(), position, None).unwrap();
            pages.extend(piece.pages);
            if piece.commits > 0 {
                pages.retain(|page, _| *page <= piece.size);
            }
            commits += piece.commits;
            position = piece.end;
        }
        let whole = read_changes(read().as_slice(), start, None).unwrap();
        prop_assert_eq!((whole.end, whole.commits), (position, commits));
        prop_assert_eq!(whole.pages, pages.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn hostile_bytes_end_the_log(mut wal in prop::collection::vec(any::<u8>(), 32..4000)) {
        // A valid header, then anything.
        wal[..16].copy_from_slice(&[0x37, 0x7f, 0x06, 0x82, 0, 0x2d, 0xe2, 0x18, 0, 0, 2, 0, 0, 0, 0, 0]);
        let sums = checksum(false, [0, 0], &wal[..24]);
        wal[24..28].copy_from_slice(&sums[0].to_be_bytes());
        wal[28..32].copy_from_slice(&sums[1].to_be_bytes());
        let header = WalHeader::read(wal.as_slice()).unwrap().unwrap();
        let changes = read_changes(wal.as_slice(), WalPosition::start(header), None).unwrap();
        prop_assert_eq!(changes.commits, 0);
    }
}
