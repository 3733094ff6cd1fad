//! A store that was there already: nothing is deployed for it, and its load is given the Secrets that it names and nobody else's.

use serde_json::{Value, json};

use crate::world::{TURN_SECONDS_MAX, World, is_true};

/// No pod has room, so that what was made for a trial stays to be looked at.
fn without_room(world: &World) {
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "full" }, "spec": { "hard": { "pods": "0" } } });
    world.apply(quota);
    let in_force = world.path("", "resourcequotas", "full");
    world.within(30, "the quota in force", || {
        world.cluster.get(&in_force)?["status"]["used"]["pods"].as_str().map(drop)
    });
}

fn secret(world: &World, name: &str, is_allowed: bool, data: &Value) {
    let labels = json!({ "storebench.dev/allowed": is_allowed.to_string() });
    world.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": labels }, "stringData": data,
    }));
}

fn external(world: &World, name: &str, external: &Value) {
    world.apply(json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "StorageService", "metadata": { "name": name },
        "spec": { "engine": "Redis", "durability": "None", "external": external },
    }));
}

fn run(world: &World, name: &str, service: &str) {
    world.apply(json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "metadata": { "name": name },
        "spec": {
            "arms": [{ "name": "mine", "serviceRef": { "name": service } }], "isolation": "Shared",
            "workloads": [{ "name": "set", "redis": { "command": "Set" }, "load": { "duration": "1s" } }],
            "trials": { "min": 3, "max": 3, "retries": 0 },
        },
    }));
}

/// An object that was made for a run.
fn made(world: &World, version: &str, plural: &str, run: &str) -> Value {
    let is_own = |object: &Value| object["metadata"]["labels"]["storebench.dev/run"] == run;
    world.within(TURN_SECONDS_MAX, &format!("{plural} of {run}"), || {
        world.list(version, plural).into_iter().find(is_own)
    })
}

