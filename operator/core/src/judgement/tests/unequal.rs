//! Unequal arms are labelled and not ranked, whatever it is that differs.

use super::*;

#[test]
fn unequal_durability_is_never_ranked() {
    let mut record = record(2.0, throughput_gate(9_000, "Fail"));
    record.arms[1].durability = Some(Durability::None);
    let judgement = judge(&record);
    assert!(judgement.comparisons.iter().all(|comparison| comparison.not_ranked.is_some()));
    assert_eq!(judgement.gates[0].outcome, GateOutcome::NotJudged);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.caveats.iter().any(|caveat| caveat.contains("not ranked")));
}

fn with_args(mut record: RunRecord, allowed: &[&str]) -> RunRecord {
    record.arms[1]
        .fields
        .get_or_insert_default()
        .insert(storebench_crds::benchmark_run::ArmField::Args, "--turbo".into());
    record.spec.allow_unequal = serde_json::from_value(serde_json::json!(allowed)).unwrap();
    record
}

#[test]
fn an_arm_with_other_arguments_is_not_ranked_until_the_run_says_that_they_are_what_is_compared() {
    let judgement = judge(&with_args(record(1.3, throughput_gate(9_000, "Pass")), &[]));
    let reason = "args --turbo against none";
    assert!(judgement.comparisons.iter().all(|found| found.not_ranked.as_deref() == Some(reason)));
    assert_eq!((judgement.verdict, judgement.gates[0].outcome), (Verdict::Inconclusive, GateOutcome::NotJudged));
    assert!(judgement.gates[0].found.contains(reason), "{:?}", judgement.gates);

    let record = with_args(record(1.3, throughput_gate(9_000, "Fail")), &["args"]);
    let judgement = judge(&record);
    assert!(judgement.comparisons.iter().all(|found| found.not_ranked.is_none()));
    assert_eq!(judgement.verdict, Verdict::Passed);
    let named = "new and old differ in more than the store, which allowUnequal permits: args --turbo against none";
    assert!(judgement.caveats.iter().any(|caveat| caveat == named), "{:?}", judgement.caveats);
}

#[test]
fn a_column_that_ranks_nobody_says_so_and_an_invalid_run_has_none() {
    let column = |record: RunRecord| {
        let report = Report { judgement: judge(&record), record };
        crate::status::status(&report).columns.unwrap().throughput_ratio
    };
    assert!(!column(record(1.3, serde_json::json!([]))).unwrap().contains("not ranked"));
    let unequal = column(with_args(record(1.3, serde_json::json!([])), &[])).unwrap();
    assert!(unequal.starts_with("1.") && unequal.ends_with(", not ranked"), "{unequal}");
    let mut invalid = record(1.3, serde_json::json!([]));
    failed(&mut invalid, 3, FailureCause::WrongAnswer);
    assert_eq!(column(invalid), None);
}

/// What the schedule does to be fair is lost where an arm ran on another machine.
#[test]
fn arms_that_ran_on_different_nodes_are_not_ranked_and_the_gate_decides_nothing() {
    let mut record = record(0.5, throughput_gate(9_000, "Fail"));
    record.driver = Driver::Kubernetes;
    let on = |record: &mut RunRecord, of_new: &str| {
        for trial in &mut record.trials {
            let node = if trial.arm == "new" { of_new } else { "n1" };
            trial.nodes = [("store-0".to_owned(), node.to_owned()), ("load-0".to_owned(), "n3".to_owned())].into();
        }
    };
    assert!(judge(&record).comparisons[0].not_ranked.as_deref().unwrap().ends_with("is not known: run again"));
    on(&mut record, "n1");
    assert_eq!(judge(&record).verdict, Verdict::Regressed);
    on(&mut record, "n2");
    let judgement = judge(&record);
    let why = "in trial 1 the store of new ran on n2, and that of old on n1";
    assert_eq!((judgement.verdict, judgement.comparisons[0].not_ranked.as_deref()), (Verdict::Inconclusive, Some(why)));
    assert!(judgement.caveats.iter().any(|caveat| caveat.ends_with(why)), "{:?}", judgement.caveats);
    record.spec.allow_unequal = vec![storebench_crds::benchmark_run::ArmField::Pod];
    let allowed = judge(&record);
    assert_eq!(allowed.verdict, Verdict::Regressed);
    assert!(allowed.caveats.iter().any(|caveat| caveat.ends_with(why)), "and said: {:?}", allowed.caveats);
}

/// They were ranked as if they were equal.
#[test]
fn a_record_from_before_fields_were_kept_ranks_nobody() {
    let mut record = record(0.5, throughput_gate(9_000, "Fail"));
    record.arms[0].fields = None;
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.message.ends_with("run again"), "{}", judgement.message);
}

/// They were ranked without a word, as if they were equal.
#[test]
fn arms_of_which_nobody_knows_the_durability_are_named_and_one_that_is_stated_is_not_ranked_with_one_that_is_not() {
    let of = |[old, new]: [Option<Durability>; 2]| {
        let mut record = record(1.3, throughput_gate(9_000, "Fail"));
        for (arm, durability) in record.arms.iter_mut().zip([old, new]) {
            (arm.engine, arm.replicas, arm.durability) = (None, 0, durability);
        }
        let judgement = judge(&record);
        let said = judgement.caveats.iter().find_map(|one| one.split_once(" is not known").map(|(arms, _)| arms));
        (judgement.comparisons[0].not_ranked.clone(), said.map(str::to_owned))
    };
    let both = "durability of old, new".to_owned();
    assert_eq!(of([None, None]), (None, Some(both)));
    let (why, said) = of([Some(Durability::Fsync), None]);
    assert_eq!(why.unwrap(), "durability not known against Fsync");
    assert_eq!(said.unwrap(), "durability of new");
    assert_eq!(of([Some(Durability::Fsync); 2]), (None, None));
    let (why, _) = of([Some(Durability::Fsync), Some(Durability::None)]);
    assert_eq!(why.unwrap(), "durability None against Fsync");
}
