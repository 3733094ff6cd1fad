use proptest::prelude::*;
use serde_json::json;
use storebench_crds::benchmark_suite::BenchmarkSuiteStatus;
use storebench_crds::document::of_template;

use super::*;
use crate::conditions::{RunState, Stamp, of_run};
use crate::status::STATUS_BYTES_MAX;

fn suite(name: &str, parameters: Value) -> BenchmarkSuite {
    let used: Vec<String> =
        parameters.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().into()).collect();
    let text = used.iter().map(|name| format!("$({name})")).collect::<Vec<_>>().join(".");
    of_template(
        "BenchmarkSuite",
        json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSuite", "metadata": { "name": name },
            "spec": { "parameters": parameters, "template": { "spec": { "text": text } } },
        }),
    )
    .unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// A suite over value sizes, clients and stores of two classes of durability.
fn matrix() -> BenchmarkSuite {
    of_template(
        "BenchmarkSuite",
        json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSuite", "metadata": { "name": "sizes" },
            "spec": {
                "parameters": [
                    { "name": "durability", "values": ["fsync", "none"] },
                    { "name": "clients", "values": [1, 8] },
                    { "name": "valueBytes", "values": [64, 1024, 16384] },
                ],
                "template": {
                    "metadata": { "labels": { "team": "storage" } },
                    "spec": {
                        "arms": [{ "name": "etcd", "serviceRef": { "name": "etcd-$(durability)" } }],
                        "workloads": [{
                            "name": "put", "etcd": { "operation": "Put", "valueBytes": "$(valueBytes)" },
                            "load": { "connections": "$(clients)", "total": 100 },
                        }],
                    },
                },
            },
        }),
    )
    .unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn a_matrix_is_every_combination_and_the_last_parameter_varies_fastest() {
    let runs = expand(&matrix()).unwrap();
    assert_eq!(runs.len(), 12);
    let names: Vec<&str> = runs.iter().map(|(planned, _)| planned.name.as_str()).collect();
    assert_eq!(names[..4], ["sizes-fsync-1-64", "sizes-fsync-1-1024", "sizes-fsync-1-16384", "sizes-fsync-8-64"]);
    let (planned, run) = &runs[11];
    assert_eq!(planned.words(), "durability none, clients 8, valueBytes 16384");
    assert_eq!(run.spec.arms[0].service_ref.as_ref().unwrap().name, "etcd-none");
    assert_eq!(run.spec.workloads[0].load.connections, 8, "a number is a number");
    let labels = run.metadata.labels.as_ref().unwrap();
    let of = |name: &str| labels.get(name).map(String::as_str);
    assert_eq!(of("team"), Some("storage"));
    assert_eq!(of(SUITE_LABEL), Some("sizes"));
    assert_eq!(of(INDEX_LABEL), Some("11"));
    assert_eq!(of("parameter.storebench.dev/valueBytes"), Some("16384"));
}

#[test]
fn a_mistake_of_the_template_is_told_once_and_at_its_place() {
    let mut wrong = matrix();
    wrong.spec.template.spec["workloads"][0]["load"]["conections"] = json!(5);
    wrong.spec.template.spec["workloads"][0]["etcd"]["valueBytes"] = json!("$(durability)");
    let problems = expand(&wrong).unwrap_err();
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("spec.parameters[2].name: `valueBytes` is not used"), "{said:#?}");
    wrong.spec.parameters.pop();
    let said: Vec<String> = expand(&wrong).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(said.iter().any(|one| one.contains("BenchmarkSuite/sizes spec.template.spec.workloads[0].load.conections: is not a known field: did you mean connections?")), "{said:#?}");
    assert!(
        said.iter().any(|one| one.contains("valueBytes: must be a whole number, not the text `none`")
            && one.contains("(in the run of durability none, clients 1)")),
        "{said:#?}"
    );
}

#[test]
fn what_is_not_used_not_known_or_given_twice_is_told() {
    let mut wrong = matrix();
    wrong.spec.parameters[1].values.push(ParameterValue::Number(1));
    wrong.spec.template.spec["workloads"][0]["load"]["total"] = json!("$(totals)");
    let said: Vec<String> = plan(&wrong).unwrap_err().iter().map(ToString::to_string).collect();
    assert!(said[0].contains("spec.parameters[1].values[2]: `1` is there already"), "{said:#?}");
    assert!(said[1].contains("spec.template.spec.workloads[0].load.total: $(totals) names no parameter"), "{said:#?}");
    let capitals = suite("s", json!([{ "name": "a", "values": ["Fsync", "fsync"] }]));
    let said = plan(&capitals).unwrap_err()[0].to_string();
    assert!(said.contains("has runs of one name, s-fsync"), "{said}");
}

