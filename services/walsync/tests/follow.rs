//! `restore --follow`: readers in this process, follower, replicator and application each in one of their own.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, until};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use support::{Application, Meddled, Walsync, content, walsync};
use walsync::clock::SystemClock;
use walsync::follow::{FollowError, Follower, Note, Step};
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::Store;
use walsync::store::memory::MemoryStore;

const LONG: Duration = Duration::from_secs(60);
/// Rows, together of one balance, which no transaction changes, on many pages and in an index.
const ACCOUNTS: &str = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, turn INTEGER, filler BLOB); \
    CREATE INDEX by_turn ON account(turn, balance); \
    INSERT INTO account SELECT value, 100, 0, randomblob(700) FROM generate_series(1, 60)";
const TOTAL: i64 = 6000;
/// More than SQLite's cache takes.
const LARGE: &str = "CREATE TABLE large AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
    SELECT randomblob(1000) FROM n";

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

fn accounts() -> String {
    let series = "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 60) SELECT value FROM n)";
    ACCOUNTS.replace("generate_series(1, 60)", series)
}

/// Moves money between all rows, and writes the turn into each.
fn transfer(application: &mut Application, turn: i64) {
    let (from, to) = (1 + turn % 60, 1 + turn * 7 % 60);
    application.run(&format!(
        "BEGIN; UPDATE account SET turn = {turn}, filler = randomblob(700); UPDATE account SET balance = balance - 3 WHERE id = {from}; \
         UPDATE account SET balance = balance + 3 WHERE id = {to}; COMMIT"
    ));
}

