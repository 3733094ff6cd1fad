//! An operator that is replaced by another in mid-run: loads of two kinds are not compared with one another.

use serde_json::json;

use crate::world::{World, is_true};

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn an_operator_with_another_loader_ends_the_run_that_the_one_before_had_begun() {
    let mut world = World::new("upgraded");
    // No node takes its pods, so that the run is under way for a while.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("run", "store");
    world.begins("run");
    world.start_operator(&[]);
    world.within(30, "a status of the same operator, started anew", || {
        world.status("run")["message"].as_str().map(drop)
    });
    assert!(world.status("run")["verdict"].is_null(), "{}", world.status("run"));
    world.start_operator(&["--bench-job-image", "storebench/bench-job:0.2.0"]);
    let message = world.ends("run");
    assert!(message.contains("the operator was changed while the run was under way, load image"), "{message}");
    assert!(message.ends_with("make a new run"), "{message}");
}

/// What tells a Secret again is the operator's own affair: it was said that the Secret had been changed.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_that_another_operator_finds_is_said_to_have_another_operator_before_anything_of_its_secrets() {
    let mut world = World::new("upgraded-secret");
    let secret = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "password", "labels": { "storebench.dev/allowed": "true" } }, "stringData": { "key": value },
        })
    };
    world.apply(secret("before"));
    let reference = json!({ "secretKeyRef": { "name": "password", "key": "key" } });
    let env = json!([{ "name": "KEY", "valueFrom": reference }]);
    world.service("store", &json!({ "env": env, "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("run", "store");
    world.begins("run");
    world.stop_operator();
    world.apply(secret("after"));
    world.start_operator(&["--bench-job-image", "storebench/bench-job:0.2.0"]);
    let message = world.ends("run");
    assert!(message.contains("the operator was changed while the run was under way"), "{message}");
}

/// Services and policies once selected by labels that anybody may give. What stands by itself is brought to those that select now, and nothing of it is
/// made anew: selectors of StatefulSets cannot be changed, and pods with other labels would be others.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_service_of_an_operator_with_other_selectors_is_brought_to_these_without_a_restart() {
    let mut world = World::new("upgraded-service");
    world.service("etcd", &json!({ "replicas": 3 }));
    let running = |world: &World| {
        let pods = world.list("", "pods");
        let uids: Vec<String> = pods.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
        (uids.len() == 3).then_some(uids)
    };
    let before = world.within(60, "the members", || running(&world));
    world.stop_operator();
    let set = world.path("apps/v1", "statefulsets", "etcd");
    let generation = world.cluster.get(&set).unwrap()["metadata"]["generation"].clone();
    let wide = json!({ "storebench.dev/service": null, "app.kubernetes.io/managed-by": null });
    let selecting = [
        ("", "services", "/spec/selector", json!({ "selector": wide })),
        (
            "networking.k8s.io/v1",
            "networkpolicies",
            "/spec/podSelector/matchLabels",
            json!({ "podSelector": { "matchLabels": wide } }),
        ),
        (
            "policy/v1",
            "poddisruptionbudgets",
            "/spec/selector/matchLabels",
            json!({ "selector": { "matchLabels": wide } }),
        ),
    ];
    let selector = |world: &World, (version, plural, place): (&str, &str, &str)| {
        world.cluster.get(&world.path(version, plural, "etcd")).unwrap().pointer(place).unwrap().clone()
    };
    for (version, plural, place, spec) in &selecting {
        world
            .cluster
            .call("PATCH", &world.path(version, plural, "etcd"), Some(&json!({ "spec": spec })))
            .unwrap_or_else(|refused| panic!("{plural}: {refused:?}"));
        let wide = json!({ "app.kubernetes.io/component": "store", "app.kubernetes.io/instance": "etcd" });
        assert_eq!(selector(&world, (version, plural, place)), wide, "{plural}");
    }
    world.start_operator(&[]);
    for (version, plural, place, _) in &selecting {
        let is_narrow = || selector(&world, (version, plural, place))["storebench.dev/service"] == "etcd";
        world.within(30, plural, || is_narrow().then_some(()));
    }
    // The StatefulSet is applied last.
    let path = world.path("storebench.dev/v1alpha1", "storageservices", "etcd");
    world.within(30, "a status", || world.cluster.get(&path)?["status"]["conditions"].as_array().map(drop));
    let service = world.cluster.get(&path).unwrap();
    assert!(!is_true(&service["status"], "Stalled"), "{service}");
    assert_eq!(world.cluster.get(&set).unwrap()["metadata"]["generation"], generation);
    assert_eq!(running(&world), Some(before));
}
