//! Time as an argument: simulation gives its own.

use std::time::{Duration, Instant, SystemTime};

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// Since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Unix time in milliseconds, as the machine believes; may step.
    fn unix_millis(&self) -> i64;
}

/// The machine's clocks.
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_millis(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
