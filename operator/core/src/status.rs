//! From a report to the status of a BenchmarkRun, as `kubectl`, kstatus and GitOps tools read it.

use std::collections::BTreeMap;

use storebench_crds::Metric;
use storebench_crds::benchmark_baseline::BenchmarkBaselineStatus;
use storebench_crds::benchmark_run::{BenchmarkRun, BenchmarkRunSpec};
use storebench_crds::status::{
    BaselineResult, BenchmarkRunStatus, Columns, Comparison, GateOutcome, LatencySummary, Schedule, TrialEntry,
    TrialState, Verdict, WorkloadResult,
};

use crate::across::Held;
use crate::judgement::Report;
use crate::judgement::{Judgement, available};
use crate::ledger::complete_indexes;
use crate::record::{RunRecord, TrialRecord};

/// A status is kept below this, bytes of JSON: it is read with every list and written to etcd with every change.
pub const STATUS_BYTES_MAX: usize = 16 * 1024;
/// A message is kept below this, characters: it stands in every condition.
const MESSAGE_CHARACTERS_MAX: usize = 280;

/// The run with its status. Conditions need a clock and a generation, which only a cluster has: they are the operator's.
pub fn benchmark_run(report: &Report) -> BenchmarkRun {
    let mut run = BenchmarkRun::new(&report.record.name, report.record.spec.clone());
    run.metadata.annotations =
        Some(BTreeMap::from([("storebench.dev/started-at".to_owned(), report.record.started_at.clone())]));
    run.status = Some(fit(status(report)));
    run
}

/// The ledger: every trial of every arm that has run, in order.
pub fn entries(record: &RunRecord) -> Vec<TrialEntry> {
    let entry = |trial: &TrialRecord| TrialEntry {
        index: trial.index,
        arm: trial.arm.clone(),
        job: None,
        state: trial.state,
        reason: trial.failure.as_ref().map(|failure| failure.detail.clone()),
    };
    record.trials.iter().map(entry).collect()
}

/// The status, conditions aside.
pub fn status(report: &Report) -> BenchmarkRunStatus {
    let (record, judgement) = (&report.record, &report.judgement);
    let order: Vec<&str> = record.trials.iter().map(|trial| trial.arm.as_str()).collect();
    BenchmarkRunStatus {
        observed_generation: -1,
        conditions: Vec::new(),
        verdict: Some(judgement.verdict),
        message: judgement.message.clone(),
        columns: Some(columns(report)),
        schedule: Some(Schedule { seed: record.spec.trials.seed, order: order.join(" ") }),
        trials: entries(record),
        results: with_intervals(judgement),
        resources: judgement.resources.clone(),
        comparisons: judgement.comparisons.clone(),
        gates: judgement.gates.clone(),
        baseline: None,
        fingerprint: Some(record.fingerprint.clone()),
        queue_position: None,
        omitted: Vec::new(),
        report_ref: None,
        sealed_trials: None,
        signing_key: None,
    }
}

/// Adds what came of holding the run against an earlier one.
pub fn add_baseline(status: &mut BenchmarkRunStatus, held: &Held) {
    let BaselineResult { name, verdict, .. } = &held.result;
    let came_of_it = match verdict {
        Verdict::NoBaseline => "not compared".to_owned(),
        verdict => format!("{verdict:?}"),
    };
    if let Some(columns) = &mut status.columns {
        columns.baseline = Some(format!("{name}: {came_of_it}"));
    }
    status.baseline = Some(held.result.clone());
}

/// Leaves out the facts of a baseline's fingerprint, of which the hash stays, where they do not fit into [`STATUS_BYTES_MAX`].
pub fn fit_baseline(mut status: BenchmarkBaselineStatus) -> BenchmarkBaselineStatus {
    let bytes = serde_json::to_vec(&status).map_or(usize::MAX, |json| json.len());
    if let Some(fingerprint) = status.fingerprint.as_mut().filter(|_| bytes > STATUS_BYTES_MAX) {
        fingerprint.facts.clear();
    }
    status
}

/// The results, each with the interval of its throughput.
fn with_intervals(judgement: &Judgement) -> Vec<WorkloadResult> {
    let mut results = judgement.results.clone();
    for result in &mut results {
        let mut intervals = judgement.intervals.iter();
        let own = intervals.find(|one| one.workload == result.workload && one.arm == result.arm);
        result.throughput_low_milli = own.map(|one| one.low_milli);
        result.throughput_high_milli = own.map(|one| one.high_milli);
    }
    results
}

