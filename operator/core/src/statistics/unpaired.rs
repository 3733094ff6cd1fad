//! Two samples that were not taken together: trials of one run against trials of another.
//!
//! Welch's interval of the difference of means, of logarithms: exact enough for normal noise of unequal spread with three trials on either
//! side, and at any confidence, which a bootstrap of six trials is not; one wild trial widens it. It knows the noise within both runs, not
//! what moved between them: callers take ratios to a control that both runs measured, where there is one.
//!
//! Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved", 1947.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::estimate::{mean, standard_deviation};
use super::{CONFIDENCE_MAX, CONFIDENCE_MIN, Interval, StatisticsError, enough_trials, in_range};

/// The difference of two samples of logarithms, the second minus the first, with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnpairedDifference {
    /// The difference of the means.
    pub estimate: f64,
    /// Its interval.
    pub interval: Interval,
}

impl UnpairedDifference {
    /// Compares two samples of logarithms of one unit.
    ///
    /// # Errors
    /// [`StatisticsError::NotEnoughTrials`] where either has fewer than three, [`StatisticsError::TooManyTrials`],
    /// [`StatisticsError::NotFinite`], [`StatisticsError::OutOfRange`] for the confidence.
    pub fn of(before: &[f64], after: &[f64], confidence: f64) -> Result<Self, StatisticsError> {
        in_range("confidence", confidence, CONFIDENCE_MIN, CONFIDENCE_MAX)?;
        for sample in [before, after] {
            enough_trials(sample.len())?;
            if let Some((index, value)) = sample.iter().enumerate().find(|(_, value)| !value.is_finite()) {
                return Err(StatisticsError::NotFinite { index, value: *value });
            }
        }
        let estimate = mean(after) - mean(before);
        let squared_errors = [before, after].map(|sample| standard_deviation(sample).powi(2) / sample.len() as f64);
        let squared_error = squared_errors[0] + squared_errors[1];
        let half_width = if squared_error > 0.0 {
            let weights = [(before, squared_errors[0]), (after, squared_errors[1])];
            let below: f64 = weights.iter().map(|(sample, error)| error.powi(2) / (sample.len() - 1) as f64).sum();
            let freedom = squared_error.powi(2) / below;
            let quantile = StudentsT::new(0.0, 1.0, freedom)
                .map_or(f64::INFINITY, |student| student.inverse_cdf(0.5 + confidence / 2.0));
            quantile * squared_error.sqrt()
        } else {
            0.0
        };
        Ok(Self { estimate, interval: Interval { low: estimate - half_width, high: estimate + half_width } })
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::super::simulation::normal;
    use super::super::{Decision, StopRule, confidence, confidence_of_two, effect_interval};
    use super::*;

    #[test]
    fn agrees_with_a_worked_example() {
        // By hand: 7 − 2.5, errors 2.5/5 and (5/3)/4 squared, so 0.9574 with 6.98 degrees of freedom, of which the quantile is 2.366.
        let found = UnpairedDifference::of(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0, 9.0], 0.95).unwrap();
        assert!((found.estimate - 4.5).abs() < 1e-12);
        let (low, high) = (found.interval.low, found.interval.high);
        assert!((low + high - 9.0).abs() < 1e-9 && (high - 4.5 - 2.366 * 0.9574).abs() < 2e-3, "{low} {high}");
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_promises() {
        for (trials, spreads) in [([3, 3], [0.02, 0.02]), ([6, 10], [0.02, 0.06]), ([10, 10], [0.03, 0.03])] {
            let covered = (0..1_000_u64).filter(|run| {
                let mut random = SplitMix64::stream(20_260_102, *run);
                let mut sample = |side: usize| -> Vec<f64> {
                    (0..trials[side]).map(|_| spreads[side] * normal(&mut random)).collect()
                };
                let (before, after) = (sample(0), sample(1));
                UnpairedDifference::of(&before, &after, 0.95).unwrap().interval.contains(0.0)
            });
            let covered = covered.count();
            assert!(covered >= 930, "{trials:?}: {covered} of 1000");
        }
    }

    /// Runs that stop once their own intervals are narrow stop where their trials happen to agree.
    #[test]
    fn the_interval_covers_the_truth_between_runs_that_stopped_early() {
        const RUNS: u64 = 1_000;
        for (min, max, noise) in [(3, 10, 0.05), (3, 20, 0.05), (6, 10, 0.05), (6, 30, 0.08)] {
            let rule = StopRule::new(min, max, 400.0).unwrap();
            let run = |random: &mut SplitMix64| {
                let mut trials: Vec<f64> = (0..min).map(|_| noise * normal(random)).collect();
                loop {
                    let interval = effect_interval(&trials, confidence(min, max), 1_000, 1).unwrap();
                    if rule.decide(trials.len() as u32, &[interval.half_width() * 10_000.0]) != Decision::Continue {
                        return trials;
                    }
                    trials.push(noise * normal(random));
                }
            };
            let mut covered = [0, 0];
            for number in 0..RUNS {
                let mut random = SplitMix64::stream(20_260_103, number);
                let (before, after) = (run(&mut random), run(&mut random));
                for (covered, confidence) in covered.iter_mut().zip([0.95, confidence_of_two([(min, max); 2])]) {
                    let found = UnpairedDifference::of(&before, &after, confidence).unwrap();
                    *covered += u64::from(found.interval.contains(0.0));
                }
            }
            println!("{min} to {max} trials, noise {noise}: {covered:?} of {RUNS} at 95 % and as used");
            assert!(covered[1] >= RUNS * 94 / 100, "{min} to {max}: {covered:?}");
        }
    }

    #[test]
    fn swapping_the_runs_turns_the_difference_round_and_nonsense_is_refused() {
        let (before, after) = ([0.1, 0.2, 0.15], [0.3, 0.35, 0.5, 0.4]);
        let [there, back] = [(&before[..], &after[..]), (&after[..], &before[..])]
            .map(|(first, second)| UnpairedDifference::of(first, second, 0.99).unwrap());
        assert!((there.estimate + back.estimate).abs() < 1e-12);
        assert!((there.interval.low + back.interval.high).abs() < 1e-12);
        let equal = UnpairedDifference::of(&[1.0; 3], &[1.0; 3], 0.95).unwrap();
        assert_eq!((equal.interval.low, equal.interval.high), (0.0, 0.0));
        assert!(UnpairedDifference::of(&before[..2], &after, 0.95).is_err());
        assert!(UnpairedDifference::of(&[f64::NAN, 1.0, 1.0], &after, 0.95).is_err());
        assert!(UnpairedDifference::of(&before, &after, 1.0).is_err());
    }
}
