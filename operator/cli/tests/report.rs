//! `storebench report` of a run in a cluster: the real binary against an API server. The measure is the same record in a
//! file, which must read the same.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod api_server;
#[allow(dead_code)]
mod finished;

use api_server::{ApiServer, Contents};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use storebench_core::across::{Baseline, Figures};
use storebench_core::archive::{SIGNATURE_ANNOTATION, TrialFile, assemble, digest, hash, signed, signed_digest};
use storebench_core::judgement::judge;
use storebench_core::record::RunRecord;
use storebench_core::report::{Report, from_json, json as report_json};
use storebench_crds::Metric;

/// What the operator wrote when the run began.
fn head() -> Value {
    let arm = |name: &str, baseline: bool| {
        json!({
            "name": name, "baseline": baseline, "service": name, "engine": "Redis", "durability": "Fsync",
            "durabilitySetting": "appendonly yes, appendfsync always", "replicas": 1, "fields": {}, "command": [],
        })
    };
    json!({
        "recordVersion": 1, "name": "demo", "storebenchVersion": "0.1.0", "startedAt": "2026-03-01T12:00:00Z",
        "durationMillis": 0, "driver": "Kubernetes", "spec": spec(), "arms": [arm("old", true), arm("new", false)],
        "trials": [], "fingerprint": { "hash": "" }, "caveats": [],
    })
}

fn spec() -> Value {
    json!({
        "arms": [
            { "name": "old", "baseline": true, "serviceRef": { "name": "old" } },
            { "name": "new", "serviceRef": { "name": "new" } },
        ],
        "workloads": [{ "name": "set", "redis": { "command": "Set" }, "load": { "duration": "1s", "connections": 1 } }],
        "trials": { "min": 3, "max": 3 },
        "gates": [{ "arm": "new", "metric": "ThroughputPerSecond", "ratioAtLeastBasisPoints": 9000 }],
    })
}

/// What the operator wrote after each trial of an arm; the new store is a third faster.
fn trials() -> Vec<Value> {
    let trial = |index: u64, arm: &str| {
        let operations = if arm == "new" { 4_000 + index } else { 3_000 + index };
        let position = 2 * index + u64::from(arm == "new");
        let latency = json!({ "meanNanos": 200, "p50Nanos": 200, "p99Nanos": 900, "maxNanos": 1000 });
        let summary = json!({
            "name": "set", "operations": operations, "errors": 0, "elapsedNanos": 1_000_000_000, "verified": 10,
            "service": latency,
        });
        json!({
            "trial": {
                "index": index, "arm": arm, "state": "Valid", "startedMillis": 3_000 * position, "durationMillis": 2_500,
                "nodes": { "store-0": "n1", "load-0": "n1" },
                "workloads": [{ "summary": summary, "histograms": [] }],
            },
            "version": format!("9.1.{}", u64::from(arm == "new")), "command": ["valkey-server"], "facts": { "cores": "2" },
        })
    };
    // Not in the order they ran: a list is sorted by name.
    [("new", 1), ("new", 0), ("old", 2), ("old", 0), ("new", 2), ("old", 1)]
        .map(|(arm, index)| trial(index, arm))
        .into()
}

/// A file of the run whose uid is `owner`.
fn config_map(name: &str, owner: &str, key: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": { "storebench.dev/run": "demo", "app.kubernetes.io/component": "record" },
            "ownerReferences": [
                { "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "name": "demo", "uid": owner },
            ],
        },
        "data": { key: text },
    })
}

/// A run that passed, with everything that its operator wrote.
fn finished() -> Contents {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "Passed", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        })
    };
    let run = json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun",
        "metadata": {
            "name": "demo", "namespace": "bench", "uid": "u-1", "generation": 1, "resourceVersion": "10",
            "managedFields": [{ "manager": "kubectl", "operation": "Apply" }],
        },
        "spec": spec(),
        "status": {
            "observedGeneration": 1, "verdict": "Passed", "message": "the gate was met", "ofTomorrow": 7,
            "conditions": [condition("Succeeded"), condition("Complete")], "reportRef": { "name": "demo-report" },
        },
    });
    let mut config_maps = vec![config_map("demo-report", "u-1", "record.json", &head().to_string())];
    for (index, trial) in trials().iter().enumerate() {
        config_maps.push(config_map(&format!("demo-{index}"), "u-1", "trial.json", &trial.to_string()));
    }
    Contents { run: Some(run), config_maps, ..Contents::default() }
}

