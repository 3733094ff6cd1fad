//! When to write, if more is about to come. Pure.
//!
//! Who is told that a record is safe often has the next one soon. A writer that goes on at once with what waited meanwhile misses
//! those, and they wait for the sync after next: with so many in flight that all fit into one batch it writes twice as often as it
//! needs to, and everybody waits twice as long. So it waits a little, if as many are expected as were told; never longer than half
//! of what the last sync took, and not again for a while where nobody came. Alone, nobody waits. (PostgreSQL's `commit_delay`, whose
//! documentation advises half of a sync, with a lesson learnt from each attempt.)

use std::time::Duration;

/// Waits that are left out after as many in a row that were in vain, doubled each time.
const SKIPS_MAX: u32 = 256;

/// What was learnt so far.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Records that were told of, and those that waited then.
    expected: usize,
    waited: usize,
    patience: Duration,
    /// Waits to leave out now, and after the next one that is in vain.
    skips: u32,
    next_skips: u32,
}

impl Pace {
    /// So many records were committed, which took so long; so many others wait.
    pub(crate) fn committed(&mut self, records: usize, took: Duration, waiting: usize) {
        self.expected = records + waiting;
        self.waited = waiting;
        self.patience = took / 2;
    }

    /// Records that are worth waiting for, and for how long after the last ones were told of. `None`: write what is there.
    pub(crate) fn wish(&mut self) -> Option<(usize, Duration)> {
        // A few that do not come back shall not spoil it.
        let wish = self.expected - self.expected / 16;
        if self.expected == 0 || self.waited >= wish {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        Some((wish, self.patience))
    }

    /// What was there after the wait.
    pub(crate) fn waited(&mut self, records: usize) {
        // Most of the way is worth it as well.
        let came = records.saturating_sub(self.waited);
        if came * 2 >= self.expected - self.waited {
            self.next_skips = 0;
        } else {
            self.next_skips = (self.next_skips * 2).clamp(1, SKIPS_MAX);
            self.skips = self.next_skips;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(2);

    #[test]
    fn alone_nobody_waits() {
        let mut pace = Pace::default();
        assert_eq!(pace.wish(), None, "nothing is known");
        pace.committed(1, SYNC, 0);
        // The one that comes is all that is expected.
        assert_eq!(pace.wish(), Some((1, SYNC / 2)));
    }

    #[test]
    fn two_halves_become_one_batch() {
        let mut pace = Pace::default();
        pace.committed(500, SYNC, 500);
        let (wish, patience) = pace.wish().unwrap();
        assert!((900..=1000).contains(&wish) && patience == SYNC / 2);
        pace.waited(980);
        pace.committed(980, SYNC, 20);
        assert!(pace.wish().unwrap().0 > 900);
    }

    /// Records that come when they will, as many during a sync as in it: each wait would be in vain.
    #[test]
    fn waits_in_vain_become_rare() {
        let mut pace = Pace::default();
        let waits = (0..10_000).filter(|_| {
            pace.committed(10, SYNC, 10);
            let waits = pace.wish().is_some();
            if waits {
                pace.waited(12);
            }
            waits
        });
        assert!(waits.count() < 60);
    }
}
