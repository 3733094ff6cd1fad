//! What decides nothing, and is not told as if it had.

use storebench_crds::Metric;
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

/// Of 60 requests the 99th percentile is the largest, which reports do not call so.
#[test]
fn a_gate_on_a_percentile_of_too_few_requests_is_not_met() {
    let bounds = [("new", "atMost", 5_000_000.into()), ("new", "ratioAtMost", "300%".into())];
    let of_old = ("old", "ratioAtMost", serde_json::Value::from("300%"));
    for (few, bound, value) in bounds.into_iter().chain([of_old]) {
        for on_inconclusive in ["Fail", "Warn", "Pass"] {
            let mut gate =
                serde_json::json!({ "arm": "new", "metric": "LatencyP99Micros", "onInconclusive": on_inconclusive });
            gate[bound] = value.clone();
            let mut record = record(1.0, serde_json::json!([gate]));
            assert_eq!(judge(&record).gates[0].outcome, GateOutcome::Met, "{bound} of enough");
            let trials = record.trials.iter_mut().filter(|trial| trial.arm == few);
            trials.flat_map(|trial| &mut trial.workloads).for_each(|measured| measured.summary.operations = 60);
            let judgement = judge(&record);
            assert_eq!(judgement.gates[0].outcome, GateOutcome::NotJudged, "{bound} of {few}");
            assert_eq!(judgement.verdict, Verdict::Inconclusive, "{on_inconclusive}: {}", judgement.message);
            let said =
                format!("found 60 requests of {few} in a trial, and p99 latency takes 100; to do: measure longer");
            assert!(judgement.message.contains(&said), "{}", judgement.message);
            record.spec.gates[0].metric = Metric::named("LatencyP95Micros").unwrap();
            assert_eq!(judge(&record).gates[0].outcome, GateOutcome::Met, "p95 takes 20");
        }
    }
}

/// A store may answer so seldom because it has become slow.
#[test]
fn a_gate_that_is_missed_stays_missed_when_there_were_too_few_requests() {
    let gate = serde_json::json!({ "arm": "new", "metric": "LatencyP99Micros", "atMost": 1 });
    let mut record = record(1.0, serde_json::json!([gate]));
    let trials = record.trials.iter_mut().filter(|trial| trial.arm == "new");
    trials.flat_map(|trial| &mut trial.workloads).for_each(|measured| measured.summary.operations = 60);
    let judgement = judge(&record);
    assert_eq!((judgement.gates[0].outcome, judgement.verdict), (GateOutcome::Missed, Verdict::Regressed));
    let found = &judgement.gates[0].found;
    assert!(found.ends_with("; 60 requests of new in a trial, and p99 latency takes 100"), "{found}");
}

/// The schema refuses it; a record may be written by anybody.
#[test]
fn a_gate_without_a_bound_is_not_met() {
    let judgement = judge(&record(1.0, serde_json::json!([{ "arm": "new", "metric": "LatencyP99Micros" }])));
    assert_eq!((judgement.verdict, judgement.gates[0].outcome), (Verdict::Inconclusive, GateOutcome::NotJudged));
}
