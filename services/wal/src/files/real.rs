//! The operating system's files.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Directory, File};

/// Zeros are written in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// So many are written at once all the same: that takes a disk no longer than a commit of the file system's journal, and each piece costs one.
const WHOLE_BYTES: u64 = 1 << 20;

/// A file larger than this leaves as much free on the disk: the log of its own member needs some.
const SLACK_BYTES: u64 = 16 << 20;

/// A directory of the file system, held by this process alone unless it was opened as [`RealDirectory::shared`].
#[derive(Clone, Debug)]
pub struct RealDirectory {
    path: PathBuf,
    /// Open, so that names can be synced.
    handle: Arc<fs::File>,
    /// Held for as long as any handle lives.
    lock: Option<Arc<fs::File>>,
}

impl RealDirectory {
    /// The file in a directory that is locked.
    pub const LOCK: &str = "lock";

    /// Opens a directory, creating it where it does not exist, and locks it: a second process that tries is refused.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        let is_new = !path.exists();
        fs::create_dir_all(&path)?;
        if let (true, Some(parent)) = (is_new, path.parent().filter(|parent| !parent.as_os_str().is_empty())) {
            fs::File::open(parent)?.sync_all()?;
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path.join(Self::LOCK))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process uses this directory: stop it first")
            }
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Self { handle: Arc::new(fs::File::open(&path)?), path, lock: Some(Arc::new(lock)) })
    }

    /// Opens a directory that is there, and that others use as well: nothing is locked, and whoever writes has names of its own.
    pub fn shared(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        Ok(Self { handle: Arc::new(fs::File::open(&path)?), path, lock: None })
    }

    fn zeroed(path: &Path, bytes: u64) -> io::Result<fs::File> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        if bytes == 0 {
            // A sync of what will be written makes safe that the file is there.
            return Ok(file);
        }
        if bytes > WHOLE_BYTES {
            // Asked first: else the disk is filled to its last byte on the way to the same answer, for everybody on it.
            let disk = rustix::fs::statvfs(path)?;
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let slack = if bytes > SLACK_BYTES { SLACK_BYTES } else { 0 };
            if free < bytes.saturating_add(slack) {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    format!("a file of {bytes} bytes does not fit into the {free} that are free"),
                ));
            }
        }
        // Written, not just allocated: the first write to an allocated block makes ext4 commit its journal.
        let zeros = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < bytes {
            if offset > 0 && bytes > WHOLE_BYTES {
                // All of it at once would keep the disk from the commits of that moment for as long.
                file.sync_data()?;
            }
            let piece = (bytes - offset).min(PIECE_BYTES as u64);
            file.write_all_at(&zeros[..piece as usize], offset)?;
            offset += piece;
        }
        file.sync_all()?;
        Ok(file)
    }
}

impl Directory for RealDirectory {
    type File = fs::File;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not text is none of ours.
            if let Ok(name) = entry?.file_name().into_string()
                && (name != Self::LOCK || self.lock.is_none())
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_zeroed(&self, name: &str, bytes: u64) -> io::Result<fs::File> {
        let path = self.path.join(name);
        Self::zeroed(&path, bytes).inspect_err(|_| drop(fs::remove_file(&path)))
    }

    fn open(&self, name: &str) -> io::Result<fs::File> {
        OpenOptions::new().read(true).write(true).open(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl File for fs::File {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.read_first(usize::MAX)
    }

    fn read_first(&self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes.min(self.metadata()?.len() as usize)];
        self.read_exact_at(&mut read, 0)?;
        Ok(read)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk was filled to its last byte first, for everybody on it.
    #[test]
    fn a_file_that_does_not_fit_is_refused_before_anything_of_it_is_written() {
        let folder = harness::folder();
        let directory = RealDirectory::open(folder.path()).unwrap();
        let error = directory.create_zeroed("large", 1 << 60).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(error.to_string().contains("does not fit into the"), "{error}");
        assert_eq!(directory.names().unwrap(), [] as [String; 0]);
    }
}
