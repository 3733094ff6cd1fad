//! What has happened lately, for those who watch: bounded, shared by all, and never with a silent gap. Who watches is woken by what concerns it
//! ([`watchers`]), and takes it at its own pace; who is so slow that what it has not seen is gone, is told so.

mod watchers;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use d_engine_client::{Event, EventKind, WatchOptions};
use tokio::sync::Notify;

use crate::state::{CHANGES_BYTES_MAX, Change, ChangeKind};
use watchers::{Next, Watchers};

/// Changes that are kept.
const CHANGES_MAX: usize = 100_000;
/// Batches that are looked at in one step.
const STEP_BATCHES: u64 = 64;
/// A step ends behind the revision with which its events have so many bytes.
const STEP_BYTES: usize = if cfg!(test) { 100 } else { 256 << 10 };
/// A step ends within a revision where it would be longer than this, unless one event is: ordinary clients take no message of more than 4 MiB.
const STEP_BYTES_MAX: usize = if cfg!(test) { 3000 } else { 3 << 20 };
/// What an event takes besides its key and values, about.
const EVENT_BYTES: usize = 64;

/// What was applied together.
#[derive(Debug)]
struct Batch {
    changes: Vec<Change>,
    applied: u64,
    bytes: usize,
}

#[derive(Debug)]
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
    watchers: Watchers,
}

impl Kept {
    /// Number of the next batch.
    fn next(&self) -> u64 {
        self.first + self.batches.len() as u64
    }
}

/// The changes that are kept.
#[derive(Debug)]
pub struct History {
    kept: Mutex<Kept>,
}

/// The changes from there on are not kept any more, but those from this revision on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld(pub u64);

/// A step through the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What has happened, in order.
    pub events: Vec<Event>,
    /// Everything up to this index has been told. Events of the revision behind it may be among these: the others come next.
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
            watchers: Watchers::default(),
        };
        Self { kept: Mutex::new(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state has come by a snapshot: what led to it is not known. Until it is visible, so is what was there before, and watches of that
    /// go on.
    pub fn begin_anew(&self) {
        self.lock().is_new = true;
    }

    /// Adds what was applied up to an index. `bytes` is what keys and values have, and what was there before: beyond [`CHANGES_BYTES_MAX`]
    /// they are not kept, and values may be missing.
    pub fn publish(&self, changes: Vec<Change>, bytes: usize, applied: u64) {
        let mut kept = self.lock();
        kept.applied = applied;
        if std::mem::take(&mut kept.is_new) {
            kept.first = kept.next() + 1;
            kept.batches.clear();
            (kept.changes, kept.bytes, kept.oldest) = (0, 0, applied + 1);
            return kept.watchers.cut();
        }
        if changes.is_empty() {
            return;
        }
        let next = kept.next();
        kept.watchers.tell(next, &changes);
        kept.changes += changes.len();
        kept.bytes += bytes;
        kept.batches.push_back(Arc::new(Batch { changes, applied, bytes }));
        while kept.changes > CHANGES_MAX || kept.bytes > CHANGES_BYTES_MAX {
            let Some(gone) = kept.batches.pop_front() else { break };
            kept.first += 1;
            kept.oldest = gone.applied + 1;
            kept.changes -= gone.changes.len();
            kept.bytes -= gone.bytes;
        }
    }

    /// How many watch.
    pub fn watchers(&self) -> usize {
        self.lock().watchers.count()
    }

    /// Watches from `from_revision` on, or what comes next if that is 0.
    pub fn watch(self: &Arc<Self>, options: WatchOptions) -> Result<Watcher, TooOld> {
        let mut kept = self.lock();
        let (next, from) = (kept.next(), options.from_revision);
        let begin = if from == 0 || from > kept.applied {
            next
        } else if from < kept.oldest {
            return Err(TooOld(kept.oldest));
        } else {
            kept.first + kept.batches.partition_point(|batch| batch.applied < from) as u64
        };
        let (number, wake) = kept.watchers.add(options.clone(), begin..next);
        Ok(Watcher { history: Arc::clone(self), options, number, wake, rest: None })
    }
}

/// Somebody who watches, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    history: Arc<History>,
    options: WatchOptions,
    number: u64,
    wake: Arc<Notify>,
    /// What the last step was to look at and was too long for, and how many changes of its first batch were looked at. It keeps no changes: who
    /// is slow shall not keep in memory what the history has let go.
    rest: Option<(Next, usize)>,
}

