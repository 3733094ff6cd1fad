//! What one thread observes in one phase: latencies, counts, the first wrong answer, the first failure.
//!
//! A thread records without locks or atomics; results of threads are merged when the phase is over. All latencies are
//! nanoseconds. Values above an hour are recorded as an hour.

use hdrhistogram::Histogram;
use storebench_crds::job::latency_histogram;

use crate::failure::Failure;
use crate::report::measures::Measures;

/// Upper bounds of the live histogram that `/metrics` shows, nanoseconds: powers of two from 16 µs to 17 s.
pub const BUCKET_BOUNDS_NANOS: [u64; 21] = {
    let mut bounds = [0; 21];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = 1 << (at + 14);
        at += 1;
    }
    bounds
};

/// What was observed. Plain data; [`Record::merge`] adds that of another thread.
#[derive(Clone, Debug)]
pub struct Record {
    /// From send to answer.
    pub service: Histogram<u64>,
    /// Open loop: from the due instant to the answer.
    pub intended: Histogram<u64>,
    /// Open loop: from the instant at which a request was due and a client was free to its send.
    pub lag: Histogram<u64>,
    /// Requests answered.
    pub operations: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Answers compared with what had been written.
    pub verified: u64,
    /// Answers that were wrong.
    pub wrong: u64,
    /// The first wrong answer: the key's name, and what was expected and found.
    pub first_wrong: Option<(String, String)>,
    /// The first failure, in one line.
    pub first_failure: Option<Failure>,
    /// Open loop: requests that were due.
    pub scheduled: u64,
    /// Open loop: requests that were due but not sent, because the store did not keep up.
    pub unsent: u64,
    /// Requests that were due beside the load, by a rate of their own.
    pub due_beside: u64,
    /// Of these: not sent, because the store did not keep up.
    pub unsent_beside: u64,
    /// From the start of the phase to the last answer, nanoseconds.
    pub last_answer_nanos: u64,
    /// Sum of service latencies, nanoseconds.
    pub service_sum_nanos: u64,
    /// What the family measures besides.
    pub measures: Measures,
    /// Service latencies by [`BUCKET_BOUNDS_NANOS`], the last for anything longer; not cumulative.
    pub buckets: [u64; BUCKET_BOUNDS_NANOS.len() + 1],
}

impl Default for Record {
    fn default() -> Self {
        Self {
            service: latency_histogram(),
            intended: latency_histogram(),
            lag: latency_histogram(),
            operations: 0,
            errors: 0,
            verified: 0,
            wrong: 0,
            first_wrong: None,
            first_failure: None,
            scheduled: 0,
            unsent: 0,
            due_beside: 0,
            unsent_beside: 0,
            last_answer_nanos: 0,
            service_sum_nanos: 0,
            measures: Measures::default(),
            buckets: [0; BUCKET_BOUNDS_NANOS.len() + 1],
        }
    }
}

impl Record {
    /// `count` answers came, each `nanos` after its send.
    #[inline]
    pub fn served(&mut self, nanos: u64, count: u64) {
        self.operations += count;
        self.service.saturating_record_n(nanos, count);
        self.service_sum_nanos = self.service_sum_nanos.saturating_add(nanos.saturating_mul(count));
        self.buckets[bucket(nanos)] += count;
    }

    /// An answer came `nanos` after the start of the phase.
    #[inline]
    pub fn answered_after(&mut self, nanos: u64) {
        self.last_answer_nanos = self.last_answer_nanos.max(nanos);
    }

    /// An answer was wrong.
    #[cold]
    pub fn wrong(&mut self, key: String, detail: String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert((key, detail));
    }

    /// A request failed.
    #[cold]
    pub fn failed(&mut self, failure: &Failure) {
        self.errors += 1;
        self.first_failure.get_or_insert_with(|| failure.clone());
    }

    /// Adds what another thread observed in the same phase.
    pub fn merge(&mut self, other: Self) {
        self.service += other.service;
        self.intended += other.intended;
        self.lag += other.lag;
        self.operations += other.operations;
        self.errors += other.errors;
        self.verified += other.verified;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.scheduled += other.scheduled;
        self.unsent += other.unsent;
        self.due_beside += other.due_beside;
        self.unsent_beside += other.unsent_beside;
        self.last_answer_nanos = self.last_answer_nanos.max(other.last_answer_nanos);
        self.service_sum_nanos = self.service_sum_nanos.saturating_add(other.service_sum_nanos);
        self.measures.merge(other.measures);
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
    }
}

#[inline]
fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(14) as usize).min(BUCKET_BOUNDS_NANOS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_up_to_their_bound() {
        for (at, bound) in BUCKET_BOUNDS_NANOS.iter().enumerate() {
            assert_eq!(bucket(*bound), at);
            assert_eq!(bucket(bound + 1), at + 1);
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKET_BOUNDS_NANOS.len());
    }

    #[test]
    fn threads_add_up_and_the_first_of_the_first_thread_is_kept() {
        let mut all = Record::default();
        let mut other = Record::default();
        all.served(1_000, 3);
        other.served(5_000_000, 2);
        other.last_answer_nanos = 9;
        all.failed(&Failure::new("connection reset"));
        other.failed(&Failure::new("timeout"));
        other.wrong("key:1".into(), "expected version 1".into());
        all.merge(other);
        assert_eq!((all.operations, all.errors, all.wrong, all.last_answer_nanos), (5, 2, 1, 9));
        assert_eq!(all.service.len(), 5);
        assert_eq!(all.service_sum_nanos, 10_003_000);
        assert_eq!(all.first_failure.as_ref().map(Failure::text), Some("connection reset"));
        assert_eq!(all.first_wrong.unwrap().0, "key:1");
    }
}
