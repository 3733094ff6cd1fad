//! The only module that talks to the consensus crate, `raft` 0.7. What leaves it are types of ours, so that another crate, or
//! code of our own, can take its place.
//!
//! `raft` draws its election timeouts from the thread's randomness. Ours are in `timeout`; the crate's own are always longer.

mod storage;
mod timeout;

use std::collections::VecDeque;

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry as RaftEntry, EntryType, Message,
    MessageType,
};
use raft::{Config, ProgressState, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};

use crate::bugs::{Bug, Planted};
use crate::codec::{Malformed, Packed};
use crate::entry::{self, Entry, EntryKind};
use crate::membership::{Change, Membership};
use crate::record::{Compaction, Hard};
use crate::recovery::Recovered;
use crate::settings::Settings;
use crate::snapshot::SnapshotMeta;
use timeout::{Standpoint, Timeout};

pub(crate) use raft::eraftpb::{Message as Wire, MessageType as WireKind};
pub(crate) use storage::{snapshot as offer, snapshot_of_wire};

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It follows a leader, or waits for one.
    #[default]
    Follower,
    /// It asks for votes.
    Candidate,
    /// This member leads its group.
    Leader,
}

/// Work that the consensus crate wants done.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Names the batch in [`Consensus::persisted`].
    pub(crate) number: u64,
    pub(crate) messages: Vec<Wire>,
    /// The messages need not wait for anything to be written.
    pub(crate) is_leader: bool,
    pub(crate) snapshot: Option<SnapshotMeta>,
    pub(crate) appended: Vec<Appended>,
    pub(crate) hard: Option<Hard>,
    pub(crate) committed: Vec<Entry>,
    /// Index and context of ReadIndex rounds that a quorum confirmed.
    pub(crate) rounds: Vec<(u64, Vec<u8>)>,
}

/// An entry that is to be written.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) time_millis: u64,
    /// Of its record.
    pub(crate) payload: Bytes,
}

/// The consensus crate's node.
pub(crate) struct Consensus {
    raw: RawNode<storage::MemoryLog>,
    timeout: Timeout,
    election_ticks: usize,
    /// What is kept in memory for others: see [`Settings`].
    tail: storage::Limit,
    lagging: storage::Limit,
}