impl Watcher {
    /// What is watched.
    pub fn options(&self) -> &WatchOptions {
        &self.options
    }

    /// Goes on.
    pub fn step(&mut self) -> Result<Step, TooOld> {
        let mut kept = self.history.lock();
        let Kept { batches, first, oldest, applied, watchers, .. } = &mut *kept;
        let too_old = TooOld(*oldest);
        let watched = watchers.get_mut(self.number).ok_or(too_old)?;
        let (next, seen) = match self.rest.take() {
            None => (watched.next(*first).ok_or(too_old)?, 0),
            Some((rest, seen)) if rest.is_kept(*first) => (rest, seen),
            Some(_) => return Err(too_old),
        };
        let (has_more, applied) = (watched.has_more(), *applied);
        // It is all kept: that was looked at.
        let found: Vec<_> = next
            .batches()
            .filter_map(|number| Some((number, batches.get((number - *first) as usize).cloned()?)))
            .collect();
        drop(kept);
        let mut taken = Taken::default();
        let mut rest = None;
        'batches: for (number, batch) in &found {
            for at in next.places(*number, batch.changes.len()).skip_while(|at| number == &found[0].0 && *at < seen) {
                let Some(change) = batch.changes.get(at).filter(|change| self.wants(change)) else { continue };
                if !taken.has_room(change, self.options.with_previous) {
                    rest = Some((*number, at, change.revision));
                    break 'batches;
                }
                taken.push(change, self.options.with_previous);
            }
        }
        let last = found.last().map(|(_, batch)| batch.applied);
        let index = match rest {
            Some((_, _, revision)) => revision - 1,
            None if has_more => last.unwrap_or(applied),
            None => applied,
        };
        self.rest = rest.map(|(number, at, _)| (next.from(number), at));
        Ok(Step { events: taken.events, index, has_more: has_more || self.rest.is_some() })
    }

    fn wants(&self, change: &Change) -> bool {
        change.revision >= self.options.from_revision && self.options.covers(&change.key)
    }

    /// Waits until there may be something to be told.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.history.lock().watchers.remove(self.number);
    }
}

/// Events of a step.
#[derive(Default)]
struct Taken {
    events: Vec<Event>,
    bytes: usize,
}

impl Taken {
    /// Whether a change belongs to this step.
    fn has_room(&self, change: &Change, with_previous: bool) -> bool {
        let Some(last) = self.events.last() else { return true };
        let is_long = self.bytes >= STEP_BYTES && change.revision != last.revision;
        !is_long && self.bytes + bytes_told(change, with_previous) <= STEP_BYTES_MAX
    }

    fn push(&mut self, change: &Change, with_previous: bool) {
        self.bytes += bytes_told(change, with_previous);
        self.events.push(event(change, with_previous));
    }
}

