//! Watches: who is told what, in which order, and no more than they can take.
//!
//! [`Hub`] has the streams of one thread. It does no I/O: the caller says what was published and what clients ask for, and takes
//! the [`Response`]s that a stream has room for. All it knows of keys it takes from the [`View`] that was published last, so that
//! neither the writer nor other readers ever wait for a watcher.
//!
//! ```text
//! published ──► changes ──Index──► watchers ──► stream's queue ──next──► Response
//!                                     │ full        ▲
//!                                     ▼             │
//!                                  behind ──log──► catch up, when the queue is empty
//! ```
//!
//! A watcher is *in step*, or *behind* at a revision. In step it is told every change as it is published. When its stream's queue is
//! full, or when it begins in the past, it is behind, and catches up from the revision log as the stream takes what it has. So
//! memory is bounded, and every change is told exactly once, in order, those of one revision in one message.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use super::error::Error;
use super::keys::Keys;
use super::record::Record;
use super::view::View;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::watch_create_request::FilterType;

mod index;
mod intervals;
mod response;
mod stream;
#[cfg(test)]
mod tests;

use index::{Index, Watched};
pub use response::{Event, NO_WATCHER, Response};
use stream::{Item, Stream};

/// How much a hub does and keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest queue of a stream, in bytes of events. Changes of one revision are not torn apart: those may be above it.
    pub queue_bytes: usize,
    /// How many changes are looked at in one go by who catches up.
    pub catch_up_changes: usize,
    /// Messages longer than this are split for watchers who want that: `--max-request-bytes` and a little.
    pub fragment_bytes: usize,
    /// What the watchers of all hubs may take together, with their keys; see [`Watcher::bytes`].
    pub watchers_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue_bytes: 1 << 20, catch_up_changes: 2000, fragment_bytes: 2 << 20, watchers_bytes: 128 << 20 }
    }
}

/// What a watcher takes besides its keys, about: its places in the hub, its stream and the index.
const WATCHER_BYTES: usize = 400;
/// Why a watcher is refused that there is no memory for.
const NO_ROOM: &str = "rusd: there is no room for this watcher: all watchers together may take 128 MiB with their keys; cancel some, or watch shorter keys";

/// How many messages may wait before [`Hub::wants_requests`] says no.
const QUEUE_ITEMS_MAX: usize = 1000;

/// Names a stream of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// The watch streams of one thread.
#[derive(Debug)]
pub struct Hub {
    view: View,
    /// The revision of `view`, for the store: what this hub has not seen, it keeps.
    seen: Arc<AtomicI64>,
    /// What the watchers of all hubs take.
    taken: Arc<AtomicUsize>,
    index: Index,
    watchers: HashMap<u64, Watcher>,
    streams: HashMap<StreamId, Stream>,
    /// Streams that have something to be taken.
    ready: BTreeSet<StreamId>,
    /// Names the next stream or watcher.
    next: u64,
    limits: Limits,
    /// Watchers of one change; kept for its memory.
    found: Vec<u64>,
}

/// A watcher.
#[derive(Debug)]
struct Watcher {
    stream: StreamId,
    id: i64,
    watched: Watched,
    /// Where the client wanted to begin; 0: with the next change.
    start: i64,
    /// Changes below are not told.
    from: i64,
    /// Whether changes from `from` on have to be taken from the log.
    behind: bool,
    wants: Wants,
    /// Nothing was told since the last periodic progress.
    quiet: bool,
    /// Where its newest events are in its stream's queue.
    queued: Option<u64>,
}

/// What a watcher wants besides events.
#[derive(Clone, Copy, Debug)]
struct Wants {
    puts: bool,
    deletes: bool,
    previous: bool,
    progress: bool,
    fragments: bool,
}

impl Watcher {
    /// What it takes.
    fn bytes(&self) -> usize {
        WATCHER_BYTES + self.watched.bytes()
    }

    fn wants(&self, record: &Record) -> bool {
        record.main() >= self.from && if record.is_tombstone() { self.wants.deletes } else { self.wants.puts }
    }
}

