//! A run and a later one: of each arm that both measured, how its figures moved, and whether that is more than noise.
//!
//! Trials of two runs are unpaired, so the intervals are Welch's ([`UnpairedDifference`]); of those that decide, all hold together in 95 of
//! 100 comparisons (Bonferroni), so that many metrics make no more false alarms than one.

use std::collections::BTreeSet;

use serde::Serialize;
use storebench_crds::Metric;
use storebench_crds::status::{GateOutcome, Verdict};

use super::conditions::{Differences, Part};
use super::{AcrossError, Figures, Measured, arms, control, decides, few};
use crate::judgement::{Limit, Report, outcome, worth_measuring};
use crate::record::RunRecord;
use crate::statistics::{CONFIDENCE_DEFAULT, UnpairedDifference, confidence_of_each, confidence_of_two};

/// One of two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// The version of storebench that ran it.
    pub storebench_version: String,
    /// What it was judged by itself.
    pub verdict: Verdict,
}

impl Side {
    fn of(figures: &Figures) -> Self {
        Self {
            started_at: figures.record.started_at.clone(),
            storebench_version: figures.record.storebench_version.clone(),
            verdict: figures.verdict,
        }
    }
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Against {
    /// The figures as they were measured, with all that moved on the machine in between.
    Nothing,
    /// Ratios to this arm, which did not change.
    Control(String),
}

impl Against {
    /// The arm to which ratios are.
    pub(super) fn control(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Control(control) => Some(control),
        }
    }
}

/// What may be said of one metric of one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Not worse than is tolerated, with its whole interval.
    Kept,
    /// Worse than is tolerated, with its whole interval.
    Worse,
    /// The trials cannot tell.
    Undecided,
    /// Shown, and decides nothing.
    Shown,
}

/// One metric of one arm in one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// What is compared.
    pub against: Against,
    /// The second run divided by the first, basis points (10 000 = equal).
    pub ratio_basis_points: u64,
    /// Lower end of its interval.
    pub low_basis_points: u64,
    /// Upper end of its interval.
    pub high_basis_points: u64,
    /// Trials of the first run, and of the second.
    pub trials: [u32; 2],
    /// What may be said.
    pub outcome: Outcome,
}

/// Two runs of one name, one beside the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TwoRuns {
    /// The run's name; of two names, that of the second.
    pub run: String,
    /// The first.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// In what their circumstances differ.
    pub differences: Differences,
    /// How much worse a metric may be, basis points.
    pub tolerance_basis_points: u32,
    /// Confidence of the intervals that decide, in hundredths of a percent.
    pub confidence_basis_points: u32,
    /// What moved, and by how much.
    pub rows: Vec<Row>,
    /// What was not compared, and why.
    pub left_out: Vec<String>,
    /// Passed, Regressed, Inconclusive, or Invalid where either run was.
    pub verdict: Verdict,
    /// Why, in one line.
    pub message: String,
}

impl TwoRuns {
    /// Compares a run with an earlier one.
    ///
    /// # Errors
    /// [`AcrossError`] where the machines are unlike and that is not allowed, or where nothing can be compared.
    pub fn of(
        before: &Report,
        after: &Report,
        tolerance_basis_points: u32,
        allow_different_machine: bool,
    ) -> Result<Self, AcrossError> {
        Self::between(&Figures::of(before), &Figures::of(after), tolerance_basis_points, allow_different_machine)
    }

