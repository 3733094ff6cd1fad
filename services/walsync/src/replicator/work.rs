//! What stagers do.

use super::phase::{Phase, Waits};
use super::risk::Waiting;
use super::staging::Work;
use super::tracked::{MAX_QUEUE, Outgoing, Predecessor, RESTART_FRAMES, Stall, State, Tracked};
use super::whole::Reading;
use super::{Shared, wheel::TICK};
use crate::clock::CLOCK_STEP_MILLIS;
use crate::compaction::Levels;
use crate::database::DatabaseFiles;
use crate::difference::PageChecksums;
use crate::pin::{Hold, Pin, PinKind};
use crate::position::resume;
use crate::source::{OTHER_WAL, Since, Source, SourceError, Stamp, refuse_other_wal, stage_changes};
use crate::store::{StoreError, backoff};
use ltx::SNAPSHOT_LEVEL;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Until a database that cannot be replicated is looked at again.
const REFUSED: Duration = Duration::from_secs(5);

const ELSEWHERE: &str = "an application has it open, and its WAL is not here: it knows the file by another name (a hard link, or a mount of the file \
     alone), so watch the folder of that; or -wal and -shm were removed, so have it close the database, without killing it";

/// Until what found no room, on a disk or in a WAL, is tried again: 1 s, 2 s, … 30 s.
pub(super) fn until_room(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.saturating_sub(1).min(5)).min(Duration::from_secs(30))
}

/// Why a database is left to somebody else.
const WATCHED: &str = "another walsync watches it, and of two that write into its replica each stops the other: end one of them, or, where that \
                       one replicates into another place, say --elsewhere";

/// From when on somebody who is in the way is told of.
pub(super) const BUSY_LONG: Duration = Duration::from_secs(5);

/// How long a writer may take to check point and restart its WAL, while the WAL is not ours.
const HAND_OVER: Duration = Duration::from_millis(200);
/// Between two looks meanwhile: a WAL that is restarted twice is lost.
const HAND_OVER_LOOK: Duration = Duration::from_micros(500);

/// How far a staging has come.
pub(super) enum Turn {
    /// What is committed is staged; `with_snapshot`: a snapshot, if one was due, had its turn as well.
    Done { with_snapshot: bool },
    /// The replica is to be read first, at this transaction, while nobody holds the state.
    Compare(u64),
    /// The whole database is to be read, while nobody holds the state.
    Read(Box<Reading>),
    /// It takes longer than who tried it may take.
    Later(Work),
}

