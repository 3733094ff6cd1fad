//! The application: databases in WAL mode, of which it knows what each row must hold.
//!
//! Every transaction also writes its own number, in a row of a table of its own, as a [`Mark`]: some bytes that can be found in a
//! page without knowing SQLite's format. Whoever sees the page knows which transaction it is from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params};
use storebench_crds::engine::object_store::DATABASE_SUFFIX;
use storebench_crds::workload::sqlite_replication::{SqliteReplicationWorkload, Synchronous};

use crate::content::seeds::mix;
use crate::content::values::Values;
use crate::failure::Failure;

/// Coprime to every number of rows that is allowed, so that a transaction changes as many rows as it says, all over the table.
const ROW_STEP: u64 = 15_485_863;
/// Rows written in one transaction before the load.
const ROWS_AT_ONCE: u32 = 10_000;
/// Bytes by which a mark is found, before its number.
const MAGIC_BYTES: usize = 16;

/// The file name of a database.
pub(super) fn name(number: u32) -> String {
    format!("{number:04}{DATABASE_SUFFIX}")
}

/// The mark of one database: no other database, trial or seed has the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    magic: [u8; MAGIC_BYTES],
}

impl Mark {
    pub(super) fn new(seed: u64, database: u32) -> Self {
        let halves = [mix(seed, u64::from(database)), mix(!seed, u64::from(database))];
        let mut magic = [0; MAGIC_BYTES];
        for (bytes, half) in magic.chunks_exact_mut(8).zip(halves) {
            bytes.copy_from_slice(&half.to_be_bytes());
        }
        Self { magic }
    }

    fn of(&self, sequence: u64) -> Vec<u8> {
        [self.magic.as_slice(), &sequence.to_be_bytes()].concat()
    }

    /// The newest mark in a page; SQLite leaves older ones behind where it has freed their place.
    pub(super) fn find(&self, page: &[u8]) -> Option<u64> {
        let number = |at: usize| Some(u64::from_be_bytes(*page.get(at + MAGIC_BYTES..)?.first_chunk()?));
        memchr::memmem::find_iter(page, &self.magic).filter_map(number).max()
    }
}

/// One database, open for as long as the load lasts.
pub(super) struct Database {
    number: u32,
    mark: Mark,
    connection: Connection,
    /// How often each row was written.
    versions: Vec<u32>,
    /// The last transaction that was acknowledged.
    sequence: u64,
    /// From which transaction on how many rows each has changed.
    sizes: Vec<(u64, u32)>,
    content: Vec<u8>,
}

/// How far a restored copy is behind what was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) transactions: u64,
    /// Rows that these have changed.
    pub(super) rows: u64,
}

impl Database {
    /// Makes a database with all its rows. It gets its name when it is whole.
    pub(super) fn create(
        directory: &Path,
        number: u32,
        mark: Mark,
        parameters: &SqliteReplicationWorkload,
        values: &Values,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let path = directory.join(name(number));
        let unfinished = path.with_extension("new");
        let failed = |error: rusqlite::Error| sqlite("create", &path, &error);
        fill(&unfinished, number, &mark, parameters.rows, values).map_err(failed)?;
        std::fs::rename(&unfinished, &path)
            .map_err(|error| Failure::io(format_args!("rename {}", path.display()), &error))?;
        let connection = open(&path, parameters.synchronous, timeout).map_err(failed)?;
        let versions = vec![0; parameters.rows as usize];
        Ok(Self { number, mark, connection, versions, sequence: 0, sizes: Vec::new(), content: Vec::new() })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn name(&self) -> String {
        name(self.number)
    }

    /// The last transaction that was acknowledged.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    fn key(&self, row: u32) -> u32 {
        self.number * self.versions.len() as u32 + row
    }

