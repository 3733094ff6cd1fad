//! `walsync bench`: each test gives figures that can be true, what is lost is told by the exit code, and nothing stays behind.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, folder, peer, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use support::gateway::{Gateway, with_credentials};
use support::walsync;

/// A bench of which nothing may stay in `folder`.
fn bench(folder: &TempDir, words: &[&str]) -> Command {
    let mut command = walsync();
    command.args(["bench", "--json", "--rounds", "1", "--interval-millis", "100", "--folder"]).arg(folder.path());
    if !words.contains(&"--duration") {
        command.args(["--duration", "0.5"]);
    }
    command.args(words);
    command
}

fn with_litestream(command: &mut Command) -> &mut Command {
    command.arg("--litestream").arg(peer("litestream", "litestream"))
}

/// What it found, by arm; it must succeed, and leave nothing behind.
fn rows(folder: &TempDir, command: &mut Command) -> Vec<Value> {
    let found: Value = serde_json::from_str(&harness::output(command)).unwrap();
    assert_eq!(found["failures"], Value::Array(Vec::new()));
    assert_eq!(left(folder.path()), Vec::<PathBuf>::new());
    let tests = found["tests"].as_array().unwrap();
    tests.iter().flat_map(|test| test["rows"].as_array().unwrap()).cloned().collect()
}

fn left(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn arms(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["arm"].as_str().unwrap()).collect()
}

#[track_caller]
fn lies_in(row: &Value, name: &str, range: std::ops::Range<f64>) -> f64 {
    let figure = row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert!(range.contains(&figure), "{name}: {row}");
    figure
}

#[test]
fn memory_and_processor_time_are_those_of_every_process() {
    let folder = folder();
    let words = ["--test", "idle,active", "--dbs", "1,2", "--litestream-each", "--commits", "20"];
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &words)));
    let once = ["walsync", "litestream", "walsync", "litestream", "litestream each"];
    assert_eq!(arms(&rows), [once, once].concat());
    for (at, row) in rows.iter().enumerate() {
        let processes = if row["arm"] == "litestream each" { 2 } else { 1 };
        assert_eq!(row["processes"], processes, "{row}");
        let rss = lies_in(row, "rss_mib", 2.0..200.0);
        let pss = lies_in(row, "pss_mib", 0.5..rss + 0.1);
        lies_in(row, "private_mib", 0.1..pss);
        lies_in(row, "processor_percent", 0.0..200.0);
        lies_in(row, "descriptors", 5.0..100.0);
        lies_in(row, "commits_per_second", if at < 5 { 0.0..0.1 } else { 1.0..60.0 });
    }
}

#[test]
fn a_commit_is_timed_until_an_object_has_it() {
    let folder = folder();
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &["--test", "sync"])));
    assert_eq!(arms(&rows), ["walsync", "litestream"]);
    for row in rows {
        assert_eq!(row["interval_millis"], 100);
        lies_in(&row, "samples", 1.0..1000.0);
        let median = lies_in(&row, "p50_millis", 0.01..60_000.0);
        let rare = lies_in(&row, "p99_millis", median..60_000.0);
        lies_in(&row, "max_millis", rare..60_000.0);
    }
}

#[test]
fn every_row_of_a_fast_writer_comes_back() {
    let folder = folder();
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &["--test", "throughput"])));
    let each = ["alone", "walsync", "litestream"];
    assert_eq!(arms(&rows), [each, each].concat());
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(row["synchronous"], if at < 3 { "NORMAL" } else { "FULL" });
        let commits = lies_in(row, "rows", 64.0..1e8);
        lies_in(row, "commits_per_second", 1.0..commits * 10.0);
        lies_in(row, "wal_max_mib", 0.05..10_000.0);
        assert_eq!(row["rows_lost"], 0, "{row}");
        if row["arm"] != "alone" {
            lies_in(row, "lag_seconds", 0.0..60.0);
        }
    }
}

