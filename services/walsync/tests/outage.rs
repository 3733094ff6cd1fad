//! The replicator in this process, over a store that fails as the test says; the application in a process of its own.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, folder_on_disk, until};
use std::io::{Cursor, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Application, Meddled, content};
use walsync::clock::{Clock, SystemClock};
use walsync::fetch::ReadAhead;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::memory::{Fault, MemoryStore};
use walsync::store::{Attributes, Store};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

fn replica(store: &Arc<MemoryStore>) -> Replica {
    Replica::new(store.clone(), ltx::Layout::Objects, "app.db")
}

fn start(database: &Path, store: &Arc<MemoryStore>) -> Replicator {
    let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
    start_with(settings, Arc::new(SystemClock::default()), database, store)
}

fn start_with(settings: Settings, clock: Arc<dyn Clock>, database: &Path, store: &Arc<MemoryStore>) -> Replicator {
    let replicator = Replicator::start(settings, clock).unwrap();
    replicator.add(database.to_owned(), replica(store));
    replicator
}

fn restored(folder: &Path, store: &Arc<MemoryStore>) -> Vec<u8> {
    let output = folder.join("restored.db");
    let restored = |read_ahead: ReadAhead| {
        let _ = std::fs::remove_file(&output);
        let replica = replica(store).reading_ahead(read_ahead);
        let restored = restore(&replica, Target::Latest, &output, true).unwrap();
        assert!((1..=read_ahead.bytes_max()).contains(&restored.bytes_ahead_max), "{restored:?}");
        std::fs::read(&output).unwrap()
    };
    let whole = restored(ReadAhead::default());
    assert!(restored(ReadAhead { part_bytes: 1000, parts: 3 }) == whole, "in small ranges");
    whole
}

#[test]
fn an_outage_loses_nothing_and_sends_nothing_twice() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    application.run("PRAGMA wal_autocheckpoint=10");
    let replicator = start(&database, &store);
    assert!(replicator.sync(LONG));
    for fault in [Fault::Refuse, Fault::LoseAnswer] {
        let anchors = replicator.totals().anchors.load(Ordering::Relaxed);
        store.set_fault(fault);
        for _ in 0..40 {
            application.run(INSERT);
        }
        until("a failure", || matches!(replicator.status()[0].phase, Phase::Failing(_)));
        for _ in 0..40 {
            application.run(INSERT);
        }
        store.set_fault(Fault::None);
        assert!(replicator.sync(LONG), "{fault:?}");
        assert_eq!(replicator.status()[0].phase, Phase::Running);
        assert!(restored(folder.path(), &store) == content(&database), "{fault:?}");
        // The WAL kept what could not be sent: the database did not have to be sent whole.
        assert_eq!(replicator.totals().anchors.load(Ordering::Relaxed), anchors, "{fault:?}");
        assert_eq!(replicator.totals().compared.load(Ordering::Relaxed), 0, "{fault:?}");
    }
    drop(replicator);
    application.close();
}

#[test]
fn of_two_writers_one_is_stopped() {
    let folder = folder();
    let store = Arc::new(MemoryStore::default());
    let (one, two) = (folder.path().join("one.db"), folder.path().join("two.db"));
    let mut applications = [&one, &two].map(|path| Application::start(path, TABLE));
    let first = start(&one, &store);
    assert!(first.sync(LONG));
    // A second machine with the same configuration takes the place over.
    let second = start(&two, &store);
    assert!(second.sync(LONG));
    applications[0].run(INSERT);
    until("the fence", || matches!(first.status()[0].phase, Phase::Fenced(_)));
    applications[1].run(INSERT);
    assert!(second.sync(LONG));
    assert_eq!(second.status()[0].phase, Phase::Running);
    assert!(restored(folder.path(), &store) == content(&two), "the chain is the second writer's");
    drop((first, second));
    applications.into_iter().for_each(Application::close);
}

