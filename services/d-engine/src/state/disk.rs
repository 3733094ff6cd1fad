//! Tables on disk, in an LSM tree (fjall): more rows than memory holds, and there again after a restart without the log being applied
//! anew.
//!
//! All tables are one keyspace, each row's key behind its table's number, and so is the index of the entry up to which all was applied: a
//! commit is one batch of one journal, which is found whole or not at all. The engine syncs nothing at a commit. A crash may cost the
//! last commits, and never one from among others; the log has what they did, and is the only thing that is synced for an acknowledgement.
//!
//! Rows that replace all others are put into a keyspace of their own, which counts once it has an index: what was there before stays
//! until then, for readers and for a restart. One that nobody finished is given up at the next start.
//!
//! The newest keyspace is never deleted, and none is ever cleared. fjall stamps what it does to its table of keyspaces, and to rows, with one
//! counter, which a start sets back to behind the newest row that is left; and the identity of a keyspace that was the newest is
//! given away again. So a keyspace with the identity of a deleted one is stamped as older than that deletion, which takes it away when the two
//! are merged. Rows that follow a clear are stamped as older than it, too, which fjall takes for a bug of its own, and panics; and a journal
//! with a clear that no row follows stays for ever.

mod damage;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fjall::{
    AbstractTree as _, AnyTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, Readable, SeqNo, Snapshot,
};

use self::damage::{Damage, Noted, is_damage, move_aside};
use super::storage::{
    AllRows, Defragmentation, Defragmented, EachRow, ROW_KEY_BYTES_MAX, Rows, Storage, StorageError, Table,
};

/// Where the index of the last commit stands: behind all tables.
const APPLIED: [u8; 1] = [u8::MAX];
/// Keyspaces are called so, and a number.
const NAME: &str = "rows-";
/// While all rows are replaced, so many bytes of them wait in memory.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// What a memtable has before it is written as a file; five of them are in memory at most.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Journals, which a start reads.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
/// From so many memtables on that wait to be written, and so many files that wait to be merged, a commit may be made to wait: fjall does so
/// at four and at 20.
const MEMTABLES_WAITING: usize = 2;
const FILES_WAITING: usize = 16;
/// How long memtables may take to be written before files are merged on demand.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A value of a mebibyte that is not in the cache: 0.4 ms.
const ROWS_OF_A_LOOK: usize = 40;
/// Threads that write memtables and merge files.
const WORKERS: usize = 2;

/// A row's key in the keyspace. fjall panics where it is asked for one that is too long, also where that is only looked for.
fn key_of(table: Table, key: &[u8]) -> Result<Bytes, StorageError> {
    if key.len() > ROW_KEY_BYTES_MAX {
        return Err(StorageError(format!("a key of {} bytes is too long: at most {ROW_KEY_BYTES_MAX}", key.len())));
    }
    Ok([&[table.number() as u8], key].concat().into())
}

/// The end of a range of a table.
fn end_of(table: Table, end: Option<&[u8]>) -> Result<Bytes, StorageError> {
    end.map_or_else(|| Ok(Bytes::copy_from_slice(&[table.number() as u8 + 1])), |end| key_of(table, end))
}

/// Rows of one moment.
struct Committed {
    keyspace: Keyspace,
    /// `None` once nothing is written to the keyspace any more: what it has then, it had. A snapshot keeps in memory whatever is written after
    /// it, to any keyspace, also what is in files by then.
    snapshot: ArcSwapOption<Snapshot>,
    damage: Arc<Damage>,
}

impl Committed {
    /// Of now.
    fn now(database: &Database, keyspace: Keyspace, damage: &Arc<Damage>) -> Arc<Self> {
        let snapshot = ArcSwapOption::from_pointee(Some(database.snapshot()));
        Arc::new(Self { keyspace, snapshot, damage: Arc::clone(damage) })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = match &*self.snapshot.load() {
            Some(snapshot) => snapshot.get(&self.keyspace, key),
            None => self.keyspace.get(key),
        };
        Ok(found.map_err(|error| self.damage.failed(error))?.map(Bytes::from))
    }

    fn range(&self, start: Bytes, end: Bytes) -> impl Iterator<Item = Result<(Bytes, Bytes), StorageError>> + use<> {
        let rows = match &*self.snapshot.load() {
            Some(snapshot) => snapshot.range(&self.keyspace, start..end),
            None => self.keyspace.range(start..end),
        };
        let damage = Arc::clone(&self.damage);
        rows.map(move |row| {
            row.into_inner().map(|(key, value)| (key.into(), value.into())).map_err(|error| damage.failed(error))
        })
    }
}

