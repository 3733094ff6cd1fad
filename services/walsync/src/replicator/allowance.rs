//! A bound on uploads in a month, for all databases together: until when a database waits with what is committed.
//!
//! Each upload is paid for with time. Who commits next waits until what was sent is paid for, so that the more databases change, the more
//! rarely each is sent, and evenly. What cannot wait (a check point of others, `sync`, the end) is sent all the same, and those that come
//! later pay for it.

use super::lock;
use std::sync::Mutex;
use std::time::Duration;

/// The longest month.
const MONTH: Duration = Duration::from_secs(31 * 86_400);
/// Time in which nothing was sent is saved up to this, and then sends at the usual interval.
const SAVED_MOST: Duration = Duration::from_secs(3600);

/// What may be sent.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// The time that pays for one upload; none where there is no bound.
    each: Duration,
    /// Until when everything that was sent is paid for, by the monotonic clock.
    paid_at: Mutex<Duration>,
}

/// The time that pays for one upload of so many in a month.
pub fn time_of_one(uploads_a_month_max: u64) -> Duration {
    MONTH.div_f64(uploads_a_month_max.max(1) as f64)
}

impl Allowance {
    pub(super) fn new(uploads_a_month_max: Option<u64>) -> Allowance {
        Allowance { each: uploads_a_month_max.map(time_of_one).unwrap_or_default(), ..Allowance::default() }
    }

    /// Something is sent.
    pub(super) fn spend(&self, now: Duration) {
        let mut paid_at = lock(&self.paid_at);
        *paid_at = (*paid_at).max(now.saturating_sub(SAVED_MOST)) + self.each;
    }

    /// How long a database waits from `now` with what it commits.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        lock(&self.paid_at).saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Uploads within `time` of databases that all commit without pause, looked at each second, and the most of one of them.
    fn sent(max: Option<u64>, databases: usize, start: Duration, time: Duration) -> (usize, usize) {
        let allowance = Allowance::new(max);
        let (mut next, mut sent) = (vec![start; databases], vec![0; databases]);
        let mut now = start;
        while now < start + time {
            for (next, sent) in next.iter_mut().zip(&mut sent).filter(|(next, _)| **next <= now) {
                allowance.spend(now);
                *sent += 1;
                *next = now + SECOND.max(allowance.wait(now));
            }
            now += SECOND;
        }
        (sent.iter().sum(), sent.into_iter().max().unwrap())
    }

    #[test]
    fn a_month_of_commits_without_pause_stays_below_the_bound_and_every_database_has_its_share() {
        let month = Duration::from_secs(30 * 86_400);
        for (max, databases) in [(10_000, 1), (10_000, 7), (100_000, 40)] {
            let (all, most) = sent(Some(max), databases, SAVED_MOST, month);
            assert!(all as u64 <= max, "{all} of {max}");
            assert!(all as u64 > max * 9 / 10, "{all} of {max}");
            assert!(most <= all / databases + 3600, "{most} of {all}, {databases} databases");
        }
    }

    #[test]
    fn a_bound_that_is_not_reached_makes_nobody_wait() {
        let free = sent(None, 3, SAVED_MOST, 100 * SECOND);
        assert_eq!(sent(Some(3 * 31 * 86_400), 3, SAVED_MOST, 100 * SECOND), free);
        let allowance = Allowance::new(Some(31 * 24));
        allowance.spend(2 * SAVED_MOST);
        assert_eq!(allowance.wait(2 * SAVED_MOST), Duration::ZERO, "an hour was saved");
        allowance.spend(2 * SAVED_MOST);
        assert_eq!(allowance.wait(2 * SAVED_MOST), SAVED_MOST, "it was for one");
    }
}
