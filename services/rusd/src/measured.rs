//! The state machine with a clock beside it: how long commands take, which of them took long, and what else a member counts of itself.

use std::fmt::Write as _;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use replog::{Entry, RestoreError, SnapshotView, StateMachine};
use service_kit::metrics::Times;
use wal::BOUNDS_MICROS;

use crate::store::{Command, Reply, Request, Store};

/// What a member counts of itself.
#[derive(Debug)]
pub struct Measured {
    /// From the first command of a batch until readers see all of it: what stands here for etcd's commit of its database.
    pub commits: Times,
    /// Commands that took longer than `--warning-apply-duration`.
    pub slow_applies: AtomicU64,
    /// `/health` that was answered with 200.
    pub health_successes: AtomicU64,
    /// `/health` that was not.
    pub health_failures: AtomicU64,
    /// Leases that have ended.
    pub leases_expired: AtomicU64,
    /// Reads that found no majority in time.
    pub read_indexes_failed: AtomicU64,
    /// The most that the data have taken since they were defragmented, bytes.
    pub allocated_bytes: AtomicU64,
    /// Learners that were made voters by a call here.
    pub learners_promoted: AtomicU64,
    /// The last compaction whose work is done.
    compaction: Mutex<Option<Compaction>>,
}

/// A compaction whose work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Of its entry in the log.
    pub index: u64,
    /// Its revision.
    pub revision: i64,
    /// From when it was applied until what it frees was free.
    pub took: Duration,
}

impl Default for Measured {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            commits: Times::new(&BOUNDS_MICROS),
            slow_applies: zero(),
            health_successes: zero(),
            health_failures: zero(),
            leases_expired: zero(),
            read_indexes_failed: zero(),
            allocated_bytes: zero(),
            learners_promoted: zero(),
            compaction: Mutex::default(),
        }
    }
}

impl Measured {
    /// Counts one more.
    pub fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The last compaction whose work is done, since the start.
    pub fn compaction(&self) -> Option<Compaction> {
        *self.compaction.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store whose commands are timed.
#[derive(Debug)]
pub struct Timed {
    store: Store,
    measured: Arc<Measured>,
    slow_after: Duration,
    /// When the batch began.
    begun: Option<Instant>,
    /// When the last command ended.
    last: Option<Instant>,
    /// The compacted revision that was seen last.
    compacted: i64,
    /// A compaction that has left work: the index of its entry, and when that was applied.
    compaction: Option<(u64, Instant)>,
}

impl Timed {
    /// Commands that take longer than `slow_after` are logged, as etcd does.
    pub fn new(store: Store, measured: Arc<Measured>, slow_after: Duration) -> Self {
        let compacted = store.keyspace().compacted();
        Self { store, measured, slow_after, begun: None, last: None, compacted, compaction: None }
    }

    /// To be called after each command. Of compactions that follow one another while there is work left the last one counts, from when the first
    /// one was applied.
    fn see_compaction(&mut self, index: u64, applied: Instant) {
        let compacted = self.store.keyspace().compacted();
        if compacted != self.compacted {
            self.compacted = compacted;
            let since = self.compaction.map_or(applied, |(_, since)| since);
            self.compaction = Some((index, since));
        }
    }

    /// To be called after the store has done work that compaction left.
    fn finish_compaction(&mut self) {
        if let Some((index, since)) = self.compaction.take_if(|_| self.store.keyspace().is_swept()) {
            let done = Compaction { index, revision: self.compacted, took: since.elapsed() };
            *self.measured.compaction.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        }
    }

    fn timed<T>(&mut self, entry: &Entry, apply: impl FnOnce(&mut Store) -> T) -> T {
        let start = self.last.unwrap_or_else(Instant::now);
        self.begun.get_or_insert(start);
        let applied = apply(&mut self.store);
        let end = Instant::now();
        self.last = Some(end);
        self.see_compaction(entry.index, start);
        let took = end.saturating_duration_since(start);
        if took > self.slow_after {
            Measured::add(&self.measured.slow_applies);
            tracing::warn!(
                took = ?took,
                "expected-duration" = ?self.slow_after,
                prefix = "",
                request = describe(entry),
                "apply request took too long"
            );
        }
        applied
    }
}

/// What a command is of; never what it puts.
fn describe(entry: &Entry) -> String {
    let Ok(Command { request, .. }) = Command::decode(&entry.data) else { return String::new() };
    let mut out = format!("header:<ID:{} > ", entry.index);
    // A string takes everything.
    let _ = match &request {
        Request::Put(put) => {
            write!(out, "put:<key:\"{}\" value_size:{} >", put.key.escape_ascii(), put.value.len())
        }
        Request::DeleteRange(delete) => write!(
            out,
            "delete_range:<key:\"{}\" range_end:\"{}\" >",
            delete.key.escape_ascii(),
            delete.range_end.escape_ascii()
        ),
        Request::Txn(txn) => write!(out, "txn:<success:{} failure:{} >", txn.success.len(), txn.failure.len()),
        Request::Compaction(compaction) => write!(out, "compaction:<revision:{} >", compaction.revision),
        Request::LeaseRevoke(revoke) => write!(out, "lease_revoke:<id:{:x} >", revoke.id),
        _ => Ok(()),
    };
    out
}

impl StateMachine for Timed {
    type Reply = Reply;

    fn apply(&mut self, entry: &Entry) -> Reply {
        self.timed(entry, |store| store.apply(entry))
    }

    fn apply_unasked(&mut self, entry: &Entry) {
        self.timed(entry, |store| store.apply_unasked(entry));
    }

    fn takes_long<'a>(&self, commands: impl Iterator<Item = (&'a Entry, bool)>) -> bool {
        self.store.takes_long(commands)
    }