impl Rows for Committed {
    fn rows_of_a_look(&self) -> usize {
        ROWS_OF_A_LOOK
    }

    /// An iterator of the tree below fjall keeps what it reads, and nothing else.
    fn detach(&self) -> Option<AllRows> {
        // No values lie apart from their keys.
        let AnyTree::Standard(tree) = &self.keyspace.tree else { return None };
        let snapshot = self.snapshot.load();
        let rows = tree.create_iter(snapshot.as_ref().map_or(SeqNo::MAX, |snapshot| snapshot.seqno()), None);
        // As long as it is there, nobody removes its files.
        let (keyspace, damage) = (self.keyspace.clone(), Arc::clone(&self.damage));
        Some(Box::new(rows.filter_map(move |row| {
            let _kept = &keyspace;
            let (key, value) = match row {
                Ok((key, value)) => (Bytes::from(key), Bytes::from(value)),
                Err(error) => return Some(Err(damage.failed(error))),
            };
            let table = Table::ALL.get(usize::from(*key.first()?))?;
            Some(Ok((*table, key.slice(1..), value)))
        })))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Self::get(self, &key_of(table, key)?)
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let (start, end) = (key_of(table, start)?, end_of(table, end)?);
        if start >= end {
            return Ok(());
        }
        for row in self.range(start, end) {
            let (key, value) = row?;
            if each(&key.slice(1..), &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }
}

/// Tables on disk.
pub struct Disk {
    database: Database,
    /// What was written; other than `view` only while all rows are replaced.
    written: Arc<Committed>,
    view: Arc<Committed>,
    /// The keyspace of the view, for who rewrites its files.
    shown: Arc<Mutex<Keyspace>>,
    /// Changes since then; `None` takes a row out.
    pending: BTreeMap<Bytes, Option<Bytes>>,
    pending_bytes: usize,
    applied: u64,
    /// Keyspaces that are given up with the next commit.
    replaced: Vec<Keyspace>,
    /// The next one, if it is there already; without rows.
    spare: Option<Keyspace>,
    /// Of the newest one.
    number: u64,
    damage: Arc<Damage>,
}

impl Disk {
    /// Opens the directory, or makes it. `cache_bytes` is for what was read.
    ///
    /// Nothing is synced at a commit, so that a power cut may leave files that fjall refuses for ever, and a disk may change what it has. Such
    /// files are moved aside, and the state begins empty, as another storage would: [`Storage::applied`] is 0, and snapshots and the log do
    /// it all again. Where they are found later than here, that is done at the next start.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StorageError> {
        let said = |error: &dyn std::fmt::Display| StorageError(format!("{}: {error}", directory.display()));
        let damage = Arc::new(Damage::of(directory));
        let noted = damage.noted();
        let error = match noted {
            Noted::Damage(found) => found,
            Noted::Nothing | Noted::Doubt => {
                let opened = Self::try_open(directory, cache_bytes, &damage);
                let opened = opened.and_then(|disk| match noted {
                    Noted::Doubt => disk.read_all().map(|()| disk),
                    _ => Ok(disk),
                });
                match opened {
                    Err(error) if is_damage(&error) => error.to_string(),
                    Err(
                        error @ (fjall::Error::InvalidVersion(_) | fjall::Error::Storage(LsmError::InvalidVersion(_))),
                    ) => {
                        let remedy = "another release wrote it: start that one, or move the directory away: the log has all of it";
                        return Err(said(&format!("{error}: {remedy}")));
                    }
                    Err(error) => return Err(said(&error)),
                    Ok(disk) => {
                        damage.forget();
                        return Ok(disk);
                    }
                }
            }
        };
        let aside = move_aside(directory).map_err(|why| said(&format!("{error}; it cannot be moved aside: {why}")))?;
        let aside = aside.display();
        tracing::warn!(%error, %aside, "the state on disk is damaged: moved aside, and made again from the log");
        damage.forget();
        Self::try_open(directory, cache_bytes, &damage).map_err(|error| said(&error))
    }

    /// Whether all of it can be read.
    fn read_all(&self) -> fjall::Result<()> {
        self.keyspace().iter().try_for_each(|row| row.into_inner().map(drop))
    }

    fn try_open(directory: &Path, cache_bytes: u64, damage: &Arc<Damage>) -> fjall::Result<Self> {
        let database = Database::builder(directory)
            .cache_size(cache_bytes)
            .manual_journal_persist(true)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(WORKERS)
            .open()?;
        let mut found = Vec::new();
        for name in database.list_keyspace_names() {
            let keyspace = keyspace(&database, &name)?;
            match name.strip_prefix(NAME).and_then(|number| number.parse::<u64>().ok()) {
                Some(number) => found.push((number, applied(&keyspace)?, keyspace)),
                None => database.delete_keyspace(keyspace)?,
            }
        }
        found.sort_unstable_by_key(|(number, ..)| std::cmp::Reverse(*number));
        let (mut current, mut begun, mut given_up) = (None, None, Vec::new());
        for (number, applied, rows) in found {
            match applied {
                Some(applied) if current.is_none() => current = Some((number, applied, rows)),
                // Nobody finished it; there is none that is newer.
                None if current.is_none() && begun.is_none() => begun = Some((number, rows)),
                // It was replaced, or something newer was begun after it.
                _ => given_up.push(rows),
            }
        }
        let (newest, spare) = match begun {
            Some((number, rows)) if rows.is_empty()? => (number, Some(rows)),
            Some((number, rows)) => {
                given_up.push(rows);
                (number + 1, Some(keyspace(&database, &name_of(number + 1))?))
            }
            None => (current.as_ref().map_or(0, |(number, ..)| *number), None),
        };
        // Only now that there is one that is newer than any of them.
        for rows in given_up {
            database.delete_keyspace(rows)?;
        }
        let ((applied, keyspace), spare) = match (current, spare) {
            (Some((_, applied, rows)), spare) => ((applied, rows), spare),
            (None, Some(rows)) => ((0, rows), None),
            (None, None) => ((0, keyspace(&database, &name_of(1))?), None),
        };
        let number = newest.max(1);
        let shown = Arc::new(Mutex::new(keyspace.clone()));
        let written = Committed::now(&database, keyspace, damage);
        // Journals count what was written: without them, nothing of it would be seen.
        if applied > 0 && database.snapshot().get(&written.keyspace, APPLIED)?.is_none() {
            return Err(fjall::Error::Unrecoverable);
        }
        let view = Arc::clone(&written);
        let (pending, replaced) = (BTreeMap::new(), Vec::new());
        let damage = Arc::clone(damage);
        Ok(Self { database, written, view, shown, pending, pending_bytes: 0, applied, replaced, spare, number, damage })
    }

    fn keyspace(&self) -> &Keyspace {
        &self.written.keyspace
    }

    /// Writes what is pending, as one.
    fn write(&mut self, applied: Option<u64>) -> Result<(), StorageError> {
        self.try_write(applied).map_err(|error| self.damage.failed(error))
    }

    fn try_write(&mut self, applied: Option<u64>) -> fjall::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), pending.len() + 1);
        for (key, value) in pending {
            match value {
                Some(value) => batch.insert(self.keyspace(), key, value),
                None => batch.remove(self.keyspace(), key),
            }
        }
        if let Some(applied) = applied {
            batch.insert(self.keyspace(), APPLIED, applied.to_le_bytes());
        }
        batch.commit()?;
        // It is told that the memtable is full, and may be slow to hear of it: then who writes does not go on filling it.
        if self.keyspace().tree.active_memtable().size() > MEMTABLE_BYTES + MEMTABLE_BYTES / 2 {
            self.keyspace().rotate_memtable()?;
        }
        self.written = Committed::now(&self.database, self.keyspace().clone(), &self.damage);
        Ok(())
    }

    fn change(&mut self, key: Bytes, value: Option<Bytes>) -> Result<(), StorageError> {
        self.pending_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.pending.insert(key, value);
        if self.pending_bytes > PENDING_BYTES_MAX && !self.replaced.is_empty() { self.write(None) } else { Ok(()) }
    }
}

