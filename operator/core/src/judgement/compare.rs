//! Pairs the arms' numbers trial by trial and estimates ratios with their intervals.

use storebench_crds::benchmark_run::{ArmField, Bound};
use storebench_crds::metric::OverTrials;
use storebench_crds::status::{Comparison, NOISE_FLOOR, NoiseFloor};
use storebench_crds::{Metric, Workload};

use super::metric::value;
use super::summary::withheld;
use super::{ThroughputInterval, Valid, limit};
use crate::equality::{Differences, differences};
use crate::placement;
use crate::record::{ArmRecord, RunRecord, TrialRecord};
use crate::statistics::{
    self, Interval, PairedComparison, RESAMPLES_DEFAULT, TRIALS_MIN, confidence_of_each, effect_interval, log_ratios,
    serial_correlation,
};

/// Every available arm against the baseline, in every workload and metric that has enough trials.
pub(super) fn comparisons(valid: &Valid) -> Vec<Comparison> {
    let record = valid.record;
    let Some(baseline) = baseline(record) else { return Vec::new() };
    let mut comparisons = Vec::new();
    for workload in &record.spec.workloads {
        for arm in candidates(record, baseline) {
            let limited = limit::of_pair(valid, &arm.name, &baseline.name, &workload.name);
            let unequal = unequal(record, arm, baseline, workload).forbidden;
            let not_ranked = no_noise_floor(record, arm, baseline).or(unequal);
            let not_ranked = not_ranked.or_else(|| limited.map(|why| format!("undecided, for {why}")));
            for metric in Metric::all() {
                let not_ranked = not_ranked.clone().or_else(|| of_its_own_rate(workload, metric));
                let Some(paired) = paired(valid, arm, baseline, &workload.name, metric, confidence(record)) else {
                    continue;
                };
                comparisons.push(Comparison {
                    workload: workload.name.clone(),
                    arm: arm.name.clone(),
                    baseline: baseline.name.clone(),
                    metric,
                    ratio_basis_points: basis_points(paired.ratio),
                    low_basis_points: basis_points(paired.ratio_low),
                    high_basis_points: basis_points(paired.ratio_high),
                    trials: paired.trials as u32,
                    detectable_basis_points: basis_points(paired.smallest_detectable_ratio_change),
                    not_ranked,
                    noise_floor: None,
                });
            }
        }
    }
    with_noise_floor(comparisons)
}

/// Why what one waits for is not ranked where each arm was asked as much as it can answer in time; `None`: it is ranked.
fn of_its_own_rate(workload: &Workload, metric: Metric) -> Option<String> {
    let is_of_its_own = workload.load.highest_rate.is_some() && metric.direction.is_waiting();
    is_of_its_own.then(|| "each arm was measured at the highest rate that it could keep".to_owned())
}

/// Why an arm with the name of the noise floor is none; `None`: it is one, or has another name.
fn no_noise_floor(record: &RunRecord, arm: &ArmRecord, baseline: &ArmRecord) -> Option<String> {
    let store = |arm: &ArmRecord| (arm.service.clone(), arm.engine, arm.control_plane.clone());
    let is_one = record.spec.noise_floor && store(arm) == store(baseline);
    (arm.name == NOISE_FLOOR && !is_one)
        .then(|| format!("it has the name of the noise floor and is not {} once more", baseline.name))
}

/// Sets beside each comparison how the baseline compares with itself in the same metric and workload, where that was measured and may be told.
fn with_noise_floor(mut comparisons: Vec<Comparison>) -> Vec<Comparison> {
    let floors: Vec<Comparison> =
        comparisons.iter().filter(|one| one.arm == NOISE_FLOOR && one.not_ranked.is_none()).cloned().collect();
    for one in comparisons.iter_mut().filter(|one| one.arm != NOISE_FLOOR) {
        let floor = floors.iter().find(|floor| floor.workload == one.workload && floor.metric == one.metric);
        one.noise_floor = floor.map(|floor| NoiseFloor {
            ratio_basis_points: floor.ratio_basis_points,
            low_basis_points: floor.low_basis_points,
            high_basis_points: floor.high_basis_points,
        });
    }
    comparisons
}

/// In what an arm differs from the baseline besides what it is.
pub(super) fn unequal(record: &RunRecord, arm: &ArmRecord, baseline: &ArmRecord, workload: &Workload) -> Differences {
    let allowed = &record.spec.allow_unequal;
    let mut found = differences(&arm.terms(), &baseline.terms(), workload, allowed);
    if let Some(apart) = placement::apart(record, &arm.name, &baseline.name) {
        // On which nodes an arm may run is its `pod`.
        let kind = if allowed.contains(&ArmField::Pod) { &mut found.allowed } else { &mut found.forbidden };
        *kind = Some(kind.take().map_or(apart.clone(), |others| format!("{others}; {apart}")));
    }
    found
}