#[test]
fn restores_are_compared_with_a_plain_copy() {
    let folder = folder();
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &["--test", "restore", "--sizes", "1,3"])));
    let each = ["walsync", "litestream", "plain copy"];
    assert_eq!(arms(&rows), [each, each].concat());
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(row["database_mb"], if at < 3 { 1 } else { 3 });
        let seconds = lies_in(row, "seconds", 0.0001..60.0);
        lies_in(row, "processor_seconds", 0.0..seconds * 4.0 + 0.1);
        lies_in(row, "speed_against_plain", 0.0001..1000.0);
        if row["arm"] != "plain copy" {
            lies_in(row, "peak_mib", 1.0..500.0);
        }
    }
    assert_eq!(rows[2]["speed_against_plain"], 1.0);
}

#[test]
fn commits_and_check_points_are_timed_together() {
    let folder = folder();
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &["--test", "checkpoint"])));
    assert_eq!(arms(&rows), ["alone", "walsync", "litestream"]);
    for row in rows {
        for what in ["commit", "check_point"] {
            lies_in(&row, &format!("{what}s"), 1.0..1e6);
            let median = lies_in(&row, &format!("{what}_p50_millis"), 0.0001..20_000.0);
            let rare = lies_in(&row, &format!("{what}_p99_millis"), median..20_000.0);
            lies_in(&row, &format!("{what}_max_millis"), rare..20_000.0);
        }
    }
}

#[test]
fn nothing_is_lost_by_a_kill() {
    let folder = folder();
    let rows = rows(&folder, with_litestream(&mut bench(&folder, &["--test", "network"])));
    outages(&rows, "kill -9");
}

#[test]
fn nothing_is_lost_by_a_store_that_goes_dark_and_nothing_stays_in_it() {
    let (folder, gateway) = (folder(), Gateway::start());
    let endpoint = gateway.endpoint();
    // All others, too, with a bucket.
    let words =
        ["--test", "network,sync,restore", "--sizes", "1", "--store", "s3://bucket/prefix", "--endpoint", &endpoint];
    let rows = rows(&folder, with_credentials(with_litestream(&mut bench(&folder, &words))));
    outages(&rows[..2], "black hole");
    assert_eq!(arms(&rows[2..]), ["walsync", "litestream", "walsync", "litestream", "plain copy"]);
    let place = walsync::config::Location::open("s3://bucket", &gateway.options()).unwrap();
    assert_eq!(place.store().0.list("").unwrap(), []);
}

fn outages(rows: &[Value], kind: &str) {
    assert_eq!(arms(rows), ["walsync", "litestream"]);
    for row in rows {
        assert_eq!((&row["outage"], &row["restored_by"]), (&kind.into(), &"litestream".into()));
        lies_in(row, "outage_seconds", 0.5..10.0);
        lies_in(row, "rows_meanwhile", 2.0..30.0);
        lies_in(row, "catch_up_seconds", 0.0..60.0);
        assert_eq!(row["rows_lost"], 0, "{row}");
    }
}

/// Removes objects of changes some time after they came, as a mistaken rule of a bucket might.
fn remove_objects(below: &Path) {
    let Ok(entries) = fs::read_dir(below) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            remove_objects(&path);
            continue;
        }
        let is_old = || {
            let age = SystemTime::now().duration_since(fs::metadata(&path).ok()?.modified().ok()?).ok()?;
            Some(age > Duration::from_millis(150))
        };
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.parent().unwrap().ends_with("ltx/0") && !name.starts_with("0000000000000001-") && is_old() == Some(true)
        {
            let _ = fs::remove_file(path);
        }
    }
}

#[test]
fn rows_that_do_not_come_back_are_told_and_the_exit_code_is_not_0() {
    let (folder, store) = (folder(), folder());
    let url = format!("file://{}", store.path().display());
    let mut command = bench(&folder, &["--test", "throughput", "--store", &url, "--duration", "1"]);
    without_litestream(&mut command);
    let is_over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                remove_objects(store.path());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let output = command.output();
        is_over.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().last().unwrap().contains("throughput, NORMAL, walsync: LOST"), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["failures"][0].as_str().unwrap().contains("LOST"), "{found}");
    let row = &found["tests"][0]["rows"][1];
    assert!(row["arm"] == "walsync" && row["rows_lost"] != 0, "{found}");
    assert_eq!((left(folder.path()), left(store.path())), (Vec::new(), Vec::new()));
}

