//! Random histories of one place that walsync and Litestream write in turns, by one litestream.yml, with downtime of everybody: both
//! restore the same database of it, page for page.
//!
//! `WALSYNC_HISTORIES=200` runs more than CI does.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, Random, TempDir, command, folder, until};
use ltx::Layout;
use rustix::process::Signal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Application, content, litestream, restored_by_litestream, walsync};
use walsync::chain::Chain;
use walsync::replica::Replica;
use walsync::restore::{Target, restore};
use walsync::store::files::FileStore;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
const USUAL_HISTORIES: u64 = 24;
/// Most of a history is waiting.
const AT_ONCE: usize = 4;

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

struct Place(TempDir);

impl Place {
    fn new(random: &mut Random) -> Place {
        let place = Place(folder());
        let levels = [[200, 600, 2000], [50, 150, 400]][random.below(2) as usize];
        let levels: String = levels.iter().map(|millis| format!("- interval: {millis}ms\n")).collect();
        // Each third history with hardly any retention.
        let l0 = if random.below(3) == 0 { "l0-retention: 400ms\nl0-retention-check-interval: 200ms\n" } else { "" };
        let (database, store) = (place.path("app.db"), place.path("store"));
        let text = format!(
            "levels:\n{levels}{l0}snapshot: {{interval: 3s, retention: 24h}}\ndbs:\n- path: {}\n  monitor-interval: 50ms\n  \
             replica: {{type: file, path: {}, sync-interval: 50ms}}\n",
            database.display(),
            store.display()
        );
        std::fs::write(place.path("litestream.yml"), text).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn replica(&self) -> Replica {
        Replica::new(Arc::new(FileStore::new(self.path("store"))), Layout::Files, "")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// One of the two at work.
    fn replicate(&self, ours: bool) -> Process {
        let mut program = if ours { walsync() } else { litestream() };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let before = self.log().len();
        program.args(["replicate", "-config"]).arg(self.path("litestream.yml")).env("NO_COLOR", "1");
        let process = Process::start(program.stdout(log.try_clone().unwrap()).stderr(log));
        let started = if ours { "watching" } else { "initialized db" };
        until("its start", || self.log()[before..].contains(started));
        process
    }

    fn restored(&self, target: Target) -> Vec<u8> {
        let folder = folder();
        let path = folder.path().join("restored.db");
        // What Litestream made of a downtime of its own need not be whole at each point; it is for both the same.
        let result = restore(&self.replica(), target, &path, target == Target::Latest);
        result.unwrap_or_else(|error| panic!("{target:?}: {error}: {}", self.log()));
        std::fs::read(path).unwrap()
    }

    /// Rows in what can be restored.
    fn restored_rows(&self) -> Option<i64> {
        let folder = folder();
        let path = folder.path().join("restored.db");
        restore(&self.replica(), Target::Latest, &path, false).ok()?;
        rusqlite::Connection::open(path).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).ok()
    }

    fn restored_by_litestream(&self, arguments: &[&str]) -> Vec<u8> {
        restored_by_litestream(&format!("file://{}", self.path("store").display()), arguments)
    }
}

fn step(random: &mut Random) -> String {
    match random.below(14) {
        0 => "VACUUM".into(),
        1 => "DELETE FROM t WHERE id % 3 = 1".into(),
        2 => "PRAGMA wal_checkpoint(PASSIVE)".into(),
        3 => "PRAGMA wal_checkpoint(TRUNCATE)".into(),
        4 => "UPDATE t SET v = randomblob(500) WHERE id % 5 = 2".into(),
        5 => "DROP TABLE IF EXISTS u; CREATE TABLE u AS SELECT * FROM t".into(),
        size => format!("INSERT INTO t(v) VALUES (randomblob({})), (zeroblob({}))", random.below(9000), size * 300),
    }
}

/// Where two databases differ, and whether their rows do.
fn difference(ours: &[u8], expected: &[u8]) -> String {
    let rows = |bytes: &[u8]| -> Vec<(i64, Option<Vec<u8>>)> {
        let folder = folder();
        let path = folder.path().join("rows.db");
        std::fs::write(&path, bytes).unwrap();
        let connection = rusqlite::Connection::open(path).unwrap();
        let mut statement = connection.prepare("SELECT id, CAST(v AS BLOB) FROM t ORDER BY id").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let sectors = ours.chunks(512).zip(expected.chunks(512)).enumerate();
    let differ: Vec<usize> = sectors.filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect();
    let (lengths, same_rows) = ((ours.len(), expected.len()), rows(ours) == rows(expected));
    format!("lengths {lengths:?}, sectors {differ:?}, the same rows: {same_rows}")
}

fn history(seed: u64) {
    let mut random = Random::new(seed);
    let place = Place::new(&mut random);
    std::fs::write(place.path("log"), format!("seed {seed}\n")).unwrap();
    let page_size = 512 << random.below(8);
    let mut application = Application::start(&place.path("app.db"), &format!("PRAGMA page_size={page_size}; VACUUM"));
    application.run(TABLE);
    for phase in 0..4 {
        // Whoever comes goes on where the other stopped, by a signal or by a kill. Nobody in between, sometimes.
        let who = random.below(7);
        let mut replicator = (who < 6).then(|| place.replicate(who < 3));
        for _ in 0..random.below(14) {
            application.run(&step(&mut random));
            match random.below(10) {
                0 => std::thread::sleep(Duration::from_millis(random.below(300))),
                1 => {
                    match random.below(2) {
                        0 => application.close(),
                        _ => drop(application.kill()),
                    }
                    application = Application::start(&place.path("app.db"), TABLE);
                }
                _ => {}
            }
        }
        if let Some(process) = &mut replicator
            && (random.below(3) > 0 || phase == 3)
        {
            process.signal(Signal::TERM);
            process.wait();
        }
    }
    // The last one makes everything durable.
    let mut last = place.replicate(true);
    application.run("INSERT INTO t(v) VALUES (1)");
    last.signal(Signal::TERM);
    let status = last.wait();
    let log = place.log();
    assert!(status.success(), "seed {seed}: {log}");
    let expected = content(&place.path("app.db"));
    application.close();
    let ours = place.restored(Target::Latest);
    assert!(ours == expected, "seed {seed}, ours: {}: {log}", difference(&ours, &expected));
    assert!(place.restored_by_litestream(&[]) == expected, "seed {seed}, Litestream's: {log}");
    let chain = Chain::new(place.replica().files().unwrap());
    let points: Vec<u64> = chain.restorable().collect();
    assert_eq!(points.last().copied(), chain.newest(), "seed {seed}");
    for _ in 0..3 {
        let point = points[random.below(points.len() as u64) as usize];
        let theirs = place.restored_by_litestream(&["-txid", &format!("{point:016x}")]);
        assert!(place.restored(Target::Txid(point)) == theirs, "seed {seed}, TXID {point}: {log}");
    }
}

#[test]
fn whoever_writes_a_history_both_restore_it_page_for_page() {
    let histories = std::env::var("WALSYNC_HISTORIES").map_or(USUAL_HISTORIES, |histories| histories.parse().unwrap());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= histories {
                        break;
                    }
                    history(seed);
                }
            });
        }
    });
}

