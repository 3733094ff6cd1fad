//! From the records that a write-ahead log still has to the state in which a node goes on.

use std::collections::VecDeque;

use wal::{Kind, Record};

use crate::codec::Malformed;
use crate::entry::{self, Entry};
use crate::membership::Membership;
use crate::record::{Compaction, Hard};
use crate::settings::Settings;
use crate::snapshot::SnapshotMeta;

/// Why a log cannot be gone on with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// A record is not one of ours.
    #[error("the log holds {0}; it was written by something else or by a newer version")]
    Malformed(#[from] Malformed),
    /// Entries do not join.
    #[error(
        "the log has entries from {first} on, but none between {after} and there: it was damaged; re-join as a new member"
    )]
    Hole {
        /// The entry that the log begins behind.
        after: u64,
        /// The first entry that there is.
        first: u64,
    },
    /// Committed entries are missing.
    #[error(
        "entries up to {commit} were committed here, but the log ends at {last}: it was damaged; re-join as a new member"
    )]
    Short {
        /// The commit index that was written down.
        commit: u64,
        /// The last entry that there is.
        last: u64,
    },
}

/// The state in which a node goes on. The default one is that of a new node that will be added to a group.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub(crate) hard: Hard,
    pub(crate) compaction: Compaction,
    pub(crate) entries: VecDeque<Entry>,
}

impl Recovered {
    /// The state of a founding member, and the records that must be committed before it starts. All founders must be given
    /// the same membership and equal state machines; `snapshot` is that machine's snapshot before any entry.
    pub fn found(settings: &Settings, membership: Membership, snapshot: &[u8]) -> (Self, Vec<Record>) {
        Self::found_after(settings, membership, snapshot, 0)
    }

    /// The same, with entries that are numbered from behind this index: for a state that has indices of a log that is gone.
    pub fn found_after(
        settings: &Settings,
        membership: Membership,
        snapshot: &[u8],
        after: u64,
    ) -> (Self, Vec<Record>) {
        let compaction = Compaction { index: after, ..Compaction::default() };
        Self { compaction, ..Self::default() }.alone(settings, membership, 0, snapshot)
    }

    /// The state behind everything that is there, with this membership, and the records that must be committed before it is gone on
    /// with. `snapshot` is the state machine's of everything, `time_millis` the newest time of an entry in it.
    pub(crate) fn alone(
        self,
        settings: &Settings,
        membership: Membership,
        time_millis: u64,
        snapshot: &[u8],
    ) -> (Self, Vec<Record>) {
        let last_term = self.entries.back().map_or(self.compaction.term, |entry| entry.term);
        let meta = SnapshotMeta {
            index: self.last() + 1,
            term: self.hard.term.max(last_term) + 1,
            time_millis,
            membership,
            bytes: snapshot.len() as u64,
            chunk_bytes: settings.snapshot_chunk_bytes,
            checksum: crc32c::crc32c(snapshot),
        };
        let compaction = Compaction { index: meta.index, term: meta.term, begins_anew: true, snapshot: meta };
        let records = vec![compaction.record(settings.group)];
        (Self { hard: self.hard, compaction, ..Self::default() }, records)
    }

    /// The snapshot that the state machine must be restored from, unless there is none yet.
    pub fn snapshot(&self) -> Option<&SnapshotMeta> {
        (self.compaction.index > 0).then_some(&self.compaction.snapshot)
    }

    /// Whether nothing was ever written: a new node, or one that lost its disk.
    pub fn is_empty(&self) -> bool {
        self.compaction.index == 0 && self.hard == Hard::default() && self.entries.is_empty()
    }

    /// The last entry's index.
    pub(crate) fn last(&self) -> u64 {
        self.compaction.index + self.entries.len() as u64
    }
}

/// Collects records in the order in which `wal::Log::open` visits them.
#[derive(Debug, Default)]
pub struct Recovery {
    group: u16,
    hard: Hard,
    compaction: Compaction,
    /// Joining one another, but perhaps not the compaction: segments in front may be gone whose compaction comes later.
    entries: VecDeque<Entry>,
    malformed: Option<Malformed>,
}

impl Recovery {
    /// For this group's records; others are passed over.
    pub fn new(group: u16) -> Self {
        Self { group, ..Self::default() }
    }

    /// Takes the next record of the log.
    pub fn visit(&mut self, record: Record<&[u8]>) {
        if record.group == self.group
            && self.malformed.is_none()
            && let Err(malformed) = self.take(record)
        {
            self.malformed = Some(malformed);
        }
    }

    fn take(&mut self, record: Record<&[u8]>) -> Result<(), Malformed> {
        let Record { kind, term, index, payload, .. } = record;
        match kind {
            Kind::HardState => self.hard = Hard::decode(term, payload)?,
            Kind::Compaction => {
                let compaction = Compaction::decode(term, index, payload)?;
                // Every segment repeats it at its beginning, and then it says nothing about what stands before.
                if compaction != self.compaction {
                    if compaction.begins_anew {
                        self.entries.clear();
                    }
                    while self.entries.front().is_some_and(|entry| entry.index <= index) {
                        self.entries.pop_front();
                    }
                    self.compaction = compaction;
                }
            }
            Kind::Entry => {
                let (kind, time_millis, data) = entry::decode(payload)?;
                while self.entries.back().is_some_and(|entry| entry.index >= index) {
                    self.entries.pop_back();
                }
                if self.entries.back().is_some_and(|entry| entry.index + 1 != index) {
                    self.entries.clear();
                }
                if index > self.compaction.index {
                    self.entries.push_back(Entry { index, term, kind, time_millis, data });
                }
            }
        }
        Ok(())
    }

    /// The state, unless something is missing.
    pub fn finish(self) -> Result<Recovered, RecoveryError> {
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        let Self { hard, compaction, entries, .. } = self;
        if let Some(first) = entries.front().map(|entry| entry.index)
            && first != compaction.index + 1
        {
            return Err(RecoveryError::Hole { after: compaction.index, first });
        }
        let recovered = Recovered { hard, compaction, entries };
        let last = recovered.last();
        match [recovered.compaction.snapshot.index, hard.commit].into_iter().find(|commit| *commit > last) {
            Some(commit) => Err(RecoveryError::Short { commit, last }),
            None => Ok(recovered),
        }
    }
}

#[cfg(test)]
mod tests;
