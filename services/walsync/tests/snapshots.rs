//! Snapshots hold up nothing: what is committed goes on being sent while one is read, and while one is uploaded.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{BUSY, LONG, again_if_late, folder, until};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Application, Meddled, content, is_read_whole};
use walsync::clock::SystemClock;
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::Store;
use walsync::store::memory::MemoryStore;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
/// A database that takes a while to be read.
const LARGE: &str = "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
     SELECT randomblob(100000) FROM n";

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

fn replica(store: &Arc<dyn Store>, name: &str) -> Replica {
    Replica::new(store.clone(), ltx::Layout::Objects, name)
}

fn settings(snapshot_interval: Duration) -> Settings {
    let interval = Duration::from_millis(50);
    Settings { interval, snapshot_interval, uploads: 1, levels: Vec::new(), ..Settings::default() }
}

fn assert_restores(replica: &Replica, database: &Path) {
    let folder = folder();
    let output = folder.path().join("restored.db");
    restore(replica, Target::Latest, &output, true).unwrap();
    assert!(std::fs::read(output).unwrap() == content(database));
}

#[test]
fn a_time_between_snapshots_that_never_comes_keeps_nothing_from_being_replicated() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let mut application = Application::start(&database, TABLE);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let replica = replica(&store, "app.db");
    // The second one finds the first file of all there, and reads when that was made.
    for _ in 0..2 {
        let replicator = Replicator::start(settings(Duration::MAX), Arc::new(SystemClock::default())).unwrap();
        replicator.add(database.clone(), replica.clone());
        for _ in 0..2 {
            application.run(INSERT);
            assert!(replicator.sync(LONG));
        }
        assert!(replicator.stop(LONG).is_empty());
    }
    assert_restores(&replica, &database);
    assert!(snapshots(&replica).is_empty());
    application.close();
}

/// The last transactions of the snapshots that the store has.
fn snapshots(replica: &Replica) -> Vec<u64> {
    let files = replica.files().unwrap();
    files.iter().filter(|file| file.level == ltx::SNAPSHOT_LEVEL).map(|file| file.name.max_txid).collect()
}

fn scene() -> Result<(), String> {
    let folder = folder();
    let database = folder.path().join("app.db");
    let mut application = Application::start(&database, TABLE);
    application.run("PRAGMA synchronous=OFF");
    application.run(LARGE);
    application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let settings = Settings { arena_bytes: 0, ..settings(Duration::from_secs(3)) };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    replicator.add(database.clone(), replica(&store, "app.db"));
    assert!(replicator.sync(LONG));
    application.run(INSERT);
    // What is held of a WAL that has nothing looks the same.
    assert!(replicator.sync(LONG));
    let durable = || replicator.status().remove(0).durable_txid;
    let replica = replica(&store, "app.db");
    until("a snapshot that is being taken", || {
        // On a busy machine one is taken before that, and the next one needs something to stand for.
        if snapshots(&replica).iter().any(|txid| *txid >= durable()) {
            application.run(INSERT);
        }
        is_read_whole(&database)
    });
    let before = durable();
    let mut meanwhile = before;
    loop {
        application.run(INSERT);
        let seen = durable();
        if !is_read_whole(&database) {
            break;
        }
        meanwhile = seen;
        std::thread::sleep(Duration::from_millis(5));
    }
    until("the snapshot", || snapshots(&replica).iter().any(|txid| *txid >= before));
    assert!(replicator.sync(LONG));
    assert_restores(&replica, &database);
    drop(replicator);
    application.close();
    if meanwhile >= before + 3 { Ok(()) } else { Err(format!("from {before} to {meanwhile} while it was read")) }
}

#[test]
fn what_is_committed_while_a_snapshot_is_read_is_sent_meanwhile() {
    again_if_late(BUSY, scene);
}

#[test]
fn no_upload_of_any_database_waits_for_that_of_a_snapshot() {
    let folder = folder();
    let databases = ["app.db", "other.db"].map(|name| folder.path().join(name));
    let mut applications = databases.each_ref().map(|path| Application::start(path, TABLE));
    let (hangs, is_sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (hangs_still, was_called) = (hangs.clone(), is_sent.clone());
    let of_snapshots = format!("app.db/{}", ltx::Layout::Objects.level(ltx::SNAPSHOT_LEVEL));
    let meddled = Meddled::new(Arc::default(), |_, _, _| {}).before_create(move |key| {
        while key.starts_with(&of_snapshots) && hangs_still.load(Ordering::Acquire) {
            was_called.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let store: Arc<dyn Store> = Arc::new(meddled);
    let replicator = Replicator::start(settings(Duration::from_secs(1)), Arc::new(SystemClock::default())).unwrap();
    for (path, name) in databases.iter().zip(["app.db", "other.db"]) {
        replicator.add(path.clone(), replica(&store, name));
    }
    let durable = || replicator.status().iter().map(|status| status.durable_txid).collect::<Vec<u64>>();
    until("first images", || durable().iter().all(|txid| *txid >= 1));
    applications[0].run(INSERT);
    until("a snapshot on its way", || is_sent.load(Ordering::Acquire));
    for _ in 0..3 {
        let before = durable();
        applications.iter_mut().for_each(|application| application.run(INSERT));
        until("both being durable", || durable().iter().zip(&before).all(|(now, before)| now > before));
    }
    assert!(!replicator.sync(Duration::from_millis(300)), "the snapshot is not there");
    hangs.store(false, Ordering::Release);
    assert!(replicator.sync(LONG));
    for (path, name) in databases.iter().zip(["app.db", "other.db"]) {
        assert!(!snapshots(&replica(&store, name)).is_empty() || name == "other.db");
        assert_restores(&replica(&store, name), path);
    }
    drop(replicator);
    applications.into_iter().for_each(Application::close);
}