fn columns(report: &Report) -> Columns {
    let (record, judgement) = (&report.record, &report.judgement);
    let mut arms: Vec<&str> = record.arms.iter().filter(|arm| !arm.baseline).map(|arm| arm.name.as_str()).collect();
    arms.extend(record.arms.iter().filter(|arm| arm.baseline).map(|arm| arm.name.as_str()));
    // A ratio alone in a column is read as a ranking, so that one that is none says so, and an invalid run has none.
    let ratio = |metric: Metric| {
        let valid = judgement.verdict != Verdict::Invalid;
        judgement.comparisons.iter().find(|comparison| comparison.metric == metric && valid).map(in_column)
    };
    let complete = complete_indexes(&available(record), &record.trials).len();
    Columns {
        arms: arms.join(" / "),
        throughput_ratio: ratio(Metric::THROUGHPUT),
        p99_ratio: ratio(Metric::LATENCY_P99),
        baseline: record.spec.baseline_ref.as_ref().map(|baseline| baseline.name.clone()),
        trials: format!("{complete}/{}", record.spec.trials.max),
    }
}

/// Such as `1.62 ±0.04`, or `1.62 ±0.04, not ranked`.
fn in_column(comparison: &Comparison) -> String {
    let ratio = |basis_points: u64| basis_points as f64 / 10_000.0;
    let half_width = (ratio(comparison.high_basis_points) - ratio(comparison.low_basis_points)) / 2.0;
    let not_ranked = if comparison.not_ranked.is_some() { ", not ranked" } else { "" };
    format!("{:.2} ±{half_width:.2}{not_ranked}", ratio(comparison.ratio_basis_points))
}

type Omit = fn(&mut BenchmarkRunStatus);

/// What may be left out of a status that is too large, in this order, and how `status.omitted` calls it.
const OMISSIONS: [(&str, Omit); 15] = [
    ("comparisons of metrics other than throughput and p99", |status| {
        status.comparisons.retain(|comparison| is_leading(comparison.metric));
    }),
    ("baseline.moved that was kept within what is tolerated", |status| {
        let baseline = status.baseline.iter_mut();
        baseline.for_each(|baseline| baseline.moved.retain(|one| one.outcome != GateOutcome::Met));
    }),
    ("trials that are valid", |status| status.trials.retain(|trial| trial.state != TrialState::Valid)),
    ("schedule.order", |status| {
        if let Some(schedule) = &mut status.schedule {
            schedule.order.clear();
        }
    }),
    ("results' latencies of API servers", |status| {
        status.results.iter_mut().for_each(|result| result.api_server = None)
    }),
    ("results' latencies other than p50, p99 and max", |status| {
        for result in &mut status.results {
            thin_out(&mut result.service_latency);
            result.intended_latency.iter_mut().for_each(thin_out);
        }
    }),
    ("results' measures", |status| status.results.iter_mut().for_each(|result| result.measures.clear())),
    ("fingerprint.facts", |status| {
        if let Some(fingerprint) = &mut status.fingerprint {
            fingerprint.facts.clear();
        }
    }),
    ("results' intervals of throughput", |status| {
        for result in &mut status.results {
            (result.throughput_low_milli, result.throughput_high_milli) = (None, None);
        }
    }),
    ("comparisons of p99", |status| {
        status.comparisons.retain(|comparison| comparison.metric == Metric::THROUGHPUT);
    }),
    ("results' intended latency", |status| status.results.iter_mut().for_each(|result| result.intended_latency = None)),
    ("resources", |status| status.resources.clear()),
    ("results", |status| status.results.clear()),
    ("baseline.moved, baseline.differences, baseline.leftOut", |status| {
        if let Some(baseline) = &mut status.baseline {
            baseline.moved.clear();
            baseline.differences.clear();
            baseline.left_out.clear();
        }
    }),
    ("trials, comparisons", |status| {
        status.trials.clear();
        status.comparisons.clear();
    }),
];

fn is_leading(metric: Metric) -> bool {
    metric == Metric::THROUGHPUT || metric == Metric::LATENCY_P99
}

fn thin_out(latency: &mut LatencySummary) {
    let LatencySummary { p50_nanos, p99_nanos, max_nanos, .. } = *latency;
    *latency = LatencySummary { p50_nanos, p99_nanos, max_nanos, ..LatencySummary::default() };
}

/// Leaves out what does not fit into [`STATUS_BYTES_MAX`], the least telling first, and says so in `omitted`. The report has
/// everything.
pub fn fit(mut status: BenchmarkRunStatus) -> BenchmarkRunStatus {
    shorten(&mut status.message);
    status.conditions.iter_mut().for_each(|condition| shorten(&mut condition.message));
    status.trials.iter_mut().filter_map(|trial| trial.reason.as_mut()).for_each(shorten);
    let bytes = |status: &BenchmarkRunStatus| serde_json::to_vec(status).map_or(usize::MAX, |json| json.len());
    for (name, omit) in OMISSIONS {
        if bytes(&status) <= STATUS_BYTES_MAX {
            break;
        }
        omit(&mut status);
        status.omitted.push(name.into());
    }
    status
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        text.truncate(end);
        text.push('…');
    }
}

