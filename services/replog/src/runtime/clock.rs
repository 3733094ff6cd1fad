//! The clocks of this machine that the log goes by. The only place in this crate that reads them: `Instant` elsewhere tells how long a thread
//! waits, and since when a member is connected.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::clock::Now;

/// What the clocks show.
pub(crate) fn now() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { boot_micros: boot_micros(), unix_millis: unix.as_millis() as u64 }
}

/// Microseconds since the machine was started, those included in which it slept.
pub(crate) fn boot_micros() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
