//! The spec of a run never changes, except that it may be suspended and resumed: the rule in the schema says so, and says
//! it of every field.

use kube::core::cel::Validator;
use serde_json::{Value, json};
use storebench_crds::schema;

fn run() -> Value {
    json!({
        "apiVersion": "storebench.dev/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": { "name": "demo" },
        "spec": {
            "arms": [{ "name": "etcd", "baseline": true, "serviceRef": { "name": "etcd" } }],
            "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "duration": "5s" } }],
        },
    })
}

/// The run after a change of its spec.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut run = run();
    change(&mut run["spec"]);
    run
}

fn refusal(new: &Value) -> Option<String> {
    let schema = schema::of_kind("BenchmarkRun")?;
    let errors = Validator::new().validate(&schema, new, Some(&run())).err()?;
    Some(errors.to_string())
}

#[test]
fn suspending_is_the_only_change() {
    assert_eq!(refusal(&run()), None, "no change");
    assert_eq!(refusal(&changed(|spec| spec["suspend"] = json!(true))), None);
    let changes: [(&str, Value); 10] = [
        ("arms", json!([{ "name": "etcd", "serviceRef": { "name": "etcd" } }])),
        ("workloads", json!([{ "name": "put", "etcd": { "operation": "Put" }, "load": { "duration": "6s" } }])),
        ("workloadRefs", json!([{ "name": "agreed" }])),
        ("trials", json!({ "seed": 2 })),
        ("isolation", json!("Shared")),
        ("gates", json!([{ "arm": "etcd", "metric": "ThroughputPerSecond", "atLeast": 1 }])),
        ("allowUnequal", json!(["args"])),
        ("baselineRef", json!({ "name": "release-1-4" })),
        ("parallelism", json!(2)),
        ("ttl", json!({ "success": "1h" })),
    ];
    for (field, value) in changes {
        for suspend in [false, true] {
            let new = changed(|spec| {
                spec[field] = value.clone();
                spec["suspend"] = json!(suspend);
            });
            let refusal = refusal(&new).unwrap_or_else(|| panic!("{field} was changed with suspend: {suspend}"));
            assert!(refusal.contains("new name"), "{field}: {refusal}");
        }
    }
}

#[test]
fn a_group_is_not_scaled_into_another_that_has_lost_its_data() {
    let schema = schema::of_kind("StorageService").unwrap();
    let service = |replicas: u32, args: &str| {
        json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "StorageService", "metadata": { "name": "etcd" },
            "spec": { "engine": "Etcd", "replicas": replicas, "args": [args] },
        })
    };
    let validate = |new: &Value, old: &Value| Validator::new().validate(&schema, new, Some(old));
    assert!(validate(&service(1, "--b"), &service(1, "--a")).is_ok());
    for (old, new) in [(1, 3), (3, 1), (3, 5)] {
        let errors = validate(&service(new, "--a"), &service(old, "--a")).unwrap_err();
        assert!(errors.to_string().contains("replicas cannot be changed"), "{errors}");
    }
}

#[test]
fn a_baseline_keeps_one_run_for_ever() {
    let schema = schema::of_kind("BenchmarkBaseline").unwrap();
    let baseline = |run: &str| {
        json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkBaseline", "metadata": { "name": "last" },
            "spec": { "runRef": { "name": run } },
        })
    };
    let validate = |new: &Value, old: &Value| Validator::new().validate(&schema, new, Some(old));
    assert!(validate(&baseline("a"), &baseline("a")).is_ok());
    let errors = validate(&baseline("b"), &baseline("a")).unwrap_err();
    assert!(errors.to_string().contains("create a new baseline under a new name"), "{errors}");
}

/// A field that is added to the spec must be added to the rule.
#[test]
fn the_rule_names_every_field_but_suspend() {
    let schema = schema::of_kind("BenchmarkRun").unwrap();
    let spec = &schema["properties"]["spec"];
    let rules = spec["x-kubernetes-validations"].as_array().unwrap();
    let rule = rules.iter().find_map(|rule| rule["rule"].as_str().filter(|rule| rule.contains("oldSelf"))).unwrap();
    for field in spec["properties"].as_object().unwrap().keys().filter(|field| *field != "suspend") {
        assert!(rule.contains(&format!("self.{field} == oldSelf.{field}")), "{field} is missing from: {rule}");
    }
}
