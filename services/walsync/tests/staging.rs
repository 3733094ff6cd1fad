//! A staging folder that takes nothing more, or is gone: it is told, waited for, and nothing is called durable meanwhile.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, until};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Application, content};
use walsync::clock::SystemClock;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::memory::MemoryStore;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A replicator of one database that stages in a folder.
struct Scene {
    folder: harness::TempDir,
    database: PathBuf,
    store: Arc<MemoryStore>,
    replicator: Replicator,
    application: Application,
}

impl Scene {
    fn start(staging_folder: &Path) -> Scene {
        Scene::start_with(staging_folder, Settings { arena_bytes: 0, ..Settings::default() })
    }

    fn start_with(staging_folder: &Path, settings: Settings) -> Scene {
        let folder = folder();
        let database = folder.path().join("app.db");
        let application = Application::start(&database, TABLE);
        let store = Arc::new(MemoryStore::default());
        let settings =
            Settings { interval: Duration::from_millis(50), staging_folder: staging_folder.to_owned(), ..settings };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        let scene = Scene { folder, database, store, replicator, application };
        scene.replicator.add(scene.database.clone(), scene.replica());
        assert!(scene.replicator.sync(LONG));
        scene
    }

    fn replica(&self) -> Replica {
        Replica::new(self.store.clone(), ltx::Layout::Objects, "app.db")
    }

    fn read_whole(&self) -> u64 {
        let totals = self.replicator.totals();
        totals.anchors.load(Ordering::Relaxed) + totals.compared.load(Ordering::Relaxed)
    }

    fn wait_stalled(&self, problem: &str) {
        until("a stalled database", || match &self.replicator.status()[0].phase {
            Phase::Stalled(why) => why.contains(problem),
            _ => false,
        });
    }

    fn assert_replicated(self) {
        let output = self.folder.path().join("restored.db");
        restore(&self.replica(), Target::Latest, &output, true).unwrap();
        assert!(std::fs::read(output).unwrap() == content(&self.database));
        drop(self.replicator);
        self.application.close();
    }
}

#[test]
fn a_staging_folder_that_is_gone_is_told_and_waited_for_and_nothing_is_called_durable() {
    let folders = folder();
    let staging = folders.path().join("staging");
    std::fs::create_dir(&staging).unwrap();
    let mut scene = Scene::start(&staging);
    let (whole, durable) = (scene.read_whole(), scene.replicator.status()[0].durable_txid);
    std::fs::remove_dir(&staging).unwrap();
    scene.application.run(INSERT);
    scene.wait_stalled("staging: No such file");
    // Somebody who waits for it is not told a lie, and makes it try no oftener.
    let begun = Instant::now();
    assert!(!scene.replicator.sync(Duration::from_secs(2)));
    let status = &scene.replicator.status()[0];
    assert_eq!(status.durable_txid, durable);
    assert!(status.at_risk > Duration::from_secs(1), "{status:?}");
    let tries = || scene.replicator.totals().without_room.load(Ordering::Relaxed);
    until("another try", || tries() >= 2);
    let (tries, seconds) = (tries(), begun.elapsed().as_secs());
    assert!(tries <= seconds + 3, "{tries} in {seconds} seconds and a little");
    std::fs::create_dir(&staging).unwrap();
    assert!(scene.replicator.sync(LONG));
    let status = &scene.replicator.status()[0];
    assert!(status.phase == Phase::Running && status.durable_txid == durable + 1, "{status:?}");
    assert_eq!(scene.read_whole(), whole, "the WAL kept what was committed");
    scene.assert_replicated();
}

#[test]
fn a_check_point_does_not_wait_for_room_and_what_was_lost_sight_of_is_found() {
    let folders = folder();
    let staging = folders.path().join("staging");
    std::fs::create_dir(&staging).unwrap();
    let mut scene = Scene::start(&staging);
    std::fs::remove_dir(&staging).unwrap();
    scene.application.run(INSERT);
    scene.wait_stalled("No such file");
    scene.application.run("PRAGMA busy_timeout=60000");
    let begun = Instant::now();
    for _ in 0..3 {
        scene.application.run("PRAGMA wal_checkpoint(TRUNCATE)");
        scene.application.run(INSERT);
    }
    // One that waits in vain gives up after a minute.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    std::fs::create_dir(&staging).unwrap();
    assert!(scene.replicator.sync(LONG));
    scene.assert_replicated();
}

#[test]
fn a_snapshot_without_room_does_not_stop_what_is_committed() {
    let folders = folder();
    // Changes fit into memory, the database does not.
    let settings =
        Settings { snapshot_interval: Duration::from_millis(300), arena_bytes: 1 << 20, ..Settings::default() };
    let mut scene = Scene::start_with(&folders.path().join("gone"), settings);
    for _ in 0..8 {
        scene.application.run("INSERT INTO t(v) VALUES (randomblob(100000))");
        assert!(scene.replicator.sync(LONG));
    }
    until("a snapshot without room", || scene.replicator.totals().without_room.load(Ordering::Relaxed) > 0);
    for _ in 0..3 {
        scene.application.run(INSERT);
        assert!(scene.replicator.sync(LONG));
    }
    assert_eq!(scene.replicator.status()[0].phase, Phase::Running);
    assert_eq!(scene.replicator.totals().without_room.load(Ordering::Relaxed), 1, "tried again, but not at once");
    scene.assert_replicated();
}

/// A small file system in memory.
struct Disk(harness::TempDir);

impl Disk {
    fn mount() -> Disk {
        let folder = folder();
        let mut mount = Command::new("mount");
        harness::output(mount.args(["-t", "tmpfs", "-o", "size=4m", "walsync"]).arg(folder.path()));
        Disk(folder)
    }

    /// Somebody else's file, in all the room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("somebody-else");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_is_told_and_waited_for() {
    let disk = Disk::mount();
    let mut scene = Scene::start(disk.0.path());
    let others = disk.fill();
    let durable = scene.replicator.status()[0].durable_txid;
    scene.application.run("INSERT INTO t(v) VALUES (randomblob(100000))");
    scene.wait_stalled("No space left on device");
    assert!(!scene.replicator.sync(Duration::from_secs(1)));
    assert_eq!(scene.replicator.status()[0].durable_txid, durable);
    std::fs::remove_file(others).unwrap();
    assert!(scene.replicator.sync(LONG));
    assert_eq!(scene.replicator.status()[0].phase, Phase::Running);
    scene.assert_replicated();
}
