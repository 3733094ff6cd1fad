//! Finding one's way in a record and its judgement.

use serde::Serialize;
use storebench_crds::Metric;
use storebench_crds::status::{Comparison, TrialState, Verdict, WorkloadResult};
use storebench_crds::workload::{LoadMode, Workload};

use super::Report;
use crate::judgement::{Standing, ThroughputInterval};
use crate::record::{ArmRecord, TrialRecord};

/// The arm that the others are compared with.
pub(super) fn baseline(report: &Report) -> Option<&ArmRecord> {
    report.record.arms.iter().find(|arm| arm.baseline)
}

/// Arms that could be started, with their positions in the record (which decide their colours and shapes).
pub(super) fn started_arms(report: &Report) -> impl Iterator<Item = (usize, &ArmRecord)> {
    report.record.arms.iter().enumerate().filter(|(_, arm)| arm.is_available())
}

/// What one workload measured on one arm.
pub(super) fn result<'a>(report: &'a Report, workload: &str, arm: &str) -> Option<&'a WorkloadResult> {
    report.judgement.results.iter().find(|result| result.workload == workload && result.arm == arm)
}

/// The interval of an arm's throughput.
pub(super) fn interval<'a>(report: &'a Report, workload: &str, arm: &str) -> Option<&'a ThroughputInterval> {
    report.judgement.intervals.iter().find(|interval| interval.workload == workload && interval.arm == arm)
}

/// How an arm compares with the baseline in one metric.
pub(super) fn comparison<'a>(report: &'a Report, workload: &str, arm: &str, metric: Metric) -> Option<&'a Comparison> {
    report
        .judgement
        .comparisons
        .iter()
        .find(|found| found.workload == workload && found.arm == arm && found.metric == metric)
}

/// Arms that are compared with the baseline in this workload, in the record's order.
pub(super) fn compared_arms<'a>(report: &'a Report, workload: &str) -> Vec<(usize, &'a ArmRecord)> {
    started_arms(report)
        .filter(|(_, arm)| {
            report.judgement.comparisons.iter().any(|found| found.workload == workload && found.arm == arm.name)
        })
        .collect()
}

/// What may be concluded from a comparison.
pub(super) fn standing(report: &Report, comparison: &Comparison) -> Standing {
    match report.judgement.verdict {
        // Numbers of an invalid run are shown for diagnosis; nothing may be concluded from them.
        Verdict::Invalid => Standing::NotRanked,
        _ => Standing::of(comparison),
    }
}

/// Whether requests follow a timetable, so that latency is also measured from the instant they were due.
pub(super) fn is_open_loop(workload: &Workload) -> bool {
    workload.load.mode == LoadMode::OpenLoop
}

/// Valid trials of one arm.
pub(super) fn valid_trials<'a>(report: &'a Report, arm: &'a str) -> impl Iterator<Item = &'a TrialRecord> {
    report.record.trials.iter().filter(move |trial| trial.arm == arm && trial.state == TrialState::Valid)
}

/// A value of the API in the word that users write in YAML, such as `Fsync` or `WatchLatency`.
pub(super) fn api_word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
