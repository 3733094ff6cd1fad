//! When the application comes first: what is held is let go of, for a check point that waits or for a WAL that grows.
//!
//! Frames that are let go of unstaged may be copied into the database and written over; what is lost sight of so is found by comparing, once
//! the store has what was staged before. Until then nothing is held again: it would be of no use, and in the way.

use super::Shared;
use super::phase::Phase;
use super::tracked::{MAX_QUEUE, State, Tracked};
use super::work::{Failure, until_room};
use crate::pin::{Hold, Pin};
use crate::source::{GaveWay, Source};
use crate::wal_index::WalIndex;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often in a row reading a whole database is given up for a check point that waits: somebody who makes them faster than it is read
/// would otherwise never have a replica, and one of them fails instead.
const GAVE_WAY_MAX: u32 = 3;
/// Looks in a row at which it must be there: one that waits for nobody is over by then.
const WAITS_LOOKS: u32 = 3;
/// For how long nothing is held afterwards. SQLite looks every 100 ms whether it can go on.
const WAY: Duration = Duration::from_millis(300);

/// Why frames are let go of unstaged.
const WAL_IS_FULL: &str = "its WAL has grown beyond wal-bytes-max, and the store takes nothing";
const QUEUE_IS_FULL: &str = "a check point waits, and as much as may be is staged already";

/// Frames are let go of that are not staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// Since when.
    pub since: Duration,
    /// For whom.
    pub why: &'static str,
}

/// By how many bytes a WAL has grown since it had so many frames.
fn grown_bytes(index: &WalIndex, since: u32) -> u64 {
    // With fewer than then it is another WAL.
    index.bytes_of(index.frames.checked_sub(since).unwrap_or(index.frames))
}

impl State {
    /// Keeps frames where they are. False where somebody is in the way for the moment.
    pub(super) fn keep_frames(&mut self, index: Option<&WalIndex>) -> std::io::Result<bool> {
        let Some(pin) = &mut self.pin else { return Ok(false) };
        if pin.held() < Hold::Frames {
            self.held_from = index.map_or(0, |index| index.frames);
        }
        // What is in the database file need not stay.
        pin.hold(Hold::Frames, index)
    }

    /// Whether the WAL has grown too much while it was held.
    pub(super) fn is_overgrown(&self, index: Option<&WalIndex>, wal_bytes_max: u64) -> bool {
        self.held() >= Hold::Frames && index.is_some_and(|index| grown_bytes(index, self.held_from) > wal_bytes_max)
    }

    /// Whether frames that come now are of use.
    pub(super) fn may_keep_frames(&self, now: Duration) -> bool {
        // Where the whole database is to be read first, nothing need stay: who waits for its turn with that must be in nobody's way.
        !self.comparing && self.position.is_some() && self.let_go.is_none() && now >= self.gives_way_until
    }

    /// Whether something may be staged. What is lost sight of is compared with the replica, which must have all that was staged before.
    pub(super) fn may_stage(&self, is_uploading: bool, now: Duration) -> bool {
        now >= self.gives_way_until && (self.let_go.is_none() || self.queue.is_empty() && !is_uploading)
    }
}

/// What gives way while a whole database is read, and to whom.
pub(super) struct Courtesy {
    wal_bytes_max: u64,
    held_from: u32,
    is_patient: bool,
    /// Looks in a row that saw a check point.
    seen: Cell<u32>,
}

impl Courtesy {
    pub(super) fn of(state: &State, wal_bytes_max: u64) -> Courtesy {
        let is_patient = state.gave_way < GAVE_WAY_MAX;
        Courtesy { wal_bytes_max, held_from: state.held_from, is_patient, seen: Cell::new(0) }
    }

    pub(super) fn gives_way(&self, source: &dyn Source, pin: &dyn Pin) -> std::io::Result<Option<GaveWay>> {
        self.seen.set(if self.is_patient && pin.checkpointer_waits()? { self.seen.get() + 1 } else { 0 });
        if self.seen.get() >= WAITS_LOOKS {
            return Ok(Some(GaveWay::CheckPoint));
        }
        let index = source.wal_index()?;
        let is_overgrown = index.is_some_and(|index| grown_bytes(&index, self.held_from) > self.wal_bytes_max);
        Ok(is_overgrown.then_some(GaveWay::WalGrows))
    }
}

