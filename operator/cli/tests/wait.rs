//! `storebench wait` as a pipeline meets it: the real binary against an API server, its exit codes and its one line.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod api_server;
#[allow(dead_code)]
mod finished;

use std::time::{Duration, Instant};

use api_server::{ApiServer, Contents, Watch};
use finished::Finished;
use serde_json::{Value, json};

/// A run whose operator has seen `generation` 1 and now says that it is complete, or is not.
fn run(generation: i64, complete: &str, verdict: Option<&str>) -> Value {
    let reason = verdict.unwrap_or("Running");
    let condition = |type_: &str, status: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        })
    };
    let mut run = json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun",
        "metadata": { "name": "demo", "uid": "u-1", "generation": generation, "resourceVersion": "10" },
        "spec": {
            "arms": [{ "name": "redis", "serviceRef": { "name": "redis" } }],
            "workloads": [{ "name": "set", "redis": { "command": "Set" }, "load": { "total": 1000, "connections": 1 } }],
        },
        "status": {
            "observedGeneration": 1, "message": "trial 3 of 10",
            "conditions": [condition("Succeeded", "Unknown"), condition("Complete", complete)],
        },
    });
    if let Some(verdict) = verdict {
        run["status"]["verdict"] = verdict.into();
        run["status"]["message"] = "set: redis is what it is".into();
    }
    run
}

fn running() -> Value {
    run(1, "False", None)
}

fn event(type_: &str, run: Value) -> Value {
    json!({ "type": type_, "object": run })
}

fn wait(run: Value, watches: Vec<Watch>, arguments: &[&str]) -> Finished {
    let server = ApiServer::start(Contents { run: Some(run), watches, ..Contents::default() });
    server.storebench(&[&["wait", "benchmarkrun/demo"], arguments].concat())
}

