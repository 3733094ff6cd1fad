//! Every state of a run and of a service, as an API server would show it: `statuses/run-passed.yaml` and so on. The files
//! are what `testing/gitops` shows to kstatus, Argo CD and Flux.
//! `UPDATE_STATUSES=1 cargo test -p storebench-core --test statuses` rewrites them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: what does not read or write is a failure")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use storebench_core::conditions::{RunState, ServiceState, Stamp, of_run, of_service};
use storebench_core::input::load;
use storebench_core::reason::{PodReason, Reason};
use storebench_core::status::{fit, progress};
use storebench_crds::schema;
use storebench_crds::status::{BenchmarkRunStatus, ReportRef, TrialEntry, TrialState, Verdict};
use storebench_crds::storage_service::StorageServiceStatus;
use storebench_crds::{BenchmarkRun, StorageService};

const CREATED: &str = "2026-03-01T12:00:00Z";
const OBSERVED: &str = "2026-03-01T12:30:00Z";
const DELETED: &str = "2026-03-01T13:00:00Z";

const INPUT: &str = "
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: etcd }
spec: { engine: Etcd }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: demo }
spec:
  arms: [{ name: etcd, serviceRef: { name: etcd } }]
  workloads: [{ name: put, etcd: { operation: Put }, load: { total: 1000 } }]
";

/// An object of either kind, and what becomes of it over time.
struct Object {
    value: Value,
}

impl Object {
    fn new(mut value: Value, status: impl Serialize) -> Self {
        value["metadata"]["namespace"] = "benchmarks".into();
        value["metadata"]["generation"] = 1.into();
        value["metadata"]["creationTimestamp"] = CREATED.into();
        value["status"] = serde_json::to_value(status).unwrap();
        Self { value }
    }

    /// The user has changed the spec since the operator last looked.
    fn newer(mut self) -> Self {
        self.value["metadata"]["generation"] = 2.into();
        self
    }

    /// An API server counts the request to delete as a new generation.
    fn deleted(self, finalizer: &str) -> Self {
        let mut deleted = self.newer();
        deleted.value["metadata"]["deletionTimestamp"] = DELETED.into();
        deleted.value["metadata"]["finalizers"] = json!([finalizer]);
        deleted
    }

    fn suspended(mut self) -> Self {
        self.value["spec"]["suspend"] = true.into();
        self
    }
}

fn stamp() -> Stamp {
    let now: Timestamp = OBSERVED.parse().unwrap();
    Stamp { now: Time(now), generation: Some(1), previous: Vec::new() }
}

/// What the API server gives an object before its controller has seen it.
fn never_observed(kind: &str) -> Value {
    schema::of_kind(kind).unwrap()["properties"]["status"]["default"].clone()
}

fn run_object(status: impl Serialize) -> Object {
    let spec = load(&[("run".into(), INPUT.as_bytes().into())], Path::new("")).unwrap().runs.remove(0).spec;
    Object::new(serde_json::to_value(BenchmarkRun::new("demo", spec)).unwrap(), status)
}

/// A run in this state, as the operator writes it.
fn run(state: RunState, message: &str) -> Object {
    let spec = load(&[("run".into(), INPUT.as_bytes().into())], Path::new("")).unwrap().runs.remove(0).spec;
    let trial = |state| TrialEntry { index: 0, arm: "etcd".into(), job: None, state, reason: None };
    let trials = match state {
        RunState::Running => vec![trial(TrialState::Running)],
        RunState::Complete(_) => vec![trial(TrialState::Valid)],
        RunState::Queued | RunState::Suspended | RunState::Stalled(_) => Vec::new(),
    };
    let verdict = if let RunState::Complete(verdict) = state { Some(verdict) } else { None };
    run_object(fit(BenchmarkRunStatus {
        observed_generation: 1,
        conditions: of_run(state, message, &stamp()),
        verdict,
        report_ref: verdict.map(|_| ReportRef { name: "demo-report".into() }),
        ..progress(&spec, trials, message.into())
    }))
}

fn passed() -> Object {
    run(RunState::Complete(Verdict::Passed), "all 2 gates were met")
}

fn service_object(status: impl Serialize) -> Object {
    let input = load(&[("service".into(), INPUT.as_bytes().into())], Path::new("")).unwrap();
    let spec = input.services[0].spec.clone();
    Object::new(serde_json::to_value(StorageService::new("etcd", spec)).unwrap(), status)
}

