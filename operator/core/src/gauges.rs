//! The figures of a finished run as gauges: names, labels and values, said once. The operator shows them to Prometheus, and
//! [`crate::otlp`] sends them; a dashboard of the one is a dashboard of the other. Metrics that have a descriptor come from there.

use storebench_crds::Metric;
use storebench_crds::status::{
    ApiServerLatency, ArmResources, BenchmarkRunStatus, LatencySummary, RequestLatency, Verdict,
};

/// What every name begins with, and an underscore.
pub const PREFIX: &str = "storebench";

/// Names and values, always in the same order for one gauge.
pub type Labels = Vec<(&'static str, String)>;

/// Gauges of what has no descriptor, with what they are.
const SHOWN: [(&str, &str); 15] = [
    ("result_latency_seconds", "Latency percentiles, of each the median over trials; quantile 1 is the largest of all"),
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
    (
        "baseline_ratio",
        "The arm's metric divided by what it was in the run that a BenchmarkBaseline keeps; where both measured an arm that did not change, \
         as ratios to that",
    ),
    ("baseline_ratio_low", "Lower end of the interval of that"),
    ("baseline_ratio_high", "Upper end of the interval of that"),
    ("baseline_verdict", "1 for what came of holding a finished run against a BenchmarkBaseline"),
    ("run_verdict", "1 for the verdict of a finished run"),
];

/// Every gauge: its name without the prefix, and what it is.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let described = Metric::all().filter_map(|metric| Some((metric.gauge?.name, metric.about)));
    described.chain(SHOWN)
}

/// Shows everything that a status has: the gauge's name without the prefix, labels besides those of the run, and the value.
pub fn read(status: &BenchmarkRunStatus, mut show: impl FnMut(&'static str, Labels, f64)) {
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
    if let Some(held) = &status.baseline {
        let baseline = ("baseline", held.name.clone());
        show("baseline_verdict", vec![baseline.clone(), ("verdict", format!("{:?}", held.verdict))], 1.0);
        for moved in &held.moved {
            let labels = vec![
                ("workload", moved.workload.clone()),
                ("arm", moved.arm.clone()),
                baseline.clone(),
                ("metric", moved.metric.name.into()),
            ];
            let ratios = [
                ("baseline_ratio", moved.ratio_basis_points),
                ("baseline_ratio_low", moved.low_basis_points),
                ("baseline_ratio_high", moved.high_basis_points),
            ];
            for (name, basis_points) in ratios {
                show(name, labels.clone(), basis_points as f64 / 1e4);
            }
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
