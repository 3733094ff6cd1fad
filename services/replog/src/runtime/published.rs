//! What the core thread publishes, so that reads on any thread need not ask it: a few numbers that belong together.
//!
//! A sequence lock: the version is odd while the numbers change. A reader that finds no quiet moment gets nothing, and asks the
//! core thread: it never waits for a writer that the scheduler has put aside.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::node::Standing;

const ATTEMPTS: usize = 64;

/// Written by one thread, read by all.
#[derive(Debug, Default)]
pub(crate) struct Published {
    version: AtomicU64,
    /// Term, end of the lease, age, applied index: see [`Standing`].
    numbers: [AtomicU64; 4],
}

impl Published {
    /// Only the core thread calls this. It must happen after the state machine was published and before any message is sent that
    /// could end a lease.
    pub(crate) fn store(&self, standing: Standing) {
        let Standing { term, lease_until_micros, as_of_micros, applied } = standing;
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, number) in self.numbers.iter().zip([term, lease_until_micros, as_of_micros, applied]) {
            to.store(number, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The newest, if it can be had at once.
    pub(crate) fn load(&self) -> Option<Standing> {
        for _ in 0..ATTEMPTS {
            let before = self.version.load(Ordering::Acquire);
            let [term, lease_until_micros, as_of_micros, applied] =
                [0, 1, 2, 3].map(|at: usize| self.numbers[at].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return Some(Standing { term, lease_until_micros, as_of_micros, applied });
            }
            std::hint::spin_loop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn numbers_that_belong_together_are_read_together() {
        let (published, ends) = (Arc::new(Published::default()), Arc::new(AtomicBool::new(false)));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (published, ends) = (Arc::clone(&published), Arc::clone(&ends));
                thread::spawn(move || {
                    let mut seen = 0;
                    while !ends.load(Ordering::Relaxed) || seen == 0 {
                        if let Some(standing) = published.load() {
                            let Standing { term, lease_until_micros, as_of_micros, applied } = standing;
                            assert_eq!((lease_until_micros, as_of_micros, applied), (2 * term, 3 * term, 4 * term));
                            seen += 1;
                        }
                    }
                })
            })
            .collect();
        for term in 0..200_000 {
            published.store(Standing { term, lease_until_micros: 2 * term, as_of_micros: 3 * term, applied: 4 * term });
        }
        ends.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
