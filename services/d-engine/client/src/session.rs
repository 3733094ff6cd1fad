//! Exactly once; what a session promises stands at [`Session`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Door, Error, Stamp, Transaction, Written, deadline_in};

/// Before a write whose outcome is not known is sent again.
const RETRY: Duration = Duration::from_millis(50);

/// A session, in which each write is done once, however often it must be sent: its writes are numbered, and the state machine remembers what
/// it answered. Clones are the same one, and may write at the same time. It ends after an hour without use, and then its writes fail with
/// [`Error::NoSession`].
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
        let deadline = deadline_in(patience);
        let waiting = self.begin();
        let mut unknown = None;
        loop {
            let outcome = self.door.write(transaction.clone(), Some(self.stamp(waiting.sequence))).await;
            if let Err(error) = &outcome
                && error.may_have_happened()
            {
                unknown = Some(error.clone());
            }
            match outcome {
                Err(error) if error.is_temporary() && Instant::now() + RETRY < deadline => sleep(RETRY).await,
                // That nothing has happened is true of the last attempt alone.
                Err(error) => return Err(unknown.unwrap_or(error)),
                written => return written,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::BoxFuture;
    use crate::{Answer, Query, ReadOptions, Seen, Watch, WatchOptions};

    /// Answers writes as told, and nothing else.
    struct Told(Mutex<Vec<Error>>);

    impl Door for Told {
        fn write(&self, _: Transaction, _: Option<Stamp>) -> BoxFuture<'_, Result<Written, Error>> {
            let mut answers = self.0.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            Box::pin(async move { Err(answer) })
        }

        fn read(&self, _: Query, _: ReadOptions) -> BoxFuture<'_, Result<Seen<Answer>, Error>> {
            unreachable!()
        }

        fn open_session(&self) -> BoxFuture<'_, Result<u64, Error>> {
            unreachable!()
        }

        fn close_session(&self, _: u64) -> BoxFuture<'_, Result<(), Error>> {
            unreachable!()
        }

        fn watch(&self, _: WatchOptions) -> BoxFuture<'_, Result<Watch, Error>> {
            unreachable!()
        }
    }

    /// The application would write again under another number, and the write would be applied twice.
    #[tokio::test]
    async fn what_may_have_happened_is_not_said_to_have_not() {
        let unknown = Error::UnknownOutcome("the leader died".into());
        for last in [Error::NotLeader(None), Error::NoSession("it ended".into()), Error::Busy] {
            let door = Arc::new(Told(Mutex::new(vec![unknown.clone(), last.clone()])));
            let session = Session::new(door, 1);
            let outcome = session.transact(Transaction::default(), 4 * RETRY).await;
            assert_eq!(outcome.unwrap_err(), unknown, "after {last}");
            let door = Arc::new(Told(Mutex::new(vec![last.clone()])));
            let outcome = Session::new(door, 1).transact(Transaction::default(), 2 * RETRY).await;
            assert_eq!(outcome.unwrap_err(), last, "of the first attempt it is true");
        }
    }
}