impl Hub {
    /// A hub that knows a view. See [`super::Reader::hub`].
    pub(super) fn new(view: View, seen: Arc<AtomicI64>, taken: Arc<AtomicUsize>, limits: Limits) -> Self {
        seen.store(view.revision(), Ordering::Release);
        Self {
            view,
            seen,
            taken,
            index: Index::default(),
            watchers: HashMap::new(),
            streams: HashMap::new(),
            ready: BTreeSet::new(),
            next: 0,
            limits,
            found: Vec::new(),
        }
    }

    /// A newer view was published: tells watchers what happened.
    pub fn published(&mut self, view: View) {
        let seen = self.view.revision();
        let is_gap = view.keyspace.kept_from() > seen + 1 || view.revision() < seen;
        let old = std::mem::replace(&mut self.view, view);
        if is_gap {
            // A snapshot came from elsewhere, or this hub slept for long. Who missed something is told so, when it catches up.
            self.all_fall_behind(old.revision() + 1);
        } else if !self.watchers.is_empty() {
            let view = self.view.clone();
            for record in view.keyspace.changes(seen + 1) {
                self.tell(record);
            }
        }
        self.seen.store(self.view.revision(), Ordering::Release);
    }

    /// Streams that have become ready, or are still; each once. [`Hub::next`] until it says `None`, or the stream is full.
    pub fn take_ready(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.ready).into_iter().collect()
    }

    /// Begins a stream.
    pub fn open(&mut self) -> StreamId {
        self.next += 1;
        let id = StreamId(self.next);
        self.streams.insert(id, Stream::default());
        id
    }

    /// Ends a stream and its watchers.
    pub fn close(&mut self, id: StreamId) {
        self.ready.remove(&id);
        let Some(stream) = self.streams.remove(&id) else { return };
        for watcher in stream.watchers.into_values() {
            self.forget(watcher);
        }
    }

    /// How many watchers there are.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// How much memory the watchers of a stream take, about.
    pub fn watchers_bytes(&self, id: StreamId) -> usize {
        self.streams.get(&id).map_or(0, |stream| stream.watchers_bytes)
    }

    /// How much memory a watcher will take, about.
    pub fn bytes_of(request: &pb::WatchCreateRequest) -> usize {
        WATCHER_BYTES + request.key.len().max(1) + request.range_end.len()
    }

    /// Whether more requests should be taken from a stream: not while it leaves many answers waiting.
    pub fn wants_requests(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.len() < QUEUE_ITEMS_MAX)
    }

    /// Answers a request that the server refuses, for a reason of its own: permissions.
    pub fn refuse(&mut self, id: StreamId, reason: &'static str) {
        let revision = self.view.revision();
        self.say(
            id,
            Response {
                watch_id: NO_WATCHER,
                revision,
                created: true,
                canceled: true,
                cancel_reason: reason,
                ..Default::default()
            },
        );
    }

    /// Begins a watcher.
    pub fn create(&mut self, id: StreamId, request: &pb::WatchCreateRequest) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let key: &[u8] = if request.key.is_empty() { &[0] } else { &request.key };
        if request.start_revision < 0 {
            return self.refuse(id, Error::Compacted.message());
        }
        if Keys::new(key, &request.range_end).is_empty() {
            return self.refuse(id, "mvcc: watcher range is empty");
        }
        let Some(watch_id) = stream.name_watcher(request.watch_id) else {
            return self.refuse(id, "mvcc: duplicate watch ID provided on the WatchStream");
        };
        let revision = self.view.revision();
        let mut watcher = Watcher {
            stream: id,
            id: watch_id,
            watched: Watched::new(key, &request.range_end),
            start: request.start_revision,
            from: if request.start_revision == 0 { revision + 1 } else { request.start_revision },
            behind: (1..=revision).contains(&request.start_revision),
            wants: Wants {
                puts: !request.filters.contains(&(FilterType::Noput as i32)),
                deletes: !request.filters.contains(&(FilterType::Nodelete as i32)),
                previous: request.prev_kv,
                progress: request.progress_notify,
                fragments: request.fragment,
            },
            quiet: false,
            queued: None,
        };
        let with = |taken: usize| Some(taken + watcher.bytes()).filter(|taken| *taken <= self.limits.watchers_bytes);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_err() {
            return self.refuse(id, NO_ROOM);
        }
        self.next += 1;
        let number = self.next;
        stream.watchers.insert(watch_id, number);
        if watcher.behind {
            stream.behind.insert(number);
        }
        stream.watchers_bytes += watcher.bytes();
        self.index.insert(&mut watcher.watched, number);
        self.watchers.insert(number, watcher);
        self.say(id, Response { watch_id, revision, created: true, ..Default::default() });
    }

    /// Ends a watcher. One that is not there is passed over, as etcd does.
    pub fn cancel(&mut self, id: StreamId, watch_id: i64) {
        let revision = self.view.revision();
        if self.end(id, watch_id) {
            self.say(id, Response { watch_id, revision, canceled: true, ..Default::default() });
        }
    }

    /// The client asks how far its watchers are: told only if all of them are in step, and then behind all that was told before.
    pub fn request_progress(&mut self, id: StreamId) {
        let revision = self.view.revision();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let in_step = |number: &u64| self.watchers.get(number).is_some_and(|it| !it.behind && it.start <= revision);
        if !stream.watchers.is_empty() && stream.watchers.values().all(in_step) && !stream.ends_with_progress(revision)
        {
            self.say(id, Response { watch_id: NO_WATCHER, revision, ..Default::default() });
        }
    }

    /// Time for periodic progress: tells watchers who want it and were told nothing since the last time.
    pub fn notify_progress(&mut self, id: StreamId) {
        let revision = self.view.revision();
        let Some(stream) = self.streams.get(&id).filter(|stream| stream.len() < QUEUE_ITEMS_MAX) else { return };
        let mut told = Vec::new();
        for number in stream.watchers.values() {
            let Some(watcher) = self.watchers.get_mut(number).filter(|watcher| watcher.wants.progress) else {
                continue;
            };
            if watcher.quiet && !watcher.behind && watcher.start <= revision {
                told.push(watcher.id);
            }
            watcher.quiet = true;
        }
        for watch_id in told {
            self.say(id, Response { watch_id, revision, ..Default::default() });
        }
    }

    /// What a stream is to be told next. `None`: nothing for now; it may be ready again at once, see [`Hub::take_ready`].
    pub fn next(&mut self, id: StreamId) -> Option<Response> {
        if self.streams.get(&id)?.is_empty() {
            self.catch_up(id);
        }
        let stream = self.streams.get_mut(&id)?;
        let response = loop {
            match stream.pop()? {
                Item::Said(response) => break response,
                Item::Events { watcher: number, revision, mut events } => {
                    // One that has ended since is told nothing more.
                    let Some(watcher) = self.watchers.get(&number) else { continue };
                    let rest =
                        if watcher.wants.fragments { split(&mut events, self.limits.fragment_bytes) } else { None };
                    let fragment = rest.is_some();
                    if let Some(events) = rest {
                        stream.push_back_in_front(Item::Events { watcher: number, revision, events });
                    }
                    break Response { watch_id: watcher.id, revision, fragment, events, ..Default::default() };
                }
            }
        };
        if !stream.is_empty() || !stream.behind.is_empty() {
            self.ready.insert(id);
        }
        Some(response)
    }

    fn say(&mut self, id: StreamId, response: Response) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.say(response);
            self.ready.insert(id);
        }
    }

    fn end(&mut self, id: StreamId, watch_id: i64) -> bool {
        let number = self.streams.get_mut(&id).and_then(|stream| stream.watchers.remove(&watch_id));
        number.is_some_and(|number| self.forget(number))
    }

    fn forget(&mut self, number: u64) -> bool {
        let Some(watcher) = self.watchers.remove(&number) else { return false };
        self.index.remove(&watcher.watched, number);
        self.taken.fetch_sub(watcher.bytes(), Ordering::Relaxed);
        if let Some(stream) = self.streams.get_mut(&watcher.stream) {
            stream.watchers_bytes -= watcher.bytes();
            stream.behind.remove(&number);
        }
        true
    }

    fn all_fall_behind(&mut self, from: i64) {
        for (number, watcher) in &mut self.watchers {
            watcher.from = watcher.from.max(if watcher.behind { 0 } else { from });
            watcher.behind = true;
            if let Some(stream) = self.streams.get_mut(&watcher.stream) {
                stream.behind.insert(*number);
                self.ready.insert(watcher.stream);
            }
        }
    }

    /// Tells a change to all watchers of its key who are in step.
    fn tell(&mut self, record: &Record) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        self.index.of(record.key(), &mut found);
        for number in &found {
            let Some(watcher) = self.watchers.get_mut(number).filter(|it| !it.behind && it.wants(record)) else {
                continue;
            };
            let Some(stream) = self.streams.get_mut(&watcher.stream) else { continue };
            if stream.bytes() >= self.limits.queue_bytes && !stream.has_of_revision(watcher.queued, record.main()) {
                watcher.behind = true;
                watcher.from = record.main();
                stream.behind.insert(*number);
                continue;
            }
            push(stream, *number, watcher, record, &self.view);
            self.ready.insert(watcher.stream);
        }
        self.found = found;
    }

    /// Fills an empty queue from the log, for the watchers of a stream that are behind.
    fn catch_up(&mut self, id: StreamId) {
        self.end_compacted(id);
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.behind.is_empty()) else { return };
        let (mut index, mut from) = (Index::default(), i64::MAX);
        for number in &stream.behind {
            if let Some(watcher) = self.watchers.get(number) {
                index.insert(&mut watcher.watched.clone(), *number);
                from = from.min(watcher.from);
            }
        }
        let (mut through, mut looked_at) = (self.view.revision(), 0);
        let mut last = 0;
        for record in self.view.keyspace.changes(from) {
            if record.main() != last
                && (looked_at >= self.limits.catch_up_changes || stream.bytes() >= self.limits.queue_bytes)
            {
                through = record.main() - 1;
                break;
            }
            (last, looked_at) = (record.main(), looked_at + 1);
            self.found.clear();
            index.of(record.key(), &mut self.found);
            for number in &self.found {
                if let Some(watcher) = self.watchers.get_mut(number).filter(|watcher| watcher.wants(record)) {
                    push(stream, *number, watcher, record, &self.view);
                }
            }
        }
        let is_in_step = through >= self.view.revision();
        for number in &stream.behind {
            if let Some(watcher) = self.watchers.get_mut(number) {
                watcher.from = watcher.from.max(through + 1);
                watcher.behind = !is_in_step;
            }
        }
        if is_in_step {
            stream.behind.clear();
        } else {
            self.ready.insert(id);
        }
    }

    /// Ends the watchers of a stream that want to see what was compacted.
    fn end_compacted(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let compacted = self.view.keyspace.compacted();
        let behind = stream.behind.iter().filter_map(|number| self.watchers.get(number));
        let late: Vec<i64> = behind.filter(|watcher| watcher.from < compacted).map(|watcher| watcher.id).collect();
        let revision = self.view.revision();
        for watch_id in late {
            self.end(id, watch_id);
            let response =
                Response { watch_id, revision, canceled: true, compact_revision: compacted, ..Default::default() };
            self.say(id, response);
        }
    }
}

/// Puts a change into the queue of its watcher's stream.
fn push(stream: &mut Stream, number: u64, watcher: &mut Watcher, record: &Record, view: &View) {
    let wants_previous = watcher.wants.previous && !record.is_create();
    let previous = if wants_previous { view.keyspace.previous(record).cloned() } else { None };
    watcher.quiet = false;
    watcher.queued = Some(stream.push(number, watcher.queued, Event { record: record.clone(), previous }));
}

/// Splits events so that the message has no more bytes than that, but one event at least. What did not fit comes back.
fn split(events: &mut Vec<Event>, bytes_max: usize) -> Option<Vec<Event>> {
    let mut bytes = 0;
    let fitting = events.iter().take_while(|event| {
        bytes += event.encoded_len() + 8;
        bytes <= bytes_max
    });
    let at = fitting.count().max(1);
    (at < events.len()).then(|| events.split_off(at))
}
