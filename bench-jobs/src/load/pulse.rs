//! Whether this process stood still for a while, for a reason of which no store can be: the machine was suspended, or all processes frozen.
//!
//! Who stood still can blame nobody for a failure that came of time: an answer that came late, a connection that was given up, an election that was
//! called meanwhile. What no delay explains is blamed as ever: nobody listens any more, for the process has died, or the store answered with an
//! error that is of something else ([`Failure::may_be_of_time`]).
//!
//! A thread beats ten times a second. Where a beat is late though the thread did not wait for a processor, nothing could run; one that had to
//! wait for a processor says nothing, since the store may have kept them all busy.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

const BEAT: Duration = Duration::from_millis(100);
/// Standing still for less disturbs nobody who waits for as long as networks and disks may take.
const STANDSTILL_MIN: Duration = Duration::from_millis(500);
/// What fails later has failed by itself.
const AFTERMATH: Duration = Duration::from_secs(15);

#[derive(Debug)]
struct Beats {
    last: Instant,
    /// When the process last went on, and for how long it had stood still.
    latest: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Heart {
    beats: Mutex<Beats>,
    beaten: Condvar,
}

impl Heart {
    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pulse that is felt as long as this lives.
#[derive(Debug)]
pub struct Pulse {
    heart: Arc<Heart>,
    _living: Sender<()>,
}

impl Pulse {
    /// Begins to beat. Errors: there can be no other thread.
    pub fn begin() -> io::Result<Self> {
        let beats = Mutex::new(Beats { last: Instant::now(), latest: None });
        let heart = Arc::new(Heart { beats, beaten: Condvar::new() });
        let (living, ended) = channel::<()>();
        let beating = Arc::clone(&heart);
        thread::Builder::new().name("pulse".into()).spawn(move || {
            let mut waited = waited_for_a_processor();
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let before = std::mem::replace(&mut waited, waited_for_a_processor());
                let mut beats = beating.lock();
                let now = Instant::now();
                let late = now.saturating_duration_since(beats.last).saturating_sub(BEAT);
                let stood_still = late.saturating_sub(waited.saturating_sub(before));
                if stood_still >= STANDSTILL_MIN {
                    beats.latest = Some((now, stood_still));
                }
                beats.last = now;
                beating.beaten.notify_all();
            }
        })?;
        Ok(Self { heart, _living: living })
    }

    /// For how long the process stood still shortly before now, where that may be why a request failed. `is_gone` says whether nobody listens any more
    /// where the store was.
    pub fn excuse(&self, failure: &Failure, is_gone: impl FnOnce() -> bool) -> Option<Duration> {
        if !failure.may_be_of_time() {
            return None;
        }
        self.standstill().filter(|_| !is_gone())
    }

    /// For how long the process stood still, if it did shortly before now. Waits for the next beat.
    fn standstill(&self) -> Option<Duration> {
        let asked = Instant::now();
        let beats = self.heart.lock();
        // Whoever asks may have been woken before the thread that beats.
        let waited = self.heart.beaten.wait_timeout_while(beats, 10 * BEAT, |beats| beats.last < asked);
        let (beats, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (ended, standstill) = beats.latest?;
        (asked.saturating_duration_since(ended) < AFTERMATH).then_some(standstill)
    }
}

/// For how long this thread could have run and did not get a processor, ever; nothing where the kernel does not count it.
fn waited_for_a_processor() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = counts.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_excuses_what_may_have_come_of_time_and_nothing_else() {
        let pulse = Pulse::begin().unwrap();
        let late = Failure::new("no answer within 10s");
        assert_eq!(pulse.excuse(&late, || false), None, "nothing stood still");
        let standstill = Duration::from_secs(3);
        pulse.heart.lock().latest = Some((Instant::now(), standstill));
        let reset = Failure::io("read from 127.0.0.1:1", &io::Error::from_raw_os_error(104));
        for of_time in [&late, &reset] {
            assert_eq!(pulse.excuse(of_time, || false), Some(standstill), "{of_time}");
            assert_eq!(pulse.excuse(of_time, || true), None, "{of_time}, and the process has died");
        }
        let refused = Failure::io("connect to 127.0.0.1:1", &io::Error::from_raw_os_error(111));
        assert_eq!(pulse.excuse(&refused, || false), None, "nobody listens");
        assert_eq!(pulse.excuse(&Failure::new("SET: ERR syntax error").never_of_time(), || false), None);
    }
}
