//! What has the value of its largest trial, and when a run has enough trials.

use super::*;
use crate::judgement::stop_half_widths;

fn with_memory(mebibytes: [u64; 10], gate: serde_json::Value) -> RunRecord {
    let mut record = record(1.0, serde_json::json!([gate]));
    for trial in &mut record.trials {
        let used = if trial.arm == "new" { mebibytes[trial.index as usize] } else { 50 };
        trial.workloads[0].usage.as_mut().unwrap().rss_peak_bytes = used << 20;
    }
    record
}

/// One trial of 500 MiB among nine of 50 was \"at most 100\".
#[test]
fn a_bound_on_the_largest_is_not_met_by_the_middle_of_the_trials() {
    let gate = serde_json::json!({ "arm": "new", "metric": "MemoryPeakBytes", "atMost": 100 << 20 });
    let mut once = [50; 10];
    once[4] = 500;
    for (used, outcome) in [
        ([50; 10], GateOutcome::Met),
        ([99, 98, 97, 99, 100, 99, 98, 97, 99, 100], GateOutcome::Met),
        (once, GateOutcome::Undecided),
        ([500; 10], GateOutcome::Missed),
    ] {
        let judgement = judge(&with_memory(used, gate.clone()));
        assert_eq!(judgement.gates[0].outcome, outcome, "{used:?}: {}", judgement.gates[0].found);
    }
    let judgement = judge(&with_memory(once, gate));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.message.contains("which more trials do not make smaller"), "{}", judgement.message);
}

/// A run of a given rate ended after the fewest trials, whatever its gate was on: the rate is as narrow as can be.
#[test]
fn a_run_goes_on_until_what_its_gates_are_on_is_narrow() {
    let gate = serde_json::json!([{ "arm": "new", "metric": "MemoryPeakBytes", "atMost": 100 << 20 }]);
    let memory = [20, 90, 30, 80, 25, 85, 40, 70, 35, 75];
    let widths = |gates: &serde_json::Value, memory| {
        let mut record =
            with_memory(memory, serde_json::json!({ "arm": "new", "metric": "MemoryPeakBytes", "atMost": 1 }));
        record.spec.gates = serde_json::from_value(gates.clone()).unwrap();
        stop_half_widths(&record)
    };
    let [of_memory, of_throughput] = widths(&gate, memory)[..] else { panic!("one each") };
    assert!(of_memory > 2_000.0 && of_throughput < 400.0, "{of_memory} {of_throughput}");
    // One trial that was out of the way does not keep a run going for ever.
    let mut once = [50; 10];
    once[4] = 51;
    assert!(widths(&gate, once)[0] < 400.0);
    assert_eq!(
        widths(&throughput_gate(9_000, "Fail"), memory).len(),
        1,
        "a ratio is watched instead of the first look"
    );
}

/// At a given rate arms differ in how late they answer.
#[test]
fn at_a_given_rate_latency_is_what_is_watched_and_told() {
    let mut record = record(1.0, serde_json::json!([]));
    let load = serde_json::json!({ "duration": "2s", "mode": "OpenLoop", "rate": 10_000, "connections": 1 });
    record.spec.workloads[0].load = serde_json::from_value(load).unwrap();
    for (number, trial) in record.trials.iter_mut().enumerate() {
        let millis = if trial.arm == "new" { [1, 9, 2, 8, 3][number / 2 % 5] } else { 4 };
        let mut histogram = latency_histogram();
        histogram.record_n(millis * 1_000_000, 2_000).unwrap();
        let summary = &mut trial.workloads[0].summary;
        (summary.service, summary.intended) = (LatencySummary::of(&histogram), Some(LatencySummary::of(&histogram)));
    }
    let [width] = stop_half_widths(&record)[..] else { panic!("one arm, one workload") };
    assert!(width > 2_000.0, "{width}");
    let message = judge(&record).message;
    assert!(message.contains("p99 latency") && !message.contains("throughput"), "{message}");
}
