//! From the records that a write-ahead log still has to the state in which a node goes on.

mod passed;

use std::collections::VecDeque;

use bytes::Bytes;
use wal::files::Directory;
use wal::{Kind, Log, OpenError, Record};

use crate::codec::Malformed;
use crate::entry::{self, Entry};
use crate::machine::{RestoreError, StateMachine};
use crate::membership::Membership;
use crate::record::{Compaction, Hard};
use crate::settings::Settings;
use crate::snapshot::SnapshotMeta;

pub(crate) use passed::Passed;

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

/// Why a member cannot go on with what its disk has.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The write-ahead log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is not one that can be gone on with.
    #[error(transparent)]
    Log(#[from] RecoveryError),
    /// The state machine cannot forget what the log lacks.
    #[error(transparent)]
    Machine(#[from] RestoreError),
    /// Nothing is in it, and something should be.
    #[error("nothing is in the log")]
    Empty,
}

/// Opens a member's write-ahead log, and reads from it what `machine` and the consensus need. Entries that the machine has kept
/// ([`StateMachine::kept`]) pass through memory, and only the last of them stay: [`Settings::lagging_log_bytes`].
///
/// A machine that kept more than the log has was with another log, or installed a snapshot of which the log had not heard yet: it forgets
/// all of it.
pub fn recover<S: StateMachine, D: Directory>(
    directory: D,
    options: wal::Options,
    settings: &Settings,
    machine: &mut S,
) -> Result<(Log<D>, Recovered), RecoverError> {
    recover_unless_empty(directory, options, settings, machine, true)
}

/// The same. Where nothing is in a log that may not be empty, that is an error, and the machine has forgotten nothing: its state may be all that
/// is left.
pub(crate) fn recover_unless_empty<S: StateMachine, D: Directory>(
    directory: D,
    options: wal::Options,
    settings: &Settings,
    machine: &mut S,
    may_be_empty: bool,
) -> Result<(Log<D>, Recovered), RecoverError> {
    let read = |kept| {
        let mut recovery = Recovery::of_kept(settings, kept);
        let log = Log::open(directory.clone(), options, |record| recovery.visit(record))?;
        if let Some(wal::Torn { segment, offset }) = log.torn() {
            tracing::warn!(
                segment,
                offset,
                "what was written last is not whole, and is left out: a crash has torn it, or the disk has damaged it"
            );
        }
        Ok::<_, RecoverError>((log, recovery.finish()?))
    };
    let (log, recovered) = read(machine.kept())?;
    if !may_be_empty && recovered.is_empty() {
        return Err(RecoverError::Empty);
    }
    if machine.kept() <= recovered.last() {
        return Ok((log, recovered));
    }
    machine.forget()?;
    if recovered.passed_over_until() == 0 {
        return Ok((log, recovered));
    }
    // What it has forgotten it must be given again. The log is one process's: it is closed before it is opened.
    drop(log);
    read(machine.kept())
}

/// The state in which a node goes on. The default one is that of a new node that will be added to a group.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub(crate) hard: Hard,
    pub(crate) compaction: Compaction,
    /// Entries behind the compaction that are not in `entries`, because the state machine has kept what they did.
    pub(crate) passed: Passed,
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
        let begun = Self::begun_behind(after);
        let meta = begun.describe(settings, membership, 0);
        begun.replaced_by(
            settings,
            SnapshotMeta { bytes: snapshot.len() as u64, checksum: crc32c::crc32c(snapshot), ..meta },
        )
    }

    /// What a founding member has whose entries are numbered from behind this index, before it has its snapshot.
    pub(crate) fn begun_behind(after: u64) -> Self {
        Self { compaction: Compaction { index: after, ..Compaction::default() }, ..Self::default() }
    }

    /// A snapshot of the state behind everything that is there, with this membership; it lacks what its bytes decide. `time_millis` is the
    /// newest time of an entry in it.
    pub(crate) fn describe(&self, settings: &Settings, membership: Membership, time_millis: u64) -> SnapshotMeta {
        let last_term = self.entries.back().map_or(self.base().1, |entry| entry.term);
        SnapshotMeta {
            index: self.last() + 1,
            term: self.hard.term.max(last_term) + 1,
            time_millis,
            membership,
            bytes: 0,
            chunk_bytes: settings.snapshot_chunk_bytes,
            checksum: 0,
        }
    }

    /// The state behind this snapshot, which takes the place of everything that is there, and the records that must be committed before it is
    /// gone on with.
    pub(crate) fn replaced_by(self, settings: &Settings, snapshot: SnapshotMeta) -> (Self, Vec<Record>) {
        let compaction = Compaction { index: snapshot.index, term: snapshot.term, begins_anew: true, snapshot };
        let records = vec![compaction.record(settings.group)];
        (Self { hard: self.hard, compaction, ..Self::default() }, records)
    }

    /// The snapshot that the state machine must be restored from, unless there is none yet.
    pub fn snapshot(&self) -> Option<&SnapshotMeta> {
        (self.compaction.index > 0).then_some(&self.compaction.snapshot)
    }

    /// Whether nothing was ever written: a new node, or one that lost its disk.
    pub fn is_empty(&self) -> bool {
        self.compaction.index == 0 && self.hard == Hard::default() && self.last() == 0
    }

    /// The entry before the first one that is held, and its term.
    pub(crate) fn base(&self) -> (u64, u64) {
        self.passed.last().unwrap_or((self.compaction.index, self.compaction.term))
    }

    /// Up to which entry a state machine that kept its state need not be given any.
    pub(crate) fn applied(&self) -> u64 {
        self.base().0.max(self.compaction.snapshot.index)
    }

    /// A state machine that goes on with this must have kept what entries up to here did; 0: none was passed over.
    pub(crate) fn passed_over_until(&self) -> u64 {
        self.passed.last().map_or(0, |(last, _)| last)
    }

    /// The last entry's index.
    pub(crate) fn last(&self) -> u64 {
        self.base().0 + self.entries.len() as u64
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
    /// What the entries take.
    bytes: usize,
    /// In front of them.
    passed: Passed,
    /// Entries up to here need not be held, beyond so many bytes.
    kept: u64,
    tail_bytes: usize,
    malformed: Option<Malformed>,
}

