//! Many databases, one process: one thread that looks, two that stage for each of four kinds of work, a few that upload, one that uploads large
//! files and one snapshots, one that merges and removes, and where it is asked for one that restores for a trial.
//!
//! ```text
//! poller (one wheel of ticks) ──► stage: files → LTX ──► queue of the database ──► upload ──► durable
//!    reads 136 bytes of -shm          holds the pin         at most MAX_QUEUE            If-None-Match, in order
//! ```
//!
//! A database costs its descriptors and some 5 KB (README, "Measured"), no thread, and no connection but where a read transaction holds its
//! frames: that one has some 100 KB more. What is staged lies in one
//! [`Arena`], beyond that in nameless files. While the store is away, frames stay in the WAL under the pin, so that the WAL
//! is the queue; only what a check point waits for is staged meanwhile.
//!
//! A transaction is *durable* when the store has answered that its object is written. There is no local state: a
//! replicator that starts reads the newest object's header, and goes on where the WAL still has that place, or sends the
//! whole database under the next transaction ID.

pub mod allowance;
mod databases;
mod drill;
mod maintenance;
mod open_files;
mod phase;
mod recovery;
pub mod risk;
mod settings;
mod shown;
mod staging;
mod tracked;
mod upload;
mod wheel;
mod whole;
mod work;
mod yielding;

pub use drill::{DrillReport, DrillSettings};
pub use maintenance::RETENTION_INTERVAL;
pub use phase::{Phase, SnapshotLate, Status, Waits};
pub use settings::{INTERVAL_LEAST, LEVELS_MAX, Settings, Unfit};

use crate::arena::Arena;
use crate::clock::{BelievedDate, Clock};
use crate::replica::Replica;
use crate::threads::{STACK_BYTES, named};
use databases::Databases;
use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tracked::Tracked;

/// What all databases did together.
#[derive(Debug, Default)]
pub struct Totals {
    /// Objects written.
    pub objects: AtomicU64,
    /// Bytes of objects written.
    pub bytes: AtomicU64,
    /// Files of merged levels written.
    pub merged: AtomicU64,
    /// Files removed that no point needed any more.
    pub removed: AtomicU64,
    /// From when a commit was seen to when the store has it, of the oldest commit in each object.
    pub durable_after: risk::Durations,
    /// Uploads that failed and will be tried again.
    pub failures: AtomicU64,
    /// Databases sent whole because continuity could not be proved.
    pub anchors: AtomicU64,
    /// Databases of which only what differed was sent, because continuity could not be proved.
    pub compared: AtomicU64,
    /// Times that something found no room in the staging folder.
    pub without_room: AtomicU64,
    /// Check points that we let pass.
    pub yields: AtomicU64,
    /// Times that frames were let go of unstaged, for the sake of the application.
    pub let_go: AtomicU64,
}

/// Databases that wait for threads.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Arc<Tracked>>>,
    arrived: Condvar,
}

impl Queue {
    fn push(&self, tracked: Arc<Tracked>) {
        lock(&self.waiting).push_back(tracked);
        self.arrived.notify_one();
    }

    /// Ends all waits: those that have begun, and those of who has just seen no reason to end.
    fn wake(&self) {
        let _waiting = lock(&self.waiting);
        self.arrived.notify_all();
    }

