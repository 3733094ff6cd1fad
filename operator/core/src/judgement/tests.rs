//! Worked examples of every verdict, from records that a driver could have made.

mod alike;
mod headline;
mod largest;
mod limit;
mod noise_floor;
mod not_decided;
mod unequal;
mod whole;
mod zero;

use proptest::prelude::*;
use storebench_crds::Metric;
use storebench_crds::job::{LatencyKind, WorkloadSummary, encode_histogram, latency_histogram};
use storebench_crds::measure::{Distribution, Reading, TOOLS_CPU_NANOS};
use storebench_crds::status::{GateOutcome, LatencySummary, TrialState, Verdict};
use storebench_crds::storage_service::{Durability, EngineKind};
use storebench_crds::workload::etcd::PUT_LATENCY;

use super::{Judgement, judge, worth_measuring};
use crate::record::*;
use crate::report::{Report, from_json, html, json, markdown, text};

/// Nine runs' noise, as factors: a fixed sample of a 2 % standard deviation.
const NOISE: [f64; 10] = [1.012, 0.985, 1.003, 0.991, 1.022, 0.978, 1.009, 0.996, 1.017, 0.988];

fn arm(name: &str, baseline: bool) -> ArmRecord {
    ArmRecord {
        name: name.into(),
        baseline,
        service: name.into(),
        engine: Some(EngineKind::Etcd),
        version: Some("3.7.3".into()),
        folder_version: None,
        durability: Some(Durability::Fsync),
        durability_setting: "WAL synced before acknowledgement".into(),
        replicas: 1,
        fields: Some(Default::default()),
        control_plane: None,
        command: Vec::new(),
        unavailable: None,
    }
}

fn measurement(per_second: f64) -> WorkloadMeasurement {
    let latency_nanos = (1e9 / per_second) as u64;
    let mut histogram = latency_histogram();
    histogram.record_n(latency_nanos, 1_000).unwrap();
    WorkloadMeasurement {
        summary: WorkloadSummary {
            name: "put".into(),
            operations: (per_second * 2.0) as u64,
            errors: 0,
            elapsed_nanos: 2_000_000_000,
            verified: 1_000,
            service: LatencySummary::of(&histogram),
            intended: None,
        },
        audit: None,
        usage: Some(Usage {
            elapsed_nanos: 2_000_000_000,
            cpu_nanos: 1_000_000_000,
            rss_peak_bytes: 50 << 20,
            ..Usage::default()
        }),
        control_plane: None,
        fsyncs: None,
        measures: Default::default(),
        api_requests: None,
        start_skew_nanos: None,
        foreign_millicores: None,
        machines: Vec::new(),
        steps: Vec::new(),
        histograms: vec![EncodedHistogram {
            latency: LatencyKind::Service,
            data: encode_histogram(&histogram).unwrap(),
        }],
    }
}

fn trial(index: u32, arm: &str, per_second: f64) -> TrialRecord {
    TrialRecord {
        index,
        arm: arm.into(),
        state: TrialState::Valid,
        failure: None,
        started_millis: u64::from(index) * 4_000,
        duration_millis: 2_000,
        waited_millis: None,
        nodes: Default::default(),
        workloads: vec![measurement(per_second)],
        footprint: None,
        idle: None,
        disk_bytes: None,
    }
}

/// A run of "new" against "old"; `ratio` is the true ratio of their throughputs.
fn record(ratio: f64, gates: serde_json::Value) -> RunRecord {
    let spec = serde_json::json!({
        "arms": [
            { "name": "old", "baseline": true, "serviceRef": { "name": "old" } },
            { "name": "new", "serviceRef": { "name": "new" } },
        ],
        "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "duration": "2s" } }],
        "trials": { "min": 3, "max": 10, "retries": 1 },
        "gates": gates,
    });
    let mut trials = Vec::new();
    for index in 0..10u32 {
        let noise = |offset: usize| NOISE[(index as usize * 3 + offset) % 10];
        trials.push(trial(index, "old", 10_000.0 * noise(0)));
        trials.push(trial(index, "new", 10_000.0 * ratio * noise(5)));
    }
    RunRecord {
        record_version: RECORD_VERSION,
        name: "example".into(),
        storebench_version: "0.1.0".into(),
        started_at: "2026-11-21T00:00:00Z".into(),
        duration_millis: 40_000,
        driver: Driver::Embedded,
        spec: serde_json::from_value(spec).unwrap(),
        arms: vec![arm("old", true), arm("new", false)],
        trials,
        fingerprint: Default::default(),
        caveats: Vec::new(),
        aborted: None,
        left_behind: Vec::new(),
    }
}

