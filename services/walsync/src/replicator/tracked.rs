//! One database: what is known of it, and how it is looked at. What others are told of it is a [`Phase`] and more ([`super::phase`]).

use super::open_files::Place;
use super::phase::Phase;
use super::risk::Waiting;
use super::shown::Shown;
use super::staging::Work;
use super::work::{BUSY_LONG, is_used_elsewhere};
use super::yielding::LetGo;
use super::{Settings, Shared, wheel::QUICK_TICK, wheel::TICK};
use crate::compaction::Levels;
use crate::database::{DatabaseFiles, Unread};
use crate::difference::PageChecksums;
use crate::pin::{Hold, Pin, PinKind};
use crate::position::Position;
use crate::replica::{LtxFile, Replica};
use crate::source::Source;
use crate::store::memory::MemoryStore;
use crate::wal_index::WalIndex;
use ltx::Layout;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Staged files of one database that wait for their upload, at most.
pub const MAX_QUEUE: usize = 64;
/// Frames of a WAL from which its restart is wanted, as for SQLite's own check points.
pub(super) const RESTART_FRAMES: u32 = 1000;
/// For how long after a change a database is looked at with every tick.
const ACTIVE: Duration = Duration::from_secs(2);
/// Looks at an idle database between two of its files' paths; whether another file was renamed over it is looked at each time.
const LOOKS_PER_IDENTITY: u32 = 5;

/// A file on its way into the store.
pub struct Outgoing {
    pub level: u8,
    /// Since when the oldest commit in it has waited.
    pub since: Option<Duration>,
    pub file: LtxFile,
}

/// Who wrote the newest file that was found.
#[derive(Clone, Copy)]
pub enum Predecessor {
    /// There was no file.
    Unknown,
    Node(u64),
}

/// What is committed finds no room in the staging folder.
pub struct Stall {
    pub why: String,
    /// Bytes for which there was none.
    pub bytes: u64,
    pub tries: u32,
}

/// What threads change under the lock.
#[derive(Default)]
pub struct State {
    pub files: Option<Arc<DatabaseFiles>>,
    pub pin: Option<Box<dyn Pin>>,
    /// The descriptors of both.
    pub place: Option<Place>,
    /// Files of before whose index is still in use, although it or the WAL has no name any more; and what held them.
    pub nameless: Option<(Arc<DatabaseFiles>, PinKind)>,
    /// Of the last pin, as far as it was told.
    pub pin_kind: Option<PinKind>,
    pub position: Option<Position>,
    /// Last transaction ID that is staged or in the store; `None` before the store was asked.
    pub last_txid: Option<u64>,
    /// Who wrote here before us, as long as nothing of ours has arrived: something of his may still come.
    pub predecessor: Option<Predecessor>,
    /// Where the replica ended then: what is beyond is ours.
    pub began_after: u64,
    /// How often the store was asked where the replica ends: what was begun before the last time is void.
    pub beginnings: u32,
    /// What that is known by; 0: it is not ours.
    pub last_tag: u32,
    /// When that was committed, Unix time in milliseconds.
    pub last_millis: i64,
    /// Bytes of a page there; 0 where nothing was sent yet.
    pub last_page_size: u32,
    pub queue: VecDeque<Outgoing>,
    /// A snapshot of where we stood, which moves nothing.
    pub snapshot: Option<Outgoing>,
    /// It, or one before, is with who uploads snapshots, or waits for that.
    pub is_sending: bool,
    pub snapshot_failures: u32,
    /// A snapshot is not sent before: it failed.
    pub next_sending: Duration,
    pub seen: Option<WalIndex>,
    /// The WAL as it was seen while its index could not be read.
    pub unread: Unread,
    /// What the replica has at this transaction, where that is known and asked for; `None` within: it could not be found out.
    pub compared: Option<(u64, Option<PageChecksums>)>,
    /// The replica is being read for that. Nothing in the WAL need stay meanwhile, for what follows is the whole database.
    pub comparing: bool,
    /// The whole database is being read. Who does so looks after it, and nobody else.
    pub is_read: bool,
    /// Something may be there to stage.
    pub dirty: bool,
    pub waiting: Waiting,
    pub last_change: Duration,
    /// When a check point was last seen that waits for us.
    pub last_wait: Duration,
    pub next_stage: Duration,
    pub next_snapshot: Duration,
    /// Since when a snapshot that is due could not be taken, and why the last time.
    pub snapshot_late: Option<(Duration, String)>,
    /// Last transaction ID of the newest snapshot.
    pub snapshot_txid: u64,
    /// Since when somebody has been in the way of every look.
    pub busy: Option<Duration>,
    pub failures: u32,
    /// The store said that trying again will not help.
    pub fails_for_good: bool,
    /// When the store failed last for this database.
    pub failed: Duration,
    /// What waits to be merged.
    pub levels: Levels,
    pub next_retention: Duration,
    /// Not before: it failed.
    pub next_maintenance: Duration,
    pub maintenance_failures: u32,
    pub looks: u32,
    pub durable_txid: u64,
    pub durable_millis: i64,
    pub phase: Phase,
    pub stall: Option<Stall>,
    /// Frames of the WAL when they were begun to be held.
    pub held_from: u32,
    /// Frames are let go of that are not staged.
    pub let_go: Option<LetGo>,
    /// How often in a row reading the whole database was given up for a check point.
    pub gave_way: u32,
    /// The same, for a WAL that grew.
    pub outgrown: u32,
    /// Nothing is held before.
    pub gives_way_until: Duration,
    /// The number of the sync request that the last staging answered, …
    pub staged_request: u64,
    /// … and of the one before which nothing was committed that is not staged; a snapshot that is due may be missing.
    pub changes_request: u64,
}

