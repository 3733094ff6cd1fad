//! Laws that the statistics obey for every sample, drawn from a fixed seed so that a run repeats exactly.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const RESAMPLES: u32 = RESAMPLES_MIN;

fn fixed_cases() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() }
}

/// Log ratios as they occur, ties included: a third of the samples sits on a grid of 0.05.
fn sample() -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![2 => -1.0..1.0_f64, 1 => (-20..=20_i32).prop_map(|step| f64::from(step) * 0.05)];
    prop::collection::vec(value, TRIALS_MIN..=30)
}

/// Measurements of two arms, from microseconds to millions of operations.
fn two_arms() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    prop::collection::vec((1.0..1e6_f64, 1.0..1e6_f64), TRIALS_MIN..=20).prop_map(|pairs| pairs.into_iter().unzip())
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-12 * (1.0 + left.abs() + right.abs())
}

fn negated(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| -value).collect()
}

proptest! {
    #![proptest_config(fixed_cases())]

    #[test]
    fn hodges_lehmann_moves_with_the_data(values in sample(), shift in -10.0..10.0_f64) {
        let shifted: Vec<f64> = values.iter().map(|value| value + shift).collect();
        prop_assert!(close(hodges_lehmann(&shifted).unwrap(), hodges_lehmann(&values).unwrap() + shift));
    }

    #[test]
    fn hodges_lehmann_does_not_care_about_order((values, shuffled) in sample().prop_flat_map(|values| {
        (Just(values.clone()), Just(values).prop_shuffle())
    })) {
        prop_assert_eq!(hodges_lehmann(&values), hodges_lehmann(&shuffled));
    }

    #[test]
    fn hodges_lehmann_lies_within_the_data(values in sample()) {
        let estimate = hodges_lehmann(&values).unwrap();
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
        prop_assert!(low <= estimate && estimate <= high);
    }

    #[test]
    fn everything_mirrors_when_the_data_is_negated(values in sample(), seed: u64, confidence in 0.5..0.999) {
        let mirror = |interval: Interval| Interval { low: -interval.high, high: -interval.low };
        let other = negated(&values);
        prop_assert_eq!(hodges_lehmann(&values).unwrap(), -hodges_lehmann(&other).unwrap());
        prop_assert_eq!(
            effect_interval(&values, confidence, RESAMPLES, seed).unwrap(),
            mirror(effect_interval(&other, confidence, RESAMPLES, seed).unwrap())
        );
        prop_assert_eq!(student_interval(&values, confidence).unwrap(), mirror(student_interval(&other, confidence).unwrap()));
    }

    #[test]
    fn an_interval_contains_its_estimate(values in sample(), seed: u64, confidence in 0.5..0.999) {
        let estimate = hodges_lehmann(&values).unwrap();
        prop_assert!(bootstrap_interval(&values, confidence, RESAMPLES, seed).unwrap().contains(estimate));
        prop_assert!(effect_interval(&values, confidence, RESAMPLES, seed).unwrap().contains(estimate));
        prop_assert!(student_interval(&values, confidence).unwrap().contains(estimate));
    }

    #[test]
    fn an_interval_follows_the_unit(values in sample(), seed: u64, shift in -10.0..10.0_f64, factor in 0.01..100.0_f64) {
        let moved: Vec<f64> = values.iter().map(|value| value * factor + shift).collect();
        let before = effect_interval(&values, 0.95, RESAMPLES, seed).unwrap();
        let after = effect_interval(&moved, 0.95, RESAMPLES, seed).unwrap();
        let tolerance = 1e-10 * (1.0 + factor + shift.abs());
        prop_assert!((after.low - (before.low * factor + shift)).abs() < tolerance);
        prop_assert!((after.high - (before.high * factor + shift)).abs() < tolerance);
    }

    #[test]
    fn more_confidence_is_a_wider_interval(values in sample(), seed: u64, confidence in 0.5..0.95) {
        let narrow = bootstrap_interval(&values, confidence, RESAMPLES, seed).unwrap();
        let wide = bootstrap_interval(&values, confidence + 0.04, RESAMPLES, seed).unwrap();
        prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval(values in sample(), seed: u64) {
        let ask = || bootstrap_interval(&values, 0.95, RESAMPLES, seed);
        prop_assert_eq!(ask(), ask());
    }

    #[test]
    fn swapping_the_arms_inverts_the_comparison((candidate, baseline) in two_arms(), seed: u64) {
        let there = log_ratios(&candidate, &baseline).unwrap();
        prop_assert_eq!(&there, &negated(&log_ratios(&baseline, &candidate).unwrap()));

        let compare = |ours: &[f64], theirs: &[f64]| PairedComparison::from_trials(ours, theirs, 0.95, RESAMPLES, seed).unwrap();
        let (there, back) = (compare(&candidate, &baseline), compare(&baseline, &candidate));
        prop_assert!(close(there.ratio * back.ratio, 1.0));
        prop_assert!(close(there.ratio_low * back.ratio_high, 1.0));
        prop_assert!(close(there.ratio_high * back.ratio_low, 1.0));
        prop_assert!(there.ratio_low <= there.ratio && there.ratio <= there.ratio_high);
        prop_assert!(close(there.standard_deviation_log, back.standard_deviation_log));
        prop_assert!(close(there.smallest_detectable_ratio_change, back.smallest_detectable_ratio_change));
    }

    #[test]
    fn trials_needed_falls_with_a_looser_target(sd in 0.0..1.0_f64, target in 0.001..1.0_f64, looser in 1.0..5.0_f64) {
        let strict = trials_needed(sd, target, 0.95).unwrap();
        prop_assert!(trials_needed(sd, target * looser, 0.95).unwrap() <= strict);
        prop_assert!((TRIALS_MIN as u32..=TRIALS_NEEDED_LIMIT).contains(&strict));
    }

    #[test]
    fn bad_measurements_are_errors_and_never_panics(
        candidate in prop::collection::vec(any::<f64>(), 0..12),
        baseline in prop::collection::vec(any::<f64>(), 0..12),
        confidence: f64,
        resamples in 0_u32..3000,
        seed: u64,
    ) {
        for confidence in [confidence, 0.95] {
            if let Ok(comparison) = PairedComparison::from_trials(&candidate, &baseline, confidence, resamples, seed) {
                prop_assert!(comparison.ratio.is_finite() && comparison.interval().half_width_basis_points().is_finite());
            }
        }
    }
}
