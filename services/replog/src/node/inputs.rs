//! What can be asked of a node, and what it says when it will not.

use bytes::Bytes;

use super::acceptance::{LostLog, is_acceptable};
use super::{Node, Offer, Unsafe};
use crate::bugs::Bug;
use crate::clock::Now;
use crate::consensus::{self, Role, Wire, WireKind};
use crate::lease::Promise;
use crate::membership::Change;
use crate::message::{Body, Message};
use crate::reads::{ReadId, ReadLevel, ReadPath, ReadPermit};

/// A learner that lacks no more entries than this has caught up.
const CAUGHT_UP_ENTRIES: u64 = 100;

/// Why something was not accepted. Nothing has happened, and nothing will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Only the leader can do that; this is who leads, as far as is known.
    #[error("not the leader")]
    NotLeader(Option<u64>),
    /// Too much is under way, or leadership is being handed over; try again later.
    #[error("busy, try again")]
    Busy,
    /// A command is larger than the settings allow.
    #[error("a command of {0} bytes is too large")]
    TooLarge(usize),
    /// A change of the membership is under way, or this one makes no sense.
    #[error("the membership cannot be changed so now")]
    NotNow,
    /// The node is not a learner that has caught up.
    #[error("node {0} has not caught up")]
    NotCaughtUp(u64),
}

/// Where a proposal stands in the log. It has succeeded when the entry that is applied at this index is of this term; if one of
/// another term is, it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The term in which the appended entries were proposed.
    pub term: u64,
    /// The index of the first appended entry.
    pub first: u64,
    /// The index of the last appended entry.
    pub last: u64,
}

/// After so many election timeouts without an answer from its disk, a leader gives up.
const DISK_PATIENCE_ELECTIONS: u64 = 2;

impl Node {
    /// Time has passed. Call it at least once in [`crate::Settings::tick_micros`].
    pub fn tick(&mut self, now: Now) {
        let tick = now.boot_micros / self.settings.tick_micros;
        // After a long pause the ticks of two elections say as much as those of a thousand.
        let owed = tick.saturating_sub(self.last_tick).min(2 * u64::from(self.settings.election_ticks));
        self.last_tick = self.last_tick.max(tick);
        self.keep_freshness(now);
        for _ in 0..owed {
            // A node that has promised its vote does not vote for itself; one whose disk has stopped shall not lead.
            let must_wait = self.promise.withholds(now.boot_micros, false) || !self.batches.is_empty();
            if !(must_wait && self.consensus.is_about_to_campaign()) {
                self.consensus.tick();
            }
        }
        if owed > 0 {
            self.reads.expire(now.boot_micros);
            self.watch_transfers(now);
            self.watch_disk(now);
        }
    }

    /// A leader whose disk hangs commits nothing, and as long as its heartbeats go nobody takes its place: so it hands over to whoever
    /// has most of the log, of those that were heard lately. It needs no disk for that.
    fn watch_disk(&mut self, now: Now) {
        let patience = DISK_PATIENCE_ELECTIONS * self.settings.election_micros();
        // A disk that is slow, behind which much waits, still moves.
        let waits_since = |batch: &Unsafe| batch.since_micros.max(self.persisted_micros);
        let hangs = self.batches.front().is_some_and(|batch| now.boot_micros >= waits_since(batch) + patience);
        let may_stay = self.consensus.is_transferring() || self.planted.has(Bug::LeadsWithoutDisk);
        if !hangs || self.role() != Role::Leader || may_stay {
            return;
        }
        let progress = self.progress();
        let others = self.answering(now).into_iter().filter(|id| self.membership.voters.contains(id));
        let heir = others.max_by_key(|id| progress.get(id).copied());
        if let Some(heir) = heir {
            // Refused only for reasons that were looked at above.
            let _ = self.transfer_leader(heir);
        }
    }

    /// Snapshots that do not arrive are offered again.
    fn watch_transfers(&mut self, now: Now) {
        if self.role() != Role::Leader {
            self.transfers.clear();
            return;
        }
        let sending: Vec<u64> =
            self.consensus.progress().filter(|(_, _, is_sending)| *is_sending).map(|(id, ..)| id).collect();
        self.transfers.retain(|id, _| sending.contains(id));
        for id in sending {
            let since = *self.transfers.entry(id).or_insert(now.boot_micros);
            if now.boot_micros >= since + self.settings.election_micros() {
                self.transfers.remove(&id);
                self.consensus.snapshot_failed(id);
            }
        }
    }