fn without_litestream(command: &mut Command) -> &mut Command {
    command.env("STOREBENCH_PEERS", "/nowhere").env("PATH", "/nowhere")
}

#[test]
fn without_litestream_walsync_is_measured_alone_and_a_line_says_so() {
    let folder = folder();
    let mut command = bench(&folder, &["--test", "idle,throughput,network", "--dbs", "1", "--litestream-each"]);
    let output = without_litestream(&mut command).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("no Litestream").count(), 1, "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["litestream"], Value::Null);
    assert_eq!(arms(found["tests"][0]["rows"].as_array().unwrap()), ["walsync"]);
    assert_eq!(arms(found["tests"][2]["rows"].as_array().unwrap()), ["walsync"]);
    assert_eq!(found["tests"][2]["rows"][0]["restored_by"], "walsync");
}

#[test]
fn text_is_a_table_for_each_test() {
    let folder = folder();
    let mut command = walsync();
    command.args(["bench", "--dbs", "1", "--rounds", "1", "--duration", "0.2", "--folder"]).arg(folder.path());
    let text = harness::output(without_litestream(&mut command));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("walsync {}, no Litestream", env!("CARGO_PKG_VERSION")));
    assert!(lines[2].starts_with("idle: databases of 100 KB"), "{text}");
    assert!(lines[3].starts_with("databases  arm") && lines[4].trim_start().starts_with("1  walsync"), "{text}");
    assert_eq!(lines.len(), 5, "{text}");
}

#[test]
fn ctrl_c_leaves_neither_files_nor_processes() {
    let (folder, store) = (folder(), folder());
    let url = format!("file://{}", store.path().display());
    let log = store.path().join("log");
    let mut command = bench(&folder, &["--test", "sync", "--duration", "60", "--store", &url]);
    with_litestream(&mut command).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut process = Process::start(&mut command);
    until("a replicator at work", || !of(folder.path()).is_empty());
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(1));
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(said.lines().last(), Some("walsync: stopped; nothing was left behind"), "{said}");
    assert_eq!((left(folder.path()), left(store.path())), (Vec::new(), vec![log]));
    assert_eq!(of(folder.path()), Vec::<u32>::new());
}

/// Replicators of databases in a folder.
fn of(folder: &Path) -> Vec<u32> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_of = |id: &u32| {
        let words = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.contains("watch\0") && words.contains(folder.to_str().unwrap())
    };
    ids.filter(is_of).collect()
}

#[test]
fn each_wrong_word_is_one_line_and_nothing_is_begun() {
    let folder = folder();
    for (flag, value) in [
        ("--test", "idle,speed"),
        ("--dbs", "1,0"),
        ("--dbs", ""),
        ("--duration", "0"),
        ("--duration", "long"),
        ("--db-size", "1"),
        ("--sizes", "1,x"),
        ("--commits", "0"),
        // walsync itself would refuse it, after the beginning.
        ("--interval-millis", "24"),
        ("--rounds", "0"),
        ("--litestream", "/nowhere/litestream"),
        ("--litestream", "/bin/true"),
        ("--store", "gs://bucket"),
        ("--store", "s3://"),
        ("--folder", "/nowhere"),
    ] {
        let mut command = walsync();
        command.arg("bench").args([flag, value]).env("TMPDIR", folder.path());
        let output = without_litestream(&mut command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((output.status.code(), lines.len()), (Some(2), 1), "{flag} {value}: {said}");
        assert!(said.contains(flag.trim_start_matches("--")), "{flag} {value}: {said}");
        assert_eq!(left(folder.path()), Vec::<PathBuf>::new());
    }
}
