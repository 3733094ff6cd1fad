//! Tables on disk, in an LSM tree (fjall): more rows than memory holds, and there again after a restart without the log being applied
//! anew.
//!
//! All tables are one keyspace, each row's key behind its table's number, and so is the index of the entry up to which all was applied: a
//! commit is one batch of one journal, which is found whole or not at all. The engine syncs nothing at a commit. A crash may cost the
//! last commits, and never one from among others; the log has what they did, and is the only thing that is synced for an acknowledgement.
//!
//! Rows that replace all others are put into a keyspace of their own, which counts once it has an index: what was there before stays
//! until then, for readers and for a restart.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, Readable, Snapshot};

use super::storage::{EachRow, Rows, Storage, StorageError, Table};

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
/// Threads that write memtables and merge files.
const WORKERS: usize = 2;

fn failed(error: impl std::fmt::Display) -> StorageError {
    StorageError(format!(
        "{error}; see that its disk has room and is sound, then start again: the log has what is missing"
    ))
}

/// A row's key in the keyspace.
fn key_of(table: Table, key: &[u8]) -> Bytes {
    [&[table.number() as u8], key].concat().into()
}

/// The end of a range of a table.
fn end_of(table: Table, end: Option<&[u8]>) -> Bytes {
    end.map_or_else(|| Bytes::copy_from_slice(&[table.number() as u8 + 1]), |end| key_of(table, end))
}

/// Rows of one moment.
struct Committed {
    keyspace: Keyspace,
    snapshot: Snapshot,
}

impl Committed {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.snapshot.get(&self.keyspace, key).map_err(failed)?.map(Bytes::from))
    }

    fn range(&self, start: Bytes, end: Bytes) -> impl Iterator<Item = Result<(Bytes, Bytes), StorageError>> + use<> {
        let rows = self.snapshot.range(&self.keyspace, start..end);
        rows.map(|row| row.into_inner().map(|(key, value)| (key.into(), value.into())).map_err(failed))
    }
}

impl Rows for Committed {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Self::get(self, &key_of(table, key))
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let (start, end) = (key_of(table, start), end_of(table, end));
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
}

impl Disk {
    /// Opens the directory, or makes it. `cache_bytes` is for what was read.
    ///
    /// Nothing is synced at a commit, so that a power cut may leave files that fjall refuses for ever. These are moved aside, and the
    /// state begins empty, as another storage would: [`Storage::applied`] is 0, and snapshots and the log do it all again.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, StorageError> {
        let opened = match Self::try_open(directory, cache_bytes) {
            Err(error) if is_damage(&error) => {
                let aside = move_aside(directory).map_err(|why| {
                    StorageError(format!("{}: {error}; it cannot be moved aside: {why}", directory.display()))
                })?;
                let aside = aside.display();
                tracing::warn!(%error, %aside, "the state on disk is damaged: moved aside, and made again from the log");
                Self::try_open(directory, cache_bytes)
            }
            opened => opened,
        };
        opened.map_err(|error| StorageError(format!("{}: {error}", directory.display())))
    }

    fn try_open(directory: &Path, cache_bytes: u64) -> fjall::Result<Self> {
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
        let (mut current, mut spare) = (None, None);
        for (number, applied, keyspace) in found {
            match applied {
                Some(applied) if current.is_none() => current = Some((number, applied, keyspace)),
                // Nobody finished it. It is used again, and not deleted: fjall gives the identity of the newest keyspace to another one
                // once it was deleted, and then takes that for deleted, too.
                None if current.is_none() && spare.is_none() => spare = Some((number, keyspace)),
                // It was replaced, or something newer was begun after it.
                _ => database.delete_keyspace(keyspace)?,
            }
        }
        if let Some((_, spare)) = &spare
            && !spare.is_empty()?
        {
            spare.clear()?;
        }
        let newest = spare.as_ref().map(|(number, _)| *number);
        let (number, applied, keyspace) = match current {
            Some(current) => current,
            None => match spare.take() {
                Some((number, keyspace)) => (number, 0, keyspace),
                None => (1, 0, keyspace(&database, &format!("{NAME}1"))?),
            },
        };
        let number = newest.unwrap_or(number);
        let written = Arc::new(Committed { keyspace, snapshot: database.snapshot() });
        let view = Arc::clone(&written);
        let (pending, replaced) = (BTreeMap::new(), Vec::new());
        let spare = spare.map(|(_, keyspace)| keyspace);
        Ok(Self { database, written, view, pending, pending_bytes: 0, applied, replaced, spare, number })
    }

    fn keyspace(&self) -> &Keyspace {
        &self.written.keyspace
    }

    /// Writes what is pending, as one.
    fn write(&mut self, applied: Option<u64>) -> Result<(), StorageError> {
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
        batch.commit().map_err(failed)?;
        let keyspace = self.keyspace().clone();
        self.written = Arc::new(Committed { keyspace, snapshot: self.database.snapshot() });
        Ok(())
    }

    fn change(&mut self, key: Bytes, value: Option<Bytes>) -> Result<(), StorageError> {
        self.pending_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.pending.insert(key, value);
        if self.pending_bytes > PENDING_BYTES_MAX && !self.replaced.is_empty() { self.write(None) } else { Ok(()) }
    }
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

/// Whether files are not what was written. Not so where another has them open, where they are of another release, or where the disk
/// fails: opening them later, or elsewhere, may succeed.
fn is_damage(error: &fjall::Error) -> bool {
    use fjall::{Error, LsmError};
    let is_cut_off = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
    };
    match error {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => is_cut_off(error),
        Error::Storage(error) => !matches!(error, LsmError::InvalidVersion(_)),
        Error::JournalRecovery(_)
        | Error::Decompress(_)
        | Error::InvalidTrailer
        | Error::InvalidTag(_)
        | Error::Unrecoverable => true,
        _ => false,
    }
}

/// Renames the directory and makes it again, as private as it was. What was moved aside before goes: it is of no more use.
fn move_aside(directory: &Path) -> io::Result<PathBuf> {
    let permissions = std::fs::metadata(directory)?.permissions();
    // Without a slash at its end.
    let mut aside = directory.components().collect::<PathBuf>().into_os_string();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    match std::fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::rename(directory, &aside)?;
    std::fs::create_dir(directory)?;
    std::fs::set_permissions(directory, permissions)?;
    Ok(aside)
}

impl Rows for Disk {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let key = key_of(table, key);
        self.pending.get(&key).map_or_else(|| self.written.get(&key), |value| Ok(value.clone()))
    }

    fn scan(&self, table: Table, start: &[u8], end: Option<&[u8]>, each: &mut EachRow<'_>) -> Result<(), StorageError> {
        let (start, end) = (key_of(table, start), end_of(table, end));
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
        self.change(key_of(table, &key), Some(value))
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StorageError> {
        self.change(key_of(table, key), None)
    }

    fn commit(&mut self, applied: u64) -> Result<(), StorageError> {
        self.write(Some(applied))?;
        self.applied = applied;
        self.view = Arc::clone(&self.written);
        for keyspace in self.replaced.drain(..) {
            // Its files go when the last reader has gone.
            self.database.delete_keyspace(keyspace).map_err(failed)?;
        }
        Ok(())
    }

    fn is_under_pressure(&self) -> bool {
        self.keyspace().sealed_memtable_count() >= MEMTABLES_WAITING
            || self.keyspace().l0_table_count() >= FILES_WAITING
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
                keyspace(&self.database, &format!("{NAME}{}", self.number)).map_err(failed)?
            }
        };
        self.written = Arc::new(Committed { keyspace, snapshot: self.database.snapshot() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
