//! Whether what scrapes the loads of runs that go on finds them, and nothing else: the PodMonitor and the example for Prometheus, held against the
//! pod that the operator makes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use storebench_core::archive::RUN_LABEL;

use super::load::{self, LOAD_CONTAINER, LoadRequest};
use super::*;
use super::{fixture, store};

/// The load of a trial whose store runs beside it, and has metrics of its own.
fn load_beside_a_store() -> PodTemplateSpec {
    let owner = Owner {
        namespace: "benchmarks".into(),
        reference: OwnerReference::default(),
        labels: [(MANAGED_BY_LABEL, MANAGED_BY), (RUN_LABEL, "nightly")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
    };
    let service = fixture::with_object_store(&json!({ "engine": "Litestream", "durability": "None" }));
    let beside = fixture::store(&service, &owner, "nightly-3-fast", store::beside_load);
    assert!(beside.is_some());
    let spec = json!({ "run": "nightly", "arm": "fast", "trial": 3, "seed": 1, "endpoints": ["s:1"], "workloads": [] });
    let labels = trial(3, "fast");
    fixture::load(spec, &owner, "nightly-3-fast", |request| {
        load::build(LoadRequest { labels: &labels, beside, ..request })
    })
    .unwrap()
    .job
    .spec
    .unwrap()
    .template
}

fn file(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The containers that have a port of that name, with its number.
fn with_port<'a>(pod: &'a PodTemplateSpec, name: &str) -> Vec<(&'a Container, i32)> {
    let spec = pod.spec.as_ref().unwrap();
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|container| container.ports.iter().flatten().map(move |port| (container, port)));
    ports.filter(|(_, port)| port.name.as_deref() == Some(name)).map(|(at, port)| (at, port.container_port)).collect()
}

/// What Prometheus makes of a label's name.
fn discovered(label: &str) -> String {
    let name = label.replace(|character: char| !character.is_ascii_alphanumeric(), "_");
    format!("__meta_kubernetes_pod_label_{name}")
}

#[track_caller]
fn check_port(pod: &PodTemplateSpec, name: &str) {
    let [(container, number)] = with_port(pod, name)[..] else {
        panic!("{name} is a port of other than one container");
    };
    assert_eq!(container.name, LOAD_CONTAINER);
    let listens = container.env.iter().flatten().find(|variable| variable.name == "BENCH_JOB_METRICS_LISTEN");
    assert_eq!(listens.unwrap().value, Some(format!("0.0.0.0:{number}")));
}

/// Fails unless run, arm and trial are what the pod's labels say. `rules` have fields of these names.
#[track_caller]
fn check_labels(pod: &PodTemplateSpec, rules: &Value, source: &str, target: &str) {
    let found: BTreeMap<_, _> = pod
        .metadata
        .iter()
        .flat_map(|metadata| metadata.labels.iter().flatten())
        .map(|(name, value)| (discovered(name), value.as_str()))
        .collect();
    let rules = rules.as_array().unwrap().iter().filter(|rule| rule.get("action").is_none());
    let shown: BTreeMap<_, _> =
        rules.filter_map(|rule| Some((rule[target].as_str()?, *found.get(rule[source][0].as_str()?)?))).collect();
    assert_eq!(shown, BTreeMap::from([("run", "nightly"), ("arm", "fast"), ("trial", "3")]));
}

/// A store beside the load calls its port `metrics`, too; asked every two seconds it would be disturbed.
#[test]
fn a_pod_monitor_finds_the_figures_of_a_load_and_not_those_of_the_store_beside_it() {
    let pod = load_beside_a_store();
    assert_eq!(with_port(&pod, "metrics").len(), 1, "the store's own");
    let spec = &file("manifests/monitoring/load.yaml")["spec"];
    let labels = pod.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    for (name, value) in spec["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(name).map(String::as_str), value.as_str(), "{name}");
    }
    let endpoint = &spec["podMetricsEndpoints"][0];
    check_port(&pod, endpoint["port"].as_str().unwrap());
    check_labels(&pod, &endpoint["relabelings"], "sourceLabels", "targetLabel");
}

#[test]
fn the_example_for_prometheus_finds_what_the_pod_monitor_finds() {
    let pod = load_beside_a_store();
    let configuration = file("grafana/prometheus.yaml");
    let jobs = configuration["scrape_configs"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["job_name"] == "storebench-load").unwrap();
    let selected = job["kubernetes_sd_configs"][0]["selectors"][0]["label"].as_str().unwrap();
    let labels = pod.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    for (name, value) in selected.split(',').map(|one| one.split_once('=').unwrap()) {
        assert_eq!(labels.get(name).map(String::as_str), Some(value), "{name}");
    }
    let rules = &job["relabel_configs"];
    let by_port = |rule: &&Value| rule["source_labels"][0] == "__meta_kubernetes_pod_container_port_name";
    check_port(&pod, rules.as_array().unwrap().iter().find(by_port).unwrap()["regex"].as_str().unwrap());
    check_labels(&pod, rules, "source_labels", "target_label");
    let monitor = &file("manifests/monitoring/load.yaml")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(job["scrape_interval"], monitor["interval"]);
}
