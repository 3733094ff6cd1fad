//! What is done to a replica behind its newest file: levels are merged, and what nothing needs any more is removed.
//!
//! One thread for all databases; nothing waits for it. What it does survives its death at any point: a merged file is there or not, and
//! what is removed was not needed.

use super::Shared;
use super::tracked::Tracked;
use crate::compaction::{MergeError, merge_files};
use crate::replica::PutError;
use crate::retention::{RetentionError, enforce};
use crate::store::{StoreError, backoff};
use ltx::{Header, SNAPSHOT_LEVEL};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at what may go, of a database that changes.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(300);
/// The same, of one that does not.
const IDLE_RETENTION_INTERVAL: Duration = Duration::from_secs(86_400);

impl Shared {
    /// One database at a time: one at which somebody is at work waits for its next turn, and no other waits for it.
    pub(super) fn maintain(&self, tracked: &Arc<Tracked>) {
        if tracked.lock_soon().is_none() {
            return tracked.maintaining.store(false, Ordering::Release);
        }
        let result = self.merge_what_is_due(tracked).and_then(|()| self.remove_what_is_due(tracked));
        let now = self.clock.monotonic();
        let mut state = tracked.lock();
        match result {
            Ok(()) => state.maintenance_failures = 0,
            Err(error) => {
                self.totals.failures.fetch_add(1, Ordering::Relaxed);
                state.maintenance_failures = state.maintenance_failures.saturating_add(1);
                state.next_maintenance = now + backoff(state.maintenance_failures, rand::random());
                let path = tracked.path.display();
                tracing::warn!(%path, %error, "what is behind the newest file is not merged or removed; tried again");
            }
        }
        drop(state);
        tracked.maintaining.store(false, Ordering::Release);
    }

    /// Merges until nothing is due. A file that is damaged or gone is a hole, which a snapshot mends for all that follows.
    fn merge_what_is_due(&self, tracked: &Tracked) -> Result<(), StoreError> {
        while !self.stop.load(Ordering::Acquire) {
            let (level, batch, began_after) = {
                // Whoever is at work there for long is not waited for.
                let Some(state) = tracked.lock_soon() else { return Ok(()) };
                let due = state.levels.due(&self.settings.levels, self.clock.monotonic());
                let Some(level) = due.filter(|_| !state.is_fenced()) else { return Ok(()) };
                (level, state.levels.batch(level), state.began_after)
            };
            let path = tracked.path.display();
            // Merged files have no writer.
            let is_ours = |header: &Header| header.node_id == self.node_id || header.min_txid <= began_after;
            let merged =
                merge_files(&tracked.replica, level, &batch, &self.arena, |header| level > 0 || is_ours(header));
            let mut file = match merged {
                // A store that refuses, for its credentials are out of date, say, has not lost anything.
                Err(MergeError::Store(error)) => return Err(error),
                Err(MergeError::Replaced(key)) => {
                    tracked.lock().fence(&tracked.path, key, self.clock.monotonic());
                    return Ok(());
                }
                Err(MergeError::Damaged(error)) => {
                    tracing::error!(%path, %error, "a file of the replica is damaged or gone: a snapshot will follow");
                    let mut state = tracked.lock();
                    state.levels.given_up(level, &batch);
                    state.next_snapshot = Duration::ZERO;
                    continue;
                }
                Ok(file) => file,
            };
            match tracked.replica.put(level + 1, &mut file) {
                Ok(bytes) => {
                    let now = self.clock.monotonic();
                    self.totals.merged.fetch_add(1, Ordering::Relaxed);
                    self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
                    let mut state = tracked.lock();
                    state.levels.merged(level, &batch, now);
                    state.retention_is_due_by(now + self.retention_interval());
                    tracing::debug!(%path, level = level + 1, name = %file.name(), bytes, "merged");
                }
                Err(PutError::Fenced(key)) => tracked.lock().fence(&tracked.path, key, self.clock.monotonic()),
                Err(PutError::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// What came in is at its finest for so long: it is no use to look more often.
    fn retention_interval(&self) -> Duration {
        self.settings.retention.as_ref().map_or(RETENTION_INTERVAL, |policy| RETENTION_INTERVAL.min(policy.uploads))
    }

    fn remove_what_is_due(&self, tracked: &Tracked) -> Result<(), StoreError> {
        let Some(policy) = &self.settings.retention else { return Ok(()) };
        let now = self.clock.monotonic();
        let (confirmed, snapshot) = {
            let Some(mut state) = tracked.lock_soon() else { return Ok(()) };
            if now < state.next_retention || state.is_fenced() || state.last_txid.is_none() {
                return Ok(());
            }
            state.next_retention = now + IDLE_RETENTION_INTERVAL;
            (state.durable_txid, state.snapshot_txid)
        };
        let levels = self.settings.levels.len().min(usize::from(SNAPSHOT_LEVEL) - 1) as u8;
        let goes_on = || !self.stop.load(Ordering::Acquire) && !tracked.is_shown_fenced();
        let path = tracked.path.display();
        let date = self.date.unix_millis(&*self.clock);
        match enforce(&tracked.replica, policy, levels, date, confirmed, goes_on) {
            Ok(removed) => {
                self.totals.removed.fetch_add(removed as u64, Ordering::Relaxed);
                tracing::debug!(%path, removed, "removed what no point that is kept needs");
                Ok(())
            }
            Err(RetentionError::Store(error)) => {
                tracked.lock().retention_is_due_by(now);
                Err(error)
            }
            Err(error @ RetentionError::Hole(_)) => {
                tracing::error!(%path, %error, "a snapshot will follow");
                let mut state = tracked.lock();
                if state.has_snapshot_under_way() {
                    // Which may mend it, or be of before.
                    state.retention_is_due_by(now + RETENTION_INTERVAL);
                }
                state.mend_hole(snapshot);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%path, %error, "retention");
                tracked.lock().retention_is_due_by(now + RETENTION_INTERVAL);
                Ok(())
            }
        }
    }
}
