//! A member with its state machine and its snapshots: everything but threads, the network, and the write-ahead log.
//!
//! What [`crate::Node`] asks for is done here as far as it concerns the state machine and snapshot files; the rest is the
//! caller's: send messages, commit batches, read clocks.

mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::io;

use bytes::Bytes;
use wal::files::Directory;

use crate::applying::{Applied, Applying, LongStep, LongStepDone, Next, Progress};
use crate::bugs::Planted;
use crate::clock::Now;
use crate::entry::EntryKind;
use crate::machine::{RestoreError, StateMachine};
use crate::membership::{Change, Membership};
use crate::message::{Body, Message};
use crate::node::{Batch, LostLog, Node, Output, Proposed, Rejected, StartError, Token};
use crate::reads::{ReadId, ReadLevel, ReadPermit};
use crate::recovery::Recovered;
use crate::settings::Settings;
use crate::snapshot::{
    ChunksJob, FilesJob, Receiving, SnapshotFailures, SnapshotId, SnapshotJob, SnapshotMeta, Store, is_without_room,
};

/// Why a member cannot go on. It must be stopped; starting it again may help.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The member cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Snapshot files cannot be read or written.
    #[error("snapshot files: {0}")]
    Files(#[from] io::Error),
    /// A snapshot is not one of this state machine.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// It does not have what it once said it had.
    #[error(transparent)]
    LostLog(#[from] LostLog),
}

/// What the caller has to do, or wants to know.
pub struct Effects<S: StateMachine, D: Directory> {
    /// Messages to other members, to be sent now.
    pub messages: Vec<Message>,
    /// To be committed to the write-ahead log; then call [`ReplicatedLog::persisted`].
    pub batch: Option<Batch>,
    /// Commands that were applied, with their replies.
    pub applied: Vec<Applied<S::Reply>>,
    /// A snapshot replaced the state: everything up to this index was applied elsewhere.
    pub installed: Option<u64>,
    /// Reads that may look at the state machine: see [`ReplicatedLog::answer`].
    pub reads: Vec<ReadPermit>,
    /// Reads that found no quorum in time.
    pub failed_reads: Vec<ReadId>,
    /// A snapshot to be made beside everything else; then call [`ReplicatedLog::snapshot_written`].
    pub snapshot: Option<SnapshotJob>,
    /// What takes the state machine long, to be taken beside everything else; then call [`ReplicatedLog::long_step_done`].
    pub long_step: Option<LongStep<S, D>>,
    /// What takes long with files, to be done beside everything else; then call [`ReplicatedLog::files_job_done`].
    pub files_job: Option<FilesJob<D>>,
    /// Chunks to be read for another member, beside everything else; then call [`ReplicatedLog::chunks_read`].
    pub chunks_job: Option<ChunksJob<D>>,
}

impl<S: StateMachine, D: Directory> Default for Effects<S, D> {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            batch: None,
            applied: Vec::new(),
            installed: None,
            reads: Vec::new(),
            failed_reads: Vec::new(),
            snapshot: None,
            long_step: None,
            files_job: None,
            chunks_job: None,
        }
    }
}

impl<S: StateMachine, D: Directory> Effects<S, D> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let Self {
            messages,
            batch,
            applied,
            installed,
            reads,
            failed_reads,
            snapshot,
            long_step,
            files_job,
            chunks_job,
        } = self;
        messages.is_empty()
            && batch.is_none()
            && applied.is_empty()
            && installed.is_none()
            && reads.is_empty()
            && failed_reads.is_empty()
            && snapshot.is_none()
            && long_step.is_none()
            && files_job.is_none()
            && chunks_job.is_none()
    }
}

/// A replicated log in front of a state machine: one member of the group.
pub struct ReplicatedLog<S: StateMachine, D: Directory> {
    node: Node,
    applying: Applying<S, D>,
    /// What came of steps and was not handed out yet.
    applied: Vec<Applied<S::Reply>>,
    installed: Option<u64>,
    store: Store<D>,
    receiving: Option<Receiving>,
    /// All of it has come, and is looked at.
    received: Option<Receiving>,
    /// Who was said to be sent which snapshot, and is not known to have it.
    sending: BTreeMap<u64, SnapshotMeta>,
    /// What is to be done with files, and whether that is under way.
    files_job: Option<FilesJob<D>>,
    is_at_files: bool,
    /// Chunks that members have asked for last, what is to be read of them, and whether that is under way.
    wanted_chunks: BTreeMap<u64, (SnapshotId, Vec<u32>)>,
    chunks_job: Option<ChunksJob<D>>,
    is_reading_chunks: bool,
    /// What was proposed here and is not applied yet, in the order of indices: somebody waits for the replies.
    proposed: VecDeque<Proposed>,
    /// Newest time of an entry that was applied.
    time_millis: u64,
    messages: Vec<Message>,
    is_making_snapshot: bool,
    /// Somebody cannot go on without a newer one.
    wants_snapshot: bool,
    /// Nobody need be told again that there is no room for what the leader sends.
    lacks_room: bool,
    /// The last snapshot in whose place nothing older is on disk any more.
    settled_snapshot: u64,
    snapshot_failures: SnapshotFailures,
    /// Of the last snapshot, and of the commands that were applied since it was begun.
    snapshot_bytes: u64,
    applied_bytes: u64,
    planted: Planted,
}

