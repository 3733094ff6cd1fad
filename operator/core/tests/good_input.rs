//! What is right is accepted: every field that a user may write is written in a file of `good_input/`, so that a rule
//! which is too strict shows. `testing/api-rules` asks Kubernetes' own library about the same files.
//!
//! What is accepted with a remark, because an earlier storebench took it without one, is in `remarks/`. The first line of a file says which is
//! expected: `# storebench: FIELD | REMARK`. What a run may leave undecided is in `remarks/doubtful/`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a file that does not read, or is refused, is a failure")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use storebench_core::input::{Input, load};
use storebench_core::validate::{ValidatedRun, doubtful_gates, for_cluster, foregone_gates};
use storebench_crds::document::KINDS;
use storebench_crds::workload::Parameters;
use storebench_crds::{Durability, Isolation, LoadMode, schema};

const GOOD_INPUT: &str = "tests/good_input";

fn files(directory: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let read = |path: &Path| (path.display().to_string(), std::fs::read_to_string(path).unwrap());
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| read(&path)).collect()
}

fn accepted(name: &str, text: &str) -> Input {
    load(&[(name.into(), text.as_bytes().into())], Path::new("")).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn valid_inputs_are_accepted() {
    for (name, text) in files(GOOD_INPUT)
        .into_iter()
        .chain(files("../../manifests/samples"))
        .chain(files("../../manifests/samples/reports"))
    {
        let input = accepted(&name, &text);
        assert!(!input.services.is_empty() || !input.runs.is_empty(), "{name} holds neither a service nor a run");
        // As an editor on another system would have saved it.
        accepted(&name, &text.replace('\n', "\r\n"));
        accepted(&name, &format!("\u{feff}{text}"));
        accepted(&name, text.trim_end());
    }
}

/// An etcd, and a run of which the fields of the spec are to follow.
const ETCD: &str = "\
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: etcd }
spec: { engine: Etcd }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: demo }
spec:
";

#[test]
fn a_gate_is_told_as_it_was_understood() {
    let text = ETCD.to_owned()
        + "  arms: [{ name: etcd, baseline: true, serviceRef: { name: etcd } }, { name: again, serviceRef: { name: etcd } }]
  workloads: [{ name: put, etcd: { operation: Put }, load: { duration: 5s } }]
  gates:
  - { arm: again, metric: LatencyP99Micros, atMost: 5ms }
  - { arm: again, workload: put, metric: LatencyP50Micros, atMost: 900 }
  - { arm: again, metric: ThroughputPerSecond, atLeast: 12000 }
  - { arm: again, metric: ThroughputPerSecond, ratioAtLeast: 95% }
  - { arm: again, metric: ThroughputPerSecond, ratioAtLeast: 90%, onInconclusive: Warn }
  - { arm: again, metric: ThroughputPerSecond, ratioAtLeast: 80%, onInconclusive: Pass }
";
    let told = accepted("run.yaml", &text).runs[0].gates_in_words();
    let expected = [
        "gate: LatencyP99Micros of again in every workload: at most 5,000 µs (5.00 ms)",
        "gate: LatencyP50Micros of again in put: at most 900 µs",
        "gate: ThroughputPerSecond of again in every workload: at least 12,000/s",
        "gate: ThroughputPerSecond of again in every workload: at least 95 % of etcd",
        "gate: ThroughputPerSecond of again in every workload: at least 90 % of etcd; if undecided: warns, and does not count",
        "gate: ThroughputPerSecond of again in every workload: at least 80 % of etcd; if undecided: counts as met",
    ];
    assert_eq!(told, expected);
}

/// Of so many files at least, each with the one remark that its first line names.
fn each_file_is_told_its_remark(directory: &str, fewest: usize, told: fn(&ValidatedRun) -> Vec<String>) {
    let files = files(directory);
    assert!(files.len() >= fewest, "only {} files: were they moved?", files.len());
    for (name, text) in files {
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# storebench: ")?.split_once(" | "));
        let (field, remark) = expected.unwrap_or_else(|| panic!("{name}: no `# storebench: FIELD | REMARK`"));
        let told = told(&accepted(&name, &text).runs[0]);
        let [told] = told.as_slice() else { panic!("{name}: {told:?}") };
        assert!(told.starts_with(&format!("{field}: ")) && told.contains(remark), "{name}: {told}");
    }
}

