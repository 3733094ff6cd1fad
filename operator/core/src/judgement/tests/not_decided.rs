//! What decides nothing, and is not told as if it had.

use storebench_crds::Metric;
use storebench_crds::job::latency_histogram;
use storebench_crds::measure::{Distribution, Reading};
use storebench_crds::status::{GateOutcome, Verdict};
use storebench_crds::workload::etcd::PUT_LATENCY;

use super::{record, throughput_gate};
use crate::judgement::{judge, paired_values};
use crate::record::{RunRecord, Unavailable};

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

/// Neither beside another arm nor beside an earlier run: whatever is compared there decides something.
#[test]
fn a_percentile_of_too_few_requests_is_not_compared() {
    let [p95, p99] = ["LatencyP95Micros", "LatencyP99Micros"].map(|name| Metric::named(name).unwrap());
    for few in ["new", "old"] {
        let mut record = record(1.0, serde_json::json!([]));
        let is_compared = |record: &RunRecord, metric| judge(record).comparisons.iter().any(|one| one.metric == metric);
        assert!(is_compared(&record, p99) && paired_values(&record, few, "put", p99).unwrap().is_some());
        let trials = record.trials.iter_mut().filter(|trial| trial.arm == few);
        trials.flat_map(|trial| &mut trial.workloads).for_each(|measured| measured.summary.operations = 60);
        assert!(is_compared(&record, p95) && !is_compared(&record, p99), "{few}");
        assert!(paired_values(&record, few, "put", p95).unwrap().is_some());
        let reason = format!("60 requests of {few} in a trial, and p99 latency takes 100");
        assert_eq!(paired_values(&record, few, "put", p99), Err(reason));
    }
}

/// Lags, acknowledgements and the like come in numbers of their own, whatever the number of requests.
#[test]
fn a_percentile_of_too_few_durations_is_not_told() {
    let mut record = record(1.0, serde_json::json!([{ "arm": "new", "metric": "PutLatencyP99Micros", "atMost": 900 }]));
    let p99 = Metric::named("PutLatencyP99Micros").unwrap();
    for (durations, is_told) in [(99, false), (100, true)] {
        for trial in &mut record.trials {
            let mut histogram = latency_histogram();
            histogram.record_n(500_000, durations).unwrap();
            let reading = Reading::Durations(Distribution::of(&histogram).unwrap());
            trial.workloads[0].measures.insert(PUT_LATENCY.0.into(), reading);
        }
        let judgement = judge(&record);
        let result = judgement.results.iter().find(|result| result.arm == "new").unwrap();
        assert_eq!(result.value(p99).is_some(), is_told, "{durations}");
        assert_eq!(judgement.comparisons.iter().any(|one| one.metric == p99), is_told, "{durations}");
        let (outcome, found) = (judgement.gates[0].outcome, &judgement.gates[0].found);
        match is_told {
            true => assert_eq!(outcome, GateOutcome::Met, "{found}"),
            false => assert!(outcome == GateOutcome::NotJudged && found.starts_with("99 durations of new"), "{found}"),
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

/// More trials would not measure it, so that it is not for `onInconclusive`: a run that keeps none of its promises would have passed.
#[test]
fn a_gate_on_what_no_trial_of_an_arm_has_is_not_passed_by() {
    let bounds = [("new", "atMost", 5_000_000.into()), ("new", "ratioAtMost", "300%".into())];
    let of_old = ("old", "ratioAtMost", serde_json::Value::from("300%"));
    for (lacking, bound, value) in bounds.into_iter().chain([of_old]) {
        for on_inconclusive in ["Fail", "Warn", "Pass"] {
            let mut gate = serde_json::json!({ "arm": "new", "metric": "CpuNanosPerOperation", "onInconclusive": on_inconclusive });
            gate[bound] = value.clone();
            let mut record = record(1.0, serde_json::json!([gate]));
            assert_eq!(judge(&record).gates[0].outcome, GateOutcome::Met, "{bound}");
            let trials = record.trials.iter_mut().filter(|trial| trial.arm == lacking);
            trials.flat_map(|trial| &mut trial.workloads).for_each(|measured| measured.usage = None);
            let judgement = judge(&record);
            let gate = &judgement.gates[0];
            assert_eq!(
                (gate.outcome, gate.found.as_str()),
                (GateOutcome::NotJudged, &*format!("not measured of {lacking}"))
            );
            assert_eq!(judgement.verdict, Verdict::Inconclusive, "{on_inconclusive}: {}", judgement.message);
        }
    }
}

#[test]
fn a_gate_on_an_arm_that_could_not_be_started_is_not_passed_by() {
    for bound in [serde_json::json!({ "atLeast": 1 }), serde_json::json!({ "ratioAtLeast": "1%" })] {
        let mut gate = serde_json::json!({ "arm": "new", "metric": "ThroughputPerSecond", "onInconclusive": "Pass" });
        gate.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
        let mut record = record(1.0, serde_json::json!([gate]));
        let mut third = record.arms[1].clone();
        third.name = "third".into();
        record.arms.push(third);
        for trial in record.trials.iter_mut().filter(|trial| trial.arm == "new") {
            trial.arm = "third".into();
        }
        record.arms[1].unavailable =
            Some(Unavailable { reason: "no executable".into(), install: "peers/fetch".into() });
        let judgement = judge(&record);
        assert_eq!(judgement.gates[0].found, "not measured of new", "{bound}");
        assert_eq!(judgement.verdict, Verdict::Inconclusive, "{bound}: {}", judgement.message);
    }
}

/// The schema refuses it; a record may be written by anybody.
#[test]
fn a_gate_without_a_bound_is_not_met() {
    let judgement = judge(&record(1.0, serde_json::json!([{ "arm": "new", "metric": "LatencyP99Micros" }])));
    assert_eq!((judgement.verdict, judgement.gates[0].outcome), (Verdict::Inconclusive, GateOutcome::NotJudged));
}
