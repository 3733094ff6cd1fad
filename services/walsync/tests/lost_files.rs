//! Files of a database that somebody damages or removes under the application that has it open: what is committed meanwhile is seen, or
//! told to be at risk, and nothing is called durable that a restore would lack.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder, until};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Application, Meddled, Walsync, content, restored_by_walsync};
use walsync::clock::SystemClock;
use walsync::database::with_suffix;
use walsync::replica::Replica;
use walsync::replicator::{Phase, Replicator, Settings, Status};
use walsync::restore::{Target, restore};
use walsync::store::memory::MemoryStore;

/// No check point is made by itself.
const TABLE: &str = "PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// An application and a replicator, and a store that can be made to take nothing.
struct Scene {
    folder: TempDir,
    database: PathBuf,
    store: Arc<MemoryStore>,
    is_shut: Arc<AtomicBool>,
    application: Application,
    replicator: Replicator,
}

impl Scene {
    fn start() -> Scene {
        let folder = folder();
        let database = folder.path().join("app.db");
        let mut application = Application::start(&database, TABLE);
        application.run(INSERT);
        let (store, is_shut) = (Arc::new(MemoryStore::default()), Arc::new(AtomicBool::new(false)));
        let waits_for = is_shut.clone();
        let meddled = Meddled::new(store.clone(), |_, _, _| {}).before_create(move |_| {
            until("a store that is open", || !waits_for.load(Ordering::Acquire));
        });
        let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        replicator.add(database.clone(), Replica::new(Arc::new(meddled), ltx::Layout::Objects, "app.db"));
        assert!(replicator.sync(LONG));
        Scene { folder, database, store, is_shut, application, replicator }
    }

    fn status(&self) -> Status {
        self.replicator.status().remove(0)
    }

    fn remove(&self, suffix: &str) {
        std::fs::remove_file(with_suffix(&self.database, suffix)).unwrap();
    }

    fn restored(&self) -> Vec<u8> {
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        restore(&Replica::new(self.store.clone(), ltx::Layout::Objects, "app.db"), Target::Latest, &output, true)
            .unwrap();
        std::fs::read(output).unwrap()
    }
}

#[test]
fn what_is_committed_without_an_index_is_seen_and_counted_at_risk() {
    let mut scene = Scene::start();
    scene.remove("-shm");
    assert!(scene.replicator.sync(LONG), "the loss of the index is seen");
    until("a replica of all there is", || scene.status().phase == Phase::Running && scene.status().at_risk.is_zero());
    scene.is_shut.store(true, Ordering::Release);
    for _ in 0..2 {
        let before = scene.status().durable_txid;
        scene.is_shut.store(true, Ordering::Release);
        scene.application.run(INSERT);
        until("a commit at risk", || !scene.status().at_risk.is_zero());
        assert_eq!(scene.status().durable_txid, before);
        scene.is_shut.store(false, Ordering::Release);
        until("a durable commit", || scene.status().durable_txid > before && scene.status().at_risk.is_zero());
        assert!(scene.restored() == content(&scene.database));
    }
    assert!(scene.replicator.stop(LONG).is_empty());
    scene.application.close();
}

#[test]
fn what_an_application_commits_that_is_killed_while_it_writes_the_index_is_seen() {
    let folder = folder();
    let (database, store) = (folder.path().join("app.db"), folder.path().join("store"));
    let mut application = Application::start(&database, TABLE);
    let mut watching = Walsync::watch(&[&database], &store, &folder.path().join("watch.log"));
    watching.wait_durable(1);
    let before = watching.durable();
    watching.signal(Signal::STOP);
    application.run(INSERT);
    // The first copy of the index's header is half written.
    let index = std::fs::File::options().write(true).open(with_suffix(&database, "-shm")).unwrap();
    index.write_all_at(&[0x77], 8).unwrap();
    application.kill();
    watching.signal(Signal::CONT);
    watching.wait_durable(before + 1);
    assert!(restored_by_walsync(store.join("app.db")) == content(&database));
    watching.stop();
}

