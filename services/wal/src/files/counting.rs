//! Counts what is asked of another directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Directory, File};

/// What was asked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often files were written to.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Syncs of files' data.
    pub data_syncs: u64,
    /// How often names of files were synced.
    pub name_syncs: u64,
    /// Files that were created.
    pub creations: u64,
}

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    written_bytes: AtomicU64,
    data_syncs: AtomicU64,
    name_syncs: AtomicU64,
    creations: AtomicU64,
}

/// A directory whose operations are counted, and passed on to another.
#[derive(Clone, Debug)]
pub struct CountingDirectory<D> {
    inner: D,
    counters: Arc<Counters>,
}

/// A file whose operations are counted, and passed on to another.
#[derive(Debug)]
pub struct CountingFile<F> {
    inner: F,
    counters: Arc<Counters>,
}

impl<D> CountingDirectory<D> {
    /// Counts from now on.
    pub fn new(inner: D) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        let Counters { writes, written_bytes, data_syncs, name_syncs, creations } = &*self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            writes: of(writes),
            written_bytes: of(written_bytes),
            data_syncs: of(data_syncs),
            name_syncs: of(name_syncs),
            creations: of(creations),
        }
    }

    fn file<F>(&self, inner: F) -> CountingFile<F> {
        CountingFile { inner, counters: Arc::clone(&self.counters) }
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl<D: Directory> Directory for CountingDirectory<D> {
    type File = CountingFile<D::File>;

    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }

    fn create_zeroed(&self, name: &str, bytes: u64) -> io::Result<Self::File> {
        count(&self.counters.creations, 1);
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
        count(&self.counters.name_syncs, 1);
        self.inner.sync()
    }
}

impl<F: File> File for CountingFile<F> {
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
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes.len() as u64);
        self.inner.write_at(bytes, offset)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        count(&self.counters.writes, 1);
        self.inner.truncate(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        count(&self.counters.data_syncs, 1);
        self.inner.sync_data()
    }
}
