//! Room on the disk. Writes are refused, and the alarm NOSPACE is raised, before the log finds the disk full: what is left then is
//! kept for all that makes room again, and for what etcd allows under that alarm: reads, deletes, compaction, the alarm itself.
//!
//! Kept free are a segment of the log, what the next snapshot will take beside the newest one, and some slack; where the log has a disk of
//! its own (`--wal-dir`), the segment and slack there, the snapshot and slack with the data. A write takes its bytes
//! twice: in the log, and in the next snapshot. What was taken since the disk was looked at last is counted, so that a burst does not
//! overrun the reserve between two looks; and after a part of a segment writes look themselves, so that the log has room in the files
//! that it holds when somebody else has filled the disk meanwhile. A copy of the state for a client is given up when writes want its room:
//! no alarm is raised for it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How often refused writes look at it, in case that room has just come: whoever made it need not wait for the next round.
const AGAIN: Duration = Duration::from_millis(10);
/// What writes may put into the log between two looks. The log has most of a segment ahead of itself.
const UNSEEN_BYTES_MAX: u64 = 1 << 20;
/// For entries that are under way, deletes and alarms, and for what others write on the same disk.
pub const SLACK_BYTES: u64 = 16 << 20;

/// What was found on the disk, and what will be wanted of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Free where the data are, for who is not root.
    pub free_bytes: u64,
    /// Free where the log is, if that is another disk.
    pub log_free_bytes: Option<u64>,
    /// Of the next segment of the log.
    pub segment_bytes: u64,
    /// Of the newest snapshot.
    pub snapshot_bytes: u64,
    /// Of all files of snapshots: one that is being written, one that is about to go.
    pub snapshots_bytes: u64,
    /// Of the state: the next snapshot takes about so much.
    pub state_bytes: u64,
}

impl Disk {
    /// How much writes may still take; nothing or less: they may not.
    pub fn room(&self) -> i64 {
        self.data_room().min(self.log_room())
    }

    /// How much writes may take on the disk that the log has for itself, if it has one.
    fn log_room(&self) -> i64 {
        self.log_free_bytes.map_or(i64::MAX, |free_bytes| beyond(self.segment_bytes + SLACK_BYTES, free_bytes))
    }

    /// How much may still be taken where the data are, by whoever has no part in the log.
    fn data_room(&self) -> i64 {
        let Self { free_bytes, log_free_bytes, segment_bytes, snapshot_bytes, snapshots_bytes, state_bytes } = *self;
        let next_bytes = state_bytes.max(snapshot_bytes);
        let snapshots_to_come = (snapshot_bytes + next_bytes).saturating_sub(snapshots_bytes);
        let log_to_come = if log_free_bytes.is_none() { segment_bytes } else { 0 };
        beyond(log_to_come + SLACK_BYTES + snapshots_to_come, free_bytes)
    }

    /// Whether a snapshot would make room, for one that is smaller.
    fn has_shrunk(&self) -> bool {
        self.state_bytes < self.snapshot_bytes / 8 * 7
    }
}

/// What a write of so many bytes takes: itself, and its part of the next snapshot.
fn cost(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX).saturating_mul(2)
}

/// What is free beyond a reserve; below 0 what is missing of that.
fn beyond(reserve_bytes: u64, free_bytes: u64) -> i64 {
    i64::try_from(free_bytes).unwrap_or(i64::MAX).saturating_sub_unsigned(reserve_bytes)
}

/// The disk that a member's data are on, and that of its log.
pub struct Space {
    directory: PathBuf,
    log_directory: PathBuf,
    segment_bytes: u64,
    room: AtomicI64,
    /// Of it, what the log's own disk had at the last look.
    log_room: AtomicI64,
    /// Taken since the last look, as bytes of the log.
    unseen: AtomicU64,
    /// When it was looked at last, and the room that there was.
    looked: Mutex<Option<(Instant, i64)>>,
    /// What copies for clients will still take that are being written.
    reserved: Arc<AtomicU64>,
    /// Tells them that their room is wanted back.
    wanted_back: watch::Sender<()>,
    /// Size of the log for which a snapshot was asked when there was no room.
    asked_at: AtomicU64,
}

/// Room of a copy of the state for a client, from before it is written until it is gone.
#[derive(Debug)]
pub struct Reserved {
    all: Arc<AtomicU64>,
    /// What is still to be written.
    bytes: u64,
    wanted_back: watch::Receiver<()>,
}

impl Reserved {
    /// All is written: no more than is on the disk is needed.
    pub fn finish(&mut self) {
        self.wrote(u64::MAX);
    }

