//! What `manifests/policies` forbids, and that it forbids the operator nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::world::World;

/// Applies the policies to this namespace alone: other tests share the API server.
fn enforce(world: &World) {
    for file in ["endpoints.yaml", "images.yaml", "pods.yaml", "records.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/policies").join(file);
        let text = std::fs::read_to_string(path).unwrap().replace("storebench-system", &world.system());
        let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
        for mut object in objects {
            let of_test = |value: &Value| json!(format!("{}-{}", value.as_str().unwrap(), world.namespace));
            object["metadata"]["name"] = of_test(&object["metadata"]["name"]);
            if object["kind"] == "ValidatingAdmissionPolicyBinding" {
                object["spec"]["policyName"] = of_test(&object["spec"]["policyName"]);
                object["spec"]["matchResources"] = json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": world.namespace } } });
            }
            world.cluster.apply(object);
        }
    }
}

fn service(image: &str) -> Value {
    json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "StorageService", "metadata": { "name": "named" },
        "spec": { "engine": "Etcd", "image": image },
    })
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn only_images_of_the_list_may_be_named_and_only_the_operator_writes_records() {
    let world = World::new("policies");
    enforce(&world);
    let services = format!("{}?dryRun=All", world.path("storebench.dev/v1alpha1", "storageservices", ""));
    let create = |path: &str, object: &Value| world.cluster.call("POST", path, Some(object)).map(drop);
    let refusal = world.within(30, "the policy of images", || create(&services, &service("evil.example/etcd:1")).err());
    assert!(refusal.1.contains("spec.image: evil.example/etcd:1 is not allowed"), "{refusal:?}");
    assert_eq!(create(&services, &service("storebench/etcd:3.6.1")), Ok(()));

    let maps = format!("{}?dryRun=All", world.path("", "configmaps", ""));
    let labels = json!({ "storebench.dev/run": "run", "app.kubernetes.io/component": "record" });
    let record = json!({ "metadata": { "name": "forged", "labels": labels }, "data": { "trial.json": "{}" } });
    let refusal = world.within(30, "the policy of records", || create(&maps, &record).err());
    assert!(refusal.1.contains("written by the operator alone"), "{refusal:?}");
    let labels = json!({ "storebench.dev/baseline": "last", "app.kubernetes.io/component": "record" });
    let kept = json!({ "metadata": { "name": "last-baseline", "labels": labels }, "data": { "figures.json": "{}" } });
    assert!(create(&maps, &kept).unwrap_err().1.contains("written by the operator alone"));
    assert_eq!(create(&maps, &json!({ "metadata": { "name": "mine" } })), Ok(()));

    // The operator writes, and what it wrote nobody else changes or deletes.
    world.service("store", &json!({}));
    world.run("run", "store");
    let verdict = |run: &str| world.status(run)["verdict"].as_str().map(str::to_owned);
    world.within(90, "a verdict", || verdict("run"));
    let report = world.path("", "configmaps", "run-report");
    for (method, body) in [("DELETE", json!(null)), ("PATCH", json!({ "data": { "report.md": "we won" } }))] {
        let body = Some(&body).filter(|body| !body.is_null());
        assert!(world.cluster.call(method, &report, body).is_err(), "{method}");
    }
    let run = world.path("storebench.dev/v1alpha1", "benchmarkruns", "run");
    let forged = json!({ "status": { "verdict": "Passed" } });
    assert!(world.cluster.call("PATCH", &format!("{run}/status"), Some(&forged)).is_err());
    // Nor does anybody say what became of a service.
    let service = world.path("storebench.dev/v1alpha1", "storageservices", "store");
    let forged = json!({ "status": { "version": "9.9.9" } });
    assert!(world.cluster.call("PATCH", &format!("{service}/status"), Some(&forged)).is_err());
    // A run that is deleted takes its record along.
    world.delete(&run);
    world.within(30, "the end of the record", || world.cluster.get(&report).is_none().then_some(()));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn only_hosts_of_the_list_may_be_named_as_stores_that_are_there_already() {
    let world = World::new("endpoints");
    enforce(&world);
    let services = format!("{}?dryRun=All", world.path("storebench.dev/v1alpha1", "storageservices", ""));
    let create = |endpoints: &[&str]| {
        let service = json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "StorageService", "metadata": { "name": "mine" },
            "spec": { "engine": "Etcd", "external": { "endpoints": endpoints } },
        });
        world.cluster.call("POST", &services, Some(&service)).map(drop)
    };
    let refusal = world.within(30, "the policy of endpoints", || create(&["etcd.kube-system.svc:2379"]).err());
    assert!(refusal.1.contains("not all of these hosts are allowed"), "{refusal:?}");
    assert_eq!(create(&["stores.example:2379", "etcd-1.stores.example:2379"]), Ok(()));
    for other in ["mystores.example:2379", "stores.example.evil:2379", "10.0.0.7:2379", "[fd00::1]:2379"] {
        assert!(create(&["stores.example:2379", other]).is_err(), "{other}");
    }
    assert_eq!(world.cluster.call("POST", &services, Some(&service("storebench/etcd:3.6.1"))).map(drop), Ok(()));
}

