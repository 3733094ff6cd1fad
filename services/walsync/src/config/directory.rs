//! Litestream's directories: the databases of a folder, each with a place of its own below the one that is named.

use super::ConfigError;
use super::found::{NO_FOLDER, NO_MATCH, is_beside, matches};
use crate::descriptor::Descriptor;
use crate::restore::is_scratch;
use crate::source::MAGIC;
use crate::wal_reader::ReadAt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// `dir`, `pattern` and `recursive`.
pub(super) struct Directory {
    folder: PathBuf,
    pattern: String,
    recursive: bool,
}

impl Directory {
    pub(super) fn new(folder: PathBuf, pattern: String, recursive: bool) -> Directory {
        Directory { folder, pattern, recursive }
    }

    /// Why none is there.
    pub(super) fn why_empty(&self) -> &'static str {
        if self.folder.is_dir() { NO_MATCH } else { NO_FOLDER }
    }

    /// As a pattern is shown.
    pub(super) fn shown(&self) -> PathBuf {
        self.folder.join(&self.pattern)
    }

    /// Whether the database at this path is one of those, be it there or not.
    pub(super) fn means(&self, path: &Path) -> bool {
        let is_within =
            if self.recursive { path.starts_with(&self.folder) } else { path.parent() == Some(&self.folder) };
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        // A restore under way has a name of ours.
        is_within && matches(&self.pattern, &name) && !is_beside(&name) && !is_scratch(&name)
    }

    /// What it is called below the place; `None`: it is no text.
    pub(super) fn name(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.folder).ok()?.to_str().map(str::to_owned)
    }

    /// Those that are there now, in order.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub(super) fn find(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            let entries = match std::fs::read_dir(&folder) {
                // Like files, folders come and go.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(|error| ConfigError::Read(folder, error))?,
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.extend(self.recursive.then_some(path));
                } else if self.means(&path) && path.is_file() && is_database(&path) {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Whether a file begins as databases do. Who cannot read it says so when he is to replicate it.
fn is_database(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    // Nobody may open a database of ours beside its descriptor.
    match Descriptor::open(path) {
        Ok(None) => false,
        Ok(Some(file)) => {
            let file: &File = &file;
            file.read_at(0, &mut start).is_ok_and(|length| start[..length] == MAGIC[..])
        }
        Err(_) => true,
    }
}
