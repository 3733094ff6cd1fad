//! How long it takes until commits are durable, and for how long the oldest that is not has been waiting: what a disk that dies now would
//! take with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the counts, microseconds.
pub const BOUNDS_MICROS: [u64; 14] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    1_500_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// Counts of durations.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Durations {
    pub(super) fn took(&self, duration: Duration) {
        let micros = duration.as_micros() as u64;
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How many were up to each bound and beyond the one before; the last count is of those beyond all bounds.
    pub fn counts(&self) -> [u64; BOUNDS_MICROS.len() + 1] {
        std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed))
    }

    /// All of them together, nanoseconds.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos.load(Ordering::Relaxed)
    }
}

/// Since when commits of one database wait, by the monotonic clock: from when they were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The oldest that is not staged.
    seen: Option<Duration>,
    /// The oldest that is in a file under way to the store.
    uploading: Option<Duration>,
}

impl Waiting {
    /// A commit was seen.
    pub fn seen(&mut self, at: Duration) {
        self.seen.get_or_insert(at);
    }

    /// All commits that were seen are staged, or were none: since when the oldest of them has waited.
    pub fn staged(&mut self) -> Option<Duration> {
        self.seen.take()
    }

    /// A file of which the oldest commit has waited since then is under way; or none is.
    pub fn uploading(&mut self, since: Option<Duration>) {
        self.uploading = since;
    }

    /// Since when the oldest has waited; `queued` is that of the files that wait for their upload.
    pub fn oldest(&self, queued: Option<Duration>) -> Option<Duration> {
        [self.seen, self.uploading, queued].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_commit_counts_wherever_it_waits() {
        let at = |seconds| Some(Duration::from_secs(seconds));
        let mut waiting = Waiting::default();
        assert_eq!(waiting.oldest(None), None);
        waiting.seen(Duration::from_secs(5));
        waiting.seen(Duration::from_secs(6));
        assert_eq!(waiting.oldest(None), at(5));
        assert_eq!((waiting.staged(), waiting.staged()), (at(5), None), "what is staged waits elsewhere");
        waiting.seen(Duration::from_secs(7));
        waiting.uploading(at(5));
        assert_eq!((waiting.oldest(at(6)), waiting.oldest(at(3))), (at(5), at(3)));
        waiting.uploading(None);
        assert_eq!(waiting.oldest(None), at(7));
    }

    #[test]
    fn a_duration_counts_below_the_first_bound_that_it_does_not_exceed() {
        let durations = Durations::default();
        for millis in [0, 10, 11, 300_000, 300_001] {
            durations.took(Duration::from_millis(millis));
        }
        let counts = durations.counts();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (2, 1, 1, 1));
        assert_eq!(durations.sum_nanos(), 600_022_000_000);
    }
}
