//! What is sent when nobody can prove that nothing was missed: the pages that differ from the replica, and after a change of the page size
//! a snapshot that what follows can stand on.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder, until};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Application, content};
use walsync::clock::SystemClock;
use walsync::difference::{NoChecksums, PageChecksums};
use walsync::replica::{RemoteFile, Replica};
use walsync::replicator::{Phase, Replicator, Settings};
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
    // The replicator's threads end a moment after it, and their locks with them.
    until("a database that is nobody else's", || application.try_run("PRAGMA journal_mode=DELETE") == "ok");
    for sql in ["PRAGMA page_size=8192", "VACUUM", "PRAGMA journal_mode=WAL"] {
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

/// Who writes blobs chooses bytes of pages.
#[test]
fn a_page_that_was_made_to_have_the_checksum_of_another_is_another() {
    let scene = Scene::new();
    let application = scene.application();
    assert!(scene.start().stop(LONG).is_empty());
    let checksums = PageChecksums::of(&scene.replica(), scene.newest()).unwrap();
    let page = content(&scene.database)[4096 * 9..4096 * 10].to_vec();
    let mut forged = page.clone();
    // A multiple of the polynomial of the files' checksums.
    for (at, bits) in [(1000, 1), (1007, 0xb0), (1008, 1)] {
        forged[at] ^= bits;
    }
    assert_eq!(ltx::page_checksum(10, &forged), ltx::page_checksum(10, &page));
    assert!(checksums.has(10, &page) && !checksums.has(10, &forged));
    application.close();
}

/// A scene whose replicator wants a snapshot `after` its start, and two transactions in it.
fn before_a_snapshot(scene: &Scene, after: Duration) -> (Application, Replicator) {
    let mut application = scene.application();
    let interval = Duration::from_millis(50);
    let settings = Settings { interval, snapshot_interval: after, ..Settings::default() };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    replicator.add(scene.database.clone(), scene.replica());
    assert!(replicator.sync(LONG));
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 5");
    assert!(replicator.sync(LONG));
    assert_eq!(scene.newest(), 2);
    (application, replicator)
}

fn has_snapshot(scene: &Scene, txid: u64) -> bool {
    scene.replica().files().unwrap().iter().any(|file| file.level == ltx::SNAPSHOT_LEVEL && file.name.max_txid == txid)
}

/// A WAL without a commit, that `emptied` leaves, holds up neither a snapshot nor a sync.
fn assert_snapshot_of(emptied: &[&str], finally: &str) {
    let scene = Scene::new();
    let (mut application, replicator) = before_a_snapshot(&scene, Duration::from_secs(2));
    emptied.iter().for_each(|sql| application.run(sql));
    assert!(!has_snapshot(&scene, 2), "it came before the WAL was emptied: this shows nothing");
    until("a snapshot", || has_snapshot(&scene, 2));
    assert!(replicator.sync(LONG), "{:?}", replicator.status());
    let whole = sent_whole_and_compared(&replicator);
    application.run(finally);
    assert!(replicator.stop(LONG).is_empty());
    assert_eq!((whole, scene.newest()), ((1, 0), 3), "nothing is sent whole again");
    scene.assert_restores();
    application.close();
}

#[test]
fn a_wal_that_was_begun_anew_without_a_commit_holds_up_neither_a_snapshot_nor_a_sync() {
    // A transaction that does not fit into the cache writes the new WAL's header, and frames of no commit.
    let emptied = ["PRAGMA wal_checkpoint(RESTART)", "PRAGMA cache_size=5", "BEGIN; UPDATE t SET v = randomblob(1900)"];
    assert_snapshot_of(&emptied, "COMMIT");
}

#[test]
fn a_wal_that_was_truncated_holds_up_neither_a_snapshot_nor_a_sync() {
    assert_snapshot_of(&["PRAGMA wal_checkpoint(TRUNCATE)"], "UPDATE t SET v = randomblob(1900) WHERE id = 6");
}

#[test]
fn a_snapshot_that_cannot_be_taken_holds_up_no_sync_and_is_told() {
    let scene = Scene::new();
    let (mut application, replicator) = before_a_snapshot(&scene, Duration::from_secs(2));
    // As a check point holds it that does not end.
    let path = walsync::database::with_suffix(&scene.database, "-shm");
    let index = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mark_0 = |kind: i32| nix::libc::flock {
        l_type: kind as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 123,
        l_len: 1,
        l_pid: 0,
    };
    let set = |kind| nix::fcntl::fcntl(&index, nix::fcntl::FcntlArg::F_OFD_SETLK(&mark_0(kind))).unwrap();
    set(nix::libc::F_WRLCK);
    let status = || replicator.status().remove(0);
    until("a snapshot that is late", || status().snapshot_late.is_some());
    application.run("UPDATE t SET v = randomblob(2000) WHERE id = 7");
    assert!(replicator.sync(Duration::from_secs(20)), "{:?}", status());
    let late = status();
    assert_eq!((late.phase, late.durable_txid), (Phase::Running, 3));
    assert!(late.snapshot_late.is_some_and(|late| late.why == "a check point is running"));
    assert!(!has_snapshot(&scene, 2) && !has_snapshot(&scene, 3));
    set(nix::libc::F_UNLCK);
    until("a snapshot", || has_snapshot(&scene, 3));
    until("no word of it", || status().snapshot_late.is_none());
    assert!(replicator.stop(LONG).is_empty());
    application.close();
}

#[test]
fn a_newest_file_of_which_less_than_a_header_is_there_is_followed_by_a_snapshot() {
    for kept in [0, 40, ltx::HEADER_SIZE - 1] {
        let scene = Scene::new();
        let mut application = scene.application();
        scene.start().stop(LONG);
        let newest = *scene.replica().files().unwrap().last().unwrap();
        let path = scene.folder.path().join("store").join(scene.replica().key(newest.level, newest.name));
        std::fs::File::options().write(true).open(path).unwrap().set_len(kept as u64).unwrap();
        application.run("INSERT INTO t(v) VALUES (randomblob(100))");
        let replicator = scene.start();
        assert!(scene.restored(Target::Latest) == content(&scene.database), "{kept} bytes of it are there");
        application.run("INSERT INTO t(v) VALUES (randomblob(100))");
        assert!(replicator.sync(LONG));
        assert!(scene.restored(Target::Latest) == content(&scene.database), "{kept} bytes of it are there");
        assert!(replicator.stop(LONG).is_empty());
    }
}

#[test]
fn a_newest_snapshot_that_is_damaged_is_replaced_though_nobody_commits() {
    let scene = Scene::new();
    let (application, replicator) = before_a_snapshot(&scene, Duration::from_secs(1));
    until("a snapshot", || has_snapshot(&scene, 2));
    assert!(replicator.stop(LONG).is_empty());
    let files = scene.replica().files().unwrap();
    let of_newest = |file: &&RemoteFile| file.level == ltx::SNAPSHOT_LEVEL && file.name.max_txid == 2;
    let snapshot = files.iter().find(of_newest).unwrap();
    let path = scene.folder.path().join("store").join(scene.replica().key(snapshot.level, snapshot.name));
    std::fs::File::options().write(true).open(path).unwrap().set_len(40).unwrap();
    let replicator = scene.start();
    scene.assert_restores();
    // Once is enough: what comes next is sent as it always is.
    assert_eq!((has_snapshot(&scene, 3), scene.newest()), (true, 3));
    assert_eq!(replicator.status().remove(0).phase, Phase::Running);
    assert!(replicator.stop(LONG).is_empty());
    let replicator = scene.start();
    assert!(replicator.stop(LONG).is_empty());
    assert_eq!(scene.newest(), 3);
    application.close();
}