/// The arm that the others are compared with, if it could be started.
pub(super) fn baseline(record: &RunRecord) -> Option<&ArmRecord> {
    record.arms.iter().find(|arm| arm.baseline && arm.is_available())
}

pub(super) fn candidates<'a>(record: &'a RunRecord, baseline: &'a ArmRecord) -> impl Iterator<Item = &'a ArmRecord> {
    record.arms.iter().filter(|arm| arm.name != baseline.name && arm.is_available())
}

/// What an arm had in each trial. A metric that some trial lacks is not compared at all: leaving that trial out would choose the trials by
/// their result.
fn over_trials(valid: &Valid, arm: &str, workload: &str, metric: Metric) -> Option<Vec<f64>> {
    valid.trials(arm).into_iter().map(|trial| value(trial, workload, metric)).collect()
}

fn paired(
    valid: &Valid,
    arm: &ArmRecord,
    baseline: &ArmRecord,
    workload: &str,
    metric: Metric,
    confidence: f64,
) -> Option<PairedComparison> {
    let values = |arm: &ArmRecord| over_trials(valid, &arm.name, workload, metric);
    let (candidate, baseline) = (values(arm)?, values(baseline)?);
    let seed = valid.record.spec.trials.seed;
    PairedComparison::from_trials(&candidate, &baseline, confidence, RESAMPLES_DEFAULT, seed).ok()
}

/// At which confidence the intervals of a run are computed to be 95 % intervals.
fn confidence(record: &RunRecord) -> f64 {
    let trials = &record.spec.trials;
    statistics::confidence(trials.min, trials.max)
}

/// The ends of the interval of a ratio as one of so many that are to hold together; `None`: there is none.
pub(super) fn ratio_as_one_of(
    valid: &Valid,
    arm: &str,
    workload: &str,
    metric: Metric,
    count: usize,
) -> Option<Interval> {
    let record = valid.record;
    let arm = record.arms.iter().find(|one| one.name == arm)?;
    let each = confidence_of_each(confidence(record), count);
    let paired = paired(valid, arm, baseline(record)?, workload, metric, each)?;
    Some(Interval { low: paired.ratio_low, high: paired.ratio_high })
}

/// How much the ratios of throughput of an arm to the baseline's resemble those of the trial before, where that is more than chance.
pub(super) fn serial_correlation_of(valid: &Valid, arm: &str, workload: &str) -> Option<f64> {
    let values = |arm: &str| over_trials(valid, arm, workload, Metric::THROUGHPUT);
    let ratios = log_ratios(&values(arm)?, &values(&baseline(valid.record)?.name)?).ok()?;
    serial_correlation(&ratios)
}

/// Whether an arm has nothing of a metric, however many trials there are: it could not be started, or trials of it count and none has the metric.
pub(super) fn is_never_measured(valid: &Valid, arm: &str, workload: &str, metric: Metric) -> bool {
    let is_missing = valid.record.arms.iter().any(|one| one.name == arm && one.unavailable.is_some());
    let trials = valid.trials(arm);
    let has_it = |trial: &&TrialRecord| value(trial, workload, metric).is_some();
    is_missing || (!trials.is_empty() && !trials.iter().any(has_it))
}

/// Why there is no ratio of an arm to the baseline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRatio {
    /// There are too few trials, or some lack the metric.
    TooFew,
    /// Some trial has zero.
    Zero,
    /// Every trial of both has zero.
    ZeroInAll,
}

/// The same, where [`comparisons`] has none.
pub(super) fn why_no_ratio(valid: &Valid, arm: &str, workload: &str, metric: Metric) -> NoRatio {
    let values = |arm: &str| over_trials(valid, arm, workload, metric);
    let both = baseline(valid.record).and_then(|baseline| Some([values(arm)?, values(&baseline.name)?]));
    let Some(values) = both.filter(|both| both.iter().all(|values| values.len() >= TRIALS_MIN)) else {
        return NoRatio::TooFew;
    };
    let is_zero: Vec<bool> = values.iter().flatten().map(|value| *value == 0.0).collect();
    match (is_zero.contains(&true), is_zero.contains(&false)) {
        (true, false) => NoRatio::ZeroInAll,
        (true, true) => NoRatio::Zero,
        (false, _) => NoRatio::TooFew,
    }
}

/// The 95 % interval of an arm's own value over trials; `None` with too few trials.
pub(super) fn own_interval(valid: &Valid, arm: &str, workload: &str, metric: Metric) -> Option<Interval> {
    own_as_one_of(valid, arm, workload, metric, 1)
}

/// The same as one of so many that are to hold together. What has a value of its largest trial has that at its high end: most trials would hide
/// what happened in one.
pub(super) fn own_as_one_of(
    valid: &Valid,
    arm: &str,
    workload: &str,
    metric: Metric,
    count: usize,
) -> Option<Interval> {
    let values = over_trials(valid, arm, workload, metric)?;
    let Interval { low, high } = typical(valid, &values, count)?;
    let is_of_the_largest = metric.over_trials == OverTrials::Largest;
    Some(Interval { low, high: if is_of_the_largest { values.into_iter().fold(high, f64::max) } else { high } })
}

