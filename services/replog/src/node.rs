//! One member's consensus, without I/O, clocks or threads. Inputs are method calls; [`Node::take`] hands out what is to be done.
//!
//! The caller must, for every [`Output`]: send `messages` (or lose them); commit `batch.records` to its write-ahead log, batches
//! in order, and then call [`Node::persisted`]; apply `entries` to the state machine in order and call [`Node::applied`]; let
//! the reads look. Messages that promise what is not safe yet stay inside until it is. The caller may go on calling in the
//! meantime: entries travel to followers while the own disk works.
//!
//! After any error of the write-ahead log the caller must stop using the node, and open the log again.

mod acceptance;
#[cfg(test)]
mod hostile;
mod inputs;
mod stamps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wal::Record;

use crate::bugs::{Bug, Planted};
use crate::clock::Now;
use crate::consensus::{Appended, Consensus, Role, Wire, WireKind, Work};
use crate::entry::{Entry, EntryKind};
use crate::lease::{Lease, Promise};
use crate::membership::Membership;
use crate::message::{Body, Mark, Message, Stamp};
use crate::reads::{ReadId, ReadPermit, Reads};
use crate::record::{self, Hard};
use crate::recovery::Recovered;
use crate::settings::Settings;
use crate::snapshot::SnapshotMeta;

pub use acceptance::LostLog;
pub use inputs::{Proposed, Rejected};
pub use stamps::Standing;

/// Why a node cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node cannot start: {0}")]
pub struct StartError(pub(crate) String);

/// Names a batch of records that must become safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Records that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What [`Node::persisted`] is told when the batch is safe.
    pub token: Token,
    /// What `wal::Log::commit` must write.
    pub records: Vec<Record>,
}

/// What is to be done, in this order where order matters.
#[derive(Debug, Default)]
pub struct Output {
    /// May be sent now.
    pub messages: Vec<Message>,
    /// The records that must become safe before the messages behind them are sent.
    pub batch: Option<Batch>,
    /// Replaces the state machine's state, before `entries` are applied.
    pub install: Option<SnapshotMeta>,
    /// Committed entries, to be applied. Those of a kind other than `Command` are for information.
    pub entries: Vec<Entry>,
    /// Reads that may look at the state machine once it has these entries.
    pub reads: Vec<ReadPermit>,
    /// Reads that found no quorum in time; nothing is known about why.
    pub failed_reads: Vec<ReadId>,
    /// A leader offers a snapshot: fetch it from there, then call [`Node::snapshot_received`].
    pub offer: Option<(u64, SnapshotMeta)>,
    /// Somebody cannot go on without a newer snapshot: make one, and call [`Node::snapshot_made`].
    pub wants_snapshot: bool,
    /// The snapshot that the log relies on is named in the log, safe on disk: older ones can go.
    pub settled_snapshot: Option<SnapshotMeta>,
}

impl Output {
    /// Whether there is nothing to be done.
    pub fn is_empty(&self) -> bool {
        let Self { messages, batch, install, entries, reads, failed_reads, offer, wants_snapshot, settled_snapshot } =
            self;
        messages.is_empty()
            && batch.is_none()
            && install.is_none()
            && entries.is_empty()
            && reads.is_empty()
            && failed_reads.is_empty()
            && offer.is_none()
            && !wants_snapshot
            && settled_snapshot.is_none()
    }
}

/// A batch that is not safe yet.
#[derive(Debug)]
struct Unsafe {
    token: Token,
    /// When it was handed out, by the boot clock.
    since_micros: u64,
    /// The last piece of work in it.
    number: u64,
    /// The newest term that it makes safe.
    term: u64,
    /// May be sent when it is safe.
    messages: Vec<Message>,
    /// The snapshot whose name it makes safe, and whether it was installed.
    snapshot: Option<(SnapshotMeta, bool)>,
}

/// A snapshot that a leader offered.
#[derive(Debug)]
struct Offer {
    wire: Wire,
    meta: SnapshotMeta,
}

/// The newest message of a leader that was heard in this term.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    leader: u64,
    term: u64,
    sent: u64,
}

/// What this node knows about its age: it has seen, or will when it has applied `commit`, all that was acknowledged before
/// `as_of`.
#[derive(Clone, Copy, Debug, Default)]
struct Freshness {
    as_of: u64,
    commit: u64,
}