    /// Whether a snapshot is on its way to somebody.
    pub fn is_sending_snapshot(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// Another node fetches the snapshot that this one offered.
    pub fn snapshot_is_fetched(&mut self, by: u64, now: Now) {
        if let Some(since) = self.transfers.get_mut(&by) {
            *since = now.boot_micros;
        }
    }

    /// The snapshot that this node offered to another is no longer here; offer a newer one.
    pub fn snapshot_is_gone(&mut self, to: u64) {
        self.transfers.remove(&to);
        self.consensus.snapshot_failed(to);
    }

    /// A message came. `now` must have been read after it was taken from its queue. After an error the node must be stopped.
    pub fn receive(&mut self, message: Message, now: Now) -> Result<(), LostLog> {
        self.tick(now);
        let Body::Consensus(wire, stamp) = message.body else { return Ok(()) };
        let wire = *wire;
        if message.to != self.id()
            || message.from == self.id()
            || wire.from != message.from
            || !is_acceptable(&wire)
            || !self.is_plausible(&wire)?
        {
            return Ok(());
        }
        let (from, term) = (wire.from, wire.term);
        if consensus::is_vote_request(&wire) && !self.planted.has(Bug::LeaseWithoutWithholding) {
            // An only voter's disk may be slow, but nobody else can lead; it must not begin a term beside unsafe entries.
            if self.promise.withholds(now.boot_micros, consensus::is_transfer(&wire)) {
                return Ok(());
            }
        }
        // The consensus crate would look for entries that a snapshot stands for, as long as that is not safe.
        let is_installing = || self.batches.iter().any(|batch| matches!(batch.snapshot, Some((_, true))));
        if wire.get_msg_type() == WireKind::MsgTimeoutNow && (self.consensus.is_sole_voter() || is_installing()) {
            return Ok(());
        }
        if wire.get_msg_type() == WireKind::MsgSnapshot {
            self.consider(wire);
            return Ok(());
        }
        let is_from_leader = consensus::is_from_leader(&wire);
        let is_answer = consensus::is_answer_to_leader(&wire);
        self.consensus.step(wire, self.planted);
        if is_from_leader && self.consensus.term() == term && self.consensus.leader() == from {
            self.promise.heard(now.boot_micros, self.settings.election_micros());
            self.consensus.leader_heard();
            self.hear(from, term, stamp, now);
        }
        if is_answer && self.role() == Role::Leader && self.consensus.term() == term {
            self.note_answer(from, term, stamp, now);
        }
        Ok(())
    }

    /// Another node's connection to this one has closed. Of a leader that says that it has probably ended: this node asks for votes as
    /// soon as it may, without the rest of its random timeout. Messages that came before must have been received.
    pub fn link_closed(&mut self, other: u64) {
        if self.role() != Role::Follower || self.consensus.leader() != other {
            return;
        }
        if self.planted.has(Bug::LostLeaderForgotten) {
            self.promise = Promise::none();
        }
        self.consensus.leader_lost(self.planted);
    }

    /// A leader offers a snapshot. It is stepped when it is here.
    fn consider(&mut self, wire: Wire) {
        if wire.term < self.consensus.term() {
            return;
        }
        let Some(meta) = consensus::snapshot_of_wire(&wire) else { return };
        let commit = self.consensus.commit();
        if meta.index == commit && self.consensus.term_at(commit) != Some(meta.term) {
            // A lie: what is committed has one term.
            return;
        }
        if meta.index <= commit {
            // Of no use; the consensus will say so.
            self.consensus.step(wire, self.planted);
            return;
        }
        self.is_offer_new = true;
        self.offer = Some(Offer { wire, meta });
    }

    /// Appends commands to the log, all or none. They are copied.
    pub fn propose(&mut self, commands: impl AsRef<[Bytes]>, now: Now) -> Result<Proposed, Rejected> {
        let commands = commands.as_ref();
        if self.role() != Role::Leader {
            return Err(Rejected::NotLeader(self.leader()));
        }
        if let Some(large) = commands.iter().find(|command| command.len() > self.settings.command_bytes_max) {
            return Err(Rejected::TooLarge(large.len()));
        }
        if commands.is_empty() {
            return Err(Rejected::NotNow);
        }
        let time_millis = self.time_millis(now);
        let first = self.consensus.propose(commands, time_millis).ok_or(Rejected::Busy)?;
        self.raise_time(time_millis, now);
        Ok(Proposed { term: self.consensus.term(), first, last: self.consensus.last() })
    }

    /// Changes the membership, by joint consensus if several change.
    pub fn change_membership(&mut self, changes: &[Change]) -> Result<Proposed, Rejected> {
        if self.role() != Role::Leader {
            return Err(Rejected::NotLeader(self.leader()));
        }
        self.check_changes(changes)?;
        if self.consensus.is_transferring() {
            return Err(Rejected::Busy);
        }
        let first = self.consensus.propose_changes(changes).ok_or(Rejected::NotNow)?;
        Ok(Proposed { term: self.consensus.term(), first, last: self.consensus.last() })
    }

    fn check_changes(&self, changes: &[Change]) -> Result<(), Rejected> {
        let mut voters = self.membership.voters.clone();
        let mut seen = Vec::new();
        for change in changes {
            let (Change::AddLearner(id) | Change::Promote(id) | Change::Remove(id)) = *change;
            let is_known = self.membership.all().contains(&id);
            let makes_sense = match change {
                Change::AddLearner(_) => !self.membership.learners.contains(&id),
                Change::Promote(_) => !voters.contains(&id),
                Change::Remove(_) => is_known,
            };
            // A leader hands over before it leaves.
            let leaves = id == self.id() && !matches!(change, Change::Promote(_));
            if id == 0 || !makes_sense || leaves || seen.contains(&id) {
                return Err(Rejected::NotNow);
            }
            seen.push(id);
            voters.retain(|voter| *voter != id);
            if matches!(change, Change::Promote(_)) {
                if !self.membership.learners.contains(&id) || !self.has_caught_up(id) {
                    return Err(Rejected::NotCaughtUp(id));
                }
                voters.push(id);
            }
        }
        if changes.is_empty() || voters.is_empty() { Err(Rejected::NotNow) } else { Ok(()) }
    }

    /// Whether a member has what was committed a moment ago, or nine tenths of all: one that is slower than the load has no more, ever.
    fn has_caught_up(&self, id: u64) -> bool {
        let commit = self.consensus.commit();
        let is_enough =
            |matched| matched > 0 && (matched + CAUGHT_UP_ENTRIES >= commit || matched >= commit - commit / 10);
        self.consensus.progress().any(|(other, matched, _)| other == id && is_enough(matched))
    }

    /// Hands leadership over. Proposals are refused until that has succeeded or an election timeout has passed.
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), Rejected> {
        if self.role() != Role::Leader {
            return Err(Rejected::NotLeader(self.leader()));
        }
        if to == self.id() || !self.membership.voters.contains(&to) {
            return Err(Rejected::NotNow);
        }
        self.consensus.transfer(to);
        Ok(())
    }