impl Recovery {
    /// For this group's records; others are passed over.
    pub fn new(group: u16) -> Self {
        Self { group, ..Self::default() }
    }

    /// The same, for a state machine that has kept what entries up to `kept` did (see [`crate::StateMachine::kept`]): of these, only the
    /// last are held in memory, as many as a leader keeps for members that lag ([`Settings::lagging_log_bytes`]). Should the log turn out
    /// to end before `kept`, it must be read again for a machine that has kept nothing.
    pub fn of_kept(settings: &Settings, kept: u64) -> Self {
        Self { kept, tail_bytes: settings.lagging_log_bytes as usize, ..Self::new(settings.group) }
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
                        self.clear();
                    }
                    while let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= index) {
                        self.bytes -= size(&entry);
                    }
                    self.passed.forget_until(index, compaction.snapshot.index);
                    self.compaction = compaction;
                }
            }
            Kind::Entry => {
                let (kind, time_millis, data) = entry::parse(payload)?;
                while let Some(entry) = self.entries.pop_back_if(|entry| entry.index >= index) {
                    self.bytes -= size(&entry);
                }
                self.passed.cut_from(index);
                let before = self.entries.back().map(|entry| entry.index);
                if before.or(self.passed.last().map(|(last, _)| last)).is_some_and(|before| before + 1 != index) {
                    self.clear();
                }
                if index > self.compaction.index {
                    if self.entries.is_empty() && index.saturating_add(self.tail_entries()) < self.kept {
                        self.passed.push(index, term, kind, time_millis, data);
                        return Ok(());
                    }
                    let data = Bytes::copy_from_slice(data);
                    let entry = Entry { index, term, kind, time_millis, data };
                    self.bytes += size(&entry);
                    self.entries.push_back(entry);
                    self.pass_over();
                }
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.passed = Passed::default();
    }

    /// Lets go of entries that nobody needs.
    fn pass_over(&mut self) {
        while self.bytes > self.tail_bytes
            && let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= self.kept)
        {
            self.bytes -= size(&entry);
            let Entry { index, term, kind, time_millis, data } = entry;
            self.passed.push(index, term, kind, time_millis, &data);
        }
    }

    /// More entries than these are never held in front of the last one that is kept: what is further in front need not even be copied. A start
    /// reads millions of them.
    fn tail_entries(&self) -> u64 {
        (self.tail_bytes / size_of::<Entry>()) as u64
    }

    /// The state, unless something is missing.
    pub fn finish(self) -> Result<Recovered, RecoveryError> {
        if let Some(malformed) = self.malformed {
            return Err(malformed.into());
        }
        let Self { hard, compaction, entries, passed, .. } = self;
        if let Some(first) = passed.first().or(entries.front().map(|entry| entry.index))
            && first != compaction.index + 1
        {
            return Err(RecoveryError::Hole { after: compaction.index, first });
        }
        let recovered = Recovered { hard, compaction, passed, entries };
        let last = recovered.last();
        match [recovered.compaction.snapshot.index, hard.commit].into_iter().find(|commit| *commit > last) {
            Some(commit) => Err(RecoveryError::Short { commit, last }),
            None => Ok(recovered),
        }
    }
}

/// What an entry takes, about.
fn size(entry: &Entry) -> usize {
    size_of::<Entry>() + entry.data.len()
}

#[cfg(test)]
mod tests;
