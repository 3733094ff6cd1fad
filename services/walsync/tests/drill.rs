//! Restores for a trial, beside a replicator at work: what they find, what they leave, and what is told of them.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{folder, free_port, until};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{Application, Walsync, walsync};
use walsync::clock::SystemClock;
use walsync::replica::Replica;
use walsync::replicator::{DrillSettings, Phase, Replicator, Settings};
use walsync::store::Store;
use walsync::store::memory::{Fault, MemoryStore};

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";
const INSERT: &str = "INSERT INTO t(v) VALUES (randomblob(900))";
const LONG: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// Names in a folder, but for the file that is locked.
fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".walsync-drills").collect()
}

#[test]
fn a_file_that_is_gone_is_found_by_a_drill_also_where_it_is_the_newest() {
    let folder = folder();
    let trials = folder.path().join("trials");
    std::fs::create_dir(&trials).unwrap();
    let store = Arc::new(MemoryStore::default());
    let drill = DrillSettings { interval: Duration::from_millis(50), databases: 3, folder: trials.clone() };
    let settings = Settings {
        interval: Duration::from_millis(50),
        levels: Vec::new(),
        retention: None,
        drill: Some(drill),
        ..Settings::default()
    };
    let replicator = Replicator::start(settings.clone(), Arc::new(SystemClock::default())).unwrap();
    let refused = Replicator::start(settings, Arc::new(SystemClock::default())).map(drop).unwrap_err();
    assert!(refused.to_string().contains("another process has its drills there"), "{refused}");
    let mut applications = Vec::new();
    for name in ["well.db", "ill.db", "short.db"] {
        let path = folder.path().join(name);
        applications.push(Application::start(&path, TABLE));
        replicator.add(path, Replica::new(store.clone(), ltx::Layout::Objects, name));
        assert!(replicator.sync(LONG));
    }
    for _ in 0..3 {
        applications.iter_mut().for_each(|application| application.run(INSERT));
        assert!(replicator.sync(LONG));
    }
    let report = || replicator.observer().drills().unwrap();
    let before = report().succeeded;
    until("all databases restored twice", || report().succeeded >= before + 6);
    assert_eq!((report().failed, report().last_failure_millis), (0, None), "{:?}", report());
    assert!(report().last_success_millis.is_some_and(|millis| millis > 1_700_000_000_000));

    let keys: Vec<String> = store.list("").unwrap().into_iter().map(|object| object.key).collect();
    let of = |name: &str| keys.iter().filter(|key| key.starts_with(name)).cloned().collect::<Vec<_>>();
    let (ill, short) = (of("ill.db/0000/"), of("short.db/0000/"));
    store.delete(&ill[ill.len() / 2]).unwrap();
    store.delete(short.last().unwrap()).unwrap();
    until("drills that fail", || report().failing.len() == 2);
    let (report, path) = (report(), |name: &str| folder.path().join(name));
    assert!(report.failing[&path("ill.db")].starts_with("hole: "), "{report:?}");
    assert!(report.failing[&path("short.db")].contains("the newest files are gone"), "{report:?}");
    assert!(report.failed >= 2 && report.last_failure_millis.is_some(), "{report:?}");
    drop(replicator);
    until("trials that are removed", || names(&trials).is_empty());
    applications.into_iter().for_each(Application::close);
}

/// Drills of one database, one after the other.
fn drilled(folder: &Path, store: Arc<MemoryStore>) -> (Replicator, Application, Replica) {
    let trials = folder.join("trials");
    std::fs::create_dir(&trials).unwrap();
    let drill = DrillSettings { interval: Duration::from_millis(50), databases: 1, folder: trials };
    let settings = Settings {
        interval: Duration::from_millis(50),
        levels: Vec::new(),
        retention: None,
        drill: Some(drill),
        ..Settings::default()
    };
    let replicator = Replicator::start(settings, Arc::new(SystemClock::default())).unwrap();
    let path = folder.join("app.db");
    let application = Application::start(&path, TABLE);
    let replica = Replica::new(store, ltx::Layout::Objects, "app.db");
    replicator.add(path, replica.clone());
    assert!(replicator.sync(LONG));
    (replicator, application, replica)
}

/// A file of the next transaction after `txid`, with its first page, of a database of so many pages.
fn put_next(store: &MemoryStore, replica: &Replica, txid: u64, commit: u32) -> String {
    let (min_txid, max_txid) = (txid + 1, txid + 1);
    let flags = ltx::NO_CHECKSUM;
    let header = ltx::Header { flags, page_size: 4096, commit, min_txid, max_txid, ..Default::default() };
    let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
    encoder.page(1, &[7; 4096]).unwrap();
    let (content, _) = encoder.finish().unwrap();
    let key = replica.key(0, ltx::FileName { min_txid, max_txid });
    let length = content.len() as u64;
    store.create(&key, &mut std::io::Cursor::new(content), length, &Default::default()).unwrap();
    key
}

