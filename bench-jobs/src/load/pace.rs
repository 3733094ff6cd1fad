//! The timetable of an open loop: which request is due when, and who may send it. Pure: the caller brings the clock.
//!
//! Request *n* of all is due at start + *n* / rate, whether or not the store keeps up. Threads take turns: thread *t* of
//! *m* sends requests *t*, *t* + *m*, *t* + 2*m*, …, so that each has its own even timetable. Where requests come by chance
//! instead ([`super::arrivals`]), each thread has its own share of them. A client that is free takes the next *ticket* of its thread:
//!
//! - a ticket that is due is sent at once, together with further due ones if the client pipelines. That it is late is
//!   the store's doing, for all clients were busy until now: the wait counts into the intended latency, not as lag;
//! - a ticket that is not due yet is held until it is. What it is late then is the loader's own doing: lag;
//! - nothing is dropped: a backlog is sent as soon as clients are free again.
//!
//! When the timetable is over and requests are left, they are still sent if they are few (at most 2 % of all), since
//! leaving them out would leave out the longest waits. If they are more, the rate was not reached and the phase ends.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::load::arrivals::Poisson;

/// Left-over requests are still sent if they are at most one of this many.
const BACKLOG_DIVISOR: u64 = 50;

/// Whether so many of all requests that were due are too many to have been left over.
pub(crate) fn is_backlog(left: u64, due: u64) -> bool {
    left.saturating_mul(BACKLOG_DIVISOR) > due
}

/// When one thread's requests are due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    start: Instant,
    rate: u64,
    thread: u64,
    threads: u64,
    tickets: u64,
    /// Absent: evenly.
    by_chance: Option<Poisson>,
}

impl Timetable {
    /// `requests` in all at `rate` per second from `start`; of them the share of `thread` of `threads`.
    pub fn new(start: Instant, rate: u64, requests: u64, thread: u32, threads: u32) -> Self {
        let (thread, threads) = (u64::from(thread), u64::from(threads.max(1)));
        let tickets = requests.saturating_sub(thread).div_ceil(threads);
        Self { start, rate: rate.max(1), thread, threads, tickets, by_chance: None }
    }

    /// The same, by chance, which the seed decides; threads must have different ones. Takes about 10 ns for each request: `start` is chosen
    /// afterwards, by [`Self::starting`].
    pub fn by_chance(rate: u64, requests: u64, thread: u32, threads: u32, seed: u64) -> Self {
        let even = Self::new(Instant::now(), rate, requests, thread, threads);
        let by_chance = Poisson::new(seed, even.rate, even.threads, even.tickets);
        Self { by_chance: Some(by_chance), ..even }
    }

    /// The same from another instant.
    pub fn starting(self, start: Instant) -> Self {
        Self { start, ..self }
    }

    /// How many requests at `rate` per second are due in `length`.
    pub fn requests_in(rate: u64, length: Duration) -> u64 {
        (u128::from(rate) * length.as_nanos()).div_ceil(1_000_000_000) as u64
    }

    /// How many requests this thread has to send.
    pub fn tickets(&self) -> u64 {
        self.tickets
    }

    /// When this thread's `ticket`-th request (0 is the first) is due.
    #[inline]
    pub fn due(&self, ticket: u64) -> Instant {
        if let Some(by_chance) = &self.by_chance {
            return self.start + Duration::from_nanos(by_chance.due(ticket));
        }
        let number = u128::from(ticket * self.threads + self.thread);
        self.start + Duration::from_nanos((number * 1_000_000_000 / u128::from(self.rate)) as u64)
    }

    /// How many of this thread's requests are due at `now`.
    #[inline]
    pub fn due_by(&self, now: Instant) -> u64 {
        let Some(elapsed) = now.checked_duration_since(self.start) else {
            return 0;
        };
        if let Some(by_chance) = &self.by_chance {
            return by_chance.due_by(elapsed.as_nanos() as u64).min(self.tickets);
        }
        // Due: number * 1e9 / rate rounded down is at most the elapsed nanoseconds.
        let numbers = ((elapsed.as_nanos() + 1) * u128::from(self.rate)).div_ceil(1_000_000_000) as u64;
        numbers.saturating_sub(self.thread).div_ceil(self.threads).min(self.tickets)
    }
}

/// What a free client is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send these requests now: they are due.
    Now {
        /// The first ticket.
        ticket: u64,
        /// How many, from that one on.
        count: u32,
    },
    /// Hold this ticket and send it when it is due.
    At {
        /// The ticket.
        ticket: u64,
        /// When it is due.
        due: Instant,
    },
    /// Nothing is left to send.
    Over,
}

/// One thread's tickets: hands each out once.
#[derive(Debug)]
pub struct Turns {
    timetable: Timetable,
    next: Cell<u64>,
    given_up: Cell<Option<bool>>,
}

impl Turns {
    /// All of a timetable's tickets.
    pub fn new(timetable: Timetable) -> Self {
        Self { timetable, next: Cell::new(0), given_up: Cell::new(None) }
    }

    /// The timetable.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Requests that were never handed out.
    pub fn left(&self) -> u64 {
        self.timetable.tickets - self.next.get()
    }

    /// The turn of a client that is free at `now` and can send `most` requests together.
    #[inline]
    pub fn take(&self, now: Instant, most: u32) -> Turn {
        let (next, tickets) = (self.next.get(), self.timetable.tickets);
        if next >= tickets {
            return Turn::Over;
        }
        let due = self.timetable.due_by(now);
        if due <= next {
            self.next.set(next + 1);
            return Turn::At { ticket: next, due: self.timetable.due(next) };
        }
        if due == tickets && self.gives_up(now, tickets - next) {
            return Turn::Over;
        }
        let count = (due - next).min(u64::from(most.max(1)));
        self.next.set(next + count);
        Turn::Now { ticket: next, count: count as u32 }
    }