/// One member of a group.
pub struct Node {
    settings: Settings,
    planted: Planted,
    incarnation: u64,
    consensus: Consensus,
    membership: Membership,
    /// Memberships by the entry that made them, as long as the state machine may be behind.
    memberships: VecDeque<(u64, Membership)>,
    promise: Promise,
    lease: Lease,
    heard: Heard,
    /// The newest mark that came from each of the others.
    marks: BTreeMap<u64, Mark>,
    freshness: Freshness,
    /// The same of what was applied when `freshness` was learned: the commit index of that may not be applied for long. 0: not known.
    reached_micros: u64,
    reads: Reads,
    last_tick: u64,
    /// The newest time of an entry, and when this node learned of it: no entry of ours is stamped with less, and time goes on from there.
    /// So a leader whose clock was wrong for a while leaves the log ahead of all clocks, but does not stop its time.
    time_floor_millis: u64,
    time_floor_micros: u64,
    /// What the newest hard state on its way to disk says, and what the consensus wants it to say.
    written: Hard,
    hard: Hard,
    durable_term: u64,
    next_token: u64,
    last_number: u64,
    batches: VecDeque<Unsafe>,
    /// When a batch was safe last, by the tick before.
    persisted_micros: u64,
    released: Vec<Message>,
    pending: Vec<Record>,
    pending_snapshot: Option<(SnapshotMeta, bool)>,
    settled_snapshot: Option<SnapshotMeta>,
    handed_out: u64,
    applied: u64,
    /// The newest snapshot that the state machine was replaced by, and the newest such whose name is safe: what both have reached is
    /// applied.
    restored: u64,
    installed: u64,
    offer: Option<Offer>,
    is_offer_new: bool,
    /// Since when a snapshot is on its way to whom, without a sign of life.
    transfers: BTreeMap<u64, u64>,
}

impl Node {
    /// A node that goes on where its log ended. `seed` must differ at every start, and decides everything that is random.
    pub fn new(id: u64, settings: Settings, recovered: Recovered, seed: u64, now: Now) -> Result<Self, StartError> {
        Self::planted(id, settings, recovered, seed, now, Planted::default())
    }

    pub(crate) fn planted(
        id: u64,
        settings: Settings,
        recovered: Recovered,
        seed: u64,
        now: Now,
        planted: Planted,
    ) -> Result<Self, StartError> {
        settings.check().map_err(|what| StartError(format!("settings: {what}")))?;
        if id == 0 {
            return Err(StartError("its id is 0".into()));
        }
        let hard = recovered.hard;
        let applied = recovered.applied();
        let newest = recovered.entries.iter().map(|entry| entry.time_millis).max().unwrap_or_default();
        let newest = newest.max(recovered.passed.time_millis);
        let time_floor_millis = newest.max(recovered.compaction.snapshot.time_millis);
        let promise = match planted.has(Bug::NoWithholdingAfterRestart) || planted.has(Bug::LeaseWithoutWithholding) {
            true => Promise::none(),
            false => Promise::at_start(now.boot_micros, hard.term == 0, settings.election_micros()),
        };
        let consensus = Consensus::new(id, &settings, recovered, seed).map_err(StartError)?;
        let membership = consensus.membership();
        let mut node = Self {
            last_tick: now.boot_micros / settings.tick_micros,
            reads: Reads::new(id, seed, settings.reads_max),
            memberships: VecDeque::from([(applied, membership.clone())]),
            incarnation: seed,
            planted,
            consensus,
            membership,
            promise,
            lease: Lease::default(),
            heard: Heard::default(),
            marks: BTreeMap::new(),
            freshness: Freshness::default(),
            reached_micros: 0,
            time_floor_millis,
            time_floor_micros: now.boot_micros,
            written: hard,
            hard,
            durable_term: hard.term,
            next_token: 0,
            last_number: 0,
            batches: VecDeque::new(),
            persisted_micros: 0,
            released: Vec::new(),
            pending: Vec::new(),
            pending_snapshot: None,
            settled_snapshot: None,
            handed_out: applied,
            applied,
            restored: 0,
            installed: 0,
            offer: None,
            is_offer_new: false,
            transfers: BTreeMap::new(),
            settings,
        };
        #[cfg(any(test, feature = "planted-bugs"))]
        if node.planted.has(Bug::ReadContextReused) {
            node.reads.reuse_names();
        }
        if node.consensus.is_sole_voter() {
            // There is nobody to wait for.
            node.consensus.campaign();
        }
        Ok(node)
    }

