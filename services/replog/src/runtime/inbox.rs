//! Everything that waits for the core thread, in one bounded place. The core takes all of it at once; who brings something does
//! not wait, and is told when there is no room.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use wal::CommitError;

use super::handle::{ChangeDone, Committed, LeaderWatcher, ProposeError, ReadError, RequestError, Ticket};
use crate::membership::Change;
use crate::message::Message;
use crate::node::Token;
use crate::reads::ReadLevel;

/// What a member keeps waiting. Beyond: `Busy`, or a message is lost, which consensus expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commands that are not in the log yet.
    pub proposals_max: usize,
    /// How many bytes of proposals may wait.
    pub proposal_bytes_max: usize,
    /// Messages from other members, bytes.
    pub message_bytes_max: usize,
    /// What the disk has not taken yet, bytes. Beyond, no command enters the log.
    pub unsafe_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            proposals_max: 100_000,
            proposal_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            unsafe_bytes_max: 64 << 20,
        }
    }
}

/// Called once, on the core thread: it must be quick. Whom it names is woken when all of a batch have been told.
pub(crate) type ProposeDone<R> = Box<dyn FnOnce(Result<Committed<R>, ProposeError>) -> Option<Waker> + Send>;
pub(crate) type ReadDone = Box<dyn FnOnce(Result<Ticket, ReadError>) + Send>;

/// A command that waits to enter the log.
pub struct Proposal<R> {
    pub(crate) command: Bytes,
    pub(crate) done: ProposeDone<R>,
}

impl<R> Proposal<R> {
    /// `done` is called once, on the core thread or on the caller's, when the command was applied here, or has failed; it must be quick. Whom it
    /// names is woken behind the last outcome that is told together with this one: who waits for many outcomes takes them together.
    pub fn new(
        command: Bytes,
        done: impl FnOnce(Result<Committed<R>, ProposeError>) -> Option<Waker> + Send + 'static,
    ) -> Self {
        Self { command, done: Box::new(done) }
    }

    /// Tells what came of it, at once.
    pub(crate) fn end(self, result: Result<Committed<R>, ProposeError>) {
        tell(self.done, result);
    }
}

/// Tells what came of a command, and wakes who waits for it.
pub(crate) fn tell<R>(done: ProposeDone<R>, result: Result<Committed<R>, ProposeError>) {
    if let Some(waker) = done(result) {
        waker.wake();
    }
}

/// A read that waits to be asked.
pub(crate) struct Read {
    pub(crate) level: ReadLevel,
    pub(crate) at_least: u64,
    pub(crate) done: ReadDone,
}

/// What is asked rarely.
pub(crate) enum Request {
    Change(Vec<Change>, ChangeDone),
    Transfer(u64, Box<dyn FnOnce(Result<(), RequestError>) + Send>),
    Snapshot,
    Watch(LeaderWatcher),
}

/// What the core thread gets.
pub(crate) struct Inputs<R> {
    pub(crate) messages: Vec<Message>,
    /// Members whose connections have closed, behind their messages.
    pub(crate) closed: Vec<u64>,
    pub(crate) proposals: VecDeque<Proposal<R>>,
    pub(crate) reads: Vec<Read>,
    pub(crate) requests: Vec<Request>,
    /// Everything up to this batch is safe.
    pub(crate) persisted: Option<Token>,
    pub(crate) failed: Option<CommitError>,
    /// Some work beside the core thread ends.
    pub(crate) helper_ends: bool,
    pub(crate) must_stop: bool,
}

impl<R> Default for Inputs<R> {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            closed: Vec::new(),
            proposals: VecDeque::new(),
            reads: Vec::new(),
            requests: Vec::new(),
            persisted: None,
            failed: None,
            helper_ends: false,
            must_stop: false,
        }
    }
}

struct Waiting<R> {
    inputs: Inputs<R>,
    message_bytes: usize,
    proposal_bytes: usize,
    is_closed: bool,
    /// The core thread sleeps.
    is_asleep: bool,
}

/// Why something is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

/// Where callers leave proposals and reads, and where the core thread takes them.
pub(crate) struct Inbox<R> {
    waiting: Mutex<Waiting<R>>,
    filled: Condvar,
    limits: Limits,
    reads_max: usize,
}

/// Requests that may wait.
const REQUESTS_MAX: usize = 1024;

