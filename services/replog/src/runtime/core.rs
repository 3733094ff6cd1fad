//! The core thread: the only one that touches the log in memory and the state machine. It takes what waits, decides, hands batches
//! to the disk and messages to the transport, and tells who waits. It never waits for a network, and for a disk only where little
//! comes: a member without others, to whom commands come one by one, writes them itself.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use wal::Writer;
use wal::files::Directory;

use super::clock;
use super::handle::{ChangeDone, Committed, LeaderWatcher, ProposeError, ReadError, RequestError, Shared};
use super::helpers::Helper;
use super::identity::Begun;
use super::inbox::{Inputs, Limits, Proposal, ProposeDone, Read, ReadDone, Request, tell};
use super::member::MemberError;
use super::status::Leadership;
use super::transport::Transport;
use crate::applying::{Applied, LongStepDone};
use crate::clock::Now;
use crate::consensus::Role;
use crate::machine::StateMachine;
use crate::node::{Batch, Proposed, Rejected, Token};
use crate::reads::ReadId;
use crate::replica::{Effects, ReplicatedLog};
use crate::snapshot::{ChunksRead, FilesJobDone, SnapshotJob, SnapshotMeta};

/// Commands that enter the log at once, bytes: so many that a sync is worth it, so few that nobody else waits long.
const TURN_BYTES_MAX: usize = 1 << 20;

/// A batch of no more records than this is small, and after so many small ones in a row commands come one by one: what the
/// writer's thread would cost is more than what it could do meanwhile.
const SMALL_RECORDS: usize = 2;
const SMALL_BATCHES: u32 = 8;

/// Of those to be woken so many are looked at before another is added: who waits for many outcomes is mostly among them.
const WAKERS_LOOKED_AT: usize = 16;

enum Done<R> {
    Command(ProposeDone<R>),
    Change(ChangeDone),
}

/// Something in the log that somebody waits for.
struct InFlight<R> {
    index: u64,
    term: u64,
    bytes: usize,
    done: Done<R>,
}

/// A batch that the disk has not finished.
struct Unsafe {
    token: Token,
    bytes: usize,
}

/// What the core thread owns.
pub(crate) struct Core<S: StateMachine, D: Directory> {
    log: ReplicatedLog<S, D>,
    writer: Writer<D>,
    transport: Box<dyn Transport>,
    shared: Arc<Shared<S::Reply>>,
    limits: Limits,
    /// Of a member that has nothing in its log.
    begun: Option<Begun>,
    /// Proposals that wait for their result, in the order of their index.
    in_flight: VecDeque<InFlight<S::Reply>>,
    in_flight_bytes: usize,
    /// Commands that the log had no room for.
    held: VecDeque<Proposal<S::Reply>>,
    /// Who is woken when all of a batch have been told.
    wakers: Vec<Waker>,
    reads: HashMap<ReadId, ReadDone>,
    unsafe_batches: VecDeque<Unsafe>,
    unsafe_bytes: usize,
    /// Small batches in a row.
    small_batches: u32,
    leadership: Option<Leadership>,
    /// Who led last.
    last_leader: Option<u64>,
    watchers: Vec<LeaderWatcher>,
    snapshot: Helper<io::Result<SnapshotMeta>>,
    long_step: Helper<LongStepDone<S>>,
    files_job: Helper<FilesJobDone<D>>,
    chunks_job: Helper<ChunksRead>,
    last_tick: u64,
}

