//! Snapshots: what they are, how they lie in files, how they travel.

mod chunks;
mod chunks_job;
mod files_job;
mod job;
mod store;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;

use crate::codec::{Malformed, Reader, put, put_small};
use crate::membership::Membership;

pub(crate) use chunks::ChunkReader;
pub use chunks_job::{ChunksJob, ChunksRead};
pub use files_job::{FilesJob, FilesJobDone};
pub use job::SnapshotJob;
pub(crate) use store::{Store, is_without_room, load as load_snapshot};
pub(crate) use transfer::{Receiving, SnapshotMessage, WINDOW_CHUNKS};

const WHAT: &str = "a snapshot's description";

/// What a snapshot is: everything but its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last entry that is in it.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The newest time of an entry in it.
    pub time_millis: u64,
    /// The membership as of that entry.
    pub membership: Membership,
    /// The snapshot's size, bytes.
    pub bytes: u64,
    /// The size of its chunks; the last one may be smaller.
    pub chunk_bytes: u32,
    /// CRC-32C of all its bytes.
    pub checksum: u32,
}

/// Snapshots that found no room on the disk since the start. They are made again when there may be some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFailures {
    /// How many.
    pub count: u64,
    /// What is to be said of the last one.
    pub last: Arc<str>,
}

/// Which snapshot. Members that made one of the same entries have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SnapshotId {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) checksum: u32,
}

impl SnapshotMeta {
    pub(crate) fn id(&self) -> SnapshotId {
        SnapshotId { index: self.index, term: self.term, checksum: self.checksum }
    }

    /// Whether there is one: who has just joined has none yet, and may be asked for number zero.
    pub(crate) fn is_any(&self) -> bool {
        self.id() != SnapshotId::default()
    }

    /// How many chunks it has: at least one, so that every snapshot travels.
    pub(crate) fn chunks(&self) -> u32 {
        self.bytes.div_ceil(u64::from(self.chunk_bytes.max(1))).max(1) as u32
    }

    /// Bytes of this chunk.
    pub(crate) fn chunk_len(&self, chunk: u32) -> usize {
        let start = u64::from(chunk) * u64::from(self.chunk_bytes);
        self.bytes.saturating_sub(start).min(self.chunk_bytes.into()) as usize
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Self { index, term, time_millis, membership, bytes, chunk_bytes, checksum } = self;
        [*index, *term, *time_millis, *bytes].into_iter().for_each(|number| put(out, number));
        put_small(out, *chunk_bytes);
        put_small(out, *checksum);
        membership.encode(out);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (index, term, time_millis, bytes) =
            (reader.number()?, reader.number()?, reader.number()?, reader.number()?);
        let (chunk_bytes, checksum) = (reader.small()?, reader.small()?);
        let membership = Membership::decode(reader)?;
        if chunk_bytes == 0 || bytes.div_ceil(chunk_bytes.into()) > u64::from(u32::MAX) {
            return Err(Malformed(WHAT));
        }
        Ok(Self { index, term, time_millis, membership, bytes, chunk_bytes, checksum })
    }

    /// From bytes that hold nothing else.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, WHAT);
        let meta = Self::decode(&mut reader)?;
        reader.end()?;
        Ok(meta)
    }
}
