//! One number from one workload of one trial, or of all trials together. What a metric is, its descriptor says.

use storebench_crds::Metric;
use storebench_crds::job::{LatencyKind, Usage, WorkloadSummary, decode_histogram, latency_histogram};
use storebench_crds::measure::Reading;
use storebench_crds::metric::OverTrials;
use storebench_crds::status::LatencySummary;

use crate::record::{TrialRecord, WorkloadMeasurement};
use crate::statistics::median;

/// The metric's value in one trial, in the metric's unit; `None` where it was not measured. It may be zero, which has no ratio.
pub(super) fn value(trial: &TrialRecord, workload: &str, metric: Metric) -> Option<f64> {
    let measurement = trial.workloads.iter().find(|measurement| measurement.summary.name == workload)?;
    metric.value(measurement).filter(|value| value.is_finite() && *value >= 0.0)
}

/// The metric's value over trials, in the metric's unit. What one trial does not know, all of them together do not know.
pub(super) fn over_trials(
    metric: Metric,
    trials: &[&WorkloadMeasurement],
    pooled: &WorkloadMeasurement,
) -> Option<f64> {
    let values: Vec<f64> = trials.iter().map(|trial| metric.value(trial)).collect::<Option<_>>()?;
    match metric.over_trials {
        OverTrials::Median => median(values),
        OverTrials::Largest => values.into_iter().max_by(f64::total_cmp),
        OverTrials::Pooled => metric.value(pooled),
    }
}

/// All trials of a workload as if they were one: totals and histograms are added up.
pub(super) fn pooled(trials: &[&WorkloadMeasurement]) -> WorkloadMeasurement {
    let sum = |field: fn(&WorkloadSummary) -> u64| trials.iter().map(|one| field(&one.summary)).sum();
    WorkloadMeasurement {
        summary: WorkloadSummary {
            name: trials.first().map(|one| one.summary.name.clone()).unwrap_or_default(),
            operations: sum(|summary| summary.operations),
            errors: sum(|summary| summary.errors),
            elapsed_nanos: sum(|summary| summary.elapsed_nanos),
            verified: sum(|summary| summary.verified),
            service: merged(trials, LatencyKind::Service).unwrap_or_default(),
            intended: merged(trials, LatencyKind::Intended),
        },
        audit: None,
        usage: used(trials),
        control_plane: None,
        fsyncs: trials.iter().map(|one| one.fsyncs).sum(),
        // A reading that cannot be decoded was already refused by the driver that read it from the log.
        measures: Reading::all_together(&trials.iter().map(|one| &one.measures).collect::<Vec<_>>())
            .unwrap_or_default(),
        api_requests: None,
        start_skew_nanos: None,
        foreign_millicores: None,
        machines: Vec::new(),
        steps: Vec::new(),
        histograms: Vec::new(),
    }
}

/// What all trials used; `None` where one does not know.
fn used(trials: &[&WorkloadMeasurement]) -> Option<Usage> {
    let usages: Vec<Usage> = trials.iter().map(|one| one.usage).collect::<Option<_>>()?;
    let sum = |field: fn(&Usage) -> u64| usages.iter().map(field).sum();
    Some(Usage {
        elapsed_nanos: sum(|usage| usage.elapsed_nanos),
        cpu_nanos: sum(|usage| usage.cpu_nanos),
        rss_peak_bytes: usages.iter().map(|usage| usage.rss_peak_bytes).max().unwrap_or_default(),
        written_bytes: usages.iter().map(|usage| usage.written_bytes).sum(),
        ..Usage::default()
    })
}

fn merged(trials: &[&WorkloadMeasurement], kind: LatencyKind) -> Option<LatencySummary> {
    let mut merged = latency_histogram();
    let encoded = trials.iter().flat_map(|one| &one.histograms).filter(|one| one.latency == kind);
    for histogram in encoded {
        // A histogram that cannot be decoded was already refused by the driver that read it from the log.
        merged.add(decode_histogram(&histogram.data).ok()?).ok()?;
    }
    (!merged.is_empty()).then(|| LatencySummary::of(&merged))
}