/// The interval of what a trial has, as one of so many.
fn typical(valid: &Valid, values: &[f64], count: usize) -> Option<Interval> {
    let each = confidence_of_each(confidence(valid.record), count);
    let interval =
        |values: &[f64]| effect_interval(values, each, RESAMPLES_DEFAULT, valid.record.spec.trials.seed).ok();
    if values.contains(&0.0) {
        // What is now and then zero varies by steps, not by factors, and an estimate that few trials can move says nothing of those few.
        let steps = interval(values)?;
        let largest = values.iter().copied().fold(steps.high, f64::max);
        return Some(Interval { low: 0.0, high: largest });
    }
    let Interval { low, high } = interval(&values.iter().map(|value| value.ln()).collect::<Vec<_>>())?;
    Some(Interval { low: low.exp(), high: high.exp() })
}

/// The interval of each arm's own throughput, for the bars.
pub(super) fn throughput_intervals(valid: &Valid) -> Vec<ThroughputInterval> {
    let mut intervals = Vec::new();
    for workload in &valid.record.spec.workloads {
        for arm in super::available(valid.record) {
            if let Some(interval) = own_interval(valid, arm, &workload.name, Metric::THROUGHPUT) {
                intervals.push(ThroughputInterval {
                    workload: workload.name.clone(),
                    arm: arm.into(),
                    low_milli: (interval.low * 1_000.0) as u64,
                    high_milli: (interval.high * 1_000.0) as u64,
                });
            }
        }
    }
    intervals
}

/// What tells the arms of a workload apart first: how many requests are answered, or, where a timetable says how many there are, how late.
pub(super) fn headline(valid: &Valid, workload: &Workload) -> Metric {
    if workload.load.given_rate().is_none() {
        return Metric::THROUGHPUT;
    }
    let is_withheld = |arm| withheld(valid, arm, &workload.name, Metric::LATENCY_P99).is_some();
    if super::available(valid.record).into_iter().any(is_withheld) { Metric::LATENCY_MEAN } else { Metric::LATENCY_P99 }
}

/// Whose precision decides when to stop.
struct Watched<'a> {
    arm: &'a ArmRecord,
    workload: &'a str,
    metric: Metric,
    /// What it is to be narrow of: the ratio to the baseline, or the arm's own value.
    is_ratio: bool,
}

/// Half-widths, in basis points of the estimate, of the intervals whose precision decides when to stop: those that gates look at, and, without
/// gates on ratios, those of every arm in every workload that are looked at first.
pub fn stop_half_widths(record: &RunRecord) -> Vec<f64> {
    let valid = Valid::of(record);
    let watched = watched(&valid);
    watched.into_iter().map(|one| half_width(&valid, &one).unwrap_or(f64::INFINITY)).collect()
}

fn half_width(valid: &Valid, watched: &Watched) -> Option<f64> {
    let Watched { arm, workload, metric, is_ratio } = *watched;
    if is_ratio {
        let paired = paired(valid, arm, baseline(valid.record)?, workload, metric, confidence(valid.record))?;
        return Some(paired.interval().half_width_basis_points());
    }
    // No number of trials narrows what the worst of them was.
    Some(typical(valid, &over_trials(valid, &arm.name, workload, metric)?, 1)?.half_width_basis_points())
}

fn watched<'a>(valid: &Valid<'a>) -> Vec<Watched<'a>> {
    let record = valid.record;
    let baseline_name = baseline(record).map(|baseline| baseline.name.as_str());
    let arms = || record.arms.iter().filter(|arm| arm.is_available());
    let candidates = || arms().filter(|arm| Some(arm.name.as_str()) != baseline_name);
    let mut watched = Vec::new();
    for gate in &record.spec.gates {
        let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
        if is_ratio && baseline_name.is_none() {
            continue;
        }
        for arm in arms().filter(|arm| arm.name == gate.arm) {
            let names = record.spec.workloads.iter().map(|workload| workload.name.as_str());
            let chosen = names.filter(|name| gate.workload.as_deref().is_none_or(|wanted| wanted == *name));
            watched.extend(chosen.map(|workload| Watched { arm, workload, metric: gate.metric, is_ratio }));
        }
    }
    if !watched.iter().any(|one| one.is_ratio) {
        for workload in &record.spec.workloads {
            let (metric, is_ratio) = (headline(valid, workload), baseline_name.is_some());
            watched.extend(candidates().map(|arm| Watched { arm, workload: &workload.name, metric, is_ratio }));
        }
    }
    watched
}

pub(super) fn basis_points(ratio: f64) -> u64 {
    (ratio * 10_000.0).round() as u64
}
