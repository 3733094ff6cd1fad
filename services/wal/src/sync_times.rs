//! How long batches took from the write to the end of the sync: a histogram that one thread fills and any may read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets but the last, which has none, microseconds: those of etcd's
/// `etcd_disk_wal_fsync_duration_seconds`.
pub const BOUNDS_MICROS: [u64; 14] = [
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_024_000, 2_048_000, 4_096_000,
    8_192_000,
];
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// What was counted until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTimes {
    /// Batches by [`BOUNDS_MICROS`], each counted in one bucket.
    pub counts: [u64; BUCKETS],
    /// All times together, nanoseconds.
    pub sum_nanos: u64,
}

impl SyncTimes {
    /// How many batches were synced.
    pub fn syncs(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Where they are counted. A reader may see a batch's count before its time.
#[derive(Debug, Default)]
pub struct SyncRecorder {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl SyncRecorder {
    pub(crate) fn record(&self, took: Duration) {
        let bucket =
            BOUNDS_MICROS.iter().position(|bound| took <= Duration::from_micros(*bound)).unwrap_or(BUCKETS - 1);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What was counted until now.
    pub fn read(&self) -> SyncTimes {
        SyncTimes {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum_nanos: self.sum_nanos.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_in_the_first_bucket_that_holds_it() {
        let recorder = SyncRecorder::default();
        for micros in [0, 1_000, 1_001, 8_192_000, 8_192_001] {
            recorder.record(Duration::from_micros(micros));
        }
        let times = recorder.read();
        assert_eq!((times.counts[0], times.counts[1], times.counts[13], times.counts[14]), (2, 1, 1, 1));
        assert_eq!((times.syncs(), times.sum_nanos), (5, 16_386_002_000));
    }
}
