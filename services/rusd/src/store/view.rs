//! What readers look at: a state as it was published, which stays as it is for as long as somebody looks.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::auth::Access;
use super::command::Caller;
use super::counts::Counts;
use super::effort;
use super::error::Error;
use super::hash::{self, KeyValueHash};
use super::log_time::LogTime;
use super::range::{self, Content, Found};
use super::spill::Spilled;
use super::state::{self, State};
use super::watch;
use crate::proto::etcdserverpb as pb;
use crate::proto::mvccpb::KeyValue;

/// Gives views. Clones give the same; neither waits for the writer nor makes it wait.
#[derive(Clone, Debug)]
pub struct Reader {
    published: Arc<ArcSwap<Published>>,
    hubs: Hubs,
    /// What the watchers of all hubs take, bytes.
    watchers_bytes: Arc<AtomicUsize>,
    spilled: Arc<Spilled>,
    counts: Arc<Counts>,
}

/// What each hub has seen: what one of them has not, the log keeps a while.
type Hubs = Arc<Mutex<Vec<Weak<AtomicI64>>>>;

/// For a hub that is further back than that, nothing is kept.
const HUB_LAG_MAX_REVISIONS: i64 = 100_000;

/// A state that was published. Everything read from one view is of one moment.
#[derive(Clone, Debug)]
pub struct View(Arc<Published>);

#[derive(Debug)]
struct Published {
    state: State,
    applied_index: u64,
    log_time: LogTime,
}

impl Reader {
    pub(super) fn new(state: State) -> Self {
        Self::of(state, Arc::default())
    }

    pub(super) fn of(state: State, spilled: Arc<Spilled>) -> Self {
        let published =
            Arc::new(ArcSwap::from_pointee(Published { state, applied_index: 0, log_time: LogTime::default() }));
        Self { published, hubs: Hubs::default(), watchers_bytes: Arc::default(), spilled, counts: Arc::default() }
    }

    /// What is in files instead of in memory.
    pub fn spilled(&self) -> &Spilled {
        &self.spilled
    }

    /// What was done since the process started.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The newest state: all in it is on the disks of a quorum.
    pub fn view(&self) -> View {
        View(self.published.load_full())
    }

    /// A new hub for the watch streams of one thread.
    pub fn hub(&self, limits: watch::Limits) -> watch::Hub {
        let seen = Arc::new(AtomicI64::new(0));
        // From here on the log loses nothing that is newer than the view.
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&seen));
        watch::Hub::new(self.view(), seen, Arc::clone(&self.watchers_bytes), limits)
    }

    /// What all hubs have seen, or need not see any more.
    pub(super) fn seen(&self, revision: i64) -> i64 {
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|hub| hub.strong_count() > 0);
        let seen = hubs.iter().filter_map(Weak::upgrade).map(|hub| hub.load(Ordering::Acquire)).min();
        seen.unwrap_or(revision).max(revision - HUB_LAG_MAX_REVISIONS)
    }

    pub(super) fn publish(&self, state: State, applied_index: u64, log_time: LogTime) {
        self.published.store(Arc::new(Published { state, applied_index, log_time }));
    }
}

impl Deref for View {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.state
    }
}

impl View {
    /// The newest revision.
    pub fn revision(&self) -> i64 {
        self.keyspace.revision()
    }

    /// The index of the newest entry of the log that this state has.
    pub fn applied_index(&self) -> u64 {
        self.0.applied_index
    }

    /// How much space is taken, about, in bytes.
    pub fn bytes(&self) -> u64 {
        self.keyspace.bytes() + self.leases.bytes()
    }

    /// The time of the log at this moment.
    pub fn log_millis(&self) -> u64 {
        self.0.log_time.now_millis()
    }

    /// Whether a caller may do something; nobody is asked while users are not enabled.
    pub fn check(&self, caller: &Caller, access: Access<'_>) -> Result<(), Error> {
        state::check(self, caller, access)
    }

    /// Looks for what a range request means. [`super::check::range`] has passed.
    pub fn range<'a>(&'a self, request: &'a pb::RangeRequest) -> Result<Found<'a>, Error> {
        range::range(&self.keyspace, request)
    }

    /// How many keys [`View::range`] looks at, about.
    pub fn keys_looked_at(&self, request: &pb::RangeRequest) -> usize {
        range::keys_looked_at(&self.keyspace, request)
    }