    /// The same of what is kept of runs.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn between(
        before: &Figures,
        after: &Figures,
        tolerance_basis_points: u32,
        allow_different_machine: bool,
    ) -> Result<Self, AcrossError> {
        let differences = Differences::of(&before.record, &after.record);
        let (run, started) =
            (after.record.name.clone(), [before, after].map(|figures| figures.record.started_at.clone()));
        let [first, second] = started;
        check_machines(&before.record, &after.record, allow_different_machine)?;
        let counted = |arm: &str| [before, after].map(|figures| figures.counted(arm));
        let (common, mut left_out) = in_common(&before.record, &after.record, counted);
        let control = control(&before.record, &after.record).map(|arm| arm.name.clone());
        let control = control.as_deref();
        let deciding = common.iter().filter(|one| one.decides(control, before, after)).count();
        let of_one =
            confidence_of_two([before, after].map(|one| (one.record.spec.trials.min, one.record.spec.trials.max)));
        let confidence = confidence_of_each(of_one, deciding);
        let tolerance = f64::from(tolerance_basis_points) / 10_000.0;
        let mut rows = Vec::new();
        for one in &common {
            let is_deciding = one.decides(control, before, after);
            let own_confidence = if is_deciding { confidence } else { of_one };
            let against = one.against(control, before, after);
            let Some(difference) = one.difference(against, before, after, own_confidence) else {
                left_out.extend(one.why_not(control, before, after));
                continue;
            };
            let mut row = one.row(against, difference, is_deciding.then_some(tolerance));
            if row.outcome != Outcome::Shown && limited(before, after, &row).is_some() {
                row.outcome = Outcome::Undecided;
            }
            rows.push(row);
        }
        if rows.is_empty() {
            let why = match (invalid(before, after), left_out.is_empty()) {
                (Some(invalid), _) => invalid,
                (None, true) => "too few valid trials".into(),
                (None, false) => left_out.join("; "),
            };
            return Err(AcrossError::NothingInCommon { run, before: first, after: second, why });
        }
        let (verdict, mut message) = decide(before, after, &rows, tolerance_basis_points);
        if verdict != Verdict::Invalid && !left_out.is_empty() {
            message = format!("{message}; {} left out: {}", left_out.len(), few(&left_out));
        }
        let pair = Self {
            run,
            before: Side::of(before),
            after: Side::of(after),
            differences,
            tolerance_basis_points,
            confidence_basis_points: (confidence * 10_000.0).round() as u32,
            rows,
            left_out,
            verdict,
            message,
        };
        Ok(pair.whole(before, after, control))
    }

    /// A comparison that lacks an arm, a workload or a figure of the first run has not passed.
    fn whole(self, before: &Figures, after: &Figures, control: Option<&str>) -> Self {
        // What was kept when nobody looked of how few it was is not lost where somebody has looked.
        let is_told = |one: &&Measured| {
            before.withheld.is_some() || after.withheld(&one.arm, &one.workload, one.metric).is_none()
        };
        let kept = before.series.iter().filter(is_told).filter(|one| {
            arms(&before.record).any(|arm| arm.name == one.arm)
                && decides(&before.record, &one.workload, one.metric)
                && Some(one.arm.as_str()) != control
        });
        let compared = || self.rows.iter().filter(|row| row.outcome != Outcome::Shown);
        let lost = kept.filter_map(|one| {
            if compared().all(|row| row.arm != one.arm) {
                Some(format!("arm {}", one.arm))
            } else if compared().all(|row| row.workload != one.workload) {
                Some(format!("workload {}", one.workload))
            } else {
                let is_it = |row: &Row| (&row.arm, &row.workload, row.metric) == (&one.arm, &one.workload, one.metric);
                let name = || format!("{} of {} in {}", one.metric.words, one.arm, one.workload);
                (!compared().any(is_it)).then(name)
            }
        });
        let lacking: BTreeSet<String> = lost.collect();
        if lacking.is_empty() || self.verdict != Verdict::Passed {
            return self;
        }
        let lacking = lacking.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!("a part of the first run was not compared: {lacking}; {}", self.message);
        Self { verdict: Verdict::Inconclusive, message, ..self }
    }
}

/// Refuses runs of unlike machines, unless they are allowed.
///
/// # Errors
/// [`AcrossError::OtherMachine`], which names what differs.
fn check_machines(before: &RunRecord, after: &RunRecord, allow_different: bool) -> Result<(), AcrossError> {
    let differences = Differences::of(before, after);
    let machine = differences.of_part(Part::Machine);
    let facts: Vec<String> = machine.map(|one| format!("{}: {}, then {}", one.what, one.before, one.after)).collect();
    if facts.is_empty() || allow_different {
        return Ok(());
    }
    let [run, first, second] = [&after.name, &before.started_at, &after.started_at].map(Clone::clone);
    Err(AcrossError::OtherMachine { run, before: first, after: second, facts: facts.join("; ") })
}

/// Refuses, before it is measured, a run of which it is known already that nothing of it could be compared with an earlier one.
///
/// # Errors
/// [`AcrossError`], as [`TwoRuns::of`] would have it afterwards.
pub fn check_comparable(before: &RunRecord, after: &RunRecord, allow_different: bool) -> Result<(), AcrossError> {
    check_machines(before, after, allow_different)?;
    let (common, left_out) = in_common(before, after, |_| [0; 2]);
    // What lacks a store of its own says by itself what to install.
    if !common.is_empty() || worth_measuring(after).is_empty() {
        return Ok(());
    }
    let [run, first, second] = [&after.name, &before.started_at, &after.started_at].map(Clone::clone);
    Err(AcrossError::NothingInCommon { run, before: first, after: second, why: left_out.join("; ") })
}

/// What both runs may have measured.
struct Common {
    workload: String,
    arm: String,
    metric: Metric,
    trials: [u32; 2],
}

impl Common {
    fn difference(
        &self,
        against: Option<&str>,
        before: &Figures,
        after: &Figures,
        confidence: f64,
    ) -> Option<UnpairedDifference> {
        let of = |figures: &Figures| figures.logarithms(&self.arm, against, &self.workload, self.metric);
        UnpairedDifference::of(&of(before)?, &of(after)?, confidence).ok()
    }

