//! Decides gates: an interval on the right side of the bound meets it, one on the wrong side misses it, one that contains
//! the bound decides nothing.
//!
//! A run passes only where all gates are met, which is no likelier by chance the more there are. It has regressed where one is missed, which
//! is: so a gate is missed where an interval is on the wrong side that is wider the more there are to decide, so that all together are as
//! sure as one.
//!
//! Nothing is decided by an interval that the loader or unequal arms made, whatever the gate says of what is undecided.

use storebench_crds::benchmark_run::{Bound, Gate, OnInconclusive, TRIALS_MAX};
use storebench_crds::metric::{Direction, OverTrials};
use storebench_crds::ratio::percent;
use storebench_crds::status::{Comparison, GateOutcome, GateResult, Verdict};

use super::Valid;
use super::compare::{
    NoRatio, baseline, is_never_measured, own_as_one_of, own_interval, ratio_as_one_of, why_no_ratio,
};
use super::limit as loader_limit;
use super::summary::withheld;
use crate::statistics::Interval;
use crate::units;

/// A decided gate, and what to make of it if it is undecided.
pub(super) struct Decided {
    pub(super) result: GateResult,
    pub(super) on_inconclusive: OnInconclusive,
    /// What would decide it, where only trials are missing.
    pub(super) to_do: Option<String>,
}

impl Decided {
    /// What a reader is shown: of a run whose numbers cannot be trusted no gate is met or missed.
    pub(super) fn result_of(self, verdict: Verdict) -> GateResult {
        match verdict {
            Verdict::Invalid => GateResult {
                outcome: GateOutcome::NotJudged,
                found: "the measurement cannot be trusted".into(),
                ..self.result
            },
            _ => self.result,
        }
    }
}

/// A bound on a value or a ratio.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Less is a miss.
    AtLeast(f64),
    /// More is a miss.
    AtMost(f64),
}

impl Limit {
    fn sign(self) -> char {
        match self {
            Self::AtLeast(_) => '≥',
            Self::AtMost(_) => '≤',
        }
    }
}

/// Decides every gate, once for each workload it applies to.
pub(super) fn decide(valid: &Valid, comparisons: &[Comparison]) -> Vec<Decided> {
    let mut questions = Vec::new();
    for gate in &valid.record.spec.gates {
        let applies = |name: &&str| gate.workload.as_deref().is_none_or(|wanted| wanted == *name);
        let workloads = valid.record.spec.workloads.iter().map(|workload| workload.name.as_str()).filter(applies);
        questions.extend(workloads.map(|workload| (gate, workload)));
    }
    let count = questions.len();
    questions.into_iter().map(|(gate, workload)| decide_one(valid, comparisons, gate, workload, count)).collect()
}

fn decide_one(valid: &Valid, comparisons: &[Comparison], gate: &Gate, workload: &str, count: usize) -> Decided {
    let subject = format!("{} {workload} {:?}", gate.arm, gate.metric);
    let ratio = |basis_points: u32| f64::from(basis_points) / 10_000.0;
    let against_ratio = |limit, basis_points: u32| {
        let bound = (limit, percent(basis_points.into()));
        against_baseline(valid, comparisons, gate, workload, count, &subject, bound)
    };
    let against_number = |limit| against_number(valid, gate, workload, count, &subject, limit);
    let decided = match gate.bound() {
        Some(Bound::RatioAtLeast(bound)) => against_ratio(Limit::AtLeast(ratio(bound)), bound),
        Some(Bound::RatioAtMost(bound)) => against_ratio(Limit::AtMost(ratio(bound)), bound),
        Some(Bound::AtLeast(bound)) => against_number(Limit::AtLeast(bound as f64)),
        Some(Bound::AtMost(bound)) => against_number(Limit::AtMost(bound as f64)),
        // The schema asks for exactly one bound; of a record that was written by something else it may be missing.
        None => Decided {
            result: GateResult {
                gate: subject,
                outcome: GateOutcome::NotJudged,
                found: "a bound that this storebench does not know".into(),
            },
            on_inconclusive: OnInconclusive::Fail,
            to_do: None,
        },
    };
    let decided = match not_measured(valid, gate, workload) {
        // As below.
        Some(found) => Decided {
            result: GateResult { outcome: GateOutcome::NotJudged, found, ..decided.result },
            on_inconclusive: OnInconclusive::Fail,
            to_do: None,
        },
        None => decided,
    };
    match too_few_requests(valid, gate, workload) {
        // A store that answers so seldom is not excused: its largest latency is no less than the percentile would be, and was too long.
        Some(found) if decided.result.outcome == GateOutcome::Missed => {
            let found = format!("{}; {found}", decided.result.found);
            Decided { result: GateResult { found, ..decided.result }, ..decided }
        }
        // More trials would not help, so that it is not for `onInconclusive`.
        Some(found) => Decided {
            result: GateResult { outcome: GateOutcome::NotJudged, found, ..decided.result },
            on_inconclusive: OnInconclusive::Fail,
            to_do: Some("measure longer in each trial (load.duration or load.total)".into()),
        },
        None => decided,
    }
}