/// A service in this state, as the operator writes it.
fn service(state: ServiceState, message: &str) -> Object {
    service_object(StorageServiceStatus {
        observed_generation: 1,
        conditions: of_service(state, message, &stamp()),
        ready_replicas: matches!(state, ServiceState::Ready { .. }).into(),
        endpoints: BTreeMap::from([("client".into(), "etcd.benchmarks.svc:2379".into())]),
        version: None,
        footprint: None,
    })
}

fn ready() -> Object {
    service(ServiceState::Ready { protocol: Some(true) }, "every member answers")
}

/// Every state by the name of its file.
fn states() -> BTreeMap<&'static str, Object> {
    use RunState::{Complete, Queued, Running, Stalled, Suspended};
    let hold = "suspended: set spec.suspend to false to go on";
    let invalid = "spec.workloads[0].load: rate is out of reach";
    let missing = "arm etcd: there is no StorageService/etcd in namespace benchmarks: create it";
    let probe = "protocol probe failed: watch: no event within 5 s";
    // Where a newer generation or a deletion must count, everything else says that all is well.
    BTreeMap::from([
        ("run-queued", run(Queued, "1 run goes first")),
        ("run-queued-and-suspended", run(Queued, "next in the queue").suspended()),
        ("run-running", run(Running, "trial 1 of at most 10: etcd is being loaded")),
        ("run-running-and-suspended", run(Running, "trial 1 of at most 10: etcd is being loaded").suspended()),
        ("run-suspended", run(Suspended, hold).suspended()),
        ("run-stalled-invalid-spec", run(Stalled(Reason::InvalidSpec), invalid)),
        ("run-stalled-service-missing", run(Stalled(Reason::ServiceMissing), missing)),
        ("run-passed", passed()),
        ("run-regressed", run(Complete(Verdict::Regressed), "put ThroughputPerSecond ≥ 0.90 × etcd: found 0.71")),
        ("run-inconclusive", run(Complete(Verdict::Inconclusive), "undecided: put ThroughputPerSecond ≥ 0.90 × etcd")),
        ("run-invalid", run(Complete(Verdict::Invalid), "etcd, trial 3: a wrong answer")),
        ("run-no-baseline", run(Complete(Verdict::NoBaseline), "the baseline could not be started")),
        ("run-never-observed", run_object(never_observed("BenchmarkRun"))),
        ("run-newer-generation", passed().newer()),
        ("run-being-deleted", passed().deleted("storebench.dev/clean-up")),
        ("service-starting", service(ServiceState::Starting, "0 of 1 members answer")),
        ("service-ready", ready()),
        ("service-ready-not-probed", service(ServiceState::Ready { protocol: None }, "every member answers")),
        ("service-ready-probe-failed", service(ServiceState::Ready { protocol: Some(false) }, probe)),
        ("service-external", service(ServiceState::External, "it is there already, at 10.0.0.7:2379")),
        ("service-stalled", service(ServiceState::Stalled(Reason::Pod(PodReason::CrashLoop)), "etcd-0: exited with 1")),
        ("service-never-observed", service_object(never_observed("StorageService"))),
        ("service-newer-generation", ready().newer()),
        ("service-being-deleted", ready().deleted("foregroundDeletion")),
    ])
}

#[test]
fn recorded_statuses_are_what_the_operator_writes() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/statuses");
    let states = states();
    for (name, object) in &states {
        let path = directory.join(format!("{name}.yaml"));
        let written = serde_yaml::to_string(&object.value).unwrap();
        if std::env::var_os("UPDATE_STATUSES").is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        let recorded = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            recorded == written,
            "{} is not what the operator writes; run: UPDATE_STATUSES=1 cargo test -p storebench-core --test statuses",
            path.display()
        );
    }
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(states.contains_key(name), "{} is no state of a run or a service: delete it", path.display());
    }
}

/// A verdict that is added to the API must be shown to the tools, too.
#[test]
fn every_verdict_is_recorded() {
    let recorded: Vec<Value> = states().into_values().map(|object| object.value["status"]["verdict"].clone()).collect();
    let verdicts = &schema::of_kind("BenchmarkRun").unwrap()["properties"]["status"]["properties"]["verdict"]["enum"];
    let verdicts = verdicts.as_array().unwrap_or_else(|| panic!("the schema lists no verdicts"));
    assert!(!verdicts.is_empty());
    for verdict in verdicts {
        assert!(recorded.contains(verdict), "no state has the verdict {verdict}: add one to `states`");
    }
}