    /// Commits the next transaction, which changes so many rows.
    pub(super) fn change(&mut self, rows: u32, values: &Values) -> Result<(), Failure> {
        let failed = |error: rusqlite::Error| sqlite("commit", Path::new(&name(self.number)), &error);
        let sequence = self.sequence + 1;
        let chosen = chosen(self.number, sequence, rows, self.versions.len() as u64);
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let mut update =
            self.connection.prepare_cached("UPDATE rows SET content = ?2 WHERE id = ?1").map_err(failed)?;
        for row in chosen.clone() {
            self.content.clear();
            values.write(self.key(row), self.versions[row as usize] + 1, &mut self.content);
            update.execute(params![row, self.content]).map_err(failed)?;
        }
        drop(update);
        let mut mark = self.connection.prepare_cached("UPDATE mark SET content = ?1").map_err(failed)?;
        mark.execute([self.mark.of(sequence)]).map_err(failed)?;
        drop(mark);
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        // Acknowledged: from here on the replica owes it.
        self.sequence = sequence;
        if self.sizes.last().is_none_or(|(_, last)| *last != rows) {
            self.sizes.push((sequence, rows));
        }
        chosen.for_each(|row| self.versions[row as usize] += 1);
        Ok(())
    }

    /// Reads a row.
    pub(super) fn read(&self) -> Result<(), Failure> {
        let failed = |error: rusqlite::Error| sqlite("read", Path::new(&self.name()), &error);
        let mut query =
            self.connection.prepare_cached("SELECT length(content) FROM rows WHERE id = 0").map_err(failed)?;
        query.query_row([], |row| row.get::<_, i64>(0)).map_err(failed).map(drop)
    }

    /// Compares a restored copy with what was acknowledged: all rows, the last transaction's number, and SQLite's own check.
    /// How many rows are right; `wrong` is told where and what of all others.
    pub(super) fn compare(&self, copy: &Path, values: &Values, mut wrong: impl FnMut(String, String)) -> u64 {
        let right = open_copy(copy)
            .and_then(|connection| self.rows_right(&connection, self.sequence, &self.versions, values, &mut wrong));
        right.unwrap_or_else(|error| self.no_database(&error, &mut wrong))
    }

    /// The same, of a copy that may be behind: it must be what the application had after the transaction that it names as its last.
    /// Besides the rows that are right: what is missing in it.
    pub(super) fn compare_with_loss(
        &self,
        copy: &Path,
        values: &Values,
        mut wrong: impl FnMut(String, String),
    ) -> (u64, Loss) {
        let compared = open_copy(copy).and_then(|connection| {
            let mark: Vec<u8> = connection.query_row("SELECT content FROM mark", [], |row| row.get(0))?;
            // One that is not ours is told as wrong below.
            let sequence = self.mark.find(&mark).unwrap_or(self.sequence).min(self.sequence);
            let versions = self.versions_at(sequence);
            let rows = versions.iter().zip(&self.versions).filter(|(then, now)| then != now).count() as u64;
            let right = self.rows_right(&connection, sequence, &versions, values, &mut wrong)?;
            Ok((right, Loss { transactions: self.sequence - sequence, rows }))
        });
        compared.unwrap_or_else(|error| (self.no_database(&error, &mut wrong), Loss::default()))
    }

    fn no_database(&self, error: &rusqlite::Error, wrong: &mut impl FnMut(String, String)) -> u64 {
        wrong(self.name(), format!("what was restored is no database: {error}"));
        0
    }

    /// How often each row had been written after a transaction.
    fn versions_at(&self, sequence: u64) -> Vec<u32> {
        let mut versions = self.versions.clone();
        for (index, (first, rows)) in self.sizes.iter().enumerate() {
            let end = self.sizes.get(index + 1).map_or(self.sequence + 1, |(next, _)| *next);
            for later in (*first).max(sequence + 1)..end {
                let undone = chosen(self.number, later, *rows, versions.len() as u64);
                undone.for_each(|row| versions[row as usize] -= 1);
            }
        }
        versions
    }

