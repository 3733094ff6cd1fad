//! What a client of the load sees of the machinery: when to send, and where to say what came back.
//!
//! Each client gets one [`Session`] for each phase. In the load phases (WarmUp, Measure) its loop is
//!
//! ```text
//! while let Some(mut batch) = session.next().await {
//!     let answer = store.request(…).await?;              // a failed request ends the phase: `?`
//!     session.answered(&mut batch, 1, Instant::now());   // counts it and records its latencies
//!     if let Err(mismatch) = ledger.check(…) { session.wrong(name, mismatch.detail) } else { session.verified(1) }
//! }
//! ```
//!
//! and the loop is the same in a closed and an open loop: [`Session::next`] returns at once in a closed loop, waits for
//! the timetable in an open one, and returns `None` when the phase is over. In Prepare and Verify the client decides
//! itself what to send and uses [`Session::begin`] instead. Everything between `next`/`begin` and `answered` is watched:
//! no answer within `load.timeout` fails the job. In the load phases of a workload with a fault nothing is: clients give up by themselves.
//!
//! All methods take `&self`, so that a family may share a session among the tasks of one client (`Rc<Session>`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use storebench_crds::job::Phase;
use storebench_crds::measure::{Durations, Largest, Total};
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::load::alarm::Alarm;
use crate::load::pace::{Turn, Turns};
use crate::report::record::Record;

/// Requests taken from the shared total at a time, so that threads rarely touch the same cache line.
const BUDGET_CHUNK: u64 = 256;

/// Who decides when a client may send.
#[derive(Debug)]
pub(crate) enum Source {
    /// Closed loop: as soon as it is free, until the requests or the time are used up.
    Closed {
        /// Requests left over all threads; absent: no limit.
        budget: Option<Arc<AtomicU64>>,
        /// The end of the phase; absent: no limit.
        deadline: Option<Instant>,
    },
    /// Open loop: the timetable.
    Open {
        /// This thread's tickets.
        turns: Turns,
    },
    /// Prepare and Verify: the client itself.
    Client,
}

/// What the clients of one thread share during one phase.
#[derive(Debug)]
pub(crate) struct ThreadPhase {
    pub(crate) phase: Phase,
    pub(crate) start: Instant,
    /// How long an answer may take. `None`: clients decide that themselves.
    pub(crate) timeout: Option<Duration>,
    pub(crate) source: Source,
    /// Wakes whoever waits for an instant. Absent: tokio's timer does, in tests.
    pub(crate) alarm: Option<Rc<Alarm>>,
    /// Requests taken from the budget but not yet sent.
    pub(crate) in_hand: Cell<u64>,
    /// Set by the first failure on any thread: everyone stops.
    pub(crate) stop: Arc<AtomicBool>,
    /// Wakes the runner of this thread after a failure.
    pub(crate) stopped: Notify,
    pub(crate) record: RefCell<Record>,
    /// Requests in flight and since when nothing moved, by place.
    pub(crate) in_flight: Vec<(Cell<u32>, Cell<Instant>)>,
}

impl ThreadPhase {
    /// Notes a failure and stops the phase on all threads.
    #[cold]
    pub(crate) fn fail(&self, failure: &Failure) {
        self.record.borrow_mut().failed(failure);
        self.stop.store(true, Ordering::Relaxed);
        self.stopped.notify_one();
    }

    /// Fails if a client has waited for an answer for longer than the timeout.
    pub(crate) fn check_timeouts(&self, now: Instant) {
        let waits = self.in_flight.iter().filter(|(outstanding, _)| outstanding.get() > 0);
        if let Some(longest) = waits.map(|(_, since)| now.saturating_duration_since(since.get())).max() {
            self.check_wait(longest);
        }
    }

    /// Fails if an answer took, or has taken until now, longer than the timeout.
    #[inline]
    fn check_wait(&self, wait: Duration) {
        if let Some(timeout) = self.timeout.filter(|timeout| wait > *timeout) {
            self.fail(&Failure::new(format_args!("no answer within {timeout:?}")));
        }
    }

    fn take_budget(&self, budget: &AtomicU64, most: u64) -> u64 {
        if self.in_hand.get() == 0 {
            let taken = budget
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    (left > 0).then(|| left - left.min(BUDGET_CHUNK))
                })
                .map_or(0, |left| left.min(BUDGET_CHUNK));
            self.in_hand.set(taken);
        }
        let count = self.in_hand.get().min(most);
        self.in_hand.set(self.in_hand.get() - count);
        count
    }
}

/// One client's view of one phase. See the module's description.
#[derive(Debug)]
pub struct Session {
    pub(crate) shared: Rc<ThreadPhase>,
    pub(crate) client: u32,
    pub(crate) place: u32,
    pub(crate) connection: u32,
}

