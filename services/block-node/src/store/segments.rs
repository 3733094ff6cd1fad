//! Open files of segments and indexes, a bounded number of them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use wal::files::Directory;

/// Files that are kept open for readers.
const OPEN_MAX: usize = 64;

/// Opens files by name, and keeps those that were used last.
pub(super) struct OpenFiles<D: Directory> {
    directory: D,
    /// The last one used is last.
    open: Mutex<VecDeque<(String, Arc<D::File>)>>,
}

impl<D: Directory> OpenFiles<D> {
    pub(super) fn new(directory: D) -> Self {
        Self { directory, open: Mutex::default() }
    }

    pub(super) fn directory(&self) -> &D {
        &self.directory
    }

    /// A file that is removed is no longer kept open. Who reads it now keeps it for that long.
    pub(super) fn forget(&self, name: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| known != name);
    }

    /// A file, for reading.
    pub(super) fn file(&self, name: &str) -> io::Result<Arc<D::File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().rposition(|(known, _)| known == name).and_then(|position| open.remove(position));
        let entry = match known {
            Some(entry) => entry,
            None => (name.to_owned(), Arc::new(self.directory.open(name)?)),
        };
        let file = Arc::clone(&entry.1);
        open.push_back(entry);
        if open.len() > OPEN_MAX {
            open.pop_front();
        }
        Ok(file)
    }
}
