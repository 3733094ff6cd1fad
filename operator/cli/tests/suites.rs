//! Suites without a cluster: all runs one after the other, one table of all; what pipelines read; and the commands that help to write files.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::path::{Path, PathBuf};

use finished::Finished;
use world::World;

/// Redis under four combinations, one short trial of each; no verdict of theirs is worth anything.
const SUITE: &str = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: redis-fsync }
spec: { engine: Redis }
---
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: redis-none }
spec: { engine: Redis, durability: None }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkSuite
metadata: { name: sizes }
spec:
  parameters:
  - { name: durability, values: [fsync, none] }
  - { name: valueBytes, values: [64, 1024] }
  template:
    spec:
      arms: [{ name: redis, serviceRef: { name: redis-$(durability) } }]
      workloads:
      - name: set
        redis: { command: Set, valueBytes: $(valueBytes) }
        load: { connections: 2, total: 200, warmUp: 0s }
      trials: { min: 1, max: 1, retries: 0 }
";

const NAMES: [&str; 4] = ["sizes-fsync-64", "sizes-fsync-1024", "sizes-none-64", "sizes-none-1024"];

fn run(world: &World, text: &str, more: &[&str]) -> Finished {
    let file = world.write("suite.yaml", text);
    let mut command = world.storebench();
    command.arg("run").arg(file).args(["--wait-for-quiet", "0s", "--quiet"]).args(more);
    let finished = Finished::of(command.output().unwrap());
    world.assert_nothing_is_left();
    finished
}

fn only_folder(of: &Path) -> PathBuf {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(of)
        .unwrap_or_else(|error| panic!("{}: {error}", of.display()))
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !path.is_symlink())
        .collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders.remove(0)
}

/// The words of a line of a table.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn a_suite_runs_one_after_the_other_and_says_all_in_one_table() {
    let world = World::new();
    let directory = world.data().with_file_name("runs");
    let save = directory.to_str().unwrap().to_owned();
    let ended = run(&world, SUITE, &["--save", &save]);
    assert_ne!(ended.code, Some(1), "{}", ended.stderr);
    let table =
        ended.stdout.split("4 runs of durability × valueBytes").nth(1).unwrap_or_else(|| panic!("{}", ended.stdout));
    let rows: Vec<Vec<&str>> =
        table.lines().map(words).filter(|row| row.len() > 2 && matches!(row[0], "fsync" | "none")).collect();
    let values: Vec<[&str; 2]> = rows.iter().take(4).map(|row| [row[0], row[1]]).collect();
    assert_eq!(values, [["fsync", "64"], ["fsync", "1024"], ["none", "64"], ["none", "1024"]], "{table}");
    // In the order of the suite, and each by itself.
    let began: Vec<(String, &str)> = NAMES
        .iter()
        .map(|name| {
            let path = directory.join(name).join("latest/report.json");
            let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            assert_eq!(report["record"]["trials"].as_array().unwrap().len(), 1, "{name}");
            (report["record"]["startedAt"].as_str().unwrap().to_owned(), *name)
        })
        .collect();
    assert!(began.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{began:?}");
    // One page of all, and one in Markdown.
    let folder = only_folder(&directory.join("sizes"));
    let page = std::fs::read_to_string(folder.join("suite.html")).unwrap();
    for name in NAMES {
        assert!(page.contains(&format!("<h1>{name}</h1>")), "{name}");
    }
    assert_eq!((page.matches("<!DOCTYPE html>").count(), page.matches("<article ").count()), (1, 4));
    let markdown = std::fs::read_to_string(folder.join("suite.md")).unwrap();
    let is_row = |line: &&str| line.starts_with('|') && line.contains("fsync") && line.contains("1024");
    assert!(markdown.lines().any(|line| is_row(&line)), "{markdown}");
    // What it saved is read as what any run saved.
    let report = Finished::of(world.storebench().args(["report", &save, "--format", "junit"]).output().unwrap());
    assert_eq!(report.stdout.matches("<testsuite name=\"sizes-").count(), 4, "{}", report.stdout);
    // Gone on with, it measures nothing anew.
    let before = ended.code;
    let again = run(&world, SUITE, &["--resume", &save]);
    assert_eq!(again.code, before, "{}", again.stderr);
    assert_eq!(again.stderr.matches("came to its end before").count(), 4, "{}", again.stderr);
}

