//! Baselines: what is kept outlives its run, runs are held against it and say what came of it, and what the operator did not write is
//! believed by nobody. Nothing measures on simulated nodes: the trials are written here, with the operator's own key.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use storebench_operator::objects::names;
use storebench_operator::signature::Signer;

use crate::refused::policy;
use crate::world::{World, is_true};

const GROUP: &str = "storebench.dev/v1alpha1";
const TRIALS: u32 = 3;

/// What the trials of a run find.
#[derive(Clone, Copy)]
struct Found {
    /// Requests per second of the arm `new`; `old` always has 3000.
    new_per_second: u64,
    /// The node of store and load.
    node: &'static str,
}

const USUAL: Found = Found { new_per_second: 4_000, node: "n1" };

/// A world with a store of which no pod ever starts, so that a run that has begun waits for its first trial.
fn world(namespace: &str) -> World {
    let world = World::new(namespace);
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    world
}

fn run(world: &World, name: &str, baseline: Option<&str>) {
    let mut spec = json!({
        "arms": [
            { "name": "old", "baseline": true, "serviceRef": { "name": "store" } },
            { "name": "new", "serviceRef": { "name": "store" } },
        ],
        "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "connections": 1, "duration": "1s" } }],
        "trials": { "min": TRIALS, "max": TRIALS, "retries": 0 },
    });
    if let Some(baseline) = baseline {
        spec["baselineRef"] = json!({ "name": baseline });
    }
    world.apply(json!({ "apiVersion": GROUP, "kind": "BenchmarkRun", "metadata": { "name": name }, "spec": spec }));
}

fn baseline(world: &World, name: &str, run: &str) -> Value {
    world.apply(json!({
        "apiVersion": GROUP, "kind": "BenchmarkBaseline", "metadata": { "name": name },
        "spec": { "runRef": { "name": run } },
    }))
}

fn status(world: &World, name: &str) -> Value {
    let baseline = world.cluster.get(&world.path(GROUP, "benchmarkbaselines", name));
    baseline.map(|object| object["status"].clone()).unwrap_or_default()
}

/// The reason for which an object waits for its user.
fn stalled(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let stalled = conditions.into_iter().find(|one| one["type"] == "Stalled" && one["status"] == "True")?;
    Some(format!("{}: {}", stalled["reason"].as_str()?, stalled["message"].as_str()?))
}

#[track_caller]
fn waits(world: &World, what: &str, status: impl Fn() -> Value, said: &str) -> String {
    let mut last = String::new();
    world.within(120, &format!("{what} to say {said}"), || {
        last = stalled(&status()).unwrap_or_default();
        last.contains(said).then(|| last.clone())
    })
}

/// One trial as the operator would have written it.
fn trial(run: &str, uid: &str, index: u32, arm: &str, found: Found) -> ConfigMap {
    let operations = if arm == "new" { found.new_per_second + u64::from(index) } else { 3_000 + u64::from(index) };
    let latency = json!({ "meanNanos": 200, "p50Nanos": 200, "p99Nanos": 900, "maxNanos": 1000 });
    let file = json!({
        "trial": {
            "index": index, "arm": arm, "state": "Valid", "startedMillis": 1_000 * u64::from(index),
            "durationMillis": 900, "nodes": { "store-0": found.node, "load-0": found.node },
            "workloads": [{
                "summary": {
                    "name": "put", "operations": operations, "errors": 0, "elapsedNanos": 1_000_000_000, "verified": 10,
                    "service": latency,
                },
                "histograms": [],
            }],
        },
        "version": "3.7.3", "facts": { "kernel": "6.1" },
    });
    serde_json::from_value(json!({
        "metadata": {
            "name": names::trial(run, uid, index, arm),
            "labels": {
                "app.kubernetes.io/managed-by": "storebench", "app.kubernetes.io/component": "record",
                "storebench.dev/run": run, "storebench.dev/trial": index.to_string(), "storebench.dev/arm": arm,
            },
            "ownerReferences": [{ "apiVersion": GROUP, "kind": "BenchmarkRun", "name": run, "uid": uid }],
        },
        "data": { "trial.json": file.to_string() },
    }))
    .unwrap()
}

