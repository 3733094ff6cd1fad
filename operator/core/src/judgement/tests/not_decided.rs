//! What decides nothing, and is not told as if it had.

use storebench_crds::status::{GateOutcome, Verdict};

use super::{record, throughput_gate};
use crate::judgement::judge;

#[test]
fn a_gate_that_only_warns_is_not_called_met() {
    for on_inconclusive in ["Warn", "Pass"] {
        let judgement = judge(&record(0.95, throughput_gate(9_500, on_inconclusive)));
        assert_eq!((judgement.gates[0].outcome, judgement.verdict), (GateOutcome::Undecided, Verdict::Passed));
        assert!(judgement.message.starts_with("the gate was not decided; undecided: "), "{}", judgement.message);
    }
}

/// Who keeps twice the rate waits longer at it.
#[test]
fn what_one_waits_at_the_highest_rate_of_each_is_not_ranked() {
    let mut record =
        record(2.0, serde_json::json!([{ "arm": "new", "metric": "LatencyP99Micros", "ratioAtMost": "110%" }]));
    let workload = serde_json::json!([{
        "name": "put", "etcd": { "operation": "Put" },
        "load": { "mode": "OpenLoop", "duration": "2s", "highestRate": { "percentile": "P99", "atMost": "5ms" } },
    }]);
    record.spec.workloads = serde_json::from_value(workload).unwrap();
    let judgement = judge(&record);
    for comparison in &judgement.comparisons {
        assert_eq!(
            comparison.not_ranked.is_some(),
            comparison.metric.direction.is_waiting(),
            "{:?}",
            comparison.metric
        );
    }
    assert_eq!((judgement.gates[0].outcome, judgement.verdict), (GateOutcome::NotJudged, Verdict::Inconclusive));
}

/// The schema refuses it; a record may be written by anybody.
#[test]
fn a_gate_without_a_bound_is_not_met() {
    let judgement = judge(&record(1.0, serde_json::json!([{ "arm": "new", "metric": "LatencyP99Micros" }])));
    assert_eq!((judgement.verdict, judgement.gates[0].outcome), (Verdict::Inconclusive, GateOutcome::NotJudged));
}
