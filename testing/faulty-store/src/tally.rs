//! Counts over all connections of the proxy: they decide which write is lost, which value is spoilt, and when the
//! store is stopped or killed.
//!
//! Promises: of N writes exactly N divided by `drop-write-every` are lost, whichever connections they came on; the
//! same for values.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::faults::Faults;

/// Answers to reads by the question, and when the store gave them.
type Memory = HashMap<Vec<u8>, (Instant, Vec<u8>)>;

/// The faults and how often their occasions came.
#[derive(Debug)]
pub struct Tally {
    faults: Faults,
    store: OnceLock<Pid>,
    requests: AtomicU64,
    writes: AtomicU64,
    drops: AtomicU64,
    values: AtomicU64,
    flips: AtomicU64,
    stale: AtomicU64,
    memory: Mutex<Memory>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(faults: Faults) -> Self {
        let zero = || AtomicU64::new(0);
        let store = OnceLock::new();
        Self {
            faults,
            store,
            requests: zero(),
            writes: zero(),
            drops: zero(),
            values: zero(),
            flips: zero(),
            stale: zero(),
            memory: Mutex::default(),
        }
    }

    /// The answer to this question, if it was given so lately that it is given again.
    pub fn recalls(&self, question: &[u8]) -> Option<Vec<u8>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = memory.get(question)?;
        (at.elapsed() < self.faults.stale_read?).then(|| {
            self.stale.fetch_add(1, Relaxed);
            answer.clone()
        })
    }

    /// The store answered this question so.
    pub fn remembers(&self, question: Vec<u8>, answer: Vec<u8>) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(question, (Instant::now(), answer));
    }

    /// The faults that are planted.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Tells which process is to be stopped or killed.
    pub fn store_is(&self, pid: Pid) {
        // A second call cannot happen, and would change nothing.
        let _ = self.store.set(pid);
    }

    /// Counts a request on its way to the store, and starts the clocks that wait for this one.
    pub fn request_passed(&self) {
        let before = self.requests.fetch_add(1, Relaxed);
        let Some(&store) = self.store.get() else { return };
        // A signal cannot fail but for a store that is gone, and then this process ends as well.
        let send = move |signal| _ = kill_process(store, signal);
        if let Some((after, length)) = self.faults.stop
            && before == self.faults.stop_armed_after()
        {
            thread::spawn(move || {
                thread::sleep(after);
                eprintln!("faulty-store: stops the store for {} ms", length.as_millis());
                send(Signal::STOP);
                thread::sleep(length);
                send(Signal::CONT);
            });
        }
        if let Some(after) = self.faults.kill_after
            && before == self.faults.kill_armed_after()
        {
            thread::spawn(move || {
                thread::sleep(after.max(Duration::ZERO));
                eprintln!("faulty-store: kills the store");
                send(Signal::KILL);
            });
        }
    }

    /// Counts a write that could be lost. `true`: this one is.
    pub fn drops_write(&self) -> bool {
        strikes(self.faults.drop_write_every, &self.writes, &self.drops)
    }

    /// Counts a value that could be spoilt. `true`: this one is.
    pub fn flips_value(&self) -> bool {
        strikes(self.faults.flip_value_every, &self.values, &self.flips)
    }
}

fn strikes(every: Option<u64>, occasions: &AtomicU64, hits: &AtomicU64) -> bool {
    let number = occasions.fetch_add(1, Relaxed) + 1;
    let strikes = every.is_some_and(|every| number.is_multiple_of(every));
    hits.fetch_add(u64::from(strikes), Relaxed);
    strikes
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [&self.requests, &self.writes, &self.drops, &self.values, &self.flips, &self.stale];
        let [requests, writes, drops, values, flips, stale] = counts.map(|count| count.load(Relaxed));
        write!(f, "{requests} requests")?;
        if self.faults.drop_write_every.is_some() {
            write!(f, ", {drops} of {writes} writes lost")?;
        }
        if self.faults.flip_value_every.is_some() {
            write!(f, ", {flips} of {values} values flipped")?;
        }
        if self.faults.stale_read.is_some() {
            write!(f, ", {stale} reads answered from memory")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fourth_over_all_threads() {
        let tally = Tally::new(Faults { drop_write_every: Some(4), ..Faults::default() });
        let lost: usize = thread::scope(|scope| {
            let count = || (0..1003).filter(|_| tally.drops_write()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(lost, 1003);
        assert!(!tally.flips_value());
        assert_eq!(tally.to_string(), "0 requests, 1003 of 4012 writes lost");
    }
}
