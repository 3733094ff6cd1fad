//! How often something took how long, counted by one thread while others read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bucket reaches to 4 µs, each of the others twice as far as the one before it, the last but one to 4.2 s, and the last to anything.
const BUCKETS: usize = 22;
const FIRST_NANOS: u64 = 4_000;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Durations {
    /// It took so long.
    pub fn note(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        let bucket = nanos.div_ceil(FIRST_NANOS).next_power_of_two().ilog2() as usize;
        self.counts[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The most seconds of each bucket, of the last none, and how many there are in it and in those before it.
    pub(super) fn cumulative(&self) -> Vec<(Option<f64>, u64)> {
        let mut sum = 0;
        let counts = self.counts.iter().enumerate();
        let counted = counts.map(|(bucket, count)| {
            sum += count.load(Ordering::Relaxed);
            let bound = (bucket < BUCKETS - 1).then(|| (FIRST_NANOS << bucket) as f64 / 1e9);
            (bound, sum)
        });
        counted.collect()
    }

    /// What all of them took together.
    pub(super) fn seconds(&self) -> f64 {
        self.nanos.load(Ordering::Relaxed) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let durations = Durations::default();
        for nanos in [0, 4_000, 4_001, 8_000, 8_001] {
            durations.note(Duration::from_nanos(nanos));
        }
        durations.note(Duration::from_secs(600));
        let found = durations.cumulative();
        assert_eq!(found[..3], [(Some(0.000_004), 2), (Some(0.000_008), 4), (Some(0.000_016), 5)]);
        assert_eq!(found[BUCKETS - 2..], [(Some(4.194_304), 5), (None, 6)]);
        assert!((durations.seconds() - 600.000_024_002).abs() < 1e-6);
    }
}
