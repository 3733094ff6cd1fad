//! By how much the machine holds up who asks for nothing: a thread that only sleeps sees how late it is woken.
//!
//! `bench-jobs/src/load/pulse.rs` leaves out what a thread waits for a processor, since the store may keep them all busy, which excuses nobody
//! there. Here it counts: a test is held up by whatever keeps them busy, and that is mostly another test.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(2);

/// A pulse that is felt until it is asked.
#[derive(Debug)]
pub(crate) struct Pulse {
    living: Sender<()>,
    beating: JoinHandle<Duration>,
}

impl Pulse {
    /// Begins to beat.
    pub(crate) fn begin() -> Self {
        let (living, ended) = channel::<()>();
        let beating = thread::spawn(move || {
            let (mut last, mut latest) = (Instant::now(), Duration::ZERO);
            loop {
                let is_over = ended.recv_timeout(BEAT) != Err(RecvTimeoutError::Timeout);
                let now = Instant::now();
                latest = latest.max(now.duration_since(last).saturating_sub(BEAT));
                if is_over {
                    return latest;
                }
                last = now;
            }
        });
        Self { living, beating }
    }

    /// By how much a beat was late at most.
    pub(crate) fn latest(self) -> Duration {
        drop(self.living);
        self.beating.join().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_stopped_for_a_while_knows_for_how_long() {
        let pulse = Pulse::begin();
        let stops_us = "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID";
        assert!(std::process::Command::new("sh").args(["-c", stops_us]).status().unwrap().success());
        let latest = pulse.latest();
        assert!(latest >= Duration::from_millis(200), "{latest:?}");
    }
}