/// Lets a run that is there find this, with an operator that is killed in its middle. Returns its status at the end.
fn measured(world: &mut World, name: &str, found: Found) -> Value {
    world.begins(name);
    world.stop_operator();
    let uid = world.cluster.get(&world.path(GROUP, "benchmarkruns", name)).unwrap()["metadata"]["uid"].clone();
    let signer = world.cluster.wait(Signer::load(world.cluster.client(), &world.system())).unwrap();
    for (index, arm) in (0..TRIALS).flat_map(|index| [(index, "old"), (index, "new")]) {
        let uid = uid.as_str().unwrap();
        let mut map = trial(name, uid, index, arm, found);
        signer.sign(uid, &mut map);
        let mut map = serde_json::to_value(map).unwrap();
        (map["apiVersion"], map["kind"]) = ("v1".into(), "ConfigMap".into());
        world.apply(map);
    }
    world.start_operator(&[]);
    world.within(90, &format!("the end of {name}"), || {
        Some(world.status(name)).filter(|status| is_true(status, "Complete"))
    })
}

/// The ConfigMap with what a baseline keeps.
fn figures(world: &World, baseline: &str) -> Option<Value> {
    world.cluster.get(&world.path("", "configmaps", &format!("{baseline}-baseline")))
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn runs_are_held_against_what_a_baseline_keeps_beyond_the_end_of_its_run() {
    let mut world = world("baseline");
    // Nothing is measured before there is something to compare with, in whichever order objects come.
    run(&world, "held", Some("last"));
    let message = waits(&world, "the run", || world.status("held"), "BaselineMissing");
    assert!(message.ends_with("there is no BenchmarkBaseline/last in namespace baseline: create it"), "{message}");
    baseline(&world, "last", "first");
    waits(&world, "the baseline", || status(&world, "last"), "RunMissing: there is no BenchmarkRun/first");
    waits(&world, "the run", || world.status("held"), "BaselineNotReady");
    assert!(!world.has_store("held") && world.cluster.get(&world.path("", "configmaps", "held-report")).is_none());

    run(&world, "first", None);
    let first = measured(&mut world, "first", USUAL);
    assert_eq!(first["verdict"], "Passed", "{first}");
    assert!(first["baseline"].is_null() && first["columns"]["baseline"].is_null(), "{first}");
    let kept = world.within(60, "the baseline", || Some(status(&world, "last")).filter(|one| is_true(one, "Ready")));
    assert!(kept["message"].as_str().unwrap().starts_with("keeps first of "), "{kept}");
    assert_eq!((&kept["arms"], &kept["verdict"]), (&json!("old / new"), &json!("Passed")));
    assert_eq!(kept["fingerprint"]["facts"]["nodes"], "load on n1; store on n1");
    assert!(kept.to_string().len() <= 16 * 1024);
    let map = figures(&world, "last").unwrap();
    let bytes = map["data"]["figures.json"].as_str().unwrap().len();
    assert!(bytes < 16 * 1024, "{bytes} bytes");

    // The run that waited goes on by itself.
    let held = measured(&mut world, "held", USUAL);
    assert_eq!((&held["verdict"], &held["baseline"]["verdict"]), (&json!("Passed"), &json!("Passed")), "{held}");
    assert_eq!(held["columns"]["baseline"], "last: Passed");

    // What is kept does not go with the run, and is made once.
    world.delete(&world.path(GROUP, "benchmarkruns", "first"));
    world.within(60, "the end of the run", || {
        world.cluster.get(&world.path(GROUP, "benchmarkruns", "first")).is_none().then_some(())
    });
    run(&world, "slower", Some("last"));
    let slower = measured(&mut world, "slower", Found { new_per_second: 3_000, ..USUAL });
    assert_eq!(slower["verdict"], "Regressed", "{slower}");
    let message = slower["message"].as_str().unwrap();
    assert!(message.starts_with("against BenchmarkBaseline/last: worse by more than 5 %, beyond noise"), "{message}");
    assert_eq!(slower["baseline"]["run"], "first");
    let report = world.cluster.get(&world.path("", "configmaps", "slower-report")).unwrap();
    for (form, part) in [("report.md", "What differs between both"), ("report.txt", "against BenchmarkBaseline/last")] {
        let text = report["data"][form].as_str().unwrap();
        assert!(text.contains(part), "{text}");
    }
    assert!(is_true(&status(&world, "last"), "Ready"));
    assert_eq!(figures(&world, "last").unwrap()["metadata"]["uid"], map["metadata"]["uid"]);

    // Another machine of the same kind is another, and that is said.
    run(&world, "elsewhere", Some("last"));
    let elsewhere = measured(&mut world, "elsewhere", Found { node: "n2", ..USUAL });
    assert_eq!(
        (&elsewhere["verdict"], &elsewhere["columns"]["baseline"]),
        (&json!("NoBaseline"), &json!("last: not compared"))
    );
    let message = elsewhere["message"].as_str().unwrap();
    assert!(message.contains("the machines are unlike (nodes: load on n1; store on n1, then load on n2"), "{message}");

    // What it keeps goes with the baseline; what was held against it stays as it was.
    world.delete(&world.path(GROUP, "benchmarkbaselines", "last"));
    world.within(60, "the end of what was kept", || figures(&world, "last").is_none().then_some(()));
    assert_eq!(world.status("slower"), slower);
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn what_the_operator_did_not_write_is_no_baseline() {
    let mut world = World::without_operator("forged-baseline");
    world.service("store", &json!({ "pod": { "nodeSelector": { "no": "such-node" } } }));
    let forged = |name: &str, owner: &Value| {
        let owners = json!([{ "apiVersion": GROUP, "kind": "BenchmarkBaseline", "name": name, "uid": owner }]);
        let owners = if owner.is_null() { Value::Null } else { owners };
        world.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("{name}-baseline"), "ownerReferences": owners },
            "data": { "figures.json": "{}" },
        }));
    };
    let uid = baseline(&world, "forged", "first")["metadata"]["uid"].clone();
    forged("forged", &uid);
    baseline(&world, "taken", "first");
    forged("taken", &Value::Null);
    world.start_operator(&[]);
    waits(
        &world,
        "the forged one",
        || status(&world, "forged"),
        "ConfigMap forged-baseline is not what this operator wrote",
    );
    waits(&world, "the other", || status(&world, "taken"), "NameTaken: ConfigMap taken-baseline is there already");
    for name in ["forged", "taken"] {
        run(&world, &format!("against-{name}"), Some(name));
        let said = format!("InvalidBaseline: BenchmarkBaseline/{name}: ConfigMap {name}-baseline is");
        waits(&world, "the run", || world.status(&format!("against-{name}")), &said);
    }

    // A genuine one that somebody replaces, and one that somebody deletes.
    run(&world, "first", None);
    measured(&mut world, "first", USUAL);
    for name in ["replaced", "deleted"] {
        baseline(&world, name, "first");
        world.within(60, "the baseline", || is_true(&status(&world, name), "Ready").then_some(()));
        let mut map = figures(&world, name).unwrap();
        world.delete(&world.path("", "configmaps", &format!("{name}-baseline")));
        if name == "replaced" {
            let text = map["data"]["figures.json"].as_str().unwrap().replace("4000.0", "3000.0");
            map["data"]["figures.json"] = text.into();
            let metadata = map["metadata"].as_object_mut().unwrap();
            for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
                metadata.remove(field);
            }
            world.apply(map);
        }
    }
    world.start_operator(&[]);
    waits(
        &world,
        "the replaced one",
        || status(&world, "replaced"),
        "replaced-baseline is not what this operator wrote",
    );
    waits(&world, "the deleted one", || status(&world, "deleted"), "FiguresGone: ConfigMap deleted-baseline");
}

