//! What a user meets from the first file to the history of many runs: mistakes told at once, one measurement at a time, runs compared.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::path::{Path, PathBuf};

use finished::Finished;
use serde_json::{Value, json};
use storebench_core::judgement::judge;
use storebench_core::record::TrialRecord;
use storebench_core::report::{Report, from_json, json as report_json};
use world::{World, one_arm};

const REDIS_SET: &str = "redis: { command: Set, keySpace: 2000 }";
const SHORT: &str = "{ total: 300, connections: 3, warmUp: 0s }";

const TWO_ARMS: &str = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: redis }
spec: { engine: Redis }
---
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: valkey }
spec: { engine: Valkey }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: nightly }
spec:
  arms:
  - { name: redis, baseline: true, serviceRef: { name: redis } }
  - { name: valkey, serviceRef: { name: valkey } }
  workloads:
  - name: set
    redis: { command: Set }
    load: { connections: 5, total: 500, warmUp: 0s }
  trials: { min: 3, max: 3, retries: 10 }
";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validate(world: &World, arguments: &[&str]) -> Finished {
    Finished::of(world.storebench().arg("validate").args(arguments).output().unwrap())
}

#[test]
fn every_mistake_has_its_line() {
    let world = World::new();
    let text = one_arm("redis", "7.0.15", REDIS_SET, SHORT).replace("min: 3, max: 3", "min: 12");
    let file = world.write("run.yaml", &(text + "  gates: [{ arm: stor, metric: ThroughputPerSecond, atLeast: 5 }]\n"));
    for command in ["validate", "run"] {
        let said = Finished::of(world.storebench().arg(command).arg(&file).output().unwrap());
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!((said.code, said.stdout.as_str(), lines.len()), (Some(1), "", 3), "{}", said.stderr);
        for (line, part) in lines.iter().zip(["did you mean Redis?", "trials.max is 10", "did you mean store?"]) {
            assert!(line.starts_with(&format!("storebench: {}: ", file.display())) && line.contains(part), "{line}");
        }
    }
}