/// Requests that a client sends together and that are not all answered yet.
#[derive(Debug)]
#[must_use = "tell the session when the requests were answered"]
pub struct Batch {
    count: u32,
    answered: u32,
    ticket: u64,
    sent: Instant,
}

impl Batch {
    /// How many requests to send.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many were answered.
    #[inline]
    pub fn answered(&self) -> u32 {
        self.answered
    }

    /// When they were allowed to leave; service latency counts from here.
    #[inline]
    pub fn sent(&self) -> Instant {
        self.sent
    }
}

impl Session {
    /// The client's number over all threads, from 0.
    pub fn client(&self) -> u32 {
        self.client
    }

    /// The client's place among the clients of its thread, from 0.
    pub fn place(&self) -> u32 {
        self.place
    }

    /// The client's connection, as an index into [`crate::load::Seat::connections`] of its thread. Where connections
    /// carry one client each, the same as [`Session::place`].
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.shared.phase
    }

    /// Waits until one request may be sent. `None`: the phase is over.
    #[inline]
    pub async fn next(&self) -> Option<Batch> {
        self.next_batch(1).await
    }

    /// Waits until a request may be sent, and takes up to `most` that may be sent together. `None`: the phase is over.
    ///
    /// A closed loop gives `most` as long as the total lasts. An open loop gives what is due: more than one only when
    /// the store did not keep up.
    #[inline]
    pub async fn next_batch(&self, most: u32) -> Option<Batch> {
        let shared = &*self.shared;
        if shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        let now = Instant::now();
        match &shared.source {
            Source::Closed { budget, deadline } => {
                if deadline.is_some_and(|deadline| now >= deadline) {
                    return None;
                }
                let count = match budget {
                    Some(budget) => shared.take_budget(budget, u64::from(most)) as u32,
                    None => most,
                };
                (count > 0).then(|| self.depart(count, 0, now))
            }
            Source::Open { turns } => match turns.take(now, most) {
                Turn::Now { ticket, count } => Some(self.depart(count, ticket, now)),
                Turn::At { ticket, due } => {
                    self.wait_until(due).await;
                    let now = Instant::now();
                    let lag = now.saturating_duration_since(due).as_nanos() as u64;
                    shared.record.borrow_mut().lag.saturating_record(lag);
                    Some(self.depart(1, ticket, now))
                }
                Turn::Over => None,
            },
            Source::Client => None,
        }
    }

    /// Prepare and Verify: `count` requests leave now, by the client's own decision. For load phases use
    /// [`Session::next`].
    pub fn begin(&self, count: u32) -> Batch {
        self.depart(count, 0, Instant::now())
    }

    /// Waits until an instant, as finely as the timetable's clients do.
    pub async fn wait_until(&self, due: Instant) {
        match &self.shared.alarm {
            Some(alarm) => alarm.wait_until(due).await,
            None => tokio::time::sleep_until(due.into()).await,
        }
    }

    /// What was to be sent beside the load by a rate of its own: so many requests were due, and so many of them were not sent, because the
    /// store did not keep up.
    pub fn asked_beside(&self, due: u64, unsent: u64) {
        let mut record = self.shared.record.borrow_mut();
        record.due_beside += due;
        record.unsent_beside += unsent;
    }

    /// `count` requests of the batch were answered at `done`: counts them and records their latencies.
    ///
    /// An answer that took longer than `load.timeout` counts as a failure too, where it is watched.
    #[inline]
    pub fn answered(&self, batch: &mut Batch, count: u32, done: Instant) {
        let service = done.saturating_duration_since(batch.sent);
        let mut record = self.shared.record.borrow_mut();
        record.served(service.as_nanos() as u64, u64::from(count));
        if let Source::Open { turns } = &self.shared.source {
            for ticket in 0..u64::from(count) {
                let due = turns.timetable().due(batch.ticket + u64::from(batch.answered) + ticket);
                let intended = done.saturating_duration_since(due).as_nanos() as u64;
                record.intended.saturating_record(intended);
            }
        }
        record.answered_after(done.saturating_duration_since(self.shared.start).as_nanos() as u64);
        drop(record);
        self.shared.check_wait(service);
        self.arrive(batch, count, done);
    }

    /// Gives up whatever this client has sent and not heard of; how many requests.
    pub fn give_up(&self) -> u32 {
        self.shared.in_flight.get(self.place as usize).map_or(0, |(outstanding, _)| outstanding.take())
    }

    /// `count` requests of the batch were answered, but are not what is measured (puts whose watch events are):
    /// nothing is counted or recorded, and the timeout no longer runs.
    pub fn answered_uncounted(&self, batch: &mut Batch, count: u32) {
        self.arrive(batch, count, Instant::now());
    }

    /// Something was delivered that is not the answer to a request of this client, such as a watch event: counts one
    /// operation and records its latencies. `due`: the instant at which its cause was due, see [`Session::due`].
    pub fn delivered(&self, due: Option<Instant>, sent: Instant, done: Instant) {
        let mut record = self.shared.record.borrow_mut();
        record.served(done.saturating_duration_since(sent).as_nanos() as u64, 1);
        if let Some(due) = due {
            let intended = done.saturating_duration_since(due).as_nanos() as u64;
            record.intended.saturating_record(intended);
        }
        record.answered_after(done.saturating_duration_since(self.shared.start).as_nanos() as u64);
    }

    /// Open loop: when the batch's first unanswered request was due.
    pub fn due(&self, batch: &Batch) -> Option<Instant> {
        match &self.shared.source {
            Source::Open { turns } => Some(turns.timetable().due(batch.ticket + u64::from(batch.answered))),
            _ => None,
        }
    }

    /// `count` answers were compared with what had been written and were right. Wrong ones count by themselves.
    #[inline]
    pub fn verified(&self, count: u64) {
        self.shared.record.borrow_mut().verified += count;
    }

    /// An answer was wrong: the key's name, and what was expected and found. The phase goes on.
    #[cold]
    pub fn wrong(&self, key: impl Into<String>, detail: impl Into<String>) {
        let mut record = self.shared.record.borrow_mut();
        record.verified += 1;
        record.wrong(key.into(), detail.into());
    }

    /// Adds to a total that the family measures. Counts in Measure and Verify.
    pub fn count(&self, total: Total, count: u64) {
        self.shared.record.borrow_mut().measures.count(total, count);
    }

    /// Notes a value of which the family measures the largest. Counts in Measure and Verify.
    pub fn largest(&self, largest: Largest, value: u64) {
        self.shared.record.borrow_mut().measures.largest(largest, value);
    }

    /// Notes one of the durations that the family measures. Counts in Measure and Verify.
    pub fn took(&self, durations: Durations, duration: Duration) {
        self.shared.record.borrow_mut().measures.took(durations, duration.as_nanos() as u64);
    }

    /// A request failed: the phase stops on all threads. A client's own method does the same when it returns an error;
    /// this is for tasks beside it.
    pub fn fail(&self, failure: &Failure) {
        self.shared.fail(failure);
    }

    /// Whether the phase was stopped by a failure.
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    #[inline]
    fn depart(&self, count: u32, ticket: u64, now: Instant) -> Batch {
        if let Some((outstanding, since)) = self.shared.in_flight.get(self.place as usize) {
            if outstanding.get() == 0 {
                since.set(now);
            }
            outstanding.set(outstanding.get() + count);
        }
        Batch { count, answered: 0, ticket, sent: now }
    }

    #[inline]
    fn arrive(&self, batch: &mut Batch, count: u32, now: Instant) {
        batch.answered += count;
        if let Some((outstanding, since)) = self.shared.in_flight.get(self.place as usize) {
            outstanding.set(outstanding.get().saturating_sub(count));
            since.set(now);
        }
    }
}

