//! What a member has done since it was started.

use std::sync::atomic::{AtomicU64, Ordering};

use d_engine_client::ReadPath;

/// Counters that any thread may add to.
#[derive(Debug, Default)]
pub struct Counters {
    reads: [AtomicU64; 4],
    written: AtomicU64,
    not_written: AtomicU64,
    forwarded: AtomicU64,
}

/// What they said at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Reads that were answered after a round to a quorum.
    pub reads_read_index: u64,
    /// By the leader's lease.
    pub reads_lease: u64,
    /// Because the state was fresh enough.
    pub reads_age: u64,
    /// From what there was.
    pub reads_local: u64,
    /// Commands that were applied, and not refused there.
    pub written: u64,
    /// Commands that were not, were refused, or of which that is not known.
    pub not_written: u64,
    /// Commands that were handed to the leader.
    pub forwarded: u64,
}

impl Counters {
    pub(super) fn read(&self, path: ReadPath) {
        let at = match path {
            ReadPath::ReadIndex => 0,
            ReadPath::Lease => 1,
            ReadPath::Age => 2,
            ReadPath::Local => 3,
        };
        self.reads[at].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, is_written: bool) {
        let counter = if is_written { &self.written } else { &self.not_written };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn forward(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// What they say now.
    pub fn counted(&self) -> Counted {
        let [reads_read_index, reads_lease, reads_age, reads_local] =
            [0, 1, 2, 3].map(|at: usize| self.reads[at].load(Ordering::Relaxed));
        let (written, not_written) = (self.written.load(Ordering::Relaxed), self.not_written.load(Ordering::Relaxed));
        let forwarded = self.forwarded.load(Ordering::Relaxed);
        Counted { reads_read_index, reads_lease, reads_age, reads_local, written, not_written, forwarded }
    }
}