fn name_of(number: u64) -> String {
    format!("{NAME}{number}")
}

fn keyspace(database: &Database, name: &str) -> fjall::Result<Keyspace> {
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    database.keyspace(name, options)
}

/// Up to which entry a keyspace has everything, if it is whole.
fn applied(keyspace: &Keyspace) -> fjall::Result<Option<u64>> {
    let Some(row) = keyspace.get(APPLIED)? else { return Ok(None) };
    let number = row.first_chunk().ok_or(fjall::Error::Unrecoverable)?;
    Ok(Some(u64::from_le_bytes(*number)))
}

impl Rows for Disk {
    fn rows_of_a_look(&self) -> usize {
        ROWS_OF_A_LOOK
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let key = key_of(table, key)?;
        self.pending.get(&key).map_or_else(|| self.written.get(&key), |value| Ok(value.clone()))
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let (start, end) = (key_of(table, start)?, end_of(table, end)?);
        if start >= end {
            return Ok(());
        }
        let changes = (Bound::Included(start.clone()), Bound::Excluded(end.clone()));
        let mut changes = self.pending.range(changes).peekable();
        let mut written = self.written.range(start, end);
        let mut next = written.next().transpose()?;
        loop {
            let change = changes.peek().copied();
            let is_change_first = match (&next, change) {
                (None, None) => return Ok(()),
                (Some((key, _)), Some((changed, _))) => changed <= key,
                (None, Some(_)) => true,
                (Some(_), None) => false,
            };
            let (key, value) = match (change, next.take()) {
                (Some((key, value)), before) if is_change_first => {
                    changes.next();
                    let is_same = before.as_ref().is_some_and(|(other, _)| other == key);
                    next = if is_same { written.next().transpose()? } else { before };
                    (key.clone(), value.clone())
                }
                (_, Some((key, value))) => {
                    next = written.next().transpose()?;
                    (key, Some(value))
                }
                (_, None) => return Ok(()),
            };
            if let Some(value) = value
                && each(&key.slice(1..), &value) == ControlFlow::Break(())
            {
                return Ok(());
            }
        }
    }
}

