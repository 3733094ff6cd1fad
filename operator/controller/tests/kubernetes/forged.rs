//! Measurements that the operator did not make: whoever may write ConfigMaps must not decide what a run finds.

use serde_json::{Value, json};
use storebench_operator::objects::names;

use crate::world::World;

/// A run that is held before it begins, and its uid.
fn held(world: &World) -> String {
    world.service("store", &json!({}));
    world.run("run", "store");
    let run = world.apply(json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "metadata": { "name": "run" },
        "spec": {
            "suspend": true,
            "arms": [{ "name": "store", "serviceRef": { "name": "store" } }],
            "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "connections": 1, "duration": "1s" } }],
            "trials": { "min": 3, "max": 3, "retries": 0 },
        },
    }));
    run["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn release(world: &World) {
    let path = world.path("storebench.dev/v1alpha1", "benchmarkruns", "run");
    world.cluster.call("PATCH", &path, Some(&json!({ "spec": { "suspend": false } }))).unwrap();
}

/// A trial as an operator would have written it, which says that the store answered wrongly.
fn trial(name: &str, owner: Option<&str>) -> Value {
    let file = json!({ "trial": {
        "index": 0, "arm": "store", "state": "Invalid", "failure": { "cause": "WrongAnswer", "detail": "forged" },
        "startedMillis": 0, "durationMillis": 0, "workloads": [],
    } });
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": {
            "app.kubernetes.io/managed-by": "storebench", "app.kubernetes.io/component": "record",
            "storebench.dev/run": "run", "storebench.dev/trial": "0", "storebench.dev/arm": "store",
        } },
        "data": { "trial.json": file.to_string() },
    });
    if let Some(uid) = owner {
        map["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "name": "run", "uid": uid }]);
    }
    map
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_trial_that_somebody_else_wrote_is_left_out_and_named() {
    let world = World::without_operator("forged");
    let uid = held(&world);
    world.apply(trial("forged", Some(&uid)));
    let mut world = world;
    world.start_operator(&[]);
    release(&world);
    let message = world.ends("run");
    assert!(!message.contains("forged"), "{message}");
    let report = world.cluster.get(&world.path("", "configmaps", "run-report")).unwrap();
    let report = report["data"]["report.md"].as_str().unwrap();
    assert!(report.contains("ConfigMap/forged says that it is a trial of this run"), "{report}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_trial_in_the_place_of_the_operators_own_voids_the_run() {
    let mut world = World::without_operator("in-place");
    let uid = held(&world);
    let name = names::trial("run", &uid, 0, "store");
    world.apply(trial(&name, Some(&uid)));
    world.start_operator(&[]);
    release(&world);
    let message = world.ends("run");
    assert!(message.starts_with(&format!("ConfigMap {name} is not what this operator wrote")), "{message}");
    world.run("next", "store");
    world.begins("next");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_trial_that_somebody_deleted_is_not_measured_again() {
    let mut world = World::new("deleted");
    world.service("store", &json!({}));
    world.run("run", "store");
    world.begins("run");
    world.stop_operator();
    let path = world.path("storebench.dev/v1alpha1", "benchmarkruns", "run");
    let ledger = json!({ "status": { "trials": [{ "index": 0, "arm": "store", "state": "Valid" }] } });
    world.cluster.call("PATCH", &format!("{path}/status"), Some(&ledger)).unwrap();
    for map in world.list("", "configmaps") {
        let name = map["metadata"]["name"].as_str().unwrap();
        if map["data"]["trial.json"].is_string() {
            world.delete(&world.path("", "configmaps", name));
        }
    }
    world.start_operator(&[]);
    let message = world.ends("run");
    assert!(message.starts_with("trial 1 of store was measured, but its ConfigMap is gone"), "{message}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_operators_key_is_made_once_and_only_the_operator_may_read_it() {
    let mut world = World::new("key");
    let path = format!("/api/v1/namespaces/{}/secrets/storebench-operator-signing-key", world.system());
    let key = world.within(30, "the key", || world.cluster.get(&path));
    world.start_operator(&[]);
    world.service("store", &json!({}));
    world.run("run", "store");
    world.begins("run");
    assert_eq!(world.cluster.get(&path).unwrap()["data"], key["data"]);
    let status =
        world.within(30, "a status", || Some(world.status("run")).filter(|status| status["signingKey"].is_string()));
    assert_eq!(status["signingKey"].as_str().unwrap().len(), 44);
}

/// A pod is not the run's own because somebody gave it the run's labels.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_strangers_pod_with_a_runs_labels_holds_up_nobody_and_is_not_deleted() {
    let world = World::new("labelled");
    world.apply(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "stranger", "labels": {
            "app.kubernetes.io/managed-by": "storebench", "app.kubernetes.io/component": "load",
            "app.kubernetes.io/instance": "run-7-store", "storebench.dev/run": "run",
        } },
        "spec": { "containers": [{ "name": "load", "image": "i:1" }] },
    }));
    world.service("store", &json!({}));
    world.run("run", "store");
    world.begins("run");
    assert!(world.cluster.get(&world.path("", "pods", "stranger")).is_some());
}
