//! Control planes as a user meets them: the real binary, a real API server on a real etcd.
//!
//! Needs the executables that `peers/fetch kubernetes` installs, which are built for ten minutes and more; each test starts
//! a control plane, which takes 10 s and two cores. Therefore ignored, and run by .ci/run:
//! `cargo test -p storebench --test kubernetes -- --ignored`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;
#[allow(dead_code)]
mod world;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use finished::Finished;
use harness::peers::installed;
use serde_json::Value;
use world::World;

const HEAD: &str = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: etcd }
spec: { engine: Etcd }
---
apiVersion: storebench.dev/v1alpha1
kind: ControlPlane
metadata: { name: on-etcd }
spec: { serviceRef: { name: etcd }, nodes: 3 }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: run }
spec:
  arms:
  - { name: etcd, controlPlaneRef: { name: on-etcd } }
  trials: { min: 1, max: 1, retries: 0, timeout: 10m }
  workloads:
";

/// Workloads, the operations that each must count, and the objects that must be verified at least.
const USERS: [(&str, &str, &str, u64, u64); 6] = [
    ("create-namespaces", "operation: CreateNamespaces", "total: 10", 10, 10),
    ("create-config-maps", "operation: CreateConfigMaps, objectBytes: 1024", "total: 50, connections: 4", 50, 50),
    ("deploy-and-scale", "operation: DeployAndScale", "total: 2", 2, 2),
    ("each-pod", "operation: DeployAndScale, replicas: 4, latencyOf: EachPod", "total: 2", 8, 2),
    (
        "rolling-update",
        "operation: RollingUpdate, maxSurge: 25%, maxUnavailable: 1",
        "total: 3, connections: 2, threads: 2",
        3,
        2,
    ),
    // What is gone cannot be verified but by its absence.
    ("delete-namespaces", "operation: DeleteNamespaces, objects: 2", "total: 4, connections: 2", 4, 0),
];

const MACHINERY: [(&str, &str, &str, u64, u64); 5] = [
    // 30 changes, each seen by 5 watchers.
    ("list-and-watch", "operation: ListAndWatch, watchers: 5, objects: 10", "total: 30, connections: 2", 150, 150),
    ("create-jobs", "operation: CreateJobs", "total: 4, connections: 2", 4, 4),
    ("custom-resources", "operation: CustomResourceChurn", "total: 61, connections: 3", 61, 1),
    ("heartbeats", "operation: NodeHeartbeats, objects: 20", "total: 200, connections: 4, threads: 2", 200, 20),
    (
        "mixed-churn",
        "operation: MixedChurn, readPercent: 50, objects: 20",
        "total: 100, connections: 4, mode: OpenLoop, rate: 50",
        100,
        10,
    ),
];

fn world() -> World {
    let world = World::new();
    let directory = world.peers().join("kubernetes/1.34.4");
    std::fs::create_dir_all(&directory).unwrap();
    for binary in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"] {
        let real = installed(&format!("kubernetes/1.34.4/{binary}"));
        std::os::unix::fs::symlink(real, directory.join(binary)).unwrap();
    }
    world
}

/// How many requests of a kind an API server says that it answered, or sent to its store.
fn requests(said: &Value, answered_by: &str, verb: &str, resource: &str) -> u64 {
    let kinds = said["kinds"].as_array().unwrap();
    let is_it =
        |kind: &&Value| kind["answeredBy"] == answered_by && kind["verb"] == verb && kind["resource"] == resource;
    let kind = kinds.iter().find(is_it).unwrap_or_else(|| panic!("no {verb} {resource} of {answered_by} in {said}"));
    kind["buckets"].as_array().unwrap().iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum()
}