    /// Compares with what the application had after a transaction.
    fn rows_right(
        &self,
        connection: &Connection,
        sequence: u64,
        versions: &[u32],
        values: &Values,
        wrong: &mut impl FnMut(String, String),
    ) -> rusqlite::Result<u64> {
        let integrity: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if integrity != "ok" {
            wrong(self.name(), format!("SQLite's integrity check says: {integrity}"));
        }
        let mark: Vec<u8> = connection.query_row("SELECT content FROM mark", [], |row| row.get(0))?;
        if mark != self.mark.of(sequence) {
            let found = self.mark.find(&mark).map_or("none of ours".to_owned(), |found| found.to_string());
            wrong(self.name(), format!("expected transaction {sequence} as the last, found {found}"));
        }
        let mut query = connection.prepare("SELECT id, content FROM rows ORDER BY id")?;
        let mut rows = query.query([])?;
        let (mut found, mut right) = (0, 0);
        while let Some(row) = rows.next()? {
            let (id, content): (u32, Vec<u8>) = (row.get(0)?, row.get(1)?);
            found += 1;
            match versions.get(id as usize) {
                Some(version) if values.matches(self.key(id), *version, &content) => right += 1,
                version => {
                    let expected = version.map_or("no such row".to_owned(), |version| format!("version {version}"));
                    let detail = format!("expected {expected}, found {}", values.describe(&content));
                    wrong(format!("{} row {id}", self.name()), detail);
                }
            }
        }
        if found != versions.len() {
            wrong(self.name(), format!("expected {} rows, found {found}", versions.len()));
        }
        Ok(right)
    }
}

/// The rows that a transaction of a database changes, of `all`.
fn chosen(database: u32, sequence: u64, rows: u32, all: u64) -> impl Iterator<Item = u32> + Clone {
    let first = mix(u64::from(database), sequence) % all;
    (0..u64::from(rows)).map(move |nth| ((first + nth * ROW_STEP) % all) as u32)
}

/// What was restored, which nobody writes.
fn open_copy(copy: &Path) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?immutable=1", copy.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
}

fn open(path: &Path, synchronous: Synchronous, timeout: Duration) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(timeout)?;
    let synchronous = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Thousands are open at once: 256 KiB of cache for each.
    connection.pragma_update(None, "cache_size", -256)?;
    Ok(connection)
}

/// Writes a whole database, in WAL mode and with an empty WAL.
fn fill(path: &PathBuf, number: u32, mark: &Mark, rows: u32, values: &Values) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    // It is nobody's yet: syncs would only take time.
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch(
        "CREATE TABLE mark(id INTEGER PRIMARY KEY, content BLOB NOT NULL);
         CREATE TABLE rows(id INTEGER PRIMARY KEY, content BLOB NOT NULL);",
    )?;
    connection.execute("INSERT INTO mark VALUES (0, ?1)", [mark.of(0)])?;
    let mut content = Vec::new();
    for first in (0..rows).step_by(ROWS_AT_ONCE as usize) {
        connection.execute_batch("BEGIN")?;
        let mut insert = connection.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")?;
        for row in first..rows.min(first + ROWS_AT_ONCE) {
            content.clear();
            values.write(number * rows + row, 0, &mut content);
            insert.execute(params![row, content])?;
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
    }
    connection.close().map_err(|(_, error)| error)
}

