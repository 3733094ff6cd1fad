//! The application comes first: its WAL grows no further than was allowed because we hold it, whatever becomes of the store, and its check
//! points do not wait for a database to be read.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder, until};
use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::{Application, content, is_read_whole};
use walsync::clock::SystemClock;
use walsync::database::with_suffix;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings, Status};
use walsync::restore::{Target, restore};
use walsync::store::memory::{Fault, MemoryStore};
use walsync::store::{Attributes, Body, Object, Part, Store, StoreError};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const LONG: Duration = Duration::from_secs(60);
/// What a WAL may grow by.
const BOUND: u64 = 8 << 20;
/// Beside that SQLite lets a WAL grow to a thousand pages of 4 KiB, and a writer is ahead of who looks.
const SLACK: u64 = 16 << 20;

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

/// A store that may fall silent: who writes waits.
#[derive(Default)]
struct Silent {
    store: MemoryStore,
    is_silent: Mutex<bool>,
    changed: Condvar,
    /// Somebody writes, and waits.
    was_called: AtomicBool,
}

impl Silent {
    fn set(&self, is_silent: bool) {
        *self.is_silent.lock().unwrap() = is_silent;
        self.changed.notify_all();
    }
}

impl Store for Silent {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, with: &Attributes) -> Result<(), StoreError> {
        let mut is_silent = self.is_silent.lock().unwrap();
        while *is_silent {
            self.was_called.store(true, Ordering::Relaxed);
            is_silent = self.changed.wait(is_silent).unwrap();
        }
        drop(is_silent);
        self.store.create(key, body, length, with)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        self.store.get(key, range)
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        self.store.get_part(key, range, version)
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        self.store.list_after(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.store.delete(key)
    }
}

struct Scene {
    folder: TempDir,
    database: PathBuf,
    store: Arc<Silent>,
    application: Application,
    replicator: Replicator,
}

impl Scene {
    fn start(settings: Settings, sql: &[&str]) -> Scene {
        let folder = folder();
        let database = folder.path().join("app.db");
        let store = Arc::new(Silent::default());
        let mut application = Application::start(&database, TABLE);
        application.run("PRAGMA synchronous=OFF");
        application.run(
            "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
             SELECT randomblob(500) FROM n",
        );
        sql.iter().for_each(|sql| application.run(sql));
        let settings = Settings { interval: Duration::from_millis(50), wal_bytes_max: BOUND, ..settings };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        let scene = Scene { folder, database, store, application, replicator };
        scene.replicator.add(scene.database.clone(), scene.replica());
        assert!(scene.replicator.sync(LONG));
        scene
    }

    fn replica(&self) -> Replica {
        Replica::new(self.store.clone(), ltx::Layout::Objects, "app.db")
    }

    fn status(&self) -> Status {
        self.replicator.status().remove(0)
    }

    fn wal_bytes(&self) -> u64 {
        std::fs::metadata(with_suffix(&self.database, "-wal")).map_or(0, |wal| wal.len())
    }

    fn read_whole(&self) -> u64 {
        let totals = self.replicator.totals();
        totals.anchors.load(Ordering::Relaxed) + totals.compared.load(Ordering::Relaxed)
    }

    fn let_go(&self) -> u64 {
        self.replicator.totals().let_go.load(Ordering::Relaxed)
    }

    fn assert_replicated(self) {
        assert!(self.replicator.sync(LONG), "{:?}", self.status());
        assert_eq!((self.status().phase, self.status().let_go), (Phase::Running, None));
        let output = self.folder.path().join("restored.db");
        restore(&self.replica(), Target::Latest, &output, true).unwrap();
        assert!(std::fs::read(output).unwrap() == content(&self.database));
        drop(self.replicator);
        self.application.close();
    }
}

#[test]
fn a_wal_does_not_grow_for_ever_while_the_store_is_away() {
    let mut scene = Scene::start(Settings::default(), &[]);
    scene.store.store.set_fault(Fault::Refuse);
    scene.application.commit(10);
    until("a failure", || matches!(scene.status().phase, Phase::Failing(_)));
    // Some hundred bytes more than a page each.
    scene.application.commit(20_000);
    // Half of what was written: who gets no processor lets go of it late.
    assert!(scene.wal_bytes() < 20_000 * 4_096 / 2, "{} bytes", scene.wal_bytes());
    assert!(scene.let_go() > 0 && scene.status().let_go.is_some(), "{:?}", scene.status());
    let read = scene.read_whole();
    scene.store.store.set_fault(Fault::None);
    assert!(scene.replicator.sync(LONG));
    assert_eq!(scene.read_whole(), read + 1, "what was lost sight of is found, and by comparing once");
    assert_eq!(scene.replicator.totals().anchors.load(Ordering::Relaxed), 1);
    scene.assert_replicated();
}

