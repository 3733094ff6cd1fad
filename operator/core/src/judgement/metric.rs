//! One number from one workload of one trial.

use storebench_crds::benchmark_run::Metric;
use storebench_crds::status::LatencySummary;

use crate::record::{TrialRecord, WorkloadMeasurement};

/// Every metric that is compared.
pub(super) const ALL: [Metric; 12] = [
    Metric::ThroughputPerSecond,
    Metric::LatencyMeanMicros,
    Metric::LatencyP50Micros,
    Metric::LatencyP90Micros,
    Metric::LatencyP95Micros,
    Metric::LatencyP99Micros,
    Metric::LatencyP999Micros,
    Metric::LatencyMaxMicros,
    Metric::CpuNanosPerOperation,
    Metric::MemoryPeakBytes,
    Metric::WriteBytesPerOperation,
    Metric::FsyncsPerThousandOperations,
];

/// The metric's value, in the metric's unit; `None` where it was not measured or is zero, which has no ratio.
pub(super) fn value(trial: &TrialRecord, workload: &str, metric: Metric) -> Option<f64> {
    let measurement = trial.workloads.iter().find(|measurement| measurement.summary.name == workload)?;
    let latency = latency(measurement);
    let micros = |nanos: u64| nanos as f64 / 1_000.0;
    let per_operation = |all: u64| all as f64 / measurement.summary.operations.max(1) as f64;
    let value = match metric {
        Metric::ThroughputPerSecond => throughput_per_second(measurement),
        Metric::LatencyMeanMicros => micros(latency.mean_nanos),
        Metric::LatencyP50Micros => micros(latency.p50_nanos),
        Metric::LatencyP90Micros => micros(latency.p90_nanos),
        Metric::LatencyP95Micros => micros(latency.p95_nanos),
        Metric::LatencyP99Micros => micros(latency.p99_nanos),
        Metric::LatencyP999Micros => micros(latency.p999_nanos),
        Metric::LatencyMaxMicros => micros(latency.max_nanos),
        Metric::CpuNanosPerOperation => per_operation(measurement.usage?.cpu_nanos),
        Metric::MemoryPeakBytes => measurement.usage?.rss_peak_bytes as f64,
        Metric::WriteBytesPerOperation => per_operation(measurement.usage?.written_bytes?),
        Metric::FsyncsPerThousandOperations => per_operation(measurement.fsyncs?) * 1_000.0,
    };
    (value.is_finite() && value > 0.0).then_some(value)
}

/// The latency that users would feel: from the due instant in an open loop, from the send in a closed one.
pub(super) fn latency(measurement: &WorkloadMeasurement) -> LatencySummary {
    measurement.summary.intended.unwrap_or(measurement.summary.service)
}

/// Requests answered per second of the measured phase.
pub(super) fn throughput_per_second(measurement: &WorkloadMeasurement) -> f64 {
    measurement.summary.operations as f64 * 1e9 / measurement.summary.elapsed_nanos.max(1) as f64
}

/// Whether more of it is better.
pub(super) fn more_is_better(metric: Metric) -> bool {
    metric == Metric::ThroughputPerSecond
}