impl Consensus {
    pub(crate) fn new(id: u64, settings: &Settings, recovered: Recovered, seed: u64) -> Result<Self, String> {
        let election_ticks = settings.election_ticks as usize;
        let config = Config {
            id,
            // The shortest timeout is a tick more: a tick may come right after a leader was heard.
            election_tick: election_ticks,
            min_election_tick: election_ticks + 1,
            max_election_tick: 2 * election_ticks + 1,
            heartbeat_tick: settings.heartbeat_ticks as usize,
            applied: recovered.applied(),
            max_size_per_msg: settings.append_bytes_max,
            max_inflight_msgs: settings.append_messages_max,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            max_uncommitted_size: settings.uncommitted_bytes_max,
            max_committed_size_per_ready: settings.apply_bytes_max,
            ..Config::default()
        };
        let (base, snapshot) = (recovered.base(), recovered.compaction.snapshot.index);
        let entries: VecDeque<RaftEntry> = recovered.entries.into_iter().map(to_raft).collect();
        let log = storage::MemoryLog::new(recovered.hard, recovered.compaction, base, entries);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).map_err(|error| error.to_string())?;
        let tail = storage::Limit {
            entries: settings.snapshot_keep_entries as usize,
            bytes: settings.snapshot_log_bytes as usize,
        };
        let lagging = storage::Limit { entries: usize::MAX, bytes: settings.lagging_log_bytes as usize };
        let timeout = Timeout::new(election_ticks, seed);
        let mut consensus = Self { raw, timeout, election_ticks, tail, lagging };
        consensus.settle();
        // They were handed out before the state was kept, and are not again.
        for change in recovered.passed.changes_after(snapshot) {
            consensus.apply_change(change).map_err(|error| error.to_string())?;
        }
        Ok(consensus)
    }

    /// Tells how long to wait now, and overwrites what the crate drew. Must follow every call that may change its state.
    fn settle(&mut self) {
        let raft = &mut self.raw.raft;
        raft.set_randomized_election_timeout(2 * self.election_ticks);
        self.timeout.look(Standpoint { term: raft.term, role: raft.state, leader: raft.leader_id });
    }

    pub(crate) fn tick(&mut self) {
        if self.is_about_to_campaign() && self.raw.raft.promotable() {
            self.raw.raft.election_elapsed = 0;
            self.timeout.begin_round();
            self.campaign();
        } else {
            self.raw.tick();
            self.settle();
        }
        self.release();
    }

    /// The leader's connection has closed: most of the time its process has ended.
    pub(crate) fn leader_lost(&mut self, bugs: Planted) {
        if bugs.has(Bug::LostLeaderForgotten) {
            // It asks soon, and votes for whoever asks.
            self.raw.raft.leader_id = raft::INVALID_ID;
            self.settle();
            return self.timeout.begin_round();
        }
        let (own, leader) = (self.id(), self.leader());
        // From the leader's number on, and around.
        let place = |id: u64| (id < leader, id);
        let voters = self.raw.raft.prs().conf().voters().ids();
        let turn = voters.iter().filter(|id| *id != leader && place(*id) < place(own)).count();
        self.timeout.leader_lost(turn);
    }

    /// The leader was heard.
    pub(crate) fn leader_heard(&mut self) {
        self.timeout.leader_heard();
    }

    /// Whether the next tick would make it ask for votes.
    pub(crate) fn is_about_to_campaign(&self) -> bool {
        let raft = &self.raw.raft;
        raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.timeout.ticks()
    }

    /// Asks for votes now.
    pub(crate) fn campaign(&mut self) {
        let _ = self.raw.campaign();
        self.settle();
    }

    /// Takes a message. Errors say that it is of no use, which is common and harmless.
    pub(crate) fn step(&mut self, message: Wire, bugs: Planted) {
        let is_vote = is_vote_request(&message);
        if is_vote && bugs.has(Bug::LeaseWithoutWithholding) {
            self.raw.raft.set_check_quorum(false);
        }
        let kind = message.get_msg_type();
        let (from, last_sent) = (message.from, message.index + message.entries.len() as u64);
        let _ = self.raw.step(message);
        if is_vote {
            self.raw.raft.set_check_quorum(true);
        }
        if kind == MessageType::MsgAppend && bugs.has(Bug::HoleAccepted) {
            self.accept_hole(from, last_sent);
        }
        if kind == MessageType::MsgAppendResponse && bugs.has(Bug::EarlierTermCounted) {
            self.commit_by_counting();
        }
        self.settle();
    }

    /// [`Bug::HoleAccepted`]: says yes where the answer was that entries before these are missing.
    fn accept_hole(&mut self, from: u64, last_sent: u64) {
        let own_last = self.raw.raft.raft_log.last_index();
        for answer in self.raw.raft.msgs.iter_mut().filter(|answer| answer.to == from && answer.reject) {
            if answer.get_msg_type() == MessageType::MsgAppendResponse && answer.index > own_last {
                answer.reject = false;
                answer.index = last_sent;
            }
        }
    }

    /// [`Bug::EarlierTermCounted`].
    fn commit_by_counting(&mut self) {
        if self.raw.raft.state == StateRole::Leader {
            let index = self.raw.raft.mut_prs().maximal_committed_index().0;
            if index > self.raw.raft.raft_log.committed {
                self.raw.raft.raft_log.commit_to(index);
                self.raw.raft.bcast_append();
            }
        }
    }

    /// Appends commands; all or none. `None`: there is no room for them, or leadership is being handed over.
    pub(crate) fn propose(&mut self, commands: &[Bytes], time_millis: u64) -> Option<u64> {
        let before = self.raw.raft.raft_log.last_index();
        let head = entry::head(EntryKind::Command, time_millis);
        let mut packed = Packed::of(commands.iter().map(|command| head.len() + command.len()).sum());
        let payloads = commands.iter().map(|command| packed.add(&head, command));
        let entries: Vec<RaftEntry> = payloads.map(|payload| of_payload(0, 0, EntryKind::Command, payload)).collect();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.id();
        message.set_entries(entries.into());
        let stepped = self.raw.raft.step(message);
        self.settle();
        stepped.is_ok().then_some(before + 1)
    }

    /// Appends a change of the membership. `None`: one is under way, or it cannot be made.
    pub(crate) fn propose_changes(&mut self, changes: &[Change]) -> Option<u64> {
        let raft = &self.raw.raft;
        if raft.has_pending_conf() || self.membership().is_joint() {
            return None;
        }
        let before = raft.raft_log.last_index();
        let singles = changes.iter().map(|change| {
            let (kind, id) = match change {
                Change::AddLearner(id) => (ConfChangeType::AddLearnerNode, *id),
                Change::Promote(id) => (ConfChangeType::AddNode, *id),
                Change::Remove(id) => (ConfChangeType::RemoveNode, *id),
            };
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = id;
            single
        });
        let mut change = ConfChangeV2::default();
        change.set_transition(ConfChangeTransition::Auto);
        change.set_changes(singles.collect::<Vec<_>>().into());
        let proposed = self.raw.propose_conf_change(Vec::new(), change);
        self.settle();
        proposed.is_ok().then_some(before + 1)
    }

    /// Makes a committed change of the membership take effect. One that cannot be made changes nothing, on every member alike. Bytes that are
    /// no change are an error: those of other members may be one, and who went on without it would belong to another group.
    pub(crate) fn apply_change(&mut self, data: &[u8]) -> Result<(), Malformed> {
        let change = change_of(data)?;
        let _ = self.raw.apply_conf_change(&change);
        let raft = &mut self.raw.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            // A leader outside of its group would fail an assertion of the crate when its disk answers.
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
        self.settle();
        Ok(())
    }

    pub(crate) fn transfer(&mut self, to: u64) {
        self.raw.transfer_leader(to);
        self.settle();
    }

    /// Starts a ReadIndex round, here or by asking the leader.
    pub(crate) fn read_index(&mut self, context: Vec<u8>) {
        self.raw.read_index(context);
        self.settle();
    }

    /// The next work, if any. Its entries and its snapshot are in the log in memory from now on.
    pub(crate) fn work(&mut self) -> Option<Work> {
        if !self.raw.has_ready() {
            return None;
        }
        let mut ready = self.raw.ready();
        let is_leader = self.raw.raft.state == StateRole::Leader;
        let mut messages = ready.take_messages();
        messages.append(&mut ready.take_persisted_messages());
        let mut work = Work {
            number: ready.number(),
            messages,
            is_leader,
            hard: ready.hs().map(|hard| Hard { term: hard.term, vote: hard.vote, commit: hard.commit }),
            committed: ready.take_committed_entries().into_iter().map(from_raft).collect(),
            rounds: ready.take_read_states().into_iter().map(|state| (state.index, state.request_ctx)).collect(),
            ..Work::default()
        };
        let log = self.raw.mut_store();
        if !ready.snapshot().is_empty() {
            // It was checked when it came: what cannot be decoded does not get here.
            work.snapshot = storage::meta(ready.snapshot());
            if let Some(meta) = &work.snapshot {
                log.reset(meta.clone());
            }
        }
        log.append(ready.entries());
        work.appended = ready.entries().iter().map(appended).collect();
        self.raw.advance_append_async(ready);
        self.settle();
        Some(work)
    }

    /// Everything up to this piece of work is safe on disk.
    pub(crate) fn persisted(&mut self, number: u64, bugs: Planted) {
        self.raw.on_persist_ready(number);
        if bugs.has(Bug::EarlierTermCounted) {
            self.commit_by_counting();
        }
        self.settle();
    }

    /// The state machine has everything up to this index.
    pub(crate) fn applied(&mut self, index: u64) {
        if index > self.raw.raft.raft_log.applied {
            self.raw.advance_apply_to(index);
            self.settle();
            self.release();
        }
    }

    /// Lets go of applied entries that nobody needs. A leader knows what others have: those it hears of get what they lack, and for
    /// the others a little of it is kept. A follower keeps some, in case that it leads; who is alone keeps none.
    fn release(&mut self) {
        let raft = &self.raw.raft;
        let is_leader = raft.state == StateRole::Leader;
        // The crate forgets once in an election timeout of whom it heard: before it does so again, it knows.
        let knows_who_is_silent = raft.election_elapsed + 1 >= self.election_ticks;
        let (mut after, mut lagging_after, mut tail) = (u64::MAX, u64::MAX, storage::Limit::NOTHING);
        for (_, other) in raft.prs().iter().filter(|(id, _)| **id != raft.id) {
            tail = self.tail;
            match other.recent_active || !knows_who_is_silent {
                _ if !is_leader => {}
                true => after = after.min(other.matched),
                false => lagging_after = lagging_after.min(other.matched),
            }
        }
        let needs = storage::Needs { after, lagging_after, lagging: self.lagging, tail };
        let applied = raft.raft_log.applied;
        self.raw.mut_store().release(applied, &needs);
    }

    /// How many entries are in memory, and how many bytes they take.
    pub(crate) fn held(&self) -> (usize, usize) {
        self.raw.store().held()
    }

    /// The index behind which, up to `index`, there are no more than so many entries of so many bytes.
    pub(crate) fn tail(&self, index: u64, entries_max: u64, bytes_max: u64) -> u64 {
        self.raw.store().tail(index, entries_max, bytes_max)
    }

    /// A snapshot was made; entries up to `index` are let go of, in memory and on disk.
    pub(crate) fn compact(&mut self, index: u64, snapshot: SnapshotMeta) -> Compaction {
        self.raw.mut_store().compact(index, snapshot).clone()
    }

    /// Whether somebody needs a newer snapshot; asked once.
    pub(crate) fn take_snapshot_wish(&self) -> bool {
        self.raw.store().take_wish()
    }

    /// Of the entry before the first one in memory.
    pub(crate) fn base_term(&self) -> u64 {
        self.raw.store().base_term()
    }

    pub(crate) fn compaction(&self) -> &Compaction {
        self.raw.store().compaction()
    }

    /// A snapshot that was offered to this node has not arrived; it will be offered again.
    pub(crate) fn snapshot_failed(&mut self, to: u64) {
        self.raw.report_snapshot(to, SnapshotStatus::Failure);
        self.settle();
    }

    /// To whom a snapshot is on its way, and the index up to which others are known to have the log.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        self.raw
            .raft
            .prs()
            .iter()
            .map(|(id, progress)| (*id, progress.matched, progress.state == ProgressState::Snapshot))
    }

    pub(crate) fn id(&self) -> u64 {
        self.raw.raft.id
    }

    pub(crate) fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// 0 if none is known.
    pub(crate) fn leader(&self) -> u64 {
        self.raw.raft.leader_id
    }

    pub(crate) fn commit(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    pub(crate) fn last(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        self.raw.raft.raft_log.term(index).ok()
    }

    /// Whether an entry of the term that this node leads is committed: only then does it know what is.
    pub(crate) fn is_committed_in_term(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && self.raw.raft.commit_to_current_term()
    }

    pub(crate) fn is_sole_voter(&self) -> bool {
        self.raw.raft.promotable() && self.raw.raft.prs().is_singleton()
    }

    pub(crate) fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    pub(crate) fn membership(&self) -> Membership {
        let state = self.raw.raft.prs().conf().to_conf_state();
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        Membership {
            voters: sorted(state.get_voters()),
            learners: sorted(state.get_learners()),
            outgoing: sorted(state.get_voters_outgoing()),
            learners_next: sorted(state.get_learners_next()),
            leaves_by_itself: state.get_auto_leave(),
        }
    }
}

