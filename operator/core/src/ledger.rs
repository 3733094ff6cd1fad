//! What to run next, from what has run: the whole state of a run is its list of trials.
//!
//! Because nothing else is remembered, a driver that is killed at any instant resumes at the next trial and measures
//! nothing twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not as _;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use storebench_crds::benchmark_run::BenchmarkRunSpec;
use storebench_crds::status::TrialState;

use crate::record::{FailureCause, RunRecord, TrialFailure, TrialRecord};
use crate::schedule::trial_order;
use crate::statistics::{Decision, StopRule};
use crate::units;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run this arm in this trial.
    Run {
        /// The trial's index.
        index: u32,
        /// The arm's name.
        arm: String,
    },
    /// Nothing: the run is over.
    Finished,
}

/// What to run next. `arms` are the names of the arms that are available, in the spec's order; `half_widths` gives those
/// of the watched intervals, in basis points, and is asked from `trials.min` on.
pub fn next(
    spec: &BenchmarkRunSpec,
    arms: &[&str],
    trials: &[TrialRecord],
    half_widths: impl FnOnce() -> Vec<f64>,
) -> Next {
    if arms.is_empty() || trials.iter().any(is_fatal) || retries_used(spec, trials) > spec.trials.retries {
        return Next::Finished;
    }
    let mut complete = 0;
    for index in 0.. {
        let of_index = || trials.iter().filter(|trial| trial.index == index);
        if of_index().any(|trial| trial.state == TrialState::Invalid) {
            continue;
        }
        let has_run = |arm: &str| of_index().any(|trial| trial.arm == arm);
        let order = trial_order(arms.len(), index, spec.trials.seed);
        if let Some(arm) = order.into_iter().map(|position| arms[position]).find(|arm| !has_run(arm)) {
            // Between two trials is the moment to stop; never between the arms of one.
            let between = of_index().next().is_none();
            let finished = between && is_enough(spec, complete, half_widths);
            return if finished { Next::Finished } else { Next::Run { index, arm: arm.into() } };
        }
        complete += 1;
    }
    Next::Finished
}

fn is_enough(spec: &BenchmarkRunSpec, complete: u32, half_widths: impl FnOnce() -> Vec<f64>) -> bool {
    let trials = &spec.trials;
    if complete < trials.min {
        return false;
    }
    let rule = StopRule::new(trials.min, trials.max, f64::from(trials.target_interval_basis_points));
    // The schema keeps the three numbers within the rule's bounds; were they not, no trial could be added in good faith.
    rule.is_ok_and(|rule| rule.decide(complete, &half_widths()) == Decision::Continue).not()
}

/// Whether a failure ends the run: all do but disturbances from outside, which a repetition may not see.
pub(crate) fn is_fatal(trial: &TrialRecord) -> bool {
    trial.state == TrialState::Invalid
        && trial.failure.as_ref().is_none_or(|failure| failure.cause != FailureCause::Disturbed)
}

/// How many of `trials.retries` were used up: one for each trial that is to be repeated as a whole. A disturbance that was
/// waited out is free, so that a machine that is busy for a while costs time and no more; but no more often than a run has
/// trials, so that one that is busy whenever it measures ends.
pub fn retries_used(spec: &BenchmarkRunSpec, trials: &[TrialRecord]) -> u32 {
    let mut waited_out = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.state == TrialState::Invalid && !is_half_a_pair(trial)) {
        *waited_out.entry(trial.index).or_insert(true) &= trial.waited_millis.is_some();
    }
    let count = |waited: bool| waited_out.values().filter(|one| **one == waited).count() as u32;
    count(false) + count(true).saturating_sub(spec.trials.max)
}

/// Arms of one trial that lie further apart were interrupted. A driver that nobody stops needs less for what lies between them: in a cluster
/// companions, a store and a control plane that start one after the other are waited for 22 minutes at most.
const APART_MAX_MILLIS: u64 = 30 * 60 * 1000;

/// What stands in the record of a trial that [`repeat_half_a_pair`] or [`repeat_what_lies_apart`] discarded, and by which it is known: records that
/// are kept have these very words, which therefore never change.
const HALF_A_PAIR: &str = "the run was interrupted before the other arms of this trial had run";