#[cfg(test)]
impl Session {
    /// The only client of a measured phase.
    pub(crate) fn alone(timeout: Option<Duration>, source: Source) -> Self {
        let now = Instant::now();
        let shared = ThreadPhase {
            phase: Phase::Measure,
            start: now,
            timeout,
            source,
            alarm: None,
            in_hand: Cell::new(0),
            stop: Arc::default(),
            stopped: Notify::new(),
            record: RefCell::default(),
            in_flight: vec![(Cell::new(0), Cell::new(now))],
        };
        Self { shared: Rc::new(shared), client: 0, place: 0, connection: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose request left so long ago.
    fn waiting(timeout: Option<Duration>, ago: Duration) -> (Session, Batch) {
        let session = Session::alone(timeout, Source::Client);
        let batch = session.depart(1, 0, Instant::now() - ago);
        (session, batch)
    }

    const TIMEOUT: Duration = Duration::from_millis(500);

    #[test]
    fn an_answer_that_is_late_or_does_not_come_fails_the_phase() {
        let (session, batch) = waiting(Some(TIMEOUT), TIMEOUT * 3);
        session.shared.check_timeouts(batch.sent() + TIMEOUT);
        assert!(!session.is_stopped());
        session.shared.check_timeouts(Instant::now());
        assert!(session.is_stopped());
        let (session, mut batch) = waiting(Some(TIMEOUT), TIMEOUT * 3);
        session.answered(&mut batch, 1, Instant::now());
        assert!(session.is_stopped());
    }

    /// A timer fires a little late, and the watchdog looks in between.
    #[test]
    fn who_gives_up_by_itself_is_failed_by_no_watchdog_and_no_late_answer() {
        let (session, mut batch) = waiting(None, TIMEOUT * 3);
        session.shared.check_timeouts(Instant::now());
        session.answered(&mut batch, 1, Instant::now());
        assert!(!session.is_stopped());
        assert_eq!(session.give_up(), 0);
    }
}