/// Whether it asks for a vote.
pub(crate) fn is_vote_request(message: &Wire) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
}

/// Whether only a leader sends it.
pub(crate) fn is_from_leader(message: &Wire) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot)
}

/// Whether it answers a leader.
pub(crate) fn is_answer_to_leader(message: &Wire) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse)
}

/// Whether the leader itself made its sender ask for votes.
pub(crate) fn is_transfer(message: &Wire) -> bool {
    message.context == raft::CAMPAIGN_TRANSFER
}

/// What a command's entry has as its context in the consensus crate. Its data are the payload of its record, which is made once, and
/// written and sent as it is. The crate makes entries of its own, whose data are its own.
static COMMAND: &[u8] = b"command";

/// An entry as the consensus crate has it.
pub(crate) fn to_raft(entry: Entry) -> RaftEntry {
    of_payload(entry.index, entry.term, entry.kind, entry.payload())
}

/// The same, of its record's payload, which is one.
pub(crate) fn of_payload(index: u64, term: u64, kind: EntryKind, payload: Bytes) -> RaftEntry {
    let mut raft = RaftEntry { index, term, ..RaftEntry::default() };
    match kind {
        EntryKind::Command => (raft.context, raft.data) = (Bytes::from_static(COMMAND), payload),
        EntryKind::Empty => raft.data = payload.slice(entry::HEAD_BYTES..),
        EntryKind::Membership => {
            raft.set_entry_type(EntryType::EntryConfChangeV2);
            raft.data = payload.slice(entry::HEAD_BYTES..);
        }
    }
    raft
}

