//! Who watches what, by key and by prefix: a change finds those whom it concerns, and costs the others nothing.
//!
//! A watch of one key stands at that key; one of a range at the prefix that all its keys have in common, which is the whole of what is asked for
//! where that is a prefix itself. A change looks at its own key and at those prefixes of it that somebody watches. Ranges with the same
//! prefix in common are looked at one by one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;
use d_engine_client::{WatchOptions, end_of_prefix};
use tokio::sync::Notify;

use super::STEP_BATCHES;
use crate::state::Change;

/// Changes that are noted for somebody who does not look. Beyond them, it looks at everything since the first of them.
const PENDING_MAX: usize = if cfg!(test) { 3 } else { 1024 };

/// Watches by what they watch.
#[derive(Debug, Default)]
struct Index {
    keys: HashMap<Bytes, Vec<u64>>,
    /// By the prefix that a range's keys have in common; with where it begins and ends.
    ranges: BTreeMap<Bytes, Vec<(u64, Bytes, Bytes)>>,
}

/// The prefix that all keys of a range have in common.
fn common(start: &Bytes, end: &Bytes) -> Bytes {
    if end_of_prefix(start).as_ref() == Some(end) {
        return start.clone();
    }
    start.slice(..common_bytes(start, end))
}

fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl Index {
    fn insert(&mut self, number: u64, WatchOptions { start, end, .. }: &WatchOptions) {
        match end {
            None => self.keys.entry(start.clone()).or_default().push(number),
            Some(end) => {
                let at = self.ranges.entry(common(start, end)).or_default();
                at.push((number, start.clone(), end.clone()));
            }
        }
    }

    fn remove(&mut self, number: u64, WatchOptions { start, end, .. }: &WatchOptions) {
        match end {
            None => {
                if let Some(watches) = self.keys.get_mut(start) {
                    watches.retain(|other| *other != number);
                    if watches.is_empty() {
                        self.keys.remove(start);
                    }
                }
            }
            Some(end) => {
                let prefix = common(start, end);
                if let Some(watches) = self.ranges.get_mut(&prefix) {
                    watches.retain(|(other, ..)| *other != number);
                    if watches.is_empty() {
                        self.ranges.remove(&prefix);
                    }
                }
            }
        }
    }

    /// Adds the watches that cover a key, each once.
    fn find(&self, key: &[u8], found: &mut Vec<u64>) {
        found.extend(self.keys.get(key).into_iter().flatten());
        let mut rest = key;
        while let Some((prefix, watches)) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(rest))).next_back()
        {
            if !rest.starts_with(prefix) {
                // All that are longer than this and prefixes of the key would stand between the two.
                rest = &rest[..common_bytes(rest, prefix)];
                continue;
            }
            let covering = watches.iter().filter(|(_, start, end)| key >= start && key < end);
            found.extend(covering.map(|(number, ..)| number));
            let Some(shorter) = prefix.len().checked_sub(1) else { return };
            rest = &rest[..shorter];
        }
    }
}

/// What somebody who watches is to look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All changes of these batches.
    Batches(Range<u64>),
    /// These changes: the number of the batch, and the place in it. All are wanted.
    Changes(VecDeque<(u64, u32)>),
}

impl Next {
    /// The batches that have some of it, in order, each once.
    pub(super) fn batches(&self) -> impl Iterator<Item = u64> {
        let (all, some) = match self {
            Self::Batches(numbers) => (numbers.clone(), None),
            Self::Changes(changes) => (0..0, Some(changes)),
        };
        let mut last = None;
        let some = some.into_iter().flatten().map(|(number, _)| *number);
        all.chain(some.filter(move |number| last.replace(*number) != Some(*number)))
    }

    /// The places in a batch with so many changes.
    pub(super) fn places(&self, batch: u64, count: usize) -> impl Iterator<Item = usize> {
        let (all, some) = match self {
            Self::Batches(_) => (0..count, None),
            Self::Changes(changes) => {
                let begin = changes.partition_point(|(number, _)| *number < batch);
                (0..0, Some(changes.range(begin..).take_while(move |(number, _)| *number == batch)))
            }
        };
        all.chain(some.into_iter().flatten().map(|(_, place)| *place as usize))
    }

    /// Without what is before this batch.
    pub(super) fn from(mut self, batch: u64) -> Self {
        match &mut self {
            Self::Batches(numbers) => numbers.start = numbers.start.max(batch),
            Self::Changes(changes) => drop(changes.drain(..changes.partition_point(|(number, _)| *number < batch))),
        }
        self
    }

    /// Whether all of it is kept, if batches from `first` on are.
    pub(super) fn is_kept(&self, first: u64) -> bool {
        self.batches().next().is_none_or(|oldest| oldest >= first)
    }
}

