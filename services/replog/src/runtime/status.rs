//! What a member is at the moment, for whoever wants to look: a copy, never more than a turn of the core thread old.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::consensus::Role;
use crate::membership::Membership;
use crate::snapshot::SnapshotFailures;

/// What a member is at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The member's number.
    pub id: u64,
    /// Whether it leads, follows or asks for votes.
    pub role: Role,
    /// The term that the member is in.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// The last entry that it knows to be committed.
    pub commit: u64,
    /// The last entry that its state machine has.
    pub applied: u64,
    /// The last entry of its log.
    pub last: u64,
    /// The newest snapshot that its log begins with.
    pub snapshot: u64,
    /// The newest snapshot in whose place nothing older is on disk any more.
    pub snapshot_settled: u64,
    /// Snapshots that found no room on the disk.
    pub snapshot_failures: SnapshotFailures,
    /// Who belongs to the group, as of the last committed change.
    pub membership: Arc<Membership>,
    /// If it leads: up to which entry each member has the log; as of the last tick.
    pub progress: Arc<Vec<(u64, u64)>>,
    /// If it leads: other members that have answered it within an election timeout; as of the last tick.
    pub answering: Arc<BTreeSet<u64>>,
    /// Commands in its log whose proposers wait.
    pub in_flight: usize,
    /// Bytes that wait for its disk.
    pub unsafe_bytes: usize,
    /// Bytes of its write-ahead log's files.
    pub wal_bytes: u64,
    /// It has ended: it follows nobody, and nothing changes any more.
    pub has_ended: bool,
}

/// Who leads, as seen by one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The member that leads, if this one knows it.
    pub leader: Option<u64>,
    /// The term in which it leads.
    pub term: u64,
    /// This member leads, and has applied an entry of its term: its state has everything that was ever acknowledged.
    pub is_ready_leader: bool,
}

/// What a member has counted since it started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) leader_changes: AtomicU64,
    pub(crate) proposals_failed: AtomicU64,
    pub(crate) messages_refused: AtomicU64,
}

/// What a member has counted since it started, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it has seen somebody else begin to lead, itself included.
    pub leader_changes: u64,
    /// Commands of its own that failed, or whose outcome nobody knows, because leadership was lost.
    pub proposals_failed: u64,
    /// Messages from other members that it did not take: too many waited, or they brought entries while its disk or its state machine was
    /// behind. Consensus has them sent again.
    pub messages_refused: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            leader_changes: self.leader_changes.load(Ordering::Relaxed),
            proposals_failed: self.proposals_failed.load(Ordering::Relaxed),
            messages_refused: self.messages_refused.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct Shown {
    status: Status,
    waiters: usize,
}

/// The place where it is shown.
#[derive(Debug, Default)]
pub(crate) struct Board {
    shown: Mutex<Shown>,
    changed: Condvar,
    membership: watch::Sender<Arc<Membership>>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn update(&self, update: impl FnOnce(&mut Status)) {
        let mut shown = self.lock();
        let before = Arc::as_ptr(&shown.status.membership);
        update(&mut shown.status);
        let membership = &shown.status.membership;
        let changed = (Arc::as_ptr(membership) != before).then(|| Arc::clone(membership));
        let has_waiters = shown.waiters > 0;
        drop(shown);
        if has_waiters {
            self.changed.notify_all();
        }
        if let Some(changed) = changed {
            // After the status: who hears of it looks there.
            self.membership.send_replace(changed);
        }
    }

    pub(crate) fn membership(&self) -> watch::Receiver<Arc<Membership>> {
        self.membership.subscribe()
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Who leads, and whether this member does.
    pub(crate) fn leader(&self) -> (Option<u64>, bool) {
        let shown = self.lock();
        (shown.status.leader, shown.status.role == Role::Leader)
    }

    /// Waits until the status is as wanted, at most so long; the last one that was seen if it never was.
    pub(crate) fn wait_for(
        &self,
        is_wanted: impl Fn(&Status) -> bool,
        timeout: Duration,
    ) -> Result<Status, Box<Status>> {
        let deadline = Instant::now() + timeout;
        let mut shown = self.lock();
        shown.waiters += 1;
        let found = loop {
            if is_wanted(&shown.status) {
                break Ok(shown.status.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Box::new(shown.status.clone()));
            }
            shown = self.changed.wait_timeout(shown, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        shown.waiters -= 1;
        found
    }
}