impl<S, D> Core<S, D>
where
    S: StateMachine + Send + 'static,
    S::Reply: Send + 'static,
    D: Directory,
{
    pub(crate) fn new(
        log: ReplicatedLog<S, D>,
        writer: Writer<D>,
        transport: Box<dyn Transport>,
        shared: Arc<Shared<S::Reply>>,
        limits: Limits,
        begun: Option<Begun>,
    ) -> Self {
        Self {
            log,
            writer,
            transport,
            shared,
            limits,
            begun,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            held: VecDeque::new(),
            wakers: Vec::new(),
            reads: HashMap::new(),
            unsafe_batches: VecDeque::new(),
            unsafe_bytes: 0,
            small_batches: 0,
            leadership: None,
            last_leader: None,
            watchers: Vec::new(),
            snapshot: Helper::default(),
            long_step: Helper::default(),
            files_job: Helper::default(),
            chunks_job: Helper::default(),
            last_tick: 0,
        }
    }

    /// Runs until told to stop, or until it cannot go on.
    pub(crate) fn run(&mut self) -> Result<(), MemberError> {
        let mut inputs = Inputs::default();
        self.settle(clock::now())?;
        loop {
            self.shared.inbox.take(&mut inputs, self.room(), self.until_tick());
            // Not before: a promise must not end earlier than it was heard to begin.
            let now = clock::now();
            if let Some(error) = inputs.failed.take() {
                return Err(error.into());
            }
            if inputs.must_stop {
                return Ok(());
            }
            let is_idle = inputs.proposals.is_empty() && inputs.messages.is_empty() && inputs.reads.is_empty();
            self.feed(&mut inputs, now)?;
            self.settle(now)?;
            if is_idle && self.in_flight.is_empty() {
                self.log.idle();
            }
        }
    }

    /// How many bytes of commands may enter the log now, and whether one that is larger may.
    fn room(&self) -> (usize, bool) {
        if !self.held.is_empty() || self.unsafe_bytes > self.limits.unsafe_bytes_max {
            return (0, false);
        }
        let max = self.log.node().settings().uncommitted_bytes_max as usize;
        (max.saturating_sub(self.in_flight_bytes).min(TURN_BYTES_MAX), self.in_flight.is_empty())
    }

    fn until_tick(&self) -> Duration {
        let tick = self.log.node().settings().tick_micros;
        let next = (self.last_tick + 1) * tick;
        Duration::from_micros(next.saturating_sub(clock::boot_micros()).min(tick))
    }

    /// Hands everything that came to the log.
    fn feed(&mut self, inputs: &mut Inputs<S::Reply>, now: Now) -> Result<(), MemberError> {
        if let Some(token) = inputs.persisted.take() {
            while let Some(batch) = self.unsafe_batches.pop_front_if(|batch| batch.token <= token) {
                self.unsafe_bytes -= batch.bytes;
            }
            self.persisted(token)?;
        }
        self.last_tick = now.boot_micros / self.log.node().settings().tick_micros;
        self.log.tick(now);
        if let Some(written) = self.snapshot.result() {
            self.log.snapshot_written(written)?;
        }
        if let Some(done) = self.long_step.result() {
            self.log.long_step_done(done)?;
        }
        if let Some(done) = self.files_job.result() {
            self.log.files_job_done(done, now)?;
        }
        if let Some(read) = self.chunks_job.result() {
            self.log.chunks_read(read)?;
        }
        let is_behind = self.unsafe_bytes.max(self.log.waiting_bytes()) > 2 * self.limits.unsafe_bytes_max;
        for message in inputs.messages.drain(..) {
            // Who sent entries sends them again, to a disk and a state machine that have caught up.
            if is_behind && message.payload_bytes() > 0 {
                self.shared.counters.messages_refused.fetch_add(1, Ordering::Relaxed);
            } else {
                self.log.receive(message, now)?;
            }
        }
        inputs.closed.drain(..).for_each(|other| self.log.link_closed(other));
        for request in inputs.requests.drain(..) {
            self.request(request)?;
        }
        self.held.append(&mut inputs.proposals);
        self.propose(now);
        for read in inputs.reads.drain(..) {
            self.read(read, now);
        }
        Ok(())
    }

    /// Everything that waits to enter the log does so as one batch.
    fn propose(&mut self, now: Now) {
        if self.held.is_empty() {
            return;
        }
        let take = |proposal: &mut Proposal<S::Reply>| std::mem::take(&mut proposal.command);
        let commands: Vec<Bytes> = self.held.iter_mut().map(take).collect();
        match self.log.propose(&commands, now) {
            Ok(Proposed { term, first, .. }) => {
                for ((index, command), Proposal { done, .. }) in (first..).zip(&commands).zip(self.held.drain(..)) {
                    let bytes = command.len();
                    self.in_flight_bytes += bytes;
                    self.in_flight.push_back(InFlight { index, term, bytes, done: Done::Command(done) });
                }
            }
            // They wait for room, or until it is known who leads.
            Err(Rejected::Busy) => {
                self.held.iter_mut().zip(commands).for_each(|(proposal, command)| proposal.command = command);
            }
            Err(error) => {
                let error = match error {
                    Rejected::TooLarge(bytes) => ProposeError::TooLarge(bytes),
                    _ => ProposeError::NotLeader(self.log.node().leader()),
                };
                self.held.drain(..).for_each(|proposal| proposal.end(Err(error)));
            }
        }
    }

    fn read(&mut self, read: Read, now: Now) {
        let Read { level, at_least, done } = read;
        match self.log.read(level, at_least, now) {
            Ok(id) => drop(self.reads.insert(id, done)),
            Err(_) => done(Err(ReadError::Busy)),
        }
    }

    fn request(&mut self, request: Request) -> Result<(), MemberError> {
        match request {
            Request::Change(changes, done) => match self.log.change_membership(&changes) {
                Ok(Proposed { term, first, .. }) => {
                    self.in_flight.push_back(InFlight { index: first, term, bytes: 0, done: Done::Change(done) });
                }
                Err(error) => done(Err(error.into())),
            },
            Request::Transfer(to, done) => done(self.log.transfer_leader(to).map_err(Into::into)),
            Request::Watch(mut watcher) => {
                if let Some(leadership) = self.leadership {
                    watcher(leadership);
                }
                self.watchers.push(watcher);
            }
            Request::Snapshot => {
                if let Some(job) = self.log.begin_snapshot() {
                    self.begin_snapshot(job)?;
                }
            }
        }
        Ok(())
    }

    /// Does what the log wants done, until it wants nothing more.
    fn settle(&mut self, now: Now) -> Result<(), MemberError> {
        loop {
            let effects = self.log.take(now)?;
            // Before anything leaves: what is sent may end a lease.
            self.shared.published.store(self.log.node().standing(now));
            if effects.is_empty() {
                break;
            }
            self.carry_out(effects)?;
        }
        self.lose_leadership();
        self.show(now);
        Ok(())
    }

    fn carry_out(&mut self, effects: Effects<S, D>) -> Result<(), MemberError> {
        let Effects {
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
        } = effects;
        // These need not wait for the disk.
        if !messages.is_empty() {
            self.transport.send(messages);
        }
        if let Some(batch) = batch {
            self.write(batch)?;
        }
        if let Some(index) = installed {
            // They were decided elsewhere, one way or the other.
            while let Some(lost) = self.in_flight.pop_front_if(|waiting| waiting.index <= index) {
                self.in_flight_bytes -= lost.bytes;
                lost.done.fail_unknown();
            }
        }
        for entry in applied {
            if let Some(waker) = self.tell(entry) {
                let is_known = self.wakers.iter().rev().take(WAKERS_LOOKED_AT).any(|other| other.will_wake(&waker));
                if !is_known {
                    self.wakers.push(waker);
                }
            }
        }
        self.wakers.drain(..).for_each(Waker::wake);
        for permit in reads {
            let Some(done) = self.reads.remove(&permit.id) else { continue };
            done(Ok(permit.into()));
        }
        for id in failed_reads {
            let Some(done) = self.reads.remove(&id) else { continue };
            done(Err(ReadError::NoQuorum));
        }
        if let Some(job) = snapshot {
            self.begin_snapshot(job)?;
        }
        if let Some(step) = long_step {
            self.long_step.begin("apply", &self.shared, || step.run()).map_err(MemberError::Thread)?;
        }
        if let Some(job) = files_job {
            self.files_job.begin("files", &self.shared, || job.run()).map_err(MemberError::Thread)?;
        }
        if let Some(job) = chunks_job {
            self.chunks_job.begin("chunks", &self.shared, || job.run()).map_err(MemberError::Thread)?;
        }
        Ok(())
    }

    /// Hands a batch to the disk, or writes it.
    fn write(&mut self, batch: Batch) -> Result<(), MemberError> {
        let Batch { token, records } = batch;
        let is_small = records.len() <= SMALL_RECORDS;
        self.small_batches = if is_small { self.small_batches.saturating_add(1) } else { 0 };
        let node = self.log.node();
        let is_alone = self.unsafe_batches.is_empty() && node.membership().is_only(node.id());
        if is_alone
            && self.small_batches > SMALL_BATCHES
            && let Some(written) = self.writer.commit_here(&records)
        {
            written?;
            return self.persisted(token);
        }
        let bytes = records.iter().map(|record| record.payload.len()).sum();
        self.unsafe_batches.push_back(Unsafe { token, bytes });
        self.unsafe_bytes += bytes;
        let shared = Arc::clone(&self.shared);
        let done = Box::new(move |result| shared.inbox.committed(token, result));
        self.writer.submit(records, done).map_err(MemberError::Refused)
    }

    /// A batch is safe, and what waited for that may be said. Before anything is: that there is something in the log.
    fn persisted(&mut self, token: Token) -> Result<(), MemberError> {
        if let Some(begun) = self.begun.take() {
            begun.write()?;
        }
        self.log.persisted(token);
        Ok(())
    }

    /// Tells who proposed an entry what came of it; who is to be woken for it, behind others.
    fn tell(&mut self, entry: Applied<S::Reply>) -> Option<Waker> {
        let waiting = self.in_flight.pop_front_if(|waiting| waiting.index <= entry.index)?;
        self.in_flight_bytes -= waiting.bytes;
        let is_same = waiting.index == entry.index && waiting.term == entry.term;
        match (waiting.done, entry.reply) {
            (Done::Command(done), Some(reply)) if is_same => {
                return done(Ok(Committed { index: entry.index, term: entry.term, reply }));
            }
            (Done::Change(done), None) if is_same => done(Ok(entry.index)),
            // Another leader's entry took its place.
            (Done::Command(done), _) => {
                self.shared.counters.proposals_failed.fetch_add(1, Ordering::Relaxed);
                return done(Err(ProposeError::NotLeader(self.log.node().leader())));
            }
            (Done::Change(done), _) => done(Err(Rejected::NotLeader(self.log.node().leader()).into())),
        }
        None
    }

    /// Who waits for something that this node proposed and no longer decides is told so.
    fn lose_leadership(&mut self) {
        let node = self.log.node();
        let term = (node.role() == Role::Leader).then(|| node.term());
        while let Some(lost) = self.in_flight.pop_front_if(|waiting| Some(waiting.term) != term) {
            self.in_flight_bytes -= lost.bytes;
            self.shared.counters.proposals_failed.fetch_add(1, Ordering::Relaxed);
            lost.done.fail_unknown();
        }
    }

    /// Makes a snapshot beside everything else.
    fn begin_snapshot(&mut self, job: SnapshotJob) -> Result<(), MemberError> {
        self.snapshot.begin("snapshot", &self.shared, || job.run()).map_err(MemberError::Thread)
    }

    /// Shows what this member is now.
    fn show(&mut self, now: Now) {
        let node = self.log.node();
        self.shared.time_millis.store(node.time_millis(now), Ordering::Relaxed);
        let leadership = Leadership {
            leader: node.leader(),
            term: node.term(),
            is_ready_leader: node.role() == Role::Leader && node.has_applied_own_entry(),
        };
        if let Some(leader) = leadership.leader.filter(|leader| self.last_leader != Some(*leader)) {
            self.last_leader = Some(leader);
            self.shared.counters.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
        let (snapshot_settled, snapshot_failures) = (self.log.settled_snapshot(), self.log.snapshot_failures());
        let (in_flight, unsafe_bytes, wal_bytes) = (self.in_flight.len(), self.unsafe_bytes, self.writer.bytes());
        self.shared.board.update(|status| {
            status.id = node.id();
            status.role = node.role();
            status.term = node.term();
            status.leader = node.leader();
            status.commit = node.commit_index();
            status.applied = node.applied_index();
            status.last = node.last_index();
            status.snapshot = node.snapshot_index();
            status.snapshot_settled = snapshot_settled;
            if status.snapshot_failures.count != snapshot_failures.count {
                status.snapshot_failures = snapshot_failures.clone();
            }
            if *status.membership != *node.membership() {
                status.membership = Arc::new(node.membership().clone());
            }
            let progress: Vec<(u64, u64)> = node.progress().into_iter().collect();
            if *status.progress != progress {
                status.progress = Arc::new(progress);
            }
            let answering = node.answering(now);
            if *status.answering != answering {
                status.answering = Arc::new(answering);
            }
            status.in_flight = in_flight;
            status.unsafe_bytes = unsafe_bytes;
            status.wal_bytes = wal_bytes;
        });
        if self.leadership != Some(leadership) {
            self.leadership = Some(leadership);
            self.watchers.iter_mut().for_each(|watcher| watcher(leadership));
        }
    }

    /// Nothing is acknowledged any more; everybody who waits is told so. The directories are free when this returns.
    pub(crate) fn end(mut self) {
        self.shared.published.store(Default::default());
        let Inputs { proposals, reads, requests, .. } = self.shared.inbox.close();
        self.transport.stop();
        for proposal in self.held.drain(..).chain(proposals) {
            proposal.end(Err(ProposeError::Stopped));
        }
        self.in_flight.drain(..).for_each(|waiting| waiting.done.fail_unknown());
        let waiting = self.reads.drain().map(|(_, done)| done);
        waiting.chain(reads.into_iter().map(|read| read.done)).for_each(|done| done(Err(ReadError::Stopped)));
        for request in requests {
            match request {
                Request::Change(_, done) => done(Err(RequestError::Stopped)),
                Request::Transfer(_, done) => done(Err(RequestError::Stopped)),
                Request::Watch(_) | Request::Snapshot => {}
            }
        }
        self.snapshot.end();
        self.files_job.end();
        self.chunks_job.end();
        self.long_step.end();
        let leadership = Leadership { leader: None, term: self.log.node().term(), is_ready_leader: false };
        self.watchers.iter_mut().for_each(|watcher| watcher(leadership));
    }
}

impl<R> Done<R> {
    fn fail_unknown(self) {
        match self {
            Self::Command(done) => tell(done, Err(ProposeError::Unknown)),
            Self::Change(done) => done(Err(RequestError::Unknown)),
        }
    }
}
