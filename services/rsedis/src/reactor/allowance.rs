//! What of the loop's time is for work that no client waits for: snapshots, keys that are sent to replicas, keys of a master that are read
//! beside those of before.
//!
//! # What is promised
//!
//! - While clients are served, each of these has a fifth of the time, over any second and however long the turns of the loop are: else turns
//!   that clients make long would keep it from ever ending.
//! - Nobody's turn is longer by more than 50 microseconds, or by more than a third.
//! - Where nobody is served it has all of the time, but for looks whether somebody comes.

use std::time::{Duration, Instant};

use wal::files::Directory;

use super::Reactor;
use super::sockets::{Event, Sockets};

/// What may be spent in any turn of the loop: who comes meanwhile waits for so long.
const SLICE: Duration = Duration::from_micros(50);
/// Less than this is not begun: a few keys.
const SLICE_MIN: Duration = Duration::from_micros(20);
/// Nobody waits for longer than this where a turn was as long as a machine was asleep.
const SLICE_MAX: Duration = Duration::from_secs(1);
/// Of a turn that is long one part of so many may be spent in it. What is saved up is a fourth: who may spend just that loses what it has
/// missed once.
const TURN_PART: u32 = 3;
/// While clients are served there is one part of so many of their time.
const PART: u32 = 4;
/// What there was no use for is kept, up to this.
const SAVED_MAX: Duration = Duration::from_millis(1);
/// Who was not served for so long does not count: all of the time is free.
const QUIET: Duration = Duration::from_millis(10);

/// A turn of the loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it began, where somebody wants to know.
    pub(super) began: Option<Instant>,
    /// Clients are served in it.
    pub(super) serves: bool,
}

/// See the module's description. Who takes as much as clients leave of the time takes their processor, and that of those who ask, and behind a
/// rate that is due they wait ever longer.
#[derive(Debug)]
pub(super) struct Allowance {
    saved: Duration,
    /// The last slice.
    given: Duration,
    looked: Instant,
    served: Option<Instant>,
}

impl Allowance {
    /// Nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { saved: Duration::ZERO, given: Duration::ZERO, looked: now, served: None }
    }

    /// What may be spent in this turn; nothing in many of them.
    pub(super) fn slice(&mut self, now: Instant, turn: Turn) -> Duration {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if turn.serves {
            self.served = Some(now);
        }
        let took = turn.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let most = (took / TURN_PART).clamp(SLICE, SLICE_MAX);
        let earned = passed.saturating_sub(self.given) / PART;
        self.saved = match self.is_quiet(now) {
            true => SAVED_MAX.max(most),
            false => (self.saved + earned).min(SAVED_MAX.max(most)),
        };
        self.given = if self.saved >= SLICE_MIN { self.saved.min(most) } else { Duration::ZERO };
        self.saved -= self.given;
        self.given
    }

    /// Whether the next turn may spend something, if it came at once.
    pub(super) fn has_more(&self) -> bool {
        self.saved >= SLICE_MIN || self.is_quiet(self.looked)
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.served.is_none_or(|served| now.saturating_duration_since(served) > QUIET)
    }
}

impl<S: Sockets, D: Directory> Reactor<S, D> {
    /// A turn begins. The clock is looked at where it matters.
    pub(super) fn begin_turn(&self, events: &[Event]) -> Turn {
        let shares = self.is_walking() || !self.transfers.is_empty() || self.server.serves_old_keys();
        let began = (shares || self.server.metrics.is_some()).then(Instant::now);
        Turn { began, serves: shares && self.serves(events) }
    }

