//! What Prometheus is told (`metrics-listen`), by threads of their own.
//!
//! The executor is never waited for long, and never waits: ten times a second it looks at one flag, and where somebody has asked since,
//! leaves the text of INFO behind. Where nobody asks, that flag is all it costs. How long its turns and commits take it counts in atomics.
//! The rest is done by the thread that was asked: `http` hears the question, `exposition` makes the answer.
//!
//! `prometheus-client`, which this project's other servers have, comes with their HTTP on an async runtime, which this server is without.

mod durations;
mod exposition;
mod http;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub use durations::Durations;
pub use http::serve;

/// What the executor and those who answer share.
#[derive(Debug, Default)]
pub struct Metrics {
    /// How many databases there are.
    databases: usize,
    /// Somebody waits for what INFO knows.
    is_wanted: AtomicBool,
    told: Mutex<Told>,
    news: Condvar,
    /// How long turns of the loop take, without the wait for events.
    pub turns: Durations,
    /// How long it takes to write what the commands of a turn have changed, and under `appendfsync always` to sync it.
    pub commits: Durations,
}

/// What the executor has said.
#[derive(Debug, Default)]
struct Told {
    /// How often.
    number: u64,
    /// The text of INFO.
    info: Arc<str>,
}

impl Metrics {
    /// Nothing was told yet; of a server with so many databases.
    pub fn new(databases: usize) -> Self {
        Self { databases, ..Self::default() }
    }

    /// For the executor: whether somebody waits for what INFO knows.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// For the executor: the text of INFO. Where somebody else looks at it just then, it is told at the next occasion: the executor does
    /// not wait.
    pub fn tell(&self, info: String) {
        let info: Arc<str> = info.into();
        let Ok(mut told) = self.told.try_lock() else { return };
        self.is_wanted.store(false, Ordering::Relaxed);
        *told = Told { number: told.number + 1, info };
        drop(told);
        self.news.notify_all();
    }

    /// What INFO says from now on; nothing if the executor has not told within so long.
    fn ask(&self, patience: Duration) -> Option<Arc<str>> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_wanted.store(true, Ordering::Relaxed);
        let before = told.number;
        let waited = self.news.wait_timeout_while(told, patience, |told| told.number == before);
        let (told, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then(|| Arc::clone(&told.info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_that_says_nothing_is_waited_for_no_longer_than_was_said() {
        let metrics = Metrics::new(16);
        assert!(!metrics.is_wanted());
        assert_eq!(metrics.ask(Duration::from_millis(10)), None);
        assert!(metrics.is_wanted(), "it is told that somebody has asked");
        metrics.tell("late".to_owned());
        assert!(!metrics.is_wanted());
        assert_eq!(metrics.ask(Duration::from_millis(10)), None, "what was told before the question is no answer");
    }

    #[test]
    fn an_executor_waits_for_nobody_who_looks_at_what_it_has_told() {
        let metrics = Metrics::new(16);
        let looks = metrics.told.lock().unwrap();
        metrics.tell("not heard".to_owned());
        assert_eq!(looks.number, 0);
    }

    #[test]
    fn who_asks_hears_what_is_told_from_then_on() {
        let metrics = Metrics::new(16);
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| metrics.ask(Duration::from_secs(60)));
            while !asked.is_finished() {
                if metrics.is_wanted() {
                    metrics.tell("uptime_in_seconds:1".to_owned());
                }
                std::thread::yield_now();
            }
            assert_eq!(asked.join().unwrap().as_deref(), Some("uptime_in_seconds:1"));
        });
    }
}
