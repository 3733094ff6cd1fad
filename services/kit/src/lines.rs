//! How often the log tells of what may happen with each connection that comes: whoever comes and goes must not fill it.

use std::time::{Duration, Instant};

/// Between two lines that tell of the same.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Tells of what may happen often, a line in a while.
#[derive(Debug, Default)]
pub struct Lines {
    last: Option<Instant>,
    untold: u64,
}

impl Lines {
    /// It has happened once more; how many times to tell of, if it is time to.
    pub fn one_more(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= LINE_INTERVAL);
        is_due.then(|| {
            self.last = Some(now);
            std::mem::take(&mut self.untold)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_told_of_once_in_a_while() {
        let mut lines = Lines::default();
        let now = Instant::now();
        assert_eq!(lines.one_more(now), Some(1));
        assert_eq!((1..10).find_map(|second| lines.one_more(now + Duration::from_secs(second))), None);
        assert_eq!(lines.one_more(now + LINE_INTERVAL), Some(10));
    }
}
