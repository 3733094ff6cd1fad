//! What has happened lately, for those who watch: bounded, shared by all, and never with a silent gap. Who watches goes through it at
//! its own pace; who is so slow that what it has not seen is gone, is told so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use d_engine_client::{Event, EventKind, WatchOptions};
use tokio::sync::watch;

use crate::state::{Change, ChangeKind};

/// Changes that are kept.
const CHANGES_MAX: usize = 100_000;
/// Their keys and values, and what was there before, bytes.
const BYTES_MAX: usize = 32 << 20;
/// Batches that are looked at in one step.
const STEP_BATCHES: usize = 64;

/// What was applied together.
struct Batch {
    changes: Vec<Change>,
    applied: u64,
    bytes: usize,
}

struct Kept {
    batches: VecDeque<Arc<Batch>>,
    changes: usize,
    bytes: usize,
    /// Number of the first batch that is kept, or of the next.
    first: u64,
    /// All changes from this revision on are kept.
    oldest: u64,
    applied: u64,
    /// What is applied next has come by a snapshot.
    is_new: bool,
}

/// The changes that are kept.
pub struct History {
    kept: Mutex<Kept>,
    published: watch::Sender<u64>,
}

/// Where somebody who watches has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    batch: u64,
    from_revision: u64,
}

/// The changes from there on are not kept any more, but those from this revision on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld(pub u64);

/// A step through the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What has happened, in order.
    pub events: Vec<Event>,
    /// Everything up to this index has been told.
    pub index: u64,
    /// There is more at once.
    pub has_more: bool,
}

