//! How much memory a member takes with many keys on disk, and how soon it reads them again after it was started: a table.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use d_engine_client::ReadLevel;
use harness::{Process, command};

use crate::group::{Group, PROGRAM};

/// What a member may have in memory, however many keys it has.
const RESIDENT_BYTES_MAX: u64 = 512 << 20;
/// How soon it answers again, on a machine that has nothing else to do.
const START_SECONDS_MAX: f64 = 5.0;
/// How often it is looked at while keys are put, and how often that is a row of the table.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS_PER_ROW: u32 = 40;
/// How long a start may take on a machine that has much else to do.
const START_PATIENCE: Duration = Duration::from_secs(120);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// Bytes of all files below a folder; those that are removed meanwhile have none.
fn bytes_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// One row: what the member has applied, and what it takes.
fn row(group: &Group, what: &str, seconds: f64, applied: u64) {
    let memory = group.memory(1);
    let [wal, snapshots, state] =
        ["wal", "snapshots", "state"].map(|part| mib(bytes_of(&group.directory(1).join(part))));
    eprintln!(
        "| {what} | {seconds:.1} | {applied} | {} | {} | {wal} | {snapshots} | {state} |",
        mib(memory.resident_bytes),
        mib(memory.resident_most_bytes)
    );
}

/// Reads a key until that succeeds.
async fn read(group: &Group, key: &str) {
    let begin = Instant::now();
    loop {
        if group.status(1).await.is_some() {
            let client = group.client().await;
            let answer = client.get_with(key.to_owned(), ReadLevel::Linearizable);
            if let Ok(Ok(found)) = tokio::time::timeout(Duration::from_secs(1), answer).await {
                assert!(found.value.is_some(), "{key} is lost");
                return;
            }
        }
        assert!(begin.elapsed() < START_PATIENCE, "no answer within {START_PATIENCE:?}: {}", group.log(1));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Loads keys of 64 bytes with values of 256, stops the member, starts it again, and says what that took. How long a start takes depends on
/// what else the machine does, and is only said.
#[tokio::test]
#[ignore = "takes minutes and gigabytes of disk: MANY_KEYS=1000000 cargo test --release -p d-engine --test server many_keys -- --ignored --nocapture"]
async fn many_keys_on_disk_take_little_memory_and_are_read_soon_after_a_start() {
    let keys = number("MANY_KEYS", 1_000_000);
    let patience = Duration::from_secs(60 * number("MANY_KEYS_MINUTES", 30));
    let mut group = Group::start_with(1, &["--storage", "disk"]);
    group.leader().await;
    group.client().await.put("first", "v").await.unwrap();
    let mut load: Command = command(PROGRAM);
    load.args(["bench", "--endpoints", &group.addresses[0], "--conns", "4", "--clients", "1000", "--door", "stream"])
        .args(["--key-size", "64", "--value-size", "256", "--total", &keys.to_string(), "put"]);
    eprintln!("{keys} keys of 64 bytes with values of 256\n");
    eprintln!("| | s | applied | resident MiB | at most | log MiB | snapshots MiB | state MiB |");
    eprintln!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let begin = Instant::now();
    let mut load = Process::start(&mut load);
    let mut looks = 0_u32;
    let status = loop {
        if let Some(status) = load.ended() {
            break status;
        }
        assert!(begin.elapsed() < patience, "longer than MANY_KEYS_MINUTES");
        tokio::time::sleep(LOOK).await;
        looks += 1;
        assert!(group.memory(1).resident_bytes <= RESIDENT_BYTES_MAX, "{}", group.memory(1));
        if looks.is_multiple_of(LOOKS_PER_ROW)
            && let Some(status) = group.status(1).await
        {
            row(&group, "put", begin.elapsed().as_secs_f64(), status.applied);
        }
    };
    assert!(status.success(), "{status}");
    row(&group, "all put", begin.elapsed().as_secs_f64(), group.status(1).await.unwrap().applied);
    let mut slowest: f64 = 0.0;
    for how in ["ended", "killed", "killed again"] {
        match how {
            "ended" => assert!(group.terminate(1).await.success()),
            _ => group.kill(1),
        }
        let begin = Instant::now();
        group.start_member(1);
        read(&group, "first").await;
        let seconds = begin.elapsed().as_secs_f64();
        slowest = slowest.max(seconds);
        row(&group, &format!("{how}, started, read"), seconds, group.status(1).await.unwrap().applied);
        assert!(group.memory(1).resident_most_bytes <= RESIDENT_BYTES_MAX, "{}", group.memory(1));
    }
    let bar = if slowest <= START_SECONDS_MAX { "within" } else { "beyond" };
    eprintln!("\nthe slowest start took {slowest:.2} s, which is {bar} the bar of {START_SECONDS_MAX} s");
}
