//! The application: databases, rows of known content, and how two databases differ in them.

use anyhow::Context as _;
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

/// Bytes of a row's content.
pub const ROW: usize = 512;
/// Of a row's content, by which it is found in an object.
pub const MARKER: usize = 16;

/// What `PRAGMA synchronous` is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    Normal,
    Full,
}

impl Synchronous {
    pub fn name(self) -> &'static str {
        match self {
            Synchronous::Normal => "NORMAL",
            Synchronous::Full => "FULL",
        }
    }
}

pub fn connect(path: &Path, synchronous: Synchronous) -> anyhow::Result<Connection> {
    let connection = Connection::open(path).with_context(|| path.display().to_string())?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let name = synchronous.name();
    connection.execute_batch(&format!("PRAGMA journal_mode=WAL; PRAGMA synchronous={name}"))?;
    Ok(connection)
}

/// A database in WAL mode of so many KB, with room for rows that are told apart.
pub fn create(path: &Path, kilobytes: u32, synchronous: Synchronous) -> anyhow::Result<Connection> {
    let connection = connect(path, synchronous)?;
    connection.execute_batch("CREATE TABLE filler(id INTEGER PRIMARY KEY, v BLOB)")?;
    connection.execute_batch("CREATE TABLE rows(id INTEGER PRIMARY KEY, v BLOB)")?;
    connection.execute_batch("BEGIN")?;
    {
        let mut insert = connection.prepare("INSERT INTO filler(v) VALUES (zeroblob(990))")?;
        for _ in 0..kilobytes {
            insert.execute([])?;
        }
    }
    connection.execute_batch("COMMIT")?;
    Ok(connection)
}

/// The content of a row: the same for one number, whoever asks, and no part of it that of another.
pub fn row(id: i64) -> [u8; ROW] {
    let mut bytes = [0; ROW];
    // SplitMix64. What it begins with is mixed, too, or the next row would be this one, moved by eight bytes.
    let start = mixed(id.cast_unsigned());
    for (chunk, step) in bytes.chunks_exact_mut(8).zip(1_u64..) {
        let state = start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        chunk.copy_from_slice(&mixed(state).to_be_bytes());
    }
    bytes
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// By what a row is found.
pub fn marker(id: i64) -> [u8; MARKER] {
    let mut marker = [0; MARKER];
    marker.copy_from_slice(&row(id)[..MARKER]);
    marker
}

/// Commits one row.
pub fn insert(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT INTO rows(id, v) VALUES (?1, ?2)")?.execute((id, row(id)))?;
    Ok(())
}

/// Rows of a database that a restored one has not, or has otherwise, and rows that it has beyond those.
pub fn difference(expected: &Connection, restored: &Path) -> rusqlite::Result<u64> {
    expected.execute("ATTACH ?1 AS restored", [restored.to_string_lossy()])?;
    let sql = "SELECT (SELECT count(*) FROM main.rows a LEFT JOIN restored.rows b USING (id) WHERE a.v IS NOT b.v)
                      + (SELECT count(*) FROM restored.rows b LEFT JOIN main.rows a USING (id) WHERE a.id IS NULL)";
    let differ = expected.query_row(sql, [], |row| row.get::<_, i64>(0));
    expected.execute("DETACH restored", [])?;
    Ok(differ?.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_own_marker_and_that_of_no_other() {
        let markers: std::collections::BTreeSet<_> = (0..1000).map(marker).collect();
        assert_eq!(markers.len(), 1000);
        for id in 0..1000 {
            let found = row(id).windows(MARKER).filter(|window| markers.contains(*window)).count();
            assert_eq!((found, &row(id)[..MARKER]), (1, &marker(id)[..]), "{id}");
        }
    }

    #[test]
    fn every_row_that_is_missing_or_other_or_too_many_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let expected = create(&path("expected.db"), 3, Synchronous::Normal).unwrap();
        let found = create(&path("found.db"), 3, Synchronous::Full).unwrap();
        for id in 1..=10 {
            insert(&expected, id).unwrap();
            insert(&found, id).unwrap();
        }
        assert_eq!(difference(&expected, &path("found.db")).unwrap(), 0);
        found.execute_batch("DELETE FROM rows WHERE id IN (1, 10)").unwrap();
        assert_eq!(difference(&expected, &path("found.db")).unwrap(), 2);
        found.execute_batch("UPDATE rows SET v = zeroblob(512) WHERE id = 5").unwrap();
        insert(&found, 11).unwrap();
        assert_eq!(difference(&expected, &path("found.db")).unwrap(), 4);
        // What has no such table is an error, and no database without rows.
        Connection::open(path("other.db")).unwrap().execute_batch("CREATE TABLE t(a)").unwrap();
        difference(&expected, &path("other.db")).unwrap_err();
        assert_eq!(difference(&expected, &path("found.db")).unwrap(), 4);
    }
}
