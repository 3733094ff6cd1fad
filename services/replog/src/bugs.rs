//! Errors that can be planted, so that the simulator can show that it would notice them. Without the feature
//! `planted-bugs`, and outside of tests, none can be planted and every question below is `false` at compile time.

/// An error that real systems had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(not(any(test, feature = "planted-bugs")), allow(dead_code, reason = "nobody can plant them"))]
pub enum Bug {
    /// A vote is given and forgotten with the next crash.
    VoteNotPersisted,
    /// The leader counts itself before its own disk has the entry.
    AcknowledgeBeforeSync,
    /// A follower acknowledges entries that its disk does not have.
    FollowerAcknowledgesBeforeSync,
    /// A node that has heard a leader votes for another one at once.
    LeaseWithoutWithholding,
    /// A node that comes back votes at once, although it may have let a leader count on it just before.
    NoWithholdingAfterRestart,
    /// The lease counts from when an acknowledgement came, not from when what it acknowledges was sent.
    LeaseFromWrongRound,
    /// A lease goes on when leadership was offered to another node.
    LeaseKeptAfterTransfer,
    /// A lease that was good when the clock was last read is not looked at again.
    LeaseNotRechecked,
    /// A new leader takes a lease before it knows what is committed.
    LeaseBeforeOwnEntry,
    /// Other threads read by the lease although the state lacks what is committed already.
    LeaseBehindCommit,
    /// The lease is as long as the promise that it rests on, as if all clocks ran alike.
    DriftIgnored,
    /// A leader takes what others promise for as long as its own election timeout, whatever theirs is.
    PromiseAssumed,
    /// A ReadIndex round is known by a name that earlier rounds had, too.
    ReadContextReused,
    /// A follower acknowledges entries although some before them are missing.
    HoleAccepted,
    /// A snapshot is installed when its last chunk has come, whatever else has.
    HalfSnapshot,
    /// Expiry is decided by each replica's own clock.
    LocalClock,
    /// An entry of an earlier term counts as committed when enough nodes have it.
    EarlierTermCounted,
    /// The only voter sends entries to learners before its disk has the term.
    TermNotDurable,
    /// A leader goes on leading, by heartbeats alone, while its disk does not answer.
    LeadsWithoutDisk,
    /// A founder that lost its disk founds again, under the number whose votes and acknowledgements are gone. It is planted in the simulator
    /// itself, and shows what that costs: who must not begin is decided around the log, by [`crate::runtime::identity`].
    FoundsAgain,
    /// A follower takes a closed connection for the end of the leader, and of what it has promised it.
    LostLeaderForgotten,
}

#[cfg(any(test, feature = "planted-bugs"))]
impl Bug {
    /// Every bug that can be planted.
    pub const ALL: [Self; 21] = [
        Self::VoteNotPersisted,
        Self::AcknowledgeBeforeSync,
        Self::FollowerAcknowledgesBeforeSync,
        Self::LeaseWithoutWithholding,
        Self::NoWithholdingAfterRestart,
        Self::LeaseFromWrongRound,
        Self::LeaseKeptAfterTransfer,
        Self::LeaseNotRechecked,
        Self::LeaseBeforeOwnEntry,
        Self::LeaseBehindCommit,
        Self::DriftIgnored,
        Self::PromiseAssumed,
        Self::ReadContextReused,
        Self::HoleAccepted,
        Self::HalfSnapshot,
        Self::LocalClock,
        Self::EarlierTermCounted,
        Self::TermNotDurable,
        Self::LeadsWithoutDisk,
        Self::FoundsAgain,
        Self::LostLeaderForgotten,
    ];
}

/// Planted errors: none outside of tests, and there at most two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(any(test, feature = "planted-bugs"))]
    bugs: [Option<Bug>; 2],
}

impl Planted {
    /// Plants one bug.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        Self { bugs: [bug, None] }
    }

    /// Plants two, as a system may have them.
    #[cfg(any(test, feature = "planted-bugs"))]
    pub(crate) fn both(bugs: [Option<Bug>; 2]) -> Self {
        Self { bugs }
    }

    /// Whether this one is planted.
    #[inline]
    pub(crate) fn has(self, bug: Bug) -> bool {
        #[cfg(any(test, feature = "planted-bugs"))]
        {
            self.bugs.contains(&Some(bug))
        }
        #[cfg(not(any(test, feature = "planted-bugs")))]
        {
            let _ = bug;
            false
        }
    }
}