/// These gates were refused, and with them a kept run.yaml, a run that was to go on by `--resume` and one that was under way in a cluster.
#[test]
fn a_gate_that_no_run_could_miss_or_meet_is_told_once_and_refuses_no_run() {
    each_file_is_told_its_remark("tests/remarks", 10, foregone_gates);
    let input = accepted("run.yaml", include_str!("../../../manifests/samples/redis-valkey.yaml"));
    assert_eq!(foregone_gates(&input.runs[0]), [""; 0]);
}

/// They were called valid, and those who had written them found out after the run.
#[test]
fn a_gate_that_a_run_may_leave_undecided_is_told_before_it_runs() {
    each_file_is_told_its_remark("tests/remarks/doubtful", 5, doubtful_gates);
}

/// A gate may ask for a store that is faster, or for nothing that depends on which processes there were.
#[test]
fn a_gate_that_a_run_can_decide_is_not_called_doubtful() {
    let told = |more: &str| {
        let text = ETCD.to_owned()
            + "  arms: [{ name: etcd, baseline: true, serviceRef: { name: etcd } }, { name: again, serviceRef: { name: etcd } }]
  workloads: [{ name: put, etcd: { operation: Put }, load: { duration: 5s } }]
"
            + more;
        doubtful_gates(&accepted("run.yaml", &text).runs[0])
    };
    let gate = |bound: &str| format!("  gates: [{{ arm: again, metric: ThroughputPerSecond, {bound} }}]\n");
    for bound in ["ratioAtLeast: 120%", "ratioAtLeast: 95%", "ratioAtLeast: 98%", "ratioAtLeast: 99.8%"] {
        let wide = "  trials: { min: 6, max: 6, targetIntervalBasisPoints: 600 }\n";
        assert_eq!(
            told(&(gate(bound) + wide)),
            [""; 0],
            "a run that ends with its sixth trial stops at no interval: {bound}"
        );
    }
    assert_eq!(told(&gate("ratioAtLeast: 98%")), [""; 0], "as wide as the way to the bound");
    assert_eq!(told(&gate("ratioAtLeast: 98.1%")).len(), 1);
    assert_eq!(told(&(gate("atLeast: 100") + "  isolation: Shared\n")), [""; 0]);
    assert_eq!(told("  isolation: Shared\n"), [""; 0]);
    let sample = accepted("run.yaml", include_str!("../../../manifests/samples/redis-valkey.yaml"));
    assert_eq!(doubtful_gates(&sample.runs[0]), [""; 0]);
}

/// Of other values 0 may be asked for, and of other times a bound above that of a trial.
#[test]
fn a_gate_that_some_run_could_miss_is_not_called_foregone() {
    let (_, text) =
        files("tests/remarks").into_iter().find(|(name, _)| name.ends_with("/gate-at-most-nothing.yaml")).unwrap();
    for gate in [
        "metric: LatencyP99Micros, atMost: 1",
        "metric: LatencyP99Micros, atMost: 599s",
        "metric: CpuNanosPerOperation, atMost: 60m",
        "metric: ThroughputPerSecond, atLeast: 1",
    ] {
        let text = text.replace("metric: LatencyP99Micros, atMost: 0", gate);
        assert!(text.contains(gate));
        assert_eq!(foregone_gates(&accepted("run.yaml", &text).runs[0]), [""; 0], "{gate}");
    }
}

/// A bound of a gate took microseconds, and the target of a search for the highest rate did not.
#[test]
fn half_a_millisecond_is_500us_wherever_a_time_is_written() {
    let text = ETCD.to_owned()
        + "  arms: [{ name: etcd, serviceRef: { name: etcd } }]
  workloads:
  - name: put
    etcd: { operation: Put }
    load: { mode: OpenLoop, rate: 1000, duration: 5s, highestRate: { percentile: P99, atMost: 500us } }
  gates: [{ arm: etcd, metric: LatencyP99Micros, atMost: 500us }]
";
    let input = accepted("run.yaml", &text);
    let run = &input.runs[0];
    let target = run.spec.workloads[0].load.highest_rate.as_ref().unwrap();
    assert_eq!(target.at_most.duration(), Duration::from_micros(500));
    assert_eq!(target.target(), "p99 at most 500us");
    assert_eq!(run.gates_in_words(), ["gate: LatencyP99Micros of etcd in every workload: at most 500 µs"]);
}