fn sqlite(doing: &str, path: &Path, error: &rusqlite::Error) -> Failure {
    Failure::new(format_args!("{doing} {}: SQLite says: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mark_of_a_page_is_found_and_those_of_others_are_not() {
        let (mark, other) = (Mark::new(7, 0), Mark::new(7, 1));
        let page = [vec![0; 100], mark.of(5), vec![1; 9], mark.of(6), mark.of(4), other.of(9), vec![0; 50]].concat();
        assert_eq!((mark.find(&page), other.find(&page)), (Some(6), Some(9)));
        assert_eq!(Mark::new(8, 0).find(&page), None);
        assert_eq!(mark.find(&mark.of(5)[..20]), None, "cut off");
    }

    #[test]
    fn a_copy_is_right_when_every_row_is_as_it_was_acknowledged() {
        let folder = harness::folder();
        let parameters = serde_json::json!({ "operation": "Write", "rows": 200, "synchronous": "Normal" });
        let parameters = serde_json::from_value(parameters).unwrap();
        let (values, mark) = (Values::new(7, 100), Mark::new(7, 3));
        let mut database =
            Database::create(folder.path(), 3, mark, &parameters, &values, Duration::from_secs(1)).unwrap();
        (0..10).for_each(|_| database.change(5, &values).unwrap());
        database.read().unwrap();
        let spoil = |sql: &str| {
            let copy = folder.path().join("copy");
            let _ = std::fs::remove_file(&copy);
            database.connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
            Connection::open(&copy).unwrap().execute_batch(sql).unwrap();
            let mut wrong = Vec::new();
            let right = database.compare(&copy, &values, |place, detail| wrong.push(format!("{place}: {detail}")));
            (right, wrong.join("; "))
        };
        assert_eq!(spoil(""), (200, String::new()));
        let (right, wrong) = spoil("UPDATE rows SET content = (SELECT content FROM rows WHERE id = 8) WHERE id = 7");
        assert_eq!(right, 199);
        assert!(wrong.starts_with("0003.db row 7: expected version ") && wrong.ends_with("of key 608"), "{wrong}");
        assert_eq!(spoil("DELETE FROM rows WHERE id = 7"), (199, "0003.db: expected 200 rows, found 199".into()));
        let (_, wrong) = spoil("UPDATE mark SET content = zeroblob(24)");
        assert_eq!(wrong, "0003.db: expected transaction 10 as the last, found none of ours");
        let (right, wrong) = spoil("DROP TABLE rows");
        assert_eq!(right, 0);
        assert!(wrong.contains("is no database: no such table: rows"), "{wrong}");
        // What was acknowledged after the copy is missing in it.
        let copy = folder.path().join("copy");
        let _ = std::fs::remove_file(&copy);
        database.connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        database.change(5, &values).unwrap();
        let mut wrong = 0;
        assert_eq!(database.compare(&copy, &values, |_, _| wrong += 1), 195);
        assert_eq!(wrong, 6, "five rows, and the transaction's number");
        // Told as loss, it is not wrong.
        let with_loss = |database: &Database| {
            let mut wrong = Vec::new();
            let (right, loss) = database.compare_with_loss(&copy, &values, |_, detail| wrong.push(detail));
            (right, loss, wrong)
        };
        assert_eq!(with_loss(&database), (200, Loss { transactions: 1, rows: 5 }, Vec::new()));
        database.change(200, &values).unwrap();
        assert_eq!(with_loss(&database), (200, Loss { transactions: 2, rows: 200 }, Vec::new()));
        // A copy that mixes two states is wrong in any case.
        let torn = "UPDATE rows SET content = (SELECT content FROM rows WHERE id = 8) WHERE id = 7";
        Connection::open(&copy).unwrap().execute_batch(torn).unwrap();
        let (right, loss, wrong) = with_loss(&database);
        assert_eq!((right, loss.transactions, wrong.len()), (199, 2, 1), "{wrong:?}");
        Connection::open(&copy).unwrap().execute_batch("UPDATE mark SET content = zeroblob(24)").unwrap();
        assert!(with_loss(&database).2.contains(&"expected transaction 12 as the last, found none of ours".to_owned()));
    }

    #[test]
    fn a_transaction_changes_as_many_rows_as_it_says() {
        for rows in [1u64, 2, 1_000, 65_536, 10_000_000] {
            let changed: std::collections::BTreeSet<u64> =
                (0..rows.min(1_000)).map(|nth| nth * ROW_STEP % rows).collect();
            assert_eq!(changed.len() as u64, rows.min(1_000), "{rows}");
        }
    }
}