/// Why the percentile that a gate is on is not told, so that reports leave it out; `None`: it is, or the gate is on something else.
fn too_few_requests(valid: &Valid, gate: &Gate, workload: &str) -> Option<String> {
    looked_at(valid, gate).find_map(|arm| withheld(valid, arm, workload, gate.metric))
}

/// That an arm has nothing of what a gate is on; `None`: it has, or no trial of it counts yet.
fn not_measured(valid: &Valid, gate: &Gate, workload: &str) -> Option<String> {
    let arm = looked_at(valid, gate).find(|arm| is_never_measured(valid, arm, workload, gate.metric))?;
    Some(format!("not measured of {arm}"))
}

/// The arms whose trials a gate looks at. A baseline that could not be started ends the run before.
fn looked_at<'a>(valid: &Valid<'a>, gate: &'a Gate) -> impl Iterator<Item = &'a str> {
    let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
    let baseline = baseline(valid.record).filter(|_| is_ratio).map(|baseline| baseline.name.as_str());
    std::iter::once(gate.arm.as_str()).chain(baseline)
}

/// What would decide a gate whose interval was too wide: an interval narrows with the square root of the number of trials.
fn to_do(valid: &Valid, limit: Limit, interval: Interval) -> String {
    const ASSUMED: &str = "if the true value is in the middle of what was found";
    let (Limit::AtLeast(bound) | Limit::AtMost(bound)) = limit;
    let Interval { low, high } = interval;
    if low == 0.0 {
        return "some trials have 0: measure longer in each (load.duration), or move the bound".into();
    }
    let (half_width, distance) =
        (interval.half_width_basis_points(), ((low * high).sqrt() / bound).ln().abs() * 10_000.0);
    let done = valid.indexes.len();
    // So many were not enough.
    let trials = (done as f64 * (half_width / distance).powi(2)).ceil().max(done as f64 + 2.0);
    let spec = &valid.record.spec.trials;
    if half_width.is_finite() && trials <= f64::from(TRIALS_MAX) {
        let (trials, narrow) = ((trials as u32).max(spec.max), distance as u32);
        let narrow = narrow.min(spec.target_interval_basis_points);
        return format!(
            "set trials.max to about {trials} and trials.targetIntervalBasisPoints to {narrow} or less, which decides it {ASSUMED}"
        );
    }
    format!(
        "it is so near to the bound that {TRIALS_MAX} trials would not decide it {ASSUMED}: measure longer in each (load.duration), or move \
         the bound"
    )
}