/// Whatever a command of the README asks for can be fetched.
#[test]
fn samples_name_versions_that_are_fetched() {
    let pinned = include_str!("../../../peers/versions");
    let pinned: BTreeSet<&str> = pinned.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim())).collect();
    let samples = files("../../manifests/samples").into_iter().chain(files("../../manifests/samples/reports"));
    let mut count = 0;
    for (name, text) in samples {
        for service in accepted(&name, &text).services.iter().filter(|service| service.version_is_pinned) {
            let version = service.version.as_str();
            assert!(pinned.contains(version), "{name}: {} {version} is not in peers/versions", service.name);
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn a_cluster_takes_faults_of_kinds_kill_and_stop_and_no_others() {
    let (name, text) = files(GOOD_INPUT).into_iter().find(|(name, _)| name.ends_with("/fault.yaml")).unwrap();
    let refused = |run: &ValidatedRun| for_cluster(run).err().map(|problem| problem.to_string());
    let said: Vec<_> = accepted(&name, &text).runs.iter().map(refused).collect();
    let [None, Some(stopped)] = said.as_slice() else { panic!("{said:?}") };
    assert!(
        stopped.starts_with(
            "BenchmarkRun/stopped spec.workloads[2].load.fault.kind: is Partition, which is not available in a cluster"
        ),
        "{stopped}"
    );
    let failover = include_str!("../../../manifests/samples/failover.yaml");
    assert_eq!(refused(&accepted("failover.yaml", failover).runs[0]), None);
}

#[test]
fn what_is_left_out_has_the_documented_default() {
    let (name, text) = files(GOOD_INPUT).into_iter().find(|(name, _)| name.ends_with("1-defaults.yaml")).unwrap();
    let input = accepted(&name, &text);
    let (service, run) = (&input.services[0], &input.runs[0].spec);
    assert_eq!((service.replicas, service.durability), (1, Durability::Fsync));
    assert_eq!((run.trials.min, run.trials.max, run.trials.seed), (6, 10, 1));
    assert_eq!((run.isolation, run.parallelism, run.suspend), (Isolation::Fresh, 1, false));
    let load = &run.workloads[0].load;
    assert_eq!((load.connections, load.clients(), load.threads, load.mode), (1, 1, 1, LoadMode::ClosedLoop));
    assert_eq!((load.warm_up.as_str(), load.timeout.as_str()), ("1s", "10s"));
    let Parameters::Etcd(etcd) = &run.workloads[0].parameters else { panic!("not etcd: {:?}", run.workloads[0]) };
    assert_eq!((etcd.key_bytes, etcd.value_bytes, etcd.key_space), (32, 256, 10_000));
}

/// Paths of all fields in a schema; lists and maps add nothing to a path.
fn fields(path: &str, schema: &Value, found: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        // Types of Kubernetes itself need not be tried field by field.
        if !matches!(name.as_str(), "env" | "affinity" | "tolerations") {
            fields(&path, property, found);
            fields(&path, &property["items"], found);
        }
        found.insert(path);
    }
}

/// Paths of all fields in a value.
fn written(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                written(&path, value, found);
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| written(path, item, found)),
        _ => {}
    }
}

#[test]
fn the_valid_files_write_every_field() {
    let mut known = BTreeSet::new();
    for kind in KINDS {
        fields(kind, &schema::of_kind(kind).unwrap()["properties"]["spec"], &mut known);
    }
    let mut found = BTreeSet::new();
    for (name, text) in files(GOOD_INPUT) {
        let options = serde_yaml::options! { emit_comments: false };
        let objects: Vec<Value> =
            serde_yaml::from_multiple_with_options(&text, options).unwrap_or_else(|error| panic!("{name}: {error}"));
        for value in objects {
            written(value["kind"].as_str().unwrap_or_default(), &value["spec"], &mut found);
        }
    }
    // A template is written as a workload of a run, of which every field is written.
    let of_workload =
        |field: &str| field.strip_prefix("WorkloadTemplate.").map(|rest| format!("BenchmarkRun.workloads.{rest}"));
    let missing: Vec<&String> =
        known.difference(&found).filter(|field| of_workload(field).is_none_or(|same| !found.contains(&same))).collect();
    assert!(missing.is_empty(), "no file of good_input/ writes {missing:?}");
}
