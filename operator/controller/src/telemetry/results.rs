//! The results of finished runs as metrics, so that a dashboard shows them without asking Kubernetes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use storebench_crds::status::{ApiServerLatency, ArmResources, BenchmarkRunStatus, LatencySummary, RequestLatency};

use super::RUNS_MAX;
use crate::context::lock;

type Real = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfArm {
    namespace: String,
    run: String,
    arm: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWorkload {
    namespace: String,
    run: String,
    workload: String,
    arm: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQuantile {
    namespace: String,
    run: String,
    workload: String,
    arm: String,
    quantile: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequests {
    namespace: String,
    run: String,
    workload: String,
    arm: String,
    /// `api writes`, `api reads`, `store writes`, `store reads`.
    requests: &'static str,
    /// `mean`, `p50`, `p99`.
    statistic: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPart {
    namespace: String,
    run: String,
    arm: String,
    /// `store`, `api server`, `controllers`.
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfComparison {
    namespace: String,
    run: String,
    workload: String,
    arm: String,
    baseline: String,
    metric: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVerdict {
    namespace: String,
    run: String,
    verdict: String,
}

/// A finished run.
struct Shown {
    namespace: String,
    run: String,
    status: BenchmarkRunStatus,
}

/// Results by run. Rebuilt from the runs that are shown whenever that changes, so that nothing of a forgotten run stays.
#[derive(Default)]
pub(super) struct Results {
    shown: Mutex<VecDeque<Shown>>,
    throughput: Family<OfWorkload, Real>,
    latency: Family<OfQuantile, Real>,
    errors: Family<OfWorkload, Real>,
    cpu: Family<OfWorkload, Real>,
    written: Family<OfWorkload, Real>,
    fsyncs: Family<OfWorkload, Real>,
    requests: Family<OfRequests, Real>,
    cores: Family<OfPart, Real>,
    memory: Family<OfArm, Real>,
    ratio: Family<OfComparison, Real>,
    low: Family<OfComparison, Real>,
    high: Family<OfComparison, Real>,
    verdict: Family<OfVerdict, Gauge>,
}

impl Results {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let results = Self::default();
        let Self {
            shown: _,
            throughput,
            latency,
            errors,
            cpu,
            written,
            fsyncs,
            requests,
            cores,
            memory,
            ratio,
            low,
            high,
            verdict,
        } = &results;
        registry.register(
            "result_throughput_per_second",
            "Median over trials of requests per second",
            throughput.clone(),
        );
        registry.register(
            "result_latency_seconds",
            "Latency percentiles over all trials; quantile 1 is the largest",
            latency.clone(),
        );
        registry.register("result_errors", "Requests that failed in the measured phases", errors.clone());
        registry.register(
            "result_cpu_seconds_per_operation",
            "Processor time of the store for each request",
            cpu.clone(),
        );
        registry.register(
            "result_written_bytes_per_operation",
            "Written to the disk under the store, by whomever, for each request",
            written.clone(),
        );
        registry.register(
            "result_fsyncs_per_operation",
            "Syncs of the store's disk for each request, as the store counts them",
            fsyncs.clone(),
        );
        registry.register(
            "result_request_seconds",
            "Latency as the API server above the store has it, of the requests that it answered and of those to the store",
            requests.clone(),
        );
        registry.register("result_cpu_cores", "Processor use under load", cores.clone());
        registry.register("result_memory_peak_bytes", "Largest resident memory of the store", memory.clone());
        registry.register("comparison_ratio", "The arm's metric divided by the baseline's", ratio.clone());
        registry.register("comparison_ratio_low", "Lower end of the 95 % interval of the ratio", low.clone());
        registry.register("comparison_ratio_high", "Upper end of the 95 % interval of the ratio", high.clone());
        registry.register("run_verdict", "1 for the verdict of a finished run", verdict.clone());
        results
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
        let Self {
            shown: _,
            throughput,
            latency,
            errors,
            cpu,
            written,
            fsyncs,
            requests,
            cores,
            memory,
            ratio,
            low,
            high,
            verdict,
        } = self;
        throughput.clear();
        latency.clear();
        errors.clear();
        cpu.clear();
        written.clear();
        fsyncs.clear();
        requests.clear();
        cores.clear();
        memory.clear();
        ratio.clear();
        low.clear();
        high.clear();
        verdict.clear();
        for run in shown {
            self.add(run);
        }
    }

    fn add(&self, Shown { namespace, run, status }: &Shown) {
        let (namespace, run) = (|| namespace.clone(), || run.clone());
        for result in &status.results {
            let (workload, arm) = (|| result.workload.clone(), || result.arm.clone());
            let labels = OfWorkload { namespace: namespace(), run: run(), workload: workload(), arm: arm() };
            self.throughput.get_or_create(&labels).set(result.throughput_milli as f64 / 1e3);
            self.errors.get_or_create(&labels).set(result.errors as f64);
            if let Some(nanos) = result.cpu_nanos_per_operation {
                self.cpu.get_or_create(&labels).set(nanos as f64 / 1e9);
            }
            if let Some(bytes) = result.write_bytes_per_operation {
                self.written.get_or_create(&labels).set(bytes as f64);
            }
            if let Some(milli) = result.fsyncs_per_thousand_operations {
                self.fsyncs.get_or_create(&labels).set(milli as f64 / 1e3);
            }
            for (requests, latency) in result.api_server.iter().flat_map(by_requests) {
                for (statistic, nanos) in statistics(&latency) {
                    let (namespace, run, workload, arm) = (namespace(), run(), workload(), arm());
                    let labels = OfRequests { namespace, run, workload, arm, requests, statistic };
                    self.requests.get_or_create(&labels).set(nanos as f64 / 1e9);
                }
            }
            // What a user of the store would have seen: from the due instant where there was one.
            let latency = result.intended_latency.as_ref().unwrap_or(&result.service_latency);
            for (quantile, nanos) in quantiles(latency) {
                let labels =
                    OfQuantile { namespace: namespace(), run: run(), workload: workload(), arm: arm(), quantile };
                self.latency.get_or_create(&labels).set(nanos as f64 / 1e9);
            }
        }
        for resources in &status.resources {
            let labels = OfArm { namespace: namespace(), run: run(), arm: resources.arm.clone() };
            self.memory.get_or_create(&labels).set(resources.rss_peak_bytes as f64);
            for (part, millicores) in by_part(resources) {
                let labels = OfPart { namespace: namespace(), run: run(), arm: resources.arm.clone(), part };
                self.cores.get_or_create(&labels).set(millicores as f64 / 1e3);
            }
        }
        for comparison in &status.comparisons {
            let labels = OfComparison {
                namespace: namespace(),
                run: run(),
                workload: comparison.workload.clone(),
                arm: comparison.arm.clone(),
                baseline: comparison.baseline.clone(),
                metric: format!("{:?}", comparison.metric),
            };
            let ratio = |basis_points: u64| basis_points as f64 / 1e4;
            self.ratio.get_or_create(&labels).set(ratio(comparison.ratio_basis_points));
            self.low.get_or_create(&labels).set(ratio(comparison.low_basis_points));
            self.high.get_or_create(&labels).set(ratio(comparison.high_basis_points));
        }
        if let Some(verdict) = status.verdict {
            let labels = OfVerdict { namespace: namespace(), run: run(), verdict: format!("{verdict:?}") };
            self.verdict.get_or_create(&labels).set(1);
        }
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
