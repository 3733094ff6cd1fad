//! One budget of memory for all databases: what does not fit is staged in a file.

use rustix::fs::FallocateFlags;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::SpooledTempFile;

/// Bytes that one staged file may take in memory before it moves to disk.
const SPOOL_BYTES: usize = 256 * 1024;

/// Hands out room for staged files.
pub struct Arena {
    free_bytes: AtomicUsize,
    folder: PathBuf,
}

/// Room in memory, given back when dropped.
struct Reservation(Arc<Arena>);

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.free_bytes.fetch_add(SPOOL_BYTES, Ordering::AcqRel);
    }
}

/// Why a file could not be staged: its folder is full, read-only or gone. It lies within the [`io::Error`] of a write.
#[derive(Debug, thiserror::Error)]
#[error("no room to stage {bytes} bytes in {folder}: {error}; make room there, or name another staging folder")]
pub struct NoRoom {
    folder: String,
    /// Bytes that the file would have come to at least.
    pub bytes: u64,
    error: io::Error,
}

impl NoRoom {
    /// What `error` says of room, if it does.
    pub fn of(error: &io::Error) -> Option<&NoRoom> {
        error.get_ref()?.downcast_ref()
    }
}

/// A file that is being made or waits for its upload; in memory as long as it is small and there is room.
pub struct Staging {
    /// The content.
    content: SpooledTempFile,
    written_bytes: u64,
    arena: Arc<Arena>,
    _reservation: Option<Reservation>,
}

impl Staging {
    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.written_bytes
    }
}

impl Write for Staging {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.content.write(bytes).map_err(|error| {
            let kind = error.kind();
            let folder = self.arena.folder.display().to_string();
            io::Error::new(kind, NoRoom { folder, bytes: self.written_bytes + bytes.len() as u64, error })
        })?;
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.content.flush()
    }
}

impl Read for Staging {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.content.read(buffer)
    }
}

impl Seek for Staging {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.content.seek(position)
    }
}

impl Arena {
    /// `bytes` of memory for all together; `folder` for what is larger (nameless files, gone with the process).
    pub fn new(bytes: usize, folder: PathBuf) -> Arc<Arena> {
        Arc::new(Arena { free_bytes: AtomicUsize::new(bytes), folder })
    }

    /// An empty file.
    pub fn stage(self: &Arc<Self>) -> Staging {
        let take = |free: usize| free.checked_sub(SPOOL_BYTES);
        let taken = self.free_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok();
        let size = if taken { SPOOL_BYTES } else { 0 };
        Staging {
            content: tempfile::spooled_tempfile_in(size, &self.folder),
            written_bytes: 0,
            arena: self.clone(),
            _reservation: taken.then(|| Reservation(self.clone())),
        }
    }
    /// Whether a file of so many bytes would find room, without writing any: asking is cheap, and making one may not be.
    ///
    /// # Errors
    /// Those of the folder. Where its file system cannot reserve room, nothing is known, and that is no error.
    pub fn has_room(&self, bytes: u64) -> io::Result<()> {
        if bytes <= SPOOL_BYTES as u64 && self.free_bytes.load(Ordering::Acquire) >= SPOOL_BYTES {
            return Ok(());
        }
        let file = tempfile::tempfile_in(&self.folder)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes.max(1)) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_finds_no_room_says_where_and_how_much() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let arena = Arena::new(SPOOL_BYTES, gone.clone());
        // In memory first; what comes then needs the folder.
        let mut staging = arena.stage();
        staging.write_all(&vec![1; SPOOL_BYTES]).unwrap();
        let error = staging.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(NoRoom::of(&error).unwrap().bytes, SPOOL_BYTES as u64 + 4);
        assert!(error.to_string().contains(&format!("{}: No such file", gone.display())), "{error}");
        assert!(arena.has_room(1).is_err(), "memory is taken");
        drop(staging);
        assert!(arena.has_room(1).is_ok() && arena.has_room(SPOOL_BYTES as u64 + 1).is_err());
        std::fs::create_dir(gone).unwrap();
        assert!(arena.has_room(1 << 20).is_ok() && arena.has_room(1 << 60).is_err());
    }
}