    /// How many keys a transaction looks at, about.
    pub fn keys_looked_at_by(&self, txn: &pb::TxnRequest) -> usize {
        effort::keys_of_txn(self, txn, true)
    }

    /// Answers a transaction that only reads: see [`super::check::is_read_only`].
    pub fn read_only_txn(&self, txn: &pb::TxnRequest) -> Result<pb::TxnResponse, Error> {
        state::read_only(&self.keyspace, txn)
    }

    /// The hash of all key-values up to a revision; 0 means now. Takes time: every record is looked at.
    pub fn hash_key_values(&self, revision: i64) -> Result<KeyValueHash, Error> {
        hash::hash_key_values(&self.keyspace, revision)
    }

    /// How many keys [`View::chunks`] looks at, about.
    pub fn keys_looked_at_by_chunks(&self, request: &pb::RangeRequest) -> usize {
        self.keys_of_past(super::Keys::new(&request.key, &request.range_end), request.revision)
    }

    /// How many keys there are at a revision of the past and since: to tell what was there, all of them may have to be looked at.
    fn keys_of_past(&self, keys: super::Keys<'_>, revision: i64) -> usize {
        if (1..self.revision()).contains(&revision) { self.keyspace.len_about(keys, revision) } else { 0 }
    }

    /// Begins to answer a range request in chunks: see [`Chunks`].
    pub fn chunks(&self, request: pb::RangeRequest) -> Result<Chunks, Error> {
        let at = self.keyspace.at(request.revision)?;
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        let begin = request.key.to_vec();
        // What is behind the limit is counted now, where that is a look at the newest state.
        let is_counted = limit.is_some() || request.count_only;
        let keys = super::Keys::new(&begin, &request.range_end);
        let total = if is_counted { self.keyspace.count(keys, at) } else { 0 };
        let (revision, left) = (self.revision(), limit.unwrap_or(usize::MAX));
        Ok(Chunks { request, revision, at, begin, left, total, sent: 0, ended: false })
    }
}

/// The answer to a range request in chunks: `RangeStream`. All chunks are of one revision, whatever happens meanwhile; but for what waits to be
/// sent nothing is held, so that what was overwritten and compacted is freed, and the rest of the answer with it.
#[derive(Clone, Debug)]
pub struct Chunks {
    request: pb::RangeRequest,
    /// The newest one when it began.
    revision: i64,
    at: i64,
    /// The first key of the next chunk.
    begin: Vec<u8>,
    left: usize,
    /// How many keys there are, where that must be known.
    total: usize,
    sent: usize,
    ended: bool,
}

impl Chunks {
    /// How many keys the next chunk may have to pass over.
    pub fn keys_passed_over(&self, view: &View) -> usize {
        match self.ended {
            true => 0,
            false => view.keys_of_past(super::Keys::new(&self.begin, &self.request.range_end), self.at),
        }
    }

    /// The next chunk with up to so many keys, from this view or a newer one; the last one has header, `more` and `count`.
    pub fn next_chunk(&mut self, view: &View, keys_max: usize) -> Result<Option<pb::RangeResponse>, Error> {
        if self.ended {
            return Ok(None);
        }
        let space = &view.keyspace;
        let at = space.at(self.at)?;
        let mut response = pb::RangeResponse::default();
        let mut rest = self.total;
        if !self.request.count_only {
            let content = Content::of(&self.request);
            let mut visible = space.range(super::Keys::new(&self.begin, &self.request.range_end), at);
            let kvs = visible.by_ref().take(keys_max.max(1).min(self.left)).map(|record| content.message(record));
            response.kvs = kvs.collect::<Vec<KeyValue>>();
            self.left -= response.kvs.len();
            self.sent += response.kvs.len();
            if let Some(next) = visible.next().filter(|_| self.left > 0) {
                self.begin = next.key().to_vec();
                return Ok(Some(response));
            }
            rest = self.total.saturating_sub(self.sent);
        }
        self.ended = true;
        response.header = Some(pb::ResponseHeader { revision: self.revision, ..Default::default() });
        response.more = !self.request.count_only && rest > 0;
        response.count = (self.sent + rest) as i64;
        Ok(Some(response))
    }
}