/// Somebody who watches.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) options: WatchOptions,
    wake: Arc<Notify>,
    /// Batches that are to be looked at as a whole.
    whole: Range<u64>,
    /// Behind them, what concerns it.
    pending: VecDeque<(u64, u32)>,
    /// What it has not seen is not known any more.
    is_cut: bool,
}

impl Watched {
    fn tell(&mut self, batch: u64, place: u32) {
        if !self.whole.is_empty() {
            self.whole.end = batch + 1;
        } else if self.pending.len() < PENDING_MAX {
            self.pending.push_back((batch, place));
        } else {
            let begin = self.pending.front().map_or(batch, |(begin, _)| *begin);
            self.whole = begin..batch + 1;
            // As much as it had at once, and no more.
            self.pending = VecDeque::new();
        }
        self.wake.notify_one();
    }

    /// What comes next, if batches from `first` on are kept; `None`: it is gone.
    pub(super) fn next(&mut self, first: u64) -> Option<Next> {
        let oldest =
            if self.whole.is_empty() { self.pending.front().map(|(batch, _)| *batch) } else { Some(self.whole.start) };
        if self.is_cut || oldest.is_some_and(|oldest| oldest < first) {
            return None;
        }
        if self.whole.is_empty() {
            return Some(Next::Changes(std::mem::take(&mut self.pending)));
        }
        let end = self.whole.end.min(self.whole.start + STEP_BATCHES);
        let begin = std::mem::replace(&mut self.whole.start, end);
        Some(Next::Batches(begin..end))
    }

    pub(super) fn has_more(&self) -> bool {
        !self.whole.is_empty() || !self.pending.is_empty()
    }
}

/// All who watch.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: HashMap<u64, Watched>,
    index: Index,
    /// Numbers that were given.
    given: u64,
    /// Of one change; kept for its memory.
    found: Vec<u64>,
}

impl Watchers {
    /// Somebody who has to look at these batches and is told of what comes later; its number, and what wakes it.
    pub(super) fn add(&mut self, options: WatchOptions, whole: Range<u64>) -> (u64, Arc<Notify>) {
        self.given += 1;
        self.index.insert(self.given, &options);
        let wake = Arc::new(Notify::new());
        let watched = Watched { options, wake: Arc::clone(&wake), whole, pending: VecDeque::new(), is_cut: false };
        self.all.insert(self.given, watched);
        (self.given, wake)
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(watched) = self.all.remove(&number) {
            self.index.remove(number, &watched.options);
        }
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Watched> {
        self.all.get_mut(&number)
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Tells those whom it concerns of a batch.
    pub(super) fn tell(&mut self, batch: u64, changes: &[Change]) {
        if self.all.is_empty() {
            return;
        }
        for (place, change) in (0..).zip(changes) {
            self.found.clear();
            self.index.find(&change.key, &mut self.found);
            for number in &self.found {
                if let Some(watched) = self.all.get_mut(number) {
                    watched.tell(batch, place);
                }
            }
        }
    }

    /// What nobody has seen yet is not known any more: everybody is woken, to hear that.
    pub(super) fn cut(&mut self) {
        for watched in self.all.values_mut() {
            watched.is_cut = true;
            watched.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few and short, so that they meet; with the last byte of all, which no prefix ends behind.
    fn key() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(prop::sample::select(vec![0, b'a', b'b', u8::MAX]), 0..5).prop_map(Bytes::from)
    }

    fn watch() -> impl Strategy<Value = WatchOptions> {
        let end = |start: &Bytes, which: u8, other: Bytes| match which {
            0 => None,
            1 => end_of_prefix(start),
            _ => Some(other),
        };
        (key(), 0_u8..3, key()).prop_map(move |(start, which, other)| WatchOptions {
            end: end(&start, which, other),
            start,
            ..Default::default()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_index_finds_whom_a_look_at_everybody_finds(
            watches in prop::collection::vec((watch(), any::<bool>()), 0..20), keys in prop::collection::vec(key(), 1..20),
        ) {
            let mut index = Index::default();
            for (number, (options, _)) in (0..).zip(&watches) {
                index.insert(number, options);
            }
            for (number, (options, has_gone)) in (0..).zip(&watches) {
                if *has_gone {
                    index.remove(number, options);
                }
            }
            for key in keys {
                let mut found = Vec::new();
                index.find(&key, &mut found);
                found.sort_unstable();
                let stays = (0..).zip(&watches).filter(|(_, (options, has_gone))| !has_gone && options.covers(&key));
                let expected: Vec<u64> = stays.map(|(number, _)| number).collect();
                prop_assert_eq!(found, expected, "{:?}", key);
            }
            for (number, (options, _)) in (0..).zip(&watches) {
                index.remove(number, options);
            }
            prop_assert!(index.keys.is_empty() && index.ranges.is_empty(), "nothing is left of who has gone");
        }
    }
}