    fn pop(&self, stop: &AtomicBool) -> Option<Arc<Tracked>> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(tracked) = waiting.pop_front() {
                return Some(tracked);
            }
            if stop.load(Ordering::Acquire) {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the threads share.
struct Shared {
    settings: Settings,
    clock: Arc<dyn Clock>,
    /// For retention: a date that was ahead for a while removes nothing.
    date: BelievedDate,
    arena: Arc<Arena>,
    open_files: open_files::OpenFiles,
    allowance: allowance::Allowance,
    node_id: u64,
    databases: RwLock<Databases>,
    /// One for each [`staging::Work`].
    staging: [Queue; 4],
    uploading: Queue,
    /// Files that take long, but for snapshots.
    uploading_large: Queue,
    snapshots: Queue,
    maintaining: Queue,
    recovery: recovery::Recovery,
    totals: Totals,
    drills: drill::Drills,
    /// No new work but what makes staged files durable.
    stop: AtomicBool,
    wheel: wheel::Wheel,
}

impl Shared {
    fn databases(&self) -> Vec<Arc<Tracked>> {
        self.databases.read().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// Whether this database is watched by another path here as well.
    fn has_another_name(&self, tracked: &Tracked) -> bool {
        let Ok(there) = tracked.path.canonicalize() else { return false };
        let leads_there = |one: &Tracked| one.path.canonicalize().is_ok_and(|path| path == there);
        self.databases().iter().any(|one| !std::ptr::eq(&**one, tracked) && leads_there(one))
    }
}

/// A replicator at work. Dropping it stops it at once; [`Replicator::stop`] makes everything durable first.
pub struct Replicator {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What somebody waits for.
pub struct SyncRequest {
    tracked: Arc<Tracked>,
    number: u64,
}

impl SyncRequest {
    /// Whether what was committed when it was made is durable, or will not become so; the status tells.
    pub fn is_over(&self) -> bool {
        self.tracked.is_synced(self.number)
    }
}

/// Looks at a replicator; does not keep it at work.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// How every database stands.
    pub fn status(&self) -> Vec<Status> {
        let now = self.0.clock.monotonic();
        self.0.databases().iter().map(|tracked| tracked.status(now)).collect()
    }

    /// Asks for everything to be staged that is committed in a database now; `None`: none of this path is watched. Looks at no file:
    /// [`Observer::watched_as`] does.
    pub fn request_sync(&self, path: &Path) -> Option<SyncRequest> {
        let tracked = self.0.databases.read().unwrap_or_else(PoisonError::into_inner).get(path)?;
        let number = tracked.request_sync();
        self.0.wheel.add(tracked.clone(), self.0.clock.monotonic());
        Some(SyncRequest { tracked, number })
    }

    /// As which path the database is watched to which `path` leads by another way. Asks the file systems of that path and of all databases, and waits
    /// for them, for ever where one is gone.
    pub fn watched_as(&self, path: &Path) -> Option<PathBuf> {
        let there = path.canonicalize().ok()?;
        let is_there = |one: &Arc<Tracked>| one.path.canonicalize().is_ok_and(|path| path == there);
        self.0.databases().iter().find(|one| is_there(one)).map(|one| one.path.clone())
    }

    /// Those of which something is known that the store has not, or of which that is not known.
    pub fn behind(&self) -> Vec<Status> {
        let now = self.0.clock.monotonic();
        let status =
            |one: &Arc<Tracked>| Some(one.status(now)).filter(|status| !one.is_durable() || status.is_unknown());
        self.0.databases().iter().filter_map(status).collect()
    }

    /// How the database of a request stands.
    pub fn status_of(&self, request: &SyncRequest) -> Status {
        request.tracked.status(self.0.clock.monotonic())
    }

    /// What all databases did together.
    pub fn totals(&self) -> &Totals {
        &self.0.totals
    }

    /// How long a database waits with what it commits now, because of what was sent already.
    pub fn upload_wait(&self) -> Duration {
        self.0.allowance.wait(self.0.clock.monotonic())
    }

    /// What came of drills; `None`: there are none.
    pub fn drills(&self) -> Option<DrillReport> {
        self.0.settings.drill.as_ref().map(|_| self.0.drill_report())
    }
}

impl Replicator {
    /// Starts the threads. Databases come by [`Replicator::add`].
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> std::io::Result<Replicator> {
        let uploads = settings.uploads.max(1);
        let drill_folder = settings.drill.as_ref().map(|drill| drill::DrillFolder::take(&drill.folder)).transpose()?;
        let shared = Arc::new(Shared {
            arena: Arena::new(settings.arena_bytes, settings.staging_folder.clone()),
            open_files: open_files::OpenFiles::of_limit(service_kit::open_files::limit()),
            allowance: allowance::Allowance::new(settings.uploads_a_month_max),
            settings,
            date: BelievedDate::default(),
            clock,
            node_id: rand::random(),
            databases: RwLock::default(),
            staging: Default::default(),
            uploading: Queue::default(),
            uploading_large: Queue::default(),
            snapshots: Queue::default(),
            maintaining: Queue::default(),
            recovery: recovery::Recovery::default(),
            totals: Totals::default(),
            drills: drill::Drills::default(),
            stop: AtomicBool::new(false),
            wheel: wheel::Wheel::default(),
        });
        let mut threads = Vec::new();
        let mut spawn = |name: &str, body: fn(&Shared)| {
            let shared = shared.clone();
            named(name).spawn(move || body(&shared)).map(|thread| threads.push(thread))
        };
        spawn("poller", |shared| shared.poll_until_stopped())?;
        for _ in 0..staging::STAGERS_EACH {
            spawn("stager", |shared| shared.stage_until_stopped(staging::Work::Few))?;
            spawn("stager of many", |shared| shared.stage_until_stopped(staging::Work::Many))?;
            spawn("reader of large", |shared| shared.stage_until_stopped(staging::Work::Large))?;
            spawn("reader", |shared| shared.stage_until_stopped(staging::Work::Small))?;
        }
        spawn("maintainer", |shared| {
            while let Some(next) = shared.maintaining.pop(&shared.stop) {
                shared.maintain(&next)
            }
        })?;
        for _ in 0..uploads {
            spawn("uploader", |shared| {
                while let Some(next) = shared.uploading.pop(&shared.stop) {
                    shared.upload(&next, false)
                }
            })?;
        }
        spawn("uploader of large", |shared| {
            while let Some(next) = shared.uploading_large.pop(&shared.stop) {
                shared.upload(&next, true)
            }
        })?;
        spawn("snapshots", |shared| {
            while let Some(next) = shared.snapshots.pop(&shared.stop) {
                shared.send_snapshot(&next)
            }
        })?;
        if let Some(folder) = drill_folder {
            let shared = shared.clone();
            // SQLite is asked for the integrity of what was restored.
            let drill = named("drill").stack_size(4 * STACK_BYTES);
            threads.push(drill.spawn(move || shared.drill_until_stopped(folder))?);
        }
        Ok(Replicator { shared, threads })
    }

    /// Watches the database at `path`, which need not be there yet. One that is watched already is left as it is; one that was refused is so no
    /// more.
    pub fn add(&self, path: PathBuf, replica: Replica) {
        let mut databases = self.shared.databases.write().unwrap_or_else(PoisonError::into_inner);
        if databases.get(&path).is_some_and(|known| known.is_refused) {
            databases.remove(|known| known.is_refused && known.path == path);
        }
        if let Some(tracked) = databases.add(path, |path| Tracked::new(path, replica)) {
            self.shared.wheel.add(tracked, self.shared.clock.monotonic());
        }
    }

    /// Lets go of databases whose files are gone and that nobody wants: nobody looks at them any more, until they are added anew. What is staged of
    /// one is sent first.
    pub fn forget(&self, is_wanted: impl Fn(&Path) -> bool) {
        let goes = |tracked: &Tracked| !is_wanted(&tracked.path) && tracked.is_gone();
        if !self.shared.databases().iter().any(|tracked| goes(tracked)) {
            return;
        }
        let mut databases = self.shared.databases.write().unwrap_or_else(PoisonError::into_inner);
        for tracked in databases.remove(goes) {
            tracing::info!(path = %tracked.path.display(), "its file is gone: not watched any more");
            tracked.is_forgotten.store(true, Ordering::Release);
            self.shared.drills.forget(&tracked.path);
        }
    }

    /// Whether the database at `path` is watched, or refused.
    pub fn has(&self, path: &Path) -> bool {
        self.shared.databases.read().unwrap_or_else(PoisonError::into_inner).get(path).is_some()
    }

    /// Tells of a database that cannot be replicated. Nobody looks at it.
    pub fn refuse(&self, path: PathBuf, why: String) {
        let mut databases = self.shared.databases.write().unwrap_or_else(PoisonError::into_inner);
        databases.add(path, |path| Tracked::refused(path, why, self.shared.clock.monotonic()));
    }

    /// Who looks at it from elsewhere.
    pub fn observer(&self) -> Observer {
        Observer(self.shared.clone())
    }

    /// How every database stands.
    pub fn status(&self) -> Vec<Status> {
        self.observer().status()
    }

    /// What all databases did together.
    pub fn totals(&self) -> &Totals {
        &self.shared.totals
    }

    /// Makes everything that is committed now durable, for at most `limit`. True if all of it is, but for databases that are refused or
    /// fenced.
    pub fn sync(&self, limit: Duration) -> bool {
        self.unsynced_after(limit).is_empty()
    }

    /// The same, until `is_over` says that it is no use; it is asked often.
    pub fn sync_until(&self, is_over: impl FnMut() -> bool) -> bool {
        self.unsynced_until(is_over).is_empty()
    }

    /// Which are not synced after so long.
    fn unsynced_after(&self, limit: Duration) -> Vec<Arc<Tracked>> {
        let end = self.shared.clock.monotonic() + limit;
        self.unsynced_until(|| self.shared.clock.monotonic() >= end)
    }

    fn unsynced_until(&self, mut is_over: impl FnMut() -> bool) -> Vec<Arc<Tracked>> {
        let databases = self.shared.databases();
        let mut waiting = Vec::new();
        for tracked in &databases {
            waiting.push((tracked, tracked.request_sync()));
            self.shared.wheel.add(tracked.clone(), self.shared.clock.monotonic());
        }
        loop {
            waiting.retain(|(tracked, request)| !tracked.is_synced(*request));
            if waiting.is_empty() || is_over() {
                return waiting.into_iter().map(|(tracked, _)| Arc::clone(tracked)).collect();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A last [`Replicator::sync`] within `limit`, then the end. Returns the databases of which not everything is durable, or of which
    /// that is not known, for they are refused or fenced.
    pub fn stop(self, limit: Duration) -> Vec<Status> {
        let unsynced: HashSet<*const Tracked> = self.unsynced_after(limit).iter().map(Arc::as_ptr).collect();
        let databases = self.shared.databases();
        let is_behind = |one: &&Arc<Tracked>| !one.is_durable() || unsynced.contains(&Arc::as_ptr(one));
        let now = self.shared.clock.monotonic();
        databases.iter().filter(is_behind).map(|one| one.status(now)).collect()
    }
}

impl Drop for Replicator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let shared = &self.shared;
        let queues = [&shared.uploading, &shared.uploading_large, &shared.snapshots, &shared.maintaining];
        shared.staging.iter().chain(queues).for_each(Queue::wake);
        self.shared.wheel.wake();
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        // An upload that hangs ends by its own time limit, or with the process: nobody waits for it here.
        self.threads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_waits_does_not_do_so_between_anothers_look_and_its_wait() {
        let queue = Arc::new(Queue::default());
        let looks = lock(&queue.waiting);
        let (tell, told) = std::sync::mpsc::channel();
        let of_thread = queue.clone();
        std::thread::spawn(move || {
            of_thread.wake();
            tell.send(())
        });
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "it would be heard by nobody");
        drop(looks);
        told.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
