//! Does something before each sync of another directory's files: waits, so that a disk is slow, or until it may go on.

use std::io;
use std::sync::Arc;

use super::{Directory, File};

type Hold = Arc<dyn Fn() + Send + Sync>;

/// Another directory, held up.
#[derive(Clone)]
pub struct HeldDirectory<D> {
    inner: D,
    hold: Hold,
}

/// Another file, held up.
pub struct HeldFile<F> {
    inner: F,
    hold: Hold,
}

impl<D: Directory> HeldDirectory<D> {
    /// Calls `hold` before every sync of a file's data.
    pub fn new(inner: D, hold: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inner, hold: Arc::new(hold) }
    }

    fn file(&self, inner: D::File) -> HeldFile<D::File> {
        HeldFile { inner, hold: Arc::clone(&self.hold) }
    }
}

impl<D: Directory> Directory for HeldDirectory<D> {
    type File = HeldFile<D::File>;

    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }

    fn create_zeroed(&self, name: &str, bytes: u64) -> io::Result<Self::File> {
        Ok(self.file(self.inner.create_zeroed(name, bytes)?))
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        Ok(self.file(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

impl<F: File> File for HeldFile<F> {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.inner.read()
    }

    fn read_first(&self, bytes: usize) -> io::Result<Vec<u8>> {
        self.inner.read_first(bytes)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(into, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.hold)();
        self.inner.sync_data()
    }
}
