//! A run of a cluster held against an earlier one that a BenchmarkBaseline keeps: by the comparison of [`TwoRuns`], whose verdict counts
//! together with that of the run itself.
//!
//! Promises: what cannot be compared is never passed over, and it is said why: where that is all, a run that passed had nothing to compare
//! with; where it is an arm, a workload or a figure that decides of the earlier run, it is Inconclusive.

use std::fmt;

use serde::{Deserialize, Serialize};
use storebench_crds::benchmark_run::BaselineRef;
use storebench_crds::line::short_line;
use storebench_crds::status::{BaselineResult, GateOutcome, Movement, Verdict};

use super::{AcrossError, Differences, Figures, Outcome, Row, TwoRuns, check_comparable};
use crate::judgement::{Judgement, Report, judge};
use crate::record::RunRecord;
use crate::suite::gravest;

/// Lines that a status has of differences, and of what was left out, at most.
const LINES_MAX: usize = 24;
/// A line is kept below this, bytes.
const LINE_BYTES_MAX: usize = 160;
/// What differs between machines, in a message, is kept below this, bytes.
const FACTS_BYTES_MAX: usize = 120;
/// How the caveat begins that says what came of it.
const HELD_AGAINST: &str = "held against ";
/// What stands in it between what keeps the earlier run and that run.
const KEEPS: &str = ", which keeps ";

/// What runs are held against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// The BenchmarkBaseline's name.
    pub name: String,
    /// What it keeps.
    pub figures: Figures,
}

/// What came of holding a run against a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The comparison. Absent: there was nothing to compare, for the reason in `result`.
    pub pair: Option<TwoRuns>,
    /// The same as a status has it.
    pub result: BaselineResult,
}

impl Baseline {
    /// Refuses, before anything is measured, a run of which it is known already that its machine is unlike, or that it shares nothing with
    /// this. What shows only in trials is looked at when it has ended.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub fn check(&self, record: &RunRecord, terms: &BaselineRef) -> Result<(), String> {
        let mut before = self.figures.record.clone();
        before.fingerprint.facts.retain(|name, _| record.fingerprint.facts.contains_key(name));
        check_comparable(&before, record, terms.allow_different_machine).map_err(|error| why_not(&error))
    }

    /// Holds a run that has ended against this. The verdict and message of its judgement become those of both together.
    pub fn hold(&self, report: &mut Report, terms: &BaselineRef) -> Held {
        let refused = self.check(&report.record, terms).err().filter(|_| report.record.trials.is_empty());
        if refused.is_some() {
            // For this it has no trial, which by itself would make it Invalid.
            report.judgement.verdict = Verdict::NoBaseline;
            report.judgement.message = "nothing was measured".into();
        }
        let compared = match (refused, report.judgement.verdict) {
            (Some(why), _) => Err((Verdict::NoBaseline, why)),
            // Of what cannot be trusted nothing is said.
            (None, Verdict::Invalid) => Err((Verdict::Invalid, "the run itself is Invalid".to_owned())),
            (None, _) => {
                let tolerance = terms.tolerance_basis_points;
                let after = Figures::of(report);
                TwoRuns::between(&self.figures, &after, tolerance, terms.allow_different_machine)
                    .map_err(|error| (Verdict::NoBaseline, why_not(&error)))
            }
        };
        let (verdict, message) = match &compared {
            Ok(pair) => (pair.verdict, pair.message.clone()),
            Err(why) => why.clone(),
        };
        let (record, pair) = (&self.figures.record, compared.as_ref().ok());
        let result = BaselineResult {
            name: self.name.clone(),
            run: record.name.clone(),
            measured_at: record.started_at.clone(),
            verdict,
            message: short_line(&message, 2 * LINE_BYTES_MAX),
            differences: differences(record, &report.record),
            left_out: pair.map(|pair| lines(pair.left_out.iter().cloned())).unwrap_or_default(),
            moved: pair.map(|pair| pair.rows.iter().filter_map(movement).collect()).unwrap_or_default(),
        };
        let name = format!("BenchmarkBaseline/{}", self.name);
        tell_both(&mut report.judgement, &name, record, verdict, &message);
        Held { pair: compared.ok(), result }
    }
}

