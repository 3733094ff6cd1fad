//! The user's three files: database, `-wal`, `-shm`. Opened for reading, read by position, never mapped.

use crate::pin::{LockPin, Pin};
use crate::source::Source;
use crate::wal_index::{WAL_INDEX_BYTES, WalIndex};
use crate::wal_reader::ReadAt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of one database.
pub struct DatabaseFiles {
    path: PathBuf,
    database: File,
    wal: Option<File>,
    index: Option<File>,
    identity: [Option<(u64, u64)>; 3],
}

/// `name` and a suffix, as SQLite names files: the whole name, whatever its extension.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl DatabaseFiles {
    /// Opens what there is at `path`, following symbolic links as SQLite does. The database must be there.
    pub fn open(path: &Path) -> io::Result<DatabaseFiles> {
        let path = path.canonicalize()?;
        let (wal_path, index_path) = (with_suffix(&path, "-wal"), with_suffix(&path, "-shm"));
        let identity = [identity(&path)?, identity(&wal_path)?, identity(&index_path)?];
        let database = File::open(&path)?;
        Ok(DatabaseFiles { database, wal: open(&wal_path)?, index: open(&index_path)?, path, identity })
    }

    /// Whether `other` is the same database file, whatever became of its WAL.
    pub fn is_same_database(&self, other: &DatabaseFiles) -> bool {
        self.identity[0] == other.identity[0]
    }

    /// A pin with descriptors of its own.
    pub fn pin(&self) -> io::Result<Box<dyn Pin>> {
        let index = if self.index.is_some() { open(&with_suffix(&self.path, "-shm"))? } else { None };
        Ok(Box::new(LockPin::new(File::open(&self.path)?, index)))
    }
}

impl Source for DatabaseFiles {
    fn is_current(&self) -> io::Result<bool> {
        let paths = [self.path.clone(), with_suffix(&self.path, "-wal"), with_suffix(&self.path, "-shm")];
        for (path, opened) in paths.iter().zip(self.identity) {
            if identity(path)? != opened {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn database(&self) -> &dyn ReadAt {
        &self.database
    }

    fn database_state(&self) -> io::Result<(u64, i64, i64)> {
        let metadata = self.database.metadata()?;
        Ok((metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }

    fn wal(&self) -> Option<&dyn ReadAt> {
        self.wal.as_ref().map(|file| file as &dyn ReadAt)
    }

    fn wal_index(&self) -> io::Result<Option<WalIndex>> {
        let Some(index) = &self.index else { return Ok(None) };
        let mut bytes = [0; WAL_INDEX_BYTES];
        let length = ReadAt::read_at(index, 0, &mut bytes)?;
        Ok(if length == bytes.len() { WalIndex::decode(&bytes) } else { None })
    }
}