    /// Asks to read. The answer is a [`ReadPermit`] in an [`super::Output`], or the number among `failed_reads`. `at_least` is an index
    /// that the state machine must have reached besides: what a client saw elsewhere.
    pub fn read(&mut self, level: ReadLevel, at_least: u64, now: Now) -> Result<ReadId, Rejected> {
        let id = self.reads.admit().ok_or(Rejected::Busy)?;
        let micros = now.boot_micros;
        let deadline = micros + 2 * self.settings.election_micros();
        let local = match level {
            ReadLevel::Linearizable => None,
            ReadLevel::Lease => self.has_lease(now).then(|| (self.consensus.commit(), ReadPath::Lease, Some(0))),
            ReadLevel::Bounded { max_staleness_micros } => {
                let freshness = self.freshness(now);
                let applied = (self.as_of_applied(freshness), self.applied);
                // What is applied may do, also where what the newer one asks for never comes.
                let known = [applied, (freshness.as_of, freshness.commit)].into_iter();
                let mut ages =
                    known.filter(|(as_of, _)| *as_of > 0).map(|(as_of, index)| (micros.saturating_sub(as_of), index));
                let fresh = ages.find(|(age, _)| *age <= max_staleness_micros);
                fresh.map(|(age, index)| (index, ReadPath::Age, Some(age)))
            }
            ReadLevel::Eventual => {
                let as_of = self.as_of_applied(self.freshness(now));
                let age = (as_of > 0).then(|| micros.saturating_sub(as_of));
                Some((self.applied, ReadPath::Local, age))
            }
        };
        match local {
            Some((index, path, age_micros)) => {
                let (index, term) = (index.max(at_least), self.consensus.term());
                self.reads.apply(ReadPermit { id, index, path, term, age_micros }, deadline);
            }
            None => self.reads.wait(id, at_least, deadline),
        }
        Ok(id)
    }

    /// Whether a read that has looked at the state machine may be answered. `now` must have been read after it looked. If not,
    /// read again, with level `Linearizable`.
    pub fn confirm(&self, permit: &ReadPermit, now: Now) -> bool {
        let is_lease = permit.path == ReadPath::Lease && !self.planted.has(Bug::LeaseNotRechecked);
        !is_lease || (permit.term == self.consensus.term() && self.has_lease(now))
    }

    pub(super) fn start_round(&mut self, now: Now) {
        // A leader repeats the round with its heartbeats; a follower's question may be lost.
        let patience = self.settings.tick_micros * u64::from(self.settings.heartbeat_ticks) * 2;
        let can_ask = match self.role() {
            Role::Leader => self.consensus.is_committed_in_term(),
            _ => self.consensus.leader() != 0,
        };
        if can_ask && let Some(context) = self.reads.start(now.boot_micros, patience, self.settings.election_micros()) {
            self.consensus.read_index(context);
        }
    }
}
