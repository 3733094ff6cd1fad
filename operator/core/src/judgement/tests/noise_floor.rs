//! The baseline, run twice: how far it is from itself stands beside each comparison, and what is no farther from it is not called different.

use storebench_crds::status::{NOISE_FLOOR, Verdict};
use storebench_crds::{Durability, Metric};

use super::{NOISE, arm, record, throughput_gate, trial};
use crate::judgement::{Judgement, judge};
use crate::record::RunRecord;
use crate::report::{Report, from_json, html, json, markdown, text};

/// The same, with the baseline measured twice, the second time so much faster.
fn with_floor(mut record: RunRecord, ratio: f64) -> RunRecord {
    record.spec.noise_floor = true;
    record.arms.push(arm(NOISE_FLOOR, false));
    record.arms.last_mut().unwrap().service = "old".into();
    for index in 0..10u32 {
        let noise = NOISE[(index as usize * 3 + 7) % 10];
        record.trials.push(trial(index, NOISE_FLOOR, 10_000.0 * ratio * noise));
    }
    record
}

#[test]
fn a_difference_is_only_one_where_it_is_larger_than_that_of_the_baseline_from_itself() {
    for (ratio, floor, is_within) in [(1.1, 1.15, true), (1.1, 0.85, true), (1.3, 1.15, false), (0.8, 1.02, false)] {
        let record = with_floor(record(ratio, serde_json::json!([])), floor);
        let report = Report { judgement: judge(&record), record };
        let of = |arm: &str| {
            let mut all = report.judgement.comparisons.iter();
            all.find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap()
        };
        let (new, again) = (of("new"), of(NOISE_FLOOR));
        assert!(again.is_noise_floor() && !again.is_within_noise_floor() && !new.is_noise_floor());
        let beside = new.noise_floor.unwrap();
        assert_eq!(beside.low_basis_points, again.low_basis_points);
        assert_eq!(new.is_within_noise_floor(), is_within, "{ratio} over {floor}: {new:?}");
        assert!(
            report.judgement.message.contains("of itself, which is the noise floor"),
            "{}",
            report.judgement.message
        );
        assert_eq!(report.judgement.message.contains(", within the noise floor"), is_within);
        for page in [text(&report, 400, false), markdown(&report), html(&report).unwrap()] {
            assert!(page.contains("the baseline against itself"), "{page}");
            // As a conclusion of the throughput: a note explains the words in any case, and memory was the same.
            let concludes = page
                .lines()
                .filter(|line| !line.contains("peak memory"))
                .any(|line| line.contains(") within the noise floor") || line.contains(">within the noise floor<"));
            assert_eq!(concludes, is_within, "{page}");
        }
        assert_eq!(from_json(&json(&report).unwrap()).unwrap(), report);
    }
}

#[test]
fn a_gate_is_decided_as_without_a_noise_floor() {
    let gate = || throughput_gate(9_000, "Fail");
    assert_eq!(judge(&record(0.8, gate())).verdict, Verdict::Regressed);
    assert_eq!(judge(&with_floor(record(0.8, gate()), 1.3)).verdict, Verdict::Regressed);
}

#[test]
fn without_enough_trials_there_is_no_floor_and_nothing_is_said_of_one() {
    let mut record = with_floor(record(1.3, serde_json::json!([])), 1.0);
    record.trials.retain(|trial| trial.index < 2);
    let judgement = judge(&record);
    assert!(judgement.comparisons.iter().all(|one| one.noise_floor.is_none()), "{judgement:?}");
}

/// By its name alone a slower store would widen what is called no difference.
#[test]
fn an_arm_that_only_has_the_name_of_the_noise_floor_is_none() {
    let judged = |change: fn(&mut RunRecord)| {
        let mut record = with_floor(record(1.1, serde_json::json!([])), 0.7);
        change(&mut record);
        judge(&record)
    };
    let of = |judgement: &Judgement, arm: &str| {
        let mut all = judgement.comparisons.iter();
        all.find(|one| one.arm == arm && one.metric == Metric::THROUGHPUT).unwrap().clone()
    };
    assert!(of(&judged(|_| {}), "new").is_within_noise_floor());
    let changes: [fn(&mut RunRecord); 3] = [
        |record| record.spec.noise_floor = false,
        |record| record.arms.last_mut().unwrap().service = "slower".into(),
        |record| record.arms.last_mut().unwrap().durability = Some(Durability::None),
    ];
    for change in changes {
        let judgement = judged(change);
        assert_eq!(of(&judgement, "new").noise_floor, None);
        assert!(of(&judgement, NOISE_FLOOR).not_ranked.is_some(), "{judgement:?}");
    }
}
