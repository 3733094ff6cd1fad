//! One budget of memory for all databases: what does not fit is staged in a file.

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

/// A file that is being made or waits for its upload; in memory as long as it is small and there is room.
pub struct Staging {
    /// The content.
    content: SpooledTempFile,
    _reservation: Option<Reservation>,
}

impl Write for Staging {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.content.write(bytes)
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
            _reservation: taken.then(|| Reservation(self.clone())),
        }
    }
}
