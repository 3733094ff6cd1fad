//! What `manifests/policies` forbids, and that it forbids the operator nothing.

use std::path::Path;

use serde_json::{Value, json};

use crate::world::World;

/// Applies the policies to this namespace alone: other tests share the API server.
fn enforce(world: &World) {
    for file in ["images.yaml", "records.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/policies").join(file);
        let text = std::fs::read_to_string(path).unwrap().replace("storebench-system", &world.system());
        let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
        for mut object in objects {
            let of_test = |value: &Value| json!(format!("{}-{}", value.as_str().unwrap(), world.namespace));
            if object["kind"] != "ConfigMap" {
                object["metadata"]["name"] = of_test(&object["metadata"]["name"]);
            }
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
    // A run that is deleted takes its record along.
    world.delete(&run);
    world.within(30, "the end of the record", || world.cluster.get(&report).is_none().then_some(()));
}