/// One database.
pub struct Tracked {
    pub path: PathBuf,
    pub replica: Replica,
    /// It is only told of.
    pub(super) is_refused: bool,
    /// Of those who work on it: [`Tracked::lock`].
    pub(super) state: Mutex<State>,
    pub(super) shown: Mutex<Shown>,
    /// In which queues of stagers it is, or with whom: bits of [`super::staging::Work`].
    pub queued: AtomicU8,
    /// Which of them are at work on it.
    pub at_work: AtomicU8,
    /// It is in the upload queue or with an uploader.
    pub uploading: AtomicBool,
    /// It is in the maintenance queue or with the maintainer.
    pub maintaining: AtomicBool,
    pub requested: AtomicU64,
    /// Nobody wants it any more.
    pub is_forgotten: AtomicBool,
    /// Check points have waited for us of late.
    is_awaited: AtomicBool,
    due_micros: AtomicU64,
    /// Since when the store has been asked for what is sent next, or where the replica ends; 0: it is not asked.
    asked_micros: AtomicU64,
}

impl Tracked {
    pub fn new(path: PathBuf, replica: Replica) -> Tracked {
        let state = State { dirty: true, ..State::default() };
        Tracked {
            path,
            replica,
            is_refused: false,
            shown: Mutex::new(Shown::of(&state)),
            state: Mutex::new(state),
            queued: AtomicU8::new(0),
            at_work: AtomicU8::new(0),
            uploading: AtomicBool::new(false),
            maintaining: AtomicBool::new(false),
            requested: AtomicU64::new(0),
            is_forgotten: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            due_micros: AtomicU64::new(u64::MAX),
            asked_micros: AtomicU64::new(0),
        }
    }

    /// One that cannot be replicated, whatever becomes of its file.
    pub fn refused(path: PathBuf, why: String, now: Duration) -> Tracked {
        let nowhere = Replica::new(Arc::new(MemoryStore::default()), Layout::Objects, "");
        let refused = Tracked { is_refused: true, ..Tracked::new(path, nowhere) };
        let mut state = refused.lock();
        state.waiting.seen(now);
        state.enter(&refused.path, Phase::Refused(why));
        drop(state);
        refused
    }

    pub fn set_due(&self, at: Duration) {
        self.due_micros.store(at.as_micros() as u64, Ordering::Release);
    }

    /// The store is asked from now on; `None`: it has answered, or failed.
    pub(super) fn asks(&self, since: Option<Duration>) {
        self.asked_micros.store(since.map_or(0, |since| (since.as_micros() as u64).max(1)), Ordering::Release);
    }

    /// Since when it has been.
    pub(super) fn asked(&self) -> Option<Duration> {
        Some(self.asked_micros.load(Ordering::Acquire)).filter(|since| *since > 0).map(Duration::from_micros)
    }

    pub fn due(&self) -> Duration {
        Duration::from_micros(self.due_micros.load(Ordering::Acquire))
    }