impl Shared {
    /// Reading the whole database was given up: lets pass whoever waits, once what it would write over is staged.
    pub(super) fn give_way(&self, tracked: &Tracked, state: &mut State, why: GaveWay) -> Failure {
        let times = match why {
            GaveWay::CheckPoint => &mut state.gave_way,
            GaveWay::WalGrows => &mut state.outgrown,
            // Nobody is let pass: there is nothing to hold any more, or nobody who would.
            GaveWay::Stops | GaveWay::Gone => return Failure::GaveWay(why.why()),
        };
        *times = times.saturating_add(1);
        if let Err(failure) = self.changes(tracked, state) {
            return failure;
        }
        let now = self.clock.monotonic();
        if let Some(pin) = &mut state.pin
            && let Err(error) = pin.hold(Hold::Presence, None)
        {
            return error.into();
        }
        self.totals.yields.fetch_add(1, Ordering::Relaxed);
        // Where changes go on being sent nothing else waits for the next try.
        let wait = if state.position.is_none() && state.outgrown > 0 { until_room(state.outgrown) } else { WAY };
        (state.last_wait, state.gives_way_until) = (now, now + wait);
        Failure::GaveWay(why.why())
    }

    /// Lets go of frames that are not staged, where they could be held only at the cost of the application; whether it did. `waits`: a check
    /// point does.
    pub(super) fn let_go_unstaged(
        &self,
        tracked: &Tracked,
        state: &mut State,
        index: Option<&WalIndex>,
        waits: bool,
        now: Duration,
    ) -> std::io::Result<bool> {
        let is_full = state.queue.len() >= MAX_QUEUE;
        let store_fails = matches!(state.phase, Phase::Failing(_));
        let is_overgrown = state.is_overgrown(index, self.settings.wal_bytes_max);
        let why = match () {
            () if is_overgrown && (is_full || store_fails) => WAL_IS_FULL,
            () if waits && is_full => QUEUE_IS_FULL,
            () => return Ok(false),
        };
        if let Some(pin) = &mut state.pin {
            pin.hold(Hold::Presence, None)?;
        }
        self.totals.let_go.fetch_add(1, Ordering::Relaxed);
        if state.let_go.is_none() {
            tracing::warn!(path = %tracked.path.display(), why, "frames are let go of that the store has not; they are found by comparing");
            state.let_go = Some(LetGo { since: now, why });
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::position::Position;
    use crate::replicator::{Replicator, Settings};
    use std::sync::Arc;

    #[test]
    fn a_wal_has_grown_by_what_came_while_it_was_held_and_one_that_was_restarted_by_all_it_has() {
        let index = |frames| WalIndex {
            changes: 0,
            life: 0,
            page_size: 4096,
            frames,
            pages: 0,
            checksum: [0; 2],
            salts: [0; 2],
            backfilled: 0,
            backfill_attempted: 0,
            read_marks: [0; 5],
        };
        let grown = |frames, since| grown_bytes(&index(frames), since);
        assert_eq!((grown(1_000_000, 1_000_000), grown(12, 10), grown(3, 10)), (0, 2 * 4120, 3 * 4120));
    }

    #[test]
    fn what_is_lost_sight_of_is_staged_when_the_store_has_all_that_came_before() {
        let mut state = State { last_txid: Some(3), position: Some(Position::default()), ..State::default() };
        let now = Duration::from_secs(9);
        assert!(state.may_stage(true, now) && state.may_keep_frames(now));
        state.let_go = Some(LetGo { since: now, why: WAL_IS_FULL });
        assert_eq!((state.may_stage(true, now), state.may_stage(false, now)), (false, true));
        assert!(!state.may_keep_frames(now));
        state.let_go = None;
        state.gives_way_until = now + WAY;
        assert!(!state.may_stage(false, now) && !state.may_keep_frames(now));
    }

    #[test]
    fn reading_that_ends_for_neither_a_check_point_nor_a_wal_counts_as_neither() {
        let replicator = Replicator::start(Settings::default(), Arc::new(SystemClock::default())).unwrap();
        let tracked = Tracked::refused("/a.db".into(), String::new(), Duration::ZERO);
        let mut state = State::default();
        let mut give_way = |why| {
            replicator.shared.give_way(&tracked, &mut state, why);
            (state.gave_way, state.outgrown, replicator.totals().yields.load(Ordering::Relaxed))
        };
        assert_eq!([GaveWay::Stops, GaveWay::Gone].map(&mut give_way), [(0, 0, 0); 2]);
        assert_eq!(give_way(GaveWay::CheckPoint), (1, 0, 1));
        assert_eq!(give_way(GaveWay::WalGrows), (1, 1, 2));
    }
}