#[test]
fn a_wal_does_not_grow_for_ever_while_an_upload_takes_its_time_and_nothing_is_lost_sight_of() {
    let mut scene = Scene::start(Settings::default(), &[]);
    scene.store.set(true);
    scene.application.commit(10);
    until("an upload", || scene.store.was_called.load(Ordering::Relaxed));
    let read = scene.read_whole();
    for _ in 0..40 {
        scene.application.commit(300);
        // One that never pauses may be lost sight of at any time.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(scene.wal_bytes() < BOUND + SLACK, "{} bytes", scene.wal_bytes());
    scene.store.set(false);
    assert!(scene.replicator.sync(LONG));
    assert_eq!(scene.let_go(), 0, "it was staged before");
    // Of some twelve times that it is let go of. Who gets no processor is right to read the database.
    let read = scene.read_whole() - read;
    assert!(read <= 4, "read whole {read} times");
    scene.assert_replicated();
}

#[test]
fn check_points_do_not_wait_for_a_store_that_is_away_for_long() {
    let mut scene = Scene::start(Settings::default(), &[]);
    scene.store.store.set_fault(Fault::Refuse);
    scene.application.commit(1);
    until("a failure", || matches!(scene.status().phase, Phase::Failing(_)));
    let begun = Instant::now();
    // More than are staged, at most.
    for _ in 0..70 {
        scene.application.commit(1);
        // So that it is seen, and held.
        std::thread::sleep(Duration::from_millis(50));
        scene.application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    // One that waits in vain gives up after the busy timeout of five seconds, and there are six of them.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(scene.let_go() > 0);
    scene.store.store.set_fault(Fault::None);
    scene.assert_replicated();
}

#[test]
fn whoever_asks_again_and_again_while_the_store_is_away_has_no_more_staged_for_that() {
    let mut scene = Scene::start(Settings::default(), &[]);
    scene.store.store.set_fault(Fault::Refuse);
    for _ in 0..100 {
        scene.application.commit(1);
        scene.replicator.sync(Duration::from_millis(60));
    }
    let (staged, durable) = (scene.status().staged_txid, scene.status().durable_txid);
    assert!(staged - durable <= 66, "{staged} staged, {durable} durable");
    scene.store.store.set_fault(Fault::None);
    scene.assert_replicated();
}

/// A database that takes a while to be read.
const LARGE: [&str; 2] = [
    "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
     SELECT randomblob(100000) FROM n",
    "PRAGMA wal_checkpoint(TRUNCATE)",
];

#[test]
fn a_check_point_does_not_wait_until_a_large_database_is_read() {
    let settings = Settings { snapshot_interval: Duration::from_secs(4), arena_bytes: 0, ..Settings::default() };
    let mut scene = Scene::start(settings, &LARGE);
    scene.application.run("PRAGMA busy_timeout=500");
    scene.application.commit(10);
    until("a snapshot that is being taken", || is_read_whole(&scene.database));
    scene.application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    assert_eq!(scene.wal_bytes(), 0, "it waited in vain");
    let last = scene.status().staged_txid;
    let is_taken = || {
        let whole = |file: &walsync::replica::RemoteFile| file.level == 9 && file.name.max_txid >= last;
        scene.replica().files().unwrap().iter().any(whole)
    };
    until("the snapshot", is_taken);
    scene.assert_replicated();
}

#[test]
fn a_wal_does_not_grow_for_ever_while_a_large_database_is_read() {
    let settings = Settings { snapshot_interval: Duration::from_secs(4), arena_bytes: 0, ..Settings::default() };
    let mut scene = Scene::start(settings, &LARGE);
    scene.application.commit(10);
    until("a snapshot that is being taken", || is_read_whole(&scene.database));
    // No more than that, and what SQLite lets it grow to: who gets no processor sees it late.
    until("reading that is given up for a WAL", || {
        if is_read_whole(&scene.database) && scene.wal_bytes() < BOUND + SLACK / 2 {
            scene.application.commit(300);
        }
        scene.status().snapshot_late.is_some_and(|late| late.why.contains("grows beyond wal-bytes-max"))
    });
    let header = || std::fs::read(with_suffix(&scene.database, "-wal")).unwrap()[..32].to_vec();
    let before = header();
    until("a WAL that is begun anew", || {
        scene.application.commit(100);
        header() != before
    });
    assert!(scene.wal_bytes() < BOUND + 2 * SLACK, "{} bytes", scene.wal_bytes());
    scene.assert_replicated();
}