fn throughput_gate(basis_points: u32, on_inconclusive: &str) -> serde_json::Value {
    serde_json::json!([{
        "arm": "new", "metric": "ThroughputPerSecond",
        "ratioAtLeastBasisPoints": basis_points, "onInconclusive": on_inconclusive,
    }])
}

fn failed(record: &mut RunRecord, position: usize, cause: FailureCause) {
    record.trials[position].state = TrialState::Invalid;
    record.trials[position].failure = Some(TrialFailure { cause, detail: "what happened".into() });
}

#[test]
fn who_shares_a_store_among_trials_is_warned_of_processes_that_differ() {
    let mut record = record(1.0, serde_json::json!([]));
    let warned =
        |record: &RunRecord| judge(record).caveats.iter().any(|caveat| caveat.starts_with("isolation is Shared"));
    assert!(!warned(&record));
    record.spec.isolation = storebench_crds::Isolation::Shared;
    assert!(warned(&record));
}

#[test]
fn why_nobody_knows_what_a_killed_store_used_is_said() {
    let mut record = record(1.0, serde_json::json!([]));
    let fault = |kind: &str| serde_json::json!({ "kind": kind, "after": "1s", "duration": "1s", "syncDelay": "1ms" });
    let said = |record: &RunRecord| {
        judge(record).caveats.into_iter().find(|caveat| caveat.starts_with("what the store uses in put is not known"))
    };
    for (kind, why) in [("Kill", "goes what that used"), ("SlowDisk", "costs that more than what it does")] {
        record.spec.workloads[0].load.fault = serde_json::from_value(fault(kind)).unwrap();
        assert_eq!(said(&record), None, "it was measured all the same");
        let mut without = record.clone();
        without.trials.iter_mut().flat_map(|trial| &mut trial.workloads).for_each(|one| one.usage = None);
        assert!(said(&without).unwrap().ends_with(why), "{:?}", said(&without));
    }
}

#[test]
fn an_arm_whose_cost_nobody_measured_has_no_operations_for_each_cpu_second() {
    let mut record = record(1.0, serde_json::json!([]));
    for trial in &mut record.trials {
        trial.workloads.iter_mut().for_each(|one| one.usage = None);
    }
    assert_eq!(judge(&record).resources, []);
    record.trials.iter_mut().for_each(|trial| trial.disk_bytes = Some(1 << 20));
    let of_disks = judge(&record).resources;
    assert_eq!(
        of_disks.iter().map(|cost| (cost.disk_bytes, cost.operations_per_cpu_second)).collect::<Vec<_>>(),
        [(1 << 20, 0); 2]
    );
}

/// A replicator is idle while its tool restores.
#[test]
fn what_a_tool_of_the_store_used_is_in_the_cost_of_a_request() {
    let mut record = record(1.0, serde_json::json!([]));
    for measured in record.trials.iter_mut().flat_map(|trial| &mut trial.workloads) {
        let idle = measured.usage.as_mut().unwrap();
        let of_its_tool = Reading::Total(idle.cpu_nanos - 1_000);
        idle.cpu_nanos = 1_000;
        measured.measures.insert(TOOLS_CPU_NANOS.0.into(), of_its_tool);
    }
    let without_tools = judge(&self::record(1.0, serde_json::json!([])));
    let judged = judge(&record);
    let costs = |judged: &Judgement| judged.results.iter().map(|one| one.value(Metric::CPU)).collect::<Vec<_>>();
    assert!(costs(&judged)[0].is_some());
    assert_eq!(costs(&judged), costs(&without_tools));
    let each_second = |judged: &Judgement| judged.resources[0].operations_per_cpu_second;
    assert_eq!(each_second(&judged), each_second(&without_tools));
}

