//! One object that the API server refuses for good must not hold up every run in every namespace: the run that needs it ends
//! with a reason, and the turn passes on.

use serde_json::{Value, json};

use crate::world::{World, is_true};

/// A run that meets `obstacle`, and another one behind it.
#[track_caller]
fn a_run_that_cannot_go_on(world: &World, spec: &Value) -> String {
    world.service("bad", spec);
    world.service("good", &json!({}));
    world.run("bad", "bad");
    let bad = world.path("storebench.dev/v1alpha1", "benchmarkruns", "bad");
    world.within(30, "the bad run to be seen", || {
        let bad = world.cluster.get(&bad)?;
        bad["metadata"]["finalizers"].as_array().map(drop)
    });
    world.run("good", "good");
    let message = world.ends("bad");
    world.begins("good");
    message
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_toleration_that_the_api_server_refuses_ends_the_run() {
    let world = World::new("toleration");
    let spec = json!({ "pod": { "tolerations": [{ "key": "k", "operator": "Sometimes" }] } });
    let message = a_run_that_cannot_go_on(&world, &spec);
    assert!(message.contains("Sometimes") || message.contains("toleration"), "{message}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_quota_that_leaves_no_room_for_pods_ends_the_run() {
    let world = World::new("quota");
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" } });
    let mut full = quota.clone();
    // The services take what there is; those who come after them find nothing.
    full["spec"] = json!({ "hard": { "pods": "1" } });
    world.service("bad", &json!({}));
    world.within(30, "the service's pod", || (world.list("", "pods").len() == 1).then_some(()));
    world.apply(full);
    let in_force = world.path("", "resourcequotas", "small");
    world.within(30, "the quota in force", || {
        world.cluster.get(&in_force)?["status"]["used"]["pods"].as_str().map(drop)
    });
    world.run("bad", "bad");
    let message = world.ends("bad");
    assert!(message.contains("exceeded quota: small"), "{message}");
    assert!(message.contains("raise the quota"), "{message}");
    assert_eq!(world.status("bad")["verdict"], "Invalid");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_quota_that_leaves_no_room_for_objects_ends_the_run_and_the_next_begins() {
    let world = World::new("quota-objects");
    world.service("good", &json!({}));
    // Only the run that comes first needs a volume.
    world.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "no-volumes" },
        "spec": { "hard": { "count/statefulsets.apps": "0" } },
    }));
    let in_force = world.path("", "resourcequotas", "no-volumes");
    world.within(30, "the quota in force", || world.cluster.get(&in_force)?["status"]["hard"].as_object().map(drop));
    world.run("bad", "good");
    let message = world.ends("bad");
    assert!(message.contains("exceeded quota: no-volumes"), "{message}");
    world.delete(&in_force);
    world.run("next", "good");
    world.begins("next");
}