impl History {
    /// Of a state that has everything before this revision.
    pub fn new(oldest: u64) -> Self {
        let kept = Kept {
            batches: VecDeque::new(),
            changes: 0,
            bytes: 0,
            first: 0,
            oldest,
            applied: oldest.saturating_sub(1),
            is_new: false,
        };
        Self { kept: Mutex::new(kept), published: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state has come by a snapshot: what led to it is not known.
    pub fn begin_anew(&self) {
        let mut kept = self.lock();
        kept.first += kept.batches.len() as u64 + 1;
        kept.batches.clear();
        (kept.changes, kept.bytes, kept.is_new) = (0, 0, true);
    }

    /// Adds what was applied up to an index.
    pub fn publish(&self, changes: Vec<Change>, applied: u64) {
        let mut kept = self.lock();
        kept.applied = applied;
        if std::mem::take(&mut kept.is_new) {
            kept.oldest = applied + 1;
            drop(kept);
            self.published.send_replace(applied);
            return;
        }
        if changes.is_empty() {
            return;
        }
        let bytes = changes.iter().map(bytes_of).sum();
        kept.changes += changes.len();
        kept.bytes += bytes;
        kept.batches.push_back(Arc::new(Batch { changes, applied, bytes }));
        while kept.changes > CHANGES_MAX || kept.bytes > BYTES_MAX {
            let Some(gone) = kept.batches.pop_front() else { break };
            kept.first += 1;
            kept.oldest = gone.applied + 1;
            kept.changes -= gone.changes.len();
            kept.bytes -= gone.bytes;
        }
        drop(kept);
        self.published.send_replace(applied);
    }

    /// Wakes whenever something was published.
    pub fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// How many watch.
    pub fn watchers(&self) -> usize {
        self.published.receiver_count()
    }

    /// Where to begin: at this revision, or with what comes next if it is 0.
    pub fn begin(&self, from_revision: u64) -> Result<Place, TooOld> {
        let kept = self.lock();
        let next = kept.first + kept.batches.len() as u64;
        if from_revision == 0 || from_revision > kept.applied {
            return Ok(Place { batch: next, from_revision });
        }
        if from_revision < kept.oldest {
            return Err(TooOld(kept.oldest));
        }
        let before = kept.batches.partition_point(|batch| batch.applied < from_revision);
        Ok(Place { batch: kept.first + before as u64, from_revision })
    }

    /// Goes on.
    pub fn step(&self, place: &mut Place, options: &WatchOptions) -> Result<Step, TooOld> {
        let (batches, has_more, applied) = {
            let kept = self.lock();
            if place.batch < kept.first {
                return Err(TooOld(kept.oldest));
            }
            let from = (place.batch - kept.first) as usize;
            let batches: Vec<_> = kept.batches.iter().skip(from).take(STEP_BATCHES).cloned().collect();
            let has_more = from + batches.len() < kept.batches.len();
            (batches, has_more, kept.applied)
        };
        place.batch += batches.len() as u64;
        let index = if has_more { batches.last().map_or(applied, |batch| batch.applied) } else { applied };
        let changes = batches.iter().flat_map(|batch| &batch.changes);
        let wanted = changes.filter(|change| change.revision >= place.from_revision && options.covers(&change.key));
        let events = wanted.map(|change| event(change, options.with_previous)).collect();
        Ok(Step { events, index, has_more })
    }
}

fn bytes_of(Change { key, value, previous, .. }: &Change) -> usize {
    key.len() + value.len() + previous.as_ref().map_or(0, |previous| previous.len())
}

fn event(Change { kind, key, value, revision, previous }: &Change, with_previous: bool) -> Event {
    let kind = match kind {
        ChangeKind::Put => EventKind::Put,
        ChangeKind::Delete => EventKind::Delete,
        ChangeKind::Expire => EventKind::Expire,
    };
    let previous = previous.clone().filter(|_| with_previous);
    Event { kind, key: key.clone(), value: value.clone(), revision: *revision, previous }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(key: &'static str, revision: u64) -> Change {
        Change { kind: ChangeKind::Put, key: key.into(), value: "v".into(), revision, previous: None }
    }

    fn all() -> WatchOptions {
        WatchOptions { end: Some("~".into()), ..WatchOptions::default() }
    }

    fn revisions(history: &History, place: &mut Place) -> Vec<u64> {
        let mut revisions = Vec::new();
        loop {
            let step = history.step(place, &all()).unwrap();
            revisions.extend(step.events.iter().map(|event| event.revision));
            if !step.has_more {
                return revisions;
            }
        }
    }

    proptest! {
        #[test]
        fn who_watches_sees_everything_once_and_in_order(
            batches in proptest::collection::vec(0_u64..4, 0..200), begun_at in any::<prop::sample::Index>(), from in 0_u64..300,
        ) {
            let history = History::new(1);
            let begun_at = begun_at.index(batches.len() + 1);
            let (mut revision, mut begun, mut seen, mut first) = (0, None, Vec::new(), 0);
            for (at, size) in batches.iter().enumerate() {
                if at == begun_at {
                    begun = Some(history.begin(from).unwrap());
                    first = if from == 0 { revision + 1 } else { from };
                }
                let changes = (1..=*size).map(|more| change("k", revision + more)).collect();
                revision += size.max(&1);
                history.publish(changes, revision);
                if let Some(place) = begun.as_mut().filter(|_| at % 3 == 0) {
                    seen.extend(revisions(&history, place));
                }
            }
            if let Some(mut place) = begun {
                seen.extend(revisions(&history, &mut place));
                let mut revision = 0;
                let all = batches.iter().flat_map(|size| {
                    let here = revision + 1..=revision + size;
                    revision += size.max(&1);
                    here
                });
                let expected: Vec<u64> = all.filter(|revision| *revision >= first).collect();
                prop_assert_eq!(seen, expected);
            }
        }
    }

    #[test]
    fn who_is_too_slow_is_told_and_can_go_on_from_what_is_kept() {
        let history = History::new(1);
        let mut slow = history.begin(0).unwrap();
        for revision in 1..=CHANGES_MAX as u64 + 10 {
            history.publish(vec![change("k", revision)], revision);
        }
        let Err(TooOld(oldest)) = history.step(&mut slow, &all()) else { panic!("nothing is gone") };
        assert_eq!(oldest, 11);
        assert_eq!(history.begin(10), Err(TooOld(11)));
        assert_eq!(revisions(&history, &mut history.begin(11).unwrap())[0], 11);
    }

    #[test]
    fn what_was_there_before_counts_as_well() {
        let history = History::new(1);
        let previous = Some(bytes::Bytes::from(vec![0; 1 << 20]));
        for revision in 1..=33 {
            history.publish(vec![Change { previous: previous.clone(), ..change("k", revision) }], revision);
        }
        assert_eq!(history.begin(2), Err(TooOld(3)), "32 of them are more than 32 MiB, with their keys");
        assert!(history.begin(3).is_ok());
    }

    #[test]
    fn a_snapshot_ends_what_was_watched_before() {
        let history = History::new(1);
        history.publish(vec![change("k", 1)], 1);
        let mut before = history.begin(1).unwrap();
        let mut waits = history.begin(0).unwrap();
        history.begin_anew();
        history.publish(Vec::new(), 50);
        assert_eq!(history.step(&mut before, &all()), Err(TooOld(51)));
        assert_eq!(history.step(&mut waits, &all()), Err(TooOld(51)));
        history.publish(vec![change("k", 51)], 51);
        assert_eq!(revisions(&history, &mut history.begin(51).unwrap()), [51]);
    }
}
