//! Wakes clients at their due instants, more finely than tokio's timer, which counts milliseconds.
//!
//! One `timerfd` per thread, on the monotonic clock, polled by the thread's own runtime. It goes off at most every
//! [`GRAIN`] and then wakes everyone whose instant has come, so that a rate of a million a second costs no more wake-ups
//! than one of twenty thousand. The price is up to one grain of lag, which is recorded as such.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The alarm does not go off twice within this time.
pub const GRAIN: Duration = Duration::from_micros(50);

/// One thread's alarm.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    waiting: RefCell<Waiting>,
}

/// Who waits, earliest first: tickets are handed out in the order in which they are due.
#[derive(Debug, Default)]
struct Waiting(VecDeque<(Instant, Waker)>);

impl Waiting {
    /// One more, behind those that are due at the same instant. Returns whether nobody is due before.
    fn add(&mut self, due: Instant, waker: Waker) -> bool {
        let at = self.0.partition_point(|(other, _)| *other <= due);
        self.0.insert(at, (due, waker));
        at == 0
    }

    /// Wakes whoever is due, in order. Returns when the next one is.
    fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some((due, waker)) = self.0.pop_front() {
            if due > now {
                self.0.push_front((due, waker));
                return Some(due);
            }
            waker.wake();
        }
        None
    }
}

impl Alarm {
    /// An alarm for the runtime this is called in.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // Deprecated for types that might give another descriptor each time they are asked; an `OwnedFd` does not. Its
        // successor `register` is unsafe, which this project forbids.
        #[allow(deprecated)]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, waiting: RefCell::default() })
    }

    /// Waits until `due`. Needs [`Alarm::ring`] to run in the same runtime.
    pub async fn wait_until(&self, due: Instant) {
        let mut registered = false;
        poll_fn(|context| {
            let now = Instant::now();
            if now >= due {
                return Poll::Ready(());
            }
            if !registered {
                registered = true;
                if self.waiting.borrow_mut().add(due, context.waker().clone()) {
                    self.set(now, due);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes whoever is due, for as long as it is polled.
    pub async fn ring(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            // Nothing to read means that the timer was set anew in between. Either way nothing is left to read.
            let _ = rustix::io::read(self.timer.get_ref(), &mut expirations);
            ready.clear_ready();
            let now = Instant::now();
            let next = self.waiting.borrow_mut().wake(now);
            if let Some(due) = next {
                self.set(now, due);
            }
        }
    }

    fn set(&self, now: Instant, due: Instant) {
        let delay = due.saturating_duration_since(now).max(GRAIN);
        let value = Timespec { tv_sec: delay.as_secs() as _, tv_nsec: delay.subsec_nanos() as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Fails only for a descriptor or a time that is not valid; both are ours.
        let _ = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;
    use tokio::runtime::{Builder, LocalOptions};

    /// Writes its name where all others write theirs.
    struct Sleeper(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Wake for Sleeper {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn whoever_is_due_is_woken_in_order_and_nobody_else() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut waiting = Waiting::default();
        let mut add = |name, micros| waiting.add(at(micros), Arc::new(Sleeper(name, Arc::clone(&woken))).into());
        let is_first = [("d", 300), ("a", 100), ("c", 200), ("b", 100)].map(|(name, micros)| add(name, micros));
        assert_eq!(is_first, [true, true, false, false]);
        let mut woken_at = |micros| {
            let next = waiting.wake(at(micros));
            (std::mem::take(&mut *woken.lock().unwrap()), next)
        };
        assert_eq!(woken_at(99), (vec![], Some(at(100))));
        assert_eq!(woken_at(100), (vec!["a", "b"], Some(at(200))));
        assert_eq!(woken_at(1_000), (vec!["c", "d"], None));
    }

    #[test]
    fn everyone_is_woken_and_nobody_early() {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let alarm = Rc::new(Alarm::new().unwrap());
            let ringing = tokio::task::spawn_local({
                let alarm = Rc::clone(&alarm);
                async move { alarm.ring().await }
            });
            let start = Instant::now();
            let waits: Vec<_> = [300u64, 100, 200, 100, 20_000]
                .into_iter()
                .map(|micros| {
                    let alarm = Rc::clone(&alarm);
                    tokio::task::spawn_local(async move {
                        let due = start + Duration::from_micros(micros);
                        alarm.wait_until(due).await;
                        assert!(Instant::now() >= due);
                    })
                })
                .collect();
            for wait in waits {
                wait.await.unwrap();
            }
            ringing.abort();
        });
    }
}
