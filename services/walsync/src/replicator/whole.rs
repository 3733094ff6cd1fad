//! Reading a whole database, which may take minutes. Nobody holds its state meanwhile: what is staged is uploaded, and beside a snapshot what is
//! committed goes on being staged, by who reads it. Nobody else touches what is held.

use super::Shared;
use super::tracked::{State, Tracked};
use super::work::{Failure, Turn, next_txid, until_room};
use super::yielding::Courtesy;
use crate::database::DatabaseFiles;
use crate::difference::PageChecksums;
use crate::pin::Hold;
use crate::position::Position;
use crate::source::{GaveWay, Image, Source, SourceError, Stamp, stage_image};
use crate::wal_index::WalIndex;
use ltx::SNAPSHOT_LEVEL;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two tries of a snapshot that finds no room. What is committed meanwhile goes on being sent.
const SNAPSHOT_WITHOUT_ROOM: Duration = Duration::from_secs(300);

/// A database that is to be read whole.
pub(super) struct Reading {
    /// These are current for as long as they are held.
    files: Arc<DatabaseFiles>,
    index: Option<WalIndex>,
    level: u8,
    stamp: Stamp,
    at: Option<Position>,
    /// What the replica has at the transaction before, as far as that is known.
    compared: Option<(u64, Option<PageChecksums>)>,
    is_snapshot: bool,
    began: Duration,
    courtesy: Courtesy,
    /// [`State::beginnings`] then.
    beginning: u32,
}

impl Shared {
    /// Makes ready to read the whole database: as a snapshot of where we stand, or as the next transaction.
    ///
    /// A snapshot has the time of the commit that it stands for, not its own: it may be the last file that tells it.
    pub(super) fn begin_to_read(&self, state: &mut State, is_snapshot: bool, now: Duration) -> Result<Turn, Failure> {
        let courtesy = Courtesy::of(state, self.settings.wal_bytes_max);
        let State { files: Some(files), pin: Some(pin), .. } = state else {
            return Err(SourceError::Busy(GaveWay::Gone.why()).into());
        };
        let files = files.clone();
        let last = state.last_txid.unwrap_or(0);
        let next = if is_snapshot { last } else { next_txid(Some(last))? };
        let resized = last > 0 && crate::source::page_size(files.database())? != state.last_page_size;
        // What waits in the queue is not in the replica, with which there is then nothing to compare.
        let compares = !(is_snapshot || resized || last == 0);
        let is_compared = state.compared.as_ref().is_some_and(|(txid, _)| *txid == last);
        if compares && !is_compared && state.durable_txid == last {
            pin.hold(Hold::Presence, None)?;
            return Ok(Turn::Compare(last));
        }
        let index = files.wal_index()?;
        if !pin.hold(Hold::Image, index.as_ref())? {
            return Err(SourceError::Busy("a check point is running").into());
        }
        let (level, stamp, at) = if is_snapshot {
            let timestamp_millis = state.last_millis;
            let stamp = Stamp { min_txid: 1, max_txid: last, timestamp_millis, node_id: self.node_id, follows: 0 };
            // Whoever wants another one from now on may mean one of what is committed since.
            state.next_snapshot = now.saturating_add(self.settings.snapshot_interval);
            (SNAPSHOT_LEVEL, stamp, state.position)
        } else if resized {
            // Pages of two sizes cannot follow each other in one restore, nor be merged: what comes next follows a snapshot alone.
            (SNAPSHOT_LEVEL, Stamp { min_txid: 1, follows: 0, ..self.stamp(next, state) }, None)
        } else {
            // The first one as well: Litestream takes the end of level 0 for that of the replica.
            (0, self.stamp(next, state), None)
        };
        let compared = if compares && is_compared { state.compared.take() } else { None };
        let reading = Reading {
            files,
            index,
            level,
            stamp,
            at,
            compared,
            is_snapshot,
            began: now,
            courtesy,
            beginning: state.beginnings,
        };
        Ok(Turn::Read(Box::new(reading)))
    }

    pub(super) fn read_whole(&self, tracked: &Arc<Tracked>, reading: &Reading) -> Result<Image, SourceError> {
        let Reading { files, stamp, at, courtesy, .. } = reading;
        let has = reading.compared.as_ref().and_then(|(_, has)| has.as_ref());
        let gives_way = || match self.stop.load(Ordering::Acquire) {
            true => Ok(Some(GaveWay::Stops)),
            false => self.meanwhile(tracked, files, courtesy),
        };
        stage_image(&**files, *stamp, at.as_ref(), has, &self.arena, gives_way)
    }