fn is_half_a_pair(trial: &TrialRecord) -> bool {
    trial.failure.as_ref().is_some_and(|failure| failure.detail == HALF_A_PAIR)
}

/// Arms of one trial run back to back, so that what drifts is the same for all: what was measured before an interruption is no pair with
/// what is measured after it. Nobody is to blame, so it uses up no retry, however often that happens.
pub fn repeat_half_a_pair(arms: usize, trials: &mut [TrialRecord]) {
    let Some(last) = trials.iter().map(|trial| trial.index).max() else { return };
    if trials.iter().filter(|trial| trial.index == last).count() >= arms {
        return;
    }
    discard_half_a_pair(last, trials);
}

fn discard_half_a_pair(index: u32, trials: &mut [TrialRecord]) {
    for trial in trials.iter_mut().filter(|trial| trial.index == index && trial.state == TrialState::Valid) {
        trial.failure = Some(TrialFailure { cause: FailureCause::Disturbed, detail: HALF_A_PAIR.into() });
        (trial.state, trial.waited_millis) = (TrialState::Invalid, Some(0));
    }
}

/// The same where nobody said that the run was interrupted, as of an operator that was down between two arms: the record alone tells, by when
/// they began. Whoever puts a record together asks for this, so that it is judged alike wherever that is; what was discarded once stays so, and
/// is told once.
/// Of a run that has ended nothing is repeated: where so many trials would not be left as it takes, they count, and that is told.
pub fn repeat_what_lies_apart(record: &mut RunRecord, has_ended: bool) {
    let timeout_millis = u64::try_from(record.spec.trials.timeout.duration().as_millis()).unwrap_or(u64::MAX);
    let indexes: BTreeSet<u32> = record.trials.iter().map(|trial| trial.index).collect();
    for index in indexes {
        let mut of_index: Vec<&TrialRecord> = record.trials.iter().filter(|trial| trial.index == index).collect();
        if of_index.iter().any(|trial| trial.state == TrialState::Invalid) {
            continue;
        }
        of_index.sort_by_key(|trial| trial.started_millis);
        // What was read late, since the operator was down, had ended within its time all the same.
        let end = |trial: &TrialRecord| trial.started_millis.saturating_add(trial.duration_millis.min(timeout_millis));
        let gaps = of_index.windows(2).map(|pair| (pair[1].started_millis.saturating_sub(end(pair[0])), pair[1]));
        let Some((gap_millis, next)) = gaps.max_by_key(|(gap_millis, _)| *gap_millis) else { continue };
        if gap_millis <= APART_MAX_MILLIS {
            continue;
        }
        let (number, resumed_at) = (number(&record.trials, index), instant(record, next.started_millis));
        let counts_all_the_same = has_ended && complete(record) <= u64::from(record.spec.trials.min);
        let became = if counts_all_the_same { "which counts all the same" } else { "which was repeated" };
        let interrupted = units::run_duration(gap_millis);
        let caveat = format!("interrupted for {interrupted} within trial {number}, {became}, and resumed{resumed_at}");
        if !counts_all_the_same {
            discard_half_a_pair(index, &mut record.trials);
        }
        if !record.caveats.contains(&caveat) {
            record.caveats.push(caveat);
        }
    }
}

/// How many trials every arm that could be started has completed.
fn complete(record: &RunRecord) -> u64 {
    let started = record.arms.iter().filter(|arm| arm.is_available());
    let arms: Vec<&str> = started.map(|arm| arm.name.as_str()).collect();
    complete_indexes(&arms, &record.trials).len() as u64
}

/// ` at` and the time so long after the run began; nothing, where the record does not say when that was.
fn instant(record: &RunRecord, after_millis: u64) -> String {
    let begun: Option<Timestamp> = record.started_at.parse().ok();
    let after = i64::try_from(after_millis).ok().map(SignedDuration::from_millis);
    let time = begun.zip(after).and_then(|(begun, after)| begun.checked_add(after).ok());
    time.and_then(|time| Timestamp::from_second(time.as_second()).ok())
        .map_or_else(String::new, |time| format!(" at {time}"))
}

