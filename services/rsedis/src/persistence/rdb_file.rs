//! The RDB file beside those of other servers: a temporary name that is this process's, and what ended servers have left of theirs.
//!
//! Several servers may have one `dir`, each with its `dbfilename`: nothing there is locked.

use std::io;
use std::path::{Path, PathBuf};

use wal::files::Directory;

use super::free;
use super::snapshot::{self, Format, Snapshot};
use crate::server::Server;

/// A file that is written under a temporary name, and the name that it is to have.
#[derive(Debug)]
pub struct RdbFile<D: Directory> {
    directory: D,
    /// Of the whole file.
    path: PathBuf,
    name: String,
    temporary: String,
}

impl<D: Directory> RdbFile<D> {
    /// `purpose` is part of the temporary name. Errors name the file.
    pub fn new(open: fn(&Path) -> io::Result<D>, folder: &str, name: &str, purpose: &str) -> io::Result<Self> {
        let path = Path::new(folder).join(name);
        let directory = open(Path::new(folder)).map_err(|error| told(&path, &error))?;
        // Of this process, and of this name: in containers all processes may have the same number.
        let temporary = format!("temp-{}-{purpose}{name}", std::process::id());
        Ok(Self { directory, path, name: name.to_owned(), temporary })
    }

    /// Begins to write the keys of this moment.
    pub fn begin(&self, server: &mut Server) -> io::Result<Snapshot> {
        self.told(Snapshot::begin(server, &self.directory, &self.temporary, Format::Rdb { is_base: false }))
    }

    /// What was written.
    pub fn open(&self) -> io::Result<D::File> {
        self.directory.open(&self.temporary)
    }

    /// It needs no name any more.
    pub fn remove(&self) {
        snapshot::remove(&self.directory, &self.temporary);
    }

    /// Puts the file under its name, if it was written well.
    pub fn put(&self, written: io::Result<u64>) -> io::Result<()> {
        self.told(written.and_then(|_| {
            let replaced = self.directory.open(&self.name);
            self.directory.rename(&self.temporary, &self.name).inspect_err(|_| self.remove())?;
            free(replaced.into_iter().collect());
            self.directory.sync()
        }))
    }

    /// An error that names the file.
    pub fn told<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(|error| told(&self.path, &error))
    }
}

fn told(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Removes what servers have left that were killed while they wrote this file; their names.
pub fn remove_left<D: Directory>(directory: &D, name: &str, is_alive: impl Fn(u32) -> bool) -> Vec<String> {
    let is_left = |file: &String| {
        let parts = file.strip_prefix("temp-").and_then(|rest| rest.split_once('-'));
        let Some((process, rest)) = parts else { return false };
        let is_of_this_file = rest.strip_prefix("replication-").unwrap_or(rest) == name || rest == name;
        is_of_this_file && process.parse().is_ok_and(|process| !is_alive(process))
    };
    let left: Vec<String> = directory.names().unwrap_or_default().into_iter().filter(is_left).collect();
    left.iter().for_each(|file| snapshot::remove(directory, file));
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use wal::files::SimulatedDirectory;

    #[test]
    fn what_killed_servers_have_left_of_this_file_is_removed_and_nothing_else() {
        let directory = SimulatedDirectory::default();
        let stays = [
            "dump.rdb",
            "temp-dump.rdb",
            "temp-7-dump.rdb",
            "temp-8-other.rdb",
            "temp-x-dump.rdb",
            "temp-8-dump.rdb.old",
        ];
        let left = ["temp-8-dump.rdb", "temp-9-replication-dump.rdb"];
        for name in stays.iter().chain(&left) {
            directory.create_zeroed(name, 0).unwrap();
        }
        let mut removed = remove_left(&directory, "dump.rdb", |process| process == 7);
        removed.sort();
        assert_eq!(removed, left);
        let mut names = directory.names().unwrap();
        names.sort();
        let mut stays = stays.map(str::to_owned);
        stays.sort();
        assert_eq!(names, stays);
    }
}