#[test]
fn names_tell_runs_apart_that_read_alike() {
    let planned =
        plan(&suite("s", json!([{ "name": "a", "values": ["1-2", "1"] }, { "name": "b", "values": ["3", "2-3"] }])));
    let names: Vec<String> = planned.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names[2], "s-1-3");
    assert!(names[0].starts_with("s-1-2-3-") && names[3].starts_with("s-1-2-3-"), "{names:?}");
    assert_ne!(names[0], names[3]);
}

const SKIPPED: SuiteRunState = SuiteRunState::Skipped;
const WAITING: SuiteRunState = SuiteRunState::Waiting;
const RUNNING: SuiteRunState = SuiteRunState::Running;
const PASSED: SuiteRunState = SuiteRunState::Passed;
const REGRESSED: SuiteRunState = SuiteRunState::Regressed;
const DELETED: SuiteRunState = SuiteRunState::Deleted;

#[test]
fn one_run_is_made_at_a_time_and_in_order() {
    let end = |verdict, stopped_by| Next::End { verdict, stopped_by };
    let cases: [(&[SuiteRunState], OnFailure, Next); 10] = [
        (&[WAITING, WAITING], OnFailure::Continue, Next::Make(0)),
        (&[RUNNING, WAITING], OnFailure::Continue, Next::Wait(0)),
        (&[PASSED, WAITING], OnFailure::Continue, Next::Make(1)),
        (&[REGRESSED, WAITING], OnFailure::Continue, Next::Make(1)),
        (&[REGRESSED, WAITING], OnFailure::Stop, end(Verdict::Regressed, Some(0))),
        (&[PASSED, DELETED, REGRESSED, WAITING], OnFailure::Stop, end(Verdict::Invalid, Some(1))),
        (&[REGRESSED, RUNNING], OnFailure::Stop, Next::Wait(1)),
        (&[DELETED, PASSED], OnFailure::Continue, end(Verdict::Invalid, None)),
        (&[PASSED, SKIPPED], OnFailure::Stop, end(Verdict::Passed, None)),
        (&[PASSED, PASSED], OnFailure::Stop, end(Verdict::Passed, None)),
    ];
    for (states, on_failure, expected) in cases {
        assert_eq!(next(states, on_failure), expected, "{states:?} {on_failure:?}");
    }
}

#[test]
fn what_became_of_a_run_stays_when_those_that_wait_are_left_out() {
    let mut states = [REGRESSED, DELETED, WAITING, SKIPPED, WAITING];
    leave_out(&mut states);
    assert_eq!(states, [REGRESSED, DELETED, SKIPPED, SKIPPED, SKIPPED]);
}

/// The largest suite that the schema allows, with the longest texts.
#[test]
fn the_status_of_the_largest_suite_is_small() {
    let long = |index: usize| format!("{index:02}{}", "v".repeat(30));
    let values = |from: usize, count: usize| (from..from + count).map(long).collect::<Vec<_>>();
    let parameters = json!([
        { "name": "a", "values": values(10, 4) }, { "name": "b", "values": values(20, 4) },
        { "name": "c", "values": values(30, 2) }, { "name": "d", "values": values(40, 2) },
    ]);
    let planned = plan(&suite(&"s".repeat(63), parameters)).unwrap();
    assert_eq!(planned.len(), RUNS_MAX);
    let ratio = || Some("1234.56 ±1234.56, not ranked".to_owned());
    let runs = planned.iter().map(|one| line(one, SuiteRunState::Inconclusive, ratio())).collect::<Vec<_>>();
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-03-01T12:30:00.123456Z".parse().unwrap());
    let stamp = Stamp { now, generation: Some(1_000_000), previous: Vec::new() };
    let message = "m".repeat(150);
    let status = BenchmarkSuiteStatus {
        observed_generation: 1_000_000,
        conditions: of_run(RunState::Complete(Verdict::Inconclusive), &message, &stamp),
        verdict: Some(Verdict::Inconclusive),
        progress: "64/64".into(),
        counts: Some(counts(&[SuiteRunState::Inconclusive; RUNS_MAX])),
        template_hash: Some("0".repeat(16)),
        message,
        runs,
    };
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes <= STATUS_BYTES_MAX, "{bytes} bytes");
}

proptest! {
    #[test]
    fn names_fit_and_differ(
        name in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        values in prop::collection::vec(prop::collection::btree_set("[a-z0-9]([-a-z0-9_.]{0,30}[a-z0-9])?", 1..4), 1..4),
    ) {
        let parameters: Vec<Value> =
            values.iter().enumerate().map(|(index, values)| json!({ "name": format!("p{index}"), "values": values })).collect();
        let planned = plan(&suite(&name, parameters.into())).unwrap();
        let mut names: Vec<&str> = planned.iter().map(|one| one.name.as_str()).collect();
        let pattern = regex_of_names();
        for name in &names {
            prop_assert!(pattern(name), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), planned.len());
    }
}

fn regex_of_names() -> impl Fn(&str) -> bool {
    |name| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&name.len()) && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
    }
}