/// Whether a run that ended because it was disturbed more often than `trials.retries` allows can go on: what counted is kept, and what was
/// disturbed is measured anew, as if it had been waited out, which whoever starts the run again has done. Not what a store did, for that is
/// what was measured; and no more often than a run has trials.
pub fn go_on_after_disturbances(spec: &BenchmarkRunSpec, trials: &mut [TrialRecord]) -> bool {
    if trials.iter().any(is_fatal) || retries_used(spec, trials) <= spec.trials.retries {
        return false;
    }
    for trial in trials.iter_mut().filter(|trial| trial.state == TrialState::Invalid) {
        trial.waited_millis.get_or_insert(0);
    }
    retries_used(spec, trials) <= spec.trials.retries
}

/// Which trial of the run an index is, counted from 1: those that were to be repeated do not count.
pub fn number(trials: &[TrialRecord], index: u32) -> u32 {
    let is_repeated = |trial: &&TrialRecord| trial.index < index && trial.state == TrialState::Invalid;
    let repeated: BTreeSet<u32> = trials.iter().filter(is_repeated).map(|trial| trial.index).collect();
    (index - repeated.len() as u32).saturating_add(1)
}

/// Why the trial of an index repeats the one before, in some words; `None`: it does not.
pub fn repeats(trials: &[TrialRecord], index: u32) -> Option<String> {
    let is_lost =
        |trial: &&TrialRecord| trial.index.checked_add(1) == Some(index) && trial.state == TrialState::Invalid;
    let lost = trials.iter().find(is_lost)?;
    Some(match is_half_a_pair(lost) {
        true => "the run was interrupted".into(),
        false => format!("{} was disturbed", lost.arm),
    })
}

