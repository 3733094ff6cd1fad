//! Decides a run: first whether its numbers can be trusted at all, then what the gates say, then whether there was anything to compare with.

use std::collections::{BTreeMap, BTreeSet};

use storebench_crds::Metric;
use storebench_crds::benchmark_run::OnInconclusive;
use storebench_crds::status::{Comparison, GateOutcome, TrialState, Verdict};

use super::compare::{baseline, headline};
use super::gate::Decided;
use super::standing::{NO_DIFFERENCE_BOUND_MAX, PARITY, Standing};
use super::{Valid, available, lacking};
use crate::ledger::{is_fatal, number, retries_used};
use crate::record::{FailureCause, RunRecord, TrialRecord};
use crate::units;

/// The verdict and its reason in one line.
pub(super) fn decide(valid: &Valid, comparisons: &[Comparison], gates: &[Decided]) -> (Verdict, String) {
    let record = valid.record;
    if let Some(message) = nothing_to_compare(record) {
        return (Verdict::NoBaseline, message);
    }
    if let Some(message) = invalid(valid) {
        return (Verdict::Invalid, message);
    }
    let failed = |outcomes: &[GateOutcome]| {
        let counts = |gate: &&Decided| {
            outcomes.contains(&gate.result.outcome)
                && (gate.result.outcome == GateOutcome::Missed || gate.on_inconclusive == OnInconclusive::Fail)
        };
        let mut counted = gates.iter().filter(counts);
        counted.next().map(|gate| {
            let became = if outcomes.contains(&GateOutcome::Missed) { "missed" } else { "not decided" };
            let more = match counted.count() {
                0 => String::new(),
                more => format!(
                    "; {more} more of {} gates {} {became}",
                    gates.len(),
                    if more == 1 { "was" } else { "were" }
                ),
            };
            let to_do = gate.to_do.as_ref().map_or_else(String::new, |to_do| format!("; to do: {to_do}"));
            format!("{}: found {}{more}{to_do}", gate.result.gate, gate.result.found)
        })
    };
    if let Some(message) = failed(&[GateOutcome::Missed]) {
        return (Verdict::Regressed, message);
    }
    // Before the lack of a baseline, which a comparison with an earlier run makes up for: it does not decide a gate.
    if let Some(message) = failed(&[GateOutcome::Undecided, GateOutcome::NotJudged]) {
        return (Verdict::Inconclusive, message);
    }
    if baseline(record).is_none() && (record.arms.len() > 1 || gates.is_empty()) {
        let message = match record.arms.iter().find(|arm| arm.baseline).and_then(|arm| arm.unavailable.as_ref()) {
            Some(unavailable) => format!("the baseline could not be started: {}", unavailable.reason),
            None => "no arm has baseline: true, so nothing was compared".into(),
        };
        return (Verdict::NoBaseline, message);
    }
    (Verdict::Passed, passed(valid, comparisons, gates))
}

/// Why nothing was measured, where a store is not here; `None`: something was, or it ended for another reason.
fn nothing_to_compare(record: &RunRecord) -> Option<String> {
    if !record.trials.is_empty() || record.aborted.is_some() {
        return None;
    }
    if available(record).is_empty() && !record.arms.is_empty() {
        let missing = record.arms.iter().filter_map(|arm| arm.unavailable.as_ref());
        let mut missing: Vec<String> =
            missing.map(|why| format!("{}, to install it: {}", why.reason, why.install)).collect();
        missing.dedup();
        return Some(format!("nothing was measured, for no store is here: {}", missing.join("; ")));
    }
    let arm = lacking(record)?;
    let missing = arm.unavailable.as_ref()?;
    let what = if arm.baseline { "the baseline" } else { "what there was to compare with" };
    let name = &arm.name;
    Some(format!("nothing was measured, for {name} is {what}: {}; to install it: {}", missing.reason, missing.install))
}

