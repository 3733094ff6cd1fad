//! From a raw record to results, comparisons, gates and a verdict. Pure and repeatable: the same record always gives the
//! same judgement, on any machine.
//!
//! [`metric`] reads one number from one trial; [`compare`] pairs the arms' numbers and estimates ratios; [`summary`]
//! merges what all trials measured, [`requests`] what API servers said of theirs; [`limit`] finds comparisons that the loader
//! decides; [`standing`] decides what may be concluded from one; [`gate`] decides gates; [`verdict`] decides the run.

mod compare;
mod gate;
mod limit;
mod metric;
mod requests;
mod standing;
mod summary;
mod verdict;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storebench_crds::status::{ArmResources, Comparison, GateResult, Verdict, WorkloadResult};

use crate::ledger::complete_indexes;
use crate::record::{ArmRecord, RunRecord, TrialRecord};

pub use compare::stop_half_widths;
pub(crate) use gate::{Limit, outcome};
#[cfg(test)]
pub(crate) use metric::latency_over_trials;
pub(crate) use metric::too_few;
pub use requests::RequestResult;
pub(crate) use standing::{PARITY, Standing, in_order};
pub(crate) use summary::other_version;
pub(crate) use verdict::NOTHING_JUDGED;

/// What a record says.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict's reason in one line.
    pub message: String,
    /// What was measured, for each workload and available arm, over all valid trials.
    pub results: Vec<WorkloadResult>,
    /// What API servers said of their requests, by workload, arm and kind; the most frequent kinds first.
    #[serde(default)]
    pub requests: Vec<RequestResult>,
    /// Requests per second of each valid trial, in the order they ran: the dots of the trial scatter.
    pub points: Vec<TrialPoint>,
    /// What each arm cost.
    pub resources: Vec<ArmResources>,
    /// How each arm compares with the baseline, in every metric.
    pub comparisons: Vec<Comparison>,
    /// Intervals of each arm's own throughput, for the bars.
    pub intervals: Vec<ThroughputInterval>,
    /// How each gate was decided.
    pub gates: Vec<GateResult>,
    /// What a reader must know before believing a number: the driver's caveats and those found here.
    pub caveats: Vec<String>,
}

/// One trial's throughput and tail latency.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialPoint {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The trial's index.
    pub index: u32,
    /// When the trial began, milliseconds after the run did.
    pub started_millis: u64,
    /// Requests per second, in thousandths.
    pub throughput_milli: u64,
    /// 99th percentile of latency, nanoseconds; from the due instant in an open loop.
    pub p99_nanos: u64,
}

/// The 95 % interval of an arm's median throughput over trials.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThroughputInterval {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// Lower end, thousandths of a request per second.
    pub low_milli: u64,
    /// Upper end, thousandths of a request per second.
    pub high_milli: u64,
}

/// A record and what it says.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was asked and measured.
    pub record: RunRecord,
    /// What it says.
    pub judgement: Judgement,
}

/// The valid trials that count: those of indexes in which every available arm has one.
struct Valid<'a> {
    record: &'a RunRecord,
    indexes: Vec<u32>,
}

impl<'a> Valid<'a> {
    fn of(record: &'a RunRecord) -> Self {
        Self { record, indexes: complete_indexes(&available(record), &record.trials) }
    }

    /// One trial for each counted index, in order.
    fn trials(&self, arm: &str) -> Vec<&'a TrialRecord> {
        let of_index = |index: &u32| self.record.trials.iter().find(|trial| trial.index == *index && trial.arm == arm);
        self.indexes.iter().filter_map(of_index).collect()
    }
}

/// Names of the arms that could be started, in the spec's order.
pub fn available(record: &RunRecord) -> Vec<&str> {
    record.arms.iter().filter(|arm| arm.is_available()).map(|arm| arm.name.as_str()).collect()
}

/// The missing arm for the lack of which nothing can be compared: the baseline, or the only other one. `None`: something can, or nothing
/// was to be.
pub(crate) fn lacking(record: &RunRecord) -> Option<&ArmRecord> {
    let mut missing = record.arms.iter().filter(|arm| arm.unavailable.is_some());
    if record.arms.len() < 2 {
        return None;
    }
    let is_alone = available(record).len() < 2;
    missing.clone().find(|arm| arm.baseline).or_else(|| missing.next().filter(|_| is_alone))
}

/// Names of the arms that are worth measuring, in the spec's order: those that could be started, or none where nothing could be compared.
pub fn worth_measuring(record: &RunRecord) -> Vec<&str> {
    if lacking(record).is_some() { Vec::new() } else { available(record) }
}

/// A metric of an arm in every counted trial, in order, in the metric's unit; `None` where any of them lacks it, or has zero, which has no ratio.
///
/// # Errors
/// Of how few a percentile would be, which for that is not told.
pub(crate) fn paired_values(
    record: &RunRecord,
    arm: &str,
    workload: &str,
    metric: storebench_crds::Metric,
) -> Result<Option<Vec<f64>>, String> {
    let valid = Valid::of(record);
    if let Some(reason) = summary::withheld(&valid, arm, workload, metric) {
        return Err(reason);
    }
    let of = |trial| metric::value(trial, workload, metric).filter(|value| *value > 0.0);
    Ok(valid.trials(arm).into_iter().map(of).collect())
}

/// A metric of an arm over all trials that count, in the metric's unit: what reports show. `None` where any of them lacks it.
pub(crate) fn figure(record: &RunRecord, arm: &str, workload: &str, metric: storebench_crds::Metric) -> Option<f64> {
    metric::over_trials(metric, &summary::measurements(&Valid::of(record), arm, workload))
}

/// Why the loader was the limit of an arm in a workload, so that nothing is decided; `None`: it had time to spare.
pub(crate) fn limited_by_loader(record: &RunRecord, arm: &str, workload: &str) -> Option<String> {
    limit::of_arm(&Valid::of(record), arm, workload)
}

/// How many trials of an arm count.
pub(crate) fn counted_trials(record: &RunRecord, arm: &str) -> usize {
    Valid::of(record).trials(arm).len()
}

/// Judges a record.
pub fn judge(record: &RunRecord) -> Judgement {
    let valid = Valid::of(record);
    let mut comparisons = compare::comparisons(&valid);
    // A gate that is missed stays missed where the store was so slow that it had few requests.
    let gates = gate::decide(&valid, &comparisons);
    comparisons.retain(|one| {
        let is_told = |arm: &str| summary::withheld(&valid, arm, &one.workload, one.metric).is_none();
        is_told(&one.arm) && is_told(&one.baseline)
    });
    let (verdict, message) = verdict::decide(&valid, &comparisons, &gates);
    Judgement {
        verdict,
        message,
        results: summary::results(&valid),
        requests: requests::results(&valid),
        points: summary::points(&valid),
        resources: summary::resources(&valid),
        intervals: compare::throughput_intervals(&valid),
        caveats: summary::caveats(&valid, &comparisons),
        comparisons,
        gates: gates.into_iter().map(|gate| gate.result_of(verdict)).collect(),
    }
}