/// A snapshot writes everything: it is worth that only when the log since the last one has at least this part of its size. So what
/// snapshots cost is in proportion to what was proposed, however large the state is.
const SNAPSHOT_LOG_PART: u64 = 2;

impl<S: StateMachine, D: Directory> ReplicatedLog<S, D> {
    /// A member that goes on where its log ended. `machine` is as before any entry; `snapshots` is a directory of its own.
    /// `seed` must differ at every start.
    pub fn new(
        id: u64,
        settings: Settings,
        machine: S,
        recovered: Recovered,
        snapshots: D,
        seed: u64,
        now: Now,
    ) -> Result<Self, Fatal> {
        Self::planted(id, settings, machine, recovered, snapshots, (seed, now), Planted::default())
    }

    /// The same with errors, for simulations that show that they notice them.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub fn with_bugs(
        id: u64,
        settings: Settings,
        machine: S,
        recovered: Recovered,
        snapshots: D,
        (seed, now): (u64, Now),
        bugs: [Option<crate::bugs::Bug>; 2],
    ) -> Result<Self, Fatal> {
        Self::planted(id, settings, machine, recovered, snapshots, (seed, now), Planted::both(bugs))
    }

    pub(crate) fn planted(
        id: u64,
        settings: Settings,
        mut machine: S,
        recovered: Recovered,
        snapshots: D,
        (seed, now): (u64, Now),
        planted: Planted,
    ) -> Result<Self, Fatal> {
        let store = Store::open(snapshots, planted);
        let (mut time_millis, mut snapshot_bytes, mut settled_snapshot) = (0, 0, 0);
        if machine.kept() > recovered.last() {
            machine.forget()?;
        }
        if machine.kept() < recovered.passed_over_until() {
            return Err(
                StartError("its log was read for a state machine that kept more than this one has".into()).into()
            );
        }
        if let Some(meta) = recovered.snapshot() {
            if machine.kept() < meta.index {
                machine.restore(&mut store.load(meta)?)?;
                machine.restored(meta.time_millis);
                machine.applied(meta.index);
            }
            (time_millis, snapshot_bytes, settled_snapshot) = (meta.time_millis, meta.bytes, meta.index);
        }
        time_millis = time_millis.max(recovered.passed.time_millis);
        let applied_bytes = recovered.passed.command_bytes;
        let node = Node::planted(id, settings, recovered, seed, now, planted)?;
        Ok(Self {
            node,
            applying: Applying::new(machine),
            applied: Vec::new(),
            installed: None,
            store,
            receiving: None,
            received: None,
            sending: BTreeMap::new(),
            files_job: None,
            is_at_files: false,
            wanted_chunks: BTreeMap::new(),
            chunks_job: None,
            is_reading_chunks: false,
            proposed: VecDeque::new(),
            time_millis,
            messages: Vec::new(),
            is_making_snapshot: false,
            wants_snapshot: false,
            lacks_room: false,
            settled_snapshot,
            snapshot_failures: SnapshotFailures::default(),
            snapshot_bytes,
            applied_bytes,
            planted,
        })
    }

    /// Writes the snapshot that a founding member begins with: see [`Recovered::found`], whose records come after.
    pub fn found(
        settings: &Settings,
        machine: &S,
        membership: Membership,
        snapshots: D,
    ) -> io::Result<(Recovered, Vec<wal::Record>)> {
        Self::found_after(settings, machine, membership, snapshots, 0)
    }

    /// The same, with entries that are numbered from behind this index: see [`Recovered::found_after`].
    pub fn found_after(
        settings: &Settings,
        machine: &S,
        membership: Membership,
        snapshots: D,
        after: u64,
    ) -> io::Result<(Recovered, Vec<wal::Record>)> {
        let begun = Recovered::begun_behind(after);
        let meta = begun.describe(settings, membership, 0);
        let meta = SnapshotJob::new(meta, machine.snapshot(), snapshots).run()?;
        Ok(begun.replaced_by(settings, meta))
    }

    /// Tells the member what time it is.
    pub fn tick(&mut self, now: Now) {
        self.node.tick(now);
        self.ask_for_chunks(now);
        self.tell_sent();
    }

    /// Another member's connection to this one has closed: see [`Node::link_closed`].
    pub fn link_closed(&mut self, other: u64) {
        self.node.link_closed(other);
    }

    /// A message came. `now` must have been read after it was taken from its queue.
    pub fn receive(&mut self, message: Message, now: Now) -> Result<(), Fatal> {
        match message.body {
            Body::Consensus(..) => self.node.receive(message, now)?,
            Body::Snapshot(snapshot) => self.receive_of_snapshot(message.from, snapshot, now)?,
            // Not the log's business.
            Body::Note(_) => {}
        }
        Ok(())
    }

    /// Appends commands to the log, all or none. They have succeeded when [`Effects::applied`] says so of this term and index.
    pub fn propose(&mut self, commands: impl AsRef<[Bytes]>, now: Now) -> Result<Proposed, Rejected> {
        let proposed = self.node.propose(commands, now)?;
        // What an earlier term left of the log at these indices was cut.
        while self.proposed.pop_back_if(|before| before.last >= proposed.first).is_some() {}
        self.proposed.push_back(proposed);
        Ok(proposed)
    }

    /// Whether somebody here waits for the reply to this entry. To be asked in the order of indices.
    fn is_awaited(&mut self, index: u64, term: u64) -> bool {
        while self.proposed.pop_front_if(|before| before.last < index).is_some() {}
        self.proposed.front().is_some_and(|next| next.first <= index && next.term == term)
    }

    /// Asks to read: see [`Node::read`].
    pub fn read(&mut self, level: ReadLevel, at_least: u64, now: Now) -> Result<ReadId, Rejected> {
        self.node.read(level, at_least, now)
    }

    /// Looks at the state machine for a read, and says whether what was seen may be told; `clock` is asked after the look.
    /// `None`: read again with level `Linearizable`; also while the state machine takes a long step.
    pub fn answer<T>(&self, permit: &ReadPermit, look: impl FnOnce(&S) -> T, clock: impl FnOnce() -> Now) -> Option<T> {
        let seen = look(self.applying.machine()?);
        self.node.confirm(permit, clock()).then_some(seen)
    }

    /// Changes the membership: see [`Node::change_membership`].
    pub fn change_membership(&mut self, changes: &[Change]) -> Result<Proposed, Rejected> {
        self.node.change_membership(changes)
    }

    /// Hands leadership over: see [`Node::transfer_leader`].
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), Rejected> {
        self.node.transfer_leader(to)
    }

    /// This batch and all before it are safe on disk.
    pub fn persisted(&mut self, token: Token) {
        self.node.persisted(token);
    }

    /// Does what is to be done here, and hands out the rest. Call it after inputs.
    pub fn take(&mut self, now: Now) -> Result<Effects<S, D>, Fatal> {
        let mut effects = Effects::default();
        self.advance(&mut effects)?;
        loop {
            let output = self.node.take(now);
            if output.is_empty() {
                break;
            }
            let has_batch = output.batch.is_some();
            self.absorb(output, now, &mut effects)?;
            // One batch at a time: what comes next waits for the next call.
            if has_batch {
                break;
            }
        }
        effects.applied = std::mem::take(&mut self.applied);
        effects.installed = self.installed.take();
        effects.files_job = self.files_job.take();
        effects.chunks_job = self.chunks_job.take();
        effects.messages.append(&mut self.messages);
        Ok(effects)
    }

    /// Lets the state machine take what waits for it, as far as that is quick.
    fn advance(&mut self, effects: &mut Effects<S, D>) -> Result<(), Fatal> {
        loop {
            match self.applying.advance()? {
                Next::Taken(progress) => self.count(progress),
                Next::Long(step) => effects.long_step = Some(step),
                Next::Nothing => return Ok(()),
            }
        }
    }

    /// The state machine has gone on.
    fn count(&mut self, progress: Progress<S::Reply>) {
        let Progress { installed, mut applied, time_millis, bytes, last } = progress;
        match self.applied.is_empty() {
            true => self.applied = applied,
            false => self.applied.append(&mut applied),
        }
        self.time_millis = self.time_millis.max(time_millis);
        match installed {
            Some(meta) => {
                (self.snapshot_bytes, self.applied_bytes) = (meta.bytes, 0);
                self.installed = Some(last);
                self.node.restored(last);
            }
            None => {
                self.applied_bytes += bytes;
                // Unless a snapshot of more has come meanwhile, and waits for the state machine.
                if last > self.node.snapshot_index() {
                    self.node.applied(last);
                }
            }
        }
    }

    /// A long step was taken.
    pub fn long_step_done(&mut self, done: LongStepDone<S>) -> Result<(), Fatal> {
        let progress = self.applying.long_step_done(done)?;
        self.count(progress);
        Ok(())
    }

    /// Bytes of entries that are decided and wait for the state machine.
    pub fn waiting_bytes(&self) -> usize {
        self.applying.waiting_bytes()
    }

    fn absorb(&mut self, output: Output, now: Now, effects: &mut Effects<S, D>) -> Result<(), Fatal> {
        let Output { messages, batch, install, entries, reads, failed_reads, offer, wants_snapshot, settled_snapshot } =
            output;
        effects.messages.extend(messages);
        assert!(effects.batch.is_none(), "one batch at a time");
        assert!(install.is_none() || entries.is_empty(), "entries behind a snapshot wait until it is installed");
        effects.batch = batch;
        effects.reads.extend(reads);
        effects.failed_reads.extend(failed_reads);
        if let Some(meta) = install {
            let reader = self.store.load(&meta)?;
            self.applying.install(meta, reader);
        }
        if !entries.is_empty() {
            let entries = entries.into_iter().map(|entry| {
                let is_awaited = entry.kind == EntryKind::Command && self.is_awaited(entry.index, entry.term);
                (entry, is_awaited)
            });
            let entries = entries.collect();
            self.applying.apply(entries);
        }
        self.advance(effects)?;
        let since = self.node.applied_index().saturating_sub(self.node.snapshot_index());
        let Settings { snapshot_entries, snapshot_log_bytes, .. } = *self.node.settings();
        // Who is fetching the last one would have to begin again; but the log shall not grow for ever.
        let patience = if self.node.is_sending_snapshot() { 4 } else { 1 };
        let is_due = since >= snapshot_entries.saturating_mul(patience)
            || self.applied_bytes >= snapshot_log_bytes.saturating_mul(patience);
        let is_worth_it = self.applied_bytes >= self.snapshot_bytes / SNAPSHOT_LOG_PART;
        self.wants_snapshot |= wants_snapshot;
        if self.wants_snapshot || is_due && is_worth_it {
            effects.snapshot = effects.snapshot.take().or_else(|| self.begin_snapshot());
        }
        if let Some((from, meta)) = offer {
            self.begin_receiving(from, meta, now)?;
        }
        if let Some(meta) = settled_snapshot {
            self.store.prune(&meta.id())?;
            self.settled_snapshot = meta.index;
        }
        Ok(())
    }

    /// The last snapshot in whose place nothing older is on disk any more, neither files nor entries.
    pub fn settled_snapshot(&self) -> u64 {
        self.settled_snapshot
    }

    /// Snapshots that found no room on the disk.
    pub fn snapshot_failures(&self) -> &SnapshotFailures {
        &self.snapshot_failures
    }

    /// A snapshot of what was applied, to be made, due or not, if that is more than the last one has; one at a time.
    pub fn begin_snapshot(&mut self) -> Option<SnapshotJob> {
        // A machine that kept its state is ahead of what is known to be committed, until the log has caught up.
        let may_begin = |machine: &&S| !self.is_making_snapshot && machine.kept() <= self.node.applied_index();
        let machine = self.applying.machine().filter(may_begin)?;
        let meta = SnapshotMeta { time_millis: self.time_millis, ..self.node.describe_snapshot()? };
        self.is_making_snapshot = true;
        self.wants_snapshot = false;
        self.applied_bytes = 0;
        Some(SnapshotJob::new(meta, machine.snapshot(), self.store.directory().clone()))
    }

    /// What came of [`Effects::snapshot`]. One that found no room on the disk is made again later: the log has everything.
    pub fn snapshot_written(&mut self, written: io::Result<SnapshotMeta>) -> Result<(), Fatal> {
        self.is_making_snapshot = false;
        let meta = match written {
            Err(error) if is_without_room(&error) => {
                tracing::warn!(%error, "no room for a snapshot; it is made when there is");
                let bytes = self.snapshot_bytes;
                self.snapshot_failures.count += 1;
                self.snapshot_failures.last =
                    format!("no room for a snapshot, of which the last took {bytes} bytes: {error}").into();
                return Ok(());
            }
            written => written?,
        };
        self.snapshot_bytes = meta.bytes;
        self.node.snapshot_made(meta);
        Ok(())
    }

    /// The member's consensus, to be looked at.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The state machine, to be looked at: what [`ReadLevel::Eventual`] sees. `None` while it takes a long step.
    pub fn machine(&self) -> Option<&S> {
        self.applying.machine()
    }

    /// Lets the state machine do what it put off.
    pub(crate) fn idle(&mut self) {
        if let Some(machine) = self.applying.machine_mut() {
            machine.idle();
        }
    }

    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn machine_mut(&mut self) -> Option<&mut S> {
        self.applying.machine_mut()
    }
}
