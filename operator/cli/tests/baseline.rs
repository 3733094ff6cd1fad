//! Runs and suites that are held against saved ones with `--baseline`: the verdict is that of both together, wherever it is said.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod later;
#[allow(dead_code)]
mod world;

use std::path::{Path, PathBuf};

use finished::Finished;
use later::{later, nightly, save, until_undisturbed};
use serde_json::Value;
use world::World;

fn latest(directory: &Path, run: &str) -> PathBuf {
    std::fs::canonicalize(directory.join(run).join("latest")).unwrap()
}

/// The folder was called Passed, and so did every page, while the exit code was 2.
#[test]
fn a_run_that_is_worse_than_its_baseline_is_regressed_wherever_it_is_kept() {
    let world = World::new();
    let fast = later(&save(&world, &world.data().with_file_name("saved")), 1, 0.001);
    let (file, kept) = (world.write("nightly.yaml", &nightly()), world.data().with_file_name("kept"));
    let ended = until_undisturbed(|| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--baseline").arg(&fast).arg("--save").arg(&kept);
        Finished::of(command.args(["--wait-for-quiet", "0s", "--quiet"]).output().unwrap())
    });
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let folder = latest(&kept, "nightly");
    assert!(folder.to_string_lossy().ends_with("-Regressed"), "{}", folder.display());
    let report = std::fs::read_to_string(folder.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["judgement"]["verdict"], "Regressed");
    // Read again, and gone on with, it is what it was.
    let again = Finished::of(world.storebench().arg("report").arg(&folder).output().unwrap());
    assert_eq!((again.code, again.stderr.as_str()), (Some(2), ""));
    let again = Finished::of(world.storebench().args(["run", "--resume"]).arg(&kept).arg(&file).output().unwrap());
    assert_eq!(again.code, Some(2), "{}", again.stderr);
}

/// Only the exit code knew of the baseline.
#[test]
fn a_suite_stops_at_a_run_that_is_worse_than_its_baseline() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let (services, run) = nightly().rsplit_once("---\n").map(|(one, two)| (one.to_owned(), two.to_owned())).unwrap();
    let spec = run.split_once("spec:\n").unwrap().1.replace("command: Set", "command: Set, valueBytes: $(size)");
    let spec: String =
        spec.lines().map(|line| format!("      {}\n", line.strip_prefix("  ").unwrap_or(line))).collect();
    let suite = format!(
        "{services}---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkSuite
metadata: {{ name: sizes }}
spec:
  onFailure: Stop
  parameters: [{{ name: size, values: [64, 128] }}]
  template:
    spec:
{spec}"
    );
    let file = world.write("sizes.yaml", &suite);
    let run = |more: &[&str]| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).args(["--wait-for-quiet", "0s", "--quiet"]).args(more);
        Finished::of(command.output().unwrap())
    };
    let path = saved.to_str().unwrap();
    let first = until_undisturbed(|| run(&["--save", path]));
    assert_eq!(first.code, Some(0), "{}{}", first.stdout, first.stderr);
    for name in ["sizes-64", "sizes-128"] {
        later(&latest(&saved, name), 1, 0.001);
    }
    let ended = until_undisturbed(|| run(&["--baseline", path]));
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("sizes-128: left out, for sizes-64 has not passed"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Regressed: sizes, 2 runs of size"), "{}", ended.stdout);
}

