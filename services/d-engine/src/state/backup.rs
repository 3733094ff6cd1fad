//! A state in a file, to be kept elsewhere and to begin another group with.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 24 | what it is | `storebench-d-engine-bk1` and a line feed |
//! | 8 | index | little-endian: all entries up to it are in the state; revisions are at most this |
//! | | state | as a snapshot has it, without what the group knew of its members |
//! | 4 | checksum | CRC-32C of all before |

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use super::snapshot::{self, SnapshotError};
use super::storage::{ROW_KEY_BYTES_MAX, Rows, Storage, StorageError, Table};

const HEAD: &[u8; 24] = b"storebench-d-engine-bk1\n";
const FRONT_BYTES: u64 = 32;
const CHECKSUM_BYTES: u64 = 4;
/// Behind it there is room for all entries that a group may ever have.
const INDEX_MAX: u64 = 1 << 62;

/// A file that is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is something else.
    #[error("it is no backup of this release")]
    Foreign,
    /// It is cut off, or was changed.
    #[error("it is damaged or cut off: its checksum is wrong; take another copy")]
    Checksum,
    /// No group has written it.
    #[error("its index is {0}, which no group reaches: d-engine has not written it so; take another one")]
    Index(u64),
    /// No storage takes it.
    #[error("it has a key of {0} bytes, which no member stores: d-engine has not written it so; take another one")]
    Key(usize),
    /// What is in it.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Where it goes.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What a backup has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// All entries up to it are in the state.
    pub index: u64,
    /// How many keys there are.
    pub keys: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Of all but itself.
    pub checksum: u32,
}

/// Passes bytes on, and takes their checksum.
struct Checked<T> {
    inner: T,
    checksum: u32,
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes[..read]);
        Ok(read)
    }
}

/// Writes a view's rows, and does not keep the view for all that time.
pub fn save(rows: Arc<dyn Rows + Send + Sync>, index: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Checked { inner: out, checksum: 0 };
    out.write_all(HEAD)?;
    out.write_all(&index.to_le_bytes())?;
    snapshot::write_tables(rows, &|table| table != Table::Members, &mut out)?;
    let checksum = out.checksum.to_le_bytes();
    out.inner.write_all(&checksum)?;
    out.inner.flush()
}

/// Reads all of it, and hands out its rows; what was handed out counts only when this succeeds.
fn read(
    path: &Path,
    mut each: impl FnMut(Table, bytes::Bytes, bytes::Bytes) -> Result<(), StorageError>,
) -> Result<Backup, BackupError> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let Some(content) = bytes.checked_sub(CHECKSUM_BYTES).filter(|content| *content >= FRONT_BYTES) else {
        return Err(BackupError::Foreign);
    };
    let mut file = BufReader::new(file);
    let mut checked = Checked { inner: (&mut file).take(content), checksum: 0 };
    let (mut head, mut index) = ([0; HEAD.len()], [0; 8]);
    checked.read_exact(&mut head)?;
    if head != *HEAD {
        return Err(BackupError::Foreign);
    }
    checked.read_exact(&mut index)?;
    let index = u64::from_le_bytes(index);
    let (mut keys, mut longest) = (0, 0);
    let rows = snapshot::read_each(&mut checked, |table, key, value| {
        keys += u64::from(table == Table::Keys);
        longest = longest.max(key.len());
        // It is refused below: first it is seen whether it is damaged.
        if key.len() > ROW_KEY_BYTES_MAX { Ok(()) } else { each(table, key, value) }
    });
    // Damage shows in the rows or behind them: what is said of it is the same.
    if rows.is_err() {
        io::copy(&mut checked, &mut io::sink())?;
    }
    let checksum = checked.checksum;
    let mut expected = [0; CHECKSUM_BYTES as usize];
    file.read_exact(&mut expected)?;
    if checksum != u32::from_le_bytes(expected) {
        return Err(BackupError::Checksum);
    }
    rows?;
    if index > INDEX_MAX {
        return Err(BackupError::Index(index));
    }
    if longest > ROW_KEY_BYTES_MAX {
        return Err(BackupError::Key(longest));
    }
    Ok(Backup { index, keys, bytes, checksum })
}

/// Whether a file is a backup, whole and as it was written; and what it has.
pub fn verify(path: &Path) -> Result<Backup, BackupError> {
    read(path, |_, _, _| Ok(()))
}

/// The checksum that a file says it has, without a look at the rest of it.
pub fn told_checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-(CHECKSUM_BYTES as i64)))?;
    let mut told = [0; CHECKSUM_BYTES as usize];
    file.read_exact(&mut told)?;
    Ok(u32::from_le_bytes(told))
}

/// Replaces everything in a storage by what a backup has. It is as before any entry all the same: entries that are applied are of another
/// log.
pub fn restore(path: &Path, storage: &mut impl Storage) -> Result<Backup, BackupError> {
    storage.clear()?;
    let backup = read(path, |table, key, value| storage.put(table, key, value))?;
    storage.commit(0)?;
    Ok(backup)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Memory;

    /// The member panicked when it began with one of these, whose checksums are right.
    #[test]
    fn a_backup_that_no_group_has_written_is_refused_before_a_member_begins_with_it() {
        let folder = harness::folder();
        let path = folder.path().join("backup");
        let verified = |index, key: usize| {
            let mut rows = Memory::default();
            rows.put(Table::Keys, vec![b'k'; key].into(), vec![0; 16].into()).unwrap();
            rows.commit(1).unwrap();
            save(rows.view(), index, &mut File::create(&path).unwrap()).unwrap();
            let restored = restore(&path, &mut Memory::default()).map_err(|error| error.to_string());
            assert_eq!(verify(&path).map_err(|error| error.to_string()), restored);
            if let Ok(backup) = &restored {
                assert_eq!(told_checksum(&path).ok(), Some(backup.checksum));
            }
            restored.map(|backup| backup.keys)
        };
        assert_eq!((verified(INDEX_MAX, 1), verified(5, ROW_KEY_BYTES_MAX)), (Ok(1), Ok(1)));
        assert!(verified(u64::MAX, 1).unwrap_err().contains("its index is 18446744073709551615"));
        assert!(verified(INDEX_MAX + 1, 1).is_err());
        assert!(verified(5, 70_000).unwrap_err().contains("a key of 70000 bytes"));
    }
}
