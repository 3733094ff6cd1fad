//! What a node writes to its write-ahead log, beside entries.
//!
//! A **hard state**'s payload is the vote (8 bytes, 0 for none) and the commit index (8); its term is the record's.
//!
//! A **compaction** says that entries up to its index are no longer needed, and its term is that of this entry; its payload is
//! one byte, 1 if the log began anew behind a snapshot that came from the leader (whatever stands before in the log is void), and
//! the description of the snapshot that holds those entries.

use bytes::Bytes;
use wal::{Kind, Record};

use crate::codec::{Malformed, Reader, put};
use crate::snapshot::SnapshotMeta;

/// Term, vote and commit index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hard {
    pub(crate) term: u64,
    pub(crate) vote: u64,
    pub(crate) commit: u64,
}

impl Hard {
    pub(crate) fn record(&self, group: u16) -> Record {
        let mut payload = Vec::with_capacity(16);
        put(&mut payload, self.vote);
        put(&mut payload, self.commit);
        Record { kind: Kind::HardState, group, term: self.term, index: 0, payload: payload.into() }
    }

    pub(crate) fn decode(term: u64, payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload, "a hard state");
        let hard = Self { term, vote: reader.number()?, commit: reader.number()? };
        reader.end()?;
        Ok(hard)
    }
}

/// Where the log begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compaction {
    /// The entry before the first one, and its term.
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// What was in the log before is void, whatever its index.
    pub(crate) begins_anew: bool,
    /// The snapshot that can be restored; its index is not less.
    pub(crate) snapshot: SnapshotMeta,
}

impl Compaction {
    pub(crate) fn record(&self, group: u16) -> Record {
        let mut payload = vec![u8::from(self.begins_anew)];
        self.snapshot.encode(&mut payload);
        Record { kind: Kind::Compaction, group, term: self.term, index: self.index, payload: payload.into() }
    }

    pub(crate) fn decode(term: u64, index: u64, payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload, "a compaction");
        let compaction =
            Self { index, term, begins_anew: reader.flag()?, snapshot: SnapshotMeta::decode(&mut reader)? };
        reader.end()?;
        Ok(compaction)
    }
}

/// The record of an entry.
pub(crate) fn entry(group: u16, term: u64, index: u64, payload: Bytes) -> Record {
    Record { kind: Kind::Entry, group, term, index, payload }
}