/// Reads in a loop until told to stop, and asserts that every state is one that was committed; counts the states it saw.
fn read_until(path: &Path, stop: &AtomicBool, newest: &AtomicI64) -> usize {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.busy_timeout(LONG).unwrap();
    let (mut last, mut states) = (-1, 0);
    while !stop.load(Ordering::Acquire) {
        connection.execute_batch("BEGIN").unwrap();
        let row = "SELECT count(*), sum(balance), min(turn), max(turn) FROM account";
        let read = |hint: &str| -> (i64, i64, i64, i64) {
            connection
                .query_row(&format!("{row} {hint}"), [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
                .unwrap()
        };
        let by_table = read("NOT INDEXED");
        let by_index = read("INDEXED BY by_turn");
        connection.execute_batch("COMMIT").unwrap();
        assert_eq!(by_table, by_index, "table and index are of one state");
        let (count, total, oldest, turn) = by_table;
        assert_eq!((count, total, oldest), (60, TOTAL, turn), "a torn state");
        assert!(turn >= last, "{turn} after {last}");
        states += usize::from(turn != last);
        last = turn;
        newest.store(turn, Ordering::Release);
    }
    states
}

/// The bytes that SQLite itself writes into page 1: its counter of changes, and its version.
fn without_counters(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[24..28].fill(0);
    bytes[92..100].fill(0);
    bytes
}

fn assert_same(follower: &Path, original: &Path) {
    let (ours, theirs) = (without_counters(content(follower)), without_counters(content(original)));
    let differs = |(number, (a, b)): (usize, (&[u8], &[u8]))| (a != b).then_some(number + 1);
    let pages: Vec<usize> = ours.chunks(4096).zip(theirs.chunks(4096)).enumerate().filter_map(differs).collect();
    assert!(ours == theirs, "of {} and {} bytes these pages differ: {pages:?}", ours.len(), theirs.len());
    let connection = Connection::open(follower).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

fn follow(store: &Path, output: &Path, log: &Path) -> Walsync {
    let mut command = walsync();
    command.args(["restore", "--follow", "--follow-interval-millis", "20"]);
    command.arg(store).arg("-o").arg(output);
    Walsync::start(command, log)
}

#[test]
fn a_reader_never_sees_a_torn_state_though_the_follower_is_killed_at_random() {
    let folder = folder();
    let (database, store, output) =
        (folder.path().join("app.db"), folder.path().join("store"), folder.path().join("replica.db"));
    let mut application = Application::start(&database, &accounts());
    let mut watching = Walsync::watch(&[&database], &store, &folder.path().join("watch.log"));
    watching.wait_durable(1);
    let (place, log) = (store.join("app.db"), folder.path().join("follow.log"));
    let mut following = follow(&place, &output, &log);
    until("the first restore", || output.exists());
    let (stop, newest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(-1)));
    let reader = {
        let (output, stop, newest) = (output.clone(), stop.clone(), newest.clone());
        std::thread::spawn(move || read_until(&output, &stop, &newest))
    };
    let mut random = harness::Random::new(7);
    let mut turn = 0;
    for round in 0..25 {
        let seen = newest.load(Ordering::Acquire);
        for _ in 0..4 {
            turn += 1;
            transfer(&mut application, turn);
            std::thread::sleep(Duration::from_millis(random.below(30)));
        }
        if round % 2 == 0 {
            // On a busy machine a follower may be killed each time before it has come to anything.
            until("a state that is new to the reader", || newest.load(Ordering::Acquire) > seen);
        }
        match round % 5 {
            // Larger than SQLite's cache, then gone: what is written is spilled, and the database becomes smaller.
            1 => application.run(LARGE),
            3 => {
                application.run("DROP TABLE large");
                application.run("VACUUM");
            }
            _ => {}
        }
        following.kill();
        following = follow(&place, &output, &log);
    }
    until("the newest state", || newest.load(Ordering::Acquire) == turn);
    stop.store(true, Ordering::Release);
    let states = reader.join().unwrap();
    assert!(states > 10, "the reader saw {states} states");
    watching.stop();
    following.stop();
    assert_same(&output, &database);
    application.close();
}

/// A replicator and a follower in this process; the application in one of its own.
struct Scene {
    folder: harness::TempDir,
    store: Arc<MemoryStore>,
    database: PathBuf,
    output: PathBuf,
    application: Application,
    replicator: Replicator,
}

impl Scene {
    fn start() -> Scene {
        let folder = folder();
        let (database, output) = (folder.path().join("app.db"), folder.path().join("replica.db"));
        let application = Application::start(&database, &accounts());
        let settings = Settings { interval: Duration::from_millis(50), levels: Vec::new(), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        let store = Arc::new(MemoryStore::default());
        let scene = Scene { folder, store, database, output, application, replicator };
        scene.replicator.add(scene.database.clone(), scene.replica());
        assert!(scene.replicator.sync(LONG));
        scene
    }

    fn replica(&self) -> Replica {
        Replica::new(self.store.clone(), ltx::Layout::Objects, "app.db")
    }

    fn follower(&self) -> Result<Follower, FollowError> {
        Follower::start(self.replica(), "memory", &self.output, true).map(|(follower, _)| follower)
    }

    /// One transaction, durable.
    fn transfer(&mut self, turn: i64) {
        transfer(&mut self.application, turn);
        assert!(self.replicator.sync(LONG));
    }

    fn remove(&self, txid: u64) {
        let replica = self.replica();
        for file in replica.files().unwrap() {
            if file.name.min_txid == txid && file.name.max_txid == txid {
                replica.remove(&file).unwrap();
            }
        }
    }

    fn turn(&self) -> i64 {
        let connection = Connection::open_with_flags(&self.output, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        connection.query_row("SELECT max(turn) FROM account", [], |row| row.get(0)).unwrap()
    }

    fn end(self) {
        assert_same(&self.output, &self.database);
        drop(self.replicator);
        self.application.close();
        drop(self.folder);
    }
}

fn step(follower: &mut Follower) -> Step {
    follower.step(&AtomicBool::new(false)).unwrap()
}

#[test]
fn it_goes_on_where_its_note_says_and_never_writes_older_pages_over_a_newer_state() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    let first = follower.txid();
    assert_eq!(step(&mut follower), Step::Current);
    for turn in 1..=3 {
        scene.transfer(turn);
    }
    assert!(matches!(step(&mut follower), Step::Applied { txid, files: 3, .. } if txid == first + 3));
    drop(follower);
    // It died after SQLite's commit, and before the note that follows it.
    let time_of = |txid| {
        let file = scene.replica().files().unwrap().into_iter().find(|file| file.name.max_txid == txid).unwrap();
        Some(scene.replica().header(&file).unwrap().timestamp_millis)
    };
    let note = Note::read(&scene.output).unwrap().unwrap();
    let note = Note { applied: first, applied_millis: time_of(first), applying: Some(first + 3), ..note };
    note.write(&scene.output).unwrap();
    // What leads to where it may be is not whole: what there is of it belongs to an older state.
    let saved = scene.replica().files().unwrap();
    let key = |txid| {
        let file = saved.iter().find(|file| file.name.min_txid == txid && file.level == 0).unwrap();
        scene.replica().key(0, file.name)
    };
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut scene.store.get(&key(first + 3), None).unwrap(), &mut bytes).unwrap();
    scene.remove(first + 3);
    let mut follower = scene.follower().unwrap();
    assert_eq!(follower.step(&AtomicBool::new(false)).unwrap(), Step::Hole { missing: first + 3, newest: first + 2 });
    assert_eq!(scene.turn(), 3, "nothing was written over it");
    let length = bytes.len() as u64;
    scene.store.create(&key(first + 3), &mut std::io::Cursor::new(bytes), length, &Default::default()).unwrap();
    assert!(matches!(step(&mut follower), Step::Applied { txid, .. } if txid == first + 3));
    scene.transfer(4);
    assert!(matches!(step(&mut follower), Step::Applied { txid, files: 1, .. } if txid == first + 4));
    drop(follower);
    scene.end();
}

#[test]
fn a_hole_is_told_and_a_snapshot_mends_it() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    let first = follower.txid();
    for turn in 1..=3 {
        scene.transfer(turn);
    }
    scene.remove(first + 2);
    assert!(matches!(step(&mut follower), Step::Applied { txid, .. } if txid == first + 1));
    assert_eq!(step(&mut follower), Step::Hole { missing: first + 2, newest: first + 3 });
    assert_eq!(scene.turn(), 1);
    // A second replicator, as after a restart, of which every look makes a snapshot.
    let settings = Settings {
        interval: Duration::from_millis(50),
        snapshot_interval: Duration::ZERO,
        levels: Vec::new(),
        ..Settings::default()
    };
    scene.replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    scene.replicator.add(scene.database.clone(), scene.replica());
    scene.transfer(4);
    until("a follower that is past the hole", || {
        step(&mut follower);
        scene.turn() == 4
    });
    drop(follower);
    scene.end();
}

#[test]
fn what_grew_and_shrank_between_two_looks_leaves_nothing_behind() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    scene.application.run(LARGE);
    assert!(scene.replicator.sync(LONG));
    for sql in ["DROP TABLE large", "VACUUM"] {
        scene.application.run(sql);
    }
    scene.transfer(1);
    assert!(matches!(step(&mut follower), Step::Applied { files: 2.., .. }));
    drop(follower);
    scene.end();
}