/// What the operator says before the run is over.
fn going_on(mut contents: Contents) -> Contents {
    let status = &mut contents.run.as_mut().unwrap()["status"];
    status["verdict"].take();
    status["message"] = "trial 2 of 3".into();
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition["status"] = "False".into();
        condition["reason"] = "Running".into();
    }
    contents
}

/// The finished run as `run --save` would have written it.
fn saved() -> String {
    let head: RunRecord = serde_json::from_value(head()).unwrap();
    let trials: Vec<TrialFile> = trials().into_iter().map(|trial| serde_json::from_value(trial).unwrap()).collect();
    let record = assemble(head, trials, true);
    report_json(&Report { judgement: judge(&record), record }).unwrap()
}

/// The finished run of an operator that signs what it writes.
fn signed_run() -> Contents {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let mut contents = finished();
    contents.run.as_mut().unwrap()["status"]["signingKey"] = STANDARD.encode(pair.public_key()).into();
    for map in &mut contents.config_maps {
        let data = serde_json::from_value(map["data"].clone()).unwrap();
        let bytes = signed("u-1", map["metadata"]["name"].as_str().unwrap(), &data);
        map["metadata"]["annotations"] = json!({ SIGNATURE_ANNOTATION: STANDARD.encode(pair.sign(&bytes)) });
    }
    let hashed = |map: &Value| {
        let name = map["metadata"]["name"].as_str().unwrap();
        (name.to_owned(), hash("u-1", name, &serde_json::from_value(map["data"].clone()).unwrap()))
    };
    let digest = digest(&contents.config_maps[1..].iter().map(hashed).collect());
    let signature = STANDARD.encode(pair.sign(&signed_digest("u-1", &digest)));
    contents.run.as_mut().unwrap()["status"]["sealedTrials"] =
        json!({ "count": 6, "digest": digest, "signature": signature });
    contents
}

#[test]
fn a_trial_that_the_operator_did_not_sign_is_left_out_and_named() {
    let mut contents = signed_run();
    let server = ApiServer::start(contents.clone());
    let genuine = server.storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!((genuine.code, genuine.stderr.as_str()), (Some(0), ""));
    let lost = json!({ "trial": {
        "index": 3, "arm": "new", "state": "Invalid", "failure": { "cause": "WrongAnswer", "detail": "forged" },
        "startedMillis": 0, "durationMillis": 0, "workloads": [],
    } });
    contents.config_maps.push(config_map("forged", "u-1", "trial.json", &lost.to_string()));
    let found = ApiServer::start(contents.clone()).storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!((found.code, found.stdout), (Some(0), genuine.stdout));
    assert_eq!(found.stderr, "storebench: configmap/forged is no trial that the operator wrote: it is left out\n");
    contents.config_maps[0]["data"]["record.json"] = "{}".into();
    let found = ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!(found.code, Some(1));
    assert!(found.stderr.contains("configmap/demo-report is not what the operator wrote"), "{}", found.stderr);
}

/// Whoever may delete ConfigMaps could choose the trials that a report judges.
#[test]
fn a_run_of_which_a_trial_was_deleted_after_its_end_is_not_reported() {
    let mut contents = signed_run();
    contents.config_maps.remove(3);
    ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]).error(&[
        "benchmarkrun/demo",
        "5 of its trials are here, and its verdict was found from 6",
        "run it again",
    ]);
    let mut contents = signed_run();
    contents.run.as_mut().unwrap()["status"]["sealedTrials"]["digest"] = "0".repeat(64).into();
    ApiServer::start(contents)
        .storebench(&["report", "benchmarkrun/demo"])
        .error(&["the operator did not sign the list of trials"]);
    let mut contents = signed_run();
    contents.run.as_mut().unwrap()["status"].as_object_mut().unwrap().remove("sealedTrials");
    let report = ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!(report.code, Some(0));
    assert!(report.stderr.contains("did not say which trials there were"), "{}", report.stderr);
}

