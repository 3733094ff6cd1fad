//! Who watches a key.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::super::keys::Keys;
use super::intervals::Intervals;

/// What a watcher watches. Clones share the keys: clients choose how long they are.
#[derive(Clone, Debug)]
pub struct Watched {
    pub(super) key: Arc<[u8]>,
    pub(super) range_end: Arc<[u8]>,
}

impl Watched {
    /// As a request says it.
    pub fn new(key: &[u8], range_end: &[u8]) -> Self {
        Self { key: key.into(), range_end: range_end.into() }
    }

    pub fn keys(&self) -> Keys<'_> {
        Keys::new(&self.key, &self.range_end)
    }

    /// What the keys take.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.range_end.len()
    }
}

/// Watchers by what they watch: single keys by hash, ranges by an interval tree.
#[derive(Debug, Default)]
pub struct Index {
    keys: HashMap<Arc<[u8]>, Vec<u64>>,
    ranges: Intervals,
}

impl Index {
    /// Notes what a watcher watches, which shares the keys of those that watch the same from then on. So nothing is kept here that is not
    /// kept by a watcher.
    pub fn insert(&mut self, watched: &mut Watched, watcher: u64) {
        match watched.keys() {
            Keys::One(_) => match self.keys.entry(Arc::clone(&watched.key)) {
                Entry::Occupied(mut others) => {
                    watched.key = Arc::clone(others.key());
                    others.get_mut().push(watcher);
                }
                Entry::Vacant(none) => {
                    none.insert(vec![watcher]);
                }
            },
            Keys::Between(..) | Keys::From(_) => self.ranges.insert(watched, watcher),
        }
    }

    /// Forgets a watcher.
    pub fn remove(&mut self, watched: &Watched, watcher: u64) {
        match watched.keys() {
            Keys::One(key) => {
                if let Some(watchers) = self.keys.get_mut(key) {
                    watchers.retain(|other| *other != watcher);
                    if watchers.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            Keys::Between(..) | Keys::From(_) => self.ranges.remove(watched, watcher),
        }
    }

    /// Adds all watchers of a key.
    pub fn of(&self, key: &[u8], watchers: &mut Vec<u64>) {
        watchers.extend(self.keys.get(key).into_iter().flatten());
        self.ranges.stab(key, &mut |watcher| watchers.push(watcher));
    }
}
