//! Records that lack trials, or have more than a run makes.

use storebench_crds::status::{TrialState, Verdict};

use super::{record, throughput_gate};
use crate::judgement::judge;
use crate::record::{RunRecord, TrialRecord};

#[test]
fn a_record_from_which_trials_were_taken_or_to_which_some_were_added_is_invalid() {
    let whole = record(1.0, throughput_gate(9_000, "Fail"));
    assert_eq!(judge(&whole).verdict, Verdict::Passed);
    let said = |change: &dyn Fn(&mut RunRecord)| {
        let mut record = whole.clone();
        change(&mut record);
        let judgement = judge(&record);
        assert_eq!(judgement.verdict, Verdict::Invalid, "{}", judgement.message);
        judgement.message
    };
    let fewer = said(&|record| record.trials.truncate(4));
    assert!(fewer.starts_with("2 of at least 3 trials were completed by every arm: "), "{fewer}");
    let more = said(&|record| {
        let copies = record.trials.clone().into_iter().map(|trial| TrialRecord { index: trial.index + 100, ..trial });
        record.trials.extend(copies);
    });
    assert!(more.contains("where trials.max is 10"), "{more}");
    let twice = said(&|record| record.trials.push(record.trials[1].clone()));
    assert!(twice.ends_with("trial 1: it is in the record twice"), "{twice}");
    let without_cause = said(&|record| record.trials[0].state = TrialState::Invalid);
    assert!(without_cause.ends_with("it was discarded, and the record does not say why"), "{without_cause}");
    // The worst pair of all, or what one arm had in it.
    let pair = said(&|record| record.trials.retain(|trial| trial.index != 1));
    assert!(pair.ends_with("trial 2: the record lacks it, and was closed all the same"), "{pair}");
    let one = said(&|record| record.trials.retain(|trial| trial.index != 1 || trial.arm != record.arms[0].name));
    assert!(one.ends_with("trial 2: the record lacks it, and was closed all the same"), "{one}");
}
