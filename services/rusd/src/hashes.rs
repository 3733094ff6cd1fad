//! Hashes of compacted revisions, made while they were compacted. From etcd's `server/storage/mvcc/hash.go`.
//!
//! Promises: after a compaction that succeeded, [`CompactionHashes::get`] gives for its revision the hash that was right before it,
//! as etcd does: members compare them. The newest ten are remembered, until the member stops. Hashing is done on a thread of its own;
//! when compactions come faster than they can be hashed, only the newest are.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::store::{KeyValueHash, Keyspace, hash_key_values};

/// As etcd.
const REMEMBERED_MAX: usize = 10;
/// Each keeps alive what its compaction would free.
const WAITING_MAX: usize = 2;

/// The hashes; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct CompactionHashes(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    hashed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Keyspace, i64)>,
    /// What is being hashed.
    current: Option<i64>,
    known: VecDeque<KeyValueHash>,
}

impl CompactionHashes {
    /// Hashes what was there before the compaction at `revision`, soon.
    pub fn begin(&self, before: Keyspace, revision: i64) {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.pop_front();
        }
        state.waiting.push_back((before, revision));
        if state.current.is_none() {
            let this = self.clone();
            let thread = thread::Builder::new().name("compaction-hash".into()).spawn(move || this.work());
            match thread {
                Ok(_) => state.current = Some(revision),
                Err(error) => {
                    tracing::warn!(%error, "no thread to hash a compacted revision: its hash will not be remembered");
                    state.waiting.clear();
                }
            }
        }
    }

    /// The hash of a compacted revision, if it is remembered. Waits if it is being made.
    pub fn get(&self, revision: i64) -> Option<KeyValueHash> {
        let mut state = self.lock();
        loop {
            if let Some(known) = state.known.iter().find(|known| known.hash_revision == revision) {
                return Some(*known);
            }
            let is_under_way =
                state.current == Some(revision) || state.waiting.iter().any(|(_, waiting)| *waiting == revision);
            if !is_under_way {
                return None;
            }
            state = self.0.hashed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// All that are remembered.
    pub fn newest_first(&self) -> Vec<KeyValueHash> {
        let mut known = self.lock().known.iter().copied().collect::<Vec<_>>();
        known.sort_by_key(|known| std::cmp::Reverse(known.hash_revision));
        known
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let (before, revision) = {
                let mut state = self.lock();
                let Some(next) = state.waiting.pop_front() else {
                    state.current = None;
                    return;
                };
                state.current = Some(next.1);
                next
            };
            let hash = hash_key_values(&before, revision);
            drop(before);
            let mut state = self.lock();
            if let Ok(hash) = hash {
                state.known.push_back(hash);
                if state.known.len() > REMEMBERED_MAX {
                    state.known.pop_front();
                }
            }
            // Who waits for it shall not find it under way when it is done.
            state.current = state.waiting.front().map(|(_, revision)| *revision).or(Some(i64::MIN));
            drop(state);
            self.0.hashed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_compacted_revision_stays_what_it_was() {
        let mut space = Keyspace::default();
        let hashes = CompactionHashes::default();
        for round in 1..=12_i64 {
            for value in ["first", "second"] {
                space.write(&mut Vec::new()).put(b"key", value.as_bytes(), 0);
            }
            let at = space.revision();
            let before = hash_key_values(&space, at).unwrap();
            let kept = space.clone();
            space.compact(at).unwrap();
            while !space.sweep(10, i64::MAX) {}
            assert_eq!(hashes.get(at), None);
            hashes.begin(kept, at);
            assert_eq!(hashes.get(at), Some(before));
            assert_ne!(hash_key_values(&space, at).unwrap().hash, before.hash, "round {round}");
        }
        assert_eq!(hashes.lock().known.len(), REMEMBERED_MAX);
        assert_eq!(hashes.get(3), None);
    }
}