/// Why no number of this record can be trusted; `None` where they can.
fn invalid(valid: &Valid) -> Option<String> {
    let record = valid.record;
    if available(record).is_empty() {
        let first = record.arms.iter().find_map(|arm| arm.unavailable.as_ref());
        return Some(
            first.map_or("there is no arm".into(), |why| format!("{}; to install it: {}", why.reason, why.install)),
        );
    }
    let failures = |cause: FailureCause| {
        let is = move |trial: &&TrialRecord| trial.failure.as_ref().is_some_and(|failure| failure.cause == cause);
        record.trials.iter().filter(is)
    };
    let describe = |trial: &TrialRecord| {
        let detail = trial.failure.as_ref().map_or("", |failure| failure.detail.as_str());
        format!("{}, trial {}: {detail}", trial.arm, number(&record.trials, trial.index))
    };
    let voids = |trial: &&TrialRecord| trial.failure.as_ref().is_some_and(|one| one.cause != FailureCause::Disturbed);
    // The first of the gravest.
    let gravest =
        record.trials.iter().filter(voids).min_by_key(|trial| trial.failure.as_ref().map(|one| one.cause.rank()));
    if let Some(trial) = gravest {
        return Some(describe(trial));
    }
    if let Some(reason) = &record.aborted {
        return Some(reason.clone());
    }
    if retries_used(&record.spec, &record.trials) > record.spec.trials.retries {
        let mut voided: Vec<u32> = failures(FailureCause::Disturbed).map(|trial| trial.index).collect();
        voided.dedup();
        let last = failures(FailureCause::Disturbed).next_back().map(describe).unwrap_or_default();
        let trials = if voided.len() == 1 { "1 trial was".into() } else { format!("{} trials were", voided.len()) };
        let allowed = record.spec.trials.retries;
        // Those that were waited out, or disturbed before the run was gone on with, are free.
        let counted = retries_used(&record.spec, &record.trials);
        let too_many = match voided.len() as u32 == counted {
            true => format!(", more than trials.retries allows ({allowed})"),
            false => format!("; {counted} count towards trials.retries ({allowed})"),
        };
        return Some(format!("{trials} disturbed{too_many}; the last: {last}"));
    }
    not_of_one_run(valid)
}

/// Why the trials of a record that says of itself that it came to its end cannot be those of a run that did. No driver writes such a record: trials
/// were taken from it, or added to it. What was taken from its end cannot be told from a run that ended there, as long as enough are left.
fn not_of_one_run(valid: &Valid) -> Option<String> {
    let (record, complete) = (valid.record, valid.indexes.len() as u64);
    if let Some(trial) = record.trials.iter().find(|trial| is_fatal(trial)) {
        let number = number(&record.trials, trial.index);
        return Some(format!("{}, trial {number}: it was discarded, and the record does not say why", trial.arm));
    }
    let mut seen = BTreeSet::new();
    if let Some(trial) = record.trials.iter().find(|trial| !seen.insert((trial.index, trial.arm.as_str()))) {
        let number = number(&record.trials, trial.index);
        return Some(format!("{}, trial {number}: it is in the record twice", trial.arm));
    }
    let (min, max) = (u64::from(record.spec.trials.min), u64::from(record.spec.trials.max));
    match complete {
        0 => Some("no trial was completed by every arm".into()),
        _ if complete < min => Some(format!(
            "{complete} of at least {min} trials were completed by every arm: the run did not come to its end, or the record lacks trials"
        )),
        _ if complete > max => Some(format!(
            "{complete} trials were completed by every arm, where trials.max is {max}: they are not all of this run"
        )),
        _ => gap(record).map(|(index, arm)| {
            format!("{arm}, trial {}: the record lacks it, and was closed all the same", number(&record.trials, index))
        }),
    }
}

/// The first trial that has no result of an arm, where others came after it: what follows is begun only where all arms have run, or one of them is
/// to be repeated.
fn gap(record: &RunRecord) -> Option<(u32, &str)> {
    let mut of_indexes: BTreeMap<u32, Vec<&TrialRecord>> = BTreeMap::new();
    for trial in &record.trials {
        of_indexes.entry(trial.index).or_default().push(trial);
    }
    let arms = available(record);
    (0..).zip(of_indexes).find_map(|(index, (found, trials))| {
        let trials = if found == index { trials } else { Vec::new() };
        let is_repeated = trials.iter().any(|trial| trial.state == TrialState::Invalid);
        let lacks = |arm: &&str| !is_repeated && trials.iter().all(|trial| trial.arm != *arm);
        arms.iter().copied().find(lacks).map(|arm| (index, arm))
    })
}

fn passed(valid: &Valid, comparisons: &[Comparison], gates: &[Decided]) -> String {
    let undecided: Vec<&str> = gates
        .iter()
        .filter(|gate| gate.result.outcome != GateOutcome::Met)
        .map(|gate| gate.result.gate.as_str())
        .collect();
    let judged = match (gates.len(), gates.len() - undecided.len()) {
        (0, _) => NOTHING_JUDGED.into(),
        (1, 0) => "the gate was not decided".into(),
        (1, _) => "the gate was met".into(),
        (count, met) if met == count => format!("all {count} gates were met"),
        (count, met) => format!("{met} of {count} gates {} met", if met == 1 { "was" } else { "were" }),
    };
    let undecided = (!undecided.is_empty()).then(|| format!("undecided: {}", undecided.join(", ")));
    [Some(judged), undecided, findings(valid, comparisons)].into_iter().flatten().collect::<Vec<String>>().join("; ")
}