    /// What is to be done now. Call it after inputs, until it is empty or until enough is under way.
    pub fn take(&mut self, now: Now) -> Output {
        let mut output = Output::default();
        self.start_round(now);
        let mut batch = std::mem::take(&mut self.pending);
        let mut waiting = Vec::new();
        let mut snapshot = self.pending_snapshot.take();
        while let Some(work) = self.consensus.work() {
            self.do_work(work, now, &mut batch, &mut waiting, &mut snapshot, &mut output);
            if output.install.is_some() {
                break;
            }
        }
        self.close_batch(batch, waiting, snapshot, now, &mut output);
        output.messages.append(&mut self.released);
        self.give_up_lease(&output.messages);
        self.stamp(&mut output.messages, now);
        self.reads.ready(self.applied, &mut output.reads);
        output.failed_reads = self.reads.take_failed();
        output.wants_snapshot = self.consensus.take_snapshot_wish();
        output.settled_snapshot = self.settled_snapshot.take();
        if std::mem::take(&mut self.is_offer_new) {
            output.offer = self.offer.as_ref().map(|offer| (offer.wire.from, offer.meta.clone()));
        }
        output
    }

    /// Whoever is offered leadership asks for votes that nobody withholds, however late the offer comes. It is made only to who has the
    /// whole log: to wish for it costs nothing.
    fn give_up_lease(&mut self, messages: &[Message]) {
        let term = self.consensus.term();
        let is_offer = |message: &Message| match &message.body {
            Body::Consensus(wire, _) => wire.get_msg_type() == WireKind::MsgTimeoutNow && wire.term == term,
            _ => false,
        };
        if !self.planted.has(Bug::LeaseKeptAfterTransfer) && messages.iter().any(is_offer) {
            self.lease.give_up(term);
        }
    }

    fn do_work(
        &mut self,
        work: Work,
        now: Now,
        batch: &mut Vec<Record>,
        waiting: &mut Vec<Message>,
        snapshot: &mut Option<(SnapshotMeta, bool)>,
        output: &mut Output,
    ) {
        let group = self.settings.group;
        self.last_number = work.number;
        if let Some(hard) = work.hard {
            assert!(hard.term >= self.hard.term, "the term went back from {} to {}", self.hard.term, hard.term);
            self.hard = hard;
        }
        let mut must_write = !work.appended.is_empty();
        if let Some(meta) = work.snapshot {
            let (index, handed_out) = (meta.index, self.handed_out);
            assert!(
                index > handed_out,
                "a snapshot at {index} would take back what was handed out, up to {handed_out}"
            );
            batch.push(self.consensus.compaction().record(group));
            self.raise_time(meta.time_millis, now);
            self.membership = self.consensus.membership();
            self.memberships = VecDeque::from([(meta.index, self.membership.clone())]);
            self.handed_out = meta.index;
            // What was to be applied before is in it.
            output.entries.clear();
            *snapshot = Some((meta.clone(), true));
            output.install = Some(meta);
            must_write = true;
        }
        batch.reserve(work.appended.len() + 1);
        for Appended { index, term, time_millis, payload } in work.appended {
            self.raise_time(time_millis, now);
            batch.push(record::entry(group, term, index, payload));
        }
        must_write |= (self.hard.term, self.hard.vote) != (self.written.term, self.written.vote);
        if must_write && self.hard != self.written {
            self.written = self.hard;
            let vote = if self.planted.has(Bug::VoteNotPersisted) { 0 } else { self.hard.vote };
            batch.push(Hard { vote, ..self.hard }.record(group));
        }
        let messages = work.messages.into_iter().map(|wire| self.outgoing(wire));
        // A leader's messages need not wait for its disk, if its disk knows that it leads.
        let speaks =
            work.is_leader && (self.consensus.term() <= self.durable_term || self.planted.has(Bug::TermNotDurable));
        if speaks {
            output.messages.extend(messages)
        } else {
            waiting.extend(messages)
        }
        output.entries.reserve(work.committed.len());
        for entry in work.committed {
            assert_eq!(entry.index, self.handed_out + 1, "committed entries are handed out in order, each once");
            self.handed_out = entry.index;
            if entry.kind == EntryKind::Membership {
                let is_one = self.consensus.apply_change(&entry.data).is_ok();
                assert!(is_one, "entry {} is no change of the membership: it was damaged", entry.index);
                self.membership = self.consensus.membership();
                let members = self.membership.all();
                self.marks.retain(|id, _| members.contains(id));
                self.memberships.push_back((entry.index, self.membership.clone()));
            }
            output.entries.push(entry);
        }
        for (index, context) in work.rounds {
            self.reads.confirmed(&context, index, self.consensus.term());
        }
    }

