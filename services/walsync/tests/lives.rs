//! Databases that nobody has open in between: who opens one makes its index anew, and counts from zero. What it then commits, copies and writes
//! over between two looks is found all the same.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::folder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{Application, content};
use walsync::clock::SystemClock;
use walsync::pin::PinKind;
use walsync::replica::Replica;
use walsync::replicator::{Replicator, Settings};
use walsync::restore::{Target, restore};
use walsync::store::files::FileStore;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS small(v BLOB); CREATE TABLE IF NOT EXISTS large(v BLOB)";
const LONG: Duration = Duration::from_secs(60);
/// More than a thousand pages: SQLite copies the WAL into the database behind it.
const LARGE: &str = "INSERT INTO large VALUES (randomblob(6000000))";
const SMALL: &str = "INSERT INTO small VALUES (randomblob(9000))";

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// A database that programs open now and then, and its replica.
struct Scene {
    folder: harness::TempDir,
    database: PathBuf,
    replica: Replica,
    replicator: Replicator,
}

impl Scene {
    /// With an idle look a second.
    fn start(pin: PinKind) -> Scene {
        let folder = folder();
        let database = folder.path().join("app.db");
        Application::start(&database, TABLES).close();
        let store = Arc::new(FileStore::new(folder.path().join("store")));
        let replica = Replica::new(store, ltx::Layout::Files, "");
        let settings = Settings { pin: Some(pin), ..Settings::default() };
        let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
        replicator.add(database.clone(), replica.clone());
        assert!(replicator.sync(LONG));
        Scene { folder, database, replica, replicator }
    }

    /// A program that opens the database, does this, and ends.
    fn run(&self, statements: &[&str]) {
        let mut application = Application::start(&self.database, "PRAGMA busy_timeout = 10000");
        statements.iter().for_each(|statement| application.run(statement));
        application.close();
    }

    fn assert_all_is_durable(&self, when: &str) {
        assert!(self.replicator.sync(LONG), "{when}");
        let output = self.folder.path().join("restored.db");
        let _ = std::fs::remove_file(&output);
        restore(&self.replica, Target::Latest, Path::new(&output), true)
            .unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(std::fs::read(output).unwrap() == content(&self.database), "{when}: something else is restored");
    }

    fn idle(&self) {
        std::thread::sleep(Duration::from_millis(4200));
    }
}

fn in_both_kinds(what: impl Fn(PinKind) + Sync) {
    std::thread::scope(|scope| {
        for pin in [PinKind::Locks, PinKind::ReadTransaction] {
            let what = &what;
            scope.spawn(move || what(pin));
        }
    });
}

#[test]
fn a_commit_that_another_one_wrote_over_in_one_short_run_is_not_passed_over() {
    in_both_kinds(|pin| {
        let scene = Scene::start(pin);
        scene.run(&[LARGE]);
        for round in 0..2 {
            scene.idle();
            scene.run(&[SMALL, LARGE]);
            scene.assert_all_is_durable(&format!("{pin}, round {round}, a small commit and a large one"));
            scene.idle();
            scene.run(&[LARGE]);
            scene.assert_all_is_durable(&format!("{pin}, round {round}, a large one"));
        }
    });
}

#[test]
fn a_commit_that_was_copied_and_cut_away_in_one_short_run_is_not_passed_over() {
    in_both_kinds(|pin| {
        let scene = Scene::start(pin);
        for round in 0..3 {
            scene.run(&[LARGE]);
            scene.idle();
            scene.assert_all_is_durable(&format!("{pin}, round {round}, a large commit"));
            scene.run(&[SMALL, "PRAGMA wal_checkpoint(TRUNCATE)"]);
            scene.assert_all_is_durable(&format!("{pin}, round {round}, a small one that was cut away"));
        }
    });
}

#[test]
fn a_database_without_a_wal_is_not_read_again_because_somebody_asks() {
    let scene = Scene::start(PinKind::Locks);
    let txid = scene.replicator.status()[0].durable_txid;
    for _ in 0..3 {
        assert!(scene.replicator.sync(LONG));
    }
    assert_eq!(scene.replicator.status()[0].durable_txid, txid);
}
