//! A database that follows a replica, and that anybody may read meanwhile.
//!
//! What is new in the replica is written page by page through SQLite itself (its table `sqlite_dbpage`), in one transaction of the
//! database's WAL. Readers see the state before it or the state after it, never one between; a process that dies leaves one of both.
//! Memory is that of SQLite's cache, which spills into the WAL, and two bits for each page that the database grows by.
//!
//! Page 1 differs from the original's in 12 bytes, which SQLite writes itself: its counter of changes (at 24 and 92) and its version (96).
//!
//! # Where it stands
//!
//! A [`Note`] beside the database names the transaction that was applied. Pages of an older file must never be written over a newer
//! state, and the note is not part of SQLite's transaction: so it is written before it, too, with the point that it leads to. Who finds
//! that knows that the state is one of two, and that applying everything from the older one to the newer one or beyond is right for
//! both.
//!
//! Numbers of transactions alone do not tell a replica from another that was begun anew in its place. The note has the time of what was
//! applied, too, which merged files and snapshots keep. Changes go on from there only where a file that ends there has that time, or was
//! listed beside one that has; otherwise a file with the whole state begins the way.

mod extent;

pub use crate::note::{Note, NoteError};

use crate::chain::{Applied, InFile, way_from};
use crate::pin::take_copy;
use crate::replica::{READ_TRIES, RemoteFile, Replica};
use crate::restore::{IntegrityCheck, RestoreError, Restored, Target};
use crate::restore::{give_name, refuse_existing, remove_abandoned, restore_into, scratch};
use crate::store::{StoreError, retry};
use extent::Extent;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For how long a reader that recovers or check points the WAL is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Why a database does not follow.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The replica or the first restore.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// SQLite; what was begun was rolled back.
    #[error("{0}: {1}")]
    Sqlite(PathBuf, rusqlite::Error),
    /// The note cannot be read, or is of another replica.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The note cannot be written; the database is a state that the one before it is right about.
    #[error("cannot write {0}: {1}")]
    NoteUnwritten(PathBuf, io::Error),
    /// Another process lets it follow.
    #[error("{0}: another process lets it follow already: end that one, or restore to another path")]
    Taken(PathBuf),
    /// Somebody else has committed into it.
    #[error(
        "{0}: somebody else has written into it, moved or removed it, so that it is no copy any more: restore to another path"
    )]
    Foreign(PathBuf),
    /// The original has pages of another size now, which SQLite cannot change under readers.
    #[error(
        "{path}: its pages have {from} bytes and those of the replica {to} from TXID {txid} on: restore to another path"
    )]
    PageSize {
        /// The database.
        path: PathBuf,
        /// Bytes of its pages.
        from: u32,
        /// Bytes of the replica's.
        to: u32,
        /// From where on.
        txid: u64,
    },
    /// The replica ends before what was applied.
    #[error("{path} is at TXID {applied}, and the replica ends at {newest}: it was replaced; restore to another path")]
    Ahead {
        /// The database.
        path: PathBuf,
        /// Where it stands.
        applied: u64,
        /// Where the replica ends.
        newest: u64,
    },
}

impl From<StoreError> for FollowError {
    fn from(error: StoreError) -> Self {
        FollowError::Restore(error.into())
    }
}

impl FollowError {
    /// Whether it may pass: a store that fails, a disk that is full, a lock.
    pub fn may_pass(&self) -> bool {
        use FollowError::{NoteUnwritten, Restore, Sqlite};
        matches!(self, Restore(RestoreError::Store(_) | RestoreError::Damaged { .. }) | Sqlite(..) | NoteUnwritten(..))
    }
}

/// What came of a look at the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing new.
    Current,
    /// The database is at another point now.
    Applied {
        /// The point.
        txid: u64,
        /// Files that led there.
        files: usize,
        /// Pages that were written.
        pages: u64,
    },
    /// Files beyond are there, but none that go on from here: the one of this transaction is missing. A snapshot would mend it.
    Hole {
        /// The first transaction that no file has.
        missing: u64,
        /// Where the replica ends.
        newest: u64,
    },
    /// It was told to stop, and rolled back what it had begun.
    Stopped,
}