/// Puts what came of holding a run against an earlier one into its judgement, before anybody shows it or goes by it: the verdict and the
/// message become those of both together. `baseline` names what keeps the earlier run.
pub fn tell_both(judgement: &mut Judgement, baseline: &str, before: &RunRecord, verdict: Verdict, message: &str) {
    let kept = format!("{} of {}", before.name, before.started_at);
    tell(judgement, &HeldAgainst { baseline, kept: &kept, verdict, message });
}

fn tell(judgement: &mut Judgement, held: &HeldAgainst<'_>) {
    judgement.caveats.push(format!("{HELD_AGAINST}{held}"));
    if judgement.verdict == Verdict::Invalid {
        return;
    }
    let together = decided(judgement.verdict, held.verdict);
    let of_baseline = format!("against {}: {}", held.baseline, held.message);
    judgement.message = match together == judgement.verdict && together != Verdict::Passed {
        // What the run says by itself is as grave.
        true => format!("{}; {of_baseline}", judgement.message),
        false => format!("{of_baseline}; by itself {:?}: {}", judgement.verdict, judgement.message),
    };
    judgement.verdict = together;
}

/// What came of holding a run against an earlier one, as its judgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAgainst<'a> {
    /// What keeps the earlier run.
    baseline: &'a str,
    /// Which run that is.
    kept: &'a str,
    /// The verdict of the comparison.
    pub verdict: Verdict,
    /// Why, in one line.
    pub message: &'a str,
}

impl<'a> HeldAgainst<'a> {
    /// `None`: the run was held against none, so that its verdict is its own.
    pub fn of(judgement: &'a Judgement) -> Option<Self> {
        let said = judgement.caveats.iter().find_map(|caveat| caveat.strip_prefix(HELD_AGAINST))?;
        let (baseline, said) = said.split_once(KEEPS)?;
        let verdicts =
            [Verdict::Passed, Verdict::Regressed, Verdict::Inconclusive, Verdict::Invalid, Verdict::NoBaseline];
        verdicts.into_iter().find_map(|verdict| {
            let (kept, message) = said.split_once(&format!(": {verdict:?}: "))?;
            // A message may name another verdict behind this one.
            (!kept.contains(": ")).then_some(Self { baseline, kept, verdict, message })
        })
    }
}

impl fmt::Display for HeldAgainst<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { baseline, kept, verdict, message } = self;
        write!(formatter, "{baseline}{KEEPS}{kept}: {verdict:?}: {message}")
    }
}

/// The judgement of a saved run, found anew. The earlier run against which it was held may be anywhere by now: what came of that is taken as it
/// was said.
pub fn judged_again(saved: &Report) -> Judgement {
    let mut judgement = judge(&saved.record);
    if let Some(held) = HeldAgainst::of(&saved.judgement) {
        tell(&mut judgement, &held);
    }
    judgement
}

/// The verdict of a run by itself and of its comparison with an earlier one together. A run that had nothing of its own to compare has the
/// earlier one.
pub(crate) fn decided(own: Verdict, against: Verdict) -> Verdict {
    match own {
        Verdict::NoBaseline => against,
        _ => gravest([own, against].into_iter()),
    }
}

fn why_not(error: &AcrossError) -> String {
    match error {
        AcrossError::OtherMachine { facts, .. } => format!(
            "not compared, for the machines are unlike ({}): keep a baseline of this one, or set \
             spec.baselineRef.allowDifferentMachine",
            short_line(facts, FACTS_BYTES_MAX)
        ),
        AcrossError::NothingInCommon { why, .. } => {
            format!("not compared, for both have nothing in common: {}", short_line(why, FACTS_BYTES_MAX))
        }
    }
}