/// What is said of a run that nothing could have failed.
pub(crate) const NOTHING_JUDGED: &str = "no gates, so nothing was judged";

/// As many comparisons are told one by one.
const TOLD_MAX: usize = 3;

/// How the arms compare in what is looked at first, in every workload: one by one, or, where nobody would read so much, how many came out which
/// way, and the one that is farthest from a tie. `None`: nothing was compared.
fn findings(valid: &Valid, comparisons: &[Comparison]) -> Option<String> {
    let headlines: BTreeMap<&str, Metric> =
        valid.record.spec.workloads.iter().map(|one| (one.name.as_str(), headline(valid, one))).collect();
    let is_headline = |one: &&Comparison| headlines.get(one.workload.as_str()) == Some(&one.metric);
    // The baseline against itself is told where there is room for it.
    let (floors, of): (Vec<&Comparison>, Vec<&Comparison>) =
        comparisons.iter().filter(is_headline).partition(|one| one.is_noise_floor());
    let of = if of.is_empty() || of.len() + floors.len() <= TOLD_MAX { [of, floors].concat() } else { of };
    if of.len() <= TOLD_MAX {
        let told: Vec<String> = of.into_iter().map(in_words).collect();
        return (!told.is_empty()).then(|| told.join("; "));
    }
    let no_different = format!("no different by more than {}", units::percent_bound(NO_DIFFERENCE_BOUND_MAX));
    let count = |is: fn(Standing) -> bool| of.iter().filter(|one| is(Standing::of(one))).count();
    let counts = [
        ("higher", count(|one| one == Standing::Higher)),
        ("lower", count(|one| one == Standing::Lower)),
        (no_different.as_str(), count(|one| matches!(one, Standing::Tie(_)))),
        ("within the noise floor", count(|one| one == Standing::WithinFloor)),
        ("undecided", count(|one| one == Standing::Undecided)),
        ("not ranked", count(|one| one == Standing::NotRanked)),
        ("of the baseline and itself", count(|one| one == Standing::NoiseFloor)),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    let distance = |one: &Comparison| (one.ratio_basis_points.max(1) as f64 / PARITY as f64).ln().abs();
    let farthest = |found: &dyn Fn(&Comparison) -> bool| {
        of.iter().copied().filter(|one| found(one)).max_by(|one, other| distance(one).total_cmp(&distance(other)))
    };
    let farthest = farthest(&|one| Standing::of(one).is_difference()).or_else(|| farthest(&|_| true));
    let farthest = farthest.map_or_else(String::new, |one| format!("; farthest from a tie: {}", in_words(one)));
    let mut metrics: Vec<&str> = of.iter().map(|one| one.metric.words).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let (metrics, count, counts) = (metrics.join(" and "), of.len(), counts.join(", "));
    Some(format!("{metrics}, {count} comparisons: {counts}{farthest}"))
}

/// A comparison in words: never faster or slower where the interval contains 1.
fn in_words(comparison: &Comparison) -> String {
    let ratio = |basis_points: u64| basis_points as f64 / 10_000.0;
    let Comparison { arm, baseline, workload, .. } = comparison;
    let (low, high) = (comparison.low_basis_points, comparison.high_basis_points);
    let interval = format!("{:.2}× ({:.2}–{:.2})", ratio(comparison.ratio_basis_points), ratio(low), ratio(high));
    let what = comparison.metric.words;
    match Standing::of(comparison) {
        Standing::NotRanked => {
            let reason = comparison.not_ranked.as_deref().unwrap_or_default();
            format!("{workload}: {arm} has {interval} the {what} of {baseline}, not ranked ({reason})")
        }
        Standing::NoiseFloor => {
            format!("{workload}: {baseline} has {interval} the {what} of itself, which is the noise floor")
        }
        Standing::WithinFloor => {
            format!("{workload}: {arm} has {interval} the {what} of {baseline}, within the noise floor")
        }
        Standing::Tie(bound) => {
            let bound = units::percent_bound(bound);
            format!("{workload}: no difference larger than {bound} between {arm} and {baseline}, {what} {interval}")
        }
        Standing::Undecided => {
            let unseen = units::unseen(comparison.detectable_basis_points);
            format!("{workload}: undecided whether {arm} and {baseline} differ, {what} {interval}: {unseen}")
        }
        Standing::Higher | Standing::Lower => {
            format!("{workload}: {arm} has {interval} the {what} of {baseline}")
        }
    }
}
