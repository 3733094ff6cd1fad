//! What can be seen of `manifests/` without a cluster.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use serde_json::Value;

fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file);
    serde_yaml::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// manifests/cluster-wide makes a ClusterRole of one of the Roles. Were two of one name, kustomize would point the bindings of
/// both to it, and the operator could have no Lease.
#[test]
fn every_binding_finds_a_role_of_a_name_of_its_own() {
    let objects = objects("install/access.yaml");
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let mut names: Vec<&str> = of_kind("Role").map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert!(count >= 2 && names.len() == count, "{names:?}");
    for binding in of_kind("RoleBinding") {
        let is_it = |role: &&Value| {
            role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
        };
        assert!(of_kind("Role").any(|role| is_it(&role)), "{}", binding["metadata"]["name"]);
    }
}

/// Rights over Secrets are given by namespace and never for the whole cluster.
#[test]
fn no_role_for_the_whole_cluster_reads_secrets_or_makes_objects() {
    let all = [objects("install/access.yaml"), objects("cluster-wide/watch.yaml")].concat();
    let roles = all.iter().filter(|object| object["kind"] == "ClusterRole");
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        let has = |field: &str, what: &str| rule[field].as_array().into_iter().flatten().any(|one| one == what);
        assert!(!has("resources", "secrets") && !has("resources", "configmaps"), "{rule}");
        assert!(!has("verbs", "deletecollection") && !has("verbs", "delete") && !has("verbs", "*"), "{rule}");
    }
}
