//! The log in memory, as the consensus crate wants to read it: everything behind the last compaction, safe on disk or not.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::record::{Compaction, Hard};
use crate::snapshot::SnapshotMeta;

/// Entries that there is always room for.
const ROOM_ENTRIES: usize = 1024;

/// The log in memory.
pub(super) struct MemoryLog {
    hard: Hard,
    compaction: Compaction,
    /// The first one follows the compaction's index.
    entries: VecDeque<Entry>,
    /// Somebody needs a snapshot that knows it: see [`Storage::snapshot`] below.
    wants_snapshot: Cell<bool>,
}

impl MemoryLog {
    pub(super) fn new(hard: Hard, compaction: Compaction, entries: VecDeque<Entry>) -> Self {
        Self { hard, compaction, entries, wants_snapshot: Cell::new(false) }
    }

    /// Whether a newer snapshot is needed; asked once.
    pub(super) fn take_wish(&self) -> bool {
        self.wants_snapshot.take()
    }

    fn first(&self) -> u64 {
        self.compaction.index + 1
    }

    fn last(&self) -> u64 {
        self.compaction.index + self.entries.len() as u64
    }

    pub(super) fn compaction(&self) -> &Compaction {
        &self.compaction
    }

    /// The entry at this index.
    pub(super) fn get(&self, index: u64) -> Option<&Entry> {
        index.checked_sub(self.first()).and_then(|position| self.entries.get(position as usize))
    }

    /// Appends entries, which replace those from the first one's index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.compaction.index && first.index <= self.last() + 1,
            "entry {} does not join a log from {} to {}",
            first.index,
            self.first(),
            self.last()
        );
        self.entries.truncate((first.index - self.first()) as usize);
        self.entries.extend(entries.iter().cloned());
    }

    /// Begins anew behind a snapshot.
    pub(super) fn reset(&mut self, snapshot: SnapshotMeta) {
        self.entries.clear();
        self.compaction = Compaction { index: snapshot.index, term: snapshot.term, begins_anew: true, snapshot };
    }

    /// The index behind which, up to `index`, there are no more than so many entries of so many bytes.
    pub(super) fn tail(&self, index: u64, entries_max: u64, bytes_max: u64) -> u64 {
        let (mut from, mut bytes) = (index, 0);
        while index - from < entries_max
            && let Some(entry) = self.get(from)
        {
            bytes += entry.data.len() as u64;
            if bytes > bytes_max {
                break;
            }
            from -= 1;
        }
        from
    }

    /// Notes a new snapshot, and lets go of entries up to `index`, which it holds.
    pub(super) fn compact(&mut self, index: u64, snapshot: SnapshotMeta) -> &Compaction {
        let index = index.clamp(self.compaction.index, snapshot.index.min(self.last()));
        if let Some(term) = self.get(index).map(|entry| entry.term) {
            self.entries.drain(..(index - self.compaction.index) as usize);
            self.entries.shrink_to(2 * self.entries.len() + ROOM_ENTRIES);
            self.compaction.index = index;
            self.compaction.term = term;
        }
        self.compaction.begins_anew = false;
        self.compaction.snapshot = snapshot;
        &self.compaction
    }
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard = HardState::default();
        if self.hard.term > 0 || self.compaction.snapshot.index > 0 {
            // Founders have no hard state yet, but the term of the snapshot they began with.
            hard.term = self.hard.term.max(self.compaction.snapshot.term);
            hard.vote = if hard.term == self.hard.term { self.hard.vote } else { 0 };
            hard.commit = self.hard.commit.max(self.compaction.snapshot.index);
        }
        Ok(RaftState::new(hard, conf_state(&self.compaction.snapshot)))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let range = (low - self.first()) as usize..(high - self.first()) as usize;
        let mut entries = Vec::new();
        for entry in self.entries.range(range) {
            bytes += entry.data.len() as u64 + 32;
            if !entries.is_empty() && bytes > max {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.compaction.index {
            return Ok(self.compaction.term);
        }
        if index < self.compaction.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.get(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let meta = &self.compaction.snapshot;
        // A node does not take a snapshot whose membership it does not belong to: one that was added later needs a newer one.
        if meta.index < request_index.max(1) || !meta.membership.all().contains(&to) {
            self.wants_snapshot.set(true);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(snapshot(meta))
    }
}

/// A description as the consensus crate carries it.
pub(crate) fn snapshot(meta: &SnapshotMeta) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut data = Vec::new();
    meta.encode(&mut data);
    snapshot.set_data(data.into());
    let metadata = snapshot.mut_metadata();
    metadata.index = meta.index;
    metadata.term = meta.term;
    metadata.set_conf_state(conf_state(meta));
    snapshot
}

/// The description that is in it.
pub(super) fn meta(snapshot: &Snapshot) -> Option<SnapshotMeta> {
    let meta = SnapshotMeta::parse(snapshot.get_data()).ok()?;
    let metadata = snapshot.get_metadata();
    let agrees = meta.index == metadata.index && meta.term == metadata.term;
    (agrees && *metadata.get_conf_state() == conf_state(&meta)).then_some(meta)
}

fn conf_state(meta: &SnapshotMeta) -> ConfState {
    let membership = &meta.membership;
    let mut state = ConfState::default();
    state.set_voters(membership.voters.clone());
    state.set_learners(membership.learners.clone());
    state.set_voters_outgoing(membership.outgoing.clone());
    state.set_learners_next(membership.learners_next.clone());
    state.set_auto_leave(membership.leaves_by_itself);
    state
}

/// The description of the snapshot that a message offers.
pub(crate) fn snapshot_of_wire(message: &raft::eraftpb::Message) -> Option<SnapshotMeta> {
    meta(message.get_snapshot())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_behind_a_snapshot_is_bounded_by_entries_and_by_bytes() {
        let entries = (1..=100).map(|index| Entry { term: 1, index, data: vec![0; 100].into(), ..Entry::default() });
        let log = MemoryLog::new(Hard::default(), Compaction::default(), entries.collect());
        assert_eq!(log.tail(90, 10, 1_000_000), 80);
        assert_eq!(log.tail(90, 1_000, 1_050), 80);
        assert_eq!(log.tail(90, 1_000, 99), 90);
        assert_eq!(log.tail(90, 1_000, 1_000_000), 0, "no more than there are");
        assert_eq!(log.tail(90, 0, 1_000), 90);
    }
}