/// The status of a run that goes on: what has run so far, nothing judged.
pub fn progress(spec: &BenchmarkRunSpec, trials: Vec<TrialEntry>, message: String) -> BenchmarkRunStatus {
    let baseline = spec.arms.iter().find(|arm| arm.baseline).map(|arm| arm.name.as_str());
    let mut arms: Vec<&str> = spec.arm_names().filter(|arm| Some(*arm) != baseline).collect();
    arms.extend(baseline);
    let is_valid = |index: u32, arm: &str| {
        trials.iter().any(|trial| trial.index == index && trial.arm == arm && trial.state == TrialState::Valid)
    };
    let last = trials.iter().map(|trial| trial.index).max().map_or(0, |index| index + 1);
    let complete = (0..last).filter(|index| arms.iter().all(|arm| is_valid(*index, arm))).count();
    let order: Vec<&str> = trials.iter().map(|trial| trial.arm.as_str()).collect();
    BenchmarkRunStatus {
        message,
        columns: Some(Columns {
            arms: arms.join(" / "),
            throughput_ratio: None,
            p99_ratio: None,
            baseline: spec.baseline_ref.as_ref().map(|baseline| baseline.name.clone()),
            trials: format!("{complete}/{}", spec.trials.max),
        }),
        schedule: Some(Schedule { seed: spec.trials.seed, order: order.join(" ") }),
        trials,
        ..BenchmarkRunStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use storebench_crds::metric::Place;
    use storebench_crds::status::{
        ApiServerLatency, ArmResources, Fingerprint, GateResult, MeasuredValue, Movement, RequestLatency,
    };
    use storebench_crds::workload::Family;

    /// A run of this size, every number as long as numbers get, names as long as asked.
    fn large(arms: u32, workloads: u32, trials: u32, arm_name: usize, workload_name: usize) -> BenchmarkRunStatus {
        let has_api_server = arms > 2;
        let requests = RequestLatency {
            requests: 12_345_678,
            mean_nanos: 123_456_789,
            p50_nanos: 123_456_789,
            p99_nanos: 123_456_789,
        };
        let name = |prefix: &str, index: u32, length: usize| format!("{prefix}{index}{}", "x".repeat(length - 2));
        let arm = |index: u32| name("a", index, arm_name);
        let workload = |index: u32| name("w", index, workload_name);
        let latency = LatencySummary {
            mean_nanos: 123_456_789,
            p50_nanos: 123_456_789,
            p90_nanos: 123_456_789,
            p95_nanos: 123_456_789,
            p99_nanos: 123_456_789,
            p999_nanos: 123_456_789,
            max_nanos: 1_234_567_890,
        };
        let mut status = BenchmarkRunStatus { message: "m".repeat(1_000), ..BenchmarkRunStatus::default() };
        for index in 0..trials {
            status.trials.extend((0..arms).map(|position| TrialEntry {
                index,
                arm: arm(position),
                job: None,
                state: TrialState::Valid,
                reason: None,
            }));
        }
        let order: Vec<String> = status.trials.iter().map(|trial| trial.arm.clone()).collect();
        status.schedule = Some(Schedule { seed: u64::MAX, order: order.join(" ") });
        for index in 0..workloads {
            for position in 0..arms {
                status.results.push(WorkloadResult {
                    workload: workload(index),
                    arm: arm(position),
                    trials,
                    operations: 12_345_678_901,
                    errors: 0,
                    throughput_milli: 123_456_789,
                    throughput_low_milli: Some(123_456_789),
                    throughput_high_milli: Some(123_456_789),
                    service_latency: latency,
                    intended_latency: None,
                    cpu_nanos_per_operation: Some(123_456),
                    write_bytes_per_operation: Some(123_456),
                    fsyncs_per_thousand_operations: Some(1_234),
                    api_server: has_api_server.then_some(ApiServerLatency {
                        writes: Some(requests),
                        reads: Some(requests),
                        store_writes: Some(requests),
                        store_reads: Some(requests),
                    }),
                    measures: measured()
                        .filter(|metric| matches!(metric.place, Place::Measures))
                        .map(|metric| MeasuredValue { metric, value_milli: 123_456_789 })
                        .collect(),
                });
            }
            for position in 1..arms {
                status.comparisons.extend(measured().map(|metric| Comparison {
                    workload: workload(index),
                    arm: arm(position),
                    baseline: arm(0),
                    metric,
                    ratio_basis_points: 12_345,
                    low_basis_points: 12_345,
                    high_basis_points: 12_345,
                    trials,
                    detectable_basis_points: 123,
                    not_ranked: None,
                    noise_floor: None,
                }));
            }
        }
        status.resources =
            (0..arms).map(|position| ArmResources { arm: arm(position), ..ArmResources::default() }).collect();
        status.fingerprint = Some(Fingerprint {
            hash: "0123456789abcdef".into(),
            facts: (0..12).map(|index| (format!("fact {index}"), "v".repeat(40))).collect(),
        });
        status
    }

    /// No workload measures more of its family's own metrics: an Outage, which has the lag, what was sent, and what was lost.
    const OF_ITS_FAMILY_MAX: usize = 10;

    /// What a workload measures, of the family that measures most.
    fn measured() -> impl Iterator<Item = Metric> {
        let of = |family: Family| Metric::all().filter(move |metric| metric.family() == Some(family));
        let most = Family::ALL.iter().copied().max_by_key(|family| of(*family).count());
        // Other families, which have fewer of their own, look for a highest rate, and outlive faults.
        let of_all = Metric::all().filter(|metric| metric.family().is_none());
        let of_all = of_all.filter(|metric| *metric != Metric::HIGHEST_RATE && !metric.is_of_faults());
        of_all.chain(most.into_iter().flat_map(of).take(OF_ITS_FAMILY_MAX))
    }

    fn bytes(status: &BenchmarkRunStatus) -> usize {
        serde_json::to_vec(status).unwrap().len()
    }

    #[test]
    fn the_largest_run_fits_and_keeps_its_results_and_throughput_ratios() {
        let fitted = fit(large(4, 8, 30, 6, 12));
        assert!(bytes(&fitted) <= STATUS_BYTES_MAX, "{} bytes", bytes(&fitted));
        assert_eq!(fitted.results.len(), 32);
        assert_eq!(fitted.comparisons.len(), 24, "{:?}", fitted.omitted);
        assert!(fitted.omitted[0].starts_with("comparisons of metrics other than"), "{:?}", fitted.omitted);
    }

    #[test]
    fn each_result_has_the_interval_of_its_throughput() {
        let results = status(&fixture::two_arms()).results;
        assert!(!results.is_empty());
        for result in results {
            let [low, high] = [result.throughput_low_milli, result.throughput_high_milli].map(Option::unwrap);
            assert!((low..=high).contains(&result.throughput_milli), "{low} … {high}: {}", result.throughput_milli);
        }
    }

    #[test]
    fn a_run_of_everyday_size_loses_nothing() {
        let fitted = fit(large(2, 2, 10, 6, 12));
        assert_eq!(fitted.omitted, Vec::<String>::new(), "{} bytes", bytes(&fitted));
    }

    #[test]
    fn what_was_compared_with_an_earlier_run_fits_and_keeps_what_is_worse() {
        let mut status = large(4, 8, 30, 6, 12);
        let movement = |outcome| Movement {
            workload: "w".repeat(40),
            arm: "a".repeat(32),
            metric: Metric::LATENCY_P99,
            control: Some("c".repeat(32)),
            ratio_basis_points: 12_345,
            low_basis_points: 12_345,
            high_basis_points: 12_345,
            outcome,
        };
        let lines = |line: &str| vec![line.repeat(160); 24];
        let mut moved = vec![movement(GateOutcome::Met); 150];
        moved.push(movement(GateOutcome::Missed));
        status.baseline = Some(BaselineResult {
            name: "b".repeat(63),
            run: "r".repeat(63),
            measured_at: "2026-11-22T17:30:15.123456Z".into(),
            verdict: Verdict::Regressed,
            message: "m".repeat(320),
            differences: lines("d"),
            left_out: lines("l"),
            moved,
        });
        let fitted = fit(status);
        assert!(bytes(&fitted) <= STATUS_BYTES_MAX, "{} bytes", bytes(&fitted));
        let baseline = fitted.baseline.unwrap();
        assert_eq!((baseline.verdict, baseline.message.len()), (Verdict::Regressed, 320));
        assert!(baseline.moved.iter().all(|one| one.outcome == GateOutcome::Missed), "{:?}", fitted.omitted);
    }

    #[test]
    fn the_longest_names_and_gates_fit_too() {
        let mut status = large(4, 8, 30, 32, 40);
        status.gates = (0..16)
            .map(|_| GateResult { gate: "g".repeat(200), outcome: GateOutcome::Met, found: "f".repeat(100) })
            .collect();
        let fitted = fit(status);
        assert!(bytes(&fitted) <= STATUS_BYTES_MAX, "{} bytes", bytes(&fitted));
    }
}
