//! Which threads stage what. A check point may wait for the staging of what it would copy, and must not wait for that of other databases: what
//! takes long is done by threads of its own, and so is what takes longest.
//!
//! A database may be in several queues. Whoever comes to one that somebody is at work on who takes longer leaves it to that one, who gives way to
//! check points.

use super::shown::Locked;
use super::tracked::{RESTART_FRAMES, State, Tracked};
use super::{Queue, Shared};
use crate::position::Position;
use crate::source::Source;
use crate::wal_index::WalIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Threads for each kind of work.
pub(super) const STAGERS_EACH: usize = 2;

/// Of a WAL so many bytes are staged within some milliseconds.
const FEW_BYTES: u64 = 1 << 20;
/// A database of so many bytes is read within tenths of a second.
const SMALL_BYTES: u64 = 64 << 20;

/// Who reads large databases leaves processors to the application, and to those who stage what a check point waits for.
const NICE_OF_LARGE: i32 = 5;

/// Who looks, uploads or merges has the state for a moment only.
const MOMENT: Duration = Duration::from_micros(50);

/// What is to be done for a database, by how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Staging a few frames: milliseconds.
    Few,
    /// Staging many, or waiting for a writer that never pauses to restart its WAL: as long as a WAL takes.
    Many,
    /// Asking the store where the replica ends, or reading a small database whole, with its replica: as long as a store takes for an answer.
    Small,
    /// The same of a large one: minutes.
    Large,
}

impl Work {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// What it takes to stage what came since `position`, and how much there may be.
    fn of_changes(position: &Position, index: Option<&WalIndex>) -> Work {
        let Some(index) = index else { return Work::Few };
        let before = position.wal.filter(|wal| wal.header.salts() == index.salts).map_or(0, |wal| wal.frames);
        if index.bytes_of(index.frames.saturating_sub(before)) > FEW_BYTES { Work::Many } else { Work::Few }
    }
}

impl State {
    /// What staging what is committed takes.
    pub(super) fn work(&self, index: Option<&WalIndex>) -> Work {
        match (&self.files, self.last_txid, &self.position) {
            (None, ..) | (_, None, _) => Work::Small,
            (_, _, None) => self.work_of_reading_whole(index),
            (_, _, Some(position)) => Work::of_changes(position, index),
        }
    }

    /// What reading the whole database takes.
    pub(super) fn work_of_reading_whole(&self, index: Option<&WalIndex>) -> Work {
        // A file that cannot be asked is told of by who opens it next.
        let bytes = self.files.as_ref().and_then(|files| files.database_state().ok()).map_or(0, |(bytes, ..)| bytes);
        let wal_bytes = index.map_or(0, |index| index.bytes_of(index.frames));
        if bytes + wal_bytes > SMALL_BYTES { Work::Large } else { Work::Small }
    }

    /// What staging what is committed takes, where a WAL that is to be restarted has its turn as well, unless somebody waits who does that by himself.
    pub(super) fn work_with_restart(&self, index: Option<&WalIndex>, is_urgent: bool) -> Work {
        let is_full = !is_urgent && index.is_some_and(|index| index.frames >= RESTART_FRAMES);
        self.work(index).max(if is_full { Work::Many } else { Work::Few })
    }
}

impl Shared {
    pub(super) fn push_stage(&self, tracked: &Arc<Tracked>, work: Work) {
        if tracked.queued.fetch_or(work.bit(), Ordering::AcqRel) & work.bit() == 0 {
            self.staging_of(work).push(tracked.clone());
        }
    }

    pub(super) fn staging_of(&self, work: Work) -> &Queue {
        &self.staging[work as usize]
    }

    /// What a thread for this kind of work does until the end.
    pub(super) fn stage_until_stopped(&self, work: Work) {
        if work == Work::Large {
            // Of this thread alone, on Linux. Where it cannot be had it is done without.
            let _ = rustix::process::nice(NICE_OF_LARGE);
        }
        while let Some(tracked) = self.staging_of(work).pop(&self.stop) {
            tracked.at_work.fetch_or(work.bit(), Ordering::AcqRel);
            let needed = self.stage(&tracked, work);
            tracked.at_work.fetch_and(!work.bit(), Ordering::AcqRel);
            // Before that whoever wants it again would find it here still.
            tracked.queued.fetch_and(!work.bit(), Ordering::AcqRel);
            if let Some(needed) = needed {
                self.push_stage(&tracked, needed);
            }
        }
    }
}

impl Tracked {
    /// The state, for who does such work; `None`: somebody has it who does what takes longer, or reads it whole.
    pub(super) fn lock_for(&self, work: Work) -> Option<Locked<'_>> {
        loop {
            if self.at_work.load(Ordering::Acquire) >> (work as u8 + 1) != 0 {
                return None;
            }
            if let Some(state) = self.try_lock() {
                return (!state.is_read).then_some(state);
            }
            std::thread::sleep(MOMENT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Replica;
    use crate::store::memory::MemoryStore;
    use crate::wal_reader::{WalHeader, WalPosition};

    #[test]
    fn what_takes_long_is_for_other_threads_than_what_a_check_point_may_wait_for() {
        let index = |frames, salts| WalIndex {
            changes: 0,
            life: 0,
            page_size: 4096,
            frames,
            pages: 0,
            checksum: [0; 2],
            salts,
            backfilled: 0,
            backfill_attempted: 0,
            read_marks: [0; 5],
        };
        let wal = WalPosition {
            frames: 900,
            ..WalPosition::start(WalHeader {
                big_endian: false,
                page_size: 4096,
                sequence: 0,
                salt1: 1,
                salt2: 2,
                checksum: [0; 2],
            })
        };
        let position = Position { wal: Some(wal), ..Position::default() };
        let work = |frames, salts| Work::of_changes(&position, Some(&index(frames, salts)));
        assert_eq!([work(910, [1, 2]), work(1_500, [1, 2])], [Work::Few, Work::Many]);
        assert_eq!([work(10, [2, 3]), work(910, [2, 3])], [Work::Few, Work::Many], "of a WAL that was restarted, all");
        assert_eq!(State::default().work(Some(&index(1, [1, 2]))), Work::Small, "the store is asked first");
    }

    #[test]
    fn who_takes_little_time_does_not_wait_for_who_takes_long() {
        let store = Arc::new(MemoryStore::default());
        let tracked = Tracked::new("/a.db".into(), Replica::new(store, ltx::Layout::Objects, "a"));
        let reading = tracked.lock();
        tracked.at_work.fetch_or(Work::Large.bit(), Ordering::AcqRel);
        assert!([Work::Few, Work::Many, Work::Small].iter().all(|work| tracked.lock_for(*work).is_none()));
        drop(reading);
        tracked.at_work.store(Work::Few.bit(), Ordering::Release);
        assert!([Work::Few, Work::Many, Work::Small, Work::Large].iter().all(|work| tracked.lock_for(*work).is_some()));
    }
}
