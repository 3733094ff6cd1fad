//! Workloads that runs share: a run waits for its template, takes it as it is when the run begins, and never again.

use serde_json::{Value, json};

use crate::world::{World, is_true};

const GROUP: &str = "storebench.dev/v1alpha1";

fn template(world: &World, value_bytes: u32) {
    world.apply(json!({
        "apiVersion": GROUP, "kind": "WorkloadTemplate", "metadata": { "name": "agreed" },
        "spec": {
            "etcd": { "operation": "Put", "valueBytes": value_bytes },
            "load": { "connections": 1, "duration": "1s" },
        },
    }));
}

fn run(world: &World, name: &str) {
    world.apply(json!({
        "apiVersion": GROUP, "kind": "BenchmarkRun", "metadata": { "name": name },
        "spec": {
            "arms": [{ "name": "store", "serviceRef": { "name": "store" } }],
            "workloadRefs": [{ "name": "agreed" }],
            "trials": { "min": 3, "max": 3, "retries": 0 },
        },
    }));
}

/// What a run's head has under a key.
fn head(world: &World, run: &str, key: &str) -> Value {
    let map = world.cluster.get(&world.path("", "configmaps", &format!("{run}-report"))).unwrap();
    serde_json::from_str(map["data"][key].as_str().unwrap()).unwrap()
}

fn content(world: &World, run: &str) -> String {
    let identities = head(world, run, "services.json");
    identities["WorkloadTemplate/agreed"]["content"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_waits_for_its_template_and_keeps_it_as_it_was_when_it_began() {
    let mut world = World::new("templates");
    // No pod of it ever starts, so that a run that has begun waits for its first trial.
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    run(&world, "first");
    let said = world.ends("first");
    assert_eq!(said, format!("there is no WorkloadTemplate/agreed in namespace {}: create it", world.namespace));
    template(&world, 1024);
    world.begins("first");
    let asked = |run: &str| head(&world, run, "record.json")["spec"].clone();
    let spec = asked("first");
    assert_eq!(
        (&spec["workloads"][0]["name"], &spec["workloads"][0]["etcd"]["valueBytes"]),
        (&json!("agreed"), &json!(1024))
    );
    assert_eq!(spec.get("workloadRefs"), None);
    let then = content(&world, "first");

    // Neither a change of it, nor that it is gone, concerns a run that has begun; not even of an operator that knows nothing of it yet.
    template(&world, 2048);
    world.delete(&world.path(GROUP, "workloadtemplates", "agreed"));
    world.stop_operator();
    world.start_operator(&[]);
    // Whoever looks at the run from now on is the new one.
    let path = world.path(GROUP, "benchmarkruns", "first");
    let suspended = world.cluster.call("PATCH", &path, Some(&json!({ "spec": { "suspend": true } }))).unwrap();
    let generation = &suspended["metadata"]["generation"];
    world.within(120, "the new operator to look at the run", || {
        (world.status("first")["observedGeneration"] == *generation).then_some(())
    });
    let status = world.status("first");
    assert!(!is_true(&status, "Stalled") && !is_true(&status, "Complete"), "{status}");
    assert_eq!(content(&world, "first"), then);
}
