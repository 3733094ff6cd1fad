//! What both pins promise, asked of both: what each hold stops and lets pass, how it yields, and that not a byte of anybody's is changed.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, until};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Application, Walsync, content, walsync};
use walsync::arena::Arena;
use walsync::clock::{Clock, SystemClock};
use walsync::database::{DatabaseFiles, with_suffix};
use walsync::pin::{Hold, Pin, PinKind};
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::source::{Source as _, SourceError, Stamp, stage_image};
use walsync::store::memory::MemoryStore;
use walsync::wal_index::WalIndex;

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

const KINDS: [PinKind; 2] = [PinKind::Locks, PinKind::ReadTransaction];
const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(3000))";
const LONG: Duration = Duration::from_secs(60);

struct Held {
    files: DatabaseFiles,
    pin: Box<dyn Pin>,
}

impl Held {
    fn new(database: &Path, kind: PinKind) -> Held {
        let files = DatabaseFiles::open(database).unwrap();
        let pin = files.pin(kind).unwrap();
        assert_eq!((pin.kind(), pin.held()), (kind, Hold::Nothing));
        Held { files, pin }
    }

    fn index(&self) -> WalIndex {
        self.files.wal_index().unwrap().unwrap()
    }

    fn hold(&mut self, hold: Hold) {
        let index = self.index();
        assert!(self.pin.hold(hold, Some(&index)).unwrap(), "{hold:?}");
        assert_eq!(self.pin.held(), hold);
    }
}

/// For each kind of pin: a database with an application that has a transaction in its WAL and waits for nobody.
fn of_each_kind(check: impl Fn(&Path, Application, PinKind)) {
    for kind in KINDS {
        println!("{kind}");
        let folder = folder();
        let database = folder.path().join("app %?#ä.db");
        let mut application = Application::start(&database, TABLE);
        application.run("PRAGMA busy_timeout=0");
        application.run(INSERT);
        check(&database, application, kind);
    }
}

/// Everything that the folder of a database holds, but when it was looked at last.
fn all_files(database: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let entries = std::fs::read_dir(database.parent().unwrap()).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn presence_keeps_the_wal_when_the_application_closes() {
    of_each_kind(|database, application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Presence);
        application.close();
        assert!(with_suffix(database, "-wal").exists());
        drop(held);
        Application::start(database, TABLE).close();
        assert!(!with_suffix(database, "-wal").exists(), "it is given back");
    });
}

#[test]
fn frames_are_neither_restarted_nor_cut_until_they_are_let_go_of() {
    of_each_kind(|database, mut application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        let before = held.index();
        for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
            application.try_run(&format!("PRAGMA wal_checkpoint({mode})"));
            application.run(INSERT);
            let now = held.index();
            assert!(now.salts == before.salts && now.frames > before.frames, "{mode}: {now:?} after {before:?}");
        }
        held.hold(Hold::Presence);
        application.run("PRAGMA wal_checkpoint(RESTART)");
        application.run(INSERT);
        assert_ne!(held.index().salts, before.salts, "it is given back");
        application.close();
    });
}

#[test]
fn frames_are_held_again_behind_a_check_point_that_copied_all_of_them() {
    of_each_kind(|database, mut application, kind| {
        application.run("PRAGMA wal_checkpoint(PASSIVE)");
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        // A restart may come now, once, for all is in the database file.
        application.run(INSERT);
        held.hold(Hold::Frames);
        let before = held.index();
        assert!(before.frames > before.backfilled);
        application.try_run("PRAGMA wal_checkpoint(RESTART)");
        application.run(INSERT);
        assert_eq!(held.index().salts, before.salts);
        application.close();
    });
}

