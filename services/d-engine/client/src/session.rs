//! Exactly once: writes of a session are numbered, and the state machine remembers what it answered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Door, Error, Stamp, Transaction, Written};

/// Before a write whose outcome is not known is sent again.
const RETRY: Duration = Duration::from_millis(50);

/// A session. Clones are the same one, and may write at the same time.
#[derive(Clone)]
pub struct Session {
    door: Arc<dyn Door>,
    number: u64,
    counter: Arc<Mutex<Counter>>,
}

#[derive(Default)]
struct Counter {
    last: u64,
    waiting: BTreeSet<u64>,
}

/// A write that waits for its answer. When it does so no longer, the state machine may forget the answer.
struct Waiting<'a> {
    counter: &'a Mutex<Counter>,
    sequence: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.waiting.remove(&self.sequence);
    }
}

impl Session {
    pub(crate) fn new(door: Arc<dyn Door>, number: u64) -> Self {
        Self { door, number, counter: Arc::default() }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Applies a transaction once. Sent again for so long as nobody can tell whether it was applied, or nobody takes it.
    pub async fn transact(&self, transaction: Transaction, patience: Duration) -> Result<Written, Error> {
        let deadline = Instant::now() + patience;
        let waiting = self.begin();
        loop {
            let outcome = self.door.write(transaction.clone(), Some(self.stamp(waiting.sequence))).await;
            match outcome {
                Err(error) if error.is_temporary() && Instant::now() + RETRY < deadline => sleep(RETRY).await,
                outcome => return outcome,
            }
        }
    }

    fn begin(&self) -> Waiting<'_> {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.last += 1;
        let sequence = counter.last;
        counter.waiting.insert(sequence);
        Waiting { counter: &self.counter, sequence }
    }

    fn stamp(&self, sequence: u64) -> Stamp {
        let counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited_from = counter.waiting.first().copied().unwrap_or(sequence);
        Stamp { session: self.number, sequence, awaited_from }
    }

    /// Ends it; its replies are forgotten.
    pub async fn close(self) -> Result<(), Error> {
        self.door.close_session(self.number).await
    }
}
