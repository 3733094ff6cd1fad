//! Files that are not what was written: how that is told from a disk that fails, and what becomes of them. They are moved aside at the next
//! start, and the state begins empty: snapshots and the log have all of it.
//!
//! Damage that is found while rows are read or written, long after a start, is written down beside the directory: the next start would find
//! nothing wrong with files whose blocks it does not read, and the member would end in the same place again. Files that fjall's own threads
//! could not go on with may be damaged, or their disk was full: the next start reads all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::storage::StorageError;

/// Whether files are not what was written. Not so where another has them open, where they are of another release, or where the disk
/// fails: opening them later, or elsewhere, may succeed.
pub(super) fn is_damage(error: &fjall::Error) -> bool {
    use fjall::{Error, LsmError};
    use io::ErrorKind::{AlreadyExists, InvalidData, InvalidInput, NotFound, UnexpectedEof};
    // A place before the beginning of a file that is empty, and what is begun anew where something is, too.
    let is_cut_off = |error: &io::Error| {
        matches!(error.kind(), AlreadyExists | InvalidData | InvalidInput | NotFound | UnexpectedEof)
    };
    match error {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => is_cut_off(error),
        Error::Storage(error) => !matches!(error, LsmError::InvalidVersion(_)),
        Error::InvalidVersion(None)
        | Error::JournalRecovery(_)
        | Error::Decompress(_)
        | Error::InvalidTrailer
        | Error::InvalidTag(_)
        | Error::Unrecoverable => true,
        _ => false,
    }
}

/// What the member before this one has written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    Nothing,
    /// All of it must be read before it is gone on with.
    Doubt,
    /// What was found.
    Damage(String),
}

const DOUBT: &str = "doubt";

/// What is found wrong with files of a directory.
pub(super) struct Damage {
    note: PathBuf,
    is_found: AtomicBool,
}

impl Damage {
    pub(super) fn of(directory: &Path) -> Self {
        Self { note: beside(directory, ".is-damaged"), is_found: AtomicBool::new(false) }
    }

    pub(super) fn noted(&self) -> Noted {
        match std::fs::read_to_string(&self.note) {
            Err(_) => Noted::Nothing,
            // One that was cut off by a full disk, too.
            Ok(text) if text.is_empty() || text == DOUBT => Noted::Doubt,
            Ok(text) => Noted::Damage(text),
        }
    }

    /// What was written down has been looked at.
    pub(super) fn forget(&self) {
        if let Err(error) = std::fs::remove_file(&self.note)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, file = %self.note.display(), "a note of damaged files cannot be removed");
        }
    }

    /// Whether something was found since the start.
    pub(super) fn is_found(&self) -> bool {
        self.is_found.load(Ordering::Relaxed)
    }

    /// What is said of an error, and written down where it is more than one of the moment.
    pub(super) fn failed(&self, error: impl Into<fjall::Error>) -> StorageError {
        let error = error.into();
        if !is_damage(&error) {
            if matches!(error, fjall::Error::Poisoned) && !self.note.exists() {
                self.write(DOUBT);
            }
            return StorageError(format!(
                "{error}; see that its disk has room and is sound, then start again: the log has what is missing"
            ));
        }
        self.is_found.store(true, Ordering::Relaxed);
        self.write(&error.to_string());
        StorageError(format!(
            "{error}: its files are damaged; start again: they are moved aside, and made again from the log"
        ))
    }

    fn write(&self, text: &str) {
        if let Err(error) = std::fs::write(&self.note, text) {
            tracing::warn!(%error, file = %self.note.display(), "that files are damaged cannot be written down");
        }
    }
}

fn beside(directory: &Path, ending: &str) -> PathBuf {
    // Without a slash at its end.
    let mut beside = directory.components().collect::<PathBuf>().into_os_string();
    beside.push(ending);
    beside.into()
}

/// Renames the directory and makes it again, as private as it was. What was moved aside before goes: it is of no more use.
pub(super) fn move_aside(directory: &Path) -> io::Result<PathBuf> {
    let permissions = std::fs::metadata(directory)?.permissions();
    let aside = beside(directory, ".damaged");
    match std::fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::rename(directory, &aside)?;
    std::fs::create_dir(directory)?;
    std::fs::set_permissions(directory, permissions)?;
    Ok(aside)
}