/// The finished run as the second of a suite, of which the first was left out and the third is still to come.
fn in_a_suite() -> Contents {
    let mut contents = finished();
    let name = "sizes-512";
    let state = |name: &str, state: &str| json!({ "name": name, "values": "valueBytes 1", "state": state });
    contents.suite = Some(json!({
        "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSuite",
        "metadata": { "name": "sizes", "namespace": "bench", "uid": "u-2", "generation": 1, "resourceVersion": "10" },
        "spec": {
            "parameters": [{ "name": "valueBytes", "values": [64, 512, 1024] }],
            "template": { "spec": {
                "arms": spec()["arms"], "trials": spec()["trials"],
                "workloads": [{
                    "name": "set", "redis": { "command": "Set", "valueBytes": "$(valueBytes)" }, "load": { "duration": "1s" },
                }],
            } },
        },
        "status": { "runs": [state("sizes-64", "Skipped"), state(name, "Passed"), state("sizes-1024", "Waiting")] },
    }));
    let metadata = &mut contents.run.as_mut().unwrap()["metadata"];
    metadata["name"] = name.into();
    metadata["ownerReferences"] = json!([
        { "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSuite", "name": "sizes", "uid": "u-2" },
    ]);
    for map in &mut contents.config_maps {
        map["metadata"]["labels"]["storebench.dev/run"] = name.into();
    }
    contents
}

#[test]
fn a_suite_in_a_cluster_is_one_table_of_its_own_runs() {
    let server = ApiServer::start(in_a_suite());
    let text = server.storebench(&["report", "benchmarksuite/sizes"]);
    assert_eq!(text.stderr, "");
    let row = |begin: &str| text.stdout.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_default();
    assert!(row("512").contains("Passed"), "{}", text.stdout);
    assert!(row("64 ").contains("left out"), "{}", text.stdout);
    assert!(row("1024").contains("not measured") && !row("1024").contains("left out"), "{}", text.stdout);
    // Nobody knows what the third one would say.
    assert_eq!(text.code, Some(4));
    let list = server.storebench(&["report", "benchsuite/sizes", "-o", "json"]);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["judgement"]["verdict"], "Passed");
    let page = server.storebench(&["report", "benchmarksuite/sizes", "-o", "html"]).stdout;
    assert!(page.contains("valueBytes") && page.contains("id=\"run-0\""), "{page}");
    server
        .storebench(&["report", "benchmarksuite/other"])
        .error(&["benchmarksuite/other", "kubectl get benchmarksuites"]);
}

#[test]
fn a_run_of_another_owner_or_one_that_goes_on_is_none_of_the_suites_results() {
    let mut contents = in_a_suite();
    contents.run.as_mut().unwrap()["metadata"]["ownerReferences"][0]["uid"] = "u-3".into();
    let found = ApiServer::start(contents).storebench(&["report", "benchmarksuite/sizes"]);
    assert!(found.stdout.contains("0 of 3 measured"), "{}", found.stdout);
    assert!(found.stderr.contains("benchmarkrun/sizes-512 in namespace bench is somebody else's"), "{}", found.stderr);
    let found = ApiServer::start(going_on(in_a_suite())).storebench(&["report", "benchmarksuite/sizes"]);
    assert!(found.stdout.contains("0 of 3 measured"), "{}", found.stdout);
    assert!(found.stderr.contains("is not complete (Running: trial 2 of 3)"), "{}", found.stderr);
    let mut contents = in_a_suite();
    contents.run.as_mut().unwrap()["status"].as_object_mut().unwrap().remove("reportRef");
    let found = ApiServer::start(contents).storebench(&["report", "benchmarksuite/sizes"]);
    assert!(found.stdout.contains("0 of 3 measured"), "{}", found.stdout);
    assert!(found.stderr.contains("ended without a report"), "{}", found.stderr);
}