/// What only workloads of one family measure goes all the way, and nobody on the way knows it by name.
#[test]
fn a_measure_of_a_family_is_judged_gated_and_reported_like_any_metric() {
    let mut record = record(1.0, serde_json::json!([{ "arm": "new", "metric": "PutLatencyP99Micros", "atMost": 900 }]));
    let workload = serde_json::json!([
        { "name": "put", "etcd": { "operation": "WatchLatency" }, "load": { "duration": "2s" } },
    ]);
    record.spec.workloads = serde_json::from_value(workload).unwrap();
    for (position, trial) in record.trials.iter_mut().enumerate() {
        let micros = if trial.arm == "new" { 500 } else { 1_000 };
        let mut histogram = latency_histogram();
        histogram.record_n(micros * 1_000 + position as u64, 100).unwrap();
        let reading = Reading::Durations(Distribution::of(&histogram).unwrap());
        trial.workloads[0].measures.insert(PUT_LATENCY.0.into(), reading);
    }
    let judgement = judge(&record);
    let p99 = Metric::named("PutLatencyP99Micros").unwrap();
    let compared = judgement.comparisons.iter().find(|compared| compared.metric == p99).unwrap();
    assert!(compared.ratio_basis_points.abs_diff(5_000) <= 10, "{compared:?}");
    assert_eq!(judgement.gates[0].outcome, GateOutcome::Met, "{:?}", judgement.gates[0]);
    let value = judgement.results[1].value(p99).unwrap();
    assert!((value - 500.0).abs() < 1.0, "{value}");
    let report = Report { record, judgement };
    let status = serde_json::to_value(crate::status::status(&report)).unwrap();
    assert_eq!(status["results"][1]["measures"][1]["metric"], "PutLatencyP99Micros");
    for text in [text(&report, 160, false), markdown(&report).replace('\u{A0}', " "), html(&report).unwrap()] {
        assert!(text.contains("put p99") && text.contains("500 µs"), "{text}");
        assert!(text.contains("put p99: 99th percentile of the latency of the puts"), "{text}");
    }
    assert_eq!(from_json(&json(&report).unwrap()).unwrap(), report);
}

/// Records from before there were measures have syncs in a field of their own.
#[test]
fn syncs_of_an_old_record_are_read_as_before() {
    let mut old = serde_json::to_value(record(1.0, serde_json::json!([]))).unwrap();
    for trial in old["trials"].as_array_mut().unwrap() {
        let measured = trial["workloads"][0].as_object_mut().unwrap();
        assert!(!measured.contains_key("measures"), "nothing was measured besides");
        measured.insert("fsyncs".into(), 3_000.into());
    }
    let old: RunRecord = serde_json::from_value(old).unwrap();
    let judgement = judge(&old);
    let fsyncs = Metric::named("FsyncsPerThousandOperations").unwrap();
    let result = &judgement.results[0];
    // Each trial has about 20,000 requests.
    assert_eq!(result.fsyncs_per_thousand_operations, Some(150));
    assert!(judgement.comparisons.iter().any(|compared| compared.metric == fsyncs));
}

#[test]
fn equal_stores_pass_a_tolerant_gate() {
    let judgement = judge(&record(1.0, throughput_gate(9_000, "Fail")));
    assert_eq!(judgement.verdict, Verdict::Passed, "{}", judgement.message);
    assert!(judgement.message.contains("no difference"), "{}", judgement.message);
}

#[test]
fn a_fifth_slower_is_regressed() {
    let judgement = judge(&record(0.8, throughput_gate(9_000, "Fail")));
    assert_eq!(judgement.verdict, Verdict::Regressed);
    assert_eq!(judgement.gates[0].outcome, GateOutcome::Missed);
}

#[test]
fn a_bound_inside_the_interval_decides_nothing() {
    for (on_inconclusive, verdict) in
        [("Fail", Verdict::Inconclusive), ("Warn", Verdict::Passed), ("Pass", Verdict::Passed)]
    {
        let judgement = judge(&record(1.0, throughput_gate(10_000, on_inconclusive)));
        assert_eq!(judgement.gates[0].outcome, GateOutcome::Undecided);
        assert_eq!(judgement.verdict, verdict, "{on_inconclusive}");
        assert_eq!(judgement.message.contains("undecided"), on_inconclusive != "Fail", "{}", judgement.message);
    }
}