#[test]
fn the_exit_code_is_the_verdict() {
    for (verdict, code) in [("Passed", 0), ("Regressed", 2), ("Inconclusive", 3), ("NoBaseline", 3), ("Invalid", 4)] {
        let finished = wait(run(1, "True", Some(verdict)), Vec::new(), &["--timeout", "10s"]);
        assert_eq!(finished.code, Some(code), "{verdict}: {}", finished.stderr);
        assert_eq!(finished.stdout, format!("{verdict}: set: redis is what it is\n"));
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn a_run_is_named_as_kubectl_names_it() {
    let server = ApiServer::start(Contents { run: Some(run(1, "True", Some("Passed"))), ..Contents::default() });
    for name in ["demo", "benchmarkrun/demo", "benchmarkruns/demo", "benchrun/demo", "benchmarkrun.storebench.dev/demo"]
    {
        let finished = server.storebench(&["wait", name, "--timeout", "10s"]);
        assert_eq!(finished.code, Some(0), "{name}: {}", finished.stderr);
    }
    server.storebench(&["wait", "pod/demo"]).error(&["`pod/demo` cannot be waited for: write benchmarkrun/NAME"]);
    server.storebench(&["wait", "benchmarkrun/demo?x"]).error(&["`demo?x` cannot be the name of a BenchmarkRun"]);
    server.storebench(&["wait", "benchmarkrun/"]).error(&["`` cannot be the name of a BenchmarkRun"]);
    server.storebench(&["wait", "demo", "-n", "a/b"]).error(&["`a/b` cannot be the name of a namespace"]);
    server.storebench(&["wait", "demo", "--timeout", "soon"]).error(&["--timeout: `soon` is not a duration"]);
}

#[test]
fn a_run_that_becomes_complete_is_noticed() {
    let events = [running(), run(1, "True", Some("Regressed"))].map(|run| event("MODIFIED", run)).to_vec();
    let finished = wait(running(), vec![Watch::Events(events)], &["--timeout", "30s"]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
}

#[test]
fn a_run_that_can_never_begin_is_not_waited_for() {
    let stalled = |reason: &str| {
        let mut run = running();
        run["status"]["message"] = "spec.parallelism: must be 1".into();
        run["status"]["conditions"][0]["reason"] = reason.into();
        let mut stalled = run["status"]["conditions"][0].clone();
        stalled["type"] = "Stalled".into();
        stalled["status"] = "True".into();
        run["status"]["conditions"].as_array_mut().unwrap().push(stalled);
        run
    };
    let began = Instant::now();
    wait(stalled("InvalidSpec"), Vec::new(), &["--timeout", "1m"])
        .error(&["cannot begin (InvalidSpec: spec.parallelism: must be 1): delete it, and create a corrected one"]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // The service may yet be created.
    wait(stalled("ServiceMissing"), Vec::new(), &["--timeout", "3s"]).error(&["was not complete after 3s"]);
}

#[test]
fn a_run_that_is_deleted_is_not_waited_for() {
    let deleted = Watch::Events(vec![event("DELETED", running())]);
    wait(running(), vec![deleted], &["--timeout", "30s"])
        .error(&["benchmarkrun/demo in namespace bench was deleted before it was complete"]);
}

#[test]
fn a_run_that_does_not_end_ends_the_patience() {
    let began = Instant::now();
    wait(running(), Vec::new(), &["--timeout", "3s"])
        .error(&["benchmarkrun/demo was not complete after 3s (Running: trial 3 of 10): raise --timeout"]);
    assert!(began.elapsed() > Duration::from_secs(3), "gave up early");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// The operator has yet to look at the spec as it is now: what it said before is about another one.
#[test]
fn a_verdict_on_an_earlier_generation_does_not_count() {
    let stale = run(2, "True", Some("Passed"));
    wait(stale.clone(), Vec::new(), &["--timeout", "3s"]).error(&["was not complete"]);
    let mut current = run(2, "True", Some("Regressed"));
    current["status"]["conditions"][1]["observedGeneration"] = 2.into();
    let finished = wait(stale, vec![Watch::Events(vec![event("MODIFIED", current)])], &["--timeout", "30s"]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
}

#[test]
fn a_watch_that_breaks_is_begun_anew() {
    let complete = Watch::Events(vec![event("MODIFIED", run(1, "True", Some("Passed")))]);
    let finished = wait(running(), vec![Watch::Fails(500), complete], &["--timeout", "30s"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

#[test]
fn a_watch_that_is_forbidden_is_not() {
    let began = Instant::now();
    wait(running(), vec![Watch::Fails(403)], &["--timeout", "1m"])
        .error(&["benchmarkrun/demo in namespace bench may not be read: out of order", "kubeconfig"]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn a_run_of_tomorrow_is_not_waited_for() {
    let mut tomorrow = running();
    tomorrow["status"]["verdict"] = "Splendid".into();
    wait(tomorrow, Vec::new(), &["--timeout", "1m"]).error(&["unknown variant `Splendid`", "the operator's version"]);
}

#[test]
fn a_run_that_does_not_exist_is_named_with_its_namespace() {
    let server = ApiServer::start(Contents::default());
    server.storebench(&["wait", "demo"]).error(&["benchmarkrun/demo in namespace bench does not exist: list"]);
    server.storebench(&["wait", "demo", "-n", "other"]).error(&["benchmarkrun/demo in namespace other does not exist"]);
}

#[test]
fn a_complete_run_without_a_verdict_is_an_error() {
    wait(run(1, "True", None), Vec::new(), &["--timeout", "10s"])
        .error(&["benchmarkrun/demo is complete but has no verdict"]);
}

#[test]
fn a_cluster_that_cannot_be_asked_is_told_from_one_that_refuses() {
    let absent = ApiServer::absent();
    absent.storebench(&["wait", "demo"]).error(&[
        "the API server http://127.0.0.1:",
        "refused",
        "check your kubeconfig",
    ]);
    std::fs::remove_file(absent.path().join("kubeconfig")).unwrap();
    absent.storebench(&["wait", "demo"]).error(&["no cluster is known", "set KUBECONFIG"]);
    let without = ApiServer::start(Contents { lacks_definitions: true, ..Contents::default() });
    without.storebench(&["wait", "demo"]).error(&["storebench crds | kubectl apply -f -"]);
    // What the server says is on two lines.
    let refusing = ApiServer::start(Contents { refuses: Some(401), ..Contents::default() });
    refusing
        .storebench(&["wait", "demo"])
        .error(&["may not be read: no entry for you: check the user in your kubeconfig"]);
}
