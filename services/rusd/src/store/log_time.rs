//! The time of the log, between its entries: that of the newest one, and what has passed since it was applied here. So what ends at
//! a time of the log ends on every member, whatever its own clock says.

use std::time::Instant;

/// The newest time of an entry, and when that was applied.
#[derive(Clone, Copy, Debug)]
pub struct LogTime {
    millis: u64,
    since: Instant,
}

impl Default for LogTime {
    fn default() -> Self {
        Self { millis: 0, since: Instant::now() }
    }
}

impl LogTime {
    /// An entry of this time is applied now.
    pub(super) fn saw(&mut self, millis: u64) {
        if millis > self.millis {
            *self = Self { millis, since: Instant::now() };
        }
    }

    /// What the next entry would have, about: milliseconds since 1970.
    pub fn now_millis(&self) -> u64 {
        self.millis.saturating_add(self.since.elapsed().as_millis() as u64)
    }
}