#[test]
fn whoever_is_told_nothing_for_want_of_trials_is_told_how_many_it_takes() {
    let undecided = record(1.0, throughput_gate(9_800, "Fail"));
    let judgement = judge(&undecided);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    let told = |message: &str| {
        let (_, to_do) = message.split_once("; to do: set trials.max to about ")?;
        let (trials, narrower) = to_do.split_once(" and trials.targetIntervalBasisPoints to ")?;
        let narrower = narrower.split(' ').next()?;
        Some((trials.parse::<u32>().ok()?, narrower.parse::<u32>().ok()?))
    };
    let (trials, narrower) = told(&judgement.message).expect(&judgement.message);
    assert!(trials > 10 && trials <= 30, "{trials}");
    assert!((150..=200).contains(&narrower), "the bound is two per cent off: {narrower}");
    // Whoever does so is told, or lacks little: it is a forecast.
    let mut longer = undecided.clone();
    longer.spec.trials.max = trials;
    for index in 10..trials {
        let again = |arm: &str| undecided.trials.iter().find(|trial| trial.index == index % 10 && trial.arm == arm);
        longer.trials.extend(["old", "new"].map(|arm| TrialRecord { index, ..again(arm).unwrap().clone() }));
    }
    let then = judge(&longer);
    let more = told(&then.message).map(|(trials, _)| trials);
    assert!(
        then.verdict == Verdict::Passed || more.is_some_and(|more| more * 4 <= trials * 5),
        "{trials} trials were foretold: {}",
        then.message
    );
    // Where the bound is what was found, no number of trials would do.
    let message = judge(&record(1.0, throughput_gate(10_000, "Fail"))).message;
    assert!(message.contains("; to do: it is so near to the bound that 30 trials would not decide it"), "{message}");
}

#[test]
fn one_wrong_answer_voids_everything() {
    let mut record = record(2.0, throughput_gate(9_000, "Fail"));
    failed(&mut record, 7, FailureCause::WrongAnswer);
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::Invalid);
    assert!(judgement.message.contains("what happened"), "{}", judgement.message);
}

#[test]
fn a_disturbed_pair_is_left_out_whole() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    failed(&mut record, 7, FailureCause::Disturbed);
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::Passed);
    assert!(judgement.results.iter().all(|result| result.trials == 9), "both arms lose the pair");
    assert!(judgement.comparisons.iter().all(|comparison| comparison.trials == 9));
}

#[test]
fn more_disturbances_than_retries_are_invalid() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    failed(&mut record, 7, FailureCause::Disturbed);
    failed(&mut record, 12, FailureCause::Disturbed);
    assert_eq!(judge(&record).verdict, Verdict::Invalid);
    // What was waited out does not count.
    record.trials[7].waited_millis = Some(5_000);
    assert_eq!(judge(&record).verdict, Verdict::Passed);
}

#[test]
fn never_compared_is_not_no_regression() {
    let mut record = record(1.0, serde_json::json!([]));
    record.arms[0].unavailable =
        Some(Unavailable { reason: "etcd 3.7.3 is not installed here".into(), install: "peers/fetch etcd".into() });
    record.trials.retain(|trial| trial.arm == "new");
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::NoBaseline);
    assert!(judgement.comparisons.is_empty());
}

#[test]
fn what_cannot_be_compared_is_not_measured() {
    let missing =
        || Some(Unavailable { reason: "etcd 9.9.9 is not installed here".into(), install: "peers/fetch etcd".into() });
    for lacking in [0, 1] {
        let mut record = record(1.0, throughput_gate(9_000, "Fail"));
        record.trials.clear();
        assert_eq!(worth_measuring(&record).len(), 2);
        record.arms[lacking].unavailable = missing();
        assert!(worth_measuring(&record).is_empty(), "{lacking}");
        let judgement = judge(&record);
        assert_eq!(judgement.verdict, Verdict::NoBaseline);
        assert!(judgement.message.contains("nothing was measured") && judgement.message.contains("peers/fetch etcd"));
        // Of three, two are left to be compared, if the baseline is one of them.
        let mut third = record.arms[1].clone();
        (third.name, third.baseline, third.unavailable) = ("third".into(), false, None);
        record.arms.push(third);
        assert_eq!(worth_measuring(&record).len(), if lacking == 0 { 0 } else { 2 }, "{lacking}");
    }
}

#[test]
fn an_executable_of_another_version_than_its_folder_says_is_the_first_caveat() {
    let mut record = record(1.0, serde_json::json!([]));
    record.arms[1].version = Some("3.5.0".into());
    record.arms[1].folder_version = Some("3.6.1".into());
    let caveat = judge(&record).caveats.remove(0);
    assert!(caveat.contains("ran 3.5.0, as its executable says, not 3.6.1"), "{caveat}");
}

#[test]
fn nothing_installed_names_the_command() {
    let mut record = record(1.0, serde_json::json!([]));
    for arm in &mut record.arms {
        arm.unavailable =
            Some(Unavailable { reason: "etcd 3.7.3 is not installed here".into(), install: "peers/fetch etcd".into() });
    }
    record.trials.clear();
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::NoBaseline, "nothing was measured that could be distrusted");
    assert!(judgement.message.contains("to install it: peers/fetch etcd"), "{}", judgement.message);
    // Of one arm alone it is no other verdict.
    record.arms.truncate(1);
    assert_eq!(judge(&record).verdict, Verdict::NoBaseline);
}

