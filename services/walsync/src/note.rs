//! The note beside a database that follows: which replica, and how far.
//!
//! Text, five lines at most, replaced as a whole: `walsync follows 1`, `place PLACE`, `applied TXID at MILLIS`, `inode NUMBER`, and while a
//! transaction is under way `applying TXID`. Older notes have no time, or no inode.

use crate::paths::with_suffix;
use service_kit::directory::{sync_name, write_whole};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "walsync follows 1";

/// A note that cannot be read, or means another database or another replica.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct NoteError(pub PathBuf, pub String);

/// Where a database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The replica, as it was named.
    pub place: String,
    /// The state is at least that after this transaction.
    pub applied: u64,
    /// Unix time of its commit in milliseconds, which tells it from that of another replica under the same number; `None` where an older
    /// walsync wrote the note.
    pub applied_millis: Option<i64>,
    /// Of the database's file, which keeps it through renames: another file of this name is not what the note is about. Its device is that of
    /// the note, and may be called otherwise after a restart of the machine. `None` where an older walsync wrote the note.
    pub inode: Option<u64>,
    /// It may also be that after this one, and is none between.
    pub applying: Option<u64>,
}

impl Note {
    /// Where the note of a database lies.
    pub fn path(database: &Path) -> PathBuf {
        with_suffix(database, "-follows")
    }

    /// Reads the note of a database; `None` where there is none.
    pub fn read(database: &Path) -> Result<Option<Note>, NoteError> {
        let path = Note::path(database);
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(NoteError(path, error.to_string())),
            Ok(text) => match Note::parse(&text) {
                Some(note) => Ok(Some(note)),
                None => Err(NoteError(path, "it is damaged, or of a newer walsync: restore to another path".into())),
            },
        }
    }

    fn parse(text: &str) -> Option<Note> {
        let mut lines = text.lines();
        let first = lines.next()? == FIRST_LINE;
        let place = lines.next()?.strip_prefix("place ")?.to_owned();
        let applied = lines.next()?.strip_prefix("applied ")?;
        let (applied, applied_millis) = match applied.split_once(" at ") {
            None => (applied.parse().ok()?, None),
            Some((applied, millis)) => (applied.parse().ok()?, Some(millis.parse().ok()?)),
        };
        let mut line = lines.next();
        let mut number = |word: &str| {
            let Some(number) = line.and_then(|text| text.strip_prefix(word)) else { return Some(None) };
            line = lines.next();
            number.parse().ok().map(Some)
        };
        let (inode, applying) = (number("inode ")?, number("applying ")?);
        (first && line.is_none()).then_some(Note { place, applied, applied_millis, inode, applying })
    }

    /// Writes it beside a database, whole or not at all, and synced.
    pub fn write(&self, database: &Path) -> io::Result<()> {
        let time = self.applied_millis.map_or_else(String::new, |millis| format!(" at {millis}"));
        let mut text = format!("{FIRST_LINE}\nplace {}\napplied {}{time}\n", self.place, self.applied);
        if let Some(inode) = self.inode {
            text += &format!("inode {inode}\n");
        }
        if let Some(applying) = self.applying {
            text += &format!("applying {applying}\n");
        }
        write_whole(&Note::path(database), text.as_bytes())
    }

    /// Whether it is about the file that lies at `database` now, as far as it tells.
    pub(crate) fn is_about(&self, database: &Path) -> bool {
        self.inode.is_none_or(|inode| std::fs::metadata(database).is_ok_and(|metadata| metadata.ino() == inode))
    }

    /// Removes the note of a database that is not there any more, durably; none is no error.
    pub(crate) fn remove(database: &Path) -> io::Result<()> {
        let path = Note::path(database);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.and_then(|()| sync_name(&path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        assert_eq!(Note::read(&database).unwrap(), None);
        for (applied_millis, inode, applying) in [
            (None, None, None),
            (Some(-1), None, None),
            (None, Some(5), None),
            (None, None, Some(9)),
            (Some(1_800_000_000_000), Some(u64::MAX), Some(9)),
        ] {
            let note = Note { place: "s3://b/with space/a.db".into(), applied: 7, applied_millis, inode, applying };
            note.write(&database).unwrap();
            assert_eq!(Note::read(&database).unwrap(), Some(note));
        }
        let whole = std::fs::read_to_string(Note::path(&database)).unwrap();
        for text in
            ["", "walsync follows 2\nplace x\napplied 1\n", &whole[..whole.len() - 4], &(whole.clone() + "more\n")]
        {
            std::fs::write(Note::path(&database), text).unwrap();
            let error = Note::read(&database).map(|note| note.is_some()).unwrap_err().to_string();
            assert!(error.contains("a.db-follows: it is damaged"), "{text:?} {error}");
        }
    }
}