    /// Asks for a staging that begins after this call; [`Tracked::is_synced`] tells of its end.
    pub fn request_sync(&self) -> u64 {
        self.requested.fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl State {
    pub fn held(&self) -> Hold {
        self.pin.as_ref().map_or(Hold::Nothing, |pin| pin.held())
    }

    /// Whether everything that `index` tells of is staged.
    pub(super) fn has_staged(&self, index: &WalIndex) -> bool {
        self.position.is_some_and(|position| position.is_end_of(index))
    }

    /// Lets a check point pass that waits for us, where all that it may copy is staged: at once, and not with the next look.
    pub(super) fn let_pass(&mut self, now: Duration) -> std::io::Result<bool> {
        if !self.is_awaited(now) {
            return Ok(false);
        }
        let State { files: Some(files), pin: Some(pin), .. } = self else { return Ok(false) };
        let waits = pin.held() >= Hold::Frames && pin.checkpointer_waits()?;
        let index = if waits { files.wal_index()? } else { None };
        let passes = index.is_some_and(|index| self.has_staged(&index));
        if let Some(pin) = self.pin.as_mut().filter(|_| passes) {
            pin.hold(Hold::Presence, None)?;
        }
        Ok(passes)
    }

    /// Whether it is time for a snapshot, and anything came since the last one.
    pub fn wants_snapshot(&self, now: Duration) -> bool {
        now >= self.next_snapshot
            && self.snapshot.is_none()
            && self.position.is_some()
            && self.last_txid.is_some_and(|last| last > self.snapshot_txid)
    }

    /// What was asked for before a staging began is staged; `with_snapshot`: and a snapshot, if one was due.
    pub(super) fn answer(&mut self, request: u64, with_snapshot: bool) {
        self.changes_request = self.changes_request.max(request);
        if with_snapshot {
            self.staged_request = self.staged_request.max(request);
        }
    }

    pub(super) fn retention_is_due_by(&mut self, at: Duration) {
        self.next_retention = self.next_retention.min(at);
    }

    /// A snapshot that is due cannot be taken now: again after `wait`. Nothing else waits for it.
    pub(super) fn snapshot_is_late(&mut self, path: &Path, now: Duration, wait: Duration, why: String) {
        self.next_snapshot = now + wait;
        let since = self.snapshot_late.take().map_or(now, |(since, _)| since);
        // What passes in a moment is worth no line.
        if now >= since + BUSY_LONG && now < since + BUSY_LONG + wait {
            let path = path.display();
            tracing::warn!(%path, why, "no snapshot yet; what is committed is sent all the same");
        }
        self.snapshot_late = Some((since, why));
    }

    /// A hole was found that only a snapshot mends. `before` is [`State::snapshot_txid`] from before the search: one that was staged
    /// since mends it, and a second one of the same name would be taken for another writer's.
    pub(super) fn mend_hole(&mut self, before: u64) {
        if self.snapshot_txid == before && !self.has_snapshot_under_way() {
            // Also where the one that is missing was the newest.
            (self.next_snapshot, self.snapshot_txid) = (Duration::ZERO, 0);
        }
    }

    /// Whether there is a snapshot that the store has not yet.
    pub(super) fn has_snapshot_under_way(&self) -> bool {
        self.snapshot.is_some() || self.is_sending
    }

    fn wants_maintenance(&self, settings: &Settings, now: Duration) -> bool {
        let due = || self.levels.due(&settings.levels, now).is_some();
        let retention = settings.retention.is_some() && self.last_txid.is_some() && now >= self.next_retention;
        now >= self.next_maintenance && (retention || due())
    }

    /// Another phase, told in one line. A database that is fenced stays so: what was under way when somebody else was met must not bring
    /// it back.
    pub(super) fn enter(&mut self, path: &Path, phase: Phase) {
        if self.is_fenced() || self.phase == phase {
            return;
        }
        let path = path.display();
        match &phase {
            Phase::Waiting(why) => tracing::warn!(%path, why = why.why(), "waiting"),
            Phase::Running => tracing::info!(%path, "replicating"),
            // The words of a store that fails change; that it fails does not.
            Phase::Failing(_) if matches!(self.phase, Phase::Failing(_)) => {}
            Phase::Failing(why) => {
                tracing::warn!(%path, why, "the store fails; frames stay in the WAL until it is back")
            }
            Phase::Stalled(why) | Phase::Refused(why) => tracing::error!(%path, why, "not replicated"),
            Phase::Fenced(key) => {
                tracing::error!(%path, key, "another process replicates into this place: stopped for this database");
            }
        }
        self.phase = phase;
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(self.phase, Phase::Fenced(_))
    }

    /// Something of who wrote here before came after we had asked where the replica ends: that is asked again. `since`: the oldest commit in what was
    /// sent in vain.
    pub(super) fn begin_anew(&mut self, path: &Path, since: Option<Duration>, now: Duration) {
        tracing::warn!(path = %path.display(), "a file of who wrote here before came late: the replica is looked at again");
        let queued = self.queue.front().and_then(|outgoing| outgoing.since);
        let oldest = self.waiting.oldest(since.into_iter().chain(queued).min());
        self.forget_files();
        self.waiting.seen(oldest.unwrap_or(now));
        self.queue.clear();
        self.snapshot = None;
        self.last_txid = None;
        (self.dirty, self.next_stage) = (true, now);
        // What was staged for them is not.
        (self.staged_request, self.changes_request) = (0, 0);
    }

    /// Somebody else replicates into this place. From now on whatever is committed here is at risk.
    pub(super) fn fence(&mut self, path: &Path, key: String, now: Duration) {
        self.forget_files();
        self.waiting.seen(now);
        self.queue.clear();
        self.snapshot = None;
        self.enter(path, Phase::Fenced(key));
    }

    /// Whether check points have waited for us of late.
    fn is_awaited(&self, now: Duration) -> bool {
        now < self.last_wait + ACTIVE && self.last_wait > Duration::ZERO
    }

    fn interval(&self, settings: &Settings, now: Duration) -> Duration {
        if self.is_awaited(now) {
            QUICK_TICK
        } else if now < self.last_change + ACTIVE || self.dirty && self.position.is_some() {
            TICK
        } else {
            settings.interval
        }
    }
}

impl Shared {
    /// Looks at a database, and says when to look again. Never waits: where a stager is at work, later.
    pub(super) fn poll(&self, tracked: &Arc<Tracked>, now: Duration) -> Duration {
        let Some(mut state) = tracked.try_lock() else {
            // A stager is at work, and perhaps because a check point waits: what it has staged is soon to be let go.
            return now + if tracked.is_awaited.load(Ordering::Acquire) { QUICK_TICK } else { TICK };
        };
        match self.look(tracked, &mut state, now) {
            Ok(next) => next,
            Err(error) => {
                state.files = None;
                tracing::debug!(path = %tracked.path.display(), %error, "cannot look");
                now + self.settings.interval
            }
        }
    }

    fn look(&self, tracked: &Arc<Tracked>, state: &mut State, now: Duration) -> std::io::Result<Duration> {
        if state.is_fenced() || tracked.is_refused {
            state.staged_request = tracked.requested.load(Ordering::Acquire);
            return Ok(now + Duration::from_secs(1));
        }
        if state.wants_maintenance(&self.settings, now) && !tracked.maintaining.swap(true, Ordering::AcqRel) {
            self.maintaining.push(tracked.clone());
        }
        if state.is_read {
            return Ok(now + TICK);
        }
        self.try_again_early(state, now);
        let asked = state.staged_request < tracked.requested.load(Ordering::Acquire);
        let stalled = state.stall.is_some();
        // What finds no room finds none for asking more often.
        let may_stage = !stalled || now >= state.next_stage;
        let Some(files) = &state.files else {
            let opens = may_stage && (asked || now >= state.next_stage);
            if opens {
                self.push_stage(tracked, Work::Small);
            }
            // Once it is opened, somebody may wait for what is held.
            return Ok(now + if opens { TICK } else { self.settings.interval });
        };
        state.looks = state.looks.wrapping_add(1);
        // Without a WAL there is nothing else to look at: its coming is what must be seen in time.
        let without_wal = state.position.is_none_or(|position| position.wal.is_none());
        let idle = now >= state.last_change + ACTIVE;
        if idle
            && state.looks.is_multiple_of(LOOKS_PER_IDENTITY)
            && let Some(pin) = &mut state.pin
        {
            pin.settle()?;
        }
        let is_current = if without_wal || idle && state.looks.is_multiple_of(LOOKS_PER_IDENTITY) {
            files.is_current()?
        } else {
            !idle || files.has_name()?
        };
        let is_elsewhere = || state.pin.as_ref().map_or(Ok(false), |pin| is_used_elsewhere(files, &**pin));
        if !is_current || is_elsewhere()? {
            // Somebody has opened it, and may well make check points.
            state.last_change = now;
            state.dirty = true;
            self.push_stage(tracked, state.work(None));
            return Ok(now + TICK);
        }
        if let Some(pin) = &mut state.pin {
            pin.witness()?;
        }
        let index = files.wal_index()?;
        let unread = if index.is_none() { files.wal_state()? } else { None };
        if index.is_some() && index != state.seen {
            // The counter alone does not tell: after a recovery it may come to the same number again.
            let end = |index: WalIndex| (index.changes, index.life, index.salts, index.frames, index.checksum);
            let committed = index.map(end) != state.seen.map(end);
            state.seen = index;
            state.last_change = now;
            if committed || state.position.is_none() {
                state.dirty = true;
                if !index.is_some_and(|index| state.has_staged(&index)) {
                    state.waiting.seen(now);
                }
                if state.may_keep_frames(now) {
                    state.keep_frames(index.as_ref())?;
                }
            }
        }
        match index {
            Some(_) => state.unread = Unread::default(),
            None if state.unread.may_have_changed(unread) => {
                state.last_change = now;
                state.dirty = true;
                state.waiting.seen(now);
            }
            None => {}
        }
        let active = now < state.last_change + ACTIVE;
        let pinned = state.held() >= Hold::Frames;
        let waits = match &state.pin {
            Some(pin) if active && pinned => pin.checkpointer_waits()?,
            _ => false,
        };
        let staged = index.is_some_and(|index| state.has_staged(&index));
        tracked.is_awaited.store(waits || state.is_awaited(now), Ordering::Release);
        if waits {
            state.last_wait = now;
            // Also where nothing new is seen: whether all of it is staged must be found out before it may go on.
            state.dirty |= !staged;
        }
        // Where nothing can be staged nobody is kept waiting for it, nor does the application's WAL fill a disk that may be the same: what
        // is lost sight of is found by comparing.
        let overgrown = state.is_overgrown(index.as_ref(), self.settings.wal_bytes_max);
        let mut is_urgent = (waits || overgrown) && !staged;
        if (staged || stalled) && pinned {
            let full = index.is_some_and(|index| index.frames >= RESTART_FRAMES);
            if waits || full || overgrown {
                if let Some(pin) = &mut state.pin {
                    pin.hold(Hold::Presence, None)?;
                }
                self.totals.yields.fetch_add(1, Ordering::Relaxed);
            }
        } else if is_urgent && self.let_go_unstaged(tracked, state, index.as_ref(), waits, now)? {
            is_urgent = false;
        }
        let snapshot = state.wants_snapshot(now) && state.queue.is_empty();
        // Whoever asks again and again while the store is away has no more staged for that.
        let has_room = state.queue.len() < MAX_QUEUE;
        let room = state.queue.is_empty() || is_urgent && has_room;
        let asked_for_changes = state.changes_request < tracked.requested.load(Ordering::Acquire);
        let wanted = asked_for_changes && has_room || state.dirty && room && (is_urgent || now >= state.next_stage);
        if may_stage && (wanted || snapshot) && state.may_stage(tracked.uploading.load(Ordering::Acquire), now) {
            if wanted {
                self.push_stage(tracked, state.work_with_restart(index.as_ref(), is_urgent));
            }
            if snapshot {
                self.push_stage(tracked, state.work_of_reading_whole(index.as_ref()));
            }
        }
        if !state.wants_snapshot(now) {
            // None is due any more that who asked would wait for.
            state.staged_request = state.staged_request.max(state.changes_request);
        }
        if now >= state.next_stage {
            self.push_upload(tracked, state);
        }
        Ok(now + if asked { TICK } else { state.interval(&self.settings, now) })
    }

    /// Where the store failed for a database, and has taken something since, or may.
    pub(super) fn try_again_early(&self, state: &mut State, now: Duration) {
        if matches!(state.phase, Phase::Failing(_))
            && now < state.next_stage
            && self.recovery.is_worth_a_try(state.failed, now)
        {
            state.next_stage = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_does_not_ask_again_for_a_snapshot_that_was_staged_while_it_was_looked_for() {
        let state = |snapshot_txid| State { snapshot_txid, next_snapshot: Duration::from_secs(9), ..State::default() };
        let mut mended = state(7);
        mended.mend_hole(5);
        assert_eq!((mended.next_snapshot, mended.snapshot_txid), (Duration::from_secs(9), 7));
        let mut holed = state(5);
        holed.mend_hole(5);
        assert_eq!((holed.next_snapshot, holed.snapshot_txid), (Duration::ZERO, 0));
    }
}
