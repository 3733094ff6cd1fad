//! What is sent when nobody can prove that nothing was missed: the pages that differ from the replica, and after a change of the page size
//! a snapshot that what follows can stand on.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Application, content};
use walsync::clock::SystemClock;
use walsync::difference::{NoChecksums, PageChecksums};
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::Store;
use walsync::store::files::FileStore;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A database of some hundred pages, and where it is replicated to.
struct Scene {
    folder: TempDir,
    database: PathBuf,
    store: Arc<FileStore>,
}

impl Scene {
    fn new() -> Scene {
        let folder = folder();
        let store = Arc::new(FileStore::new(folder.path().join("store")));
        let database = folder.path().join("app.db");
        Scene { folder, database, store }
    }

    fn application(&self) -> Application {
        let mut application = Application::start(&self.database, TABLE);
        application.run(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
            INSERT OR IGNORE INTO t SELECT i, randomblob(2000) FROM n",
        );
        application
    }

    fn replica(&self) -> Replica {
        Replica::new(self.store.clone(), ltx::Layout::Files, "")
    }

    fn start(&self) -> Replicator {
        let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        replicator.add(self.database.clone(), self.replica());
        assert!(replicator.sync(LONG));
        replicator
    }

    fn restored(&self, target: Target) -> Vec<u8> {
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        restore(&self.replica(), target, &output, true).unwrap();
        std::fs::read(output).unwrap()
    }

    /// The newest state, as both programs restore it.
    fn assert_restores(&self) {
        let expected = content(&self.database);
        assert!(self.restored(Target::Latest) == expected);
        let url = format!("file://{}", self.folder.path().join("store").display());
        assert!(support::restored_by_litestream(&url, &[]) == expected, "Litestream");
    }

    fn newest(&self) -> u64 {
        self.replica().files().unwrap().iter().map(|file| file.name.max_txid).max().unwrap()
    }

    /// Bytes of the files that end after a point.
    fn bytes_after(&self, txid: u64) -> u64 {
        let files = self.replica().files().unwrap();
        files.iter().filter(|file| file.name.max_txid > txid).map(|file| file.size).sum()
    }
}

fn sent_whole_and_compared(replicator: &Replicator) -> (u64, u64) {
    let totals = replicator.totals();
    (totals.anchors.load(Ordering::Relaxed), totals.compared.load(Ordering::Relaxed))
}

#[test]
fn after_a_downtime_the_pages_that_differ_are_sent_and_not_all_of_them() {
    let scene = Scene::new();
    let mut application = scene.application();
    let replicator = scene.start();
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 5");
    assert!(replicator.stop(LONG).is_empty());
    let (before, whole) = (scene.newest(), scene.bytes_after(0));
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 7");
    // What it was is in no WAL any more.
    application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 9");
    let replicator = scene.start();
    assert_eq!(sent_whole_and_compared(&replicator), (0, 1));
    let sent = scene.bytes_after(before);
    assert!(sent > 4000 && sent < whole / 20, "{sent} bytes of {whole}");
    scene.assert_restores();
    // It goes on from there, also after a database that has become smaller.
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 11");
    assert!(replicator.stop(LONG).is_empty());
    scene.assert_restores();
    application.run("DELETE FROM t WHERE id > 100");
    application.run("VACUUM");
    application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let replicator = scene.start();
    assert_eq!(sent_whole_and_compared(&replicator), (0, 1));
    scene.assert_restores();
    drop(replicator);
    application.close();
}

#[test]
fn a_database_that_did_not_change_while_nobody_looked_sends_one_page_to_take_its_place_over() {
    let scene = Scene::new();
    let mut application = scene.application();
    let replicator = scene.start();
    assert!(replicator.stop(LONG).is_empty());
    let before = scene.newest();
    application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let replicator = scene.start();
    assert_eq!((sent_whole_and_compared(&replicator), scene.newest()), ((0, 1), before + 1));
    assert!(scene.bytes_after(before) < 4096, "{} bytes", scene.bytes_after(before));
    // And then it changes.
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 5");
    assert!(replicator.sync(LONG));
    assert_eq!(scene.newest(), before + 2);
    scene.assert_restores();
    drop(replicator);
    application.close();
}

#[test]
fn what_follows_a_change_of_the_page_size_stands_on_a_snapshot() {
    let scene = Scene::new();
    let mut application = scene.application();
    let replicator = scene.start();
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 5");
    assert!(replicator.stop(LONG).is_empty());
    let (before, then) = (scene.newest(), content(&scene.database));
    for sql in ["PRAGMA journal_mode=DELETE", "PRAGMA page_size=8192", "VACUUM", "PRAGMA journal_mode=WAL"] {
        application.run(sql);
    }
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 7");
    let replicator = scene.start();
    scene.assert_restores();
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 9");
    assert!(replicator.sync(LONG));
    scene.assert_restores();
    assert_eq!(content(&scene.database)[16..18], 8192u16.to_be_bytes());
    assert!(scene.restored(Target::Txid(before)) == then, "and what was before is still there");
    assert!(replicator.stop(LONG).is_empty());
    // Nobody takes the pages of one size for those of the other.
    let replicator = scene.start();
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 11");
    assert!(replicator.stop(LONG).is_empty());
    scene.assert_restores();
    application.close();
}

#[test]
fn checksums_are_of_the_newest_point_and_a_hole_leaves_none() {
    let scene = Scene::new();
    let mut application = scene.application();
    let replicator = scene.start();
    for id in 1..4 {
        application.run(&format!("UPDATE t SET v = randomblob(2000) WHERE id = {id}"));
        assert!(replicator.sync(LONG));
    }
    assert!(replicator.stop(LONG).is_empty());
    let newest = scene.newest();
    let checksums = PageChecksums::of(&scene.replica(), newest).unwrap();
    let database = content(&scene.database);
    assert_eq!((checksums.page_size(), checksums.size() as usize), (4096, database.len() / 4096));
    for (index, page) in database.chunks(4096).enumerate() {
        let number = index as u32 + 1;
        assert!(checksums.has(number, page), "page {number}");
        let mut other = page.to_vec();
        other[100] ^= 1;
        assert!(!checksums.has(number, &other) && !checksums.has(number + 1, page), "page {number}");
    }
    assert!(!checksums.has(checksums.size() + 1, &database[..4096]));
    let other = PageChecksums::of(&scene.replica(), newest - 1);
    assert!(matches!(other, Err(NoChecksums::OtherEnd(end)) if end == newest));
    let files = scene.replica().files().unwrap();
    let file = files.iter().find(|file| file.name.max_txid == newest - 1).unwrap();
    scene.store.delete(&scene.replica().key(file.level, file.name)).unwrap();
    assert!(matches!(PageChecksums::of(&scene.replica(), newest), Err(NoChecksums::Replica(_))));
    application.close();
}