    /// Whether the backlog was too long to be worth sending when the timetable was over. Decided once.
    fn gives_up(&self, now: Instant, backlog: u64) -> bool {
        if let Some(decided) = self.given_up.get() {
            return decided;
        }
        if now < self.timetable.due(self.timetable.tickets) {
            return false;
        }
        let decided = is_backlog(backlog, self.timetable.tickets);
        self.given_up.set(Some(decided));
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    proptest! {
        #[test]
        fn a_request_is_due_exactly_when_the_count_says_so(
            rate in 1u64..10_000_000, thread in 0u32..4, extra in 0u32..4, ticket in 0u64..1_000_000,
        ) {
            let start = Instant::now();
            let timetable = Timetable::new(start, rate, u64::MAX / 2, thread, thread + 1 + extra);
            let due = timetable.due(ticket);
            prop_assert!(timetable.due_by(due) > ticket);
            if due > start {
                prop_assert!(timetable.due_by(due - Duration::from_nanos(1)) <= ticket);
            }
        }

        #[test]
        fn threads_share_all_requests(requests in 0u64..10_000, threads in 1u32..9) {
            let start = Instant::now();
            let tickets = |thread| Timetable::new(start, 100, requests, thread, threads).tickets();
            prop_assert_eq!((0..threads).map(tickets).sum::<u64>(), requests);
        }
    }

    #[test]
    fn a_timetable_by_chance_is_kept_and_ends_as_an_even_one() {
        let start = Instant::now();
        let turns = Turns::new(Timetable::by_chance(1_000, 500, 0, 1, 7).starting(start));
        let mut now = start;
        for expected in 0..500 {
            let Turn::At { ticket, due } = turns.take(now, 1) else { panic!("not held") };
            assert_eq!(ticket, expected);
            assert!(due >= now);
            now = due;
        }
        assert_eq!(turns.take(now, 1), Turn::Over);
        let length = (now - start).as_secs_f64();
        assert!((0.4..0.6).contains(&length), "500 requests at 1,000/s took {length} s");
        let stalled = Turns::new(Timetable::by_chance(1_000, 500, 0, 1, 7).starting(start));
        stalled.take(start + Duration::from_secs(9), 1);
        assert_eq!(stalled.take(start + Duration::from_secs(9), 1), Turn::Over, "a long backlog is given up");
    }

    #[test]
    fn requests_are_evenly_spaced_over_all_threads() {
        let start = Instant::now();
        let of = |thread| Timetable::new(start, 1_000, 6, thread, 2);
        let due: Vec<Duration> =
            (0..3).flat_map(|ticket| [of(0).due(ticket) - start, of(1).due(ticket) - start]).collect();
        assert_eq!(due, (0..6).map(|number| number * MILLISECOND).collect::<Vec<_>>());
        assert_eq!(Timetable::requests_in(1_000, Duration::from_secs(2)), 2_000);
    }

    #[test]
    fn a_free_client_holds_the_next_ticket() {
        let start = Instant::now();
        let turns = Turns::new(Timetable::new(start, 1_000, 10, 0, 1));
        assert_eq!(turns.take(start, 1), Turn::Now { ticket: 0, count: 1 });
        let due = start + MILLISECOND;
        assert_eq!(turns.take(start, 1), Turn::At { ticket: 1, due });
        let due = start + 2 * MILLISECOND;
        assert_eq!(turns.take(start, 1), Turn::At { ticket: 2, due });
    }

    #[test]
    fn a_stall_is_caught_up_without_dropping_a_request() {
        let start = Instant::now();
        let turns = Turns::new(Timetable::new(start, 1_000, 2_000, 0, 1));
        let after_stall = start + Duration::from_secs(1);
        let mut sent = 0;
        while let Turn::Now { ticket, count } = turns.take(after_stall, 16) {
            assert_eq!(ticket, sent);
            sent += u64::from(count);
        }
        assert_eq!(sent, 1_001);
        assert_eq!(turns.left(), 2_000 - 1_002, "the last take holds a ticket of the future");
    }

    #[test]
    fn a_short_backlog_at_the_end_is_sent_and_a_long_one_is_not() {
        let start = Instant::now();
        let end = start + Duration::from_secs(1);
        for (left, sends) in [(20u32, true), (21, false)] {
            let turns = Turns::new(Timetable::new(start, 1_000, 1_000, 0, 1));
            turns.take(end - MILLISECOND, 1_000 - left);
            assert_eq!(turns.left(), u64::from(left));
            let turn = turns.take(end, 1);
            assert_eq!(matches!(turn, Turn::Now { .. }), sends, "{left} left");
            if !sends {
                assert_eq!(turns.take(end, 1), Turn::Over);
                assert_eq!(turns.left(), u64::from(left));
            }
        }
    }

    #[test]
    fn a_stall_longer_than_the_timetable_gives_up() {
        let start = Instant::now();
        let turns = Turns::new(Timetable::new(start, 1_000, 1_000, 0, 1));
        turns.take(start, 1);
        assert_eq!(turns.take(start + Duration::from_secs(5), 1), Turn::Over);
        assert_eq!(turns.left(), 999);
    }

    #[test]
    fn the_last_requests_are_sent_in_time_without_a_decision() {
        let start = Instant::now();
        let turns = Turns::new(Timetable::new(start, 1_000, 3, 0, 1));
        for ticket in 0..3 {
            assert_eq!(turns.take(turns.timetable().due(ticket), 1), Turn::Now { ticket, count: 1 });
        }
        assert_eq!(turns.take(start + Duration::from_secs(1), 1), Turn::Over);
        assert_eq!(turns.left(), 0);
    }
}
