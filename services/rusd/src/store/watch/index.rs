//! Who watches a key.

use std::collections::HashMap;

use super::super::keys::Keys;
use super::intervals::Intervals;

/// Watchers by what they watch: single keys by hash, ranges by an interval tree.
#[derive(Debug, Default)]
pub struct Index {
    keys: HashMap<Box<[u8]>, Vec<u64>>,
    ranges: Intervals,
}

impl Index {
    /// Notes what a watcher watches.
    pub fn insert(&mut self, keys: Keys<'_>, watcher: u64) {
        match keys {
            Keys::One(key) => self.keys.entry(key.into()).or_default().push(watcher),
            Keys::Between(..) | Keys::From(_) => self.ranges.insert(keys, watcher),
        }
    }

    /// Forgets a watcher.
    pub fn remove(&mut self, keys: Keys<'_>, watcher: u64) {
        match keys {
            Keys::One(key) => {
                if let Some(watchers) = self.keys.get_mut(key) {
                    watchers.retain(|other| *other != watcher);
                    if watchers.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            Keys::Between(..) | Keys::From(_) => self.ranges.remove(keys, watcher),
        }
    }

    /// Adds all watchers of a key.
    pub fn of(&self, key: &[u8], watchers: &mut Vec<u64>) {
        watchers.extend(self.keys.get(key).into_iter().flatten());
        self.ranges.stab(key, &mut |watcher| watchers.push(watcher));
    }
}
