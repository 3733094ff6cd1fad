//! What others see of a database while somebody works on it: reading a whole database, or a store that is silent, may take minutes.

use super::phase::{Phase, SnapshotLate, Status, Waits};
use super::risk::Waiting;
use super::tracked::{State, Tracked};
use super::yielding::LetGo;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A copy of what is asked for, as it was when the state was let go of last. Its lock is never held for longer than copying takes.
#[derive(Default)]
pub struct Shown {
    phase: Phase,
    stalled: Option<String>,
    staged_txid: u64,
    durable_txid: u64,
    durable_millis: i64,
    waiting: Waiting,
    /// Since when the first file that waits for its upload has.
    queued: Option<Duration>,
    queue_is_empty: bool,
    snapshot_late: Option<(Duration, String)>,
    let_go: Option<LetGo>,
    fails_for_good: bool,
    staged_request: u64,
}

impl Shown {
    pub fn of(state: &State) -> Shown {
        let mut shown = Shown::default();
        shown.update(state);
        shown
    }

    fn update(&mut self, state: &State) {
        if self.phase != state.phase {
            self.phase = state.phase.clone();
        }
        self.stalled = state.stall.as_ref().map(|stall| stall.why.clone());
        self.staged_txid = state.last_txid.unwrap_or(0);
        self.durable_txid = state.durable_txid;
        self.durable_millis = state.durable_millis;
        self.waiting = state.waiting;
        // Within a queue the first has waited longest; a snapshot among them has nothing that waits.
        self.queued = state.queue.iter().find_map(|outgoing| outgoing.since);
        self.queue_is_empty = state.queue.is_empty() && !state.has_snapshot_under_way();
        if self.snapshot_late != state.snapshot_late {
            self.snapshot_late = state.snapshot_late.clone();
        }
        self.let_go.clone_from(&state.let_go);
        self.fails_for_good = state.fails_for_good;
        self.staged_request = state.staged_request;
    }
}

/// The state of a database, which is shown when this is let go of.
pub struct Locked<'a> {
    state: MutexGuard<'a, State>,
    tracked: &'a Tracked,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        super::lock(&self.tracked.shown).update(&self.state);
    }
}

impl Tracked {
    /// The state, for whoever works on it; may take long.
    pub fn lock(&self) -> Locked<'_> {
        Locked { state: super::lock(&self.state), tracked: self }
    }

    /// The same; `None`: somebody is at work.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().ok().map(|state| Locked { state, tracked: self })
    }

    /// The state, for who works for all databases, one after another; `None`: somebody is at work for longer than a moment. The next look
    /// finds what is left to do.
    pub fn lock_soon(&self) -> Option<Locked<'_>> {
        let moment = || std::thread::sleep(std::time::Duration::from_micros(50));
        (0..100).find_map(|_| {
            self.try_lock().or_else(|| {
                moment();
                None
            })
        })
    }

    pub fn status(&self, now: Duration) -> Status {
        let shown = super::lock(&self.shown);
        let since = shown.waiting.oldest(shown.queued);
        let late =
            |(since, why): &(Duration, String)| SnapshotLate { by: now.saturating_sub(*since), why: why.clone() };
        Status {
            path: self.path.clone(),
            phase: match (&shown.phase, &shown.stalled) {
                (Phase::Fenced(_), _) | (_, None) => shown.phase.clone(),
                (_, Some(why)) => Phase::Stalled(why.clone()),
            },
            staged_txid: shown.staged_txid,
            durable_txid: shown.durable_txid,
            durable_millis: shown.durable_millis,
            at_risk: since.map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            snapshot_late: shown.snapshot_late.as_ref().map(late),
            let_go: shown.let_go.as_ref().map(|let_go| (now.saturating_sub(let_go.since), let_go.why)),
            fails_for_good: shown.fails_for_good,
            asked: self.asked().map(|since| now.saturating_sub(since)),
        }
    }

    /// Whether somebody else writes its replica, as far as that was known when the state was let go of last.
    pub fn is_shown_fenced(&self) -> bool {
        matches!(super::lock(&self.shown).phase, Phase::Fenced(_))
    }

    pub fn is_synced(&self, request: u64) -> bool {
        let shown = super::lock(&self.shown);
        let gone = matches!(shown.phase, Phase::Waiting(_) | Phase::Refused(_) | Phase::Fenced(_));
        let sent = shown.queue_is_empty && !self.uploading.load(Ordering::Acquire);
        shown.staged_request >= request && (gone || sent)
    }

    /// Whether its file is gone, and nothing of it waits to be sent; or nobody looks at it anyway.
    pub fn is_gone(&self) -> bool {
        if self.is_refused {
            return true;
        }
        let shown = super::lock(&self.shown);
        let is_sent = shown.queue_is_empty && !self.uploading.load(Ordering::Acquire);
        shown.phase == Phase::Waiting(Waits::NoFile) && is_sent
    }

    /// Whether nothing of it is known that is not in the store. One that waits for its first file, or for anything in it, has nothing.
    pub fn is_durable(&self) -> bool {
        let shown = super::lock(&self.shown);
        let has_nothing = matches!(shown.phase, Phase::Waiting(Waits::NotLookedAt | Waits::NoFile | Waits::Empty));
        (shown.phase == Phase::Running || has_nothing) && shown.queue_is_empty && shown.stalled.is_none()
    }
}