#[test]
fn what_is_no_copy_any_more_is_refused() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    // Another writer.
    Connection::open(&scene.output).unwrap().execute_batch("UPDATE account SET turn = 99").unwrap();
    scene.transfer(1);
    let error = follower.step(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, FollowError::Foreign(_)) && !error.may_pass(), "{error}");
    assert_eq!(scene.turn(), 99, "nothing was written over it");
    drop(follower);
    // Another replica.
    let other = Follower::start(scene.replica(), "elsewhere", &scene.output, false).err().unwrap().to_string();
    assert!(other.contains("it follows memory, not elsewhere"), "{other}");
    // A database that is nobody's.
    std::fs::remove_file(Note::path(&scene.output)).unwrap();
    let unknown = scene.follower().err().unwrap().to_string();
    assert!(unknown.contains("is there already"), "{unknown}");
    // A replica that was begun anew.
    Note { place: "memory".into(), applied: 1_000, applied_millis: None, inode: None, applying: None }
        .write(&scene.output)
        .unwrap();
    let error = scene.follower().unwrap().step(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, FollowError::Ahead { applied: 1_000, .. }), "{error}");
    drop(scene.replicator);
    scene.application.close();
}

#[test]
fn a_change_of_the_page_size_ends_following_and_leaves_the_state() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    // It can be changed only while nobody else has the database open.
    drop(scene.replicator);
    until("nobody else", || scene.application.try_run("PRAGMA journal_mode=DELETE") == "ok");
    scene.application.run("PRAGMA page_size=8192");
    scene.application.run("VACUUM");
    scene.application.run("PRAGMA journal_mode=WAL");
    transfer(&mut scene.application, 1);
    let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
    scene.replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    scene.replicator.add(scene.database.clone(), Replica::new(scene.store.clone(), ltx::Layout::Objects, "app.db"));
    assert!(scene.replicator.sync(LONG));
    let error = follower.step(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, FollowError::PageSize { from: 4096, to: 8192, .. }), "{error}");
    assert_eq!(scene.turn(), 0);
    drop(scene);
}

#[test]
fn a_follower_that_is_told_to_stop_rolls_back() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    scene.transfer(1);
    assert_eq!(follower.step(&AtomicBool::new(true)).unwrap(), Step::Stopped);
    assert_eq!(scene.turn(), 0);
    assert!(matches!(step(&mut follower), Step::Applied { .. }));
    drop(follower);
    scene.end();
}

