//! Holding an answer back: until when, and waiting for that instant to within some tens of microseconds.
//!
//! Promises: never early; late by no more than the machine itself makes a waiting thread late. A wait is slept but for
//! its end, and only one thread at a time stays awake for that, so that all waiting together costs at most one core.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::faults::Faults;

/// How late a sleeper wakes, about (measured in a virtual machine).
const LATE: Duration = Duration::from_micros(15);

/// The end of each wait, which is spent awake for that reason.
const AWAKE: Duration = Duration::from_micros(25);

/// Whether a thread is spending the end of its wait awake.
static SOMEONE_AWAKE: AtomicBool = AtomicBool::new(false);

/// By how much answers are late.
///
/// The share is of the latency that a client sees, which is more than the proxy can see: the way from client to proxy
/// and back is missing, and takes as long as the store itself where that works in memory. See [`Way`].
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    percent: u64,
    micros: u64,
    /// The way to an idle client on an idle machine.
    way: Duration,
}

impl Delay {
    /// The delay that the faults ask for, if any. Takes some milliseconds, for it measures the way to a client.
    pub fn of(faults: &Faults) -> io::Result<Option<Self>> {
        if !faults.delays() {
            return Ok(None);
        }
        let way = if faults.delay_percent > 0 { way_to_a_client()? } else { Duration::ZERO };
        Ok(Some(Self { percent: faults.delay_percent, micros: faults.delay_micros, way }))
    }

    /// When an answer may leave that came at `answered` to a question of `asked`.
    pub fn due(self, asked: Instant, answered: Instant, way: &Way) -> Instant {
        let took = answered.saturating_duration_since(asked);
        // A client that takes longer than that is thinking, not travelling.
        let way = way.median().filter(|way| *way <= took.max(self.way * 3)).unwrap_or(self.way);
        let latency = (took + way).as_nanos() as u64;
        answered + Duration::from_nanos(latency.saturating_mul(self.percent) / 100 + self.micros * 1000)
    }
}

/// How long the way from the proxy to the client of one connection and back takes: the time between an answer and the
/// next question. A client that waits before it asks again hides it; then the way that was measured at the start counts.
#[derive(Debug, Default)]
pub struct Way {
    answered: Option<Instant>,
    last: VecDeque<Duration>,
    median: Option<Duration>,
}

impl Way {
    /// The client is about to get an answer, and waits for no other.
    pub fn answers(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// A question came.
    pub fn asks(&mut self, now: Instant) {
        const LAST: usize = 32;
        let Some(answered) = self.answered.take() else { return };
        self.last.push_back(now.saturating_duration_since(answered));
        if self.last.len() >= LAST {
            let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
            sorted.sort_unstable();
            self.median = Some(sorted[LAST / 2]);
            self.last.drain(..LAST / 4);
        }
    }

    fn median(&self) -> Option<Duration> {
        self.median
    }
}

/// How long it takes from a client to a blocked thread of the proxy and back: the median of many.
fn way_to_a_client() -> io::Result<Duration> {
    const TIMES: usize = 300;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut proxy, _) = listener.accept()?;
    client.set_nodelay(true)?;
    proxy.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while proxy.read_exact(&mut byte).is_ok() && proxy.write_all(&byte).is_ok() {}
        });
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let start = Instant::now();
            client.write_all(&[0])?;
            client.read_exact(&mut [0])?;
            took.push(start.elapsed());
        }
        drop(client);
        // The first ones find cold caches.
        took.drain(..TIMES / 3);
        took.sort_unstable();
        Ok(took[took.len() / 2])
    })
}

/// Waits for an instant. Call `precise` once in the thread before.
pub fn until(due: Instant) {
    let left = || due.saturating_duration_since(Instant::now());
    // Nothing to sleep for is no sleep at all, not even of a system call.
    match left().saturating_sub(AWAKE) {
        Duration::ZERO => {}
        asleep => thread::sleep(asleep),
    }
    if SOMEONE_AWAKE.swap(true, Ordering::Acquire) {
        // Late by some µs, or else the threads that hold answers would keep the store itself from working.
        while !left().is_zero() {
            thread::sleep(left().saturating_sub(LATE).max(Duration::from_nanos(1)));
        }
        return;
    }
    while !left().is_zero() {
        std::hint::spin_loop();
    }
    SOMEONE_AWAKE.store(false, Ordering::Release);
}

/// Makes sleeps of this thread end on time. The kernel lets them end 50 µs late to save wake-ups, unless told
/// otherwise (proc_pid_timerslack_ns(5)); where that cannot be said, delays are a little less exact.
pub fn precise() {
    if let Ok(thread) = fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        // See above: this makes delays better, and is not needed.
        let _ = fs::write(Path::new("/proc").join(id).join("timerslack_ns"), "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_add_up() {
        let asked = Instant::now();
        let answered = asked + Duration::from_micros(160);
        let delay = Delay { percent: 25, micros: 7, way: Duration::from_micros(40) };
        let mut way = Way::default();
        assert_eq!(delay.due(asked, answered, &way), answered + Duration::from_micros(57));
        assert_eq!(delay.due(answered, asked, &way), asked + Duration::from_micros(17));
        let mut travel = |micros| {
            for _ in 0..100 {
                way.answers(asked);
                way.asks(asked + Duration::from_micros(micros));
                way.asks(asked);
            }
            delay.due(asked, answered, &way) - answered
        };
        assert_eq!(travel(80), Duration::from_micros(67));
        assert_eq!(travel(161), Duration::from_micros(57));
        assert!(Delay::of(&Faults::default()).unwrap().is_none());
        let delay = Delay::of(&Faults { delay_percent: 25, ..Faults::default() }).unwrap().unwrap();
        assert!(delay.way > Duration::ZERO);
    }

    #[test]
    fn never_early() {
        precise();
        for micros in [0, 1, 50, 100, 300] {
            let due = Instant::now() + Duration::from_micros(micros);
            until(due);
            assert!(Instant::now() >= due);
        }
    }
}