    /// Whether any of them is of a client. A master that sends keys and a replica that takes them wait for just what is to be done.
    fn serves(&self, events: &[Event]) -> bool {
        let is_client = |slot: usize| {
            let session = self.server.sessions.get(slot).and_then(Option::as_deref);
            session.is_some_and(|session| !session.is_master && !session.is_replica())
        };
        let is_of_client = |event: &Event| match *event {
            Event::Accept => true,
            Event::Readable(slot) | Event::Writable(slot) => is_client(slot),
            Event::Stop(_) => false,
        };
        events.iter().any(is_of_client) || self.runnable.iter().any(|slot| is_client(*slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allowance, and the time.
    struct Time {
        now: Instant,
        allowance: Allowance,
        /// When each slice began, and how long it was.
        slices: Vec<(Instant, Duration)>,
    }

    impl Time {
        fn new() -> Self {
            let now = Instant::now();
            Self { now, allowance: Allowance::new(now), slices: Vec::new() }
        }

        /// The part of the time that turns of these lengths spend.
        fn spent(&mut self, turns: impl IntoIterator<Item = Duration>, serves: bool) -> f64 {
            let begun = self.now;
            let mut spent = Duration::ZERO;
            for took in turns {
                let turn = Turn { began: Some(self.now), serves };
                self.now += took;
                let slice = self.allowance.slice(self.now, turn);
                assert!(slice.is_zero() || slice >= SLICE_MIN, "{slice:?}");
                assert!(slice <= SLICE.max(took / TURN_PART), "{slice:?} in a turn of {took:?}");
                self.slices.push((self.now, slice));
                self.now += slice;
                spent += slice;
            }
            spent.as_secs_f64() / (self.now - begun).as_secs_f64()
        }

        /// What was spent in the second that begins then.
        fn second(&self, from: Instant) -> Duration {
            let to = from + Duration::from_secs(1);
            let within = |(began, took): &(Instant, Duration)| {
                (*began + *took).min(to).saturating_duration_since((*began).max(from))
            };
            self.slices.iter().map(within).sum()
        }
    }

    fn turns(micros: u64, count: usize) -> impl Iterator<Item = Duration> + Clone {
        std::iter::repeat_n(Duration::from_micros(micros), count)
    }

    /// A millisecond of each turn, in which 50 clients are served in a third of one, made a rate impossible that was half of what the server
    /// can; and of turns that were long 50 microseconds each were so little that a full resynchronization never ended.
    #[test]
    fn there_is_a_fifth_of_the_time_however_long_turns_are() {
        for micros in [3, 20, 100, 200, 250, 1_000, 5_000, 30_000, 400_000] {
            let mut time = Time::new();
            let part = time.spent(turns(micros, 20_000), true);
            assert!((part - 0.2).abs() < 0.01, "{part} in turns of {micros} us");
        }
    }

    #[test]
    fn there_is_a_fifth_of_any_second() {
        for micros in [20, 250, 5_000, 400_000] {
            let mut time = Time::new();
            let begun = time.now;
            time.spent(turns(micros, (4_000_000 / micros) as usize), true);
            for part in 0..60 {
                let second = time.second(begun + Duration::from_millis(50) * part);
                assert!(second >= Duration::from_millis(198), "{second:?} in turns of {micros} us, part {part}");
            }
        }
    }

    /// Turns of some hundred microseconds are those of a server that answers as fast as it can.
    #[test]
    fn a_short_turn_is_hurt_by_little_and_a_long_one_by_a_third() {
        let mut time = Time::new();
        // What long turns have saved up is not spent in short ones at once.
        time.spent(turns(400_000, 10), true);
        let from = time.slices.len();
        time.spent(turns(100, 100), true);
        assert!(time.slices[from..].iter().all(|(_, slice)| *slice <= SLICE));
        // The machine was asleep.
        let turn = Turn { began: Some(time.now), serves: true };
        assert_eq!(time.allowance.slice(time.now + Duration::from_secs(3600), turn), SLICE_MAX);
    }

    #[test]
    fn long_turns_among_short_ones_take_nothing_from_the_fifth() {
        let mut time = Time::new();
        let mixed = turns(100, 50).chain(turns(20_000, 1)).cycle().take(51 * 200);
        let part = time.spent(mixed, true);
        assert!((part - 0.2).abs() < 0.01, "{part}");
    }

    #[test]
    fn all_of_the_time_is_free_where_nobody_is_served() {
        let mut time = Time::new();
        // Nobody came for 10 ms: all of the time, but what it takes to look whether somebody comes.
        time.spent(turns(20, 1_000), false);
        let part = time.spent(turns(1, 1_000), false);
        assert!(part > 0.95 && time.allowance.has_more(), "{part}");
        // One who comes now and then.
        let turns: Vec<Duration> =
            [1; 20].into_iter().chain([980]).cycle().take(21_000).map(Duration::from_micros).collect();
        let part = time.spent(turns, true);
        assert!((part - 0.2).abs() < 0.02, "{part}");
    }
}