    /// The control, where both runs have its figure: with none of it, what moved besides the arms moves the arm's own.
    fn against<'a>(&self, control: Option<&'a str>, before: &Figures, after: &Figures) -> Option<&'a str> {
        let is_known = |control: &str| [before, after].iter().all(|one| one.has(control, &self.workload, self.metric));
        control.filter(|control| *control != self.arm && is_known(control))
    }

    /// The control shows what moved besides the arms, and is judged by nothing.
    fn decides(&self, control: Option<&str>, before: &Figures, after: &Figures) -> bool {
        let against = self.against(control, before, after);
        decides(&after.record, &self.workload, self.metric)
            && control != Some(&self.arm)
            && self.difference(against, before, after, CONFIDENCE_DEFAULT).is_some()
    }

    /// Why a metric that would decide is not compared; `None`: it decides nothing, or neither run has it.
    fn why_not(&self, control: Option<&str>, before: &Figures, after: &Figures) -> Option<String> {
        if !decides(&after.record, &self.workload, self.metric) || control == Some(&self.arm) {
            return None;
        }
        let has = |figures: &Figures| figures.has(&self.arm, &self.workload, self.metric);
        let (why, other) = match (has(before), has(after)) {
            (false, false) => return None,
            (true, false) => ("is in the first run only", after),
            (false, true) => ("is in the second run only", before),
            (true, true) => ("has too few valid trials", after),
        };
        let withheld = other.withheld(&self.arm, &self.workload, self.metric);
        let of_too_few = withheld.map_or_else(String::new, |reason| format!(" ({reason})"));
        Some(format!("{} of {} in {} {why}{of_too_few}", self.metric.words, self.arm, self.workload))
    }

    fn row(&self, against: Option<&str>, difference: UnpairedDifference, tolerance: Option<f64>) -> Row {
        let (low, high) = (difference.interval.low.exp(), difference.interval.high.exp());
        let outcome = tolerance.map_or(Outcome::Shown, |tolerance| {
            let limit = match self.metric.direction.more_is_better() {
                true => Limit::AtLeast(1.0 - tolerance),
                // The same in the other direction: what takes longer is held against the bound by its inverse.
                false => Limit::AtMost(1.0 / (1.0 - tolerance)),
            };
            match outcome(low, high, limit) {
                GateOutcome::Met => Outcome::Kept,
                GateOutcome::Missed => Outcome::Worse,
                GateOutcome::Undecided | GateOutcome::NotJudged => Outcome::Undecided,
            }
        });
        let basis_points = |ratio: f64| (ratio * 10_000.0).round() as u64;
        Row {
            workload: self.workload.clone(),
            arm: self.arm.clone(),
            metric: self.metric,
            against: against.map_or(Against::Nothing, |control| Against::Control(control.into())),
            ratio_basis_points: basis_points(difference.estimate.exp()),
            low_basis_points: basis_points(low),
            high_basis_points: basis_points(high),
            trials: self.trials,
            outcome,
        }
    }
}

/// Workloads, arms and metrics of which both runs asked the same; and what is left out, with the reason.
/// `counted` has how many trials of an arm count in each.
fn in_common(before: &RunRecord, after: &RunRecord, counted: impl Fn(&str) -> [u32; 2]) -> (Vec<Common>, Vec<String>) {
    let (mut common, mut left_out) = (Vec::new(), Vec::new());
    let mut alike = Vec::new();
    for arm in arms(after) {
        let name = &arm.name;
        match before.arms.iter().find(|other| other.name == *name) {
            None => left_out.push(format!("arm {name} is in the second run only")),
            Some(other) if other.engine != arm.engine => left_out.push(format!("arm {name} is another store")),
            Some(other) if other.durability != arm.durability => {
                left_out.push(format!("arm {name} has another durability"));
            }
            Some(other) if other.control_plane.is_some() != arm.control_plane.is_some() => {
                left_out.push(format!("arm {name} is a store in one run and Kubernetes in the other"));
            }
            Some(other) if other.unavailable.is_some() || arm.unavailable.is_some() => {
                left_out.push(format!("arm {name} was not measured in both runs"));
            }
            Some(_) => alike.push(name),
        }
    }
    let only_before = arms(before).filter(|arm| after.arms.iter().all(|other| other.name != arm.name));
    left_out.extend(only_before.map(|arm| format!("arm {} is in the first run only", arm.name)));
    let is_gone = |name: &String| after.spec.workloads.iter().all(|other| other.name != *name);
    let gone = before.spec.workloads.iter().map(|workload| &workload.name).filter(|name| is_gone(name));
    left_out.extend(gone.map(|name| format!("workload {name} is in the first run only")));
    for workload in &after.spec.workloads {
        let name = &workload.name;
        match before.spec.workloads.iter().find(|other| other.name == *name) {
            None => left_out.push(format!("workload {name} is in the second run only")),
            Some(other) if other != workload => left_out.push(format!("workload {name} asks for something else")),
            Some(_) => {
                for arm in &alike {
                    let trials = counted(arm);
                    common.extend(Metric::all().map(|metric| Common {
                        workload: name.clone(),
                        arm: (*arm).clone(),
                        metric,
                        trials,
                    }));
                }
            }
        }
    }
    (common, left_out)
}