/// A database that follows.
pub struct Follower {
    replica: Replica,
    output: PathBuf,
    note: Note,
    /// Keeps the WAL where it is between two transactions, and tells whether somebody else has written.
    watcher: Connection,
    /// `None` after a commit of ours, until what it did to the counter has been read.
    data_version: Option<i64>,
    /// Files that end at what was applied, and are of the same replica.
    proved: Vec<RemoteFile>,
    /// Whose lock keeps others away. It is closed last, for that lets go of whatever SQLite has locked.
    _taken: File,
}

impl Follower {
    /// Begins: restores the newest point where there is no database yet, or else goes on where the note beside it says. `place` names the
    /// replica in the note.
    ///
    /// # Errors
    /// A database without a note, or with one of another place, is left as it is.
    pub fn start(
        replica: Replica,
        place: &str,
        output: &Path,
        integrity_check: impl Into<IntegrityCheck>,
    ) -> Result<(Follower, Option<Restored>), FollowError> {
        let is_there = output.symlink_metadata().is_ok();
        let (note, restored) = match Note::read(output)? {
            Some(note) if is_there && note.place != place => {
                let problem = format!("it follows {}, not {place}: restore to another path", note.place);
                return Err(NoteError(Note::path(output), problem).into());
            }
            Some(note) if is_there && !note.is_about(output) => {
                let problem = "it is about another file than the one that has this name now: restore to another path";
                return Err(NoteError(Note::path(output), problem.into()).into());
            }
            Some(note) if is_there => {
                // Its other name, where it was killed between taking one and giving up the other.
                remove_abandoned(output)?;
                (note, None)
            }
            _ => {
                let (note, restored) = restore_first(&replica, place, output, integrity_check.into())?;
                (note, Some(restored))
            }
        };
        let unopened = |error| RestoreError::Output(output.to_owned(), error);
        let taken = File::options().read(true).write(true).open(output).map_err(unopened)?;
        if !take_copy(&taken) {
            return Err(FollowError::Taken(output.to_owned()));
        }
        let failed = |error| FollowError::Sqlite(output.to_owned(), error);
        let watcher = Connection::open_with_flags(output, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        watcher.busy_timeout(BUSY).map_err(failed)?;
        let data_version = Some(data_version(&watcher).map_err(failed)?);
        let proved = Vec::new();
        let output = output.to_owned();
        Ok((Follower { replica, output, note, watcher, data_version, proved, _taken: taken }, restored))
    }

    /// The transaction that was applied last.
    pub fn txid(&self) -> u64 {
        self.note.applied
    }

    /// Looks for what is new in the replica, and applies all of it at once.
    ///
    /// # Errors
    /// The database is as it was before; see [`FollowError::may_pass`].
    pub fn step(&mut self, stop: &AtomicBool) -> Result<Step, FollowError> {
        self.refuse_another()?;
        let files = self.replica.files()?;
        let applied = self.note.applied;
        let newest = files.iter().map(|file| file.name.max_txid).max().unwrap_or(0);
        if newest < applied {
            return Err(FollowError::Ahead { path: self.output.clone(), applied, newest });
        }
        // Changes fit nothing but what came before them; a whole state fits everything.
        let way = way_from(&files, if self.goes_on(&files)? { applied } else { 0 });
        // A transaction that may or may not have come to its end must not be gone behind.
        if way.reached < self.note.applying.unwrap_or(applied) || way.files.is_empty() && newest > applied {
            return Ok(Step::Hole { missing: way.reached + 1, newest });
        }
        if way.files.is_empty() {
            return Ok(Step::Current);
        }
        self.write_note(applied, self.note.applied_millis, Some(way.reached))?;
        let Some((pages, time_millis)) = self.apply(&way.files, stop)? else { return Ok(Step::Stopped) };
        let seen = data_version(&self.watcher);
        self.data_version = Some(seen.map_err(|error| FollowError::Sqlite(self.output.clone(), error))?);
        self.write_note(way.reached, time_millis, None)?;
        self.proved = way.files.last().copied().into_iter().collect();
        Ok(Step::Applied { txid: way.reached, files: way.files.len(), pages })
    }

    /// Whether the replica is the one that what was applied came from: a file that ends there has its time, or is known already. Others
    /// that are listed beside it are of the same replica, whatever time their writer gave them.
    fn goes_on(&mut self, files: &[RemoteFile]) -> Result<bool, FollowError> {
        let ends: Vec<RemoteFile> =
            files.iter().filter(|file| file.name.max_txid == self.note.applied).copied().collect();
        let mut is_proved = ends.iter().any(|file| self.proved.contains(file));
        for file in &ends {
            if is_proved || self.note.applied_millis.is_none() {
                break;
            }
            is_proved = match self.replica.header(file) {
                // It was removed since it was listed.
                Err(StoreError::NotFound(_)) => false,
                header => Some(header?.timestamp_millis) == self.note.applied_millis,
            };
        }
        self.proved = if is_proved { ends } else { Vec::new() };
        Ok(is_proved)
    }

    /// What lies under the copy's name must be the copy: it may have been moved, or removed, at any time.
    fn refuse_another(&self) -> Result<(), FollowError> {
        if self.note.is_about(&self.output) { Ok(()) } else { Err(FollowError::Foreign(self.output.clone())) }
    }

    fn write_note(
        &mut self,
        applied: u64,
        applied_millis: Option<i64>,
        applying: Option<u64>,
    ) -> Result<(), FollowError> {
        let note = Note { applied, applied_millis, applying, ..self.note.clone() };
        if note != self.note {
            write(&note, &self.output)?;
            self.note = note;
        }
        Ok(())
    }

    /// Writes all pages of all files in one transaction; gives their number, and the time of the last file in Unix milliseconds, or `None`
    /// where it was told to stop. A new connection each time: what another one
    /// has in its cache of the old state would be read as if it were of the new one.
    fn apply(&mut self, files: &[RemoteFile], stop: &AtomicBool) -> Result<Option<(u64, Option<i64>)>, FollowError> {
        let output = self.output.clone();
        let failed = |error| FollowError::Sqlite(output.clone(), error);
        // Pages go into a database that is attached: SQLite compares the schema of the main one at each statement, and would read one
        // that is half written.
        // None is made where it is gone.
        let mut connection =
            Connection::open_in_memory_with_flags(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        let path = self.output.to_string_lossy();
        connection.execute("ATTACH ?1 AS replica", [&path]).map_err(failed)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        self.refuse_another()?;
        let seen = data_version(&self.watcher).map_err(failed)?;
        if self.data_version.is_some_and(|known| known != seen) {
            return Err(FollowError::Foreign(self.output.clone()));
        }
        let pragma = |name| transaction.query_row(&format!("PRAGMA replica.{name}"), [], |row| row.get::<_, u32>(0));
        let page_size = pragma("page_size").map_err(failed)?;
        let size = pragma("page_count").map_err(failed)?;
        // What lies beyond the last file's end is not written at all: SQLite cuts off only what was there when the transaction began.
        let last = files.last().map(|file| self.replica.header(file)).transpose()?;
        let mut extent = Extent::new(size, last.map_or(size, |header| header.commit), page_size);
        let mut insert = transaction
            .prepare("INSERT INTO sqlite_dbpage(pgno, data, schema) VALUES (?1, ?2, 'replica')")
            .map_err(failed)?;
        let (mut pages, mut time_millis) = (0, None);
        let mut state = Applied { page_size, pages: size, ..Applied::default() };
        for file in files {
            let cannot_be = |why| StoreError::Damaged(format!("{}: {why}", self.replica.key(file.level, file.name)));
            let header = self.replica.header(file)?;
            if header.page_size != page_size {
                let (from, to, txid) = (page_size, header.page_size, header.max_txid);
                return Err(FollowError::PageSize { path: self.output.clone(), from, to, txid });
            }
            let mut held = InFile::of(file.level);
            let read = retry(READ_TRIES, || {
                held = InFile::of(file.level);
                self.replica.read(file, |header, number, page| {
                    held.page(header, number);
                    if stop.load(Ordering::Acquire) {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    if extent.written(number) {
                        insert.execute(rusqlite::params![number, page]).map_err(io::Error::other)?;
                        pages += 1;
                    }
                    Ok(())
                })
            });
            let (header, checksum) = match read {
                Err(_) if stop.load(Ordering::Acquire) => return Ok(None),
                result => result?,
            };
            held.ends(checksum);
            // A whole state follows nothing.
            let before = if file.name.is_snapshot() { Applied::default() } else { state };
            state = before.then(&header, &held).map_err(cannot_be)?;
            time_millis = Some(header.timestamp_millis);
            extent.ends_at(header.commit);
        }
        if state.pages != extent.after {
            return Err(StoreError::Transient("the last file was replaced while it was read".into()).into());
        }
        let zeros = vec![0u8; page_size as usize];
        for number in extent.missing() {
            insert.execute(rusqlite::params![number, zeros]).map_err(failed)?;
        }
        if let Some(first) = extent.first_beyond() {
            insert.execute(rusqlite::params![first, rusqlite::types::Null]).map_err(failed)?;
        }
        drop(insert);
        self.refuse_another()?;
        // Whatever ends this step from here on, a commit of ours must not be taken for somebody else's.
        self.data_version = None;
        transaction.commit().map_err(failed)?;
        Ok(Some((pages, time_millis)))
    }
}

/// Changes with each commit of another connection.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA data_version", [], |row| row.get(0))
}

fn write(note: &Note, output: &Path) -> Result<(), FollowError> {
    note.write(output).map_err(|error| FollowError::NoteUnwritten(Note::path(output), error))
}

/// Restores beside the output, writes the note, and gives the database its name last: a database without a note is never ours, and
/// neither is another one that came to be there meanwhile.
fn restore_first(
    replica: &Replica,
    place: &str,
    output: &Path,
    integrity_check: IntegrityCheck,
) -> Result<(Note, Restored), FollowError> {
    refuse_existing(output)?;
    let scratch = scratch(output)?;
    let restored = restore_into(replica, Target::Latest, &scratch, output, integrity_check)?;
    let metadata = scratch.as_file().metadata();
    let note = Note {
        place: place.to_owned(),
        applied: restored.txid,
        applied_millis: Some(restored.time_millis),
        inode: Some(metadata.map_err(|error| RestoreError::Output(output.to_owned(), error))?.ino()),
        applying: None,
    };
    write(&note, output)?;
    if let Err(error) = give_name(scratch, output) {
        // A name that could not be synced is there all the same.
        if !note.is_about(output) {
            Note::remove(output).map_err(|error| FollowError::NoteUnwritten(Note::path(output), error))?;
        }
        return Err(error.into());
    }
    Ok((note, restored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use crate::store::memory::MemoryStore;
    use ltx::FileName;
    use std::sync::Arc;

    /// Puts a whole database into a replica, as the state after a transaction.
    fn put_snapshot(store: &MemoryStore, replica: &Replica, database: &Path, txid: u64) {
        let bytes = std::fs::read(database).unwrap();
        let header = ltx::Header {
            flags: ltx::NO_CHECKSUM,
            page_size: 4096,
            commit: (bytes.len() / 4096) as u32,
            min_txid: 1,
            max_txid: txid,
            timestamp_millis: txid as i64,
            ..Default::default()
        };
        let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
        for (number, page) in (1..).zip(bytes.chunks(4096)) {
            encoder.page(number, page).unwrap();
        }
        let (content, _) = encoder.finish().unwrap();
        let key = replica.key(9, FileName { min_txid: 1, max_txid: txid });
        let length = content.len() as u64;
        store.create(&key, &mut io::Cursor::new(content), length, &Default::default()).unwrap();
    }

    #[test]
    fn our_own_commit_that_could_not_be_looked_at_is_not_taken_for_somebody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let (original, output) = (folder.path().join("a.db"), folder.path().join("copy.db"));
        let store = Arc::new(MemoryStore::default());
        let replica = Replica::new(store.clone(), ltx::Layout::Objects, "a.db");
        let write = |sql: &str, txid| {
            // Closing copies the WAL into the database.
            Connection::open(&original).unwrap().execute_batch(sql).unwrap();
            put_snapshot(&store, &replica, &original, txid);
        };
        write("PRAGMA journal_mode=WAL; CREATE TABLE t(v); INSERT INTO t VALUES (1)", 1);
        let (mut follower, _) = Follower::start(replica.clone(), "memory", &output, false).unwrap();
        write("INSERT INTO t VALUES (2)", 2);
        let go_on = AtomicBool::new(false);
        let way = way_from(&replica.files().unwrap(), 1);
        // As in a step that ends with an error between the commit and the look at what it did to the counter.
        follower.apply(&way.files, &go_on).unwrap();
        assert!(matches!(follower.step(&go_on), Ok(Step::Applied { txid: 2, .. })));
        write("INSERT INTO t VALUES (3)", 3);
        assert!(matches!(follower.step(&go_on), Ok(Step::Applied { txid: 3, .. })));
        Connection::open(&output).unwrap().execute_batch("INSERT INTO t VALUES (4)").unwrap();
        write("INSERT INTO t VALUES (5)", 4);
        assert!(matches!(follower.step(&go_on), Err(FollowError::Foreign(_))));
    }
}