/// Why a staging came to nothing.
pub(super) enum Failure {
    Source(SourceError),
    /// Reading the whole database was given up for somebody else.
    GaveWay(&'static str),
    Store(StoreError),
    /// The staging folder does not take so many bytes, and why.
    NoRoom(u64, String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error.no_room() {
            Some(no_room) => Failure::NoRoom(no_room.bytes, no_room.to_string()),
            None => Failure::Source(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Source(error.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

/// The transaction ID after this one.
pub(super) fn next_txid(last: Option<u64>) -> Result<u64, SourceError> {
    let last = last.unwrap_or(0);
    if last < ltx::TXID_MAX {
        return Ok(last + 1);
    }
    Err(SourceError::Refused(format!(
        "its replica ends with TXID {last}, the last one that there is, as nobody's who counts from 1: give the database another place"
    )))
}

impl Shared {
    /// Stages what is committed, if that takes no more than such work; otherwise says what it takes.
    pub(super) fn stage(&self, tracked: &Arc<Tracked>, work: Work) -> Option<Work> {
        let mut state = tracked.lock_for(work)?;
        let request = tracked.requested.load(Ordering::Acquire);
        let mut turn = self.has_room(&state).and_then(|()| self.stage_locked(tracked, &mut state, work));
        if let Ok(Turn::Compare(txid)) = turn {
            state.comparing = true;
            drop(state);
            let checksums = PageChecksums::of(&tracked.replica, txid);
            state = tracked.lock();
            state.comparing = false;
            if let Err(why) = &checksums {
                tracing::info!(path = %tracked.path.display(), %why, "cannot be compared with its replica");
                if why.is_of_a_broken_replica() {
                    state.next_snapshot = Duration::ZERO;
                }
            }
            state.compared = Some((txid, checksums.ok()));
            turn = self.stage_locked(tracked, &mut state, work);
        }
        if let Ok(Turn::Read(reading)) = turn {
            self.push_upload(tracked, &mut state);
            state.is_read = true;
            drop(state);
            let image = self.read_whole(tracked, &reading);
            state = tracked.lock();
            state.is_read = false;
            turn = self.was_read(tracked, &mut state, *reading, image);
        }
        let now = self.clock.monotonic();
        let path = tracked.path.display();
        let mut needed = None;
        match turn {
            Ok(Turn::Done { with_snapshot }) => {
                match state.let_pass(now) {
                    Ok(true) => {
                        state.last_wait = now;
                        self.totals.yields.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(false) => {}
                    Err(error) => tracing::debug!(%path, %error, "cannot look"),
                }
                state.next_stage = now + self.settings.interval.max(self.allowance.wait(now));
                state.answer(request, with_snapshot);
                if state.let_go.take().is_some() {
                    tracing::info!(%path, "what was let go of is found, and staged");
                }
                if state.stall.take().is_some() {
                    tracing::info!(%path, "there is room again: what was committed is staged");
                }
                // While files wait for a store that fails, it goes on failing. A database whose first files wait is running all the
                // same: one that seems to wait is taken for one that has nothing to make durable.
                let goes_on_failing = matches!(state.phase, Phase::Failing(_)) && !state.queue.is_empty();
                if !goes_on_failing {
                    state.enter(&tracked.path, Phase::Running);
                }
                state.busy = None;
            }
            // It was compared at another point: again, from the start.
            Ok(Turn::Compare(_) | Turn::Read(_)) => state.next_stage = now + TICK,
            Ok(Turn::Later(work)) => needed = Some(work),
            Err(Failure::Source(SourceError::Busy(why)) | Failure::GaveWay(why)) => {
                tracing::debug!(%path, why, "busy");
                let since = *state.busy.get_or_insert(now);
                state.next_stage = now + TICK;
                // What is in the way for long is nothing that passes in a moment.
                if now >= since + BUSY_LONG {
                    state.waiting.seen(since);
                    state.enter(&tracked.path, Phase::Waiting(Waits::Busy(why)));
                    state.next_stage = now + self.settings.interval;
                }
            }
            Err(Failure::Source(error)) if let Some(waits) = error.has_nothing() => {
                state.forget_files();
                state.enter(&tracked.path, Phase::Waiting(waits));
                state.next_stage = now + self.settings.interval;
                state.answer(request, true);
            }
            Err(Failure::Source(error)) => {
                // What is not replicated is at risk for as long as that lasts.
                let waiting = state.waiting;
                state.forget_files();
                state.waiting = waiting;
                state.waiting.seen(now);
                state.enter(&tracked.path, Phase::Refused(error.to_string()));
                state.next_stage = now + REFUSED;
                state.answer(request, true);
            }
            Err(Failure::Store(error)) => self.store_failed(tracked, &mut state, &error),
            Err(Failure::NoRoom(bytes, why)) => {
                self.totals.without_room.fetch_add(1, Ordering::Relaxed);
                let tries = state.stall.as_ref().map_or(1, |stall| stall.tries.saturating_add(1));
                if tries == 1 {
                    tracing::error!(%path, why, "what is committed is not staged, and not durable; tried again");
                }
                state.next_stage = now + until_room(tries);
                state.stall = Some(Stall { why, bytes, tries });
            }
        }
        // What is read whole needs no frames of before, and may wait long for its turn: no check point does that with it.
        if let State { position: None, pin: Some(pin), .. } = &mut *state
            && pin.held() > Hold::Presence
            && let Err(error) = pin.hold(Hold::Presence, None)
        {
            tracing::debug!(%path, %error, "cannot let go");
        }
        // The next time it would be old. Where a check point was in the way a moment ago, it still holds.
        if state.position.is_some() || state.files.is_none() {
            state.compared = None;
        }
        self.push_upload(tracked, &mut state);
        needed
    }

    /// Whether what found no room would find it now: to read the replica and the database for nothing again would cost much.
    fn has_room(&self, state: &State) -> Result<(), Failure> {
        let Some(stall) = &state.stall else { return Ok(()) };
        self.arena.has_room(stall.bytes).map_err(|_| Failure::NoRoom(stall.bytes, stall.why.clone()))
    }

    pub(super) fn store_failed(&self, tracked: &Tracked, state: &mut State, error: &StoreError) {
        self.totals.failures.fetch_add(1, Ordering::Relaxed);
        state.failures = state.failures.saturating_add(1);
        state.fails_for_good = matches!(error, StoreError::Permanent(_));
        state.enter(&tracked.path, Phase::Failing(error.to_string()));
        state.failed = self.clock.monotonic();
        state.next_stage = state.failed + backoff(state.failures, rand::random());
    }

    /// As far as it goes while the state is held.
    fn stage_locked(&self, tracked: &Tracked, state: &mut State, work: Work) -> Result<Turn, Failure> {
        if state.is_fenced() {
            return Ok(Turn::Done { with_snapshot: true });
        }
        if state.files.is_none() && work < Work::Small {
            return Ok(Turn::Later(Work::Small));
        }
        self.open(tracked, state)?;
        if state.last_txid.is_none() && work >= Work::Small {
            tracked.asks(Some(self.clock.monotonic()));
            let begun = self.begin(tracked, state);
            tracked.asks(None);
            begun?;
        }
        let State { files: Some(files), pin: Some(pin), .. } = state else {
            return Ok(Turn::Done { with_snapshot: true });
        };
        pin.witness()?;
        refuse_used_elsewhere(files, &**pin)?;
        let index = files.wal_index()?;
        refuse_other_wal(&**files, index.as_ref(), || pin.is_in_use())?;
        let needed = state.work(index.as_ref());
        if needed > work {
            return Ok(Turn::Later(needed));
        }
        if !state.keep_frames(index.as_ref())? {
            return Err(SourceError::Busy("no read mark is free").into());
        }
        let now = self.clock.monotonic();
        self.changes(tracked, state)?;
        if work > Work::Few && state.queue.len() < MAX_QUEUE {
            self.hand_over(tracked, state)?;
        }
        let snapshot = state.wants_snapshot(now);
        if state.position.is_none() || snapshot {
            match state.work_of_reading_whole(index.as_ref()) {
                needed if needed <= work => {}
                needed if state.position.is_none() => return Ok(Turn::Later(needed)),
                // With the next look: what is committed is staged.
                _ => return Ok(Turn::Done { with_snapshot: false }),
            }
            return match self.begin_to_read(state, snapshot, now) {
                Err(failure) => self.after_reading(tracked, state, snapshot, now, Err(failure)),
                turn => turn,
            };
        }
        Ok(Turn::Done { with_snapshot: true })
    }

    /// Stages what was committed since, if that can be proved to be all.
    pub(super) fn changes(&self, tracked: &Tracked, state: &mut State) -> Result<(), Failure> {
        loop {
            let stamp = next_txid(state.last_txid).map(|next| self.stamp(next, state));
            let State { files: Some(files), position: Some(position), .. } = state else { return Ok(()) };
            match stage_changes(&**files, position, stamp?, &self.arena)? {
                Since::Nothing { counter } => {
                    position.changes = counter;
                    state.dirty = false;
                    state.waiting.staged();
                    return Ok(());
                }
                Since::Staged(staged) => {
                    // Where the WAL was restarted, what came before that goes first. Who asks is answered when the rest is staged, too.
                    let is_all = !staged.is_before_restart;
                    self.allowance.spend(self.clock.monotonic());
                    state.push(0, *staged);
                    if is_all {
                        return Ok(());
                    }
                }
                Since::Lost(why) => {
                    tracing::warn!(path = %tracked.path.display(), why, "the whole database is read again");
                    state.position = None;
                    return Ok(());
                }
            }
        }
    }

    /// A writer that never pauses never has everything staged when we look, and its WAL would grow for ever. Lets go for as long as
    /// it takes to check point and restart it, and stages at once what came before that, while it still lies behind our place.
    fn hand_over(&self, tracked: &Tracked, state: &mut State) -> Result<(), Failure> {
        let State { files: Some(files), pin: Some(pin), position: Some(position), .. } = state else { return Ok(()) };
        let Some(index) = files.wal_index()?.filter(|index| index.frames >= RESTART_FRAMES) else { return Ok(()) };
        // Without a pause of its own, and with what the proof takes.
        if position.changes.is_none_or(|changes| changes.life != index.life || changes.changes == index.changes)
            || pin.held() < Hold::Frames
        {
            return Ok(());
        }
        pin.hold(Hold::Presence, None)?;
        self.totals.yields.fetch_add(1, Ordering::Relaxed);
        let end = self.clock.monotonic() + HAND_OVER;
        let mut now = Some(index);
        while now.is_none_or(|now| now.salts == index.salts) && self.clock.monotonic() < end {
            std::thread::sleep(HAND_OVER_LOOK);
            now = files.wal_index()?;
        }
        // Where nobody restarted it, check points have at least copied most of it: the next time is quicker.
        state.keep_frames(now.as_ref())?;
        self.changes(tracked, state)
    }

    /// Time does not go back within a replica, but where the machine's clock was far ahead: to wait until it has caught up would give all
    /// that is committed meanwhile one time of the future.
    pub(super) fn stamp(&self, txid: u64, state: &State) -> Stamp {
        let last_millis = state.last_millis;
        let now = self.clock.unix_millis();
        let is_step = now < last_millis.saturating_sub(CLOCK_STEP_MILLIS);
        let timestamp_millis = if is_step { now } else { now.max(last_millis) };
        let (node_id, follows) = (self.node_id, state.last_tag);
        Stamp { min_txid: txid, max_txid: txid, timestamp_millis, node_id, follows }
    }

    /// Opens the files, or others where they were replaced.
    fn open(&self, tracked: &Tracked, state: &mut State) -> Result<(), Failure> {
        if let Some(files) = &state.files
            && files.is_current()?
        {
            return Ok(());
        }
        let files = DatabaseFiles::open(&tracked.path)?;
        crate::source::page_size(files.database())?;
        let is_new = match &state.files {
            Some(before) => !before.is_same_database(&files),
            // What we hold ourselves would be taken for another's.
            None => state.pin.is_none(),
        };
        let is_anothers = is_new && self.settings.stands_back && files.is_watched()? && !self.has_another_name(tracked);
        if is_anothers && !tracked.replica.files()?.is_empty() {
            // When our turn comes, the replica has what the other one sent.
            if state.queue.is_empty() && !tracked.uploading.load(Ordering::Acquire) {
                state.last_txid = None;
            }
            return Err(SourceError::Refused(WATCHED.into()).into());
        }
        state.refuse_nameless(&files)?;
        let (kind, why) = files.pin_kind(self.settings.pin)?;
        self.open_files.take(&mut state.place, kind)?;
        if kind == PinKind::ReadTransaction {
            // Its locks are the process's: those of the one before would go with it.
            state.pin = None;
            if state.pin_kind != Some(kind) {
                let (path, why) = (tracked.path.display(), why.as_deref().unwrap_or("so it was set"));
                tracing::info!(%path, why, "frames are held by a read transaction, not by locks");
            }
        }
        state.pin_kind = Some(kind);
        let mut pin = files.pin(kind)?;
        if !pin.hold(Hold::Presence, None)? {
            return Err(SourceError::Busy("somebody has locked it whole").into());
        }
        if state.files.as_ref().is_none_or(|before| !before.is_same_database(&files)) {
            state.position = None;
        }
        state.seen = None;
        state.dirty = true;
        state.waiting.seen(self.clock.monotonic());
        state.files = Some(Arc::new(files));
        state.pin = Some(pin);
        Ok(())
    }

    /// Asks the store where the replica ends, and whether the WAL still has that place.
    fn begin(&self, tracked: &Tracked, state: &mut State) -> Result<(), Failure> {
        tracked.replica.settle()?;
        let files = tracked.replica.files()?;
        state.beginnings = state.beginnings.wrapping_add(1);
        state.predecessor = files.is_empty().then_some(Predecessor::Unknown);
        let newest = files.iter().max_by_key(|file| (file.name.max_txid, std::cmp::Reverse(file.level)));
        let whole = files.iter().filter(|file| file.name.is_snapshot());
        let snapshot = whole.max_by_key(|file| file.name.max_txid);
        if let Some(newest) = newest {
            state.last_millis = newest.modified_millis;
            match tracked.replica.header(newest) {
                Ok(header) => {
                    state.predecessor = Some(Predecessor::Node(header.node_id));
                    state.last_millis = header.timestamp_millis;
                    state.last_page_size = header.page_size;
                    if let Some(files) = &state.files
                        && let Some(wal) = files.wal()
                    {
                        state.position = resume(wal, files.wal_index()?.as_ref(), &header)?;
                    }
                }
                // Without its page size what follows is a snapshot, which mends it.
                Err(StoreError::Damaged(error)) => {
                    tracing::error!(path = %tracked.path.display(), %error, "the newest file is damaged: a snapshot follows");
                }
                Err(error) => return Err(error.into()),
            }
            tracing::info!(
                path = %tracked.path.display(), txid = newest.name.max_txid, resumed = state.position.is_some(),
                "the replica is there"
            );
        }
        let age = match snapshot {
            Some(snapshot) => match tracked.replica.header(snapshot) {
                Ok(header) => {
                    let age = self.clock.unix_millis().saturating_sub(header.timestamp_millis);
                    Duration::from_millis(u64::try_from(age).unwrap_or(0))
                }
                Err(StoreError::Damaged(error)) => {
                    tracing::error!(path = %tracked.path.display(), %error, "the newest snapshot is damaged: another one follows");
                    if newest.is_some_and(|newest| newest.name.max_txid == snapshot.name.max_txid) {
                        // Another one of where we stand would have its name, and be taken for another writer's: it is of the next
                        // transaction, as where the newest file is damaged, and comes at once.
                        (state.position, state.last_page_size) = (None, 0);
                        Duration::ZERO
                    } else {
                        self.settings.snapshot_interval
                    }
                }
                Err(error) => return Err(error.into()),
            },
            None => self.settings.snapshot_interval,
        };
        state.next_snapshot =
            self.clock.monotonic().saturating_add(self.settings.snapshot_interval.saturating_sub(age));
        state.snapshot_txid = snapshot.map_or(0, |snapshot| snapshot.name.max_txid);
        state.durable_txid = newest.map_or(0, |newest| newest.name.max_txid);
        state.durable_millis = state.last_millis;
        state.last_txid = Some(state.durable_txid);
        (state.began_after, state.last_tag) = (state.durable_txid, 0);
        state.levels = Levels::new(&files, self.settings.levels.len(), self.clock.monotonic());
        Ok(())
    }
}

/// Whether somebody has the database file open, and its WAL and index are not here: who knows it by another name has them beside that. Every
/// connection that reads locks the file, and has both.
pub(super) fn is_used_elsewhere(files: &DatabaseFiles, pin: &dyn Pin) -> std::io::Result<bool> {
    Ok(files.is_alone() && pin.is_database_in_use()?)
}

/// Refuses what is used elsewhere.
fn refuse_used_elsewhere(files: &DatabaseFiles, pin: &dyn Pin) -> Result<(), SourceError> {
    if !is_used_elsewhere(files, pin)? {
        return Ok(());
    }
    // Who has just opened it makes its index a moment later.
    std::thread::sleep(TICK);
    if !files.is_current()? || !is_used_elsewhere(files, pin)? {
        return Err(SourceError::Busy("somebody has just opened it"));
    }
    Err(SourceError::Refused(ELSEWHERE.into()))
}

impl SourceError {
    /// What is waited for where there is nothing yet to replicate.
    fn has_nothing(&self) -> Option<Waits> {
        match self {
            SourceError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Waits::NoFile),
            SourceError::Empty => Some(Waits::Empty),
            _ => None,
        }
    }
}

impl State {
    pub(super) fn push(&mut self, level: u8, staged: crate::source::Staged) {
        let max_txid = staged.file.header.max_txid;
        if staged.file.header.is_snapshot() {
            self.snapshot_txid = max_txid;
        }
        // A snapshot of where we stand moves nothing.
        let moves = level != SNAPSHOT_LEVEL || self.last_txid.is_some_and(|last| max_txid > last);
        if moves {
            self.last_page_size = staged.file.header.page_size;
            self.position = Some(staged.position);
            self.last_millis = staged.file.header.timestamp_millis;
            self.last_txid = Some(max_txid);
            self.last_tag = crate::chain::tag(staged.file.checksum);
            self.dirty = staged.is_before_restart;
        }
        let since = if moves { self.waiting.staged() } else { None };
        if staged.is_before_restart {
            since.into_iter().for_each(|since| self.waiting.seen(since));
        }
        let outgoing = Outgoing { level, since, file: staged.file };
        if moves {
            self.queue.push_back(outgoing);
        } else {
            self.snapshot = Some(outgoing);
        }
    }

    /// Refuses a database whose application goes on with a WAL that has no name any more, whether its index has one or not: the index that it was
    /// opened with tells whether somebody uses it. SQLite removes neither while somebody does. A lost index alone is no harm.
    fn refuse_nameless(&mut self, now: &DatabaseFiles) -> Result<(), Failure> {
        if self.nameless.is_none()
            && let (Some(files), Some(pin)) = (&self.files, &self.pin)
            && files.is_same_database(now)
            && (files.has_lost_wal(now) || files.has_lost_index(now))
            && pin.is_in_use()?
        {
            let kind = pin.kind();
            // With a lock of ours on its index no close would be the last.
            self.pin = None;
            self.nameless = self.files.take().map(|files| (files, kind));
        }
        let Some((files, kind)) = &self.nameless else { return Ok(()) };
        if !files.is_same_database(now) || !files.is_index_in_use(*kind)? {
            self.nameless = None;
        } else if files.has_lost_wal(now) {
            return Err(SourceError::Refused(OTHER_WAL.to_owned()).into());
        }
        Ok(())
    }

    pub(super) fn forget_files(&mut self) {
        (self.files, self.pin, self.seen, self.position, self.let_go) = (None, None, None, None, None);
        self.place = None;
        // Nobody knows any more whether something waits.
        self.waiting = Waiting::default();
    }
}
