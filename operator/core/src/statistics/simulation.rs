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

/// Noise of which each trial resembles the one before, as on a machine that is slow for a while.
fn correlated(correlation: f64, trials: usize, random: &mut SplitMix64) -> Vec<f64> {
    let mut state = normal(random);
    let mut next = || {
        let value = state;
        state = correlation * state + (1.0 - correlation * correlation).sqrt() * normal(random);
        0.05 * value
    };
    (0..trials).map(|_| next()).collect()
}

/// What pairing does not take away: ratios that resemble the ratio before. Published in docs/accuracy.md.
#[test]
fn trials_that_resemble_one_another_make_intervals_too_narrow_and_are_noticed() {
    for correlation in [0.0, 0.2, 0.4, 0.6] {
        for trials in [6, 10, 20, 30] {
            let (mut missed, mut noticed, mut missed_unnoticed) = (0, 0, 0);
            for run in 0..SIMULATIONS {
                let values = correlated(correlation, trials, &mut SplitMix64::stream(31, u64::from(run)));
                let is_missed = !effect_interval(&values, 0.95, 1000, u64::from(run)).unwrap().contains(0.0);
                let is_noticed = serial_correlation(&values).is_some();
                missed += u32::from(is_missed);
                noticed += u32::from(is_noticed);
                missed_unnoticed += u32::from(is_missed && !is_noticed);
            }
            let share = |count: u32| f64::from(count) / f64::from(SIMULATIONS);
            println!(
                "correlation {correlation:.1}, {trials:2} trials: interval misses {:.3}, warned {:.3}, misses unwarned {:.3}",
                share(missed),
                share(noticed),
                share(missed_unnoticed)
            );
            if correlation == 0.0 {
                assert!(
                    share(missed) <= 0.07 && share(noticed) <= 0.1,
                    "{trials}: {} {}",
                    share(missed),
                    share(noticed)
                );
            }
            if correlation == 0.6 && trials >= 10 {
                assert!(share(noticed) >= 0.4, "{trials}: {}", share(noticed));
            }
        }
    }
}

/// A run that may stop early, looked at after every trial: how often its last interval misses. Published in docs/accuracy.md.
#[test]
fn a_run_that_may_stop_at_few_trials_has_wider_intervals_instead_of_more_misses() {
    for (min, max, target) in
        [(3, 10, 200.0), (3, 10, 400.0), (3, 20, 400.0), (4, 10, 400.0), (6, 10, 400.0), (6, 20, 400.0)]
    {
        let rule = StopRule::new(min, max, target).unwrap();
        let misses = |confidence: f64| {
            let (mut missed, mut used) = (0, 0);
            for run in 0..SIMULATIONS {
                let values = simulate(Noise::Normal, max as usize, &mut SplitMix64::stream(78, u64::from(run)));
                for done in min..=max {
                    let interval = effect_interval(&values[..done as usize], confidence, 1000, u64::from(run)).unwrap();
                    let half_width = (interval.high.exp() - interval.low.exp()) / 2.0 * 10_000.0;
                    if rule.decide(done, &[half_width]) != Decision::Continue {
                        missed += u32::from(!interval.contains(0.0));
                        used += done;
                        break;
                    }
                }
            }
            (f64::from(missed) / f64::from(SIMULATIONS), f64::from(used) / f64::from(SIMULATIONS))
        };
        let (plain, trials) = misses(0.95);
        let (widened, trials_widened) = misses(confidence(min, max));
        println!(
            "trials {min} to {max}, ±{:.0} %: misses {plain:.3} after {trials:.1} trials; as reported {widened:.3} after {trials_widened:.1}",
            target / 100.0
        );
        assert!(widened <= 0.065, "{min} to {max}: {widened}");
    }
}

/// Equal arms, and gates that ask for parity: every one is missed by chance once in forty times.
#[test]
fn many_gates_together_are_missed_by_chance_no_more_often_than_one() {
    for gates in [1, 4, 16] {
        let (mut plain, mut corrected) = (0, 0);
        for run in 0..SIMULATIONS {
            let missed = |confidence: f64| {
                (0..gates).any(|gate| {
                    let random = &mut SplitMix64::stream(1_000 + gate, u64::from(run));
                    let values = simulate(Noise::Normal, 10, random);
                    effect_interval(&values, confidence, 4000, u64::from(run)).unwrap().high < 0.0
                })
            };
            plain += u32::from(missed(0.95));
            corrected += u32::from(missed(confidence_of_each(0.95, gates as usize)));
        }
        let share = |count: u32| f64::from(count) / f64::from(SIMULATIONS);
        println!(
            "{gates:2} gates on equal arms: some missed in {:.3}; as decided {:.3}",
            share(plain),
            share(corrected)
        );
        assert!(share(corrected) <= 0.045, "{gates}: {}", share(corrected));
        if gates == 16 {
            assert!(share(plain) >= 0.2, "{}", share(plain));
        }
    }
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