#[test]
fn a_run_is_held_against_its_baseline_before_and_after() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let first = save(&world, &saved);
    // So fast that a few milliseconds of work on a busy machine, whose interval may be tenfold wide, are worse beyond noise.
    let fast = later(&first, 1, 0.001);
    let file = world.write("nightly.yaml", &nightly());
    let run = |baseline: &Path| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--baseline").arg(baseline).args(["--wait-for-quiet", "0s", "--quiet"]);
        Finished::of(command.output().unwrap())
    };
    let worse = until_undisturbed(|| run(&fast));
    assert_eq!(worse.code, Some(2), "{}{}", worse.stdout, worse.stderr);
    assert!(worse.stdout.contains("Regressed: nightly"), "{}", worse.stdout);
    // What cannot be compared afterwards is not measured before.
    let mut moved: Value = serde_json::from_str(&std::fs::read_to_string(fast.join("report.json")).unwrap()).unwrap();
    moved["record"]["fingerprint"]["facts"]["processor"] = "another".into();
    let moved = world.write("moved.json", &moved.to_string());
    run(&moved).nothing_to_compare(&["unlike machines (processor: "]);
    let mut renamed =
        serde_json::from_str::<Value>(&std::fs::read_to_string(fast.join("report.json")).unwrap()).unwrap();
    renamed["record"]["spec"]["workloads"][0]["name"] = "other".into();
    let renamed = world.write("renamed.json", &renamed.to_string());
    run(&renamed).nothing_to_compare(&["nothing in common that could be compared: workload other is in the first"]);
    run(&saved.join("nowhere")).error(&["nowhere: cannot be read"]);
    // Nor is anything that is asked for beside it.
    let weekly = nightly().rsplit("---\n").next().unwrap().replace("name: nightly", "name: weekly");
    world.write("nightly.yaml", &format!("{}---\n{weekly}", nightly()));
    run(&fast).nothing_to_compare(&["--baseline: has no run weekly, but nightly"]);
}

/// Every program was asked for its version and read as a whole once more, for a record that was thrown away.
#[test]
fn a_run_that_is_held_against_a_baseline_is_prepared_once() {
    let world = World::new();
    let before = later(&save(&world, &world.data().with_file_name("saved")), 1, 1.0);
    let seen = world.data().with_file_name("seen");
    let script = format!(
        "case \"$*\" in *--version*) word=asked ;; *) word=started ;; esac\necho $word >> {}\nexec $REAL \"$@\"",
        seen.display()
    );
    world.install_wrapper("redis", "redis-server", &script);
    let file = world.write("nightly.yaml", &nightly().replace("engine: Redis", "engine: Redis, version: faulty"));
    let times_asked = |more: &[&str]| {
        std::fs::write(&seen, "").unwrap();
        let mut command = world.storebench();
        command.arg("run").arg(&file).args(["--wait-for-quiet", "0s", "--quiet"]).args(more);
        let ended = Finished::of(command.output().unwrap());
        let words = std::fs::read_to_string(&seen).unwrap();
        let count = |word: &str| words.lines().filter(|line| *line == word).count();
        assert_ne!(count("started"), 0, "it is measured: {}", ended.stderr);
        count("asked")
    };
    let alone = times_asked(&[]);
    assert_ne!(alone, 0);
    assert_eq!(times_asked(&["--baseline", before.to_str().unwrap()]), alone);
}

/// Its folder stayed that of a run which goes on.
#[test]
fn a_run_that_cannot_be_compared_after_all_is_kept() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let fast = later(&save(&world, &saved), 1, 0.001);
    let mut other: Value = serde_json::from_str(&std::fs::read_to_string(fast.join("report.json")).unwrap()).unwrap();
    // Too few to compare with, which only a comparison shows.
    other["record"]["spec"]["trials"] = serde_json::json!({ "min": 1, "max": 1, "retries": 10 });
    other["record"]["trials"].as_array_mut().unwrap().truncate(2);
    let other = world.write("other.json", &other.to_string());
    let (file, kept) = (world.write("nightly.yaml", &nightly()), world.data().with_file_name("kept"));
    let run = |flag: &str, baseline: &Path| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--baseline").arg(baseline).arg(flag).arg(&kept);
        Finished::of(command.args(["--wait-for-quiet", "0s", "--quiet"]).output().unwrap())
    };
    let ended = until_undisturbed(|| run("--save", &other));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing in common that could be compared"), "{}", ended.stderr);
    let folder = std::fs::canonicalize(kept.join("nightly/latest")).unwrap();
    assert!(!folder.to_string_lossy().ends_with("-unfinished"), "{}", folder.display());
    // Resumed, it has ended before, and is held against a baseline all the same; never against itself.
    assert_eq!(run("--resume", &fast).code, Some(2));
    let itself = run("--resume", &kept);
    assert!(itself.code == Some(3) && itself.stderr.contains("is this run itself"), "{}", itself.stderr);
}
