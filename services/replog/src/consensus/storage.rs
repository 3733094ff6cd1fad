//! The log in memory, as the consensus crate wants to read it, safe on disk or not: all that is not applied yet, and of what is
//! applied, what another member may still ask for. The log on disk has more, since the last compaction; whoever needs that, or
//! what is older, is sent a snapshot.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::record::{Compaction, Hard};
use crate::snapshot::SnapshotMeta;

/// Entries that there is always room for.
const ROOM_ENTRIES: usize = 1024;

/// How much may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

impl Limit {
    pub(super) const NOTHING: Self = Self { entries: 0, bytes: 0 };
}

/// What others may still ask for: see [`MemoryLog::release`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Everything after this index stays, however much it is.
    pub(super) after: u64,
    /// After this one, `lagging` of it stays.
    pub(super) lagging_after: u64,
    pub(super) lagging: Limit,
    /// How much of all other entries stays.
    pub(super) tail: Limit,
}

/// The log in memory.
pub(super) struct MemoryLog {
    hard: Hard,
    /// What the log on disk begins with.
    compaction: Compaction,
    /// The entry before the first one here, not before the compaction's, and its term.
    base: (u64, u64),
    entries: VecDeque<Entry>,
    /// What the entries take.
    bytes: usize,
    /// Somebody needs a snapshot that knows it: see [`Storage::snapshot`] below.
    wants_snapshot: Cell<bool>,
}

impl MemoryLog {
    /// `base` is the entry before the first of these, and its term: applied, if it is not the compaction's.
    pub(super) fn new(hard: Hard, compaction: Compaction, base: (u64, u64), entries: VecDeque<Entry>) -> Self {
        let bytes = entries.iter().map(size).sum();
        Self { hard, compaction, base, entries, bytes, wants_snapshot: Cell::new(false) }
    }

    /// Whether a newer snapshot is needed; asked once.
    pub(super) fn take_wish(&self) -> bool {
        self.wants_snapshot.take()
    }

    fn first(&self) -> u64 {
        self.base.0 + 1
    }

    fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// The term of the entry before the first one that is here.
    pub(super) fn base_term(&self) -> u64 {
        self.base.1
    }

    /// How many entries are here, and how many bytes they take.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
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
            first.index > self.base.0 && first.index <= self.last() + 1,
            "entry {} does not join a log from {} to {}",
            first.index,
            self.first(),
            self.last()
        );
        let kept = (first.index - self.first()) as usize;
        self.bytes -= self.entries.range(kept..).map(size).sum::<usize>();
        self.entries.truncate(kept);
        self.bytes += entries.iter().map(size).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Begins anew behind a snapshot.
    pub(super) fn reset(&mut self, snapshot: SnapshotMeta) {
        self.entries.clear();
        self.bytes = 0;
        self.base = (snapshot.index, snapshot.term);
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

    /// Notes a new snapshot, and that entries up to `index`, which it holds, are no longer needed, neither here nor on disk. What is
    /// not here is not needed on disk either, since nobody reads it there but a member that starts.
    pub(super) fn compact(&mut self, index: u64, snapshot: SnapshotMeta) -> &Compaction {
        let index = index.max(self.base.0).clamp(self.compaction.index, snapshot.index.min(self.last()));
        let term = match index {
            index if index == snapshot.index => Some(snapshot.term),
            index => self.term(index).ok(),
        };
        if let Some(term) = term {
            (self.compaction.index, self.compaction.term) = (index, term);
            self.drop_until(index);
        }
        self.compaction.begins_anew = false;
        self.compaction.snapshot = snapshot;
        &self.compaction
    }

    /// Lets go of entries up to `applied` that others do not need.
    pub(super) fn release(&mut self, applied: u64, needs: &Needs) {
        let (mut index, mut entries, mut bytes) = (self.base.0, self.entries.len(), self.bytes);
        for entry in self.entries.iter().take_while(|entry| entry.index <= applied.min(needs.after)) {
            let Limit { entries: entries_max, bytes: bytes_max } =
                if entry.index > needs.lagging_after { needs.lagging } else { needs.tail };
            if entries <= entries_max && bytes <= bytes_max {
                break;
            }
            (index, entries, bytes) = (entry.index, entries - 1, bytes - size(entry));
        }
        self.drop_until(index);
    }

    fn drop_until(&mut self, index: u64) {
        let Some(term) = self.get(index).map(|entry| entry.term) else { return };
        let dropped = self.entries.drain(..=(index - self.first()) as usize);
        self.bytes -= dropped.map(|entry| size(&entry)).sum::<usize>();
        self.base = (index, term);
        if self.entries.capacity() > 4 * (self.entries.len() + ROOM_ENTRIES) {
            self.entries.shrink_to(2 * self.entries.len() + ROOM_ENTRIES);
        }
    }
}

/// What an entry takes, about.
fn size(entry: &Entry) -> usize {
    size_of::<Entry>() + entry.data.len()
}