impl Scene {
    /// Empties the replica, and begins another one there, of a database that had nothing to do with the first, with so many transactions.
    fn replace(&mut self, name: &str, transactions: i64) {
        let settings = Settings { interval: Duration::from_millis(50), levels: Vec::new(), ..Settings::default() };
        self.replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        for file in self.replica().files().unwrap() {
            self.replica().remove(&file).unwrap();
        }
        self.database = self.folder.path().join(name);
        self.application = Application::start(&self.database, &accounts());
        self.application.run("UPDATE account SET turn = 1000");
        self.replicator.add(self.database.clone(), self.replica());
        assert!(self.replicator.sync(LONG));
        for _ in 1..transactions {
            self.application.run("UPDATE account SET turn = turn + 1 WHERE id < 3");
            assert!(self.replicator.sync(LONG));
        }
    }
}

#[test]
fn a_replica_that_was_begun_anew_is_not_mixed_into_the_copy() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    for turn in 1..=2 {
        scene.transfer(turn);
    }
    assert!(matches!(step(&mut follower), Step::Applied { txid: 3, .. }));
    scene.replace("beyond.db", 5);
    // Without a whole state to begin with, nothing is written over the copy.
    let first = scene.replica().files().unwrap()[0];
    let key = scene.replica().key(first.level, first.name);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut scene.store.get(&key, None).unwrap(), &mut bytes).unwrap();
    scene.replica().remove(&first).unwrap();
    assert_eq!(step(&mut follower), Step::Hole { missing: 1, newest: 5 });
    assert_eq!(scene.turn(), 2);
    let length = bytes.len() as u64;
    scene.store.create(&key, &mut std::io::Cursor::new(bytes), length, &Default::default()).unwrap();
    assert_eq!(follower.step(&AtomicBool::new(false)).map(|_| follower.txid()).unwrap(), 5);
    assert_same(&scene.output, &scene.database);
    // Also where it ends at the very transaction that was applied, and where the note alone remembers which one that was.
    drop(follower);
    scene.replace("same.db", 5);
    let mut follower = scene.follower().unwrap();
    assert!(matches!(step(&mut follower), Step::Applied { txid: 5, files: 5, .. }));
    assert_eq!(step(&mut follower), Step::Current);
    drop(follower);
    // A follower before this one noted no time: it proves nothing.
    let note = Note::read(&scene.output).unwrap().unwrap();
    Note { applied_millis: None, ..note }.write(&scene.output).unwrap();
    let mut follower = scene.follower().unwrap();
    assert!(matches!(step(&mut follower), Step::Applied { txid: 5, files: 5, .. }));
    drop(follower);
    scene.end();
}

#[test]
fn a_plain_restore_is_not_taken_for_what_an_old_note_is_about() {
    let mut scene = Scene::start();
    drop(scene.follower().unwrap());
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(walsync::database::with_suffix(&scene.output, suffix));
    }
    scene.transfer(1);
    restore(&scene.replica(), Target::Latest, &scene.output, false).unwrap();
    let refused = scene.follower().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("is there already"), "{refused}");
    assert!(!Note::path(&scene.output).exists());
    scene.end();
}

#[test]
fn a_database_that_came_while_it_was_restored_is_left_alone_also_by_the_next_start() {
    let scene = Scene::start();
    let theirs = scene.folder.path().join("theirs.db");
    Connection::open(&theirs).unwrap().execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE theirs(v)").unwrap();
    let bytes = std::fs::read(&theirs).unwrap();
    let (from, to) = (theirs.clone(), scene.output.clone());
    let meddled = Arc::new(Meddled::new(scene.store.clone(), move |_, _, _| {
        std::fs::copy(&from, &to).unwrap();
    }));
    let replica = Replica::new(meddled, ltx::Layout::Objects, "app.db");
    let refused = Follower::start(replica, "memory", &scene.output, false).err().unwrap().to_string();
    assert!(refused.contains("is there already"), "{refused}");
    assert!(!Note::path(&scene.output).exists(), "a note would make it ours");
    // As where it was killed between the note and the name.
    std::fs::remove_file(&scene.output).unwrap();
    drop(scene.follower().unwrap());
    std::fs::rename(&theirs, &scene.output).unwrap();
    let refused = scene.follower().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("it is about another file"), "{refused}");
    assert!(std::fs::read(&scene.output).unwrap() == bytes, "nothing was written into it");
    // An older note does not tell.
    let note = Note::read(&scene.output).unwrap().unwrap();
    assert!(note.inode.is_some());
    Note { inode: None, ..note }.write(&scene.output).unwrap();
    scene.follower().unwrap();
    drop(scene.replicator);
    scene.application.close();
}