#[test]
fn what_was_on_its_way_when_its_writer_was_killed_and_comes_late_fences_nobody() {
    // The replica is empty then, or has what came before.
    for commits in [0, 3] {
        let folder = folder();
        let database = folder.path().join("app.db");
        let store = Arc::new(MemoryStore::default());
        let mut application = Application::start(&database, TABLE);
        let first = start(&database, &store);
        assert!(first.sync(LONG));
        for _ in 0..commits {
            application.run(INSERT);
            assert!(first.sync(LONG));
        }
        drop(first);
        let late = store.list("").unwrap().pop().unwrap().key;
        let mut content_of_late = Vec::new();
        store.get(&late, None).unwrap().read_to_end(&mut content_of_late).unwrap();
        store.delete(&late).unwrap();
        application.run(INSERT);
        let is_late = AtomicBool::new(true);
        let arrives = (store.clone(), late.clone(), content_of_late);
        let meddled = Meddled::new(store.clone(), |_, _, _| {}).before_create(move |key| {
            let (store, late, content) = &arrives;
            if key == late && is_late.swap(false, Ordering::AcqRel) {
                let mut body = Cursor::new(content.clone());
                store.create(key, &mut body, content.len() as u64, &Attributes::default()).unwrap();
            }
        });
        let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
        let second = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        second.add(database.clone(), Replica::new(Arc::new(meddled), ltx::Layout::Objects, "app.db"));
        assert!(second.sync(LONG));
        assert_eq!(second.status()[0].phase, Phase::Running, "{commits} commits");
        assert!(store.list("").unwrap().iter().any(|object| object.key == late));
        assert!(restored(folder.path(), &store) == content(&database), "{commits} commits");
        drop(second);
        application.close();
    }
}

#[test]
fn foreign_check_points_of_every_kind_pass_and_nothing_is_missed() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    let replicator = start(&database, &store);
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
        for _ in 0..5 {
            application.run(INSERT);
            application.run(&format!("PRAGMA wal_checkpoint({mode})"));
            application.run(INSERT);
        }
        assert!(replicator.sync(LONG), "{mode}");
        assert!(restored(folder.path(), &store) == content(&database), "{mode}");
    }
    drop(replicator);
    application.close();
}

#[test]
fn a_commit_that_restarts_the_wal_just_behind_another_is_durable_before_it_is_said_to_be() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    let settings = Settings { interval: Duration::from_millis(500), ..Settings::default() };
    let replicator = start_with(settings, Arc::new(SystemClock::default()), &database, &store);
    for round in 0..20 {
        // So many frames that the WAL is let go of once they are staged, and copied by the check point that the second transaction makes.
        application.run(
            "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100) \
             SELECT randomblob(3000) FROM n",
        );
        application.run("DELETE FROM t WHERE id < (SELECT max(id) - 1200 FROM t)");
        assert!(replicator.sync(LONG));
        std::thread::sleep(Duration::from_millis(round * 5));
        // The first lies in the WAL as it was, the second in the next one.
        application.run(INSERT);
        application.run(INSERT);
        assert!(replicator.sync(LONG));
        assert!(restored(folder.path(), &store) == content(&database), "in round {round}");
    }
    drop(replicator);
    application.close();
}

