//! How a snapshot travels: who needs it asks for chunks that it does not have, a few at a time, and again when none comes.
//! Who has it answers and remembers nothing. So a transfer goes on after a crash of either side with the chunks that are missing.

use bytes::Bytes;

use super::{SnapshotId, SnapshotMeta};

/// Chunks asked for at once.
pub(crate) const WINDOW_CHUNKS: usize = 4;

/// What is said about snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotMessage {
    /// Send me these chunks.
    Fetch { id: SnapshotId, chunks: Vec<u32> },
    /// One piece of a snapshot.
    Chunk { id: SnapshotId, chunk: u32, checksum: u32, data: Bytes },
    /// I do not have that snapshot any more.
    Gone { id: SnapshotId },
}

/// What a node is fetching.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) from: u64,
    pub(crate) meta: SnapshotMeta,
    /// Chunks that were asked for and have not come.
    pub(crate) outstanding: usize,
    pub(crate) asked_at: u64,
    pub(crate) begun_at: u64,
}

impl Receiving {
    /// Whether to ask for chunks now: all that were asked for came, or none has for too long.
    pub(crate) fn should_ask(&self, now: u64, patience: u64) -> bool {
        self.outstanding == 0 || now >= self.asked_at + patience
    }
}