/// Both were said in a status alone, where nobody who watches events finds them.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_wrong_service_and_a_refused_baseline_are_told_by_events() {
    let mut world = world("events");
    world.service("wrong", &json!({ "engine": "DEngineOriginal", "replicas": 3, "durability": "None" }));
    run(&world, "first", None);
    measured(&mut world, "first", USUAL);
    policy(&world, "", "configmaps", "object.metadata.name.endsWith('-baseline')");
    let probe = format!("{}?dryRun=All", world.path("", "configmaps", ""));
    let map = json!({ "metadata": { "name": "probe-baseline" } });
    world.within(30, "the policy in force", || world.cluster.call("POST", &probe, Some(&map)).is_err().then_some(()));
    baseline(&world, "kept", "first");
    waits(&world, "the baseline", || status(&world, "kept"), "house rule 7");
    for (kind, name, said) in
        [("StorageService", "wrong", "must be 1 in a cluster"), ("BenchmarkBaseline", "kept", "house rule 7")]
    {
        let is_told = |event: &Value| {
            let about = &event["regarding"];
            let is_warning = event["type"] == "Warning" && about["kind"] == kind && about["name"] == name;
            is_warning && event["note"].as_str().is_some_and(|note| note.contains(said))
        };
        world.within(30, &format!("an event of {kind}/{name}"), || {
            world.list("events.k8s.io/v1", "events").iter().any(is_told).then_some(())
        });
    }
}

