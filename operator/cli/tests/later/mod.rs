//! A nightly run, and runs of other days, made up from a kept one.

use std::path::{Path, PathBuf};

use serde_json::json;
use storebench_core::judgement::judge;
use storebench_core::record::TrialRecord;
use storebench_core::report::{Report, from_json, json as report_json};

use crate::finished::Finished;
use crate::world::{World, two_arms};

/// A run that is short enough to be made many times.
pub fn nightly() -> String {
    two_arms("nightly", "  - { name: set, redis: { command: Set }, load: { connections: 5, total: 50, warmUp: 0s } }")
}

/// A run that came to a verdict: one that a busy machine made Invalid, with all its retries, is made again.
pub fn until_undisturbed(run: impl Fn() -> Finished) -> Finished {
    const ATTEMPTS_MAX: usize = 3;
    for _ in 0..ATTEMPTS_MAX {
        let finished = run();
        if finished.code != Some(4) {
            return finished;
        }
        assert!(finished.stdout.contains("trials.retries"), "{}", finished.stdout);
    }
    panic!("this machine is too busy for a run: disturbed {ATTEMPTS_MAX} times");
}

/// Runs the nightly comparison and keeps it; returns its folder.
pub fn save(world: &World, directory: &Path) -> PathBuf {
    let file = world.write("nightly.yaml", &nightly());
    let mut command = world.storebench();
    command.arg("run").arg(file).arg("--save").arg(directory).args(["--wait-for-quiet", "0s", "--quiet"]);
    let ran = Finished::of(command.output().unwrap());
    assert_ne!(ran.code, Some(1), "{}", ran.stderr);
    std::fs::canonicalize(directory.join("nightly/latest")).unwrap()
}

/// A kept run of redis and valkey as another: later, with trials that are made up, so that no busy machine has a say, and in which the
/// second arm took so many times as long. Returns its folder.
pub fn later(folder: &Path, day: u32, factor: f64) -> PathBuf {
    make(folder, day, factor, None)
}

/// The same with another setting of the second arm's durability.
pub fn later_under(folder: &Path, day: u32, factor: f64, setting: &str) -> PathBuf {
    make(folder, day, factor, Some(setting))
}

fn make(folder: &Path, day: u32, factor: f64, setting: Option<&str>) -> PathBuf {
    let text = std::fs::read_to_string(folder.join("report.json")).unwrap();
    let mut record = from_json(&text).unwrap().record;
    record.started_at = format!("2027-01-{day:02}T01:00:00Z");
    record.aborted = None;
    let workload = record.spec.workloads[0].name.clone();
    let trial = |index: u32, arm: &str| {
        let noise = 1.0 + f64::from((day * 7 + index * 3) % 5) / 500.0;
        let slower = if arm == "valkey" { factor } else { 1.0 };
        let nanos = (1e6 * noise * slower) as u64;
        let latency = json!({ "meanNanos": nanos, "p50Nanos": nanos, "p99Nanos": nanos, "maxNanos": nanos });
        let summary = json!({
            "name": workload, "operations": 500, "errors": 0, "elapsedNanos": 100 * nanos, "verified": 10,
            "service": latency,
        });
        let trial = json!({
            "index": index, "arm": arm, "state": "Valid", "startedMillis": index, "durationMillis": 1,
            "workloads": [{ "summary": summary, "histograms": [] }],
        });
        serde_json::from_value::<TrialRecord>(trial).unwrap()
    };
    record.trials = (0..3).flat_map(|index| ["redis", "valkey"].map(|arm| trial(index, arm))).collect();
    if let Some(setting) = setting {
        record.arms[1].durability_setting = setting.into();
    }
    let path = folder.with_file_name(format!("202701{day:02}T010000Z-Passed"));
    std::fs::create_dir_all(&path).unwrap();
    let report = Report { judgement: judge(&record), record };
    std::fs::write(path.join("report.json"), report_json(&report).unwrap()).unwrap();
    path
}
