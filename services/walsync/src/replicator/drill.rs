//! Restore drills: now and then some databases are restored as after a loss, proved, and thrown away. A replica that was never restored is a
//! hope.
//!
//! One thread, one database at a time, with less read ahead than a restore has whose end somebody waits for. Databases take turns;
//! those whose last drill failed come first, so that it is known when they are well again. A drill fails where a file is missing or damaged,
//! where SQLite finds the result damaged, and where what is restored ends before what was called durable: no later file
//! would tell that the newest one is gone. Where there is no room for it, or the store is away, nothing is known: it was not run.

use super::{Shared, lock};
use crate::fetch::ReadAhead;
use crate::replica::Replica;
use crate::replicator::tracked::Tracked;
use crate::restore::{RestoreError, Restored, Target, plan, restore_for_trial};
use crate::store::StoreError;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// From the start to the first drill, if the interval is no shorter: what is there then is durable.
const FIRST: Duration = Duration::from_secs(60);
/// What is read ahead.
const READ_AHEAD: ReadAhead = ReadAhead { part_bytes: 1 << 20, parts: 2 };
/// How the folders of drills begin.
const PREFIX: &str = "walsync-drill-";
/// The file that is locked in the folder of all of them.
const LOCK: &str = ".walsync-drills";

/// What must stay free beside a trial, and an eighth of it: the disk may have other users.
const FREE_BYTES: u64 = 64 << 20;

/// How to drill.
#[derive(Clone, Debug)]
pub struct DrillSettings {
    /// Between the beginnings of two drills.
    pub interval: Duration,
    /// Databases of each.
    pub databases: usize,
    /// Where they are restored to.
    pub folder: PathBuf,
}

/// What came of all drills since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrillReport {
    /// Databases that were restored and proved.
    pub succeeded: u64,
    /// Databases that do not restore.
    pub failed: u64,
    /// Databases of which nothing is known, for there was no room, or the store was away.
    pub not_run: u64,
    /// When the last success was, Unix time in milliseconds.
    pub last_success_millis: Option<i64>,
    /// When the last failure was, Unix time in milliseconds.
    pub last_failure_millis: Option<i64>,
    /// Databases whose last drill failed, and why.
    pub failing: BTreeMap<PathBuf, String>,
}

/// The report, as it is written.
#[derive(Default)]
pub(super) struct Drills(Mutex<DrillReport>);

impl Drills {
    pub(super) fn report(&self) -> DrillReport {
        lock(&self.0).clone()
    }

    fn succeeded(&self, path: &Path, unix_millis: i64) {
        let mut report = lock(&self.0);
        report.succeeded += 1;
        report.last_success_millis = Some(unix_millis);
        report.failing.remove(path);
    }

    fn failed(&self, path: &Path, why: String, unix_millis: i64) {
        let mut report = lock(&self.0);
        report.failed += 1;
        report.last_failure_millis = Some(unix_millis);
        report.failing.insert(path.to_owned(), why);
    }

    fn not_run(&self) {
        lock(&self.0).not_run += 1;
    }

    /// What becomes of the replica is nothing that we answer for any more.
    pub(super) fn forget(&self, path: &Path) {
        lock(&self.0).failing.remove(path);
    }
}

/// The folder of drills, which no other process has while this lives.
pub(super) struct DrillFolder {
    _lock: File,
}

impl DrillFolder {
    /// Takes the folder, and removes what drills left in it that were killed.
    ///
    /// # Errors
    /// The folder is not there, or another process has its drills there.
    pub(super) fn take(folder: &Path) -> io::Result<DrillFolder> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("restore-drill: {}: {error}", folder.display()));
        let file = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK)).map_err(named)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => named(error),
            TryLockError::WouldBlock => {
                let other = "another process has its drills there: name another folder";
                named(io::Error::new(io::ErrorKind::WouldBlock, other))
            }
        })?;
        for entry in std::fs::read_dir(folder).map_err(named)? {
            let entry = entry.map_err(named)?;
            // A drill has a folder: what else has such a name is somebody else's, and stays.
            let is_folder = entry.file_type().map_err(named)?.is_dir();
            if is_folder && entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                std::fs::remove_dir_all(entry.path()).map_err(named)?;
            }
        }
        Ok(DrillFolder { _lock: file })
    }
}

/// Why a drill failed, or was not run.
#[derive(Debug, thiserror::Error)]
enum DrillError {
    #[error("no place for a trial in {0}: {1}")]
    Folder(PathBuf, io::Error),
    #[error("no room for a trial in {folder}: {free} bytes are free, and {wanted} must be")]
    NoRoom { folder: PathBuf, free: u64, wanted: u64 },
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("it restores to TXID {restored}, though {durable} is durable: the newest files are gone")]
    Short { restored: u64, durable: u64 },
}