/// Before its first trial it is known that there is nothing to compare with: it ends with a record that says so, and nothing is deployed.
#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_that_would_be_held_against_an_unlike_cluster_ends_before_its_first_trial_and_is_no_baseline() {
    let mut world = world("baseline-unlike");
    run(&world, "first", None);
    measured(&mut world, "first", USUAL);
    let uid = baseline(&world, "last", "first")["metadata"]["uid"].as_str().unwrap().to_owned();
    world.within(60, "the baseline", || is_true(&status(&world, "last"), "Ready").then_some(()));
    // As if it had been kept of another cluster.
    world.stop_operator();
    let mut map = figures(&world, "last").unwrap();
    let mut kept: Value = serde_json::from_str(map["data"]["figures.json"].as_str().unwrap()).unwrap();
    kept["record"]["fingerprint"]["facts"]["kubernetes"] = "v1.0.0".into();
    map["data"]["figures.json"] = kept.to_string().into();
    let metadata = map["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
        metadata.remove(field);
    }
    world.delete(&world.path("", "configmaps", "last-baseline"));
    let mut signed: ConfigMap = serde_json::from_value(map.clone()).unwrap();
    world.cluster.wait(Signer::load(world.cluster.client(), &world.system())).unwrap().sign(&uid, &mut signed);
    map["metadata"]["annotations"] = serde_json::to_value(signed.metadata.annotations).unwrap();
    world.apply(map);
    world.start_operator(&[]);

    run(&world, "held", Some("last"));
    let message = world.ends("held");
    assert!(message.starts_with("nothing was measured; against BenchmarkBaseline/last: not compared"), "{message}");
    let held = world.status("held");
    assert_eq!((&held["verdict"], &held["columns"]["baseline"]), (&json!("NoBaseline"), &json!("last: not compared")));
    assert!(!world.has_store("held"));
    let report = world.cluster.get(&world.path("", "configmaps", "held-report")).unwrap();
    let (text, why) = (report["data"]["report.txt"].as_str().unwrap(), held["baseline"]["message"].as_str().unwrap());
    assert!(text.contains("Nothing to compare") && why.contains("kubernetes: v1.0.0, then "), "{why}\n{text}");

    baseline(&world, "of-held", "held");
    let said = "RunInvalid: BenchmarkRun/held has no trial that counts, so make another run and baseline: nothing was";
    waits(&world, "the baseline", || status(&world, "of-held"), said);
}

#[test]
#[ignore = "needs peers/fetch kubernetes"]
fn a_run_that_cannot_be_trusted_is_not_kept() {
    let mut world = world("baseline-invalid");
    world.service("ready", &json!({}));
    world.run("invalid", "ready");
    baseline(&world, "of-invalid", "invalid");
    waits(&world, "the baseline", || status(&world, "of-invalid"), "RunInvalid: BenchmarkRun/invalid is Invalid");
    // Nor is one of which a trial was deleted after its end.
    run(&world, "first", None);
    measured(&mut world, "first", USUAL);
    let uid = world.cluster.get(&world.path(GROUP, "benchmarkruns", "first")).unwrap()["metadata"]["uid"].clone();
    world.delete(&world.path("", "configmaps", &names::trial("first", uid.as_str().unwrap(), 1, "new")));
    baseline(&world, "of-part", "first");
    waits(
        &world,
        "the baseline",
        || status(&world, "of-part"),
        "5 of its trials are here, and its verdict was found from 6",
    );
    // The spec is for ever.
    let path = world.path(GROUP, "benchmarkbaselines", "of-part");
    let other = json!({ "spec": { "runRef": { "name": "invalid" } } });
    let (code, message) = world.cluster.call("PATCH", &path, Some(&other)).unwrap_err();
    assert!(code == 422 && message.contains("create a new baseline under a new name"), "{code}: {message}");
}
