//! Reads that wait: for a round of ReadIndex, then for the state machine to have what the round confirmed.
//!
//! All reads that wait when a round starts share it; those that come later share the next one. A round that nobody answers
//! is started anew under another name, so that an answer to the old one, however late, is worth nothing.

use std::collections::VecDeque;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadLevel {
    /// Sees every write that was acknowledged before the read began. Costs a round to a quorum, which all waiting reads share.
    /// Depends on no clock.
    Linearizable,
    /// The same as long as clocks keep to [`crate::Settings::clock_drift_ppm`], and without a round while the leader has a lease;
    /// else as `Linearizable`.
    Lease,
    /// Sees every write that was acknowledged so many microseconds before the read began, or earlier; else as `Linearizable`.
    Bounded {
        /// How old the state may be, microseconds.
        max_staleness_micros: u64,
    },
    /// Sees what this node has. Never waits.
    Eventual,
}

/// How a read's freshness was ensured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadPath {
    /// By a round to a quorum.
    ReadIndex,
    /// By the leader's lease.
    Lease,
    /// By what a leader with a lease said not long ago.
    Age,
    /// The member answers from its own state and asks nobody.
    Local,
}

/// A read, by number, on the node that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A read may look at the state machine now, and be answered if [`crate::Node::confirm`] still says so afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPermit {
    /// The read that is answered.
    pub id: ReadId,
    /// The state machine has at least this index.
    pub index: u64,
    /// How that was ensured.
    pub path: ReadPath,
    /// The term in which it was.
    pub term: u64,
    /// An upper bound of the answer's age when the permit was given, microseconds; `None` if nothing is known.
    pub age_micros: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: ReadId,
    at_least: u64,
    deadline: u64,
}

#[derive(Debug)]
struct Round {
    context: Vec<u8>,
    started: u64,
    /// How often it was started anew.
    attempts: u32,
    reads: Vec<Waiting>,
}

/// Reads of one node.
#[derive(Debug)]
pub(crate) struct Reads {
    node: u64,
    /// Differs at every start, so that no round of an earlier one has the same name.
    incarnation: u64,
    max: usize,
    next_id: u64,
    next_round: u64,
    waiting: Vec<Waiting>,
    round: Option<Round>,
    /// Confirmed, and waiting for the state machine.
    applying: VecDeque<(ReadPermit, u64)>,
    failed: Vec<ReadId>,
    /// Plants [`crate::bugs::Bug::ReadContextReused`].
    reuses_names: bool,
}

impl Reads {
    /// `incarnation` differs at every start of this node.
    pub(crate) fn new(node: u64, incarnation: u64, max: usize) -> Self {
        Self {
            node,
            incarnation,
            max,
            next_id: 0,
            next_round: 0,
            waiting: Vec::new(),
            round: None,
            applying: VecDeque::new(),
            failed: Vec::new(),
            reuses_names: false,
        }
    }

    #[cfg(any(test, feature = "planted-bugs"))]
    pub(crate) fn reuse_names(&mut self) {
        self.reuses_names = true;
    }

    fn count(&self) -> usize {
        self.waiting.len() + self.applying.len() + self.round.as_ref().map_or(0, |round| round.reads.len())
    }

    /// A number for a read, unless too many wait.
    pub(crate) fn admit(&mut self) -> Option<ReadId> {
        (self.count() < self.max).then(|| {
            self.next_id += 1;
            ReadId(self.next_id)
        })
    }

    /// Lets a read wait for the next round, or fail at the deadline.
    pub(crate) fn wait(&mut self, id: ReadId, at_least: u64, deadline: u64) {
        self.waiting.push(Waiting { id, at_least, deadline });
    }

    /// Lets a read wait for the state machine only.
    pub(crate) fn apply(&mut self, permit: ReadPermit, deadline: u64) {
        self.applying.push_back((permit, deadline));
    }

    /// The name of a round to start now, if one is needed: nobody has answered the last one for `patience` (twice that the
    /// next time, lest a slow network never answer in time, and so on up to `patience_max`), or there is none and reads wait.
    pub(crate) fn start(&mut self, now: u64, patience: u64, patience_max: u64) -> Option<Vec<u8>> {
        let mut attempts = 0;
        match &mut self.round {
            Some(round) if now < round.started + (patience << round.attempts.min(16)).min(patience_max) => return None,
            Some(round) => {
                attempts = round.attempts + 1;
                self.waiting.append(&mut round.reads);
            }
            None => {}
        }
        self.round = None;
        if self.waiting.is_empty() {
            return None;
        }
        self.next_round += 1;
        let number = if self.reuses_names { 0 } else { self.next_round };
        let numbers = [self.node, self.incarnation, number];
        let context: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.round =
            Some(Round { context: context.clone(), started: now, attempts, reads: std::mem::take(&mut self.waiting) });
        Some(context)
    }

    /// A quorum confirmed a round.
    pub(crate) fn confirmed(&mut self, context: &[u8], index: u64, term: u64) {
        if let Some(round) = self.round.take_if(|round| round.context == context) {
            self.applying.extend(round.reads.into_iter().map(|read| {
                let index = index.max(read.at_least);
                let permit = ReadPermit { id: read.id, index, path: ReadPath::ReadIndex, term, age_micros: Some(0) };
                (permit, read.deadline)
            }));
        }
    }

    /// Reads that the state machine is ready for.
    pub(crate) fn ready(&mut self, applied: u64, out: &mut Vec<ReadPermit>) {
        if !self.applying.is_empty() {
            self.applying.retain(|(permit, _)| {
                let is_ready = permit.index <= applied;
                if is_ready {
                    out.push(*permit);
                }
                !is_ready
            });
        }
    }

    /// Gives up reads that have waited for too long.
    pub(crate) fn expire(&mut self, now: u64) {
        let failed = &mut self.failed;
        let mut keep = |id: ReadId, deadline: u64| {
            if deadline <= now {
                failed.push(id);
            }
            deadline > now
        };
        self.waiting.retain(|read| keep(read.id, read.deadline));
        self.applying.retain(|(permit, deadline)| keep(permit.id, *deadline));
        if let Some(round) = &mut self.round {
            round.reads.retain(|read| keep(read.id, read.deadline));
        }
    }

    /// Reads that were given up.
    pub(crate) fn take_failed(&mut self) -> Vec<ReadId> {
        std::mem::take(&mut self.failed)
    }
}
