//! How old the answers of eventual reads are: a client remembers when versions of its thread's keys were acknowledged, and sees which
//! version a read finds. It has been stale since the oldest version that it missed was acknowledged, however often the key was written since.
//!
//! Not all versions are remembered: the last eight of each key, and before these ever fewer, one in two, in four, in eight. So a key that was
//! written *n* times takes room for about 4 log₂ *n* of them, a few dozen, and one that was written once takes room for one. Where the oldest version
//! that was missed is forgotten, the next that is remembered stands for it, and the staleness found is a lower bound of what it was: of all
//! versions that were missed at most the oldest quarter is passed over.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// As many multiples of each power of two are remembered among versions.
const KEPT: u64 = 8;

/// A version, and when it was acknowledged.
type Version = (u32, Instant);

/// When keys were acknowledged, by slot.
#[derive(Debug)]
pub(super) struct Acknowledged(Vec<RefCell<Vec<Version>>>);

impl Acknowledged {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![RefCell::default(); slots as usize])
    }

    /// This version was acknowledged now.
    pub(super) fn note(&self, slot: u32, version: u32, now: Instant) {
        let Some(versions) = self.0.get(slot as usize) else { return };
        let mut versions = versions.borrow_mut();
        // Only before more room would be taken.
        if versions.len() == versions.capacity() {
            versions.retain(|(kept, _)| u64::from(version.wrapping_sub(*kept)) < KEPT << kept.trailing_zeros());
        }
        versions.push((version, now));
    }

    /// The newest version that a read must see to be fresh. To be taken before the read is sent.
    pub(super) fn newest(&self, slot: u32) -> Option<Version> {
        self.0.get(slot as usize)?.borrow().last().copied()
    }

    /// For how long a read that was sent then, and found a version, had been stale at least; `None`: it missed nothing. `newest` was taken before
    /// the read; one that found newer ones has missed nothing.
    pub(super) fn staleness(&self, slot: u32, found: u32, newest: Version, sent: Instant) -> Option<Duration> {
        if !is_before(found, newest.0) {
            return None;
        }
        let versions = self.0.get(slot as usize)?.borrow();
        let missed = versions.iter().find(|(version, _)| is_before(found, *version)).copied().unwrap_or(newest);
        // What was acknowledged since may have driven out what was missed.
        Some(sent.saturating_duration_since(missed.1.min(newest.1)))
    }
}

/// By distance, so that a counter that wrapped around still compares.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key whose versions from `first` on were acknowledged every ten milliseconds.
    fn written(first: u32, count: u32) -> (Acknowledged, Instant) {
        let (acknowledged, start) = (Acknowledged::new(1), Instant::now());
        for number in 0..count {
            acknowledged.note(0, first.wrapping_add(number), start + Duration::from_millis(10) * number);
        }
        (acknowledged, start)
    }

    fn millis(acknowledged: &Acknowledged, found: u32, sent: Instant) -> Option<u128> {
        let newest = acknowledged.newest(0).unwrap();
        acknowledged.staleness(0, found, newest, sent).map(|stale| stale.as_millis())
    }

    #[test]
    fn a_read_is_as_stale_as_the_oldest_write_that_it_missed_is_old() {
        let (acknowledged, start) = written(2, 4);
        let sent = start + Duration::from_millis(37);
        assert_eq!(millis(&acknowledged, 1, sent), Some(37));
        assert_eq!(millis(&acknowledged, 3, sent), Some(17));
        assert_eq!(millis(&acknowledged, 4, sent), Some(7));
        assert_eq!(millis(&acknowledged, 5, sent), None);
        assert_eq!(millis(&acknowledged, 6, sent), None, "a write that was under way");
        let (wrapped, start) = written(u32::MAX, 3);
        assert_eq!(millis(&wrapped, u32::MAX, start + Duration::from_millis(27)), Some(17));
        assert_eq!(millis(&wrapped, 1, start + Duration::from_millis(27)), None);
    }

    #[test]
    fn a_key_that_is_rewritten_again_and_again_hides_no_stale_read() {
        for count in [100, 500, 777, 10_000, 65_536] {
            let (acknowledged, start) = written(2, count);
            let sent = start + Duration::from_millis(10) * count;
            for missed in [1, 3, 8, 9, 50, 99, count - 3, count] {
                let found = count + 1 - missed;
                let said = millis(&acknowledged, found, sent).unwrap();
                let stale = u128::from(missed) * 10;
                assert!(said <= stale && said * 4 >= stale * 3, "{said} ms of {stale} ms, {count} writes");
                assert!(missed > 8 || said == stale, "{said} ms of {stale} ms, {count} writes");
            }
            let kept = acknowledged.0[0].borrow().len();
            assert!(kept <= 128, "{kept} of {count} versions are kept");
        }
    }

    #[test]
    fn what_was_acknowledged_while_a_read_was_under_way_makes_it_no_fresher() {
        let (acknowledged, start) = written(2, 2);
        let (newest, sent) = (acknowledged.newest(0).unwrap(), start + Duration::from_millis(11));
        for number in 4..200 {
            acknowledged.note(0, number, start + Duration::from_secs(1));
        }
        let stale = acknowledged.staleness(0, 2, newest, sent).unwrap();
        assert_eq!(stale, Duration::from_millis(1));
    }

    #[test]
    fn what_was_never_acknowledged_is_missed_by_nobody() {
        let acknowledged = Acknowledged::new(2);
        assert_eq!(acknowledged.newest(1), None);
        let now = Instant::now();
        acknowledged.note(1, 2, now);
        acknowledged.note(9, 2, now);
        let newest = [0, 1, 9].map(|slot| acknowledged.newest(slot));
        assert_eq!(newest, [None, Some((2, now)), None]);
    }
}
