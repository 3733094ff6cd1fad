//! When the requests of one thread are due where they come by chance: a Poisson process, as of many users who know nothing of each other.
//!
//! Threads that each have a process of their own, of their share of the rate, make one together of the whole rate: sums of
//! independent Poisson processes are Poisson. How many requests there are is fixed, so that a phase is over when they are sent, whatever chance
//! says; its length then varies a little.
//!
//! Gaps follow from a seed and their numbers, and are whole nanoseconds, so that every request has one instant however it is looked up. Sums are
//! kept of every [`BLOCK`] gaps: a lookup costs at most that many logarithms (well below a microsecond), and a million requests a quarter of a
//! megabyte.

use std::sync::Arc;

use crate::content::seeds::mix;

/// Gaps of which the sum is kept.
const BLOCK: u64 = 32;

/// The instants of one thread's requests, nanoseconds after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poisson {
    seed: u64,
    /// The thread's share of the rate: so many requests in so many nanoseconds.
    requests: u64,
    nanos: u64,
    /// What lies before each block.
    sums: Arc<[u64]>,
}

impl Poisson {
    /// Of `tickets` requests at `rate` per second, dealt out to `threads`.
    pub fn new(seed: u64, rate: u64, threads: u64, tickets: u64) -> Self {
        let mut poisson =
            Self { seed, requests: rate.max(1), nanos: threads.max(1) * 1_000_000_000, sums: Arc::default() };
        // One more than there are: the end of the timetable is asked for, too.
        let blocks = tickets / BLOCK + 1;
        let mut sum = 0;
        let mut sums = Vec::with_capacity(blocks as usize);
        for block in 0..blocks {
            sums.push(sum);
            sum += (block * BLOCK..(block + 1) * BLOCK).map(|number| poisson.gap(number)).sum::<u64>();
        }
        poisson.sums = sums.into();
        poisson
    }

    /// From the request before to this one.
    #[inline]
    fn gap(&self, number: u64) -> u64 {
        let bits = mix(self.seed, number) >> 11;
        // From above 0 to 1, so that it has a logarithm.
        let chance = (bits + 1) as f64 / (1u64 << 53) as f64;
        (-chance.ln() * self.nanos as f64 / self.requests as f64).round() as u64
    }

    /// When a request is due; of one that the process has not, when its last block ends.
    #[inline]
    pub fn due(&self, ticket: u64) -> u64 {
        let block = (ticket / BLOCK).min(self.sums.len() as u64 - 1);
        let last = ticket.min(block * BLOCK + BLOCK - 1);
        self.sums[block as usize] + (block * BLOCK..=last).map(|number| self.gap(number)).sum::<u64>()
    }

    /// How many are due when so much has elapsed, as far as there are blocks.
    #[inline]
    pub fn due_by(&self, elapsed_nanos: u64) -> u64 {
        let block = self.sums.partition_point(|sum| *sum <= elapsed_nanos).saturating_sub(1);
        let first = block as u64 * BLOCK;
        let mut at = self.sums[block];
        let is_due = |number: &u64| {
            at += self.gap(*number);
            at <= elapsed_nanos
        };
        first + (first..first + BLOCK).take_while(is_due).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_request_is_due_exactly_when_the_count_says_so(
            seed in any::<u64>(), rate in 1u64..2_000_000, threads in 1u64..5, tickets in 1u64..500, ticket in 0u64..500,
        ) {
            let poisson = Poisson::new(seed, rate, threads, tickets);
            let ticket = ticket.min(tickets);
            let due = poisson.due(ticket);
            prop_assert!(poisson.due_by(due) > ticket);
            if due > 0 {
                prop_assert!(poisson.due_by(due - 1) <= ticket);
            }
        }
    }

    fn gaps(seed: u64, rate: u64, threads: u64, count: u64) -> Vec<f64> {
        let poisson = Poisson::new(seed, rate, threads, count);
        (1..count).map(|ticket| (poisson.due(ticket) - poisson.due(ticket - 1)) as f64).collect()
    }

    #[test]
    fn gaps_are_exponential_with_the_mean_that_the_rate_asks_for() {
        for (rate, threads, mean) in [(1_000, 1, 1e6), (1_000, 4, 4e6), (50_000, 1, 2e4)] {
            let gaps = gaps(7, rate, threads, 100_000);
            let count = gaps.len() as f64;
            let found = gaps.iter().sum::<f64>() / count;
            assert!((found / mean - 1.0).abs() < 0.02, "mean {found} instead of {mean}");
            // Of an exponential distribution e^-x lie beyond x means.
            for beyond in [0.1, 1.0, 3.0] {
                let share = gaps.iter().filter(|gap| **gap > beyond * mean).count() as f64 / count;
                assert!((share - f64::exp(-beyond)).abs() < 0.006, "{share} lie beyond {beyond} means");
            }
        }
    }

    /// Evenly spaced requests would give 0; bunches that are no chance more than 1.
    #[test]
    fn counts_in_equal_spans_vary_as_a_poisson_process_does() {
        let poisson = Poisson::new(3, 10_000, 1, 200_000);
        let by = |millis: u64| poisson.due_by(millis * 1_000_000) as f64;
        let counts: Vec<f64> = (1..1_900).map(|span| by(span * 10) - by((span - 1) * 10)).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((variance / mean - 1.0).abs() < 0.15, "index of dispersion {}", variance / mean);
    }

    #[test]
    fn threads_and_trials_have_chances_of_their_own() {
        assert_ne!(gaps(1, 1_000, 1, 10), gaps(2, 1_000, 1, 10));
        assert_eq!(gaps(1, 1_000, 1, 10), gaps(1, 1_000, 1, 10));
    }
}