/// Why the loader was the limit of what a row compares, in either run; `None`: it had time to spare.
fn limited<'a>(before: &'a Figures, after: &'a Figures, row: &Row) -> Option<&'a str> {
    let arms = || [Some(row.arm.as_str()), row.against.control()].into_iter().flatten();
    [before, after].into_iter().find_map(|figures| arms().find_map(|arm| figures.limited(arm, &row.workload)))
}

/// Which of them cannot be trusted, and why; `None`: both can.
fn invalid(before: &Figures, after: &Figures) -> Option<String> {
    let is_invalid = |(_, figures): &(&str, &Figures)| figures.verdict == Verdict::Invalid;
    let (which, figures) = [("first", before), ("second", after)].into_iter().find(is_invalid)?;
    Some(format!("the {which} run is Invalid: {}", figures.message))
}

fn decide(before: &Figures, after: &Figures, rows: &[Row], tolerance_basis_points: u32) -> (Verdict, String) {
    if let Some(invalid) = invalid(before, after) {
        return (Verdict::Invalid, invalid);
    }
    let of = |outcome: Outcome| rows.iter().filter(move |row| row.outcome == outcome);
    let names = |rows: Vec<&Row>| {
        let name = |row: &&Row| format!("{} of {} in {}", row.metric.words, row.arm, row.workload);
        few(&rows.iter().map(name).collect::<Vec<_>>())
    };
    let tolerated = storebench_crds::ratio::percent(tolerance_basis_points.into());
    let worse: Vec<&Row> = of(Outcome::Worse).collect();
    if !worse.is_empty() {
        return (Verdict::Regressed, format!("worse by more than {tolerated}, beyond noise: {}", names(worse)));
    }
    let undecided: Vec<&Row> = of(Outcome::Undecided).collect();
    if !undecided.is_empty() {
        let limited = undecided.iter().find_map(|row| limited(before, after, row));
        let why = limited.map_or_else(String::new, |why| format!("; {why}"));
        let names = names(undecided);
        let text = format!("the trials cannot tell whether it is worse by more than {tolerated}: {names}{why}");
        return (Verdict::Inconclusive, text);
    }
    if of(Outcome::Kept).next().is_none() {
        return (Verdict::NoBaseline, "no arm but the unchanged baseline was measured in both runs".into());
    }
    (Verdict::Passed, format!("nothing is worse by more than {tolerated}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_nothing_is_known_before_the_first_trial() {
        let before = crate::report::fixture::two_arms().record;
        let begun = RunRecord { trials: Vec::new(), ..before.clone() };
        assert_eq!(check_comparable(&before, &begun, false), Ok(()));
        let mut renamed = begun.clone();
        renamed.spec.workloads.iter_mut().for_each(|workload| workload.name.push('2'));
        let refused = check_comparable(&before, &renamed, false).unwrap_err().to_string();
        assert!(refused.contains("nothing in common that could be compared: workload "), "{refused}");
        let mut others = begun;
        others.arms.iter_mut().for_each(|arm| arm.name.push('2'));
        assert!(check_comparable(&before, &others, false).is_err());
    }

    #[test]
    fn what_is_worse_by_just_what_is_tolerated_in_every_trial_is_kept() {
        let outcome = |metric, [before, after]: [u32; 2]| {
            let sample = |value: u32| [f64::from(value).ln(); 3];
            let difference = UnpairedDifference::of(&sample(before), &sample(after), CONFIDENCE_DEFAULT).unwrap();
            let (workload, arm) = ("w".to_owned(), "a".to_owned());
            Common { workload, arm, metric, trials: [3, 3] }.row(None, difference, Some(0.05)).outcome
        };
        for count in 1..=1_000 {
            assert_eq!(outcome(Metric::THROUGHPUT, [100 * count, 95 * count]), Outcome::Kept, "{count} of throughput");
            assert_eq!(outcome(Metric::LATENCY_P99, [95 * count, 100 * count]), Outcome::Kept, "{count} of latency");
        }
        assert_eq!(outcome(Metric::THROUGHPUT, [100, 94]), Outcome::Worse);
        assert_eq!(outcome(Metric::LATENCY_P99, [94, 100]), Outcome::Worse);
    }
}
