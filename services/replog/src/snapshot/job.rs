//! A snapshot that is to be made: from a view of the state to a file, on whatever thread has time.

use std::fmt;
use std::io;

use wal::files::Directory;

use super::{SnapshotMeta, store};
use crate::machine::SnapshotView;

/// Work for another thread. Its result must come back: see [`crate::ReplicatedLog::snapshot_written`].
pub struct SnapshotJob {
    index: u64,
    work: Box<dyn FnOnce() -> io::Result<SnapshotMeta> + Send>,
}

impl SnapshotJob {
    /// `meta` lacks what the bytes decide.
    pub(crate) fn new(meta: SnapshotMeta, view: SnapshotView, directory: impl Directory) -> Self {
        let index = meta.index;
        let work = move || store::make(&directory, meta, view);
        Self { index, work: Box::new(work) }
    }

    /// Makes it, and writes it to its file.
    pub fn run(self) -> io::Result<SnapshotMeta> {
        (self.work)()
    }
}

impl fmt::Debug for SnapshotJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SnapshotJob({})", self.index)
    }
}