#[test]
fn a_run_in_a_cluster_reads_as_the_same_run_in_a_file() {
    let server = ApiServer::start(finished());
    std::fs::write(server.path().join("report.json"), saved()).unwrap();
    for output in ["text", "markdown", "html", "json"] {
        let of_file = server.storebench(&["report", "report.json", "-o", output]);
        let of_cluster = server.storebench(&["report", "benchmarkrun/demo", "-o", output]);
        assert_eq!((of_cluster.code, of_cluster.stderr.as_str()), (Some(0), ""), "{output}");
        assert_eq!(of_cluster.stdout, of_file.stdout, "{output}");
    }
    let report = server.storebench(&["report", "benchrun/demo", "-n", "bench", "-o", "json"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["record"]["trials"].as_array().unwrap().len(), 6);
    assert_eq!(report["record"]["arms"][1]["version"], "9.1.1");
    assert_eq!(report["judgement"]["verdict"], "Passed");
}

#[test]
fn a_run_in_a_cluster_is_exported_when_it_is_complete_and_reads_the_same_from_there() {
    let server = ApiServer::start(finished());
    let git = |arguments: &[&str]| {
        let mut command = harness::command("git");
        drop(harness::output(command.arg("-C").arg(server.path()).args(arguments)));
    };
    git(&["init", "--quiet"]);
    git(&["config", "user.name", "a"]);
    git(&["config", "user.email", "a@b"]);
    let exported = server.storebench(&["export", "benchmarkrun/demo", "--to", "git:results"]);
    assert_eq!((exported.code, exported.stderr.as_str()), (Some(0), ""));
    let began = "demo/20260301T120000Z-Passed committed to git:results as ";
    assert!(exported.stdout.starts_with(began), "{}", exported.stdout);
    let again = server.storebench(&["export", "benchrun/demo", "-n", "bench", "--to", "git:results"]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(0), "demo/20260301T120000Z-Passed is on git:results already\n")
    );
    let of_git = server.storebench(&["report", "git:results:demo", "-o", "json"]);
    let of_cluster = server.storebench(&["report", "benchmarkrun/demo", "-o", "json"]);
    assert_eq!((of_git.code, of_git.stdout), (Some(0), of_cluster.stdout));
    ApiServer::start(going_on(finished()))
        .storebench(&["export", "benchmarkrun/demo", "--to", "http://localhost:1/v1/metrics"])
        .error(&["benchmarkrun/demo is not complete (", "wait for it with: storebench wait benchmarkrun/demo"]);
}

/// The finished run, held against an earlier one in which the new store was half as fast again.
fn held() -> Contents {
    let mut figures = Figures::of(&from_json(&saved()).unwrap());
    figures.record.name = "earlier".into();
    for series in figures.series.iter_mut().filter(|one| one.arm == "new" && one.metric == Metric::THROUGHPUT) {
        series.values.iter_mut().for_each(|value| *value *= 1.5);
    }
    let baseline = Baseline { name: "last".into(), figures };
    let mut contents = finished();
    contents.config_maps[0]["data"]["baseline.json"] = serde_json::to_string(&baseline).unwrap().into();
    let run = contents.run.as_mut().unwrap();
    run["spec"]["baselineRef"] = json!({ "name": "last" });
    run["status"]["verdict"] = "Regressed".into();
    contents
}