    /// An entry of this time is in the log.
    fn raise_time(&mut self, time_millis: u64, now: Now) {
        if time_millis > self.time_floor_millis {
            (self.time_floor_millis, self.time_floor_micros) = (time_millis, now.boot_micros);
        }
    }

    /// The time of the log at this moment: a thousandth slower than this node's clock, so that a log that is ahead of all clocks is
    /// caught up with some time.
    fn log_millis(&self, now: Now) -> u64 {
        let since_millis = now.boot_micros.saturating_sub(self.time_floor_micros) / 1_000;
        self.time_floor_millis.saturating_add(since_millis - since_millis / 1_000)
    }

    /// What an entry is stamped with that is proposed now: this node's date, or the log's own time where that is ahead.
    pub fn time_millis(&self, now: Now) -> u64 {
        now.unix_millis.max(self.log_millis(now))
    }

    /// What was collected becomes a batch, unless there is nothing to write and nothing to wait for.
    fn close_batch(
        &mut self,
        records: Vec<Record>,
        mut messages: Vec<Message>,
        snapshot: Option<(SnapshotMeta, bool)>,
        now: Now,
        output: &mut Output,
    ) {
        if self.planted.has(Bug::FollowerAcknowledgesBeforeSync) {
            output.messages.append(&mut messages);
        }
        if records.is_empty() {
            match self.batches.back_mut() {
                // What waits does so for everything before it.
                Some(last) => {
                    last.number = self.last_number;
                    last.messages.append(&mut messages);
                }
                None => {
                    output.messages.append(&mut messages);
                    self.consensus.persisted(self.last_number, self.planted);
                }
            }
            return;
        }
        if self.planted.has(Bug::AcknowledgeBeforeSync) && self.consensus.role() == Role::Leader {
            self.consensus.persisted(self.last_number, self.planted);
        }
        self.next_token += 1;
        let token = Token(self.next_token);
        self.batches.push_back(Unsafe {
            token,
            since_micros: now.boot_micros,
            number: self.last_number,
            term: self.written.term,
            messages,
            snapshot,
        });
        output.batch = Some(Batch { token, records });
    }