    /// So many bytes more are on the disk now, and missing there.
    pub fn wrote(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether writes want the room.
    pub fn is_wanted_back(&self) -> bool {
        self.wanted_back.has_changed().unwrap_or(true)
    }

    /// Comes when writes want the room: the copy is to go, and this with it.
    pub async fn wanted_back(&self) {
        // Without a sender there are no writes any more.
        let _ = self.wanted_back.clone().changed().await;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Space {
    /// Of a data directory and that of the log, which has segments of this size.
    pub fn new(data_directory: &Path, log_directory: &Path, segment_bytes: u32) -> Self {
        let directory = data_directory.join("member");
        Self {
            directory,
            log_directory: log_directory.to_owned(),
            segment_bytes: segment_bytes.into(),
            room: AtomicI64::new(0),
            log_room: AtomicI64::new(i64::MAX),
            unseen: AtomicU64::new(0),
            looked: Mutex::new(None),
            reserved: Arc::default(),
            wanted_back: watch::Sender::new(()),
            asked_at: AtomicU64::new(0),
        }
    }

    /// Takes room for a write of so many bytes, if there is so much and the last look is not too many bytes ago.
    pub fn take(&self, bytes: u64) -> bool {
        let before = self.unseen.load(Ordering::Relaxed);
        (before == 0 || before + bytes <= UNSEEN_BYTES_MAX) && self.take_looked(bytes)
    }

    /// Takes room for a write of so many bytes, if there is so much, for who has just looked.
    pub fn take_looked(&self, bytes: u64) -> bool {
        let cost = cost(bytes);
        let take = |room: i64| (room >= cost).then(|| room - cost);
        let is_taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if is_taken {
            self.unseen.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Whether another look may tell something new: room was taken since the last one, or that was a while ago. On a full disk nothing
    /// is taken, so that writes which are refused, however many, do not look each for itself.
    pub fn is_look_due(&self, now: Instant) -> bool {
        let looked = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        looked.is_none_or(|(at, room)| {
            now.saturating_duration_since(at) >= AGAIN || self.room.load(Ordering::Relaxed) != room
        })
    }

    /// Looks at the disk. Where that cannot be done, what was known before is all that is known.
    pub fn look(&self, state_bytes: u64) -> Option<Disk> {
        let found = self.measure(state_bytes);
        let reserved = self.reserved.load(Ordering::Relaxed);
        // Copies are written where the data are.
        let beside = |disk: &Disk| disk.data_room().saturating_sub_unsigned(reserved).min(disk.room());
        let room = found.as_ref().map_or_else(|_| self.room.load(Ordering::Relaxed), beside);
        self.room.store(room, Ordering::Relaxed);
        if let Ok(disk) = &found {
            self.log_room.store(disk.log_room(), Ordering::Relaxed);
        }
        self.unseen.store(0, Ordering::Relaxed);
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), room));
        found.inspect_err(|error| tracing::warn!(%error, "the disk of --data-dir cannot be looked at")).ok()
    }

    /// Room for a copy of the state that is about to be written on the disk, if there is so much beside other copies; the state has
    /// so many bytes. To be dropped when the copy is gone.
    pub fn reserve(&self, state_bytes: u64) -> Option<Reserved> {
        // Taken first: of two who come at the same time one sees the other.
        let before = self.reserved.fetch_add(state_bytes, Ordering::Relaxed);
        let (all, wanted_back) = (Arc::clone(&self.reserved), self.wanted_back.subscribe());
        let reserved = Reserved { all, bytes: state_bytes, wanted_back };
        let disk = self.look(state_bytes)?;
        let needed = i64::try_from(before.saturating_add(state_bytes)).unwrap_or(i64::MAX);
        (disk.data_room() >= needed).then_some(reserved)
    }

    /// Wants the room back that copies for clients take, for a write of so many bytes; whether there are any. It comes as soon as they hear of
    /// it. Where the log's own disk has no room they have none that helps, and stay.
    pub fn take_back_copies(&self, bytes: u64) -> bool {
        let log_room = self.log_room.load(Ordering::Relaxed);
        let are_there = log_room > 0 && log_room >= cost(bytes) && self.wanted_back.receiver_count() > 0;
        if are_there {
            self.wanted_back.send_replace(());
        }
        are_there
    }

    /// Whether a scratch file may take so many bytes: what it takes is missing for writes. Where the disk cannot be looked at, whoever
    /// writes will see.
    pub fn spares(&self, bytes: u64) -> bool {
        // The newest snapshot tells how large the next one will be, about.
        self.look(0).is_none_or(|disk| disk.data_room() >= i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    fn measure(&self, state_bytes: u64) -> io::Result<Disk> {
        let free = |directory: &Path| {
            rustix::fs::statvfs(directory).map(|system| system.f_bavail.saturating_mul(system.f_frsize))
        };
        // The log may be on a disk of its own; before it was made it takes nothing.
        let log_free_bytes = match fs::metadata(&self.log_directory) {
            Ok(log) if log.dev() != fs::metadata(&self.directory)?.dev() => Some(free(&self.log_directory)?),
            _ => None,
        };
        let free_bytes = free(&self.directory)?;
        let (mut newest, mut snapshots_bytes) = (None, 0);
        for file in fs::read_dir(self.directory.join("snap"))? {
            let file = file?;
            let (name, bytes) = (
                file.file_name(),
                match file.metadata() {
                    Ok(data) => data.len(),
                    // It has gone meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
            );
            snapshots_bytes += bytes;
            // Their names sort by their age.
            if name.to_string_lossy().starts_with("snapshot-") && newest.as_ref().is_none_or(|(other, _)| *other < name)
            {
                newest = Some((name, bytes));
            }
        }
        Ok(Disk {
            free_bytes,
            log_free_bytes,
            segment_bytes: self.segment_bytes,
            snapshot_bytes: newest.map_or(0, |(_, bytes)| bytes),
            snapshots_bytes,
            state_bytes,
        })
    }

    /// Whether a snapshot is to be made, to make room: once when there is none left, and again when the log has grown or the state
    /// has shrunk since.
    pub fn wants_snapshot(&self, disk: &Disk, log_bytes: u64) -> bool {
        let is_full = disk.room() <= 0;
        let asked_at = self.asked_at.swap(if is_full { log_bytes } else { 0 }, Ordering::Relaxed);
        is_full && (log_bytes > asked_at || disk.has_shrunk())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk {
        free_bytes: 100 << 20,
        log_free_bytes: None,
        segment_bytes: 16 << 20,
        snapshot_bytes: 10 << 20,
        snapshots_bytes: 10 << 20,
        state_bytes: 12 << 20,
    };

    #[test]
    fn a_segment_the_next_snapshot_and_slack_are_kept_free() {
        assert_eq!(DISK.room(), (100 - 16 - 16 - 12) << 20);
        assert_eq!(Disk { free_bytes: 44 << 20, ..DISK }.room(), 0);
        assert!(Disk { free_bytes: 43 << 20, ..DISK }.room() < 0);
    }

    /// A small one was full for the whole group, once the state was half as large: the next snapshot is not made there.
    #[test]
    fn a_disk_of_the_logs_own_keeps_nothing_for_snapshots() {
        let with_log = |log_free_bytes: u64| Disk { log_free_bytes: Some(log_free_bytes << 20), ..DISK };
        assert_eq!(with_log(1000).room(), (100 - 16 - 12) << 20, "the data have no segment beside them");
        assert_eq!(with_log(33).room(), 1 << 20);
        assert_eq!(with_log(32).room(), 0);
        assert_eq!(with_log(32).data_room(), with_log(1000).room(), "copies and values have theirs");
        let large = Disk { state_bytes: 60 << 20, ..with_log(40) };
        assert!(large.room() > 0 && Disk { free_bytes: 76 << 20, ..large }.room() == 0);
    }

    #[test]
    fn scratch_files_take_no_room_that_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 4 << 20);
        let free_bytes = space.measure(0).unwrap().free_bytes;
        assert!(!space.spares(free_bytes), "the log has its part");
        assert_eq!(space.spares(0), free_bytes > (4 << 20) + SLACK_BYTES);
    }

    /// Each of two copies at the same time found room, and together they filled the disk.
    #[test]
    fn copies_at_the_same_time_take_their_room_from_one_another_and_from_writes() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        let reserved = || space.reserved.load(Ordering::Relaxed);
        // Of a disk with some room: one fits beside the state, and two do not.
        let free_bytes = space.measure(0).unwrap().free_bytes;
        let (state_bytes, write_bytes) = (free_bytes / 5 * 2, free_bytes / 5);
        let first = space.reserve(state_bytes).unwrap();
        assert!(space.reserve(state_bytes).is_none());
        assert_eq!(reserved(), state_bytes, "who was refused takes nothing");
        space.look(state_bytes).unwrap();
        assert!(!space.take(write_bytes), "a write takes what the copy needs");
        drop(first);
        assert_eq!(reserved(), 0);
        space.look(state_bytes).unwrap();
        assert!(space.take(write_bytes));
        assert!(space.reserve(state_bytes).is_some(), "the first one is written");
    }

    /// Else every snapshot would raise the alarm on a disk that is nearly full.
    #[test]
    fn a_snapshot_that_is_being_written_takes_what_is_kept_for_it() {
        let written = |bytes: u64| Disk {
            free_bytes: DISK.free_bytes - (bytes << 20),
            snapshots_bytes: DISK.snapshots_bytes + (bytes << 20),
            ..DISK
        };
        for bytes in 0..=12 {
            assert_eq!(written(bytes).room(), DISK.room(), "{bytes}");
        }
        // It has its name, and the one before is still there.
        let named = Disk { snapshot_bytes: 12 << 20, ..written(12) };
        assert!(named.room() >= DISK.room() - (2 << 20));
    }

    /// What a client did not take stayed on the disk, and the whole group had the alarm for it until somebody disarmed that.
    #[test]
    fn the_room_of_copies_comes_back_when_writes_want_it() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        assert!(!space.take_back_copies(0), "there are none");
        let mut room = space.reserve(1000).unwrap();
        room.wrote(400);
        assert_eq!(space.reserved.load(Ordering::Relaxed), 600, "what is written is missing on the disk already");
        assert!(space.take_back_copies(0));
        assert!(room.is_wanted_back());
        room.finish();
        assert_eq!(space.reserved.load(Ordering::Relaxed), 0);
        drop(room);
        assert!(!space.take_back_copies(0), "nobody has any more");
        assert!(!space.reserve(1000).unwrap().is_wanted_back(), "who comes later was not meant");
    }

    /// They were given up, and there was no more room for writes than before.
    #[test]
    fn copies_stay_where_only_the_logs_own_disk_is_full() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        let room = space.reserve(1000).unwrap();
        for (log_room, bytes, is_wanted_back) in [(0, 0, false), (-1, 0, false), (99, 50, false), (100, 50, true)] {
            space.log_room.store(log_room, Ordering::Relaxed);
            assert_eq!(space.take_back_copies(bytes), is_wanted_back, "{log_room}");
            assert_eq!(room.is_wanted_back(), is_wanted_back, "{log_room}");
        }
        space.look(0).unwrap();
        assert!(space.take_back_copies(1 << 40), "the log has no disk of its own");
    }

    #[test]
    fn writes_between_two_looks_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        assert!(!space.take(1), "nothing is known yet");
        assert!(space.look(0).unwrap().free_bytes > 0);
        space.room.store(100, Ordering::Relaxed);
        assert!(space.take(30) && space.take(10));
        fs::remove_dir_all(directory.path().join("member")).unwrap();
        assert_eq!(space.look(0), None);
        assert!(space.take(10) && !space.take(1), "what cannot be looked at is as it was");
    }

