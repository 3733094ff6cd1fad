//! What uploaders do. Each database has one row of files, in order, and beside it at most one snapshot of where we stood: it moves nothing, so that
//! nothing waits for it. It goes by a thread of its own, and so do other files that are large: no small one of any database is behind them.

use super::Shared;
use super::phase::Phase;
use super::tracked::{Outgoing, Predecessor, State, Tracked};
use crate::replica::{PutError, RemoteFile};
use crate::store::{StoreError, backoff};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A file of so many bytes is sent within tenths of a second, or somewhat more.
const LARGE_BYTES: u64 = 64 << 20;

/// Why a file did not arrive.
enum NotSent {
    /// One of who wrote here before is in its place, which came after we had looked: he was killed, and it was still on its way.
    Late,
    /// One of another writer is in its place.
    Fenced(String),
    Store(StoreError),
}

impl Outgoing {
    fn is_large(&self) -> bool {
        self.file.content.bytes() > LARGE_BYTES
    }
}

impl State {
    /// Whether the snapshot that is staged may be sent. What it stands for must be in the store first: it may turn out to be another writer's.
    fn may_send_snapshot(&self, now: Duration) -> bool {
        let is_durable = |snapshot: &Outgoing| snapshot.file.header.max_txid <= self.durable_txid;
        now >= self.next_sending && self.snapshot.as_ref().is_some_and(is_durable)
    }
}

fn send(tracked: &Tracked, outgoing: &mut Outgoing) -> Result<u64, NotSent> {
    let key = match tracked.replica.put(outgoing.level, &mut outgoing.file) {
        Ok(bytes) => return Ok(bytes),
        Err(PutError::Store(error)) => return Err(NotSent::Store(error)),
        Err(PutError::Fenced(key)) => key,
    };
    let is_late = match tracked.lock().predecessor {
        None => false,
        Some(Predecessor::Unknown) => true,
        Some(Predecessor::Node(node_id)) => {
            let (level, name) = (outgoing.level, outgoing.file.name());
            let there = RemoteFile { level, name, size: ltx::HEADER_SIZE as u64, modified_millis: 0 };
            match tracked.replica.header(&there) {
                Ok(header) => header.node_id == node_id,
                Err(StoreError::Damaged(_)) => false,
                Err(error) => return Err(NotSent::Store(error)),
            }
        }
    };
    Err(if is_late { NotSent::Late } else { NotSent::Fenced(key) })
}

impl Shared {
    /// Wakes those who upload what there is.
    pub(super) fn push_upload(&self, tracked: &Arc<Tracked>, state: &mut State) {
        if let Some(first) = state.queue.front()
            && !tracked.uploading.swap(true, Ordering::AcqRel)
        {
            let queue = if first.is_large() { &self.uploading_large } else { &self.uploading };
            queue.push(tracked.clone());
        }
        if !state.is_sending && state.may_send_snapshot(self.clock.monotonic()) {
            state.is_sending = true;
            self.snapshots.push(tracked.clone());
        }
    }

    /// Uploads a row of files to its end, or up to one that is for others.
    pub(super) fn upload(&self, tracked: &Arc<Tracked>, sends_large: bool) {
        loop {
            // Who is at work there for long sees to it in the end, and no other database waits for that.
            let Some(mut state) = tracked.lock_soon() else {
                return tracked.uploading.store(false, Ordering::Release);
            };
            if !sends_large && state.queue.front().is_some_and(Outgoing::is_large) {
                return self.uploading_large.push(tracked.clone());
            }
            let Some(mut outgoing) = state.queue.pop_front() else {
                tracked.uploading.store(false, Ordering::Release);
                return;
            };
            state.waiting.uploading(outgoing.since);
            drop(state);
            // A large file is asked for long.
            tracked.asks((!sends_large).then(|| self.clock.monotonic()));
            let result = send(tracked, &mut outgoing);
            tracked.asks(None);
            let mut state = tracked.lock();
            state.waiting.uploading(None);
            match result {
                Ok(bytes) => {
                    self.arrived(tracked, &mut state, &outgoing, bytes);
                    self.push_upload(tracked, &mut state);
                }
                Err(NotSent::Late) => state.begin_anew(&tracked.path, outgoing.since, self.clock.monotonic()),
                Err(NotSent::Fenced(key)) => state.fence(&tracked.path, key, self.clock.monotonic()),
                Err(NotSent::Store(error)) => {
                    if !state.is_fenced() {
                        state.queue.push_front(outgoing);
                    }
                    self.store_failed(tracked, &mut state, &error);
                    // What waits again is shown before nobody is at work on it any more.
                    drop(state);
                    tracked.uploading.store(false, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Uploads the snapshot that is staged.
    pub(super) fn send_snapshot(&self, tracked: &Arc<Tracked>) {
        let mut state = tracked.lock();
        if let Some(mut outgoing) = state.snapshot.take() {
            drop(state);
            let result = send(tracked, &mut outgoing);
            state = tracked.lock();
            let now = self.clock.monotonic();
            match result {
                Ok(bytes) => {
                    self.arrived(tracked, &mut state, &outgoing, bytes);
                    (state.snapshot_failures, state.snapshot_late) = (0, None);
                }
                Err(NotSent::Late) => state.begin_anew(&tracked.path, None, now),
                Err(NotSent::Fenced(key)) => state.fence(&tracked.path, key, now),
                Err(NotSent::Store(error)) => {
                    self.totals.failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(path = %tracked.path.display(), %error, "a snapshot is not sent; tried again");
                    state.snapshot_failures = state.snapshot_failures.saturating_add(1);
                    state.next_sending = now + backoff(state.snapshot_failures, rand::random());
                    let since = state.snapshot_late.take().map_or(now, |(since, _)| since);
                    state.snapshot_late = Some((since, error.to_string()));
                    // One that came meanwhile stands for more.
                    if !state.is_fenced() {
                        state.snapshot.get_or_insert(outgoing);
                    }
                }
            }
        }
        state.is_sending = false;
    }

    fn arrived(&self, tracked: &Tracked, state: &mut State, outgoing: &Outgoing, bytes: u64) {
        if let Some(since) = outgoing.since {
            self.totals.durable_after.took(self.clock.monotonic().saturating_sub(since));
        }
        self.totals.objects.fetch_add(1, Ordering::Relaxed);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        let header = &outgoing.file.header;
        self.recovery.succeeded(self.clock.monotonic());
        state.predecessor = None;
        state.levels.arrived(outgoing.level, outgoing.file.name(), self.clock.monotonic());
        state.durable_txid = state.durable_txid.max(header.max_txid);
        if header.max_txid >= state.durable_txid {
            state.durable_millis = header.timestamp_millis;
        }
        (state.failures, state.fails_for_good) = (0, false);
        state.enter(&tracked.path, Phase::Running);
        let path = tracked.path.display();
        tracing::info!(%path, level = outgoing.level, txid = header.max_txid, bytes, "durable");
    }
}
