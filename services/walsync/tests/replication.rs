//! Real processes: an application on SQLite, walsync beside it, kill -9, and Litestream 0.5.17 in both directions.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, Random, folder, until};
use rusqlite::Connection;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Application, Walsync, content, litestream};
use walsync::replica::Replica;
use walsync::restore::{Target, restore};
use walsync::store::files::FileStore;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A database, its replica in a folder, and a log.
struct Place {
    folder: harness::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: folder() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn database(&self) -> PathBuf {
        self.path("app.db")
    }

    fn replica(&self) -> Replica {
        Replica::new(std::sync::Arc::new(FileStore::new(self.path("store"))), ltx::Layout::Files, "app.db")
    }

    fn watch(&self) -> Walsync {
        Walsync::watch(&[&self.database()], &self.path("store"), &self.path("log"))
    }

    /// What a restore gives.
    fn restored(&self, target: Target) -> Vec<u8> {
        let output = self.path("restored.db");
        let _ = std::fs::remove_file(&output);
        restore(&self.replica(), target, &output, true).unwrap();
        std::fs::read(output).unwrap()
    }

    /// What Litestream restores of our replica.
    fn restored_by_litestream(&self, arguments: &[&str]) -> Vec<u8> {
        support::restored_by_litestream(&format!("file://{}", self.path("store/app.db").display()), arguments)
    }
}

fn files(path: &Path) -> Vec<Option<Vec<u8>>> {
    ["", "-wal", "-shm"].iter().map(|suffix| std::fs::read(walsync::database::with_suffix(path, suffix)).ok()).collect()
}

/// One random step of an application.
fn step(random: &mut Random) -> String {
    match random.below(12) {
        0 => "VACUUM".into(),
        1 => "DELETE FROM t WHERE id % 3 = 1".into(),
        2 => "PRAGMA wal_checkpoint(PASSIVE)".into(),
        3 => "PRAGMA wal_checkpoint(TRUNCATE)".into(),
        4 => "PRAGMA wal_checkpoint(RESTART)".into(),
        5 => "UPDATE t SET v = randomblob(500) WHERE id % 5 = 2".into(),
        size => format!("INSERT INTO t(v) VALUES (randomblob({})), (zeroblob({}))", random.below(9000), size * 300),
    }
}

#[test]
fn random_histories_are_restored_byte_by_byte_also_by_litestream() {
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let place = Place::new();
        let page_size = 512 << random.below(8);
        let mut application = Application::start(&place.database(), "");
        // Nothing that changes in WAL mode.
        application
            .run(&format!("PRAGMA journal_mode=DELETE; PRAGMA page_size={page_size}; VACUUM; PRAGMA journal_mode=WAL"));
        application.run(&format!("PRAGMA wal_autocheckpoint={}", [0, 20, 1000][random.below(3) as usize]));
        application.run(TABLE);
        let mut walsync = Some(place.watch());
        for _ in 0..30 {
            application.run(&step(&mut random));
            match random.below(12) {
                0 => std::thread::sleep(Duration::from_millis(random.below(120))),
                1 => {
                    // Downtime of ours.
                    if let Some(walsync) = walsync.take() {
                        walsync.kill();
                    }
                }
                2 => {
                    // Downtime of the application, by its end or by a kill.
                    match random.below(2) {
                        0 => application.close(),
                        _ => drop(application.kill()),
                    }
                    application = Application::start(&place.database(), TABLE);
                }
                _ => walsync = walsync.or_else(|| Some(place.watch())),
            }
        }
        walsync.unwrap_or_else(|| place.watch()).stop();
        let expected = content(&place.database());
        assert!(place.restored(Target::Latest) == expected, "seed {seed}");
        assert!(place.restored_by_litestream(&[]) == expected, "seed {seed}, restored by Litestream");
        // Every point in between is a database, and the same one for both.
        let chain = walsync::chain::Chain::new(place.replica().files().unwrap());
        let points: Vec<u64> = chain.restorable().collect();
        let point = points[random.below(points.len() as u64) as usize];
        let ours = place.restored(Target::Txid(point));
        let theirs = place.restored_by_litestream(&["-txid", &format!("{point:016x}")]);
        assert!(theirs == ours, "seed {seed}, TXID {point}");
        application.close();
    }
}