impl<R> Inbox<R> {
    pub(crate) fn new(limits: Limits, reads_max: usize) -> Self {
        let waiting = Waiting {
            inputs: Inputs::default(),
            message_bytes: 0,
            proposal_bytes: 0,
            is_closed: false,
            is_asleep: false,
        };
        Self { waiting: Mutex::new(waiting), filled: Condvar::new(), limits, reads_max }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something, and wakes the core if it sleeps. What is refused comes back.
    fn add<T>(&self, item: T, add: impl FnOnce(&mut Waiting<R>, T) -> Result<(), T>) -> Result<(), (Refused, T)> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err((Refused::Closed, item));
        }
        add(&mut waiting, item).map_err(|item| (Refused::Full, item))?;
        if std::mem::take(&mut waiting.is_asleep) {
            drop(waiting);
            self.filled.notify_one();
        }
        Ok(())
    }

    pub(crate) fn propose(&self, proposal: Proposal<R>) -> Result<(), (Refused, Proposal<R>)> {
        self.add(proposal, |waiting, proposal| waiting.hold(proposal, &self.limits))
    }

    /// As [`Inbox::propose`], of many; the core is woken once. What is refused comes back.
    pub(crate) fn propose_all(&self, proposals: Vec<Proposal<R>>) -> Vec<(Refused, Proposal<R>)> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return proposals.into_iter().map(|proposal| (Refused::Closed, proposal)).collect();
        }
        let held = proposals.into_iter().filter_map(|proposal| waiting.hold(proposal, &self.limits).err());
        let refused = held.map(|proposal| (Refused::Full, proposal)).collect();
        if std::mem::take(&mut waiting.is_asleep) {
            drop(waiting);
            self.filled.notify_one();
        }
        refused
    }

    pub(crate) fn read(&self, read: Read) -> Result<(), (Refused, Read)> {
        self.add(read, |waiting, read| push(&mut waiting.inputs.reads, self.reads_max, read))
    }

    pub(crate) fn request(&self, request: Request) -> Result<(), (Refused, Request)> {
        self.add(request, |waiting, request| push(&mut waiting.inputs.requests, REQUESTS_MAX, request))
    }

    /// A message came; it is lost when there is no room. Whether there was.
    pub(crate) fn deliver(&self, message: Message) -> bool {
        let size = message.memory_bytes();
        let added = self.add(message, |waiting, message| {
            if waiting.message_bytes + size > self.limits.message_bytes_max {
                return Err(message);
            }
            waiting.message_bytes += size;
            waiting.inputs.messages.push(message);
            Ok(())
        });
        !matches!(added, Err((Refused::Full, _)))
    }

    /// A member's connection has closed; all its messages were delivered.
    pub(crate) fn closed(&self, member: u64) {
        let _ended = self.add(member, |waiting, member| {
            if !waiting.inputs.closed.contains(&member) {
                waiting.inputs.closed.push(member);
            }
            Ok(())
        });
    }

    /// The disk is done with a batch and all before it.
    pub(crate) fn committed(&self, token: Token, result: Result<(), CommitError>) {
        let _closed = self.add((), |waiting, ()| {
            match result {
                // What is written after a batch that was not does not count.
                Ok(()) if waiting.inputs.failed.is_none() => waiting.inputs.persisted = Some(token),
                Ok(()) => {}
                Err(error) => waiting.inputs.failed = waiting.inputs.failed.take().or(Some(error)),
            }
            Ok(())
        });
    }

    pub(crate) fn helper_ends(&self) {
        let _closed = self.add((), |waiting, ()| {
            waiting.inputs.helper_ends = true;
            Ok(())
        });
    }

    pub(crate) fn stop(&self) {
        let _closed = self.add((), |waiting, ()| {
            waiting.inputs.must_stop = true;
            Ok(())
        });
    }

    /// Waits until there is something, at most so long, and takes it: all, but of the proposals only `room_bytes`, and one that
    /// is larger if `takes_any`.
    pub(crate) fn take(&self, inputs: &mut Inputs<R>, (room_bytes, takes_any): (usize, bool), wait: Duration) {
        let mut waiting = self.lock();
        if !waiting.has_something(room_bytes, takes_any) && !wait.is_zero() {
            waiting.is_asleep = true;
            waiting = self.filled.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0;
            waiting.is_asleep = false;
        }
        std::mem::swap(&mut waiting.inputs.messages, &mut inputs.messages);
        std::mem::swap(&mut waiting.inputs.closed, &mut inputs.closed);
        std::mem::swap(&mut waiting.inputs.reads, &mut inputs.reads);
        std::mem::swap(&mut waiting.inputs.requests, &mut inputs.requests);
        waiting.message_bytes = 0;
        inputs.persisted = waiting.inputs.persisted.take();
        inputs.failed = waiting.inputs.failed.take();
        inputs.helper_ends = std::mem::take(&mut waiting.inputs.helper_ends);
        inputs.must_stop = waiting.inputs.must_stop;
        let mut bytes = 0;
        while let Some(proposal) = waiting.inputs.proposals.pop_front_if(|next| {
            let size = next.command.len();
            bytes + size <= room_bytes || (takes_any && bytes == 0)
        }) {
            bytes += proposal.command.len();
            waiting.proposal_bytes -= proposal.command.len();
            inputs.proposals.push_back(proposal);
        }
    }

    /// Takes nothing more, and hands out what was waiting.
    pub(crate) fn close(&self) -> Inputs<R> {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        std::mem::take(&mut waiting.inputs)
    }
}

fn push<T>(to: &mut Vec<T>, max: usize, item: T) -> Result<(), T> {
    if to.len() >= max {
        return Err(item);
    }
    to.push(item);
    Ok(())
}

impl<R> Waiting<R> {
    /// Keeps a proposal, if there is room for it.
    fn hold(&mut self, proposal: Proposal<R>, limits: &Limits) -> Result<(), Proposal<R>> {
        let bytes = self.proposal_bytes + proposal.command.len();
        let proposals = &mut self.inputs.proposals;
        let is_full = proposals.len() >= limits.proposals_max || bytes > limits.proposal_bytes_max;
        if is_full && !proposals.is_empty() {
            return Err(proposal);
        }
        self.proposal_bytes = bytes;
        proposals.push_back(proposal);
        Ok(())
    }

    fn has_something(&self, room_bytes: usize, takes_any: bool) -> bool {
        let Inputs { messages, closed, proposals, reads, requests, persisted, failed, helper_ends, must_stop } =
            &self.inputs;
        let fits = |proposal: &Proposal<R>| proposal.command.len() <= room_bytes || takes_any;
        !messages.is_empty()
            || !closed.is_empty()
            || proposals.front().is_some_and(fits)
            || !reads.is_empty()
            || !requests.is_empty()
            || persisted.is_some()
            || failed.is_some()
            || *helper_ends
            || *must_stop
    }
}