#[test]
fn a_directory_of_samples_is_valid() {
    let world = World::new();
    for directory in ["manifests/samples", "manifests/samples/reports"] {
        let said = validate(&world, &[project().join(directory).to_str().unwrap()]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(said.stdout.matches("BenchmarkRun/").count() >= 5, "{}", said.stdout);
    }
}

#[test]
fn files_of_a_directory_share_what_is_no_run_and_nothing_else() {
    let world = World::new();
    let folder = world.data().with_file_name("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let text = one_arm("Redis", "7.0.15", REDIS_SET, SHORT);
    let (service, run) = text.split_once("---\n").unwrap();
    write("services.yaml", service);
    write("one.yaml", run);
    write("other.yaml", run);
    write("kustomization.yaml", "resources: [one.yaml]\n");
    write("notes.txt", "no YAML");
    let said = validate(&world, &[folder.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.stdout.matches("BenchmarkRun/run: valid").count(), 2, "{}", said.stdout);
    write("bad.yaml", &run.replace("name: store }", "name: stroe }"));
    let said = validate(&world, &[folder.to_str().unwrap()]);
    assert_eq!((said.code, said.stderr.lines().count()), (Some(1), 1), "{}", said.stderr);
    assert!(
        said.stderr
            .contains("bad.yaml: BenchmarkRun/run spec.arms[0].serviceRef.name: no StorageService is named `stroe`")
    );
}

#[test]
fn what_cannot_be_run_here_is_told_and_refused_with_here() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "1.2.3", REDIS_SET, SHORT));
    let path = file.to_str().unwrap();
    let told = validate(&world, &[path]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.contains("not on this machine as it is: StorageService/store spec.version: redis 1.2.3 is not installed here (there is 7.0.15)"), "{}", told.stdout);
    let refused = validate(&world, &[path, "--here"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("spec.version: redis 1.2.3 is not installed here"), "{}", refused.stderr);
    // What no driver honours is a mistake in any case, and so is at a run what an embedded one does not.
    world.write("run.yaml", &one_arm("Redis", "7.0.15, tls: { secretName: x }", REDIS_SET, SHORT));
    validate(&world, &[path]).error(&["run.yaml: ", "spec.tls: is not available"]);
    world.write("run.yaml", &one_arm("Redis", "7.0.15, image: redis:7", REDIS_SET, SHORT));
    let run = Finished::of(world.storebench().arg("run").arg(&file).output().unwrap());
    run.error(&["StorageService/store spec.image: has no effect in an embedded run"]);
    assert_eq!(validate(&world, &[path]).code, Some(0));
}

#[test]
fn outside_of_a_checkout_nobody_is_sent_to_its_scripts() {
    let world = World::new();
    let file = world.write("run.yaml", &one_arm("Redis", "1.2.3", REDIS_SET, SHORT));
    let elsewhere = file.with_file_name("storebench");
    std::fs::copy(env!("CARGO_BIN_EXE_storebench"), &elsewhere).unwrap();
    let mut command = harness::command(&elsewhere);
    command.arg("validate").arg(&file).env("STOREBENCH_PEERS", world.peers()).current_dir(file.parent().unwrap());
    let said = Finished::of(command.output().unwrap());
    let place = world.peers().join("redis/1.2.3");
    assert!(
        said.stdout.contains(&format!("put redis-server 1.2.3 on PATH, or into {}", place.display())),
        "{}",
        said.stdout
    );
    assert!(!said.stdout.contains("peers/fetch"), "{}", said.stdout);
}

#[test]
fn a_second_run_waits_for_the_first_or_is_refused_with_its_name() {
    let world = World::new();
    let long = world.write(
        "long.yaml",
        &one_arm("Redis", "7.0.15", REDIS_SET, "{ duration: 10s, connections: 1 }")
            .replace("name: run }", "name: nightly }"),
    );
    let mut command = world.storebench();
    command.arg("run").arg(long).args(["--wait-for-quiet", "0s", "--quiet"]);
    let mut first = harness::Process::start(&mut command);
    harness::until("the first run", || world.processes().iter().any(|line| line.contains("bench-job")));
    let file = world.write("run.yaml", &one_arm("Redis", "7.0.15", REDIS_SET, SHORT));
    let said = format!("another storebench, run nightly (pid {}),", first.id());
    let refused = Finished::of(world.storebench().arg("run").arg(&file).arg("--no-wait").output().unwrap());
    refused.error(&["run: ", &said]);
    let saved = file.with_file_name("saved");
    let mut command = world.storebench();
    let refused =
        Finished::of(command.arg("run").arg(&file).arg("--no-wait").arg("--save").arg(&saved).output().unwrap());
    assert!(refused.code == Some(1) && !saved.exists(), "who is refused leaves nothing: {}", refused.stderr);
    let waiting = file.with_file_name("waiting");
    let mut command = world.storebench();
    command.arg("run").arg(&file).args(["--wait-for-quiet", "0s"]);
    command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&waiting).unwrap());
    let mut second = harness::Process::start(&mut command);
    harness::until("the second to wait", || std::fs::read_to_string(&waiting).unwrap().contains(&said));
    assert_eq!(second.ended(), None, "it waits");
    // However the first ends, its lock does, too.
    first.kill();
    assert!(second.wait().code().is_some_and(|code| code != 1), "{}", std::fs::read_to_string(&waiting).unwrap());
    world.assert_nothing_is_left();
}

/// Runs the nightly comparison and keeps it; returns its folder.
fn save(world: &World, directory: &Path) -> PathBuf {
    let file = world.write("nightly.yaml", TWO_ARMS);
    let mut command = world.storebench();
    command.arg("run").arg(file).arg("--save").arg(directory).args(["--wait-for-quiet", "0s", "--quiet"]);
    let ran = Finished::of(command.output().unwrap());
    assert_ne!(ran.code, Some(1), "{}", ran.stderr);
    std::fs::canonicalize(directory.join("nightly/latest")).unwrap()
}

/// A kept run as another: later, with trials that are made up, so that no busy machine has a say, and in which the second arm took so
/// many times as long.
fn later(folder: &Path, day: u32, factor: f64) -> PathBuf {
    let text = std::fs::read_to_string(folder.join("report.json")).unwrap();
    let mut record = from_json(&text).unwrap().record;
    record.started_at = format!("2027-01-{day:02}T01:00:00Z");
    record.aborted = None;
    let trial = |index: u32, arm: &str| {
        let noise = 1.0 + f64::from((day * 7 + index * 3) % 5) / 500.0;
        let slower = if arm == "valkey" { factor } else { 1.0 };
        let nanos = (1e6 * noise * slower) as u64;
        let latency = json!({ "meanNanos": nanos, "p50Nanos": nanos, "p99Nanos": nanos, "maxNanos": nanos });
        let trial = json!({
            "index": index, "arm": arm, "state": "Valid", "startedMillis": index, "durationMillis": 1,
            "workloads": [{
                "summary": {
                    "name": "set", "operations": 500, "errors": 0, "elapsedNanos": 100 * nanos, "verified": 10,
                    "service": latency,
                },
                "histograms": [],
            }],
        });
        serde_json::from_value::<TrialRecord>(trial).unwrap()
    };
    record.trials = (0..3).flat_map(|index| ["redis", "valkey"].map(|arm| trial(index, arm))).collect();
    let path = folder.with_file_name(format!("202701{day:02}T010000Z-Passed"));
    std::fs::create_dir_all(&path).unwrap();
    let report = Report { judgement: judge(&record), record };
    std::fs::write(path.join("report.json"), report_json(&report).unwrap()).unwrap();
    path
}

