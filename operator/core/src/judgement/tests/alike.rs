//! That each trial counts alike in what is shown, as it does in what is judged.

use storebench_crds::Metric;
use storebench_crds::job::{LatencyKind, encode_histogram, latency_histogram};
use storebench_crds::measure::{Distribution, Reading};
use storebench_crds::status::LatencySummary;
use storebench_crds::workload::etcd::PUT_LATENCY;
use storebench_crds::workload::fault::LOST_WRITES;
use storebench_crds::workload::key_value::STALE_READS;

use super::record;
use crate::judgement::compare::own_interval;
use crate::judgement::{Valid, judge};
use crate::record::{EncodedHistogram, RunRecord};

/// One client, for so many seconds in each trial: nine trials as ever, and one in which the store was two hundred times as fast.
fn one_trial_is_very_fast() -> RunRecord {
    let mut record = record(1.0, serde_json::json!([]));
    for trial in &mut record.trials {
        let operations = if trial.index == 4 { 70_000 } else { 340 + u64::from(trial.index) * 10 };
        let measured = &mut trial.workloads[0];
        let latency_nanos = measured.summary.elapsed_nanos / operations;
        let mut histogram = latency_histogram();
        histogram.record_n(latency_nanos, operations).unwrap();
        measured.summary.operations = operations;
        measured.summary.service = LatencySummary::of(&histogram);
        let data = encode_histogram(&histogram).unwrap();
        measured.histograms = vec![EncodedHistogram { latency: LatencyKind::Service, data }];
        measured.measures.insert(PUT_LATENCY.0.into(), Reading::Durations(Distribution::of(&histogram).unwrap()));
    }
    record
}

#[test]
fn what_is_shown_lies_in_the_interval_that_is_judged_though_one_trial_had_most_of_the_requests() {
    let record = one_trial_is_very_fast();
    let judgement = judge(&record);
    let result = &judgement.results[0];
    let interval =
        |metric: &str| own_interval(&Valid::of(&record), &result.arm, "put", Metric::named(metric).unwrap()).unwrap();
    let latency = result.service_latency;
    let shown = [
        ("LatencyMeanMicros", latency.mean_nanos as f64 / 1e3),
        ("LatencyP50Micros", latency.p50_nanos as f64 / 1e3),
        ("LatencyP99Micros", latency.p99_nanos as f64 / 1e3),
        ("CpuNanosPerOperation", result.cpu_nanos_per_operation.unwrap() as f64),
        ("PutLatencyP50Micros", result.value(Metric::named("PutLatencyP50Micros").unwrap()).unwrap()),
    ];
    for (metric, value) in shown {
        let interval = interval(metric);
        // What is shown is whole nanoseconds.
        assert!(
            interval.low <= value * 1.001 && value <= interval.high * 1.001,
            "{metric}: {value} not in {interval:?}"
        );
    }
    // With one client, a second has room for as many requests as their latency lets it.
    let throughput = result.throughput_milli as f64 / 1e3;
    assert!((throughput * latency.p50_nanos as f64 / 1e9 - 1.0).abs() < 0.02, "{throughput}/s at {latency:?}");
    let per_cpu_second = judgement.resources[0].operations_per_cpu_second;
    let expected = 1e9 / result.cpu_nanos_per_operation.unwrap() as f64;
    assert!((per_cpu_second as f64 / expected - 1.0).abs() < 0.02, "{per_cpu_second} and not {expected}");
}

#[test]
fn the_largest_of_a_trial_is_the_largest_of_all() {
    let record = one_trial_is_very_fast();
    let slowest = record.trials.iter().map(|trial| trial.workloads[0].summary.service.max_nanos).max();
    assert_eq!(Some(judge(&record).results[0].service_latency.max_nanos), slowest);
}

#[test]
fn what_must_not_happen_is_shown_of_the_trial_in_which_it_happened() {
    for (total, metric) in [(LOST_WRITES, "LostWrites"), (STALE_READS, "StaleReadsPerThousandOperations")] {
        let mut record = record(1.0, serde_json::json!([]));
        for trial in &mut record.trials {
            let harm = if trial.index == 4 { 5 } else { 0 };
            trial.workloads[0].measures.insert(total.0.into(), Reading::Total(harm));
        }
        let shown = judge(&record).results[0].value(Metric::named(metric).unwrap());
        assert!(shown.is_some_and(|shown| shown > 0.0), "{metric}: {shown:?}");
    }
}