#[test]
fn an_image_is_a_state_of_the_database_however_busy_its_writer_is() {
    const IMAGES: u32 = 40;
    of_each_kind(|database, mut application, kind| {
        application.run("DELETE FROM t");
        application.run("PRAGMA busy_timeout=5000");
        application.run("PRAGMA wal_autocheckpoint=20");
        application.count_from(1);
        let mut held = Held::new(database, kind);
        let arena = Arena::new(1 << 20, std::env::temp_dir());
        let (mut images, mut rows) = (0, 0);
        let end = Instant::now() + LONG;
        while images < IMAGES {
            assert!(Instant::now() < end, "{images} images");
            let index = held.files.wal_index().unwrap();
            if !held.pin.hold(Hold::Image, index.as_ref()).unwrap() {
                continue;
            }
            let stamp = Stamp { min_txid: 1, max_txid: 1, timestamp_millis: 0, node_id: 0, follows: 0 };
            let image = match stage_image(&held.files, stamp, None, None, &arena, || Ok(None)) {
                Ok(image) => image,
                Err(SourceError::Busy(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            images += 1;
            let size = image.staged.position.size;
            assert!(size > 0);
            let store = Arc::new(MemoryStore::default());
            let replica = Replica::new(store.clone(), ltx::Layout::Objects, "app");
            let mut file = image.staged.file;
            replica.put(9, &mut file).unwrap();
            let now = rows_of(&replica);
            assert!(now >= rows, "{now} after {rows}");
            rows = now;
            held.pin.hold(Hold::Presence, None).unwrap();
        }
        application.kill();
    });
}

/// How many rows the newest state has, all of which are there.
fn rows_of(replica: &Replica) -> i64 {
    let folder = folder();
    let output = folder.path().join("restored.db");
    restore(replica, Target::Latest, &output, true).unwrap();
    let connection = rusqlite::Connection::open(&output).unwrap();
    let value = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let ok: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
    let rows = value("SELECT count(*) FROM t");
    assert_eq!(value("SELECT ifnull(max(id), 0) FROM t"), rows);
    rows
}

#[test]
fn a_check_point_that_waits_is_seen_and_passes_when_it_is_let() {
    of_each_kind(|database, mut application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        application.run("BEGIN IMMEDIATE");
        assert!(!held.pin.checkpointer_waits().unwrap(), "a writer is no check point");
        application.run("COMMIT");
        application.run("PRAGMA busy_timeout=60000");
        let begun = Instant::now();
        application.begin("PRAGMA wal_checkpoint(TRUNCATE)");
        until("a check point that waits", || held.pin.checkpointer_waits().unwrap());
        held.pin.hold(Hold::Presence, None).unwrap();
        application.run("SELECT 1");
        assert!(begun.elapsed() < Duration::from_secs(50));
        assert_eq!(std::fs::metadata(with_suffix(database, "-wal")).unwrap().len(), 0);
    });
}

#[test]
fn nothing_is_written_created_or_recovered() {
    of_each_kind(|database, mut application, kind| {
        let before = all_files(database);
        let mut held = Held::new(database, kind);
        for hold in [Hold::Presence, Hold::Frames, Hold::Image, Hold::Nothing, Hold::Image] {
            held.hold(hold);
            assert!(all_files(database) == before, "{hold:?}");
        }
        drop(held);
        assert!(all_files(database) == before, "the end");
        // Nobody is there, and what an application left would have to be recovered.
        application.run(INSERT);
        let before = all_files(database);
        application.kill();
        let mut held = Held::new(database, kind);
        assert!(held.pin.hold(Hold::Image, None).unwrap());
        assert!(all_files(database) == before, "without an application");
        drop(held);
        assert!(all_files(database) == before, "the end without an application");
        // Neither WAL nor index.
        Application::start(database, TABLE).close();
        let before = all_files(database);
        assert_eq!(before.len(), 1);
        let mut held = Held::new(database, kind);
        assert!(held.pin.hold(Hold::Image, None).unwrap());
        assert_eq!(held.pin.held(), Hold::Presence);
        assert!(all_files(database) == before, "without a WAL");
    });
}

/// A clock that goes on by a second whenever the thread that looks at databases asks it: it looks without a pause.
#[derive(Default)]
struct Hurried(AtomicU64);

impl Clock for Hurried {
    fn monotonic(&self) -> Duration {
        let looks = std::thread::current().name() == Some("poller");
        Duration::from_secs(self.0.fetch_add(looks.into(), Ordering::Relaxed))
    }

    fn unix_millis(&self) -> i64 {
        1_800_000_000_000 + self.monotonic().as_millis() as i64
    }
}

/// How often the thread that looks at databases has read from a file: an idle look reads once. `None`: there is none.
fn reads_of_the_poller() -> Option<u64> {
    let is_poller = |thread: &PathBuf| std::fs::read(thread.join("comm")).is_ok_and(|name| name == b"poller\n");
    let poller = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path()).find(is_poller)?;
    let io = std::fs::read_to_string(poller.join("io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
}

#[test]
fn a_months_worth_of_looks_changes_nothing() {
    // Once a second for 30 days.
    const LOOKS: u64 = 30 * 86_400;
    of_each_kind(|database, application, kind| {
        let before = all_files(database);
        let settings = Settings { pin: Some(kind), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(Hurried::default())).unwrap();
        let replica = Replica::new(Arc::new(MemoryStore::default()), ltx::Layout::Objects, "app");
        replicator.add(database.to_owned(), replica.clone());
        until("so many looks", || reads_of_the_poller().is_some_and(|reads| reads >= LOOKS));
        assert!(replicator.sync(LONG * 1_000_000), "of that clock, which runs");
        drop(replicator);
        assert!(all_files(database) == before);
        let folder = folder();
        let output = folder.path().join("restored.db");
        restore(&replica, Target::Latest, &output, true).unwrap();
        assert!(std::fs::read(output).unwrap() == content(database), "it was watched");
        application.close();
    });
}

#[test]
fn files_that_are_opened_and_closed_beside_it_in_its_process_take_nothing_from_it() {
    of_each_kind(|database, mut application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        let before = held.index();
        for _ in 0..3 {
            drop(DatabaseFiles::open(database).unwrap());
        }
        application.try_run("PRAGMA wal_checkpoint(TRUNCATE)");
        application.run(INSERT);
        assert_eq!(held.index().salts, before.salts);
        application.close();
        assert!(with_suffix(database, "-wal").exists());
    });
}

#[test]
fn once_the_application_has_gone_the_index_is_in_nobodys_use() {
    of_each_kind(|database, mut application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        held.pin.settle().unwrap();
        assert_eq!(held.pin.held(), Hold::Frames, "somebody is there");
        application.run(INSERT);
        application.close();
        held.pin.settle().unwrap();
        // As SQLite's test walro-1.2.3: an index that is damaged while nobody is there stops no reader that may not write.
        let index = with_suffix(database, "-shm");
        let mut bytes = std::fs::read(&index).unwrap();
        bytes[..4].copy_from_slice(&[1, 2, 3, 4]);
        std::fs::write(&index, bytes).unwrap();
        let said = support::read_without_writing(database);
        assert_eq!(said, "ok");
        Application::start(database, TABLE).run(INSERT);
    });
}

#[test]
fn a_killed_application_comes_back_beside_it() {
    of_each_kind(|database, mut application, kind| {
        let mut held = Held::new(database, kind);
        held.hold(Hold::Frames);
        application.run("BEGIN");
        application.run(INSERT);
        application.kill();
        let mut application = Application::start(database, TABLE);
        application.run(INSERT);
        held.hold(Hold::Frames);
        let before = held.index();
        application.try_run("PRAGMA wal_checkpoint(TRUNCATE)");
        application.run(INSERT);
        assert_eq!(held.index().salts, before.salts);
        application.close();
    });
}

#[test]
fn a_replicator_by_either_pin_sends_what_changes_and_reads_nothing_whole_again() {
    of_each_kind(|database, mut application, kind| {
        let store = Arc::new(MemoryStore::default());
        let settings = Settings { interval: Duration::from_millis(50), pin: Some(kind), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        let replica = || Replica::new(store.clone(), ltx::Layout::Objects, "app");
        replicator.add(database.to_owned(), replica());
        assert!(replicator.sync(LONG));
        application.run("PRAGMA busy_timeout=60000");
        let whole = |replicator: &Replicator| {
            let totals = replicator.totals();
            totals.anchors.load(Ordering::Relaxed) + totals.compared.load(Ordering::Relaxed)
        };
        let before = whole(&replicator);
        for turn in 0..30 {
            application.run(INSERT);
            if turn % 3 == 2 {
                let begun = Instant::now();
                application.run("PRAGMA wal_checkpoint(TRUNCATE)");
                assert!(begun.elapsed() < Duration::from_secs(50), "turn {turn}");
                // Who writes and cuts a WAL twice between two looks is answered with the whole database, by either pin.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        assert!(replicator.sync(LONG));
        assert!(replicator.totals().yields.load(Ordering::Relaxed) > 0, "they waited for us");
        // Each of ten TRUNCATEs that comes from the only writer is provable; a look that comes too late, on a busy machine, proves nothing.
        let read = whole(&replicator) - before;
        assert!(read <= 5, "read whole {read} times");
        let folder = folder();
        let output = folder.path().join("restored.db");
        restore(&replica(), Target::Latest, &output, true).unwrap();
        assert!(std::fs::read(output).unwrap() == content(database));
        drop(replicator);
        application.close();
    });
}

#[test]
fn the_first_commit_after_an_emptied_wal_is_not_sent_with_the_whole_database() {
    of_each_kind(|database, mut application, kind| {
        application.run("PRAGMA wal_checkpoint(TRUNCATE)");
        let store = Arc::new(MemoryStore::default());
        let settings = Settings { interval: Duration::from_millis(50), pin: Some(kind), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        let replica = Replica::new(store, ltx::Layout::Objects, "app");
        replicator.add(database.to_owned(), replica.clone());
        assert!(replicator.sync(LONG));
        application.run(INSERT);
        assert!(replicator.sync(LONG));
        let totals = replicator.totals();
        assert_eq!((totals.anchors.load(Ordering::Relaxed), totals.compared.load(Ordering::Relaxed)), (1, 0));
        let folder = folder();
        let output = folder.path().join("restored.db");
        restore(&replica, Target::Latest, &output, true).unwrap();
        drop(replicator);
        application.run("PRAGMA wal_checkpoint(TRUNCATE)");
        assert!(std::fs::read(output).unwrap() == content(database));
        application.close();
    });
}

#[test]
fn explain_and_the_log_say_what_holds() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let mut application = Application::start(&database, TABLE);
    let configuration = folder.path().join("walsync.yml");
    for (pin, says) in [
        ("", "frames held by locks: 1 database,"),
        ("pin: locks\n", "frames held by locks: 1 database,"),
        ("pin: read-transaction\n", "frames held by read-transaction: 1 database,"),
    ] {
        let store = folder.path().join("store");
        let (store, path) = (store.display(), database.display());
        let text = format!("store: file://{store}\ninterval-millis: 50\n{pin}databases: [{{path: {path}}}]\n");
        std::fs::write(&configuration, text).unwrap();
        let said = harness::output(walsync().args(["explain", "--config"]).arg(&configuration));
        assert!(said.contains(says), "{said}");
        application.run(INSERT);
        let mut command = walsync();
        command.args(["watch", "--config"]).arg(&configuration);
        let log = folder.path().join("log");
        let mut running = Walsync::start(command, &log);
        running.wait_durable(1);
        running.stop();
        let told = std::fs::read_to_string(&log).unwrap().contains("held by a read transaction");
        assert_eq!(told, pin.contains("read-transaction"), "{pin}");
    }
    std::fs::write(&configuration, "store: /s\npin: none\ndatabases: [{path: /a.db}]").unwrap();
    let refused = walsync().args(["explain", "--config"]).arg(&configuration).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    application.close();
}
