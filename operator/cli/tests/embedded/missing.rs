//! What is not here is named with what to do about it, before anything is measured: stores that are not installed, and room for what a run
//! writes.

use crate::finished::Finished;
use crate::two_stores;
use crate::world::{World, one_arm};

#[test]
fn a_missing_peer_ends_the_run_before_anything_is_measured() {
    for (missing, position) in [("valkey", 1), ("redis", 0)] {
        let world = World::new();
        std::fs::remove_dir_all(world.peers().join(missing)).unwrap();
        let file = world.write("run.yaml", &two_stores());
        let mut command = world.storebench();
        let finished = Finished::of(
            command.arg("run").arg(file).args(["-o", "json"]).env("PATH", "/nonexistent").output().unwrap(),
        );
        let report = finished.report();
        let install = report["record"]["arms"][position]["unavailable"]["install"].as_str().unwrap();
        assert!(install.ends_with(&format!("peers/fetch {missing}")), "{install}");
        assert_eq!(report["record"]["trials"].as_array().unwrap().len(), 0, "what cannot be compared is not measured");
        assert_eq!((finished.code, report["judgement"]["verdict"].as_str()), (Some(3), Some("NoBaseline")));
        let last = finished.stderr.lines().last().unwrap();
        assert_eq!(last, format!("two-stores had nothing to compare; to do: install what it lacks: {install}"));
    }
}

#[test]
fn what_is_left_of_three_is_compared() {
    let world = World::new();
    let third =
        "  - { name: valkey, serviceRef: { name: valkey } }\n  - { name: third, serviceRef: { name: third } }\n";
    let text = two_stores().replace("  - { name: valkey, serviceRef: { name: valkey } }\n", third)
        + "---\napiVersion: storebench.dev/v1alpha1\nkind: StorageService\nmetadata: { name: third }\n\
           spec: { engine: Valkey, version: 0.0.1 }\n";
    let report = world.run(&text).report();
    assert_eq!(report["judgement"]["results"].as_array().unwrap().len(), 4, "two workloads on two arms");
    let reason = report["record"]["arms"][2]["unavailable"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("valkey 0.0.1 is not installed here (there is "), "{reason}");
}

#[test]
fn a_demonstration_of_which_nothing_is_installed_ends_with_what_to_do() {
    let world = World::new();
    std::fs::remove_dir_all(world.peers()).unwrap();
    let file = world.write("run.yaml", &two_stores());
    let mut command = world.storebench();
    let finished = Finished::of(command.arg("run").arg(file).env("PATH", "/nonexistent").output().unwrap());
    assert_eq!(finished.code, Some(3), "{}", finished.stderr);
    let said = finished.stderr.trim_end();
    assert!(said.starts_with("two-stores had nothing to compare; to do: install what it lacks: "), "{said}");
    assert!(said.contains("peers/fetch redis; ") && said.ends_with("peers/fetch valkey"), "{said}");
}

#[test]
fn missing_parts_of_kubernetes_name_their_command() {
    let world = World::new();
    let text =
        one_arm("Etcd", harness::version("etcd"), "kubernetes: { operation: CreateNamespaces }", "{ total: 10 }")
            .replace("serviceRef: { name: store } }\n  workloads", "controlPlaneRef: { name: plane } }\n  workloads")
            .replace(
                "kind: BenchmarkRun",
                "kind: ControlPlane
metadata: { name: plane }
spec: { serviceRef: { name: store } }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun",
            );
    let file = world.write("run.yaml", &text);
    let mut command = world.storebench();
    let finished =
        Finished::of(command.arg("run").arg(file).args(["-o", "json"]).env("PATH", "/nonexistent").output().unwrap());
    let unavailable = &finished.report()["record"]["arms"][0]["unavailable"];
    assert!(unavailable["install"].as_str().unwrap().ends_with("peers/fetch kubernetes"), "{unavailable}");
    assert_eq!(unavailable["reason"], "kube-apiserver of Kubernetes 1.34.4 is not installed here");
}

/// `init --value-bytes 1048576` makes a run that fills each store with 10 GiB, and nothing said so.
#[test]
fn what_a_run_writes_into_its_stores_is_told_and_refused_with_here_where_there_is_no_room() {
    let world = World::new();
    let validate = |file: &std::path::Path, more: &[&str]| {
        Finished::of(world.storebench().arg("validate").arg(file).args(more).output().unwrap())
    };
    let text = one_arm(
        "Redis",
        harness::version("redis"),
        "redis: { command: Get, keySpace: 10000, valueBytes: 1048576 }",
        "{ duration: 1s, connections: 1 }",
    );
    let file = world.write("run.yaml", &text);
    let told = validate(&file, &[]).stdout;
    let line = "load writes up to 9.77 GiB of values into each store (keySpace × valueBytes)";
    assert!(told.contains(line), "{told}");
    // More than any machine has.
    let file = world.write("run.yaml", &text.replace("keySpace: 10000", "keySpace: 10000000"));
    let refused = validate(&file, &["--here"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let field = "BenchmarkRun/run spec.workloads[0].redis.keySpace";
    assert!(refused.stderr.contains(field) && refused.stderr.contains("lower one of both"), "{}", refused.stderr);
    let little = text.replace("valueBytes: 1048576", "valueBytes: 100");
    let told = validate(&world.write("run.yaml", &little), &[]).stdout;
    assert!(!told.contains("of values into each store"), "{told}");
}