impl DrillError {
    /// Whether it tells that the replica does not restore; otherwise it tells of a disk, or of a store that is away or lets nobody in.
    fn is_of_replica(&self) -> bool {
        use RestoreError::{Busy, Damaged, Empty, Integrity, NoWay, Output, OutputExists, Store};
        match self {
            DrillError::Folder(..) | DrillError::NoRoom { .. } => false,
            DrillError::Short { .. } => true,
            DrillError::Restore(Empty | NoWay(_) | Damaged { .. } | Integrity(_)) => true,
            DrillError::Restore(Store(error)) => matches!(error, StoreError::NotFound(_) | StoreError::Damaged(_)),
            DrillError::Restore(OutputExists(_) | Busy(_) | Output(..)) => false,
        }
    }
}

/// Whose turn it is, of `count` databases: up to `most` whose last drill failed, and then so many from `turn` on, which moves.
fn chosen(count: usize, most: usize, turn: &mut usize, is_failing: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..count).filter(|number| is_failing(*number)).take(most).collect();
    let first: HashSet<usize> = chosen.iter().copied().collect();
    for _ in 0..most.min(count) {
        let next = *turn % count;
        *turn = next + 1;
        if !first.contains(&next) {
            chosen.push(next);
        }
    }
    chosen
}

impl Shared {
    /// What the thread of drills does.
    pub(super) fn drill_until_stopped(&self, folder: DrillFolder) {
        let Some(settings) = &self.settings.drill else { return };
        let mut next = self.clock.monotonic() + settings.interval.min(FIRST);
        // Who is started often begins with another one each time.
        let mut turn: usize = rand::random::<u32>() as usize;
        while !self.stop.load(Ordering::Acquire) {
            let now = self.clock.monotonic();
            if now < next {
                std::thread::park_timeout(next - now);
                continue;
            }
            next = now.saturating_add(settings.interval);
            let databases: Vec<Arc<Tracked>> = self.databases().into_iter().filter(|one| has_replica(one)).collect();
            let failing = self.drill_report().failing;
            let is_failing = |number: usize| failing.contains_key(&databases[number].path);
            for number in chosen(databases.len(), settings.databases, &mut turn, is_failing) {
                if !self.stop.load(Ordering::Acquire) {
                    self.drill(&databases[number], settings);
                }
            }
        }
        drop(folder);
    }

    /// What came of all drills. A database that somebody else writes now is none of ours, whatever its last drill said.
    pub(super) fn drill_report(&self) -> DrillReport {
        let report = self.drills.report();
        if report.failing.is_empty() {
            return report;
        }
        for tracked in self.databases() {
            if report.failing.contains_key(&tracked.path) && tracked.is_shown_fenced() {
                self.drills.forget(&tracked.path);
            }
        }
        self.drills.report()
    }

    fn drill(&self, tracked: &Tracked, settings: &DrillSettings) {
        let path = tracked.path.display();
        let began = self.clock.monotonic();
        match restored(tracked, settings) {
            Ok(restored) => {
                let seconds = (self.clock.monotonic() - began).as_secs_f64();
                let (txid, bytes) = (restored.txid, restored.bytes_read);
                match restored.integrity_unknown {
                    None => tracing::info!(%path, txid, bytes, seconds, "drill: restored and proved"),
                    Some(why) => {
                        let proof = "drill: restored and proved by checksums alone: SQLite cannot be asked without the application";
                        tracing::info!(%path, txid, bytes, seconds, why, "{proof}");
                    }
                }
                self.drills.succeeded(&tracked.path, self.clock.unix_millis());
            }
            // Somebody else's replica is nothing that we answer for.
            Err(_) if tracked.is_shown_fenced() => {}
            Err(error) if !error.is_of_replica() => {
                tracing::warn!(%path, %error, "drill: not run, so that nothing is known of the replica");
                self.drills.not_run();
            }
            Err(error) => {
                tracing::error!(%path, %error, "drill: the replica does not restore");
                self.drills.failed(&tracked.path, error.to_string(), self.clock.unix_millis());
            }
        }
    }
}

fn has_replica(tracked: &Tracked) -> bool {
    tracked.status(Duration::ZERO).durable_txid > 0 && !tracked.is_shown_fenced()
}

/// Restores a database, asks SQLite for its integrity, and removes it.
fn restored(tracked: &Tracked, settings: &DrillSettings) -> Result<Restored, DrillError> {
    let durable = tracked.status(Duration::ZERO).durable_txid;
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&settings.folder);
    let folder = folder.map_err(|error| DrillError::Folder(settings.folder.clone(), error))?;
    let replica = tracked.replica.clone().reading_ahead(READ_AHEAD);
    refuse_without_room(&replica, &settings.folder)?;
    let restored = restore_for_trial(&replica, &folder.path().join("restored.db"))?;
    match restored.txid {
        txid if txid < durable => Err(DrillError::Short { restored: txid, durable }),
        _ => Ok(restored),
    }
}