#[test]
fn litestream_goes_on_where_walsync_stopped_without_sending_the_database_again() {
    let place = Place::new(&mut Random::new(1));
    let mut application = Application::start(&place.path("app.db"), TABLE);
    application.run("INSERT INTO t(v) VALUES (zeroblob(3000000))");
    application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    // A WAL that both see: with none it would be sent again, for nothing proves that there was none in between.
    application.run("INSERT INTO t(v) VALUES (1)");
    // Also where walsync has only sent it as it was.
    let mut ours = place.replicate(true);
    ours.signal(Signal::TERM);
    ours.wait();
    let newest = |place: &Place| Chain::new(place.replica().files().unwrap()).newest().unwrap();
    let stopped = newest(&place);
    let mut theirs = place.replicate(false);
    application.run("INSERT INTO t(v) VALUES (randomblob(3000))");
    until("a transaction by Litestream", || newest(&place) > stopped);
    theirs.signal(Signal::TERM);
    theirs.wait();
    let files = place.replica().files().unwrap();
    let next = files.iter().find(|file| file.level == 0 && file.name.min_txid == stopped + 1).unwrap();
    let mut pages = 0;
    let count = |_: &ltx::Header, _, _: &[u8]| {
        pages += 1;
        Ok(())
    };
    place.replica().read(next, count).unwrap();
    assert!(pages < 20, "{pages} pages: the database was sent again");
    let expected = content(&place.path("app.db"));
    assert!(place.restored(Target::Latest) == expected, "{}", place.log());
    assert!(place.restored_by_litestream(&[]) == expected, "{}", place.log());
    application.close();
    let mut list = command(env!("CARGO_BIN_EXE_walsync"));
    let list = harness::output(list.args(["list"]).arg(place.path("store")));
    assert!(list.contains("restorable"), "{list}");
}

#[test]
fn litestream_does_not_believe_that_nothing_was_written_while_nobody_watched() {
    let place = Place::new(&mut Random::new(1));
    let mut application = Application::start(&place.path("app.db"), TABLE);
    application.run("INSERT INTO t(v) VALUES (zeroblob(300000))");
    let mut ours = place.replicate(true);
    for _ in 0..4 {
        application.run("INSERT INTO t(v) VALUES (randomblob(9000))");
    }
    until("the last transaction", || place.restored_rows() == Some(5));
    ours.kill();
    // Frames that nobody has seen are copied into the database; the WAL begins anew and does not reach the frames of before.
    application.run("UPDATE t SET v = randomblob(100) WHERE id < 4");
    application.run("PRAGMA wal_checkpoint(PASSIVE)");
    application.run("UPDATE t SET v = randomblob(50) WHERE id = 5");
    let mut theirs = place.replicate(false);
    let newest = |place: &Place| Chain::new(place.replica().files().unwrap()).newest().unwrap();
    let stopped = newest(&place);
    application.run("UPDATE t SET v = randomblob(50) WHERE id = 5");
    until("a transaction by Litestream", || newest(&place) > stopped);
    theirs.signal(Signal::TERM);
    theirs.wait();
    assert!(place.restored(Target::Latest) == content(&place.path("app.db")), "{}", place.log());
    application.close();
}
