//! The user's three files: database, `-wal`, `-shm`. Opened for reading, read by position, never mapped.

pub use crate::paths::{sqlite_uri, with_suffix};

use crate::descriptor::{self, Descriptor, Identity, open_regular};
use crate::pin::read_transaction::ReadTransactionPin;
use crate::pin::{Life, LockPin, Pin, PinKind, is_in_use, is_watched, without_locks};
use crate::source::Source;
use crate::wal_index::WalIndex;
use crate::wal_reader::ReadAt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of one database.
pub struct DatabaseFiles {
    /// As it was given: links in it may be turned to another database.
    given: PathBuf,
    /// Without links.
    path: PathBuf,
    database: Descriptor,
    wal: Option<Descriptor>,
    index: Option<Descriptor>,
    identity: [Option<Identity>; 3],
    /// Of the index, as the pin witnesses it.
    life: Life,
}

/// A WAL of which its index tells nothing: somebody was killed while he wrote that, or removed it. Then its size and its time of change say
/// whether something was committed.
#[derive(Default)]
pub struct Unread {
    wal: Option<(u64, i64, i64)>,
    /// It was so at two looks: times are told by ticks of a clock, and it may be written twice within one.
    is_settled: bool,
}

impl Unread {
    /// Whether something may have been committed, the WAL being like this now.
    pub fn may_have_changed(&mut self, wal: Option<(u64, i64, i64)>) -> bool {
        let is_same = self.wal == wal;
        let changed = wal.is_some() && !(is_same && self.is_settled);
        *self = Unread { wal, is_settled: is_same };
        changed
    }
}

fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(descriptor::identity(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn state(metadata: &std::fs::Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

impl DatabaseFiles {
    /// Opens what there is at `path`, following symbolic links as SQLite does. The database must be there.
    pub fn open(given: &Path) -> io::Result<DatabaseFiles> {
        let path = given.canonicalize().map_err(|error| descriptor::told(given, error))?;
        let (wal_path, index_path) = (with_suffix(&path, "-wal"), with_suffix(&path, "-shm"));
        let identity = [identity(&path)?, identity(&wal_path)?, identity(&index_path)?];
        let database = Descriptor::open(&path)?.ok_or(io::ErrorKind::NotFound)?;
        let (wal, index) = (Descriptor::open(&wal_path)?, Descriptor::open(&index_path)?);
        Ok(DatabaseFiles { given: given.to_owned(), path, database, wal, index, identity, life: Life::default() })
    }

    /// Whether the database file still has a name: one that another was renamed over has none. Costs no look at a path, of which
    /// [`Source::is_current`] has three.
    pub fn has_name(&self) -> io::Result<bool> {
        Ok(self.database.metadata()?.nlink() > 0)
    }

    /// Size and time of change of the WAL, where there is one.
    pub fn wal_state(&self) -> io::Result<Option<(u64, i64, i64)>> {
        self.wal.as_ref().map(|wal| Ok(state(&wal.metadata()?))).transpose()
    }

    /// Whether `other` is the same database file, whatever became of its WAL.
    pub fn is_same_database(&self, other: &DatabaseFiles) -> bool {
        self.identity[0] == other.identity[0]
    }

    /// Whether the WAL that was here is not the one of `now`, opened later.
    pub fn has_lost_wal(&self, now: &DatabaseFiles) -> bool {
        self.identity[1].is_some() && self.identity[1] != now.identity[1]
    }

    /// Whether the index that was here is not the one of `now`, opened later.
    pub fn has_lost_index(&self, now: &DatabaseFiles) -> bool {
        self.identity[2].is_some() && self.identity[2] != now.identity[2]
    }

    /// Whether there is neither a WAL nor an index.
    pub fn is_alone(&self) -> bool {
        self.wal.is_none() && self.index.is_none()
    }

    /// Whether somebody has the index in use that was here. Asked where no pin of ours, of that kind, holds it.
    pub fn is_index_in_use(&self, kind: PinKind) -> io::Result<bool> {
        self.index.as_ref().map_or(Ok(false), |index| is_in_use(index, kind))
    }

    /// Whether another process watches it, on this machine.
    pub fn is_watched(&self) -> io::Result<bool> {
        is_watched(&self.database)
    }

    /// What can hold this database, and why it is not locks where it is not: the kind that is wanted, or else locks where they work.
    pub fn pin_kind(&self, wanted: Option<PinKind>) -> io::Result<(PinKind, Option<String>)> {
        if wanted == Some(PinKind::ReadTransaction) {
            return Ok((PinKind::ReadTransaction, None));
        }
        let Some(error) = without_locks(&self.database)? else { return Ok((PinKind::Locks, None)) };
        let why = format!("open-file-description locks do not work here: {}", error.desc());
        if wanted == Some(PinKind::Locks) {
            return Err(io::Error::other(format!("{why}; leave out pin: locks, or say pin: read-transaction")));
        }
        Ok((PinKind::ReadTransaction, Some(why)))
    }

    /// A pin that holds nothing yet. Of two by a read transaction on one database the first must be gone before the second holds anything.
    pub fn pin(&self, kind: PinKind) -> io::Result<Box<dyn Pin>> {
        if kind == PinKind::ReadTransaction {
            let (database, index) = (self.database.share(), self.index.as_ref().map(Descriptor::share));
            return Ok(Box::new(ReadTransactionPin::new(self.path.clone(), database, index, self.life.clone())));
        }
        // Descriptions of its own: what is locked by one is seen by no other.
        let index = match &self.index {
            None => None,
            Some(_) => match open_regular(&with_suffix(&self.path, "-shm")) {
                Ok(index) => Some(index),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            },
        };
        Ok(Box::new(LockPin::new(open_regular(&self.path)?, index, self.life.clone())))
    }
}

impl Source for DatabaseFiles {
    fn is_current(&self) -> io::Result<bool> {
        let paths = [self.given.clone(), with_suffix(&self.path, "-wal"), with_suffix(&self.path, "-shm")];
        for (path, opened) in paths.iter().zip(self.identity) {
            if identity(path)? != opened {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn database(&self) -> &dyn ReadAt {
        &*self.database
    }

    fn database_state(&self) -> io::Result<(u64, i64, i64)> {
        Ok(state(&self.database.metadata()?))
    }

    fn wal(&self) -> Option<&dyn ReadAt> {
        self.wal.as_ref().map(|file| &**file as &dyn ReadAt)
    }

    fn wal_index(&self) -> io::Result<Option<WalIndex>> {
        let index = self.index.as_deref().map_or(Ok(None), WalIndex::read)?;
        Ok(index.map(|index| WalIndex { life: self.life.number(), ..index }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wal_that_may_be_written_twice_within_a_tick_of_the_clock_is_looked_at_once_more() {
        let mut unread = Unread::default();
        let mut looks = |wal| (0..4).map(|_| unread.may_have_changed(wal)).collect::<Vec<_>>();
        assert_eq!(looks(Some((1, 2, 3))), [true, true, false, false]);
        assert_eq!(looks(Some((1, 2, 4))), [true, true, false, false]);
        assert_eq!(looks(None), [false; 4], "there is nothing to read");
    }
}
