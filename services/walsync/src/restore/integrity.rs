//! SQLite's own word about what was restored.

use super::RestoreError;
use crate::paths::sqlite_uri;
use rusqlite::ffi;
use std::io;
use std::path::Path;

/// What SQLite is asked about a restored database, in Litestream's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum IntegrityCheck {
    /// Nothing
    #[default]
    None,
    /// All but whether indexes have what their tables have
    Quick,
    /// Everything
    Full,
}

impl From<bool> for IntegrityCheck {
    fn from(is_wanted: bool) -> Self {
        if is_wanted { IntegrityCheck::Full } else { IntegrityCheck::None }
    }
}

/// SQLite's own integrity check. Opens the file as one that nobody changes, so that no WAL is made beside it. `Some`: it cannot be asked, and why. An
/// index may need a collation or a function that the application gives SQLite, and that nobody has here.
pub fn check_integrity(path: &Path, check: IntegrityCheck) -> Result<Option<String>, RestoreError> {
    let pragma = match check {
        IntegrityCheck::None => return Ok(None),
        IntegrityCheck::Quick => "PRAGMA quick_check",
        IntegrityCheck::Full => "PRAGMA integrity_check",
    };
    let failed = |error: rusqlite::Error| match sqlite_code(&error) {
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => RestoreError::Integrity(error.to_string()),
        _ => RestoreError::Output(path.to_owned(), io::Error::other(error)),
    };
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let connection = rusqlite::Connection::open_with_flags(sqlite_uri(path, "immutable=1"), flags).map_err(failed)?;
    match connection.query_row(pragma, [], |row| row.get::<_, String>(0)) {
        Ok(result) if result == "ok" => Ok(None),
        Ok(result) => Err(RestoreError::Integrity(result)),
        Err(error) if sqlite_code(&error) == Some(ffi::SQLITE_ERROR) => Ok(Some(error.to_string())),
        Err(error) => Err(failed(error)),
    }
}

/// SQLite's own code of an error, without what extends it.
fn sqlite_code(error: &rusqlite::Error) -> Option<i32> {
    match error {
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
            Some(error.extended_code & 0xff)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A database whose index is as if the application had given SQLite what it needs.
    fn database(folder: &Path, index: &str, needs: (&str, &str)) -> PathBuf {
        let path = folder.join(format!("{}.db", needs.1));
        let connection = rusqlite::Connection::open(&path).unwrap();
        let rows = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT -i FROM n";
        connection.execute_batch(&format!("CREATE TABLE t(v); {rows}; CREATE INDEX i ON t({index})")).unwrap();
        let (from, to) = needs;
        let schema = format!("UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}') WHERE name = 'i'");
        connection.execute_batch(&format!("PRAGMA writable_schema = ON; {schema}")).unwrap();
        path
    }

    #[test]
    fn a_sound_database_that_needs_its_application_cannot_be_asked_and_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let sound = database(folder.path(), "v", ("none", "none"));
        assert_eq!(check_integrity(&sound, IntegrityCheck::Full).unwrap(), None);
        for (index, needs) in [("v COLLATE NOCASE", ("NOCASE", "THEIRS")), ("abs(v)", ("abs", "theirs"))] {
            let why = check_integrity(&database(folder.path(), index, needs), IntegrityCheck::Full).unwrap();
            assert!(why.as_ref().is_some_and(|why| why.contains(needs.1)), "{index}: {why:?}");
        }
    }

    #[test]
    fn a_path_of_any_bytes_can_be_asked() {
        use std::os::unix::ffi::OsStringExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsString::from_vec(b"%25?#&=\xff\xfe.db".to_vec()));
        std::fs::rename(database(folder.path(), "v", ("none", "none")), &path).unwrap();
        assert_eq!(check_integrity(&path, IntegrityCheck::Full).unwrap(), None);
        std::fs::write(&path, "no database at all").unwrap();
        assert!(check_integrity(&path, IntegrityCheck::Quick).is_err(), "it is that file");
    }

    #[test]
    fn what_sqlite_finds_wrong_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let sound = database(folder.path(), "v", ("none", "none"));
        // A row that the index has not; no database; a page of nothing.
        let other_index = database(folder.path(), "abs(v)", ("abs(v)", "v"));
        let bytes = std::fs::read(&sound).unwrap();
        let damaged = |name: &str, at: usize, what: &[u8]| {
            let path = folder.path().join(name);
            let mut bytes = bytes.clone();
            bytes[at..at + what.len()].copy_from_slice(what);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        // An index against its table is what a quick check leaves out.
        assert!(check_integrity(&other_index, IntegrityCheck::Quick).is_ok());
        for path in [other_index, damaged("header", 0, b"other"), damaged("page", 4096, &[0xff; 4096])] {
            assert!(check_integrity(&path, IntegrityCheck::None).is_ok());
            let result = check_integrity(&path, IntegrityCheck::Full);
            assert!(matches!(result, Err(RestoreError::Integrity(_))), "{}: {result:?}", path.display());
        }
    }
}