#[test]
fn what_litestream_wrote_is_restored_and_continued() {
    let place = Place::new();
    let store = place.path("store/app.db");
    let mut application = Application::start(&place.database(), TABLE);
    let config = place.path("litestream.yml");
    let text = format!(
        "dbs:\n- path: {}\n  replica: {{type: file, path: {}, sync-interval: 100ms}}\n",
        place.database().display(),
        store.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut random = Random::new(7);
    let mut run = |application: &mut Application| {
        for _ in 0..20 {
            application.run(&format!("INSERT INTO t(v) VALUES (randomblob({}))", random.below(9000)));
        }
    };
    run(&mut application);
    let log = std::fs::File::create(place.path("litestream.log")).unwrap();
    let mut command = litestream();
    command.args(["replicate", "-config"]).arg(&config).stdout(log.try_clone().unwrap()).stderr(log);
    let mut theirs = Process::start(&mut command);
    run(&mut application);
    let before = place.replica();
    until("files of Litestream", || before.files().is_ok_and(|files| files.len() > 1));
    run(&mut application);
    theirs.signal(Signal::TERM);
    theirs.wait();
    assert!(place.restored(Target::Latest) == content(&place.database()), "what Litestream left");
    // The same configuration, our program: it goes on where Litestream stopped.
    let newest = walsync::chain::Chain::new(place.replica().files().unwrap()).newest().unwrap();
    let mut command = support::walsync();
    command.args(["replicate", "-config"]).arg(&config);
    let mut ours = Walsync::start(command, &place.path("log"));
    ours.wait_durable(newest + 1);
    run(&mut application);
    ours.stop();
    let expected = content(&place.database());
    assert!(place.restored(Target::Latest) == expected, "what we added");
    assert!(place.restored_by_litestream(&[]) == expected, "what we added, restored by Litestream");
    application.close();
}

#[test]
fn watching_changes_no_byte_of_the_users_files() {
    let place = Place::new();
    let mut application = Application::start(&place.database(), TABLE);
    for _ in 0..50 {
        application.run("INSERT INTO t(v) VALUES (randomblob(2000))");
    }
    let before = files(&place.database());
    assert!(before.iter().all(Option::is_some), "database, WAL and index are there");
    let mut walsync = place.watch();
    walsync.wait_durable(1);
    assert!(files(&place.database()) == before, "while it is watched");
    walsync.stop();
    assert!(files(&place.database()) == before, "after it was watched");
    application.close();
    // A closed database, without WAL and index: none is made.
    let closed = files(&place.database());
    let mut walsync = place.watch();
    walsync.wait_durable(2);
    walsync.stop();
    assert!(files(&place.database()) == closed, "a closed database");
    let names = std::fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> =
        names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with("app.db")).collect();
    assert_eq!(names, ["app.db"], "and no file beside it");
}

#[test]
fn a_database_in_another_journal_mode_is_refused_and_left_alone() {
    let place = Place::new();
    let connection = Connection::open(place.database()).unwrap();
    connection.execute_batch(TABLE).unwrap();
    drop(connection);
    let before = files(&place.database());
    let walsync = place.watch();
    until("the refusal", || walsync.log().contains("PRAGMA journal_mode=WAL"));
    assert_eq!(walsync.terminate().code(), Some(1), "nothing of it is durable");
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("never replicated since the start: 1 database, ") && !log.contains("Refused("), "{log}");
    assert_eq!(files(&place.database()), before);
}

#[test]
fn kill_9_of_both_loses_nothing_that_was_durable() {
    let place = Place::new();
    let mut random = Random::new(3);
    let mut application = Application::start(&place.database(), TABLE);
    let mut next = 1;
    for round in 0..6 {
        application.count_from(next);
        // Ours is killed again and again while it works; the application once.
        let mut durable = 0;
        for _ in 0..3 {
            let mut walsync = place.watch();
            if random.below(3) > 0 {
                walsync.wait_durable(walsync.durable() + 1);
            }
            std::thread::sleep(Duration::from_millis(random.below(200)));
            durable = walsync.durable();
            walsync.kill();
        }
        let last = application.kill().unwrap_or(next - 1);
        // What was called durable is there; the numbers are a row without a gap: a commit, and not half of one.
        if durable > 0 {
            place.restored(Target::Latest);
            let restored = Connection::open(place.path("restored.db")).unwrap();
            let (count, max): (i64, i64) = restored
                .query_row("SELECT count(*), ifnull(max(id), 0) FROM t", [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!(count, max, "round {round}");
            assert!(max <= last + 1, "round {round}: the replica has {max}, the application committed {last}");
            let chain = walsync::chain::Chain::new(place.replica().files().unwrap());
            assert!(chain.newest().unwrap() >= durable, "round {round}");
        }
        // And a clean end makes all of it durable.
        application = Application::start(&place.database(), TABLE);
        place.watch().stop();
        assert!(place.restored(Target::Latest) == content(&place.database()), "round {round}");
        let restored = Connection::open(place.path("restored.db")).unwrap();
        let max: i64 = restored.query_row("SELECT ifnull(max(id), 0) FROM t", [], |row| row.get(0)).unwrap();
        assert!(max >= last, "round {round}: {max} of {last}");
        next = max + 1;
    }
    application.close();
}

#[test]
fn a_counter_that_repeats_after_a_recovery_hides_no_transaction() {
    const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(3000))";
    let place = Place::new();
    // A start after a kill recovers the WAL, and SQLite's counter of transactions begins anew.
    Application::start(&place.database(), TABLE).kill();
    let mut application = Application::start(&place.database(), TABLE);
    application.run(INSERT);
    // Rarely enough that what follows is staged for the check point alone.
    let mut walsync = Walsync::watch_each(3000, &[&place.database()], &place.path("store"), &place.path("log"));
    walsync.wait_durable(1);
    // The second look has found nothing new, and others follow each 25 ms.
    std::thread::sleep(Duration::from_millis(3500));
    // Between two looks: killed, recovered, and as many transactions as before.
    walsync.signal(Signal::STOP);
    application.kill();
    let mut application = Application::start(&place.database(), TABLE);
    application.run(INSERT);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            walsync.signal(Signal::CONT);
        });
        application.run("PRAGMA wal_checkpoint(TRUNCATE)");
    });
    let wal = walsync::database::with_suffix(&place.database(), "-wal");
    assert_eq!(wal.metadata().unwrap().len(), 0, "the check point did not come to its end");
    application.run(INSERT);
    walsync.stop();
    assert!(place.restored(Target::Latest) == content(&place.database()));
    application.close();
}