fn service_status(world: &World, name: &str) -> Option<Value> {
    let service = world.cluster.get(&world.path("storebench.dev/v1alpha1", "storageservices", name))?;
    Some(service["status"].clone())
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn nothing_is_deployed_for_it_and_its_load_finds_what_its_secrets_hold() {
    let world = World::new("external");
    without_room(&world);
    secret(&world, "login", true, &json!({ "redis-password": "s3cret", "another": "not this" }));
    secret(&world, "client", true, &json!({ "ca.crt": "A", "tls.crt": "C", "tls.key": "K" }));
    let store = json!({
        "endpoints": ["redis.elsewhere.example:6390"], "user": "bench",
        "passwordFrom": { "secretKeyRef": { "name": "login", "key": "redis-password" } },
        "tls": { "secretName": "client", "serverName": "redis" },
    });
    external(&world, "mine", &store);
    let status = world.within(30, "the service", || service_status(&world, "mine").filter(|one| is_true(one, "Ready")));
    let ready = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "External");
    assert!(ready["message"].as_str().unwrap().contains("redis.elsewhere.example:6390 over TLS"), "{ready}");
    assert_eq!(status["endpoints"]["client"], "redis.elsewhere.example:6390");
    assert!(status["footprint"].is_null());

    run(&world, "run", "mine");
    let job = made(&world, "batch/v1", "jobs", "run");
    let pod = &job["spec"]["template"]["spec"];
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    let text = variables.iter().find(|one| one["name"] == "BENCH_JOB_JSON").unwrap()["value"].as_str().unwrap();
    let spec: Value = serde_json::from_str(text).unwrap();
    assert_eq!(spec["endpoints"], json!(["redis.elsewhere.example:6390"]));
    assert_eq!(spec["external"]["passwordFrom"], json!({ "file": "/credentials/password" }));
    assert_eq!(spec["external"]["tls"]["certificateFile"], "/credentials/tls.crt");
    assert_eq!(spec["external"]["tls"]["serverName"], "redis");
    assert!(spec["durability"].is_null() && spec["meters"].is_null(), "nobody told it, and nobody meters it: {spec}");
    let sources = pod["volumes"][0]["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0]["secret"]["name"], "login");
    assert_eq!(sources[0]["secret"]["items"], json!([{ "key": "redis-password", "path": "password" }]));
    assert_eq!(sources[1]["secret"]["items"].as_array().unwrap().len(), 3);
    assert_eq!(pod["automountServiceAccountToken"], false);
    let policy = made(&world, "networking.k8s.io/v1", "networkpolicies", "run");
    let egress = policy["spec"]["egress"].as_array().unwrap();
    let outside = egress.iter().find(|rule| rule["to"].is_null()).expect("a way to the store");
    assert_eq!(outside["ports"], json!([{ "port": 6390, "protocol": "TCP" }]));
    assert!(world.list("apps/v1", "statefulsets").is_empty(), "nothing is deployed");

    let message = world.ends("run");
    assert!(message.contains("exceeded quota") && message.contains("keys that begin with storebench"), "{message}");
    let report = world.cluster.get(&world.path("", "configmaps", "run-report")).unwrap();
    let record: Value = serde_json::from_str(report["data"]["record.json"].as_str().unwrap()).unwrap();
    assert_eq!(record["arms"][0]["durabilitySetting"], "as stated by the user");
    assert!(record["caveats"].to_string().contains("was there already"), "{}", record["caveats"]);
    assert!(!report["data"].to_string().contains("s3cret"));
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_secret_is_used_only_where_its_owner_says_so_and_only_as_it_was() {
    let world = World::new("external-secrets");
    without_room(&world);
    let login = |name: &str| {
        json!({
            "endpoints": ["10.0.0.7:6379"], "passwordFrom": { "secretKeyRef": { "name": name, "key": "password" } },
        })
    };
    secret(&world, "theirs", false, &json!({ "password": "s3cret" }));
    secret(&world, "empty", true, &json!({ "pass": "s3cret" }));
    secret(&world, "half", true, &json!({ "ca.crt": "A", "tls.crt": "C" }));
    external(&world, "theirs", &login("theirs"));
    external(&world, "empty", &login("empty"));
    external(&world, "missing", &login("nowhere"));
    external(&world, "half", &json!({ "endpoints": ["10.0.0.7:6379"], "tls": { "secretName": "half" } }));
    for (name, field, said) in [
        ("theirs", "passwordFrom.secretKeyRef", "Secret/theirs is not for storebench"),
        ("empty", "passwordFrom.secretKeyRef", "Secret/empty has no key password: add it"),
        ("missing", "passwordFrom.secretKeyRef", "there is no Secret/nowhere: create it"),
        ("half", "tls.secretName", "Secret/half has no key tls.key: add it"),
    ] {
        run(&world, name, name);
        let message = world.ends(name);
        let expected = format!("StorageService/{name} spec.external.{field}: {said}");
        assert!(message.starts_with(&expected), "{message}");
        let status = service_status(&world, name).unwrap();
        assert!(is_true(&status, "Stalled"), "{status}");
        assert!(
            !world.list("batch/v1", "jobs").iter().any(|job| job["metadata"]["labels"]["storebench.dev/run"] == name)
        );
    }
    secret(&world, "changing", true, &json!({ "password": "s3cret" }));
    external(&world, "changing", &login("changing"));
    run(&world, "changing", "changing");
    made(&world, "batch/v1", "jobs", "changing");
    secret(&world, "changing", true, &json!({ "password": "another" }));
    let message = world.ends("changing");
    assert!(message.contains("Secret/changing was changed while the run was under way"), "{message}");
    assert_eq!(world.status("changing")["verdict"], "Invalid");
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn what_only_an_embedded_run_has_is_refused_with_its_field() {
    let world = World::new("external-refused");
    for (name, store, said) in [
        (
            "file",
            json!({ "endpoints": ["10.0.0.7:1"], "passwordFrom": { "file": "p" } }),
            "spec.external.passwordFrom: has no secretKeyRef",
        ),
        (
            "ca",
            json!({ "endpoints": ["10.0.0.7:1"], "tls": { "caFile": "ca" } }),
            "spec.external.tls: has no secretName",
        ),
        (
            "loopback",
            json!({ "endpoints": ["127.0.0.1:1"] }),
            "spec.external.endpoints[0]: 127.0.0.1: pods reach no store there",
        ),
        ("metadata", json!({ "endpoints": ["169.254.169.254:80"] }), "spec.external.endpoints[0]: 169.254.169.254"),
    ] {
        external(&world, name, &store);
        let status = world.within(30, name, || service_status(&world, name).filter(|one| is_true(one, "Stalled")));
        assert!(status.to_string().contains(said), "{status}");
        run(&world, name, name);
        let message = world.ends(name);
        assert!(message.contains(said), "{message}");
    }
}