#[test]
fn a_truncate_check_point_takes_little_longer_beside_us_than_alone() {
    const TURNS: usize = 60;
    let folder = folder_on_disk();
    let store = Arc::new(MemoryStore::default());
    let databases = ["alone.db", "beside.db"].map(|name| folder.path().join(name));
    let [mut alone, mut beside] = databases.each_ref().map(|path| Application::start(path, TABLE));
    let replicator = start(&databases[1], &store);
    assert!(replicator.sync(LONG));
    // In turns, so that whatever else the machine does befalls both. A commit waits for no longer than the check point takes.
    let mut times: [Vec<Duration>; 2] = Default::default();
    for turn in 0..TURNS {
        for (application, times) in [&mut alone, &mut beside].into_iter().zip(&mut times) {
            application.run(INSERT);
            let begun = std::time::Instant::now();
            application.run("PRAGMA wal_checkpoint(TRUNCATE)");
            times.push(begun.elapsed());
        }
        // Sometimes at once, sometimes after a pause.
        std::thread::sleep(Duration::from_millis(turn as u64 * 7 % 50));
    }
    times.iter_mut().for_each(|times| times.sort());
    let [alone_at, beside_at] = times.map(|times| [times[TURNS / 2], times[TURNS * 9 / 10]]);
    println!("half and nine tenths of the check points take at most {alone_at:?} alone, {beside_at:?} beside us");
    assert!(beside_at[0] <= alone_at[0] + Duration::from_millis(20), "{beside_at:?} beside us, {alone_at:?} alone");
    assert!(replicator.totals().yields.load(Ordering::Relaxed) >= TURNS as u64 / 2, "they did wait for us");
    assert!(replicator.sync(LONG));
    assert!(restored(folder.path(), &store) == content(&databases[1]));
    drop(replicator);
    alone.close();
    beside.close();
}

#[test]
fn truncate_check_points_without_a_transaction_between_them_pass() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    let replicator = start(&database, &store);
    application.run("PRAGMA busy_timeout=60000");
    application.run(INSERT);
    assert!(replicator.sync(LONG));
    let anchors = replicator.totals().anchors.load(Ordering::Relaxed);
    for turn in 1..=4 {
        let begun = std::time::Instant::now();
        application.run("PRAGMA wal_checkpoint(TRUNCATE)");
        // One that waits in vain gives up after a minute.
        assert!(begun.elapsed() < Duration::from_secs(50), "number {turn}");
        std::thread::sleep(Duration::from_millis(200));
    }
    application.run("PRAGMA user_version=1");
    assert!(replicator.sync(LONG));
    assert!(restored(folder.path(), &store) == content(&database));
    assert!(replicator.totals().anchors.load(Ordering::Relaxed) <= anchors + 1);
    drop(replicator);
    application.close();
}

#[test]
fn a_writer_that_never_pauses_does_no_more_work_beside_us_and_is_not_sent_whole_again() {
    const COMMITS: u32 = 200_000;
    /// Each of a frame of one page.
    const COMMITTED_BYTES: u64 = COMMITS as u64 * (24 + 4096);
    /// Of some two hundred times that the WAL is restarted. Who gets no processor while a whole WAL is written is right to read the database.
    const READ_WHOLE_MAX: u64 = 3;
    // On a disk, where a check point at each commit would be noticed.
    let folder = folder_on_disk();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    application.run("PRAGMA synchronous=NORMAL");
    application.run(
        "INSERT INTO t(v) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
         SELECT randomblob(500) FROM n",
    );
    let alone = application.commit(COMMITS);
    let replicator = start(&database, &store);
    assert!(replicator.sync(LONG));
    let anchors = replicator.totals().anchors.load(Ordering::Relaxed);
    let beside = application.commit(COMMITS);
    assert!(replicator.sync(LONG));
    assert!(restored(folder.path(), &store) == content(&database));
    let sent = replicator.totals().anchors.load(Ordering::Relaxed) - anchors;
    assert!(sent <= READ_WHOLE_MAX, "sent whole {sent} times again");
    let read = replicator.totals().compared.load(Ordering::Relaxed);
    assert!(read <= READ_WHOLE_MAX, "read whole {read} times again");
    // Check points that copy, or look for what to copy, at each commit would be ten times and more.
    assert!(beside.processor_ticks < alone.processor_ticks * 4, "{beside:?} beside us, {alone:?} alone");
    assert!(beside.bytes_written < alone.bytes_written * 3, "{beside:?} beside us, {alone:?} alone");
    // It has the length of its longest time: how far it grows until we have read to its end depends on who has a processor when.
    let wal_bytes = std::fs::metadata(database.with_extension("db-wal")).unwrap().len();
    assert!(wal_bytes < COMMITTED_BYTES / 2, "{wal_bytes} bytes: the WAL is not restarted");
    drop(replicator);
    application.close();
}

