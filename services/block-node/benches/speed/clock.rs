//! A clock that rings to some hundredths of a millisecond. The one of tokio has milliseconds: what is due within one of them would be sent in
//! one burst, and would wait in the node for what the loader has done.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

pub struct Clock(AsyncFd<OwnedFd>);

impl Clock {
    pub fn new() -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
        // What takes its place is unsafe, for the sake of types that lie about what they hold. This one owns it.
        #[allow(deprecated)]
        Self(AsyncFd::new(timer).unwrap())
    }

    /// Waits until then. Whoever waits no longer may wait for another moment.
    pub async fn until(&self, due: Instant) {
        let still = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let it_value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let once = Itimerspec { it_interval: still, it_value };
            rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).unwrap();
            let mut rung = self.0.readable().await.unwrap();
            // What it tells is how often it has rung; that it was read makes it silent.
            if rustix::io::read(&self.0, &mut [0; 8]).is_err() {
                rung.clear_ready();
            }
        }
    }
}