impl Storage for MemoryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard = HardState::default();
        if self.hard.term > 0 || self.compaction.snapshot.index > 0 {
            // Founders have no hard state yet, but the term of the snapshot they began with.
            hard.term = self.hard.term.max(self.compaction.snapshot.term);
            hard.vote = if hard.term == self.hard.term { self.hard.vote } else { 0 };
            hard.commit = self.hard.commit.max(self.compaction.snapshot.index).max(self.base.0);
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
        if index == self.base.0 {
            return Ok(self.base.1);
        }
        if index < self.base.0 {
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
        // A node does not take a snapshot whose membership it does not belong to: one that was added later needs a newer one. So does
        // who could not go on behind it.
        if meta.index < request_index.max(1).max(self.base.0) || !meta.membership.all().contains(&to) {
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

    fn log() -> MemoryLog {
        let entries = (1..=100).map(|index| Entry { term: 1, index, data: vec![0; 100].into(), ..Entry::default() });
        MemoryLog::new(Hard::default(), Compaction::default(), (0, 0), entries.collect())
    }

    const ENTRY_BYTES: usize = size_of::<Entry>() + 100;
    const ALL: Limit = Limit { entries: usize::MAX, bytes: usize::MAX };

    fn tail(entries: usize) -> Needs {
        let tail = Limit { entries, bytes: usize::MAX };
        Needs { after: u64::MAX, lagging_after: u64::MAX, lagging: ALL, tail }
    }

    #[test]
    fn what_nobody_needs_is_let_go_of() {
        let mut log = log();
        log.release(60, &tail(0));
        assert_eq!((log.first_index(), log.last_index()), (Ok(61), Ok(100)), "what is not applied stays");
        assert_eq!(log.term(60), Ok(1), "the term before the first entry is known");
        assert_eq!(log.term(59), Err(Error::Store(StorageError::Compacted)));
        assert_eq!(log.held(), (40, 40 * ENTRY_BYTES));
        log.release(100, &tail(10));
        assert_eq!(log.first_index(), Ok(91));
        log.release(100, &Needs { tail: Limit { bytes: 5 * ENTRY_BYTES, ..ALL }, ..tail(0) });
        assert_eq!(log.first_index(), Ok(96));
        log.release(100, &tail(0));
        assert_eq!((log.first_index(), log.last_index(), log.held()), (Ok(101), Ok(100), (0, 0)));
        log.append(&[Entry { term: 2, index: 101, ..Entry::default() }]);
        assert_eq!((log.term(101), log.held().0), (Ok(2), 1));
    }

    #[test]
    fn a_member_that_lags_keeps_entries_and_one_that_is_gone_keeps_few() {
        let mut log = log();
        log.release(100, &Needs { after: 30, ..tail(0) });
        assert_eq!(log.first_index(), Ok(31));
        let lagging = Limit { entries: 20, ..ALL };
        log.release(100, &Needs { lagging_after: 40, lagging, ..tail(0) });
        assert_eq!(log.first_index(), Ok(81));
        log.release(100, &Needs { lagging_after: 90, lagging, ..tail(0) });
        assert_eq!(log.first_index(), Ok(91), "what it has it does not keep");
    }

    fn snapshot_at(index: u64) -> SnapshotMeta {
        let membership = crate::membership::Membership::of([1, 2]);
        SnapshotMeta { index, term: 1, membership, ..SnapshotMeta::default() }
    }

    #[test]
    fn a_snapshot_behind_which_nothing_joins_is_not_offered() {
        let mut log = log();
        log.compact(50, snapshot_at(50));
        assert!(log.snapshot(0, 2).is_ok());
        log.release(60, &tail(0));
        assert_eq!(log.snapshot(0, 2), Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable)));
        assert!(log.take_wish(), "a newer one is wanted");
        log.compact(70, snapshot_at(70));
        assert!(log.snapshot(0, 2).is_ok());
    }

    #[test]
    fn a_compaction_knows_the_term_of_an_entry_that_is_gone() {
        let mut log = log();
        log.release(60, &tail(0));
        let of_gone = log.compact(40, snapshot_at(50)).clone();
        assert_eq!((of_gone.index, of_gone.term, of_gone.snapshot.index), (50, 1, 50));
        assert_eq!(log.first_index(), Ok(61));
        let of_base = log.compact(55, snapshot_at(70)).clone();
        assert_eq!((of_base.index, of_base.term), (60, 1));
        let of_kept = log.compact(65, snapshot_at(80)).clone();
        assert_eq!((of_kept.index, of_kept.term, log.first_index()), (65, 1, Ok(66)));
    }

    #[test]
    fn what_is_kept_behind_a_snapshot_is_bounded_by_entries_and_by_bytes() {
        let log = log();
        assert_eq!(log.tail(90, 10, 1_000_000), 80);
        assert_eq!(log.tail(90, 1_000, 1_050), 80);
        assert_eq!(log.tail(90, 1_000, 99), 90);
        assert_eq!(log.tail(90, 1_000, 1_000_000), 0, "no more than there are");
        assert_eq!(log.tail(90, 0, 1_000), 90);
    }
}
