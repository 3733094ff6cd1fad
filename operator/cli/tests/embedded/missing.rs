//! What is not installed is named with the command that installs it, before anything is measured.

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
