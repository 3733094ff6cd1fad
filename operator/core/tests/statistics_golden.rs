//! The statistics against NumPy and SciPy: every number of `golden/statistics.json`, written by `golden/make_statistics.py`.
//!
//! Formulas agree to about ten digits. Bootstraps draw different resamples, so each end has to fall in the bracket that
//! Monte Carlo error allows: five standard deviations of the rank of a quantile among the draws of both.

#![allow(clippy::unwrap_used, reason = "a test: a golden file that does not read is a failure")]

use serde::Deserialize;
use storebench_core::statistics::{
    PairedComparison, bootstrap_interval, expanded_tail_probability, hodges_lehmann, log_ratios,
    minimum_detectable_effect, student_interval, trials_needed,
};

#[derive(Deserialize)]
struct Golden {
    confidence: f64,
    resamples: u32,
    data_sets: Vec<DataSet>,
    expanded_tails: Vec<ExpandedTail>,
    minimum_detectable_effects: Vec<DetectableEffect>,
    trials_needed: Vec<TrialsNeeded>,
}

#[derive(Deserialize)]
struct DataSet {
    name: String,
    candidate: Vec<f64>,
    baseline: Vec<f64>,
    log_ratios: Vec<f64>,
    standard_deviation: f64,
    hodges_lehmann: f64,
    hodges_lehmann_by_wilcoxon: f64,
    student: [f64; 2],
    bootstrap: Bootstrap,
}

#[derive(Deserialize)]
struct Bootstrap {
    low_bracket: [f64; 2],
    high_bracket: [f64; 2],
}

#[derive(Deserialize)]
struct ExpandedTail {
    trials: usize,
    confidence: f64,
    tail: f64,
}

#[derive(Deserialize)]
struct DetectableEffect {
    trials: usize,
    alpha: f64,
    power: f64,
    effect: f64,
}

#[derive(Deserialize)]
struct TrialsNeeded {
    deviation: f64,
    target: f64,
    confidence: f64,
    trials: u32,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/statistics.json")).unwrap()
}

/// Asserts equality up to a relative difference (absolute below 1e-3).
#[track_caller]
fn assert_close(what: &str, ours: f64, golden: f64, tolerance: f64) {
    let difference = (ours - golden).abs() / golden.abs().max(1e-3);
    assert!(difference <= tolerance, "{what}: {ours} here, {golden} there, relative difference {difference:e}");
}

#[test]
fn estimates_agree() {
    for data in golden().data_sets {
        let ratios = log_ratios(&data.candidate, &data.baseline).unwrap();
        for (ours, golden) in ratios.iter().zip(&data.log_ratios) {
            assert_close(&data.name, *ours, *golden, 1e-11);
        }
        let estimate = hodges_lehmann(&ratios).unwrap();
        assert_close(&data.name, estimate, data.hodges_lehmann, 1e-11);
        assert_close(&data.name, estimate, data.hodges_lehmann_by_wilcoxon, 1e-11);
    }
}

#[test]
fn student_intervals_agree() {
    let golden = golden();
    for data in &golden.data_sets {
        let interval = student_interval(&data.log_ratios, golden.confidence).unwrap();
        assert_close(&data.name, interval.low, data.student[0], 1e-9);
        assert_close(&data.name, interval.high, data.student[1], 1e-9);
    }
}

#[test]
fn bootstrap_intervals_agree_within_monte_carlo_error() {
    let golden = golden();
    for data in &golden.data_sets {
        let interval = bootstrap_interval(&data.log_ratios, golden.confidence, golden.resamples, 1).unwrap();
        for (end, [low, high]) in
            [(interval.low, data.bootstrap.low_bracket), (interval.high, data.bootstrap.high_bracket)]
        {
            assert!(low - 1e-12 <= end && end <= high + 1e-12, "{}: {end} is not in {low} to {high}", data.name);
        }
    }
}

#[test]
fn expanded_tails_agree() {
    for golden in golden().expanded_tails {
        let tail = expanded_tail_probability(golden.trials, golden.confidence).unwrap();
        // Relative to the tail itself, which goes down to 1e-50 and then to nothing: the t quantile's error, magnified.
        let agrees = tail == golden.tail || (tail / golden.tail).ln().abs() < 1e-6;
        assert!(agrees, "{} at {}: {tail} and {}", golden.trials, golden.confidence, golden.tail);
    }
}

#[test]
fn minimum_detectable_effects_agree() {
    for golden in golden().minimum_detectable_effects {
        let ours = minimum_detectable_effect(0.05, golden.trials, golden.alpha, golden.power).unwrap();
        let what = format!("{} trials, alpha {}, power {}", golden.trials, golden.alpha, golden.power);
        assert_close(&what, ours, golden.effect, 1e-7);
    }
}

#[test]
fn trials_needed_agree() {
    for golden in golden().trials_needed {
        assert_eq!(trials_needed(golden.deviation, golden.target, golden.confidence), Ok(golden.trials));
    }
}

#[test]
fn a_comparison_holds_the_same_numbers_as_ratios() {
    let golden = golden();
    for data in &golden.data_sets {
        let comparison =
            PairedComparison::from_trials(&data.candidate, &data.baseline, golden.confidence, golden.resamples, 1)
                .unwrap();
        assert_close(&data.name, comparison.ratio, data.hodges_lehmann.exp(), 1e-11);
        assert_close(&data.name, comparison.standard_deviation_log, data.standard_deviation, 1e-9);
        assert_eq!(comparison.trials, data.candidate.len());
        if data.candidate.len() > 6 {
            assert!(comparison.ratio_low.ln() >= data.bootstrap.low_bracket[0] - 1e-12, "{}", data.name);
            assert!(comparison.ratio_high.ln() <= data.bootstrap.high_bracket[1] + 1e-12, "{}", data.name);
        }
    }
}