#[test]
fn a_run_that_was_held_against_an_earlier_one_is_judged_together_with_it() {
    let server = ApiServer::start(held());
    let report = server.storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!((report.code, report.stderr.as_str()), (Some(2), ""), "{}", report.stdout);
    for part in ["against BenchmarkBaseline/last: worse by more than 5 %", "now / before", "as ratio to old"] {
        assert!(report.stdout.contains(part), "{part}: {}", report.stdout);
    }
    // One document for machines stays one.
    let report = server.storebench(&["report", "benchmarkrun/demo", "-o", "json"]);
    assert_eq!((report.code, report.report()["judgement"]["verdict"].as_str()), (Some(2), Some("Regressed")));
    assert!(report.stderr.contains("now / before"), "{}", report.stderr);
    let mut contents = held();
    contents.config_maps[0]["data"]["baseline.json"] = "[]".into();
    ApiServer::start(contents)
        .storebench(&["report", "benchmarkrun/demo"])
        .error(&["configmap/demo-report: baseline.json is not what storebench"]);
}

/// Files of other runs, and of a run of this name that was deleted a moment ago, are measurements of something else.
#[test]
fn files_of_other_runs_are_not_mixed_in() {
    let mut contents = finished();
    let [mut other_run, mut other_part, earlier] =
        ["a", "b", "c"].map(|name| config_map(name, if name == "c" { "u-0" } else { "u-1" }, "trial.json", "garbage"));
    other_run["metadata"]["labels"]["storebench.dev/run"] = "demo-2".into();
    other_part["metadata"]["labels"]["app.kubernetes.io/component"] = "store".into();
    contents.config_maps.extend([other_run, other_part, earlier]);
    let report = ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""));
}

#[test]
fn as_yaml_a_run_is_what_the_cluster_has() {
    let contents = finished();
    let mut expected = contents.run.clone().unwrap();
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    let report = ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo", "-o", "yaml"]);
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    let object: Value = serde_yaml::from_str(&report.stdout).unwrap();
    assert_eq!(object, expected, "fields that this version does not know included");
}

#[test]
fn a_run_that_goes_on_is_shown_as_far_as_it_is() {
    let mut contents = going_on(finished());
    contents.config_maps.truncate(5);
    let server = ApiServer::start(contents);
    let said = "benchmarkrun/demo is not complete (Running: trial 2 of 3): this is what there is so far";
    let report = server.storebench(&["report", "benchmarkrun/demo", "-o", "json"]);
    assert!(report.stderr.contains(said), "{}", report.stderr);
    assert_eq!(report.code, Some(4), "a run that goes on has not passed");
    let saved: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(saved["record"]["trials"].as_array().unwrap().len(), 4);
    assert_eq!(saved["judgement"]["message"], "not complete: read after 4 trials (old 2, new 2)");
    // Nor has it when what was shown is read again.
    std::fs::write(server.path().join("report.json"), report.stdout).unwrap();
    assert_eq!(server.storebench(&["report", "report.json"]).code, Some(4));
    let object = server.storebench(&["report", "benchmarkrun/demo", "-o", "yaml"]);
    assert!(object.stderr.contains(said), "{}", object.stderr);
    assert_eq!(object.code, Some(4));
}

#[test]
fn a_run_without_a_report_says_how_far_it_is() {
    let mut contents = going_on(finished());
    contents.run.as_mut().unwrap()["status"].as_object_mut().unwrap().remove("reportRef");
    ApiServer::start(contents.clone()).storebench(&["report", "benchmarkrun/demo"]).error(&[
        "benchmarkrun/demo in namespace bench has no report yet (Running: trial 2 of 3)",
        "storebench wait benchmarkrun/demo",
    ]);
    contents.run.as_mut().unwrap().as_object_mut().unwrap().remove("status");
    ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]).error(&["is the operator running?"]);
    // One that will never have one is not to be waited for.
    let mut ended = finished();
    ended.run.as_mut().unwrap()["status"].as_object_mut().unwrap().remove("reportRef");
    let said = ["benchmarkrun/demo in namespace bench ended without a report (", "make a new run"];
    ApiServer::start(ended).storebench(&["report", "benchmarkrun/demo"]).error(&said);
}

