//! When to try a store again that fails: each database for itself ever more rarely, but all of them together once a second, and all at
//! once when one has found that it is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two tries of all databases together, and of one whose own object fails while those of others do not.
const PROBE: Duration = Duration::from_secs(1);

/// What is known of the store, by the monotonic clock. In microseconds; 0: never.
#[derive(Debug, Default)]
pub struct Recovery {
    succeeded: AtomicU64,
    next_probe: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

impl Recovery {
    /// The store took something.
    pub fn succeeded(&self, now: Duration) {
        self.succeeded.store(micros(now), Ordering::Release);
    }

    /// Whether a database that failed at `failed` is to try again now, whatever its own patience. Asking is trying: who is told so
    /// keeps others from it for a while.
    pub fn is_worth_a_try(&self, failed: Duration, now: Duration) -> bool {
        if now < failed + PROBE {
            return false;
        }
        if self.succeeded.load(Ordering::Acquire) > micros(failed) {
            return true;
        }
        let next = self.next_probe.load(Ordering::Acquire);
        let taken = || self.next_probe.compare_exchange(next, micros(now + PROBE), Ordering::AcqRel, Ordering::Acquire);
        micros(now) >= next && taken().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_database_in_a_second_looks_whether_the_store_is_back_and_tells_all_others() {
        let recovery = Recovery::default();
        let at = Duration::from_millis;
        let failed = at(10_000);
        assert!(!recovery.is_worth_a_try(failed, at(10_900)), "it has only just failed");
        let tries = |now| (0..100).filter(|_| recovery.is_worth_a_try(failed, now)).count();
        assert_eq!((tries(at(11_000)), tries(at(11_900)), tries(at(12_000))), (1, 0, 1), "of a hundred databases");
        recovery.succeeded(at(12_100));
        assert_eq!(tries(at(12_101)), 100);
        assert!(!recovery.is_worth_a_try(at(12_200), at(12_300)), "who fails since has a trouble of its own");
    }
}
