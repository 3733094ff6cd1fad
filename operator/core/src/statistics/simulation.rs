//! Do the intervals keep their word? Simulated runs with a known truth, from fixed seeds, and what they measured.
//!
//! Each test prints its table (`--nocapture`). Nominal confidence is 95 % throughout. With S simulated runs a coverage
//! of 95 % is measured with a standard deviation of √(0.95 · 0.05 / S): 0.69 percentage points for S = 1000.

use super::random::SplitMix64;
use super::*;

const SIMULATIONS: u32 = 1000;

#[derive(Debug, Clone, Copy)]
enum Noise {
    Normal,
    /// Student's t with 3 degrees of freedom: heavy tails, as of a machine that sometimes stalls.
    HeavyTailed,
}

/// Log ratios of `trials` trials around a true effect of 0.
fn simulate(noise: Noise, trials: usize, random: &mut SplitMix64) -> Vec<f64> {
    let value = |random: &mut SplitMix64| match noise {
        Noise::Normal => normal(random),
        Noise::HeavyTailed => {
            let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
            normal(random) / (squares / 3.0).sqrt()
        }
    };
    (0..trials).map(|_| 0.05 * value(random)).collect()
}

/// A standard normal number (Box and Muller, 1958; one of the two).
pub(super) fn normal(random: &mut SplitMix64) -> f64 {
    // 53 bits, shifted by half a step: never 0, so that the logarithm exists.
    let mut uniform = || ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

struct Measured {
    coverage: f64,
    mean_width: f64,
}

fn measure(
    noise: Noise,
    trials: usize,
    interval: impl Fn(&[f64], u64) -> Result<Interval, StatisticsError>,
) -> Measured {
    let (mut covered, mut width) = (0, 0.0);
    for run in 0..SIMULATIONS {
        let values = simulate(noise, trials, &mut SplitMix64::stream(20_260_101, u64::from(run)));
        let interval = interval(&values, u64::from(run)).unwrap();
        covered += u32::from(interval.contains(0.0));
        width += interval.high - interval.low;
    }
    Measured { coverage: f64::from(covered) / f64::from(SIMULATIONS), mean_width: width / f64::from(SIMULATIONS) }
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_promise() {
    for noise in [Noise::Normal, Noise::HeavyTailed] {
        for trials in [3, 4, 5, 6, 7, 8, 10, 20] {
            let effect = measure(noise, trials, |values, seed| effect_interval(values, 0.95, 2000, seed));
            let student = measure(noise, trials, |values, _| student_interval(values, 0.95));
            println!(
                "{noise:?}, {trials} trials: effect interval covers {:.3}, Student {:.3}; width against Student's {:.2}",
                effect.coverage,
                student.coverage,
                effect.mean_width / student.mean_width
            );
            assert!(effect.coverage >= 0.92, "{noise:?} with {trials} trials: {}", effect.coverage);
            // Covering always is no merit: it would be an interval too wide to be of use.
            assert!(effect.coverage <= 0.985, "{noise:?} with {trials} trials: {}", effect.coverage);
            assert!(effect.mean_width <= 1.2 * student.mean_width);
        }
    }
}

/// Why [`effect_interval`] does not trust the bootstrap alone below seven trials: it covers what the range of the data
/// covers, 1 − 2¹⁻ⁿ.
#[test]
fn a_bootstrap_of_few_trials_covers_no_more_than_their_range() {
    for trials in [3, 4] {
        let alone = measure(Noise::Normal, trials, |values, seed| bootstrap_interval(values, 0.95, 2000, seed));
        let expected = 1.0 - 0.5_f64.powi(trials as i32 - 1);
        println!("{trials} trials: bootstrap alone covers {:.3}, expected {expected:.3}", alone.coverage);
        assert!((alone.coverage - expected).abs() < 0.05, "{trials} trials: {}", alone.coverage);
    }
}

#[test]
fn intervals_shrink_with_trials() {
    for noise in [Noise::Normal, Noise::HeavyTailed] {
        let widths = [3, 5, 8, 12, 20, 30]
            .map(|trials| measure(noise, trials, |values, seed| effect_interval(values, 0.95, 1000, seed)).mean_width);
        println!("{noise:?}: mean widths {widths:.4?}");
        assert!(widths.is_sorted_by(|wider, narrower| wider > narrower), "{widths:?}");
    }
}

/// The reason of [`StopRule`]: two equal arms, looked at after every trial from the 6th to the 20th.
#[test]
fn stopping_at_a_precision_does_not_fool_and_stopping_at_a_result_does() {
    let rule = StopRule::new(6, 20, 400.0).unwrap();
    let (mut fooled_by_precision, mut fooled_by_result, mut trials_used) = (0, 0, 0);
    for run in 0..SIMULATIONS {
        let values = simulate(Noise::Normal, 20, &mut SplitMix64::stream(77, u64::from(run)));
        let mut decision = Decision::Continue;
        let mut result_seen = false;
        for done in 6..=20 {
            let interval = effect_interval(&values[..done], 0.95, 1000, u64::from(run)).unwrap();
            result_seen |= !interval.contains(0.0);
            if decision == Decision::Continue {
                let half_width = (interval.high.exp() - interval.low.exp()) / 2.0 * 10_000.0;
                decision = rule.decide(done as u32, &[half_width]);
                if decision != Decision::Continue {
                    fooled_by_precision += u32::from(!interval.contains(0.0));
                    trials_used += done;
                }
            }
        }
        fooled_by_result += u32::from(result_seen);
    }
    let share = |count: u32| f64::from(count) / f64::from(SIMULATIONS);
    println!(
        "equal arms called different: {:.3} when stopping at a precision (after {:.1} trials), {:.3} at a result",
        share(fooled_by_precision),
        trials_used as f64 / f64::from(SIMULATIONS),
        share(fooled_by_result)
    );
    assert!(share(fooled_by_precision) <= 0.08, "{}", share(fooled_by_precision));
    assert!(share(fooled_by_result) >= 0.12, "{}", share(fooled_by_result));
}

/// The promise of [`minimum_detectable_effect`], kept by the interval that is reported: an effect of that size is told
/// from none about as often as the power says.
#[test]
fn the_smallest_detectable_effect_is_detected_as_often_as_promised() {
    for trials in [5, 8, 10, 20] {
        let effect = minimum_detectable_effect(0.05, trials, 0.05, 0.8).unwrap();
        let missed = measure(Noise::Normal, trials, |values, seed| {
            let shifted: Vec<f64> = values.iter().map(|value| value + effect).collect();
            effect_interval(&shifted, 0.95, 1000, seed)
        });
        let found = 1.0 - missed.coverage;
        println!("{trials} trials: an effect of {:.2} standard deviations is found in {found:.3}", effect / 0.05);
        assert!((0.65..=0.9).contains(&found), "{trials} trials: {found}");
    }
}
