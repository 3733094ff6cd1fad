//! Reads chunks of a snapshot that another member has asked for, on another thread: a disk that takes its time must not cost a leader its place.

use std::fmt;
use std::io;

use bytes::Bytes;
use wal::files::Directory;

use super::SnapshotMeta;
use super::chunks::{chunk_checksum, read_chunk};
use super::store::open;

/// Work for another thread. What comes of it must come back: see [`crate::ReplicatedLog::chunks_read`].
pub struct ChunksJob<D: Directory> {
    pub(super) directory: D,
    /// Who has asked.
    pub(super) to: u64,
    pub(super) meta: SnapshotMeta,
    pub(super) chunks: Vec<u32>,
    /// For the planted error only.
    pub(super) unchecked: bool,
}

/// What came of it.
pub struct ChunksRead {
    pub(crate) to: u64,
    pub(crate) meta: SnapshotMeta,
    /// Those that were read, with their checksums.
    pub(crate) chunks: Vec<(u32, u32, Bytes)>,
    /// Why there are no more.
    pub(crate) failed: Option<io::Error>,
}

impl<D: Directory> ChunksJob<D> {
    /// Takes as long as the disk does.
    pub fn run(self) -> ChunksRead {
        let Self { directory, to, meta, chunks: wanted, unchecked } = self;
        let mut chunks = Vec::with_capacity(wanted.len());
        let read = open(&directory, &meta).and_then(|(file, start)| {
            for chunk in wanted {
                let data = read_chunk(&file, &meta, start, chunk, unchecked)?;
                chunks.push((chunk, chunk_checksum(&meta.id(), chunk, &data), data.into()));
            }
            Ok(())
        });
        ChunksRead { to, meta, chunks, failed: read.err() }
    }
}

impl<D: Directory> fmt::Debug for ChunksJob<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChunksJob").finish_non_exhaustive()
    }
}
