//! Time as an argument: simulation gives its own. And what is believed of a date that steps.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Dates of two moments that differ by more from what passed between them were stepped; by less, they are taken in their order.
pub const CLOCK_STEP_MILLIS: i64 = 60_000;
/// For how long a date must have been ahead to be believed.
const BELIEVED_AFTER: Duration = Duration::from_secs(86_400);

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

/// The date, for who removes what is old by it: a step ahead is believed after a day. One that goes back is believed at once.
#[derive(Default)]
pub struct BelievedDate(Mutex<Believed>);

#[derive(Default)]
struct Believed {
    /// The date less the monotonic time.
    ahead_millis: Option<i64>,
    /// Since when the clock has been further ahead than that.
    stepped: Option<Duration>,
}

impl BelievedDate {
    /// Unix time in milliseconds.
    pub fn unix_millis(&self, clock: &dyn Clock) -> i64 {
        let (now, date) = (clock.monotonic(), clock.unix_millis());
        let monotonic_millis = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let ahead = date.saturating_sub(monotonic_millis);
        let mut believed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = *believed.ahead_millis.get_or_insert(ahead);
        if ahead <= known.saturating_add(CLOCK_STEP_MILLIS) {
            (believed.ahead_millis, believed.stepped) = (Some(ahead), None);
            return date;
        }
        if now >= believed.stepped.get_or_insert(now).saturating_add(BELIEVED_AFTER) {
            (believed.ahead_millis, believed.stepped) = (Some(ahead), None);
            return date;
        }
        known.saturating_add(monotonic_millis)
    }
}
