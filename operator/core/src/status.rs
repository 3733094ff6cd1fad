//! From a report to the status of a BenchmarkRun, as `kubectl`, kstatus and GitOps tools read it.

use std::collections::BTreeMap;

use storebench_crds::benchmark_run::{BenchmarkRun, Metric};
use storebench_crds::status::{BenchmarkRunStatus, Columns, Comparison, Schedule, TrialEntry, Verdict};

use crate::judgement::available;
use crate::ledger::complete_indexes;
use crate::report::Report;

/// The run with its status. Conditions need a clock and a generation, which only a cluster has: they are the operator's.
pub fn benchmark_run(report: &Report) -> BenchmarkRun {
    let mut run = BenchmarkRun::new(&report.record.name, report.record.spec.clone());
    run.metadata.annotations =
        Some(BTreeMap::from([("storebench.dev/started-at".to_owned(), report.record.started_at.clone())]));
    run.status = Some(status(report));
    run
}

/// The status, conditions aside.
pub fn status(report: &Report) -> BenchmarkRunStatus {
    let (record, judgement) = (&report.record, &report.judgement);
    let trials = record.trials.iter().map(|trial| TrialEntry {
        index: trial.index,
        arm: trial.arm.clone(),
        job: None,
        state: trial.state,
        reason: trial.failure.as_ref().map(|failure| failure.detail.clone()),
    });
    let order: Vec<&str> = record.trials.iter().map(|trial| trial.arm.as_str()).collect();
    BenchmarkRunStatus {
        observed_generation: -1,
        conditions: Vec::new(),
        verdict: Some(judgement.verdict),
        message: judgement.message.clone(),
        columns: Some(columns(report)),
        schedule: Some(Schedule { seed: record.spec.trials.seed, order: order.join(" ") }),
        trials: trials.collect(),
        results: judgement.results.clone(),
        resources: judgement.resources.clone(),
        comparisons: judgement.comparisons.clone(),
        gates: judgement.gates.clone(),
        fingerprint: Some(record.fingerprint.clone()),
        report_ref: None,
    }
}

fn columns(report: &Report) -> Columns {
    let (record, judgement) = (&report.record, &report.judgement);
    let mut arms: Vec<&str> = record.arms.iter().filter(|arm| !arm.baseline).map(|arm| arm.name.as_str()).collect();
    arms.extend(record.arms.iter().filter(|arm| arm.baseline).map(|arm| arm.name.as_str()));
    let ratio = |metric: Metric| {
        let ranked = judgement.verdict != Verdict::Invalid;
        judgement.comparisons.iter().find(|comparison| comparison.metric == metric && ranked).map(in_column)
    };
    let complete = complete_indexes(&available(record), &record.trials).len();
    Columns {
        arms: arms.join(" / "),
        throughput_ratio: ratio(Metric::ThroughputPerSecond),
        p99_ratio: ratio(Metric::LatencyP99Micros),
        trials: format!("{complete}/{}", record.spec.trials.max),
    }
}

/// Such as `1.62 ±0.04`.
fn in_column(comparison: &Comparison) -> String {
    let ratio = |basis_points: u64| basis_points as f64 / 10_000.0;
    let half_width = (ratio(comparison.high_basis_points) - ratio(comparison.low_basis_points)) / 2.0;
    format!("{:.2} ±{half_width:.2}", ratio(comparison.ratio_basis_points))
}