#[test]
fn a_note_that_cannot_be_written_is_tried_again() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    scene.transfer(1);
    // As a full disk: the new note gets no place.
    let in_the_way = walsync::database::with_suffix(&Note::path(&scene.output), ".next");
    std::fs::create_dir(&in_the_way).unwrap();
    let error = follower.step(&AtomicBool::new(false)).unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("replica.db-follows"), "{error}");
    std::fs::remove_dir(&in_the_way).unwrap();
    assert!(matches!(step(&mut follower), Step::Applied { .. }));
    drop(follower);
    scene.end();
}

#[test]
fn a_merged_file_that_its_writer_gave_another_time_is_of_the_replica_that_it_is_listed_in() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    scene.transfer(1);
    assert!(matches!(step(&mut follower), Step::Applied { txid: 2, .. }));
    let upload = *scene.replica().files().unwrap().iter().find(|file| file.name.max_txid == 2).unwrap();
    let header = scene.replica().header(&upload).unwrap();
    let header = ltx::Header { timestamp_millis: header.timestamp_millis - 7, ..header };
    let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
    scene.replica().read(&upload, |_, number, page| encoder.page(number, page).map_err(std::io::Error::other)).unwrap();
    let (content, _) = encoder.finish().unwrap();
    let length = content.len() as u64;
    let key = scene.replica().key(1, upload.name);
    scene.store.create(&key, &mut std::io::Cursor::new(content), length, &Default::default()).unwrap();
    // Seen beside the upload, which then goes.
    assert_eq!(step(&mut follower), Step::Current);
    scene.replica().remove(&upload).unwrap();
    assert_eq!(step(&mut follower), Step::Current);
    scene.transfer(2);
    assert!(matches!(step(&mut follower), Step::Applied { txid: 3, files: 1, .. }));
    drop(follower);
    scene.end();
}

/// Another application's database in the copy's place, which has no WAL.
fn put_another(output: &Path) -> Vec<u8> {
    let other = output.with_extension("other");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE other(v); INSERT INTO other VALUES (1)").unwrap();
    let bytes = std::fs::read(&other).unwrap();
    remove_copy(output);
    std::fs::rename(&other, output).unwrap();
    bytes
}

fn remove_copy(output: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(walsync::database::with_suffix(output, suffix)).unwrap();
    }
}

#[test]
fn another_database_that_has_the_copys_name_since_is_left_as_it_is_and_none_is_made_where_it_is_gone() {
    let mut scene = Scene::start();
    let mut follower = scene.follower().unwrap();
    scene.transfer(1);
    let bytes = put_another(&scene.output);
    let error = follower.step(&AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, FollowError::Foreign(_)) && !error.may_pass(), "{error}");
    assert!(std::fs::read(&scene.output).unwrap() == bytes);
    std::fs::remove_file(&scene.output).unwrap();
    assert!(matches!(follower.step(&AtomicBool::new(false)), Err(FollowError::Foreign(_))));
    assert!(!scene.output.exists());
}

#[test]
fn a_copy_that_loses_its_name_within_a_step_is_not_committed_to() {
    let mut scene = Scene::start();
    let output = scene.output.clone();
    let meddles = Arc::new(AtomicBool::new(false));
    let (is_asked, other) = (meddles.clone(), Arc::new(std::sync::OnceLock::new()));
    let put = other.clone();
    let store = Meddled::new(scene.store.clone(), |_, _, _| {}).before_get(move |_| {
        if is_asked.swap(false, Ordering::AcqRel) {
            put.set(put_another(&output)).unwrap();
        }
    });
    let replica = Replica::new(Arc::new(store), ltx::Layout::Objects, "app.db");
    let (mut follower, _) = Follower::start(replica, "memory", &scene.output, true).unwrap();
    scene.transfer(1);
    assert!(matches!(step(&mut follower), Step::Applied { .. }), "what ends there is known from now on");
    scene.transfer(2);
    meddles.store(true, Ordering::Release);
    assert!(matches!(follower.step(&AtomicBool::new(false)), Err(FollowError::Foreign(_))));
    assert!(std::fs::read(&scene.output).unwrap() == *other.get().unwrap());
}
