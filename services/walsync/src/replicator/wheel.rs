//! Who is looked at next. Looks fall on ticks, so that a thousand databases cost forty wake-ups a second and not a thousand.

use super::{Shared, Tracked, lock};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The grain of time.
pub const TICK: Duration = Duration::from_millis(25);
/// The same, where somebody makes check points that wait for us: each look too late is a commit that waits.
pub const QUICK_TICK: Duration = Duration::from_millis(2);

/// When a database is due that has no look before it.
pub const NEVER: Duration = Duration::from_micros(u64::MAX);

/// The first tick that is not before `at`.
fn next_tick(at: Duration, grain: Duration) -> Duration {
    let nanos = at.as_nanos().div_ceil(grain.as_nanos()) * grain.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

struct Entry(Duration, Arc<Tracked>);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// Databases by the time of their next look.
#[derive(Default)]
pub struct Wheel {
    due: Mutex<BinaryHeap<Reverse<Entry>>>,
    changed: Condvar,
}

impl Wheel {
    /// Adds a look.
    pub fn add(&self, tracked: Arc<Tracked>, at: Duration) {
        self.add_at_grain(tracked, at, TICK);
        // Whoever looks adds looks of its own, and waits for nobody's word: it would be a call of the kernel for each.
        self.changed.notify_one();
    }

    fn add_at_grain(&self, tracked: Arc<Tracked>, at: Duration, grain: Duration) {
        let at = next_tick(at, grain);
        let mut due = lock(&self.due);
        // It is looked at before, and adds its next look then.
        if tracked.due() <= at {
            return;
        }
        tracked.set_due(at);
        due.push(Reverse(Entry(at, tracked)));
    }

    /// Ends a wait: one that has begun, and one of who has just seen no reason to end.
    pub fn wake(&self) {
        let _due = lock(&self.due);
        self.changed.notify_all();
    }

    /// Those whose look is due; waits for the next tick that has any, but not longer than a second.
    fn wait(&self, now: Duration) -> Vec<Arc<Tracked>> {
        let mut due = lock(&self.due);
        let mut ready = Vec::new();
        while due.peek().is_some_and(|Reverse(entry)| entry.0 <= now) {
            if let Some(Reverse(Entry(at, tracked))) = due.pop()
                // One that was called earlier had another entry.
                && tracked.due() == at
            {
                tracked.set_due(NEVER);
                ready.push(tracked);
            }
        }
        if ready.is_empty() {
            let next = due.peek().map_or(Duration::from_secs(1), |Reverse(entry)| entry.0 - now);
            drop(
                self.changed
                    .wait_timeout(due, next.min(Duration::from_secs(1)))
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
        ready
    }
}

impl Shared {
    pub(super) fn poll_until_stopped(&self) {
        while !self.stop.load(Ordering::Acquire) {
            for tracked in self.wheel.wait(self.clock.monotonic()) {
                if tracked.is_forgotten.load(Ordering::Acquire) {
                    continue;
                }
                let now = self.clock.monotonic();
                let next = self.poll(&tracked, now);
                let grain = if next < now + TICK { QUICK_TICK } else { TICK };
                self.wheel.add_at_grain(tracked, next.max(now + QUICK_TICK), grain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_go_on_after_more_of_them_than_32_bits_count() {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        for at in [days(1), days(99), days(100), days(36_500)] {
            assert_eq!((next_tick(at, QUICK_TICK), next_tick(at, TICK)), (at, at));
            assert_eq!(next_tick(at + Duration::from_micros(1), QUICK_TICK), at + QUICK_TICK);
        }
    }

    #[test]
    fn a_database_has_one_look_and_the_earliest_that_was_asked_for() {
        let wheel = Wheel::default();
        let tracked = Arc::new(Tracked::refused("/a.db".into(), "for a test".into(), Duration::ZERO));
        let at = Duration::from_secs;
        let add = |seconds| wheel.add(tracked.clone(), at(seconds));
        let ready = |seconds| wheel.wait(at(seconds)).len();
        for _ in 0..3 {
            add(5);
        }
        assert_eq!(ready(5), 1, "three calls for one tick");
        // Somebody calls for it while it is looked at, and then it adds its next look.
        add(6);
        add(60);
        assert_eq!(ready(6), 1, "the earlier one counts");
        add(70);
        add(65);
        assert_eq!((ready(65), lock(&wheel.due).len()), (1, 1));
        add(70);
        assert_eq!((ready(70), lock(&wheel.due).len()), (1, 0), "what was overtaken is no second look");
    }
}