impl Storage for Disk {
    fn put(&mut self, table: Table, key: Bytes, value: Bytes) -> Result<(), StorageError> {
        self.change(key_of(table, &key)?, Some(value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.change(key_of(table, key)?, None)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        if self.damage.is_found() {
            // By a reader. What it asked for is not to be had before the next start.
            return Err(StorageError(
                "its files are damaged; start again: they are moved aside, and made again from the log".into(),
            ));
        }
        self.write(Some(applied))?;
        self.applied = applied;
        self.view = Arc::clone(&self.written);
        if !self.replaced.is_empty() {
            *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.keyspace().clone();
        }
        for keyspace in self.replaced.drain(..) {
            // Its files go when the last reader has gone.
            self.database.delete_keyspace(keyspace).map_err(|error| self.damage.failed(error))?;
        }
        Ok(())
    }

    fn is_under_pressure(&self) -> bool {
        self.keyspace().sealed_memtable_count() >= MEMTABLES_WAITING
            || self.keyspace().l0_table_count() >= FILES_WAITING
    }

    fn defragmentation(&self) -> Option<Defragmentation> {
        let (shown, damage) = (Arc::clone(&self.shown), Arc::clone(&self.damage));
        Some(Arc::new(move || {
            let failed = |error: fjall::Error| damage.failed(error);
            let keyspace = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Rows that are in memory yet may replace some of those in files.
            keyspace.rotate_memtable().map_err(failed)?;
            let deadline = Instant::now() + WRITE_TIMEOUT;
            while keyspace.sealed_memtable_count() > 0 {
                if Instant::now() > deadline {
                    return Err(StorageError(
                        "what is in memory cannot be written: see that its disk has room and is sound".into(),
                    ));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let before_bytes = keyspace.disk_space();
            keyspace.major_compact().map_err(failed)?;
            Ok(Defragmented { before_bytes, after_bytes: keyspace.disk_space() })
        }))
    }

    fn applied(&self) -> u64 {
        self.applied
    }

    fn view(&self) -> Arc<dyn Rows + Send + Sync> {
        Arc::clone(&self.view) as _
    }

    fn clear(&mut self) -> Result<(), StorageError> {
        self.pending.clear();
        (self.applied, self.pending_bytes) = (0, 0);
        self.replaced.push(self.keyspace().clone());
        let keyspace = match self.spare.take() {
            Some(spare) => spare,
            None => {
                self.number += 1;
                keyspace(&self.database, &name_of(self.number)).map_err(|error| self.damage.failed(error))?
            }
        };
        self.written = Committed::now(&self.database, keyspace, &self.damage);
        self.view.snapshot.store(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
