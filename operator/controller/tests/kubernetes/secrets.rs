//! Who may create a StorageService may not so read every Secret of the namespace.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::world::{World, is_true};

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_secret_reaches_a_users_image_only_where_its_owner_says_so() {
    let world = World::new("secrets");
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "theirs" }, "stringData": { "key": "k" } });
    world.apply(secret.clone());
    let reference = json!({ "secretKeyRef": { "name": "theirs", "key": "key" } });
    world.service("bad", &json!({ "env": [{ "name": "KEY", "valueFrom": reference }] }));
    world.run("bad", "bad");
    world.service("good", &json!({}));
    world.run("good", "good");
    let message = world.ends("bad");
    let wanted = "StorageService/bad spec.env[0].valueFrom: Secret/theirs is not for storebench: ";
    assert!(message.starts_with(wanted), "{message}");
    world.begins("good");
    let service = world.path("storebench.dev/v1alpha1", "storageservices", "bad");
    let status = world.cluster.get(&service).unwrap()["status"].clone();
    assert!(is_true(&status, "Stalled"), "{status}");
    assert!(!world.list("apps/v1", "statefulsets").iter().any(|set| set["metadata"]["name"] == "bad"));
    let mut labelled = secret;
    labelled["metadata"]["labels"] = json!({ "storebench.dev/allowed": "true" });
    world.apply(labelled);
    let set = world.path("apps/v1", "statefulsets", "bad");
    world.within(90, "the service, once it may", || world.cluster.get(&set));
}

/// Each trial's pods take the Secret anew: what it meant must not change between two trials of one comparison.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_secret_that_is_changed_or_deleted_in_mid_run_ends_the_run_optional_or_not() {
    let world = World::new("secret-changed");
    for (name, optional) in [("changed", false), ("deleted", true)] {
        let labels = json!({ "storebench.dev/allowed": "true" });
        let secret = |value: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": labels }, "stringData": { "key": value } });
        world.apply(secret("k"));
        let reference = json!({ "secretKeyRef": { "name": name, "key": "key", "optional": optional } });
        // No node takes its pods, so that the run is under way for a while.
        world.service(
            name,
            &json!({
                "env": [{ "name": "KEY", "valueFrom": reference }], "pod": { "nodeSelector": { "no": "such-node" } },
            }),
        );
        world.run(name, name);
        world.begins(name);
        let message = if optional {
            world.delete(&world.path("", "secrets", name));
            world.ends(name)
        } else {
            world.apply(secret("another"));
            world.ends(name)
        };
        let said = if optional {
            "there is no Secret/deleted"
        } else {
            "Secret/changed was changed while the run was under way"
        };
        assert!(message.contains(said), "{message}");
        assert_eq!(world.status(name)["verdict"], "Invalid");
    }
}

/// Who may view a namespace reads its ConfigMaps and no Secrets: a plain hash there let him try passwords, and see which Secrets are the same.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn the_record_of_a_run_tells_nothing_of_a_secret_to_who_may_not_read_it() {
    let mut world = World::new("secret-record");
    for name in ["one", "two"] {
        let labels = json!({ "storebench.dev/allowed": "true" });
        world.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": labels },
            "stringData": { "key": "hunter2" },
        }));
    }
    let variable = |name: &str| json!({ "name": name.to_uppercase(), "valueFrom": { "secretKeyRef": { "name": name, "key": "key" } } });
    // No node takes its pods, so that the run is under way for a while.
    world.service(
        "store",
        &json!({ "env": [variable("one"), variable("two")], "pod": { "nodeSelector": { "no": "such-node" } } }),
    );
    world.run("run", "store");
    world.begins("run");
    let record = world.cluster.get(&world.path("", "configmaps", "run-report")).unwrap();
    let noted: Value = serde_json::from_str(record["data"]["services.json"].as_str().unwrap()).unwrap();
    let content = |name: &str| noted[format!("Secret/{name}")]["content"].as_str().unwrap().to_owned();
    assert_ne!(content("one"), content("two"), "equal Secrets are seen to be equal");
    // Everything that a list of words gives without the key.
    let mut guess = Sha256::new();
    for part in [b"key".as_slice(), b"hunter2"] {
        guess.update((part.len() as u64).to_be_bytes());
        guess.update(part);
    }
    let guess: String = guess.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(![content("one"), content("two")].contains(&guess), "{noted}");
    // An operator that takes over knows the Secrets again.
    world.start_operator(&[]);
    let path = world.path("storebench.dev/v1alpha1", "benchmarkruns", "run");
    world.cluster.call("PATCH", &path, Some(&json!({ "spec": { "suspend": true } }))).unwrap();
    let is_held = |status: Value| {
        let held = status["conditions"].as_array()?.iter().any(|one| one["reason"] == "Suspended");
        (held || !status["verdict"].is_null()).then_some(status)
    };
    let status = world.within(60, "the run held by the other operator", || is_held(world.status("run")));
    assert!(status["verdict"].is_null(), "{status}");
}