/// Else a comparison with an earlier run, which takes the place of the baseline, would let it pass.
#[test]
fn a_gate_that_cannot_be_decided_is_not_forgotten_for_want_of_a_baseline() {
    for bound in [serde_json::json!({ "atLeast": 10_000 }), serde_json::json!({})] {
        let mut gate = serde_json::json!({ "arm": "new", "metric": "ThroughputPerSecond" });
        gate.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
        let mut record = record(1.0, serde_json::json!([gate]));
        record.arms[0].baseline = false;
        let judgement = judge(&record);
        assert_ne!(judgement.gates[0].outcome, GateOutcome::Met);
        assert_eq!(judgement.verdict, Verdict::Inconclusive, "{}", judgement.message);
        assert_eq!(crate::across::decided(judgement.verdict, Verdict::Passed), Verdict::Inconclusive);
    }
}

#[test]
fn an_absolute_gate_needs_no_baseline() {
    let gate = serde_json::json!([{ "arm": "old", "metric": "LatencyP99Micros", "atMost": 50 }]);
    let mut record = record(1.0, gate);
    record.spec.arms.remove(1);
    record.arms.remove(1);
    record.arms[0].baseline = false;
    record.trials.retain(|trial| trial.arm == "old");
    let judgement = judge(&record);
    assert_eq!(judgement.verdict, Verdict::Regressed, "a latency of 100 µs is above 50: {}", judgement.message);
}

/// Whoever reads the gates alone takes them for passed.
#[test]
fn no_gate_of_an_invalid_run_is_met_or_missed() {
    for factor in [2.0, 0.5] {
        let mut record = record(factor, throughput_gate(9_000, "Fail"));
        assert_ne!(judge(&record).gates[0].outcome, GateOutcome::NotJudged);
        failed(&mut record, 7, FailureCause::WrongAnswer);
        let gate = judge(&record).gates.remove(0);
        assert_eq!(gate.outcome, GateOutcome::NotJudged);
        assert_eq!(gate.found, "the measurement cannot be trusted");
        assert!(gate.gate.contains("≥ 90 % of old"), "{}", gate.gate);
    }
}

#[test]
fn an_interrupted_run_is_invalid() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    record.aborted = Some("interrupted after 20 trials".into());
    assert_eq!(judge(&record).verdict, Verdict::Invalid);
}

#[test]
fn two_trials_have_no_interval() {
    let mut record = record(1.0, throughput_gate(9_000, "Fail"));
    record.trials.truncate(4);
    record.spec.trials.min = 2;
    let judgement = judge(&record);
    assert!(judgement.comparisons.is_empty());
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// A saved record judged again says the same.
    #[test]
    fn judgement_survives_saving(ratio in 0.5f64..2.0) {
        let record = record(ratio, throughput_gate(9_000, "Fail"));
        let again: RunRecord = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(judge(&record), judge(&again));
    }

    /// Naming the other arm the baseline turns every ratio over.
    #[test]
    fn swapping_the_baseline_inverts_ratios(ratio in 0.5f64..2.0) {
        let forward = record(ratio, serde_json::json!([]));
        let mut backward = forward.clone();
        backward.arms[0].baseline = false;
        backward.arms[1].baseline = true;
        for (one, other) in judge(&forward).comparisons.iter().zip(&judge(&backward).comparisons) {
            let product = one.ratio_basis_points as f64 * other.ratio_basis_points as f64 / 1e8;
            prop_assert!((product - 1.0).abs() < 1e-3, "{:?} {:?}", one, other);
        }
    }
}

#[test]
fn builds_with_unlike_allocators_are_pointed_out_and_what_a_language_brings_is_not() {
    let said = |baseline: EngineKind, other: EngineKind| {
        let mut record = record(1.0, serde_json::json!([]));
        (record.arms[0].engine, record.arms[1].engine) = (Some(baseline), Some(other));
        judge(&record).caveats.into_iter().find(|caveat| caveat.contains("allocates memory"))
    };
    let caveat = said(EngineKind::Redis, EngineKind::Valkey).unwrap();
    assert!(
        caveat.starts_with("new allocates memory with libc's malloc, old with jemalloc, as they are built"),
        "{caveat}"
    );
    for (one, other) in [
        (EngineKind::Redis, EngineKind::Rsedis),
        (EngineKind::Etcd, EngineKind::Rusd),
        (EngineKind::Etcd, EngineKind::Litestream),
    ] {
        assert_eq!(said(one, other), None, "{one:?} and {other:?}");
    }
}