#[test]
fn a_drill_that_has_no_room_or_no_store_is_not_run_and_tells_nothing_of_the_replica() {
    let folder = folder();
    let store = Arc::new(MemoryStore::default());
    let (replicator, application, replica) = drilled(folder.path(), store.clone());
    let report = || replicator.observer().drills().unwrap();
    until("a drill", || report().succeeded > 0);
    // No disk has room for that.
    let large = put_next(&store, &replica, replicator.status()[0].durable_txid, 0xffff_fff0);
    let before = report().not_run;
    until("drills without room", || report().not_run >= before + 2);
    assert_eq!((report().failed, report().failing.len()), (0, 0), "{:?}", report());
    store.delete(&large).unwrap();
    let before = report().succeeded;
    until("drills that have room again", || report().succeeded > before + 1);
    store.set_fault(Fault::Forbid);
    let before = report().not_run;
    until("drills without a store", || report().not_run >= before + 2);
    assert_eq!((report().failed, report().failing.len()), (0, 0), "{:?}", report());
    drop(replicator);
    application.close();
}

#[test]
fn a_database_that_somebody_else_writes_now_is_not_told_as_one_whose_drill_fails() {
    let folder = folder();
    let store = Arc::new(MemoryStore::default());
    let (replicator, mut application, replica) = drilled(folder.path(), store.clone());
    let report = || replicator.observer().drills().unwrap();
    let durable = replicator.status()[0].durable_txid;
    // Somebody else's, and of no use.
    put_next(&store, &replica, durable, 1);
    until("a drill that fails", || !report().failing.is_empty());
    application.run(INSERT);
    until("a database that is fenced", || matches!(replicator.status()[0].phase, Phase::Fenced(_)));
    assert_eq!(report().failing.len(), 0, "{:?}", report());
    drop(replicator);
    application.close();
}

#[test]
fn drills_are_configured_by_walsync_yml_and_told_by_metrics() {
    let folder = folder();
    let (database, store, trials) =
        (folder.path().join("app.db"), folder.path().join("store"), folder.path().join("trials"));
    let port = free_port();
    let config = folder.path().join("walsync.yml");
    let text = format!(
        "store: file://{}\ninterval-millis: 50\nrestore-drill: {{interval-seconds: 1, databases: 2, folder: {}}}\n\
         databases: [{{path: {}}}]\n",
        store.display(),
        trials.display(),
        database.display()
    );
    std::fs::write(&config, text).unwrap();
    let watch = || {
        let mut command = walsync();
        command.arg("watch").arg("--config").arg(&config).arg(format!("--listen=http://127.0.0.1:{port}"));
        command
    };
    let refused = watch().output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("restore-drill.folder"), "{said}");
    let refused = walsync().arg("explain").arg("--config").arg(&config).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("restore-drill.folder"), "as by a watch: {said}");
    // As a drill that was killed leaves it.
    std::fs::create_dir_all(trials.join("walsync-drill-killed")).unwrap();
    let explained = harness::output(walsync().arg("explain").arg("--config").arg(&config));
    assert!(explained.contains("app.db"), "{explained}");
    let mut application = Application::start(&database, TABLE);
    let mut watching = Walsync::start(watch(), &folder.path().join("log"));
    watching.wait_durable(1);
    application.run(INSERT);
    watching.wait_durable(2);
    let metrics = || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let value = |name: &str| -> f64 {
        let metrics = metrics();
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse().unwrap()
    };
    until("a drill", || value("walsync_restore_drills_total") >= 1.0);
    assert!(value("walsync_restore_drill_last_success_timestamp_seconds") > 1.7e9);
    assert_eq!(value("walsync_restore_drills_not_run_total"), 0.0);
    for name in ["failures_total", "last_failure_timestamp_seconds", "failing_databases"] {
        assert_eq!(value(&format!("walsync_restore_drill_{name}")), 0.0, "{name}");
    }
    let first = store.join("app.db/ltx/0/0000000000000001-0000000000000001.ltx");
    assert!(first.exists());
    // Without the first file nothing leads anywhere.
    std::fs::remove_dir_all(store.join("app.db/ltx/0")).unwrap();
    until("a drill that fails", || value("walsync_restore_drill_failing_databases") == 1.0);
    assert!(value("walsync_restore_drill_failures_total") >= 1.0);
    assert!(value("walsync_restore_drill_last_failure_timestamp_seconds") > 1.7e9);
    assert!(metrics().contains(&format!("walsync_restore_drill_failing{{database=\"{}\"}} 1", database.display())));
    assert!(watching.log().contains("drill: the replica does not restore"), "{}", watching.log());
    watching.kill();
    application.close();
}