    fn applied(&mut self, index: u64) {
        self.store.applied(index);
        self.finish_compaction();
        self.last = None;
        if let Some(begun) = self.begun.take() {
            self.measured.commits.record(begun.elapsed());
        }
    }

    fn kept(&self) -> u64 {
        self.store.kept()
    }

    fn forget(&mut self) -> Result<(), RestoreError> {
        self.store.forget()
    }

    fn idle(&mut self) {
        self.store.idle();
        self.finish_compaction();
    }

    fn goes_on_alone(&mut self, id: u64) {
        self.store.goes_on_alone(id);
    }

    fn snapshot(&self) -> SnapshotView {
        self.store.snapshot()
    }

    fn restore(&mut self, snapshot: &mut dyn Read) -> Result<(), RestoreError> {
        self.store.restore(snapshot)?;
        (self.compacted, self.compaction) = (self.store.keyspace().compacted(), None);
        Ok(())
    }

    fn restored(&mut self, time_millis: u64) {
        self.store.restored(time_millis);
    }
}

#[cfg(test)]
mod tests {
    use replog::EntryKind;

    use super::*;
    use crate::proto::etcdserverpb as pb;
    use crate::store::Caller;

    #[test]
    fn a_compaction_is_done_when_its_work_is() {
        let measured = Arc::new(Measured::default());
        let mut timed = Timed::new(Store::default(), Arc::clone(&measured), Duration::from_secs(60));
        let apply = |timed: &mut Timed, index, request| {
            let data = Command { caller: Caller::Server, request }.encode();
            timed.apply_unasked(&Entry { index, term: 1, kind: EntryKind::Command, time_millis: 0, data });
            timed.applied(index);
        };
        for index in 1..=2_000 {
            let put = pb::PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
            apply(&mut timed, index, Request::Put(put));
        }
        let compact = |revision| Request::Compaction(pb::CompactionRequest { revision, physical: false });
        apply(&mut timed, 2_001, compact(1_800));
        assert_eq!(measured.compaction(), None, "its work goes on");
        apply(&mut timed, 2_002, compact(1_900));
        for _ in 0..20 {
            timed.idle();
        }
        let done = measured.compaction().unwrap();
        assert_eq!((done.index, done.revision), (2_002, 1_900));
        let mut snapshot = Vec::new();
        timed.snapshot()(&mut snapshot).unwrap();
        let measured = Arc::new(Measured::default());
        let mut other = Timed::new(Store::default(), Arc::clone(&measured), Duration::from_secs(60));
        other.restore(&mut &snapshot[..]).unwrap();
        other.applied(2_002);
        assert_eq!(measured.compaction(), None, "nobody compacted anything here");
    }
}