#[test]
fn a_suite_that_stops_leaves_the_other_runs_out() {
    let world = World::new();
    let gated = SUITE.replace(
        "trials: { min: 1, max: 1, retries: 0 }",
        "trials: { min: 3, max: 3, retries: 0 }\n      gates: [{ arm: redis, metric: ThroughputPerSecond, atLeast: 900000000 }]",
    );
    let ended = run(&world, &(gated + "  onFailure: Stop\n"), &["-o", "json"]);
    assert!(matches!(ended.code, Some(2 | 4)), "{:?} {}", ended.code, ended.stderr);
    assert_eq!(ended.report().as_array().unwrap().len(), 1);
    assert_eq!(ended.stderr.matches(": left out, for sizes-fsync-64 has not passed").count(), 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("1 of 4 measured"), "{}", ended.stderr);
}

#[test]
fn a_suite_that_cannot_be_saved_does_not_hide_why_its_runs_ended() {
    let world = World::new();
    let directory = world.data().with_file_name("runs");
    std::fs::create_dir(&directory).unwrap();
    // Where the folders of the suite and of its second run would be.
    for name in ["sizes", NAMES[1]] {
        std::fs::write(directory.join(name), "").unwrap();
    }
    let ended = run(&world, SUITE, &["--save", directory.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for name in ["sizes/", NAMES[1]] {
        let told =
            ended.stderr.lines().any(|line| line.contains(&format!("runs/{name}")) && line.contains("cannot be"));
        assert!(told, "{name}: {}", ended.stderr);
    }
}

#[test]
fn what_is_wrong_with_a_suite_is_told_before_anything_runs() {
    let world = World::new();
    let file = world.write("suite.yaml", &SUITE.replace("total: 200", "totl: 200"));
    for command in ["validate", "run"] {
        let refused = Finished::of(world.storebench().arg(command).arg(&file).output().unwrap());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
        let line =
            "BenchmarkSuite/sizes spec.template.spec.workloads[0].load.totl: is not a known field: did you mean total?";
        assert_eq!(refused.stderr.matches(line).count(), 1, "{}", refused.stderr);
    }
    run(&world, &(SUITE.to_owned() + "  suspend: true\n"), &[]).error(&["BenchmarkSuite/sizes spec.suspend: is true"]);
    let file = world.write("suite.yaml", SUITE);
    let valid = Finished::of(world.storebench().arg("validate").arg(file).output().unwrap());
    assert!(
        valid.stdout.contains(
            "BenchmarkSuite/sizes: valid: 4 runs of durability × valueBytes, the first of which is sizes-fsync-64\n"
        ),
        "{}",
        valid.stdout
    );
    assert_eq!(valid.stdout.matches("BenchmarkRun/").count(), 1, "{}", valid.stdout);
}

/// The first run was right, and of the others nobody was told anything.
#[test]
fn what_only_a_later_run_of_a_suite_lacks_is_told_and_told_once() {
    let world = World::new();
    let text = SUITE
        .replace("values: [64, 1024]", "values: [64, 1048576]")
        .replace("command: Set, ", "command: Set, keySpace: 1000000, ");
    let file = world.write("suite.yaml", &text);
    let validate =
        |more: &[&str]| Finished::of(world.storebench().arg("validate").arg(&file).args(more).output().unwrap());
    let told = validate(&[]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(
        told.stdout.contains("BenchmarkRun/sizes-fsync-1048576: valid: run 2 of BenchmarkSuite/sizes\n"),
        "{}",
        told.stdout
    );
    let lacking = "  not on this machine as it is: BenchmarkRun/sizes-fsync-1048576 spec.workloads[0].redis.keySpace: ";
    assert!(told.stdout.contains(lacking), "{}", told.stdout);
    assert!(!told.stdout.contains("sizes-none-1048576"), "{}", told.stdout);
    let refused = validate(&["--here"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert_eq!(refused.stderr.matches("spec.workloads[0].redis.keySpace: ").count(), 1, "{}", refused.stderr);
    assert!(refused.stdout.contains("BenchmarkSuite/sizes: refused on this machine: 4 runs"), "{}", refused.stdout);
}

#[test]
fn a_file_that_is_not_there_is_answered_with_what_to_do() {
    let world = World::new();
    for command in ["validate", "run"] {
        let refused = Finished::of(world.storebench().args([command, "nope.yaml"]).output().unwrap());
        refused.error(&["nope.yaml: is not there: name a file that is (a path is meant from the current folder)"]);
    }
}

#[test]
fn what_a_schedule_makes_is_run_once() {
    let world = World::new();
    let (services, _) = SUITE.split_once("kind: BenchmarkSuite").unwrap();
    let text = format!(
        "{services}kind: BenchmarkSchedule
metadata: {{ name: nightly }}
spec:
  schedule: \"30 2 * * *\"
  runTemplate:
    spec:
      arms: [{{ name: redis, serviceRef: {{ name: redis-none }} }}]
      workloads: [{{ name: set, redis: {{ command: Set }}, load: {{ total: 200, warmUp: 0s }} }}]
      trials: {{ min: 1, max: 1, retries: 0 }}
"
    );
    let ended = run(&world, &text, &["-o", "json"]);
    assert_eq!(ended.report()["record"]["name"], "nightly", "{}", ended.stderr);
    let file = world.write("quiet.yaml", &text);
    let valid = Finished::of(world.storebench().arg("validate").arg(file).output().unwrap());
    let line = "BenchmarkSchedule/nightly: valid: what it makes is shown as BenchmarkRun/nightly\n";
    assert!(valid.stdout.contains(line), "{}", valid.stdout);
    let file = world.write("loud.yaml", &text.replace("30 2", "99 2"));
    let refused = Finished::of(world.storebench().arg("validate").arg(file).output().unwrap());
    refused.error(&["BenchmarkSchedule/nightly spec.schedule: `99 2 * * *` is not cron's"]);
}

#[test]
fn a_first_file_is_written_once_and_is_valid() {
    let world = World::new();
    let file = world.data().with_file_name("first.yaml");
    let init = |more: &[&str]| {
        let arguments = ["init", file.to_str().unwrap(), "--engine", "redis", "--engine", "valkey"];
        Finished::of(world.storebench().args(arguments).args(more).output().unwrap())
    };
    init(&["--gate", "much"]).error(&["--gate: `much` is not a ratio: write it like 95% or \"0.95\""]);
    assert!(!file.exists(), "what cannot be run is not written");
    let written = init(&["--gate", "90%", "--workload", "mixed"]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    let again = init(&[]);
    again.error(&["first.yaml: is there already: name another file"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let valid = Finished::of(world.storebench().arg("validate").arg(&file).arg("--here").output().unwrap());
    assert_eq!(valid.code, Some(0), "{}", valid.stderr);
    assert!(valid.stdout.contains("BenchmarkRun/first: valid: 1 workload on redis, valkey"), "{}", valid.stdout);
}

#[test]
fn a_field_is_explained_without_a_cluster() {
    let world = World::new();
    let explain = |field: &str| Finished::of(world.storebench().args(["explain", field]).output().unwrap());
    let trials = explain("benchmarkrun.spec.trials");
    assert_eq!(trials.code, Some(0));
    assert!(trials.stdout.starts_with("BenchmarkRun.spec.trials <object>\n"), "{}", trials.stdout);
    assert!(trials.stdout.contains("trials.min must not exceed trials.max"), "{}", trials.stdout);
    explain("benchmarkrun.spec.trails")
        .error(&["BenchmarkRun.spec has no field `trails`: did you mean trials? Else its fields are allowUnequal"]);
}

/// Two services in files of their own, and a suite in a third: each line names the file in which its object is written.
#[test]
fn an_object_has_one_line_of_validate_which_names_its_file() {
    let world = World::new();
    let folder = world.data().with_file_name("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let mut documents = SUITE.split("---\n");
    for name in ["svc-a.yaml", "svc-b.yaml", "suite.yaml"] {
        write(name, documents.next().unwrap());
    }
    let said = Finished::of(world.storebench().arg("validate").arg(&folder).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for (object, file) in [
        ("StorageService/redis-fsync", "svc-a.yaml"),
        ("StorageService/redis-none", "svc-b.yaml"),
        ("BenchmarkSuite/sizes", "suite.yaml"),
    ] {
        let lines: Vec<&str> = said.stdout.lines().filter(|line| line.contains(&format!("{object}: "))).collect();
        let place = format!("{}: {object}: ", folder.join(file).display());
        assert!(lines.len() == 1 && lines[0].starts_with(&place), "{lines:?}");
    }
}
