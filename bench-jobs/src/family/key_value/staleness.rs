//! How old the answers of eventual reads are: a client remembers when each of its thread's keys was last acknowledged, and sees which
//! version a read finds.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// When keys were last acknowledged, by slot.
#[derive(Debug)]
pub(super) struct Acknowledged(Vec<Cell<Option<Instant>>>);

impl Acknowledged {
    pub(super) fn new(slots: u32) -> Self {
        Self(vec![Cell::new(None); slots as usize])
    }

    /// A write was acknowledged now.
    pub(super) fn note(&self, slot: u32, now: Instant) {
        if let Some(at) = self.0.get(slot as usize) {
            at.set(Some(now));
        }
    }

    /// When the newest write was acknowledged that a read must see to be fresh. To be taken before the read is sent.
    pub(super) fn newest(&self, slot: u32) -> Option<Instant> {
        self.0.get(slot as usize)?.get()
    }
}

/// How long the newest write had been acknowledged when a read was sent that missed it; `None`: the read missed nothing. `floor` is that
/// write's version and `newest` when it was acknowledged, both taken before; a read that found newer ones has missed nothing.
pub(super) fn staleness(found: u32, floor: u32, newest: Option<Instant>, sent: Instant) -> Option<Duration> {
    // Distances, so that a counter that wrapped around still compares.
    let is_stale = (found.wrapping_sub(floor) as i32) < 0;
    is_stale.then(|| newest.map_or(Duration::ZERO, |newest| sent.saturating_duration_since(newest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_as_stale_as_the_newest_write_that_it_missed_is_old() {
        let start = Instant::now();
        let (written, sent) = (Some(start), start + Duration::from_millis(7));
        assert_eq!(staleness(4, 5, written, sent), Some(Duration::from_millis(7)));
        assert_eq!(staleness(1, 5, written, sent), Some(Duration::from_millis(7)));
        assert_eq!(staleness(5, 5, written, sent), None);
        assert_eq!(staleness(6, 5, written, sent), None, "a write that was under way");
        assert_eq!(staleness(u32::MAX, 1, written, sent), Some(Duration::from_millis(7)));
    }

    #[test]
    fn what_was_never_acknowledged_is_missed_by_nobody() {
        let acknowledged = Acknowledged::new(2);
        assert_eq!(acknowledged.newest(1), None);
        let now = Instant::now();
        acknowledged.note(1, now);
        acknowledged.note(9, now);
        assert_eq!((acknowledged.newest(0), acknowledged.newest(1), acknowledged.newest(9)), (None, Some(now), None));
    }
}