fn bytes_told(change: &Change, with_previous: bool) -> usize {
    let previous = change.previous.as_ref().filter(|_| with_previous);
    EVENT_BYTES + change.key.len() + change.value.len() + previous.map_or(0, Bytes::len)
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

    impl History {
        fn publish_all(&self, changes: Vec<Change>, applied: u64) {
            let bytes = changes.iter().map(Change::bytes).sum();
            self.publish(changes, bytes, applied);
        }
    }

    fn all(from_revision: u64) -> WatchOptions {
        WatchOptions { end: Some("~".into()), from_revision, ..WatchOptions::default() }
    }

    fn revisions(watcher: &mut Watcher) -> Vec<u64> {
        let mut revisions = Vec::new();
        loop {
            let step = watcher.step().unwrap();
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
            let history = Arc::new(History::new(1));
            let begun_at = begun_at.index(batches.len() + 1);
            let (mut revision, mut begun, mut seen, mut first) = (0, None, Vec::new(), 0);
            for (at, size) in batches.iter().enumerate() {
                if at == begun_at {
                    begun = Some(history.watch(all(from)).unwrap());
                    first = if from == 0 { revision + 1 } else { from };
                }
                let changes = (1..=*size).map(|more| change("k", revision + more)).collect();
                revision += size.max(&1);
                history.publish_all(changes, revision);
                if let Some(watcher) = begun.as_mut().filter(|_| at % 3 == 0) {
                    seen.extend(revisions(watcher));
                }
            }
            if let Some(mut watcher) = begun {
                seen.extend(revisions(&mut watcher));
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

    proptest! {
        /// As a look at every change would: naive, and slow.
        #[test]
        fn who_watches_some_keys_is_told_what_a_look_at_every_change_finds(
            watches in prop::collection::vec(("[ab]{1,2}", 0_u8..3, "[ab]{1,2}", 0_usize..12, 1_usize..5), 1..6),
            batches in prop::collection::vec(prop::collection::vec("[ab]{1,3}", 0..5), 0..30),
        ) {
            let (history, mut revision) = (Arc::new(History::new(1)), 0);
            let (mut watchers, mut happened) = (Vec::new(), Vec::new());
            for at in 0..=batches.len() {
                for (start, which, other, begin, every) in &watches {
                    if begin.min(&batches.len()) == &at {
                        let start = bytes::Bytes::from(start.clone());
                        let end = match which {
                            0 => None,
                            1 => d_engine_client::end_of_prefix(&start),
                            _ => Some(other.clone().into()),
                        };
                        let options = WatchOptions { start, end, ..WatchOptions::default() };
                        watchers.push((history.watch(options).unwrap(), every, happened.len(), Vec::new()));
                    }
                }
                let Some(keys) = batches.get(at) else { break };
                revision += 1;
                let change = |key: &String| Change { key: key.clone().into(), ..change("", revision) };
                let changes: Vec<Change> = keys.iter().map(change).collect();
                happened.extend(changes.clone());
                history.publish_all(changes, revision);
                for (watcher, every, _, seen) in &mut watchers {
                    if at % **every == 0 {
                        seen.extend(told(watcher));
                    }
                }
            }
            for (watcher, _, begin, seen) in &mut watchers {
                seen.extend(told(watcher));
                let options = watcher.options().clone();
                let wanted = happened[*begin..].iter().filter(|change| options.covers(&change.key));
                let expected: Vec<Event> = wanted.map(|change| event(change, false)).collect();
                prop_assert_eq!(&*seen, &expected[..]);
            }
            drop(watchers);
            prop_assert_eq!(history.watchers(), 0);
        }
    }

    fn told(watcher: &mut Watcher) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let step = watcher.step().unwrap();
            events.extend(step.events);
            if !step.has_more {
                return events;
            }
        }
    }

    /// What concerns others neither wakes it nor makes it too slow.
    #[tokio::test]
    async fn who_watches_something_else_sleeps_on() {
        let history = Arc::new(History::new(1));
        let mut watcher = history.watch(WatchOptions::key("mine")).unwrap();
        for revision in 1..=CHANGES_MAX as u64 + 10 {
            history.publish_all(vec![change("k", revision)], revision);
        }
        let woken = tokio::time::timeout(std::time::Duration::from_millis(50), watcher.changed()).await;
        assert!(woken.is_err(), "woken by a change of another key");
        let revision = CHANGES_MAX as u64 + 11;
        history.publish_all(vec![change("k", revision), change("mine", revision)], revision);
        watcher.changed().await;
        let step = watcher.step().unwrap();
        assert_eq!((step.events.len(), step.index, step.has_more), (1, revision, false));
        assert_eq!(step.events[0].key, "mine");
    }

    /// Frames of up to 32 MiB ended the streams of clients that take 4 MiB, again and again from the same revision.
    #[test]
    fn what_is_told_at_once_is_no_more_than_any_client_takes() {
        let value = || Bytes::from(vec![0; STEP_BYTES_MAX / 3]);
        let large = |revision| Change { value: value(), previous: Some(value()), ..change("k", revision) };
        let small = |revision| change("k", revision);
        let history = Arc::new(History::new(1));
        let mut noted = history.watch(WatchOptions { with_previous: true, ..all(0) }).unwrap();
        history.publish_all(vec![large(1), large(1), small(1), large(2)], 2);
        // Of one revision, and of as many batches.
        (3..903).for_each(|revision| history.publish_all(vec![small(revision)], revision));
        let mut from_there = history.watch(WatchOptions { with_previous: true, ..all(1) }).unwrap();
        for watcher in [&mut noted, &mut from_there] {
            let (mut told, mut index, mut steps) = (Vec::new(), 0, 0);
            loop {
                let step = watcher.step().unwrap();
                let bytes =
                    |event: &Event| event.key.len() + event.value.len() + event.previous.as_ref().map_or(0, Bytes::len);
                assert!(step.events.iter().map(bytes).sum::<usize>() <= STEP_BYTES_MAX);
                assert!(step.index >= index, "it goes back");
                index = step.index;
                told.extend(step.events.iter().map(|event| event.revision));
                let is_told = |revision: u64| (1..=2).contains(&revision) && index < revision && step.has_more;
                assert!(
                    told.iter().all(|revision| *revision <= index || is_told(*revision)),
                    "of {told:?} {index} is told"
                );
                steps += 1;
                if !step.has_more {
                    break;
                }
            }
            let expected: Vec<u64> = [1, 1, 1, 2].into_iter().chain(3..903).collect();
            assert_eq!((told, index), (expected, 902));
            assert!(steps < 600, "{steps} steps");
        }
    }

    #[test]
    fn who_is_too_slow_is_told_and_can_go_on_from_what_is_kept() {
        let history = Arc::new(History::new(1));
        let mut slow = history.watch(all(0)).unwrap();
        for revision in 1..=CHANGES_MAX as u64 + 10 {
            history.publish_all(vec![change("k", revision)], revision);
        }
        let Err(TooOld(oldest)) = slow.step() else { panic!("nothing is gone") };
        assert_eq!(oldest, 11);
        assert_eq!(history.watch(all(10)).unwrap_err(), TooOld(11));
        assert_eq!(revisions(&mut history.watch(all(11)).unwrap())[0], 11);
        // In the middle of what it was to be told next.
        let begin = CHANGES_MAX as u64 + 11;
        let mut cut = history.watch(all(begin)).unwrap();
        (begin..begin + 3).for_each(|revision| history.publish_all(vec![change("k", revision); 2], revision));
        let step = cut.step().unwrap();
        assert_eq!((step.events.len(), step.index, step.has_more), (2, begin, true));
        (begin + 3..begin + 3 + CHANGES_MAX as u64)
            .for_each(|revision| history.publish_all(vec![change("k", revision)], revision));
        assert!(cut.step().is_err());
    }

    #[test]
    fn what_was_there_before_counts_as_well() {
        let history = Arc::new(History::new(1));
        let previous = Some(bytes::Bytes::from(vec![0; 1 << 20]));
        for revision in 1..=33 {
            history.publish_all(vec![Change { previous: previous.clone(), ..change("k", revision) }], revision);
        }
        assert_eq!(history.watch(all(2)).unwrap_err(), TooOld(3), "32 of them are more than 32 MiB, with their keys");
        assert!(history.watch(all(3)).is_ok());
    }

    #[test]
    fn a_snapshot_ends_what_was_watched_before() {
        let history = Arc::new(History::new(1));
        history.publish_all(vec![change("k", 1)], 1);
        let mut before = history.watch(all(1)).unwrap();
        let mut waits = history.watch(all(0)).unwrap();
        history.begin_anew();
        history.publish_all(Vec::new(), 50);
        assert_eq!(before.step(), Err(TooOld(51)));
        assert_eq!(waits.step(), Err(TooOld(51)));
        history.publish_all(vec![change("k", 51)], 51);
        assert_eq!(revisions(&mut history.watch(all(51)).unwrap()), [51]);
    }

    /// The state has been replaced, and that is not visible yet.
    #[test]
    fn a_watch_that_begins_while_a_snapshot_is_taken_in_has_no_silent_gap() {
        let history = Arc::new(History::new(1));
        history.publish_all(vec![change("k", 1)], 1);
        history.begin_anew();
        let mut waits = history.watch(all(0)).unwrap();
        let mut behind = history.watch(all(20)).unwrap();
        assert!(waits.step().is_ok_and(|step| step.index == 1));
        history.publish_all(Vec::new(), 50);
        assert_eq!(waits.step(), Err(TooOld(51)));
        assert_eq!(behind.step(), Err(TooOld(51)));
    }
}
