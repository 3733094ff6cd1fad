//! Errors that are planted, so that the checks can show that they notice them: those that the original has, and others.

use d_engine::machine::{Machine, Reply};
use d_engine::state::{Command, Memory};
use replog::{Entry, RestoreError, SnapshotView, StateMachine};

use crate::lasting::Lasting;

/// An error that is planted, so that the checks can show that they notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Each member counts time to live by its own clock, as the original does.
    LocalClock,
    /// Sessions are not looked at.
    NoSessions,
    /// Strong reads look at what there is.
    ReadsLocally,
    /// A snapshot is not all of the state.
    HalfSnapshot,
    /// What was kept is applied again.
    AppliesTwice,
    /// Some entries are applied twice, one right after the other, as the original does.
    RepeatsEntries,
    /// Who watches is not told of what a snapshot skipped.
    WatchesOverGaps,
    /// Leases end by each member's own clock.
    LocalLeases,
    /// A vote is given and forgotten with the process, and who comes back votes at once: the original's.
    ForgetsVotes,
    /// Who has let a leader count on it votes for another one meanwhile: the original's lease reads.
    StaleLeases,
    /// Followers acknowledge what their disks do not have: the original's memory-first writes.
    AcknowledgesBeforeSync,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::LocalClock,
        Self::NoSessions,
        Self::ReadsLocally,
        Self::HalfSnapshot,
        Self::AppliesTwice,
        Self::RepeatsEntries,
        Self::WatchesOverGaps,
        Self::LocalLeases,
        Self::ForgetsVotes,
        Self::StaleLeases,
        Self::AcknowledgesBeforeSync,
    ];

    /// What of it is planted in the log.
    pub fn of_the_log(self) -> [Option<replog::Bug>; 2] {
        match self {
            Self::ForgetsVotes => [Some(replog::Bug::VoteNotPersisted), Some(replog::Bug::NoWithholdingAfterRestart)],
            Self::StaleLeases => [Some(replog::Bug::LeaseWithoutWithholding), None],
            Self::AcknowledgesBeforeSync => [Some(replog::Bug::FollowerAcknowledgesBeforeSync), None],
            _ => [None; 2],
        }
    }
}

/// The machine, right or wrong.
pub struct Planted {
    pub machine: Machine<Lasting>,
    pub bug: Option<Bug>,
    pub id: u64,
}

impl StateMachine for Planted {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        let mut entry = entry.clone();
        if self.bug == Some(Bug::LocalLeases)
            && let Ok(Command::Expire) = Command::decode(entry.data.clone())
        {
            entry.time_millis += 20 * self.id;
        }
        if self.bug == Some(Bug::LocalClock) {
            entry.time_millis += self.id;
        }
        if self.bug == Some(Bug::NoSessions)
            && let Ok(Command::Write(transaction, Some(_))) = Command::decode(entry.data.clone())
        {
            entry.data = Command::Write(transaction, None).encode();
        }
        let applied = self.machine.apply(&entry);
        if self.bug == Some(Bug::RepeatsEntries) && entry.index.is_multiple_of(7) {
            return self.machine.apply(&entry);
        }
        applied
    }

    fn apply_unasked(&mut self, entry: &Entry) {
        match self.bug {
            None => self.machine.apply_unasked(entry),
            Some(_) => drop(self.apply(entry)),
        }
    }

    fn applied(&mut self, index: u64) {
        self.machine.applied(index);
    }

    fn kept(&self) -> u64 {
        self.machine.kept()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        self.machine.forget()
    }

    fn snapshot(&self) -> SnapshotView {
        match self.bug {
            // A state without rows is one.
            Some(Bug::HalfSnapshot) => Machine::new(Memory::default()).unwrap().snapshot(),
            _ => self.machine.snapshot(),
        }
    }

    fn restore(&mut self, snapshot: &mut dyn std::io::Read) -> Result<(), RestoreError> {
        self.machine.restore(snapshot)
    }
}
