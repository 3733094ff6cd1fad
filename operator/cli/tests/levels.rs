//! `storebench report` of two levels: the real binary, two saved reports of made-up trials.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;

use std::process::Command;

use finished::Finished;
use harness::TempDir;
use serde_json::{Value, json};
use storebench_core::judgement::judge;
use storebench_core::record::RunRecord;
use storebench_core::report::{Report, json as report_json};

/// A saved run of three trials, in which rusd takes so many percent of the time that etcd takes.
fn saved(name: &str, workload: Value, percent: u64) -> String {
    let reference = if workload.get("etcd").is_some() { "serviceRef" } else { "controlPlaneRef" };
    let arms = ["etcd", "rusd"];
    let trial = |index: u64, arm: &str| {
        let mean = if arm == "etcd" { 1_000_000 } else { 10_000 * percent } + index;
        let latency = json!({ "meanNanos": mean, "p50Nanos": mean, "p99Nanos": mean, "maxNanos": mean });
        let mut measured = json!({
            "summary": {
                "name": workload["name"], "operations": 1000, "errors": 0, "elapsedNanos": 1000 * mean, "verified": 10,
                "service": latency,
            },
            "histograms": [],
        });
        if reference == "controlPlaneRef" {
            measured["apiRequests"] = json!({ "kinds": [{
                "answeredBy": "store", "verb": "create", "resource": "configmaps", "sumNanos": 500_000_000,
                "buckets": [{ "aboveNanos": 0, "upToNanos": 5_000_000, "count": 2000 }],
            }] });
        }
        json!({
            "index": index, "arm": arm, "state": "Valid", "startedMillis": index, "durationMillis": 1,
            "workloads": [measured],
        })
    };
    let arm = |name: &str| {
        let engine = if name == "etcd" { "Etcd" } else { "Rusd" };
        json!({
            "name": name, "baseline": name == "etcd", "service": name, "engine": engine, "durability": "Fsync",
            "durabilitySetting": "", "replicas": 1, "fields": {}, "command": [],
        })
    };
    let record = json!({
        "recordVersion": 1, "name": name, "storebenchVersion": "0.1.0", "startedAt": "2026-03-01T12:00:00Z",
        "durationMillis": 0, "driver": "Embedded",
        "spec": {
            "arms": arms.map(|name| json!({ "name": name, "baseline": name == "etcd", reference: { "name": name } })),
            "workloads": [workload], "trials": { "min": 3, "max": 3 },
        },
        "arms": arms.map(arm), "fingerprint": { "hash": "" }, "caveats": [],
        "trials": (0..3).flat_map(|index| arms.map(|arm| trial(index, arm))).collect::<Vec<_>>(),
    });
    let record: RunRecord = serde_json::from_value(record).unwrap();
    report_json(&Report { judgement: judge(&record), record }).unwrap()
}

fn world() -> TempDir {
    let directory = harness::folder();
    let load = json!({ "total": 1000 });
    let store = json!({ "name": "txn", "etcd": { "operation": "TxnPut" }, "load": load });
    let kubernetes = json!({ "name": "create", "kubernetes": { "operation": "CreateConfigMaps" }, "load": load });
    std::fs::write(directory.path().join("store.json"), saved("store", store, 60)).unwrap();
    std::fs::write(directory.path().join("kubernetes.json"), saved("kubernetes", kubernetes, 80)).unwrap();
    directory
}

fn report(directory: &TempDir, arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storebench"));
    Finished::of(command.arg("report").args(arguments).current_dir(directory.path()).output().unwrap())
}

#[test]
fn half_of_what_a_store_gains_reaches_the_user() {
    let world = world();
    for output in ["text", "markdown", "html"] {
        let finished = report(&world, &["store.json", "kubernetes.json", "-o", output]);
        let said = "create, rusd: 50 % (";
        let text = finished.stdout.replace("&#39;", "'");
        assert!(text.contains(said), "{output}: {} {}", finished.stderr, finished.stdout);
        let one = report(&world, &["store.json"]);
        assert_eq!(finished.code, one.code, "the graver of two equal verdicts");
    }
    let turned = report(&world, &["kubernetes.json", "store.json"]);
    assert_eq!(turned.stdout, report(&world, &["store.json", "kubernetes.json"]).stdout);
}

#[test]
fn what_is_not_two_levels_is_refused_with_a_remedy() {
    let world = world();
    report(&world, &["store.json", "store.json"]).error(&["are not two levels", "one of kubernetes workloads"]);
    report(&world, &["store.json", "none.json"]).error(&["none.json: cannot be read"]);
    report(&world, &["store.json", "kubernetes.json", "-o", "json"]).error(&["text, markdown or html"]);
    report(&world, &["store.json", "benchmarkrun/demo"]).error(&["storebench report benchmarkrun/demo -o json"]);
}