#[test]
fn any_object_that_is_missing_is_named() {
    let place = Place::new();
    let mut application = Application::start(&place.database(), TABLE);
    let mut walsync = place.watch();
    for txid in 1..=8 {
        walsync.wait_durable(txid);
        application.run("INSERT INTO t(v) VALUES (randomblob(100))");
    }
    walsync.stop();
    application.close();
    let replica = place.replica();
    let files = replica.files().unwrap();
    let newest = files.iter().map(|file| file.name.max_txid).max().unwrap();
    assert!(newest >= 8);
    let time = |txid: u64| {
        let file = files.iter().find(|file| file.name.max_txid == txid).unwrap();
        replica.header(file).unwrap().timestamp_millis
    };
    let times: Vec<i64> = (1..=newest).map(time).collect();
    for gone in &files {
        let txid = gone.name.max_txid;
        let path = place.path("store").join(replica.key(gone.level, gone.name));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let output = place.path("holed.db");
        for target in 1..=newest {
            let by_txid = restore(&replica, Target::Txid(target), &output, false);
            let _ = std::fs::remove_file(&output);
            let by_time = restore(&replica, support::time(times[target as usize - 1]), &output, false);
            let _ = std::fs::remove_file(&output);
            assert_eq!(by_txid.is_ok(), target < txid, "{txid} is gone, restore to TXID {target}");
            if target > txid || target == txid && txid < newest {
                let error = by_txid.unwrap_err().to_string();
                let named = error.contains(&format!("TXID {txid} is missing"));
                assert!(named, "{txid} is gone, restore to TXID {target}: {error}");
                let error = by_time.unwrap_err().to_string();
                assert!(
                    error.contains("hole") || txid == 1,
                    "{txid} is gone, restore to the time of {target}: {error}"
                );
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn a_restore_never_touches_what_is_there() {
    let place = Place::new();
    let mut application = Application::start(&place.database(), TABLE);
    application.run("INSERT INTO t(v) VALUES (1)");
    place.watch().stop();
    let before = files(&place.database());
    let error = restore(&place.replica(), Target::Latest, &place.database(), false).unwrap_err();
    assert!(error.to_string().contains("is there already"), "{error}");
    assert!(files(&place.database()) == before);
    // A WAL that is left over would be taken for one of the restored database.
    let output = place.path("other.db");
    std::fs::write(place.path("other.db-wal"), b"").unwrap();
    assert!(restore(&place.replica(), Target::Latest, &output, false).is_err());
    assert!(!output.exists());
    application.close();
}

#[test]
fn a_page_that_was_taken_and_given_back_within_a_transaction_is_no_hole_to_litestream() {
    let place = Place::new();
    let mut application = Application::start(&place.database(), TABLE);
    let mut walsync = place.watch();
    walsync.wait_durable(1);
    // SQLite writes no frame for free pages: of these only the last ones are in the WAL.
    application.run(
        "BEGIN; INSERT INTO t(v) VALUES (randomblob(100000)); CREATE TABLE u AS SELECT randomblob(9000); DELETE FROM t; COMMIT",
    );
    walsync.wait_durable(2);
    walsync.stop();
    let expected = content(&place.database());
    assert!(place.restored(Target::Latest) == expected);
    assert!(place.restored_by_litestream(&[]) == expected);
    application.close();
}