#[test]
fn how_many_trials_each_arm_lost_is_said_wherever_trials_are() {
    let mut record = record(1.0, serde_json::json!([]));
    failed(&mut record, 3, FailureCause::Disturbed);
    let report = Report { judgement: judge(&record), record };
    assert!(report.judgement.caveats.iter().any(|caveat| caveat.contains("not counted: 1 (old 0, new 1)")));
    for rendered in [text(&report, 160, false), markdown(&report), html(&report).unwrap()] {
        assert!(rendered.contains("discarded: old 0, new 1"), "{rendered}");
    }
}

#[test]
fn who_answered_more_in_the_same_time_keeps_more_and_the_report_says_so() {
    let warned = |record: &RunRecord| {
        let caveats = judge(record).caveats;
        caveats.into_iter().find(|caveat| caveat.starts_with("memory and disk are of unequal histories"))
    };
    let mut faster = record(1.5, serde_json::json!([]));
    let said = warned(&faster).unwrap();
    assert!(said.contains("new answered 1.50 times the requests of old in put; load.total"), "{said}");
    assert_eq!(warned(&record(1.02, serde_json::json!([]))), None);
    faster.spec.workloads[0].load.total = Some(10_000);
    assert_eq!(warned(&faster), None);
}

#[test]
fn a_machine_that_lost_time_to_its_hypervisor_and_an_arm_that_moved_are_pointed_out() {
    let mut record = record(1.0, serde_json::json!([]));
    let caveat = |record: &RunRecord, part: &str| judge(record).caveats.iter().any(|caveat| caveat.contains(part));
    assert!(!caveat(&record, "hypervisor") && !caveat(&record, "and on n1 before"));
    record.trials[3].workloads[0].machines = vec![storebench_crds::job::MachineUse {
        elapsed_nanos: 1_000_000_000,
        stolen_nanos: 120_000_000,
        ..Default::default()
    }];
    assert!(caveat(&record, "the hypervisor gave up to 0.12 cores to others"));
    for (position, trial) in record.trials.iter_mut().enumerate() {
        trial.nodes = [("load-0".to_owned(), if position < 6 { "n1" } else { "n2" }.to_owned())].into();
    }
    assert!(caveat(&record, "the load of new ran on n2 in trial 4, and on n1 before"));
}

/// With enough gates one is missed by chance.
#[test]
fn a_gate_that_is_barely_missed_among_many_decides_nothing() {
    let gate = |basis_points: u32| serde_json::json!({ "arm": "new", "metric": "ThroughputPerSecond", "ratioAtLeastBasisPoints": basis_points });
    let alone = record(1.0, serde_json::json!([gate(10_000)]));
    let high = judge(&alone).comparisons[0].high_basis_points as u32;
    let barely = high + 20;
    let missed = judge(&record(1.0, serde_json::json!([gate(barely)])));
    assert_eq!((missed.verdict, missed.gates[0].outcome), (Verdict::Regressed, GateOutcome::Missed));
    let many: Vec<_> = std::iter::once(gate(barely)).chain((0..15).map(|_| gate(5_000))).collect();
    let undecided = judge(&record(1.0, serde_json::json!(many)));
    assert_eq!((undecided.verdict, undecided.gates[0].outcome), (Verdict::Inconclusive, GateOutcome::Undecided));
    assert!(undecided.gates[0].found.ends_with("as one of 16 decisions"), "{}", undecided.gates[0].found);
    assert!(undecided.gates[1..].iter().all(|gate| gate.outcome == GateOutcome::Met), "all must be met, one by one");
    // What is far off is missed among however many.
    let far: Vec<_> = std::iter::once(gate(12_000)).chain((0..15).map(|_| gate(5_000))).collect();
    assert_eq!(judge(&record(1.0, serde_json::json!(far))).verdict, Verdict::Regressed);
}

#[test]
fn ratios_that_go_up_and_down_slowly_are_pointed_out() {
    let warned = |record: &RunRecord| {
        judge(record).caveats.iter().any(|caveat| caveat.contains("resemble those of the trial before"))
    };
    let mut record = record(1.0, serde_json::json!([]));
    assert!(!warned(&record));
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == "new") {
        let slow = if trial.index < 5 { 9_000.0 } else { 11_000.0 };
        trial.workloads[0] = measurement(slow + f64::from(trial.index));
    }
    assert!(warned(&record));
}