    #[test]
    fn refused_writes_do_not_look_each_for_itself() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        assert!(space.is_look_due(Instant::now()), "nothing is known yet");
        let before = Instant::now();
        space.look(0).unwrap();
        assert!(!space.is_look_due(before) && !space.take(u64::MAX));
        assert!(!space.is_look_due(before), "what was refused has taken nothing");
        assert!(space.is_look_due(Instant::now() + AGAIN));
        // A burst may take all that was there at the last look, though there is more.
        assert!(space.take(1) && space.is_look_due(before));
    }

    /// Somebody else may have filled the disk meanwhile, and then the log ends the server.
    #[test]
    fn writes_look_themselves_before_they_need_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        let space = Space::new(directory.path(), directory.path(), 1);
        let look = || {
            space.look(0).unwrap();
            space.room.store(i64::MAX, Ordering::Relaxed);
        };
        look();
        assert!(space.take(UNSEEN_BYTES_MAX / 2) && space.take(UNSEEN_BYTES_MAX / 2) && !space.take(1));
        assert!(space.is_look_due(Instant::now()));
        look();
        assert!(space.take(2 * UNSEEN_BYTES_MAX), "one that is larger is taken after a look");
        assert!(!space.take(1));
    }

    #[test]
    fn a_snapshot_is_asked_for_once_and_when_it_makes_room() {
        let space = Space::new(Path::new("/"), Path::new("/"), 1);
        let full = Disk { free_bytes: 0, ..DISK };
        assert!(!space.wants_snapshot(&DISK, 5));
        assert!(space.wants_snapshot(&full, 5));
        assert!(!space.wants_snapshot(&full, 5));
        assert!(space.wants_snapshot(&full, 6), "the log has grown");
        assert!(space.wants_snapshot(&Disk { state_bytes: 1, ..full }, 6), "the state has shrunk");
        assert!(!space.wants_snapshot(&DISK, 6) && space.wants_snapshot(&full, 6), "it is full again");
    }
}