fn lines(all: impl Iterator<Item = String>) -> Vec<String> {
    all.take(LINES_MAX).map(|line| short_line(&line, LINE_BYTES_MAX)).collect()
}

fn differences(before: &RunRecord, after: &RunRecord) -> Vec<String> {
    let all = Differences::of(before, after);
    lines(all.0.iter().map(|one| format!("{}: {}: {}, then {}", one.part.word(), one.what, one.before, one.after)))
}

/// A row that decides; `None`: it is only shown.
fn movement(row: &Row) -> Option<Movement> {
    let outcome = match row.outcome {
        Outcome::Kept => GateOutcome::Met,
        Outcome::Worse => GateOutcome::Missed,
        Outcome::Undecided => GateOutcome::Undecided,
        Outcome::Shown => return None,
    };
    let control = row.against.control().map(str::to_owned);
    let Row { metric, ratio_basis_points, low_basis_points, high_basis_points, .. } = *row;
    let (workload, arm) = (row.workload.clone(), row.arm.clone());
    Some(Movement { workload, arm, metric, control, ratio_basis_points, low_basis_points, high_basis_points, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_run_that_shares_nothing_with_its_baseline_is_refused_before_its_first_trial() {
        let report = fixture::two_arms();
        let baseline = Baseline { name: "last".into(), figures: Figures::of(&report) };
        let terms: BaselineRef = serde_json::from_value(serde_json::json!({ "name": "last" })).unwrap();
        let mut begun = RunRecord { trials: Vec::new(), ..report.record };
        assert_eq!(baseline.check(&begun, &terms), Ok(()));
        begun.spec.workloads.iter_mut().for_each(|workload| workload.name.push('2'));
        let refused = baseline.check(&begun, &terms).unwrap_err();
        assert!(refused.starts_with("not compared, for both have nothing in common: "), "{refused}");
    }

    #[test]
    fn both_drivers_put_the_verdict_of_both_into_the_report() {
        let told = |own, against| {
            let mut report = fixture::two_arms();
            report.judgement.verdict = own;
            let before = report.record.clone();
            tell_both(&mut report.judgement, "--baseline", &before, against, "so it is");
            report.judgement
        };
        let worse = told(Verdict::Passed, Verdict::Regressed);
        assert_eq!(worse.verdict, Verdict::Regressed);
        assert!(worse.message.starts_with("against --baseline: so it is; by itself Passed: "), "{}", worse.message);
        let held = HeldAgainst::of(&worse).unwrap();
        assert_eq!((held.verdict, held.message), (Verdict::Regressed, "so it is"), "{:?}", worse.caveats);
        assert_eq!(told(Verdict::NoBaseline, Verdict::Passed).verdict, Verdict::Passed, "it has the earlier one");
        // Of what could not be compared nothing is known, and what is known stands.
        assert_eq!(told(Verdict::Passed, Verdict::NoBaseline).verdict, Verdict::NoBaseline);
        assert_eq!(told(Verdict::Regressed, Verdict::NoBaseline).verdict, Verdict::Regressed);
        assert_eq!(HeldAgainst::of(&fixture::two_arms().judgement), None);
    }

    /// Read again it was the run by itself: what was Regressed went to dashboards and pipelines as Passed.
    #[test]
    fn a_saved_run_that_is_judged_again_keeps_what_came_of_its_baseline() {
        let mut report = fixture::two_arms();
        report.judgement = judge(&report.record);
        let by_itself = judged_again(&report);
        assert_eq!(by_itself, report.judgement);
        let before = report.record.clone();
        // Words of other verdicts in a message lead nobody astray.
        for verdict in [Verdict::Regressed, Verdict::Inconclusive] {
            let mut saved = report.clone();
            let message = "worse: Passed: 1 left out: Regressed: no";
            tell_both(&mut saved.judgement, "BenchmarkBaseline/last", &before, verdict, message);
            assert_eq!(HeldAgainst::of(&saved.judgement).map(|held| held.verdict), Some(verdict));
            assert_eq!(judged_again(&saved), saved.judgement);
        }
    }
}