/// An entry as ours.
fn from_raft(raft: RaftEntry) -> Entry {
    let (kind, time_millis) = kind_and_time(&raft);
    let data = if kind == EntryKind::Command { raft.data.slice(entry::HEAD_BYTES..) } else { raft.data };
    Entry { index: raft.index, term: raft.term, kind, time_millis, data }
}

/// What an entry is, and when it was proposed.
fn kind_and_time(raft: &RaftEntry) -> (EntryKind, u64) {
    match raft.get_entry_type() {
        EntryType::EntryNormal if raft.context.is_empty() => (EntryKind::Empty, 0),
        EntryType::EntryNormal => {
            // Only `of_payload` makes one with a context.
            let time = raft.data[1..entry::HEAD_BYTES].first_chunk().copied();
            (EntryKind::Command, u64::from_le_bytes(time.unwrap_or_default()))
        }
        _ => (EntryKind::Membership, 0),
    }
}

fn change_of(data: &[u8]) -> Result<ConfChangeV2, Malformed> {
    let mut change = ConfChangeV2::default();
    change.merge_from_bytes(data).map(|()| change).map_err(|_| Malformed("a change of the membership"))
}

/// Whether what a message calls changes of the membership are ones.
pub(crate) fn has_whole_changes(wire: &Wire) -> bool {
    let is_change = |entry: &&RaftEntry| entry.get_entry_type() != EntryType::EntryNormal;
    wire.get_entries().iter().filter(is_change).all(|entry| change_of(&entry.data).is_ok())
}

/// The payload of an entry's record: what stands in front, if that is not with the rest.
pub(crate) fn payload_parts(raft: &RaftEntry) -> (Option<[u8; entry::HEAD_BYTES]>, &[u8]) {
    match kind_and_time(raft) {
        (EntryKind::Command, _) => (None, &raft.data),
        (kind, time_millis) => (Some(entry::head(kind, time_millis)), &raft.data),
    }
}

fn appended(raft: &RaftEntry) -> Appended {
    let (kind, time_millis) = kind_and_time(raft);
    let payload = match kind {
        EntryKind::Command => raft.data.clone(),
        kind => entry::encode(kind, time_millis, &raft.data),
    };
    Appended { index: raft.index, term: raft.term, time_millis, payload }
}

/// A message of this kind, for the wire.
pub(crate) fn wire_kind(number: u8) -> Option<WireKind> {
    use protobuf::ProtobufEnum as _;
    WireKind::from_i32(number.into())
}
