//! What is judged of a metric that is zero, which has no ratio.

use storebench_crds::measure::Reading;
use storebench_crds::status::{GateOutcome, Verdict};
use storebench_crds::workload::sqlite_replication::LOST_ROWS;

use super::record;
use crate::judgement::{Judgement, judge};

/// Of what must never happen.
fn of_lost_rows(lost: [u64; 10], gate: serde_json::Value) -> Judgement {
    let mut record = record(1.0, serde_json::json!([gate]));
    let workload = serde_json::json!([
        { "name": "put", "sqliteReplication": { "operation": "Write", "databases": 1, "rows": 1, "rowBytes": 100 }, "load": { "duration": "2s" } },
    ]);
    record.spec.workloads = serde_json::from_value(workload).unwrap();
    for trial in &mut record.trials {
        let lost = if trial.arm == "new" { lost[trial.index as usize] } else { 0 };
        trial.workloads[0].measures.insert(LOST_ROWS.0.into(), Reading::Total(lost));
    }
    judge(&record)
}

#[test]
fn a_bound_is_judged_also_where_the_metric_is_zero() {
    let never = serde_json::json!({ "arm": "new", "metric": "RowsLost", "atMost": 0 });
    let judged = |lost, gate: &serde_json::Value| {
        let judgement = of_lost_rows(lost, gate.clone());
        (judgement.gates[0].outcome, judgement.verdict)
    };
    assert_eq!(judged([0; 10], &never), (GateOutcome::Met, Verdict::Passed));
    // Once is not never.
    let once = [0, 0, 0, 0, 5, 0, 0, 0, 0, 0];
    assert_eq!(judged(once, &never), (GateOutcome::Missed, Verdict::Regressed));
    assert_eq!(judged([3; 10], &never), (GateOutcome::Missed, Verdict::Regressed));
    let few = serde_json::json!({ "arm": "new", "metric": "RowsLost", "atMost": 3 });
    assert_eq!(judged(once, &few), (GateOutcome::Undecided, Verdict::Inconclusive));
    assert_eq!(judged([0, 1, 0, 2, 0, 0, 3, 0, 0, 0], &few), (GateOutcome::Met, Verdict::Passed));
}

#[test]
fn zero_has_no_ratio_and_no_warning_makes_it_pass() {
    let gate =
        |on| serde_json::json!({ "arm": "new", "metric": "RowsLost", "ratioAtMost": "110%", "onInconclusive": on });
    let none = of_lost_rows([0; 10], gate("Warn"));
    assert_eq!((none.gates[0].outcome, none.verdict), (GateOutcome::Met, Verdict::Passed));
    for lost in [[0, 0, 0, 0, 5, 0, 0, 0, 0, 0], [7; 10]] {
        let judgement = of_lost_rows(lost, gate("Warn"));
        assert_eq!((judgement.gates[0].outcome, judgement.verdict), (GateOutcome::NotJudged, Verdict::Inconclusive));
        assert!(judgement.gates[0].found.contains("which has no ratio"), "{}", judgement.gates[0].found);
    }
}