/// A record whose run is deleted with its dependents orphaned: the garbage collector takes the owner off, and was refused for ever.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_garbage_collector_is_not_refused_what_a_deletion_asks_of_it() {
    let mut world = World::without_operator("collector");
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "owner" } });
    let uid = world.apply(owner)["metadata"]["uid"].clone();
    let labels = json!({ "storebench.dev/run": "run", "app.kubernetes.io/component": "record" });
    let owners = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid }]);
    for name in ["orphaned", "collected"] {
        world.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": labels, "ownerReferences": if name == "orphaned" { owners.clone() } else { json!(null) } },
        }));
    }
    enforce(&world);
    let maps = format!("{}?dryRun=All", world.path("", "configmaps", ""));
    let record = json!({ "metadata": { "name": "forged", "labels": labels }, "data": { "trial.json": "{}" } });
    world.within(30, "the policy of records", || world.cluster.call("POST", &maps, Some(&record)).err());
    let owner = world.path("", "configmaps", "owner");
    world.cluster.call("DELETE", &format!("{owner}?propagationPolicy=Orphan"), None).unwrap();
    let orphan = world.path("", "configmaps", "orphaned");
    world.within(60, "the owner taken off", || {
        world.cluster.get(&orphan)?["metadata"]["ownerReferences"].is_null().then_some(())
    });
    // A namespace goes with its records.
    let namespace = format!("/api/v1/namespaces/{}", world.namespace);
    world.cluster.call("DELETE", &namespace, None).unwrap();
    world.within(90, "the end of the namespace", || world.cluster.get(&namespace).is_none().then_some(()));
    world.stop_operator();
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn nobody_but_the_cluster_s_controllers_gives_a_pod_the_labels_of_a_run() {
    let world = World::new("labels");
    enforce(&world);
    let pods = format!("{}?dryRun=All", world.path("", "pods", ""));
    let pod = |labels: Value| {
        json!({
            "metadata": { "name": "stranger", "labels": labels },
            "spec": { "containers": [{ "name": "load", "image": "i:1" }] },
        })
    };
    let create = |labels: Value| world.cluster.call("POST", &pods, Some(&pod(labels))).map(drop);
    let refusal = world.within(30, "the policy of pods", || create(json!({ "storebench.dev/run": "run" })).err());
    assert!(refusal.1.contains("labels of storebench.dev are for what the operator made"), "{refusal:?}");
    assert_eq!(create(json!({ "storebench.dev/client": "true" })), Ok(()));
    // A label that comes later is one as well.
    let mut stranger = pod(json!({ "app": "mine" }));
    stranger["apiVersion"] = "v1".into();
    stranger["kind"] = "Pod".into();
    world.apply(stranger);
    let path = world.path("", "pods", "stranger");
    let label = |labels: Value| {
        world.cluster.call("PATCH", &path, Some(&json!({ "metadata": { "labels": labels } }))).map(drop)
    };
    assert!(label(json!({ "storebench.dev/trial": "0" })).is_err());
    assert_eq!(label(json!({ "app": "still-mine" })), Ok(()));
    // So is one that comes by what kubelets write.
    let status = json!({ "metadata": { "labels": { "storebench.dev/run": "run" } } });
    let (_, message) = world.cluster.call("PATCH", &format!("{path}/status"), Some(&status)).unwrap_err();
    assert!(message.contains("labels of storebench.dev are for what the operator made"), "{message}");
    for other in ["ephemeralcontainers", "resize"] {
        // Refused or left out.
        drop(world.cluster.call("PATCH", &format!("{path}/{other}"), Some(&status)));
        let labels = world.cluster.get(&path).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels, json!({ "app": "still-mine" }), "{other}");
    }
    // The operator's own come by the controllers.
    world.service("store", &json!({}));
    let of_store = |pod: &Value| pod["metadata"]["labels"]["storebench.dev/service"] == "store";
    let own = world.within(60, "the service's pod", || world.list("", "pods").into_iter().find(of_store));
    // Without these no NetworkPolicy would be for it any more.
    let own = world.path("", "pods", own["metadata"]["name"].as_str().unwrap());
    let patch = |metadata: Value| world.cluster.call("PATCH", &own, Some(&json!({ "metadata": metadata }))).map(drop);
    for (label, value) in [
        ("storebench.dev/service", json!(null)),
        ("app.kubernetes.io/managed-by", json!("Helm")),
        ("app.kubernetes.io/component", json!(null)),
        ("app.kubernetes.io/instance", json!("another")),
    ] {
        assert!(patch(json!({ "labels": { label: value } })).is_err(), "{label}");
    }
    assert_eq!(patch(json!({ "labels": { "team": "mine" }, "annotations": { "seen": "yes" } })), Ok(()));
    world.run("run", "store");
    let of_run = |pod: &Value| pod["metadata"]["labels"]["storebench.dev/run"] == "run";
    world.within(60, "the run's pod", || world.list("", "pods").iter().any(of_run).then_some(()));
}