#[test]
fn saved_runs_are_compared_and_followed() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let first = save(&world, &saved);
    let same = later(&first, 1, 1.0);
    let compare = |arguments: &[&str]| {
        Finished::of(world.storebench().arg("compare").args(arguments).env("COLUMNS", "100").output().unwrap())
    };
    let [base, slow] = [&same, &later(&first, 2, 3.0)].map(|path| path.to_str().unwrap().to_owned());
    let worse = compare(&[&base, &slow]);
    assert_eq!(worse.code, Some(2), "{}{}", worse.stdout, worse.stderr);
    assert!(
        worse.stdout.contains("worse by more than 5 %, beyond noise: throughput of valkey in set"),
        "{}",
        worse.stdout
    );
    assert!(worse.stdout.contains("as ratio to redis"), "{}", worse.stdout);
    let json: Value = serde_json::from_str(&compare(&[&base, &slow, "-o", "json"]).stdout).unwrap();
    assert_eq!((json[0]["verdict"].as_str(), json[0]["differences"].as_array().unwrap().len()), (Some("Regressed"), 0));
    assert!(compare(&[&base, &slow, "-o", "html"]).stdout.starts_with("<!DOCTYPE html>"));
    assert!(compare(&[&base, &slow, "-o", "markdown"]).stdout.contains("| arm | metric |"));
    assert_ne!(compare(&[&base, &base]).code, Some(2));
    assert_ne!(compare(&[&base, &slow, "--tolerance", "90%"]).code, Some(2));
    compare(&[&base, &slow, "--tolerance", "2"]).error(&["--tolerance: 2 would tolerate anything"]);
    // Another machine.
    let report = std::fs::read_to_string(slow.clone() + "/report.json").unwrap();
    let mut moved: Value = serde_json::from_str(&report).unwrap();
    moved["record"]["fingerprint"]["facts"]["processor"] = "another".into();
    let moved = world.write("moved.json", &moved.to_string());
    compare(&[&base, moved.to_str().unwrap()])
        .error(&["measured on unlike machines (processor: ", "--allow-different-machine"]);
    let allowed = compare(&[&base, moved.to_str().unwrap(), "--allow-different-machine"]);
    assert_eq!(allowed.code, Some(2), "{}", allowed.stderr);
    assert!(allowed.stdout.contains("UNLIKE MACHINES"), "{}", allowed.stdout);
    // A history of a month, in which it became slower.
    std::fs::remove_dir_all(&slow).unwrap();
    std::fs::remove_dir_all(&first).unwrap();
    let history = || Finished::of(world.storebench().arg("history").arg(&saved).output().unwrap());
    let first = same;
    for day in 2..24 {
        later(&first, day, 1.0);
    }
    let quiet = history();
    assert_eq!(quiet.code, Some(0), "{}{}", quiet.stdout, quiet.stderr);
    for day in 24..28 {
        later(&first, day, 1.2);
    }
    let alarm = history();
    assert_eq!(alarm.code, Some(2), "{}{}", alarm.stdout, alarm.stderr);
    assert!(alarm.stdout.contains("throughput of valkey in set since 2027-01-24T01:00:00Z"), "{}", alarm.stdout);
}

#[test]
fn a_run_is_held_against_its_baseline_before_and_after() {
    let world = World::new();
    let saved = world.data().with_file_name("saved");
    let first = save(&world, &saved);
    let fast = later(&first, 1, 0.2);
    let file = world.write("nightly.yaml", TWO_ARMS);
    let run = |baseline: &Path| {
        let mut command = world.storebench();
        command.arg("run").arg(&file).arg("--baseline").arg(baseline).args(["--wait-for-quiet", "0s", "--quiet"]);
        Finished::of(command.output().unwrap())
    };
    let worse = run(&fast);
    assert!(matches!(worse.code, Some(2 | 4)), "{}{}", worse.stdout, worse.stderr);
    assert!(worse.stdout.contains("Regressed: nightly") || worse.code == Some(4), "{}", worse.stdout);
    // What cannot be compared afterwards is not measured before.
    let mut moved: Value = serde_json::from_str(&std::fs::read_to_string(fast.join("report.json")).unwrap()).unwrap();
    moved["record"]["fingerprint"]["facts"]["processor"] = "another".into();
    let moved = world.write("moved.json", &moved.to_string());
    run(&moved).error(&["unlike machines (processor: "]);
    run(&saved.join("nowhere")).error(&["nowhere: cannot be read"]);
}