#[test]
fn what_is_missing_is_named() {
    let nothing = ApiServer::start(Contents::default());
    nothing
        .storebench(&["report", "benchmarkrun/demo"])
        .error(&["benchmarkrun/demo in namespace bench does not exist"]);
    nothing.storebench(&["report", "demo"]).error(&["demo: cannot be read", "or benchmarkrun/NAME"]);
    // What only reads what was saved does not send anybody to a cluster.
    for words in [&["history", "benchmarkrun/x"][..], &["compare", "benchmarkrun/x", "runs"]] {
        let said = nothing.storebench(words);
        assert!(
            said.stderr.contains("cannot be read") && !said.stderr.contains("or benchmarkrun/NAME"),
            "{}",
            said.stderr
        );
    }
    nothing.storebench(&["report", "demo", "-n", "bench"]).error(&["demo: a file has no namespace"]);
    let mut contents = finished();
    contents.config_maps.remove(0);
    ApiServer::start(contents)
        .storebench(&["report", "benchmarkrun/demo"])
        .error(&["configmap/demo-report, was deleted"]);
}

#[test]
fn a_file_of_a_trial_that_is_garbage_is_named() {
    for garbage in ["{\"trial\": 7}", "", "\u{7f}ELF\n"] {
        let mut contents = finished();
        contents.config_maps[3]["data"]["trial.json"] = garbage.into();
        let server = ApiServer::start(contents);
        server.storebench(&["report", "benchmarkrun/demo"]).error(&["configmap/demo-2", "trial.json"]);
    }
    let mut contents = finished();
    contents.config_maps[3]["data"].take();
    ApiServer::start(contents)
        .storebench(&["report", "benchmarkrun/demo"])
        .error(&["configmap/demo-2 has no trial.json"]);
}

#[test]
fn a_head_that_is_garbage_or_of_tomorrow_is_named() {
    let mut newer = head();
    newer["recordVersion"] = 2.into();
    for (text, part) in [("[]", "configmap/demo-report: record.json"), (&newer.to_string(), "recordVersion 2")] {
        let mut contents = finished();
        contents.config_maps[0]["data"]["record.json"] = text.into();
        ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]).error(&[part]);
    }
}

#[test]
fn a_run_of_tomorrow_is_not_guessed_at() {
    let mut contents = finished();
    contents.run.as_mut().unwrap()["status"]["verdict"] = "Splendid".into();
    ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]).error(&[
        "benchmarkrun/demo in namespace bench is not what this storebench understands: unknown variant `Splendid`",
        "use that of the operator's version",
    ]);
}

#[test]
fn a_verdict_that_the_trials_do_not_bear_out_is_pointed_out() {
    let mut contents = finished();
    contents.run.as_mut().unwrap()["status"]["verdict"] = "Regressed".into();
    let report = ApiServer::start(contents).storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!(report.code, Some(0));
    assert!(
        report.stderr.contains("benchmarkrun/demo: was judged Regressed then and is Passed now"),
        "{}",
        report.stderr
    );
}

#[test]
fn a_file_that_is_called_like_a_run_is_a_file() {
    let server = ApiServer::absent();
    std::fs::create_dir(server.path().join("benchmarkrun")).unwrap();
    std::fs::write(server.path().join("benchmarkrun/demo"), saved()).unwrap();
    let report = server.storebench(&["report", "benchmarkrun/demo"]);
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""));
}

/// What `report -` says of what no report is made of.
#[track_caller]
fn refused(input: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_storebench"));
    command.args(["report", "-"]).stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

/// It was told to pass what `run` has written, which it was.
#[test]
fn a_report_of_tomorrow_is_told_to_be_read_by_a_newer_storebench_and_nothing_else() {
    let said = refused(r#"{"record": {"recordVersion": 2, "storebenchVersion": "0.2.0"}}"#);
    assert!(said.trim_end().ends_with("use storebench 0.2.0 or newer"), "{said}");
}

#[test]
fn an_empty_list_of_reports_is_no_success() {
    let said = refused("[]\n");
    assert!(said.starts_with("storebench: -: the list of reports is empty: pass what `run` has written"), "{said}");
}