fn against_baseline(
    valid: &Valid,
    comparisons: &[Comparison],
    gate: &Gate,
    workload: &str,
    count: usize,
    subject: &str,
    (limit, bound): (Limit, String),
) -> Decided {
    let comparison = comparisons.iter().find(|comparison| {
        comparison.arm == gate.arm && comparison.workload == workload && comparison.metric == gate.metric
    });
    let name = comparison.map_or("the baseline", |comparison| comparison.baseline.as_str());
    let text = format!("{subject} {} {bound} of {name}", limit.sign());
    let decided = |outcome, found, on_inconclusive| Decided {
        result: GateResult { gate: text, outcome, found },
        on_inconclusive,
        to_do: None,
    };
    let Some(comparison) = comparison else {
        return match why_no_ratio(valid, &gate.arm, workload, gate.metric) {
            NoRatio::TooFew => {
                decided(GateOutcome::NotJudged, "too few valid pairs of trials".into(), gate.on_inconclusive)
            }
            // More trials would not help, so that it is not for `onInconclusive`.
            NoRatio::Zero => {
                let found = "some trials have 0, which has no ratio: bound the value itself (atMost, atLeast)";
                decided(GateOutcome::NotJudged, found.into(), OnInconclusive::Fail)
            }
            // Of what is the better the more there is, nothing is not enough.
            NoRatio::ZeroInAll if gate.metric.direction.more_is_better() => {
                decided(GateOutcome::NotJudged, "0 in every trial of both".into(), OnInconclusive::Fail)
            }
            NoRatio::ZeroInAll => decided(GateOutcome::Met, "0 in every trial of both".into(), gate.on_inconclusive),
        };
    };
    let [ratio, low, high] = [comparison.ratio_basis_points, comparison.low_basis_points, comparison.high_basis_points]
        .map(|basis_points| basis_points as f64 / 10_000.0);
    let [of_ratio, of_low, of_high] = [ratio, low, high].map(|ratio| format!("{:.1}", ratio * 100.0));
    let found = format!("{of_ratio} % ({of_low}–{of_high} %), {} pairs", comparison.trials);
    // `onInconclusive` is for an interval that is too wide, not for one that is of something else.
    let limited = || loader_limit::of_pair(valid, &gate.arm, &baseline(valid.record)?.name, workload);
    match (&comparison.not_ranked, limited()) {
        (Some(_), Some(why)) => decided(GateOutcome::Undecided, format!("{found}; {why}"), OnInconclusive::Fail),
        (Some(why), None) => decided(GateOutcome::NotJudged, format!("not ranked: {why}"), OnInconclusive::Fail),
        (None, _) => {
            let wide = || ratio_as_one_of(valid, &gate.arm, workload, gate.metric, count);
            let (outcome, wide) = together(outcome(low, high, limit), limit, count, wide);
            let looked_at = wide.unwrap_or(Interval { low, high });
            let shown = wide.map(|wide| {
                format!("; {:.1}–{:.1} % as one of {count} decisions", wide.low * 100.0, wide.high * 100.0)
            });
            let decided = decided(outcome, format!("{found}{}", shown.unwrap_or_default()), gate.on_inconclusive);
            let is_undecided = outcome == GateOutcome::Undecided;
            Decided { to_do: is_undecided.then(|| to_do(valid, limit, looked_at)), ..decided }
        }
    }
}

