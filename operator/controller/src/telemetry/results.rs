//! The results of finished runs as metrics, so that a dashboard shows them without asking Kubernetes: those of
//! [`storebench_core::gauges`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use storebench_core::gauges::{self, Labels};
use storebench_crds::status::BenchmarkRunStatus;

use super::RUNS_MAX;
use crate::lock::lock;

type Real = Family<Labels, Gauge<f64, AtomicU64>>;

/// A finished run.
struct Shown {
    namespace: String,
    run: String,
    status: BenchmarkRunStatus,
}

/// Results by run. Rebuilt from the runs that are shown whenever that changes, so that nothing of a forgotten run stays.
pub(super) struct Results {
    shown: Mutex<VecDeque<Shown>>,
    gauges: BTreeMap<&'static str, Real>,
}

impl Results {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let mut gauges = BTreeMap::new();
        for (name, help) in gauges::all() {
            let gauge = Real::default();
            registry.register(name, help, gauge.clone());
            gauges.insert(name, gauge);
        }
        Self { shown: Mutex::default(), gauges }
    }

    /// Shows a finished run, unless it is shown already.
    pub(super) fn show(&self, namespace: &str, run: &str, status: &BenchmarkRunStatus) {
        let mut shown = lock(&self.shown);
        if shown.iter().any(|one| one.namespace == namespace && one.run == run) {
            return;
        }
        shown.push_back(Shown { namespace: namespace.into(), run: run.into(), status: status.clone() });
        if shown.len() > RUNS_MAX {
            shown.pop_front();
        }
        self.rebuild(&shown);
    }

    pub(super) fn forget(&self, namespace: &str, run: &str) {
        let mut shown = lock(&self.shown);
        let count = shown.len();
        shown.retain(|one| !(one.namespace == namespace && one.run == run));
        if shown.len() != count {
            self.rebuild(&shown);
        }
    }

    fn rebuild(&self, shown: &VecDeque<Shown>) {
        self.gauges.values().for_each(Family::clear);
        for Shown { namespace, run, status } in shown {
            gauges::read(status, |name, labels, value| {
                let gauge = self.gauges.get(name);
                debug_assert!(gauge.is_some(), "{name} is not registered");
                let of_run = [("namespace", namespace.clone()), ("run", run.clone())];
                let labels = of_run.into_iter().chain(labels).collect();
                if let Some(gauge) = gauge {
                    gauge.get_or_create(&labels).set(value);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;
    use storebench_crds::status::ArmResources;

    fn status() -> BenchmarkRunStatus {
        let latency = json!({ "p50Nanos": 1, "p99Nanos": 2_000_000_000u64, "maxNanos": 3 });
        serde_json::from_value(json!({
            "verdict": "Passed",
            "results": [{
                "workload": "put", "arm": "etcd", "trials": 3, "operations": 10, "errors": 0, "throughputMilli": 2_500,
                "serviceLatency": latency, "cpuNanosPerOperation": 4_000, "fsyncsPerThousandOperations": 1_500,
                "measures": [{ "metric": "PutLatencyP99Micros", "valueMilli": 640_500 }],
            }],
            "resources": [serde_json::to_value(ArmResources {
                arm: "etcd".into(), rss_peak_bytes: 7, cpu_average_millicores: 500, ..ArmResources::default()
            }).unwrap()],
            "comparisons": [{
                "workload": "put", "arm": "rusd", "baseline": "etcd", "metric": "ThroughputPerSecond", "trials": 3,
                "ratioBasisPoints": 12_000, "lowBasisPoints": 11_000, "highBasisPoints": 13_000, "detectableBasisPoints": 1,
            }],
            "baseline": {
                "name": "last", "run": "nightly", "measuredAt": "2026-01-01T00:00:00Z", "verdict": "Regressed", "message": "",
                "moved": [{
                    "workload": "put", "arm": "rusd", "metric": "ThroughputPerSecond", "control": "etcd", "outcome": "Missed",
                    "ratioBasisPoints": 8_000, "lowBasisPoints": 7_000, "highBasisPoints": 9_000,
                }],
            },
        }))
        .unwrap()
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_comparison_that_ranks_nobody_has_no_ratio_and_one_of_an_invalid_run_is_not_shown() {
        for (verdict, expected) in [("Passed", true), ("Invalid", false)] {
            let mut registry = Registry::default();
            let results = Results::new(&mut registry);
            let mut status = status();
            status.verdict = serde_json::from_value(json!(verdict)).unwrap();
            results.show("team", "ranked", &status);
            assert_eq!(text(&registry).contains("comparison_ratio{"), expected, "{verdict}");
            results.forget("team", "ranked");
            status.comparisons[0].not_ranked = Some("durability None against Fsync".into());
            results.show("team", "run", &status);
            let shown = text(&registry);
            assert!(!shown.contains("comparison_ratio{") && !shown.contains("comparison_ratio_low{"), "{shown}");
            assert_eq!(shown.contains("comparison_not_ranked{"), expected, "{shown}");
        }
    }

    #[test]
    fn everything_in_a_status_is_shown_by_its_name_and_forgotten_with_its_run() {
        let mut registry = Registry::default();
        let results = Results::new(&mut registry);
        results.show("team", "run", &status());
        let shown = text(&registry);
        let of_workload = r#"namespace="team",run="run",workload="put",arm="etcd""#;
        let of_comparison = r#"workload="put",arm="rusd",baseline="etcd",metric="ThroughputPerSecond""#;
        let of_baseline =
            r#"namespace="team",run="run",workload="put",arm="rusd",baseline="last",metric="ThroughputPerSecond""#;
        for line in [
            format!("result_throughput_per_second{{{of_workload}}} 2.5"),
            format!("result_cpu_seconds_per_operation{{{of_workload}}} 0.000004"),
            format!("result_fsyncs_per_operation{{{of_workload}}} 1.5"),
            format!(r#"result_measure{{{of_workload},metric="PutLatencyP99Micros"}} 640.5"#),
            format!(r#"result_latency_seconds{{{of_workload},quantile="0.99"}} 2.0"#),
            r#"result_memory_peak_bytes{namespace="team",run="run",arm="etcd"} 7.0"#.into(),
            r#"result_cpu_cores{namespace="team",run="run",arm="etcd",part="store"} 0.5"#.into(),
            format!(r#"comparison_ratio_low{{namespace="team",run="run",{of_comparison}}} 1.1"#),
            r#"run_verdict{namespace="team",run="run",verdict="Passed"} 1"#.into(),
            r#"baseline_verdict{namespace="team",run="run",baseline="last",verdict="Regressed"} 1"#.into(),
            format!(r#"baseline_ratio{{{of_baseline}}} 0.8"#),
            format!(r#"baseline_ratio_low{{{of_baseline}}} 0.7"#),
            format!(r#"baseline_ratio_high{{{of_baseline}}} 0.9"#),
        ] {
            assert!(shown.lines().any(|found| found.starts_with(&line)), "{line} is not in\n{shown}");
        }
        results.forget("team", "run");
        assert!(!text(&registry).contains("team"), "{}", text(&registry));
    }
}
