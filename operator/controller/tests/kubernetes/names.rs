//! Objects of a name that the operator needs and that somebody else has: they are neither changed nor deleted.

use serde_json::{Value, json};

use crate::world::{World, is_true};

fn stalled(world: &World, plural: &str, name: &str) -> Option<String> {
    let object = world.cluster.get(&world.path("storebench.dev/v1alpha1", plural, name))?;
    let status = &object["status"];
    is_true(status, "Stalled").then(|| status["conditions"][0]["message"].as_str().unwrap().to_owned())
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn somebodys_service_survives_a_storage_service_of_its_name() {
    let world = World::new("taken");
    let spec = json!({ "selector": { "app": "shop" }, "ports": [{ "name": "http", "port": 80 }] });
    world.apply(json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop" }, "spec": spec }));
    let path = world.path("", "services", "shop");
    let before = world.cluster.get(&path).unwrap();
    world.service("shop", &json!({}));
    let message = world.within(30, "the refusal", || stalled(&world, "storageservices", "shop"));
    assert!(message.starts_with("Service shop is there already and belongs to somebody else: "), "{message}");
    world.delete(&world.path("storebench.dev/v1alpha1", "storageservices", "shop"));
    // The network policy was the operator's own: when it is gone, what belonged to the StorageService has been collected.
    let policy = world.path("networking.k8s.io/v1", "networkpolicies", "shop");
    world.within(60, "the end of what was the operator's", || world.cluster.get(&policy).is_none().then_some(()));
    let after = world.cluster.get(&path).expect("somebody's Service was deleted with the StorageService");
    let kept = |service: &Value| (service["spec"].clone(), service["metadata"]["ownerReferences"].clone());
    assert_eq!(kept(&after), kept(&before));
    // With the name free, it is taken.
    world.service("shop", &json!({}));
    world.delete(&path);
    world.within(90, "the operator's own Service", || world.cluster.get(&path));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_service_that_was_deleted_and_made_anew_at_once_is_deployed() {
    let world = World::new("anew");
    world.service("etcd", &json!({}));
    let set = world.path("apps/v1", "statefulsets", "etcd");
    let first = world.within(30, "the first", || world.cluster.get(&set));
    world.delete(&world.path("storebench.dev/v1alpha1", "storageservices", "etcd"));
    world.service("etcd", &json!({}));
    world.within(60, "the second", || {
        let second = world.cluster.get(&set)?;
        (second["metadata"]["ownerReferences"] != first["metadata"]["ownerReferences"]).then_some(())
    });
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_service_and_a_control_plane_whose_objects_would_have_one_name_are_told_so() {
    let world = World::new("collide");
    world.service("a", &json!({}));
    world.service("a-k8s", &json!({}));
    let set = world.path("apps/v1", "statefulsets", "a-k8s");
    world.within(30, "the service's store", || world.cluster.get(&set));
    let ready = world.path("storebench.dev/v1alpha1", "storageservices", "a");
    // Nothing measures a simulated store: what its meter would say.
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Answers", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({ "status": { "observedGeneration": 1, "conditions": [condition] } });
    world.within(30, "a status", || world.cluster.get(&ready)?["status"]["conditions"].as_array().map(drop));
    world.apply(json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "ControlPlane", "metadata": { "name": "a" },
        "spec": { "serviceRef": { "name": "a" }, "nodes": 1 },
    }));
    let message = world.within(60, "the refusal", || {
        world.cluster.call("PATCH", &format!("{ready}/status"), Some(&status)).unwrap();
        stalled(&world, "controlplanes", "a")
    });
    assert!(
        message.contains("a-k8s is there already and belongs to StorageService/a-k8s: rename or delete"),
        "{message}"
    );
    assert_eq!(world.cluster.get(&set).unwrap()["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_group_is_not_scaled() {
    let world = World::without_operator("scaled");
    world.service("etcd", &json!({}));
    let path = world.path("storebench.dev/v1alpha1", "storageservices", "etcd");
    let three = json!({ "spec": { "replicas": 3 } });
    for path in [path.clone(), format!("{path}/scale")] {
        let (code, message) = world.cluster.call("PATCH", &path, Some(&three)).unwrap_err();
        assert!(code == 422 && message.contains("replicas cannot be changed"), "{path}: {code}: {message}");
    }
}

/// A pod that took a member's labels, hostname and subdomain was found by the member's name, and by everybody who asks for the service.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_strangers_pod_does_not_stand_under_the_name_of_a_member() {
    let world = World::new("impostor");
    world.service("etcd", &json!({}));
    let of_member = |pod: &Value| pod["metadata"]["name"] == "etcd-0" && pod["status"]["podIP"].is_string();
    let member = world.within(60, "the member's address", || world.list("", "pods").into_iter().find(of_member));
    // All that anybody may give a pod.
    let mut labels = member["metadata"]["labels"].clone();
    labels.as_object_mut().unwrap().retain(|label, _| !label.starts_with("storebench.dev/"));
    world.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "impostor", "labels": labels },
        "spec": { "hostname": "etcd-0", "subdomain": "etcd", "containers": [{ "name": "etcd", "image": "i:1" }] },
    }));
    let impostor = world.path("", "pods", "impostor");
    world.within(60, "the impostor's address", || world.cluster.get(&impostor)?["status"]["podIP"].as_str().map(drop));
    // When both are in a Service that was made later, the one that was there before has been looked at.
    world.apply(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "all" },
        "spec": {
            "clusterIP": "None", "selector": { "app.kubernetes.io/instance": "etcd" },
            "publishNotReadyAddresses": true, "ports": [{ "name": "client", "port": 2379 }],
        },
    }));
    let found = |service: &str| -> Vec<String> {
        let slices = world.list("discovery.k8s.io/v1", "endpointslices");
        let of_service =
            slices.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        let endpoints = of_service.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let mut names: Vec<_> =
            endpoints.filter_map(|one| one["targetRef"]["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    };
    world.within(60, "both pods in a Service", || (found("all") == ["etcd-0", "impostor"]).then_some(()));
    world.within(60, "the member in its Service", || (found("etcd").contains(&"etcd-0".to_owned())).then_some(()));
    assert_eq!(found("etcd"), ["etcd-0"]);
}