fn against_number(valid: &Valid, gate: &Gate, workload: &str, count: usize, subject: &str, limit: Limit) -> Decided {
    let (Limit::AtLeast(bound) | Limit::AtMost(bound)) = limit;
    let in_unit = |value: f64| units::exact(gate.metric.unit, value);
    let text = format!("{subject} {} {}", limit.sign(), in_unit(bound));
    let Some(interval) = own_interval(valid, &gate.arm, workload, gate.metric) else {
        let found = "too few valid trials".into();
        let result = GateResult { gate: text, outcome: GateOutcome::NotJudged, found };
        return Decided { result, on_inconclusive: gate.on_inconclusive, to_do: None };
    };
    let wide = || own_as_one_of(valid, &gate.arm, workload, gate.metric, count);
    let (outcome, wide) = match limit {
        // What must never be was once: no interval makes that a matter of chance.
        Limit::AtMost(0.0) if interval.high > 0.0 => (GateOutcome::Missed, None),
        _ => together(outcome(interval.low, interval.high, limit), limit, count, wide),
    };
    let looked_at = wide.unwrap_or(interval);
    let shown =
        wide.map(|wide| format!("; {} to {} as one of {count} decisions", in_unit(wide.low), in_unit(wide.high)));
    let found = format!("{} to {}{}", in_unit(interval.low), in_unit(interval.high), shown.unwrap_or_default());
    let may_be_of_loader = match gate.metric.direction {
        // A loader that is the limit makes a store look slower, never faster: a bound that was met all the same is met.
        Direction::Speed | Direction::Gain | Direction::Delay => outcome != GateOutcome::Met,
        // It asked too little for much to go wrong, to be made up for or to be kept, and may have been late by itself; and what a request costs
        // depends on how many share a sync.
        Direction::Cost | Direction::Harm | Direction::Lag => true,
    };
    let limited = may_be_of_loader.then(|| loader_limit::of_arm(valid, &gate.arm, workload));
    let (outcome, found, on_inconclusive, to_do) = match limited.flatten() {
        Some(why) => (GateOutcome::Undecided, format!("{found}; {why}"), OnInconclusive::Fail, None),
        None => {
            let is_undecided = outcome == GateOutcome::Undecided;
            let to_do = is_undecided.then(|| match (gate.metric.over_trials, limit) {
                (OverTrials::Largest, Limit::AtMost(_)) => {
                    "the largest of all trials counts, which more trials do not make smaller: see what happened in that one, or move the bound".into()
                }
                _ => to_do(valid, limit, looked_at),
            });
            (outcome, found, gate.on_inconclusive, to_do)
        }
    };
    Decided { result: GateResult { gate: text, outcome, found }, on_inconclusive, to_do }
}

/// What an outcome is as one of so many: a miss must stand at the confidence of all of them together. Also the interval that was looked at.
fn together(
    alone: GateOutcome,
    limit: Limit,
    count: usize,
    wide: impl FnOnce() -> Option<Interval>,
) -> (GateOutcome, Option<Interval>) {
    if alone != GateOutcome::Missed || count < 2 {
        return (alone, None);
    }
    match wide() {
        Some(wide) if outcome(wide.low, wide.high, limit) == GateOutcome::Missed => (alone, Some(wide)),
        wide => (GateOutcome::Undecided, wide),
    }
}

/// Ends of intervals are computed by logarithms, which do not give back what they were taken of: a count that is 3 in every trial comes out as
/// 3.0000000000000004, which is no more than 3.
const ROUNDING: f64 = 1e-9;

/// What an interval says of a bound.
pub(crate) fn outcome(low: f64, high: f64, limit: Limit) -> GateOutcome {
    match limit {
        Limit::AtLeast(bound) if low >= bound * (1.0 - ROUNDING) => GateOutcome::Met,
        Limit::AtLeast(bound) if high < bound * (1.0 - ROUNDING) => GateOutcome::Missed,
        Limit::AtMost(bound) if high <= bound * (1.0 + ROUNDING) => GateOutcome::Met,
        Limit::AtMost(bound) if low > bound * (1.0 + ROUNDING) => GateOutcome::Missed,
        _ => GateOutcome::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_the_bound_in_every_trial_meets_it() {
        for count in 1..=1_000 {
            let bound = f64::from(count);
            let end = bound.ln().exp();
            assert_eq!(outcome(end, end, Limit::AtMost(bound)), GateOutcome::Met, "at most {count}");
            assert_eq!(outcome(end, end, Limit::AtLeast(bound)), GateOutcome::Met, "at least {count}");
        }
    }

    #[test]
    fn only_a_whole_interval_decides() {
        assert_eq!(outcome(0.95, 1.05, Limit::AtLeast(0.9)), GateOutcome::Met);
        assert_eq!(outcome(0.85, 0.95, Limit::AtLeast(0.9)), GateOutcome::Undecided);
        assert_eq!(outcome(0.75, 0.85, Limit::AtLeast(0.9)), GateOutcome::Missed);
        assert_eq!(outcome(0.95, 1.05, Limit::AtMost(1.1)), GateOutcome::Met);
        assert_eq!(outcome(1.05, 1.15, Limit::AtMost(1.1)), GateOutcome::Undecided);
        assert_eq!(outcome(1.15, 1.25, Limit::AtMost(1.1)), GateOutcome::Missed);
    }
}