    /// This batch, and all before it, are safe on disk.
    pub fn persisted(&mut self, token: Token) {
        assert!(token.0 <= self.next_token, "batch {} is said to be safe, but was never handed out", token.0);
        self.persisted_micros = self.last_tick * self.settings.tick_micros;
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.token <= token) {
            self.durable_term = self.durable_term.max(batch.term);
            self.consensus.persisted(batch.number, self.planted);
            if !self.planted.has(Bug::FollowerAcknowledgesBeforeSync) {
                self.released.extend(batch.messages);
            }
            if let Some((meta, is_installed)) = batch.snapshot {
                if is_installed {
                    // The consensus need not wait for the state machine: what a snapshot stands for is not in the log.
                    self.consensus.applied(meta.index);
                    self.installed = meta.index;
                    self.count_installed();
                }
                self.settled_snapshot = Some(meta);
            }
        }
    }

    /// The state machine was replaced by the snapshot of this index, which was handed out.
    pub fn restored(&mut self, index: u64) {
        self.restored = index;
        self.count_installed();
    }

    /// What is on disk and in the state machine is applied.
    fn count_installed(&mut self) {
        self.applied = self.applied.max(self.restored.min(self.installed));
    }

    /// The state machine has everything up to this index, which was handed out.
    pub fn applied(&mut self, index: u64) {
        assert!(index <= self.handed_out, "entry {index} was applied before it was handed out");
        if index > self.applied {
            self.applied = index;
            self.consensus.applied(index);
        }
        while self.memberships.get(1).is_some_and(|(next, _)| *next <= self.applied) {
            self.memberships.pop_front();
        }
    }

    /// A snapshot of the state machine at `index`, which was applied, is safe on disk.
    pub fn snapshot_made(&mut self, meta: SnapshotMeta) {
        let newest = self.consensus.compaction().snapshot.index;
        if meta.index <= newest || meta.index > self.applied {
            return;
        }
        let Settings { snapshot_keep_entries, snapshot_log_bytes, .. } = self.settings;
        let keep_from = self.consensus.tail(meta.index, snapshot_keep_entries, snapshot_log_bytes);
        let compaction = self.consensus.compact(keep_from, meta.clone());
        self.pending.push(compaction.record(self.settings.group));
        self.pending_snapshot = Some((meta, false));
    }

    /// What a snapshot made now must say: everything but what its bytes decide. `None`: nothing was applied since the last.
    pub fn describe_snapshot(&self) -> Option<SnapshotMeta> {
        let newest = self.consensus.compaction().snapshot.index;
        let membership = self.memberships.iter().rev().find(|(index, _)| *index <= self.applied)?;
        let term = (self.applied > newest).then(|| self.consensus.term_at(self.applied))?;
        assert!(term.is_some(), "entry {} was applied, and its term is not known", self.applied);
        Some(SnapshotMeta {
            index: self.applied,
            term: term?,
            membership: membership.1.clone(),
            chunk_bytes: self.settings.snapshot_chunk_bytes,
            ..SnapshotMeta::default()
        })
    }

    /// The snapshot that was offered is here, whole and safe on disk.
    pub fn snapshot_received(&mut self, meta: &SnapshotMeta) {
        if let Some(offer) = self.offer.take_if(|offer| offer.meta == *meta) {
            self.consensus.step(offer.wire, self.planted);
        }
    }

    fn outgoing(&self, wire: Wire) -> Message {
        Message { from: self.consensus.id(), to: wire.to, body: Body::Consensus(Box::new(wire), Stamp::default()) }
    }

    /// The member's number.
    pub fn id(&self) -> u64 {
        self.consensus.id()
    }

    /// What it is at the moment, as far as it knows.
    pub fn role(&self) -> Role {
        self.consensus.role()
    }

    /// The term that the member is in.
    pub fn term(&self) -> u64 {
        self.consensus.term()
    }

    /// Who leads, as far as it knows.
    pub fn leader(&self) -> Option<u64> {
        let leader = self.consensus.leader();
        (leader != 0).then_some(leader)
    }

    /// The last entry that is known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.consensus.commit()
    }

    /// The last entry that the state machine has.
    pub fn applied_index(&self) -> u64 {
        self.applied
    }

    /// Whether the state machine has an entry of this node's term, hence all that earlier leaders committed.
    pub fn has_applied_own_entry(&self) -> bool {
        self.consensus.term_at(self.applied) == Some(self.consensus.term())
    }

    /// The last entry, committed or not.
    pub fn last_index(&self) -> u64 {
        self.consensus.last()
    }

    /// The newest snapshot that the log begins with.
    pub fn snapshot_index(&self) -> u64 {
        self.consensus.compaction().snapshot.index
    }

    pub(crate) fn snapshot_meta(&self) -> &SnapshotMeta {
        &self.consensus.compaction().snapshot
    }

    /// How many entries are in memory, and how many bytes they take.
    pub fn log_in_memory(&self) -> (usize, usize) {
        self.consensus.held()
    }

    /// Who belongs to the group, as of the last committed change.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Index up to which each of the others is known to have the log; empty unless this node leads.
    pub fn progress(&self) -> BTreeMap<u64, u64> {
        let is_leader = self.role() == Role::Leader;
        self.consensus.progress().filter(|_| is_leader).map(|(id, matched, _)| (id, matched)).collect()
    }

    /// Other members that have answered this one within an election timeout; none unless it leads.
    pub fn answering(&self, now: Now) -> BTreeSet<u64> {
        let (own, term, is_leader) = (self.id(), self.consensus.term(), self.role() == Role::Leader);
        let is_here = |id: &u64| self.lease.heard_at(term, *id) + self.settings.election_micros() >= now.boot_micros;
        let others = self.consensus.progress().map(|(id, ..)| id).filter(|id| *id != own);
        others.filter(|id| is_leader && is_here(id)).collect()
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Batches that are not safe yet.
    pub fn unsafe_batches(&self) -> usize {
        self.batches.len()
    }
}
