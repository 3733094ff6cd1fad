//! More databases than a process may have files open: those that find no room are refused, and nobody else has less for it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{command, folder, free_port, until};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use support::{Walsync, content, restored_by_walsync, said, walsync};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

/// Descriptors of a process that are of each of some files, by the name of the database.
fn descriptors(process: u32) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().filter_map(Result::ok) {
        let Ok(path) = std::fs::read_link(entry.path()) else { continue };
        if let Some((name, _)) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(".db"))
        {
            *found.entry(name.to_owned()).or_default() += 1;
        }
    }
    found
}

fn watch(databases: &Path, store: &Path, log: &Path, arguments: &[&str]) -> Walsync {
    let mut command = command("sh");
    command.args(["-c", "ulimit -n 300 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_walsync"), "watch"]);
    command.arg(databases.join("*.db")).arg("--to").arg(store).args(["--interval-millis", "50"]).args(arguments);
    Walsync::start(command, log)
}

/// Of 50 databases those that have room are replicated, and the others are told of.
fn assert_that_some_are_refused(pin: &str, files: usize, running: usize) {
    let folder = folder();
    let (databases, store) = (folder.path().join("data"), folder.path().join("store"));
    std::fs::create_dir(&databases).unwrap();
    let paths: Vec<_> = (10..60).map(|number| databases.join(format!("{number}.db"))).collect();
    // Applications in this process: its locks are seen by the other one.
    let connections: Vec<_> = paths.iter().map(|path| Connection::open(path).unwrap()).collect();
    for connection in &connections {
        connection
            .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v); INSERT INTO t VALUES (randomblob(9000))")
            .unwrap();
    }
    let url = format!("http://127.0.0.1:{}", free_port());
    let log = folder.path().join("log");
    let watching = watch(&databases, &store, &log, &["--listen", &url, "--pin", pin]);
    let status = || -> Vec<Vec<String>> {
        let (_, text) = said(walsync().args(["status", "--listen", &url]));
        let lines = text.lines().filter(|line| line.starts_with(databases.to_str().unwrap()));
        lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    };
    let of_kind = |kind: &str| status().into_iter().filter(|line| line[1].starts_with(kind)).collect::<Vec<_>>();
    until("databases that have room", || of_kind("running").len() == running);
    until("databases that have none", || of_kind("refused: of 300 files").len() == paths.len() - running);
    for connection in &connections {
        connection.execute_batch("INSERT INTO t VALUES (randomblob(9000))").unwrap();
    }
    for line in of_kind("running") {
        let path = Path::new(&line[0]);
        harness::output(walsync().arg("sync").arg(path).args(["--wait", "latest", "--listen", &url]));
        assert!(restored_by_walsync(store.join(path.file_name().unwrap())) == content(path));
    }
    assert_eq!(of_kind("running").len(), running, "{:?}", status());
    let most = descriptors(watching.id()).into_values().max();
    assert_eq!(most, Some(files), "what a database takes is what was reckoned with");
    assert!(!watching.log().contains("Too many open files"), "{}", watching.log());
    drop(connections);
    watching.kill();
}

#[test]
fn databases_without_room_are_refused_and_hold_up_nobody() {
    assert_that_some_are_refused("locks", 5, 34);
}

#[test]
fn databases_without_room_for_a_read_transaction_are_refused_and_hold_up_nobody() {
    assert_that_some_are_refused("read-transaction", 6, 28);
}
