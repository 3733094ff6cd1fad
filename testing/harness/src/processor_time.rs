//! Processor time that was used: what others on a busy machine do does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// By this thread.
pub fn of_thread() -> Duration {
    of(ClockId::ThreadCPUTime)
}

/// By all threads of this process.
pub fn of_process() -> Duration {
    of(ClockId::ProcessCPUTime)
}

fn of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
