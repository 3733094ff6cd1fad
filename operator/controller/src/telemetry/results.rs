//! The results of finished runs as metrics, so that a dashboard shows them without asking Kubernetes. What is shown of a status is
//! said once, in [`read`]; metrics that have a descriptor come from there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use storebench_crds::Metric;
use storebench_crds::status::{
    ApiServerLatency, ArmResources, BenchmarkRunStatus, LatencySummary, RequestLatency, Verdict,
};

use super::RUNS_MAX;
use crate::context::lock;

/// Names and values, always in the same order for one metric.
type Labels = Vec<(&'static str, String)>;
type Real = Family<Labels, Gauge<f64, AtomicU64>>;

/// Metrics whose values are read from statuses, with what they are. Those with a descriptor say so themselves.
const SHOWN: [(&str, &str); 11] = [
    ("result_latency_seconds", "Latency percentiles over all trials; quantile 1 is the largest"),
    ("result_errors", "Requests that failed in the measured phases"),
    ("result_measure", "What else was measured, in the unit that the metric's name ends in"),
    (
        "result_request_seconds",
        "Latency as the API server above the store has it, of the requests that it answered and of those to the store",
    ),
    ("result_cpu_cores", "Processor use under load"),
    ("result_memory_peak_bytes", "Largest resident memory of the store"),
    ("comparison_ratio", "The arm's metric divided by the baseline's"),
    ("comparison_ratio_low", "Lower end of the 95 % interval of the ratio"),
    ("comparison_ratio_high", "Upper end of the 95 % interval of the ratio"),
    (
        "comparison_not_ranked",
        "1 for a comparison that has no ratio because the arms may not be ranked, as where durability differs",
    ),
    ("run_verdict", "1 for the verdict of a finished run"),
];

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
        let described = Metric::all().filter_map(|metric| Some((metric.gauge?.name, metric.about)));
        let mut gauges = BTreeMap::new();
        for (name, help) in described.chain(SHOWN) {
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
            read(status, |name, labels, value| {
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

/// Shows everything that a status has: the metric's name, labels besides those of the run, and the value.
fn read(status: &BenchmarkRunStatus, mut show: impl FnMut(&'static str, Labels, f64)) {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    for result in &status.results {
        let of_workload = |more: Labels| {
            let labels = [("workload", result.workload.clone()), ("arm", result.arm.clone())];
            labels.into_iter().chain(more).collect::<Labels>()
        };
        show("result_errors", of_workload(vec![]), result.errors as f64);
        for metric in Metric::all() {
            let value = if metric == Metric::THROUGHPUT {
                Some(result.throughput_milli as f64 / 1e3)
            } else {
                result.value(metric)
            };
            match (value, metric.gauge) {
                (Some(value), Some(gauge)) => show(gauge.name, of_workload(vec![]), value * gauge.scale),
                (Some(value), None) => show("result_measure", of_workload(vec![("metric", metric.name.into())]), value),
                (None, _) => {}
            }
        }
        for (requests, latency) in result.api_server.iter().flat_map(by_requests) {
            for (statistic, nanos) in statistics(&latency) {
                let labels = vec![("requests", requests.into()), ("statistic", statistic.into())];
                show("result_request_seconds", of_workload(labels), seconds(nanos));
            }
        }
        // What a user of the store would have seen: from the due instant where there was one.
        let latency = result.intended_latency.as_ref().unwrap_or(&result.service_latency);
        for (quantile, nanos) in quantiles(latency) {
            show("result_latency_seconds", of_workload(vec![("quantile", quantile.into())]), seconds(nanos));
        }
    }
    for resources in &status.resources {
        let arm = ("arm", resources.arm.clone());
        show("result_memory_peak_bytes", vec![arm.clone()], resources.rss_peak_bytes as f64);
        for (part, millicores) in by_part(resources) {
            show("result_cpu_cores", vec![arm.clone(), ("part", part.into())], millicores as f64 / 1e3);
        }
    }
    // Of an invalid run nothing may be concluded, and an alert concludes.
    let comparisons = status.comparisons.iter().filter(|_| status.verdict != Some(Verdict::Invalid));
    for comparison in comparisons {
        let labels = vec![
            ("workload", comparison.workload.clone()),
            ("arm", comparison.arm.clone()),
            ("baseline", comparison.baseline.clone()),
            ("metric", comparison.metric.name.into()),
        ];
        if comparison.not_ranked.is_some() {
            show("comparison_not_ranked", labels, 1.0);
            continue;
        }
        let ratios = [
            ("comparison_ratio", comparison.ratio_basis_points),
            ("comparison_ratio_low", comparison.low_basis_points),
            ("comparison_ratio_high", comparison.high_basis_points),
        ];
        for (name, basis_points) in ratios {
            show(name, labels.clone(), basis_points as f64 / 1e4);
        }
    }
    if let Some(verdict) = status.verdict {
        show("run_verdict", vec![("verdict", format!("{verdict:?}"))], 1.0);
    }
}

fn by_requests(latency: &ApiServerLatency) -> impl Iterator<Item = (&'static str, RequestLatency)> {
    let ApiServerLatency { writes, reads, store_writes, store_reads } = *latency;
    [("api writes", writes), ("api reads", reads), ("store writes", store_writes), ("store reads", store_reads)]
        .into_iter()
        .filter_map(|(requests, latency)| Some((requests, latency?)))
}

fn statistics(latency: &RequestLatency) -> [(&'static str, u64); 3] {
    [("mean", latency.mean_nanos), ("p50", latency.p50_nanos), ("p99", latency.p99_nanos)]
}

/// Thousandths of a core, of the parts that an arm has.
fn by_part(resources: &ArmResources) -> impl Iterator<Item = (&'static str, u64)> {
    let of_plane = resources.api_server.iter().flat_map(|server| {
        [("api server", server.cpu_average_millicores), ("controllers", server.others_cpu_average_millicores)]
    });
    std::iter::once(("store", resources.cpu_average_millicores)).chain(of_plane)
}

fn quantiles(latency: &LatencySummary) -> [(&'static str, u64); 6] {
    [
        ("0.5", latency.p50_nanos),
        ("0.9", latency.p90_nanos),
        ("0.95", latency.p95_nanos),
        ("0.99", latency.p99_nanos),
        ("0.999", latency.p999_nanos),
        ("1", latency.max_nanos),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

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
        ] {
            assert!(shown.lines().any(|found| found.starts_with(&line)), "{line} is not in\n{shown}");
        }
        results.forget("team", "run");
        assert!(!text(&registry).contains("team"), "{}", text(&registry));
    }
}
