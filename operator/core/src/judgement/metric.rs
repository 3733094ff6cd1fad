//! One number from one workload of one trial, or of all trials, of which each counts alike. What a metric is, its descriptor says.

use storebench_crds::Metric;
use storebench_crds::metric::OverTrials;
use storebench_crds::status::LatencySummary;

use crate::record::{TrialRecord, WorkloadMeasurement};
use crate::statistics::{median, median_of_whole};

/// The metric's value in one trial, in the metric's unit; `None` where it was not measured. It may be zero, which has no ratio.
pub(super) fn value(trial: &TrialRecord, workload: &str, metric: Metric) -> Option<f64> {
    let measurement = trial.workloads.iter().find(|measurement| measurement.summary.name == workload)?;
    metric.value(measurement).filter(|value| value.is_finite() && *value >= 0.0)
}

/// The metric's value over trials, in the metric's unit. What one trial does not know, all of them together do not know.
pub(super) fn over_trials(metric: Metric, trials: &[&WorkloadMeasurement]) -> Option<f64> {
    let values: Vec<f64> = trials.iter().map(|trial| metric.value(trial)).collect::<Option<_>>()?;
    match metric.over_trials {
        OverTrials::Median => median(values),
        OverTrials::Largest => values.into_iter().max_by(f64::total_cmp),
    }
}

/// How few durations a trial has, where a percentile takes more: the median over trials, as percentiles are. `None`: there are enough.
pub(crate) fn too_few(durations: &[u64], needed: u64) -> Option<u64> {
    Some(median_of_whole(durations.to_vec())).filter(|found| *found < needed)
}

/// The statistics of a latency over trials, all at once; `None` of nothing.
pub(crate) fn latency_over_trials(trials: &[LatencySummary]) -> Option<LatencySummary> {
    let median = |field: fn(&LatencySummary) -> u64| median_of_whole(trials.iter().map(field).collect());
    Some(LatencySummary {
        mean_nanos: median(|one| one.mean_nanos),
        p50_nanos: median(|one| one.p50_nanos),
        p90_nanos: median(|one| one.p90_nanos),
        p95_nanos: median(|one| one.p95_nanos),
        p99_nanos: median(|one| one.p99_nanos),
        p999_nanos: median(|one| one.p999_nanos),
        max_nanos: trials.iter().map(|one| one.max_nanos).max()?,
    })
}