/// Runs workloads to their end on one control plane, and checks what each counted and verified.
fn each_counts_and_verifies(workloads: &[(&str, &str, &str, u64, u64)]) {
    let world = world();
    let mut text = HEAD.to_owned();
    for (name, kubernetes, load, ..) in workloads {
        text += &format!("  - name: {name}\n    kubernetes: {{ {kubernetes} }}\n");
        text += &format!("    load: {{ {load}, warmUp: 100ms, timeout: 60s }}\n");
    }
    let finished = world.run(&text);
    let report = finished.report();
    let trial = &report["record"]["trials"][0];
    // A machine that does something else beside is none of this test's business.
    let failure = &trial["failure"];
    assert!(failure.is_null() || failure["cause"] == "Disturbed", "{failure}");
    let measured = trial["workloads"].as_array().unwrap();
    assert_eq!(measured.len(), workloads.len(), "{}", finished.stderr);
    for (one, (name, _, _, operations, verified)) in measured.iter().zip(workloads) {
        let summary = &one["summary"];
        assert_eq!(summary["name"], *name);
        assert_eq!((&summary["operations"], &summary["errors"]), (&(*operations).into(), &0.into()), "{summary}");
        assert!(summary["verified"].as_u64().unwrap() >= *verified, "{summary}");
        assert!(summary["service"]["p50Nanos"].as_u64().unwrap() > 100_000, "no API server is that fast: {summary}");
        assert!(one["measures"]["fsyncs"]["total"].as_u64().unwrap() > 0, "etcd counts its syncs: {one}");
        let said = &one["apiRequests"];
        assert!(said["problem"].is_null() && !said["kinds"].as_array().unwrap().is_empty(), "{said}");
        if *name == "create-config-maps" {
            for (answered_by, verb) in [("apiServer", "POST"), ("store", "create")] {
                // The controllers give a new namespace a ConfigMap, which may come late.
                let found = requests(said, answered_by, verb, "configmaps");
                assert!((*operations..2 * operations).contains(&found), "{said}");
            }
        }
        for used in [&one["usage"], &one["controlPlane"]["apiServer"], &one["controlPlane"]["others"]] {
            assert!(used["rssPeakBytes"].as_u64().unwrap() > 10_000_000, "{one}");
        }
    }
}

#[test]
#[ignore = "needs peers/fetch kubernetes and a minute: .ci/run runs it"]
fn what_users_do_is_counted_verified_and_removed() {
    each_counts_and_verifies(&USERS);
}

#[test]
#[ignore = "needs peers/fetch kubernetes and a minute: .ci/run runs it"]
fn what_the_machinery_does_is_counted_verified_and_removed() {
    each_counts_and_verifies(&MACHINERY);
}

/// A run that is under way: its control plane is ready, and it is loaded.
fn under_way(world: &World) -> Child {
    let workload = "  - name: load\n    kubernetes: { operation: CreateConfigMaps }\n    load: { duration: 60s }\n";
    let file = world.write("run.yaml", &format!("{HEAD}{workload}"));
    let mut command = world.storebench();
    command.arg("run").arg(file).args(["-o", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(180);
    while !world.processes().iter().any(|line| line.contains("bench-job")) {
        assert!(Instant::now() < deadline, "the run does not get under way");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

fn kill(process: &str, signal: &str) {
    assert!(Command::new("kill").arg(format!("-{signal}")).arg(process).status().unwrap().success());
}

#[test]
#[ignore = "needs peers/fetch kubernetes: .ci/run runs it"]
fn ctrl_c_and_sigkill_leave_no_control_plane_behind() {
    for signal in ["INT", "KILL"] {
        let world = world();
        let mut child = under_way(&world);
        let servers = world.processes().iter().filter(|line| line.contains("/kube")).count();
        assert!(servers >= 3, "API server, controller manager and scheduler are running: {:?}", world.processes());
        kill(&child.id().to_string(), signal);
        child.wait().unwrap();
        world.assert_nothing_is_left();
    }
}

#[test]
#[ignore = "needs peers/fetch kubernetes: .ci/run runs it"]
fn an_api_server_killed_mid_trial_is_named() {
    let world = world();
    let child = under_way(&world);
    kill(&process_of(&world, "kube-apiserver"), "KILL");
    let finished = Finished::of(child.wait_with_output().unwrap());
    world.assert_nothing_is_left();
    let message = finished.invalid();
    assert!(message.contains("kube-apiserver was killed by signal 9"), "{message}");
}

/// The identifier of the process that runs this program for a world.
fn process_of(world: &World, program: &str) -> String {
    let data = world.data().display().to_string();
    let runs = |process: &Path| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let first = line.split('\0').next().unwrap_or_default();
        first.ends_with(program) && line.contains(&data)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let mut processes = processes;
    let found = processes.find(|process| runs(process)).expect("no such process");
    found.file_name().unwrap().to_str().unwrap().to_owned()
}