/// The indexes in which every one of these arms has a valid trial: the pairs that may be compared.
pub fn complete_indexes(arms: &[&str], trials: &[TrialRecord]) -> Vec<u32> {
    let mut indexes: Vec<u32> = trials.iter().map(|trial| trial.index).collect();
    indexes.sort_unstable();
    indexes.dedup();
    let is_valid = |index: u32, arm: &str| {
        trials.iter().any(|trial| trial.index == index && trial.arm == arm && trial.state == TrialState::Valid)
    };
    indexes.retain(|index| arms.iter().all(|arm| is_valid(*index, arm)));
    indexes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Driver, RECORD_VERSION};
    use proptest::prelude::*;
    use storebench_crds::benchmark_run::BenchmarkRunSpec;

    fn spec(min: u32, max: u32, retries: u32) -> BenchmarkRunSpec {
        serde_json::from_value(serde_json::json!({
            "arms": [],
            "workloads": [],
            "trials": { "min": min, "max": max, "retries": retries, "seed": 7 },
        }))
        .unwrap()
    }

    fn trial(index: u32, arm: &str, cause: Option<FailureCause>) -> TrialRecord {
        TrialRecord {
            index,
            arm: arm.into(),
            state: if cause.is_some() { TrialState::Invalid } else { TrialState::Valid },
            failure: cause.map(|cause| TrialFailure { cause, detail: "a cause".into() }),
            started_millis: 0,
            duration_millis: 0,
            waited_millis: None,
            nodes: Default::default(),
            workloads: Vec::new(),
            footprint: None,
            idle: None,
            disk_bytes: None,
        }
    }

    /// Runs to the end; `fate` decides what becomes of each trial, `widths` how wide the intervals stay.
    fn run(
        spec: &BenchmarkRunSpec,
        arms: &[&str],
        fate: impl Fn(u32, &str) -> Option<FailureCause>,
        width: f64,
    ) -> Vec<TrialRecord> {
        let mut trials = Vec::new();
        while let Next::Run { index, arm } = next(spec, arms, &trials, || vec![width]) {
            assert!(trials.len() < 10_000, "the run does not end");
            trials.push(trial(index, &arm, fate(index, &arm)));
        }
        trials
    }

    /// They stand in records that people keep.
    #[test]
    fn half_a_pair_is_known_by_its_old_words() {
        assert_eq!(HALF_A_PAIR, "the run was interrupted before the other arms of this trial had run");
    }

    #[test]
    fn half_a_pair_is_measured_anew_and_costs_no_retry() {
        let spec = spec(3, 3, 0);
        let mut trials = vec![trial(0, "a", None), trial(0, "b", None), trial(1, "b", None)];
        let whole = trials[..2].to_vec();
        repeat_half_a_pair(2, &mut trials);
        assert_eq!(trials[..2], whole);
        assert_eq!(retries_used(&spec, &trials), 0);
        let Next::Run { index, .. } = next(&spec, &["a", "b"], &trials, Vec::new) else { panic!("it ends") };
        assert_eq!((index, number(&trials, index)), (2, 2), "another index, and the second trial that counts");
        assert_eq!(repeats(&trials, index).as_deref(), Some("the run was interrupted"));
        let mut complete = whole.clone();
        repeat_half_a_pair(2, &mut complete);
        assert_eq!(complete, whole);
    }

    const MINUTE: u64 = 60_000;

    fn record_of(spec: BenchmarkRunSpec, trials: Vec<TrialRecord>) -> RunRecord {
        RunRecord {
            record_version: RECORD_VERSION,
            name: "r".into(),
            storebench_version: "0".into(),
            started_at: "2026-01-01T00:00:00.5Z".into(),
            duration_millis: 0,
            driver: Driver::Kubernetes,
            spec,
            arms: Vec::new(),
            trials,
            fingerprint: crate::fingerprint::of(BTreeMap::new()),
            caveats: Vec::new(),
            aborted: None,
            left_behind: Vec::new(),
        }
    }

    #[test]
    fn arms_that_were_measured_hours_apart_are_no_pair() {
        let at = |index, arm: &str, started, took| TrialRecord {
            started_millis: started * MINUTE,
            duration_millis: took * MINUTE,
            ..trial(index, arm, None)
        };
        let spec = spec(3, 3, 0);
        let timeout = spec.trials.timeout.duration().as_secs() / 60;
        let begun = vec![at(0, "a", 0, 2), at(0, "b", 20, 2), at(1, "b", 200, 2)];
        let mut record = record_of(spec.clone(), begun.clone());
        repeat_what_lies_apart(&mut record, false);
        assert_eq!(record.trials, begun, "half an hour may lie between arms, and hours between trials");
        assert!(record.caveats.is_empty());
        record.trials.push(at(1, "a", 400, 2));
        repeat_what_lies_apart(&mut record, false);
        assert_eq!(record.trials[..2], begun[..2]);
        assert!(record.trials[2..].iter().all(|trial| trial.state == TrialState::Invalid));
        assert_eq!(retries_used(&spec, &record.trials), 0, "nobody is to blame");
        let Next::Run { index, .. } = next(&spec, &["a", "b"], &record.trials, Vec::new) else { panic!("it ends") };
        assert_eq!((index, number(&record.trials, index)), (2, 2), "another index, and the second trial that counts");
        assert_eq!(record.caveats.len(), 1);
        let caveat = &record.caveats[0];
        assert!(caveat.contains("within trial 2") && caveat.ends_with("resumed at 2026-01-01T06:40:00Z"), "{caveat}");
        // What is put together again is told once.
        let again = record.clone();
        repeat_what_lies_apart(&mut record, false);
        assert_eq!(record, again);
        // A run that ended before anybody looked for this has no more than these.
        let ended = vec![at(0, "a", 0, 2), at(0, "b", 100, 2), at(1, "a", 110, 2), at(1, "b", 120, 2)];
        for (min, left) in [(1, 2), (2, 4)] {
            let mut record = record_of(self::spec(min, 3, 0), ended.clone());
            repeat_what_lies_apart(&mut record, true);
            let counted = record.trials.iter().filter(|trial| trial.state == TrialState::Valid).count();
            assert_eq!(counted, left);
            assert_eq!(record.caveats[0].contains("which counts all the same"), left == 4, "{:?}", record.caveats);
        }
        // The operator was down while the load of an arm ended: it was read hours later.
        let late = timeout + 200;
        let mut record = record_of(spec, vec![at(0, "a", 0, late), at(0, "b", late + 1, 2)]);
        repeat_what_lies_apart(&mut record, false);
        assert!(record.trials.iter().all(|trial| trial.state == TrialState::Invalid), "{:?}", record.caveats);
    }

    /// More often than a run has trials and retries.
    #[test]
    fn a_run_that_is_interrupted_again_and_again_ends_as_any_other() {
        let spec = spec(3, 3, 0);
        let mut trials = Vec::new();
        for _ in 0..20 {
            let Next::Run { index, arm } = next(&spec, &["a", "b"], &trials, Vec::new) else { panic!("it ends") };
            trials.push(trial(index, &arm, None));
            repeat_half_a_pair(2, &mut trials);
        }
        assert_eq!(retries_used(&spec, &trials), 0);
        while let Next::Run { index, arm } = next(&spec, &["a", "b"], &trials, || vec![0.0]) {
            trials.push(trial(index, &arm, None));
        }
        assert_eq!(complete_indexes(&["a", "b"], &trials).len(), 3);
        // Who was disturbed before the interruption was disturbed all the same.
        let mut three = vec![trial(0, "a", None), trial(0, "b", Some(FailureCause::Disturbed))];
        repeat_half_a_pair(3, &mut three);
        assert_eq!(retries_used(&spec, &three), 1);
    }

    #[test]
    fn a_run_that_was_disturbed_too_often_goes_on_and_one_that_its_store_ended_does_not() {
        let spec = spec(3, 3, 1);
        let disturbed = |index: u32| (index == 1 || index == 2).then_some(FailureCause::Disturbed);
        let mut trials = run(&spec, &["a", "b"], |index, _| disturbed(index), 0.0);
        assert_eq!(next(&spec, &["a", "b"], &trials, Vec::new), Next::Finished, "too many disturbances");
        let before = trials.clone();
        assert!(go_on_after_disturbances(&spec, &mut trials));
        let counted = |trials: &[TrialRecord]| {
            trials.iter().filter(|trial| trial.state == TrialState::Valid).cloned().collect::<Vec<_>>()
        };
        assert_eq!(counted(&trials), counted(&before), "what counted is kept");
        let Next::Run { index, .. } = next(&spec, &["a", "b"], &trials, Vec::new) else { panic!("it ends") };
        assert_eq!((index, number(&trials, index)), (3, 2), "the second trial that counts");
        // What never ended for disturbances, and what cannot be blamed on them.
        assert!(!go_on_after_disturbances(&spec, &mut trials.clone()));
        let mut wrong = before.clone();
        wrong.push(trial(3, "a", Some(FailureCause::WrongAnswer)));
        assert!(!go_on_after_disturbances(&spec, &mut wrong));
        // On a machine that is never quiet it ends for good.
        let mut ended = 0;
        loop {
            while let Next::Run { index, arm } = next(&spec, &["a", "b"], &trials, Vec::new) {
                trials.push(trial(index, &arm, Some(FailureCause::Disturbed)));
            }
            ended += 1;
            assert!(ended < 10, "it never ends");
            if !go_on_after_disturbances(&spec, &mut trials) {
                break;
            }
        }
    }

    #[test]
    fn every_arm_runs_max_times_while_intervals_are_wide() {
        let trials = run(&spec(3, 7, 0), &["a", "b", "c"], |_, _| None, f64::INFINITY);
        for arm in ["a", "b", "c"] {
            assert_eq!(trials.iter().filter(|trial| trial.arm == arm).count(), 7);
        }
    }

    #[test]
    fn stops_at_min_when_intervals_are_narrow() {
        assert_eq!(run(&spec(4, 9, 0), &["a", "b"], |_, _| None, 0.0).len(), 8);
    }

    #[test]
    fn a_store_that_fails_ends_the_run_at_once() {
        for cause in
            [FailureCause::WrongAnswer, FailureCause::StoreFailed, FailureCause::OutOfReach, FailureCause::Platform]
        {
            let trials = run(&spec(4, 9, 2), &["a", "b"], |index, _| (index == 1).then_some(cause), 0.0);
            assert_eq!(trials.iter().filter(|trial| trial.failure.is_some()).count(), 1, "{cause:?}");
        }
    }

    #[test]
    fn a_disturbed_trial_is_repeated_under_a_new_index() {
        let disturbed = |index: u32, arm: &str| (index == 2 && arm == "a").then_some(FailureCause::Disturbed);
        let trials = run(&spec(4, 4, 1), &["a", "b"], disturbed, 0.0);
        assert_eq!(complete_indexes(&["a", "b"], &trials), [0, 1, 3, 4]);
        let repeated: Vec<_> = (0..5).map(|index| repeats(&trials, index)).collect();
        assert_eq!(repeated, [None, None, None, Some("a was disturbed".to_owned()), None]);
    }

    #[test]
    fn too_many_disturbances_end_the_run() {
        let trials = run(&spec(4, 9, 2), &["a", "b"], |_, _| Some(FailureCause::Disturbed), 0.0);
        assert_eq!(trials.len(), 3, "one trial voids its index; the third exceeds two retries");
    }

    /// Runs to the end where every trial of "a" is disturbed and waited out, or not.
    fn run_disturbed(spec: &BenchmarkRunSpec, is_waited_out: impl Fn(u32) -> bool, disturbed: u32) -> Vec<TrialRecord> {
        let mut trials = Vec::new();
        while let Next::Run { index, arm } = next(spec, &["a", "b"], &trials, || vec![0.0]) {
            assert!(trials.len() < 10_000, "the run does not end");
            let cause = (arm == "a" && index < disturbed).then_some(FailureCause::Disturbed);
            let waited_millis = (cause.is_some() && is_waited_out(index)).then_some(4_000);
            trials.push(TrialRecord { waited_millis, ..trial(index, &arm, cause) });
        }
        trials
    }

    #[test]
    fn a_disturbance_that_was_waited_out_uses_up_no_retry() {
        let trials = run_disturbed(&spec(4, 6, 0), |_| true, 5);
        assert_eq!(complete_indexes(&["a", "b"], &trials), [5, 6, 7, 8]);
        assert_eq!(retries_used(&spec(4, 6, 0), &trials), 0);
    }

    #[test]
    fn waiting_excuses_no_other_disturbance() {
        let trials = run_disturbed(&spec(4, 6, 1), |index| index != 0 && index != 3, 10);
        assert_eq!(complete_indexes(&["a", "b"], &trials), [0; 0]);
        assert_eq!(trials.last().map(|trial| trial.index), Some(3), "the second that was not waited out ends the run");
    }

    #[test]
    fn what_is_disturbed_whenever_it_measures_ends_although_it_was_waited_out() {
        let trials = run_disturbed(&spec(4, 6, 1), |_| true, u32::MAX);
        let disturbed = trials.iter().filter(|trial| trial.failure.is_some()).count();
        assert_eq!(
            disturbed,
            6 + 1 + 1,
            "as many as there were to be trials, one retry, and the one that was too many"
        );
    }

    proptest! {
        /// A driver that is killed and resumes from its record does what one that lived would have done.
        #[test]
        fn nothing_but_the_record_matters(seed in any::<u64>(), cut in 0usize..20, arms in 1usize..4) {
            let mut spec = spec(3, 5, 2);
            spec.trials.seed = seed;
            let arms = &["a", "b", "c"][..arms];
            let fate = |index: u32, arm: &str| (index == 1 && arm == "a").then_some(FailureCause::Disturbed);
            let whole = run(&spec, arms, fate, f64::INFINITY);
            let resumed_from = &whole[..cut.min(whole.len())];
            let following = next(&spec, arms, resumed_from, || vec![f64::INFINITY]);
            match whole.get(resumed_from.len()) {
                Some(trial) => prop_assert_eq!(following, Next::Run { index: trial.index, arm: trial.arm.clone() }),
                None => prop_assert_eq!(following, Next::Finished),
            }
        }

        /// No pair of an arm and an index is ever measured twice.
        #[test]
        fn nothing_is_measured_twice(seed in any::<u64>(), voided in prop::collection::vec(any::<bool>(), 12)) {
            let mut spec = spec(3, 6, 3);
            spec.trials.seed = seed;
            let fate = |index: u32, arm: &str| {
                (arm == "b" && voided.get(index as usize).copied().unwrap_or(false)).then_some(FailureCause::Disturbed)
            };
            let trials = run(&spec, &["a", "b"], fate, f64::INFINITY);
            let mut pairs: Vec<_> = trials.iter().map(|trial| (trial.index, trial.arm.clone())).collect();
            pairs.sort();
            let count = pairs.len();
            pairs.dedup();
            prop_assert_eq!(pairs.len(), count);
        }
    }
}