    /// What is to be done now and then while a database is read whole; whether to end that.
    fn meanwhile(
        &self,
        tracked: &Arc<Tracked>,
        files: &DatabaseFiles,
        courtesy: &Courtesy,
    ) -> io::Result<Option<GaveWay>> {
        let mut state = tracked.lock();
        let Some(pin) = &state.pin else { return Ok(Some(GaveWay::Gone)) };
        if let Some(why) = courtesy.gives_way(files, &**pin)? {
            return Ok(Some(why));
        }
        let now = self.clock.monotonic();
        if let Some(index) = files.wal_index()?
            && state.position.is_some()
            && !state.has_staged(&index)
        {
            state.dirty = true;
            state.waiting.seen(now);
        }
        self.try_again_early(&mut state, now);
        if now < state.next_stage {
            return Ok(None);
        }
        let is_uploading = tracked.uploading.load(Ordering::Acquire);
        if state.dirty && state.position.is_some() && state.queue.is_empty() && state.may_stage(is_uploading, now) {
            state.next_stage = now + self.settings.interval.max(self.allowance.wait(now));
            if let Err(Failure::NoRoom(..)) = self.changes(tracked, &mut state) {
                // Who stages next tells of it.
                tracing::debug!(path = %tracked.path.display(), "no room for what is committed");
            }
        }
        self.push_upload(tracked, &mut state);
        Ok(None)
    }

    /// Takes over what was read.
    pub(super) fn was_read(
        &self,
        tracked: &Tracked,
        state: &mut State,
        reading: Reading,
        image: Result<Image, SourceError>,
    ) -> Result<Turn, Failure> {
        let (is_snapshot, began) = (reading.is_snapshot, reading.began);
        // Somebody else writes its replica since.
        if state.is_fenced() {
            return Ok(Turn::Done { with_snapshot: true });
        }
        if reading.beginning != state.beginnings || state.last_txid.is_none() {
            return Err(SourceError::Busy("its place was taken over anew").into());
        }
        let result = self.take_over(tracked, state, reading, image);
        self.after_reading(tracked, state, is_snapshot, began, result)
    }

    fn take_over(
        &self,
        tracked: &Tracked,
        state: &mut State,
        reading: Reading,
        image: Result<Image, SourceError>,
    ) -> Result<(), Failure> {
        // From here on the database file may change again.
        if let Some(pin) = &mut state.pin {
            pin.hold(Hold::Frames, reading.index.as_ref())?;
        }
        let has = reading.compared.as_ref().and_then(|(_, has)| has.as_ref());
        let page_size = has.map(PageChecksums::page_size);
        state.compared = reading.compared.or_else(|| state.compared.take());
        let image = match image {
            Err(SourceError::GaveWay(why)) => return Err(self.give_way(tracked, state, why)),
            image => image?,
        };
        if !reading.is_snapshot {
            let is_compared = page_size == Some(image.staged.file.header.page_size);
            let total = if is_compared { &self.totals.compared } else { &self.totals.anchors };
            total.fetch_add(1, Ordering::Relaxed);
            let (pages, of) = (image.pages, image.staged.file.header.commit);
            tracing::info!(path = %tracked.path.display(), pages, of, is_compared, "the whole database was read");
        }
        (state.gave_way, state.outgrown) = (0, 0);
        self.allowance.spend(self.clock.monotonic());
        state.push(reading.level, image.staged);
        Ok(())
    }

    /// A snapshot that cannot be taken is late, and fails nothing else.
    pub(super) fn after_reading(
        &self,
        tracked: &Tracked,
        state: &mut State,
        is_snapshot: bool,
        began: Duration,
        result: Result<(), Failure>,
    ) -> Result<Turn, Failure> {
        let path = tracked.path.display();
        match result {
            Ok(()) => {
                if state.last_txid == Some(1) {
                    state.next_snapshot = began.saturating_add(self.settings.snapshot_interval);
                }
                if is_snapshot || state.last_txid == Some(1) {
                    state.snapshot_late = None;
                }
                Ok(Turn::Done { with_snapshot: true })
            }
            Err(Failure::NoRoom(_, why)) if is_snapshot => {
                self.totals.without_room.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%path, why, "no snapshot; what is committed is sent all the same");
                state.snapshot_is_late(&tracked.path, began, SNAPSHOT_WITHOUT_ROOM, why);
                Ok(Turn::Done { with_snapshot: true })
            }
            // What is committed is staged already: who waits for that does not wait for a snapshot.
            Err(Failure::Source(SourceError::Busy(why)) | Failure::GaveWay(why)) if is_snapshot => {
                let retry = if state.outgrown > 0 { until_room(state.outgrown) } else { Duration::ZERO };
                let wait = self.settings.interval.max(retry);
                state.snapshot_is_late(&tracked.path, began, wait, why.to_owned());
                Ok(Turn::Done { with_snapshot: true })
            }
            Err(failure) => {
                if is_snapshot {
                    state.next_snapshot = began;
                }
                Err(failure)
            }
        }
    }
}