#[test]
fn a_snapshot_is_the_state_of_its_transaction() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    let settings = Settings {
        interval: Duration::from_millis(50),
        snapshot_interval: Duration::from_millis(1),
        ..Settings::default()
    };
    let replicator = start_with(settings, Arc::new(SystemClock::default()), &database, &store);
    for _ in 0..10 {
        application.run(INSERT);
        assert!(replicator.sync(LONG));
    }
    drop(replicator);
    let replica = replica(&store);
    let files = replica.files().unwrap();
    let snapshots: Vec<_> = files.iter().filter(|file| file.name.min_txid == 1).copied().collect();
    assert!(snapshots.len() > 2, "{files:?}");
    // Each snapshot equals the first one with the changes up to it.
    for snapshot in &snapshots[1..] {
        let mut without = files.clone();
        without.retain(|file| file.level == 0);
        let plan = walsync::chain::Chain::new(without).plan(snapshot.name.max_txid).unwrap();
        let mut state = std::collections::BTreeMap::new();
        for file in plan {
            let read = replica.read(&file, |header, number, page| {
                state.insert(number, page.to_vec());
                state.retain(|number, _| *number <= header.commit);
                Ok(())
            });
            read.unwrap();
        }
        let mut pages = std::collections::BTreeMap::new();
        let read = replica.read(snapshot, |_, number, page| {
            pages.insert(number, page.to_vec());
            Ok(())
        });
        read.unwrap();
        assert!(pages == state, "{snapshot:?}");
    }
    application.close();
}

/// A clock whose wall time goes back by a second at every look.
struct Backwards(SystemClock, std::sync::atomic::AtomicI64);

impl Clock for Backwards {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn unix_millis(&self) -> i64 {
        self.0.unix_millis() - self.1.fetch_add(1000, Ordering::Relaxed)
    }
}

#[test]
fn a_clock_that_goes_back_does_not_put_commits_out_of_order() {
    let folder = folder();
    let database = folder.path().join("app.db");
    let store = Arc::new(MemoryStore::default());
    let mut application = Application::start(&database, TABLE);
    let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
    let clock = Arc::new(Backwards(SystemClock::default(), 0.into()));
    let replicator = start_with(settings, clock, &database, &store);
    for _ in 0..5 {
        application.run(INSERT);
        assert!(replicator.sync(LONG));
    }
    drop(replicator);
    let replica = replica(&store);
    let mut files = replica.files().unwrap();
    files.sort_by_key(|file| file.name.max_txid);
    let times: Vec<i64> = files.iter().map(|file| replica.header(file).unwrap().timestamp_millis).collect();
    assert!(times.len() >= 5 && times.is_sorted(), "{times:?}");
    application.close();
}

#[test]
fn one_process_takes_many_databases_and_the_memory_of_a_few() {
    let folder = folder();
    let store = Arc::new(MemoryStore::default());
    let settings = Settings { interval: Duration::from_millis(100), ..Settings::default() };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    let paths: Vec<_> = (0..40).map(|number| folder.path().join(format!("{number}.db"))).collect();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    for path in &paths {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.execute_batch(&format!("PRAGMA journal_mode=WAL; {TABLE}; {INSERT}")).unwrap();
    }
    let before = threads();
    for path in &paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        replicator.add(path.clone(), Replica::new(store.clone(), ltx::Layout::Objects, name));
    }
    assert!(replicator.sync(LONG));
    // Other tests of this process have threads, too, which come and go.
    assert!(threads() < before + paths.len() / 2, "a thread for each database");
    let prefixes: std::collections::BTreeSet<String> =
        store.list("").unwrap().iter().map(|object| object.key.split('/').next().unwrap().to_owned()).collect();
    assert_eq!(prefixes.len(), paths.len());
}
