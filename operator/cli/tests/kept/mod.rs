//! Folders of `--save` whose figures are made up, so that nothing is measured and no busy machine has a say.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use storebench_core::judgement::judge;
use storebench_core::record::RunRecord;
use storebench_core::report::{Report, html, json as report_json, markdown};

/// Keeps a run of redis and valkey in `directory`, as if it had been measured on that day of January 2027, for a minute, and valkey had taken so
/// many times as long as redis. Returns its folder.
pub fn keep(directory: &Path, run: &str, day: u32, factor: f64) -> PathBuf {
    let record = record(run, day, factor);
    let report = Report { judgement: judge(&record), record };
    let folder = directory.join(run).join(format!("202701{day:02}T010000Z-{:?}", report.judgement.verdict));
    std::fs::create_dir_all(&folder).unwrap();
    let files = [
        ("report.html", html(&report).unwrap()),
        ("report.json", report_json(&report).unwrap()),
        ("report.md", markdown(&report)),
        ("run.yaml", "kind: BenchmarkRun\n".into()),
        ("services.json", "{}".into()),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let latest = directory.join(run).join("latest");
    let _ = std::fs::remove_file(&latest);
    std::os::unix::fs::symlink(folder.file_name().unwrap(), latest).unwrap();
    folder
}

fn record(run: &str, day: u32, factor: f64) -> RunRecord {
    let arm = |name: &str, engine: &str| {
        json!({
            "name": name, "baseline": name == "redis", "service": name, "engine": engine, "durability": "Fsync",
            "durabilitySetting": "appendonly yes, appendfsync always", "replicas": 1, "fields": {}, "command": [],
        })
    };
    let trials: Vec<Value> =
        (0..3).flat_map(|index| ["redis", "valkey"].map(|arm| trial(index, arm, day, factor))).collect();
    let record = json!({
        "recordVersion": 1, "name": run, "storebenchVersion": "0.1.0", "startedAt": format!("2027-01-{day:02}T01:00:00Z"),
        "durationMillis": 60_000, "driver": "Embedded",
        "spec": {
            "arms": [
                { "name": "redis", "baseline": true, "serviceRef": { "name": "redis" } },
                { "name": "valkey", "serviceRef": { "name": "valkey" } },
            ],
            "workloads": [{ "name": "set", "redis": { "command": "Set" }, "load": { "duration": "1s", "connections": 1 } }],
            "trials": { "min": 3, "max": 3 },
        },
        "arms": [arm("redis", "Redis"), arm("valkey", "Valkey")], "trials": trials,
        "fingerprint": { "hash": "0", "facts": { "processor": "made up" } }, "caveats": [],
    });
    serde_json::from_value(record).unwrap()
}

fn trial(index: u32, arm: &str, day: u32, factor: f64) -> Value {
    let noise = 1.0 + f64::from((day * 7 + index * 3) % 5) / 500.0;
    let slower = if arm == "valkey" { factor } else { 1.0 };
    let nanos = (1e6 * noise * slower) as u64;
    let latency = json!({ "meanNanos": nanos, "p50Nanos": nanos, "p99Nanos": nanos, "maxNanos": nanos });
    let summary = json!({
        "name": "set", "operations": 500, "errors": 0, "elapsedNanos": 100 * nanos, "verified": 10, "service": latency,
    });
    json!({
        "index": index, "arm": arm, "state": "Valid", "startedMillis": 2 * index + u32::from(arm == "valkey"),
        "durationMillis": 1, "workloads": [{ "summary": summary, "histograms": [] }],
    })
}
