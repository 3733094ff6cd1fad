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

/// What an error begins with of SQLite that lacks something which the application gives it, and which nobody has here; the last is all that it says
/// within a check of a full-text index whose tokenizer is the application's. Any other error is damage.
const LACKS: [&str; 7] = [
    "no such collation sequence",
    "no such function",
    "no such module",
    "no such tokenizer",
    "unknown function",
    "unknown tokenizer",
    "SQL logic error",
];

/// SQLite's own integrity check. Opens the file as one that nobody changes, so that no WAL is made beside it. `Some`: it cannot be asked of all, and
/// why: an index may need a collation or a function of the application. Then it is asked of each table, and those that need none must be sound.
pub fn check_integrity(path: &Path, check: IntegrityCheck) -> Result<Option<String>, RestoreError> {
    let pragma = match check {
        IntegrityCheck::None => return Ok(None),
        IntegrityCheck::Quick => "PRAGMA quick_check",
        IntegrityCheck::Full => "PRAGMA integrity_check",
    };
    let failed = |error: rusqlite::Error| match sqlite_code(&error) {
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB | ffi::SQLITE_ERROR) => {
            RestoreError::Integrity(error.to_string())
        }
        _ => RestoreError::Output(path.to_owned(), io::Error::other(error)),
    };
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let connection = rusqlite::Connection::open_with_flags(sqlite_uri(path, "immutable=1"), flags).map_err(failed)?;
    let ask = |pragma: &str| match connection.query_row(pragma, [], |row| row.get::<_, String>(0)) {
        Ok(result) if result == "ok" => Ok(None),
        Ok(result) => Err(RestoreError::Integrity(result)),
        Err(error) if lacks_application(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(failed(error)),
    };
    let Some(why) = ask(pragma)? else { return Ok(None) };
    let tables = || {
        let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<String>>>()
    };
    let tables = match tables() {
        Err(error) if lacks_application(&error) => return Ok(Some(why)),
        tables => tables.map_err(failed)?,
    };
    for table in tables {
        ask(&format!("{pragma}(\"{}\")", table.replace('"', "\"\"")))?;
    }
    Ok(Some(why))
}

/// Whether SQLite lacks something that the application would have given it.
fn lacks_application(error: &rusqlite::Error) -> bool {
    let message = match error {
        rusqlite::Error::SqliteFailure(_, message) => message.as_deref().unwrap_or_default(),
        rusqlite::Error::SqlInputError { msg, .. } => msg,
        _ => return false,
    };
    sqlite_code(error) == Some(ffi::SQLITE_ERROR) && LACKS.iter().any(|lacks| message.starts_with(lacks))
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
    fn what_no_application_could_give_sqlite_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path(), "v", ("none", "none"));
        let mut bytes = std::fs::read(&path).unwrap();
        // The format of the schema, of which there are four.
        bytes[44..48].copy_from_slice(&99u32.to_be_bytes());
        std::fs::write(&path, bytes).unwrap();
        for check in [IntegrityCheck::Quick, IntegrityCheck::Full] {
            let result = check_integrity(&path, check);
            assert!(matches!(&result, Err(RestoreError::Integrity(why)) if why.contains("file format")), "{result:?}");
        }
    }

    #[test]
    fn damage_is_found_beside_what_needs_the_application() {
        let folder = tempfile::tempdir().unwrap();
        let path = database(folder.path(), "v COLLATE NOCASE", ("NOCASE", "THEIRS"));
        let connection = rusqlite::Connection::open(&path).unwrap();
        let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT randomblob(300) FROM n";
        connection
            .execute_batch(&format!("CREATE TABLE \"of \"\"others\" (v); INSERT INTO \"of \"\"others\" {rows}"))
            .unwrap();
        let pages = connection.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
        drop(connection);
        assert!(check_integrity(&path, IntegrityCheck::Full).unwrap().is_some_and(|why| why.contains("THEIRS")));
        let mut bytes = std::fs::read(&path).unwrap();
        let page = bytes.len() / pages as usize;
        let at = bytes.len() - 3 * page;
        bytes[at..at + page].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let result = check_integrity(&path, IntegrityCheck::Full);
        assert!(matches!(result, Err(RestoreError::Integrity(_))), "{result:?}");
    }

    /// What a full-text index is made with may be the application's, too.
    #[test]
    fn a_tokenizer_of_the_application_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE VIRTUAL TABLE t USING fts5(v, tokenize = 'unicode61'); INSERT INTO t VALUES ('word')",
            )
            .unwrap();
        connection
            .execute_batch(
                "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'unicode61', 'theirs')",
            )
            .unwrap();
        drop(connection);
        let why = check_integrity(&path, IntegrityCheck::Full).unwrap();
        assert!(why.as_ref().is_none_or(|why| why.contains("tokenizer") || why.contains("SQL logic error")), "{why:?}");
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