/// A policy that refuses objects of these kinds in this namespace where an expression holds.
pub fn policy(world: &World, group: &str, resource: &str, denied: &str) {
    let name = world.namespace.clone();
    world.cluster.apply(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
            }] },
            "validations": [{ "expression": format!("!({denied})"), "message": "house rule 7" }],
        },
    }));
    world.cluster.apply(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } },
        },
    }));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_policy_that_refuses_a_store_ends_the_run() {
    let world = World::new("policy");
    policy(&world, "apps", "statefulsets", "object.metadata.name.startsWith('bad')");
    // Nobody says when a policy is in force.
    let probe = world.path("apps/v1", "statefulsets", "");
    let set = json!({
        "metadata": { "name": "bad-probe" },
        "spec": { "selector": { "matchLabels": { "a": "b" } }, "serviceName": "s", "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i:1" }] },
        } },
    });
    let probe = format!("{probe}?dryRun=All");
    world.within(30, "the policy in force", || world.cluster.call("POST", &probe, Some(&set)).is_err().then_some(()));
    let message = a_run_that_cannot_go_on(&world, &json!({}));
    assert!(message.contains("house rule 7") && message.contains("change the policy"), "{message}");
    // Events count trials as reports do.
    let events = world.list("events.k8s.io/v1", "events");
    let notes: Vec<&str> = events.iter().filter_map(|event| event["note"].as_str()).collect();
    assert!(notes.iter().any(|note| note.starts_with("trial 1 of store: ")), "{notes:?}");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_policy_that_refuses_the_record_ends_the_run_and_nothing_is_left() {
    let world = World::new("policy-record");
    policy(&world, "", "configmaps", "'trial.json' in object.data");
    let probe = format!("{}?dryRun=All", world.path("", "configmaps", ""));
    let map = json!({ "metadata": { "name": "probe" }, "data": { "trial.json": "{}" } });
    world.within(30, "the policy in force", || world.cluster.call("POST", &probe, Some(&map)).is_err().then_some(()));
    let message = a_run_that_cannot_go_on(
        &world,
        &json!({ "pod": { "tolerations": [{ "key": "k", "operator": "Sometimes" }] } }),
    );
    assert!(message.contains("house rule 7"), "{message}");
    assert_eq!(world.status("bad")["verdict"], "Invalid");
    world.within(30, "the end of what the run had made", || (!world.has_store("bad")).then_some(()));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn somebody_elses_config_map_of_the_reports_name_holds_up_nobody_and_stays() {
    let world = World::new("report-name");
    let report = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "bad-report" }, "data": { "mine": "yes" },
    });
    world.apply(report);
    let message = a_run_that_cannot_go_on(&world, &json!({}));
    assert!(message.starts_with("ConfigMap bad-report is there already and belongs to somebody else"), "{message}");
    let path = world.path("", "configmaps", "bad-report");
    let kept = world.cluster.get(&path).unwrap();
    assert_eq!((&kept["data"], &kept["metadata"]["ownerReferences"]), (&json!({ "mine": "yes" }), &json!(null)));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_record_that_is_too_large_is_refused_for_good() {
    let world = World::without_operator("too-large");
    let data = json!({ "trial.json": "x".repeat(1 << 21) });
    let map = json!({ "metadata": { "name": "large", "namespace": world.namespace }, "data": data });
    let map: k8s_openapi::api::core::v1::ConfigMap = serde_json::from_value(map).unwrap();
    let error = world.cluster.wait(storebench_operator::apply::create(world.cluster.client(), &map)).unwrap_err();
    assert!(error.is_final(0), "{error}");
    assert!(error.for_user().ends_with("use fewer workloads in one run"), "{}", error.for_user());
}

/// The store of a run that was refused in its middle still uses the machine, as long as its pod is there.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_turn_passes_on_only_when_the_pods_of_a_refused_run_are_gone() {
    let mut world = World::new("left-over");
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world.run("bad", "store");
    world.begins("bad");
    let of_bad = |pod: &Value| pod["metadata"]["labels"]["storebench.dev/run"] == "bad";
    let pod = world.within(30, "the store's pod", || world.list("", "pods").into_iter().find(of_bad));
    let pod = world.path("", "pods", pod["metadata"]["name"].as_str().unwrap());
    let holds = |finalizers: Value| {
        world.cluster.call("PATCH", &pod, Some(&json!({ "metadata": { "finalizers": finalizers } }))).unwrap()
    };
    holds(json!(["storebench.dev/test"]));
    // Somebody takes away what the run cannot go on without.
    world
        .cluster
        .call("PATCH", &world.path("", "configmaps", "bad-report"), Some(&json!({ "data": { "record.json": "{}" } })))
        .unwrap();
    let message = world.ends("bad");
    assert!(message.starts_with("ConfigMap bad-report is not what this operator wrote"), "{message}");
    world.service("good", &json!({}));
    world.run("good", "good");
    world.within(30, "the next run in the queue", || world.status("good")["message"].as_str().map(drop));
    // Nothing measures on a simulated node: a run that has its turn is over in a moment.
    std::thread::sleep(std::time::Duration::from_secs(8));
    assert!(world.cluster.get(&pod).is_some(), "the test holds it");
    let status = world.status("good");
    assert!(
        status["trials"].is_null() && !is_true(&status, "Complete"),
        "the next run began beside what is left: {status}"
    );
    holds(json!(null));
    world.ends("good");
    world.stop_operator();
}
