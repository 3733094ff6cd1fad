//! What the loader limits is undecided.

use super::*;

fn saturated(record: &mut RunRecord, arm: &str, trials: usize) {
    let of_arm = record.trials.iter_mut().filter(|trial| trial.arm == arm).take(trials);
    for one in of_arm.flat_map(|trial| &mut trial.workloads) {
        one.audit = Some(storebench_crds::job::LoaderAudit {
            busiest_thread_basis_points: 7_000,
            saturation_basis_points: 9_700,
            saturated_thread: "load-0".into(),
            ..Default::default()
        });
    }
}

#[test]
fn two_stores_that_one_busy_loader_thread_holds_back_are_not_equal_but_undecided() {
    for on_inconclusive in ["Fail", "Warn", "Pass"] {
        for arm in ["old", "new"] {
            let mut record = record(1.0, throughput_gate(9_000, on_inconclusive));
            assert_eq!(judge(&record).verdict, Verdict::Passed);
            saturated(&mut record, arm, 5);
            let judgement = judge(&record);
            assert_eq!(judgement.verdict, Verdict::Inconclusive, "{on_inconclusive}");
            assert_eq!(judgement.gates[0].outcome, GateOutcome::Undecided);
            let said = format!(
                "the loader is the limit in put on {arm}: its thread load-0 ran for 70 % and waited for a processor for 27 % of the time"
            );
            assert!(judgement.message.contains(&said), "{}", judgement.message);
            assert!(judgement.message.contains("raise load.connections and load.threads"), "{}", judgement.message);
            let not_ranked = |comparison: &storebench_crds::status::Comparison| {
                comparison.not_ranked.as_ref().is_some_and(|why| why.starts_with("undecided, for the loader"))
            };
            assert!(judgement.comparisons.iter().all(not_ranked), "{:?}", judgement.comparisons);
            assert!(judgement.caveats.iter().any(|caveat| caveat.contains(&said)), "{:?}", judgement.caveats);
        }
    }
}

#[test]
fn a_busy_relay_decides_nothing_either_and_is_not_helped_by_threads_of_the_loader() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    saturated(&mut record, "new", 10);
    let of_trials = record.trials.iter_mut().flat_map(|trial| &mut trial.workloads);
    of_trials.filter_map(|one| one.audit.as_mut()).for_each(|audit| audit.saturated_thread = "relay".into());
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.message.contains("its thread relay ran for 70 %"), "{}", judgement.message);
    assert!(judgement.message.contains("load.threads adds none of these"), "{}", judgement.message);
}

#[test]
fn a_loader_that_was_busy_in_a_few_trials_limits_nothing() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    saturated(&mut record, "new", 4);
    assert_eq!(judge(&record).verdict, Verdict::Passed);
}

#[test]
fn a_number_that_a_store_reaches_although_the_loader_is_the_limit_is_reached_and_one_that_it_misses_is_not_missed() {
    let gate = |bound: u64| serde_json::json!([{ "arm": "new", "metric": "ThroughputPerSecond", "atLeast": bound }]);
    for (bound, verdict) in [(9_000, Verdict::Passed), (11_000, Verdict::Inconclusive)] {
        let mut record = record(1.0, gate(bound));
        saturated(&mut record, "new", 10);
        assert_eq!(judge(&record).verdict, verdict, "{bound}");
    }
}

/// A gate on a measure, by the metric's name and its own: what was read of it meets the upper of both bounds, and neither decides anything where
/// the loader is the limit.
fn met_and_then_undecided_where_the_loader_is_the_limit(names: [&str; 2], read: &Reading, bounds: [u64; 2]) {
    let [metric, measure] = names;
    let with = |bound: u64| {
        let mut record = record(1.0, serde_json::json!([{ "arm": "new", "metric": metric, "atMost": bound }]));
        for one in record.trials.iter_mut().flat_map(|trial| &mut trial.workloads) {
            one.measures.insert(measure.into(), read.clone());
        }
        record
    };
    assert_eq!(judge(&with(bounds[1])).verdict, Verdict::Passed, "{metric}");
    for bound in bounds {
        let mut record = with(bound);
        saturated(&mut record, "new", 10);
        let judgement = judge(&record);
        assert_eq!(judgement.gates[0].outcome, GateOutcome::Undecided, "{metric} {bound}: {}", judgement.message);
        assert_eq!(judgement.verdict, Verdict::Inconclusive, "{metric} {bound}");
    }
}

#[test]
fn a_loader_that_asked_too_little_has_not_shown_that_little_goes_wrong() {
    for (metric, measure) in [("FailedRequests", "failedRequests"), ("LostWrites", "lostWrites")] {
        met_and_then_undecided_where_the_loader_is_the_limit([metric, measure], &Reading::Total(3), [2, 4]);
    }
}

/// A store that was asked for half the load took less memory, and was within its bound.
#[test]
fn a_loader_that_asked_too_little_has_not_shown_what_a_store_takes() {
    let costs = [("MemoryPeakBytes", 60 << 20), ("CpuNanosPerOperation", 100_000_000)];
    for (metric, bound) in costs {
        let mut record = record(1.0, serde_json::json!([{ "arm": "new", "metric": metric, "atMost": bound }]));
        assert_eq!(judge(&record).verdict, Verdict::Passed, "{metric}");
        saturated(&mut record, "new", 10);
        assert_eq!(judge(&record).gates[0].outcome, GateOutcome::Undecided, "{metric}");
    }
}

#[test]
fn a_loader_that_commits_little_has_not_shown_that_a_replica_follows() {
    let lag = |millis: u64| {
        let mut histogram = latency_histogram();
        histogram.record_n(millis * 1_000_000, 100).unwrap();
        Reading::Durations(Distribution::of(&histogram).unwrap())
    };
    for (metric, measure) in [
        ("ReplicationLagP99Millis", "replicationLag"),
        ("OutageRecoveryMaxMillis", "outageRecovery"),
        ("CatchUpMicros", "catchUp"),
        ("RecoveryMicros", "recovery"),
    ] {
        let millis = if metric.ends_with("Micros") { 1_000 } else { 1 };
        met_and_then_undecided_where_the_loader_is_the_limit([metric, measure], &lag(30), [20 * millis, 40 * millis]);
    }
}

/// There no thread is ever found busy, and nothing said so.
#[test]
fn a_kernel_that_counts_no_time_of_threads_makes_a_caveat() {
    let said = |record: &RunRecord| {
        judge(record).caveats.iter().any(|caveat| caveat.starts_with("whether the loader was the limit is not known: "))
    };
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    assert!(!said(&record), "a record without an account of the loader says nothing of the kernel");
    for one in record.trials.iter_mut().flat_map(|trial| &mut trial.workloads) {
        one.audit = Some(storebench_crds::job::LoaderAudit { cpu_nanos: 1_000, ..Default::default() });
    }
    assert!(!said(&record), "a thread that hardly ran ran");
    for one in record.trials.iter_mut().flat_map(|trial| &mut trial.workloads) {
        one.audit = Some(storebench_crds::job::LoaderAudit::default());
    }
    assert!(said(&record));
    assert_eq!(judge(&record).verdict, Verdict::Passed);
}