/// Who may make a StatefulSet had Kubernetes' own controller make pods with any label, for only those of the StatefulSet itself were looked at.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn no_template_has_the_labels_of_a_run_whatever_makes_pods_of_it() {
    let world = World::without_operator("templates");
    enforce(&world);
    let create = |version: &str, plural: &str, labels: &Value| {
        let of_pod = |restart: &str| {
            json!({
                "metadata": { "labels": labels },
                "spec": { "restartPolicy": restart, "containers": [{ "name": "c", "image": "i:1" }] },
            })
        };
        let spec = match plural {
            "jobs" => json!({ "template": of_pod("Never") }),
            "cronjobs" => {
                json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": of_pod("Never") } } })
            }
            "replicationcontrollers" => json!({ "selector": { "app": "mine" }, "template": of_pod("Always") }),
            _ => json!({ "selector": { "matchLabels": { "app": "mine" } }, "template": of_pod("Always") }),
        };
        let object = json!({ "metadata": { "name": "stranger" }, "spec": spec });
        let path = format!("{}?dryRun=All", world.path(version, plural, ""));
        world.cluster.call("POST", &path, Some(&object)).map(drop)
    };
    // What charts commonly give is everybody's.
    let common = json!({
        "app": "mine", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/component": "store",
        "app.kubernetes.io/instance": "run-0-store-1f0c9a", "storebench.dev/client": "true",
    });
    let kinds = [
        ("apps/v1", "statefulsets"),
        ("apps/v1", "deployments"),
        ("apps/v1", "replicasets"),
        ("apps/v1", "daemonsets"),
        ("batch/v1", "jobs"),
        ("batch/v1", "cronjobs"),
        ("", "replicationcontrollers"),
    ];
    let with = |label: &str| {
        let mut labels = common.clone();
        labels[label] = "run".into();
        labels
    };
    world.within(30, "the policy of pods", || create("apps/v1", "statefulsets", &with("storebench.dev/run")).err());
    for (version, plural) in kinds {
        for label in ["run", "service", "control-plane", "trial", "arm", "role"] {
            let said = create(version, plural, &with(&format!("storebench.dev/{label}"))).unwrap_err().1;
            assert!(said.contains("labels of storebench.dev are for what the operator made"), "{plural}: {said}");
        }
        assert_eq!(create(version, plural, &common), Ok(()), "{plural}");
    }
    // A template that is changed is one as well, and what is changed elsewhere is none.
    world.apply(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "mine" },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": "mine" } },
            "template": { "metadata": { "labels": common }, "spec": { "containers": [{ "name": "c", "image": "i:1" }] } },
        },
    }));
    let path = world.path("apps/v1", "deployments", "mine");
    let patch = |spec: Value| world.cluster.call("PATCH", &path, Some(&json!({ "spec": spec }))).map(drop);
    let label = |label: &str| json!({ "template": { "metadata": { "labels": { label: "x" } } } });
    assert!(patch(label("storebench.dev/run")).is_err());
    assert_eq!(patch(label("app.kubernetes.io/instance")), Ok(()));
    assert_eq!(patch(json!({ "paused": true })), Ok(()));
}

/// An expression that does not fit a kind is refused at the first object of it, in the whole cluster.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_api_server_finds_nothing_wrong_with_the_expressions() {
    let world = World::without_operator("checked");
    enforce(&world);
    for policy in ["allowed-endpoints", "allowed-images", "pods", "records"] {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/storebench-{policy}-{}",
            world.namespace
        );
        let checked = |policy: Value| Some(policy["status"]["typeChecking"].clone()).filter(Value::is_object);
        let found = world.within(30, "what was found", || checked(world.cluster.get(&path)?));
        assert_eq!(found["expressionWarnings"], Value::Null, "{policy}");
    }
}