/// Whether the database is refused because its application writes another WAL.
fn is_refused(status: &Status) -> bool {
    matches!(&status.phase, Phase::Refused(why) if why.contains("is not the one that its application writes"))
}

/// An application goes on with a WAL that has no name any more, as `spoil` has seen to.
fn assert_refused_until_it_is_closed(spoil: impl Fn(&Scene)) {
    let mut scene = Scene::start();
    let durable = scene.restored();
    spoil(&scene);
    until("a database that is refused", || is_refused(&scene.status()));
    let before = scene.status().durable_txid;
    scene.application.run(INSERT);
    assert!(scene.replicator.sync(LONG));
    let status = scene.status();
    assert!(is_refused(&status) && !status.at_risk.is_zero(), "{status:?}");
    assert_eq!(status.durable_txid, before);
    assert!(scene.restored() == durable, "what was durable is there");
    // Its last close copies all that it has into the database.
    let Scene { folder, store, application, replicator, .. } = scene;
    application.close();
    until("a replica of all there is", || {
        let status = replicator.status().remove(0);
        status.phase == Phase::Running && status.durable_txid > before && status.at_risk.is_zero()
    });
    let output = folder.path().join("restored.db");
    assert!(replicator.stop(LONG).is_empty());
    let _ = std::fs::remove_file(&output);
    restore(&Replica::new(store, ltx::Layout::Objects, "app.db"), Target::Latest, &output, true).unwrap();
    let connection = rusqlite::Connection::open(output).unwrap();
    let rows: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}

#[test]
fn a_database_whose_application_writes_a_wal_that_was_removed_is_refused() {
    assert_refused_until_it_is_closed(|scene| scene.remove("-wal"));
}

#[test]
fn a_database_whose_application_writes_a_wal_in_whose_place_another_lies_is_refused() {
    assert_refused_until_it_is_closed(|scene| {
        scene.remove("-wal");
        std::fs::write(with_suffix(&scene.database, "-wal"), [0; 9000]).unwrap();
    });
}

#[test]
fn a_database_whose_application_writes_a_wal_that_was_removed_with_its_index_is_refused() {
    assert_refused_until_it_is_closed(|scene| {
        scene.remove("-wal");
        scene.remove("-shm");
    });
}

#[test]
fn a_database_whose_application_writes_a_wal_that_was_removed_after_its_index_is_refused() {
    assert_refused_until_it_is_closed(|scene| {
        scene.remove("-shm");
        assert!(scene.replicator.sync(LONG), "the loss of the index is seen");
        scene.remove("-wal");
    });
}

#[test]
fn a_database_whose_application_writes_a_wal_that_was_removed_before_its_index_is_refused() {
    assert_refused_until_it_is_closed(|scene| {
        scene.remove("-wal");
        until("a database that is refused", || is_refused(&scene.status()));
        scene.remove("-shm");
        assert!(scene.replicator.sync(LONG), "the loss of the index is seen");
    });
}

#[test]
fn a_database_that_its_application_has_open_by_another_name_is_refused() {
    let folder = folder();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    [&first, &second].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let (known, watched) = (first.join("app.db"), second.join("app.db"));
    Application::start(&known, TABLE).close();
    std::fs::hard_link(&known, &watched).unwrap();
    let store = Arc::new(MemoryStore::default());
    let settings = Settings { interval: Duration::from_millis(50), ..Settings::default() };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    replicator.add(watched, Replica::new(store, ltx::Layout::Objects, "app.db"));
    assert!(replicator.sync(LONG), "nobody has it open");
    let mut application = Application::start(&known, "");
    application.run(INSERT);
    let status = || replicator.status().remove(0);
    until(
        "a database that is refused",
        || matches!(&status().phase, Phase::Refused(why) if why.contains("its WAL is not here")),
    );
    assert!(!status().at_risk.is_zero());
    let before = status().durable_txid;
    application.close();
    until("what the last close has copied", || status().durable_txid > before && status().phase == Phase::Running);
    assert!(replicator.stop(LONG).is_empty());
}