/// A trial must not fill a disk that others may need.
fn refuse_without_room(replica: &Replica, folder: &Path) -> Result<(), DrillError> {
    let (_, files) = plan(replica, Target::Latest)?;
    let Some(last) = files.last() else { return Ok(()) };
    let header = match replica.header(last) {
        // It was merged since it was listed: the restore plans anew.
        Err(StoreError::NotFound(_)) => return Ok(()),
        header => header.map_err(RestoreError::from)?,
    };
    let bytes = u64::from(header.page_size) * u64::from(header.commit);
    let wanted = bytes + bytes / 8 + FREE_BYTES;
    let of_folder = |error: rustix::io::Errno| DrillError::Folder(folder.to_owned(), error.into());
    let system = rustix::fs::statvfs(folder).map_err(of_folder)?;
    match system.f_bavail.saturating_mul(system.f_frsize) {
        free if free < wanted => Err(DrillError::NoRoom { folder: folder.to_owned(), free, wanted }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::NoWay;
    use crate::clock::SystemClock;
    use crate::replicator::{Replicator, Settings};

    #[test]
    fn trouble_of_a_disk_or_of_a_store_that_is_away_is_none_of_the_replica() {
        let text = || "why".to_owned();
        let restore = |error: RestoreError| DrillError::Restore(error).is_of_replica();
        for error in [StoreError::NotFound(text()), StoreError::Damaged(text())] {
            assert!(restore(error.into()));
        }
        for error in [StoreError::Transient(text()), StoreError::Permanent(text()), StoreError::Changed(text())] {
            assert!(!restore(error.into()));
        }
        assert!(restore(RestoreError::Empty) && restore(RestoreError::Integrity(text())));
        assert!(restore(NoWay::Hole { missing: text(), below: None, above: None }.into()));
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert!(!restore(RestoreError::Output(PathBuf::new(), full())));
        assert!(!DrillError::Folder(PathBuf::new(), full()).is_of_replica());
        assert!(DrillError::Short { restored: 1, durable: 2 }.is_of_replica());
    }

    #[test]
    fn who_asks_for_drills_does_not_wait_for_who_works_on_a_database() {
        let replicator = Replicator::start(Settings::default(), Arc::new(SystemClock::default())).unwrap();
        let path = PathBuf::from("/none/a.db");
        replicator.refuse(path.clone(), "for a test".into());
        let shared = replicator.shared.clone();
        shared.drills.failed(&path, "it does not restore".into(), 1);
        let database = shared.databases().remove(0);
        let at_work = database.lock();
        let (tell, told) = std::sync::mpsc::channel();
        let (of_thread, there) = (shared.clone(), database.clone());
        std::thread::spawn(move || {
            // Nor do those who work for all databases, one after another.
            assert!(!has_replica(&there));
            of_thread.maintain(&there);
            of_thread.upload(&there, false);
            tell.send(of_thread.drill_report())
        });
        let report = told.recv_timeout(Duration::from_secs(5)).expect("an answer");
        assert_eq!(report.failing.len(), 1);
        drop(at_work);
        database.lock().fence(&path, "key".into(), Duration::ZERO);
        assert_eq!(shared.drill_report().failing.len(), 0, "it is another writer's");
    }

    #[test]
    fn all_databases_take_turns_and_those_that_failed_come_again_before_theirs() {
        let mut turn = 3;
        let mut next = |count, failing: &[usize]| chosen(count, 2, &mut turn, |number| failing.contains(&number));
        assert_eq!(next(5, &[]), [3, 4]);
        assert_eq!(next(5, &[]), [0, 1]);
        assert_eq!(next(5, &[3]), [3, 2]);
        assert_eq!(next(5, &[0, 1, 3]), [0, 1, 4], "of many that fail no more than of those in turn");
        assert_eq!(next(1, &[0]), [0]);
        assert_eq!(next(0, &[]), [0usize; 0]);
    }

    #[test]
    fn a_folder_is_one_processs_and_what_killed_drills_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("walsync-drill-x")).unwrap();
        std::fs::write(folder.path().join("walsync-drill-x/restored.db"), "half").unwrap();
        for name in ["other", "walsync-drill-y"] {
            std::fs::write(folder.path().join(name), "stays").unwrap();
        }
        let taken = DrillFolder::take(folder.path()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".walsync-drills", "other", "walsync-drill-y"]);
        let error = DrillFolder::take(folder.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains("another process has its drills there"), "{error}");
        drop(taken);
        DrillFolder::take(folder.path()).unwrap();
        assert!(DrillFolder::take(&folder.path().join("none")).is_err());
    }
}
