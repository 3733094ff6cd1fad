//! Everything that is said about one metric of a candidate and a baseline.
//!
//! Promises: every field is finite, ratios are above zero, `ratio_low` ≤ `ratio` ≤ `ratio_high`; swapping the arms
//! turns every ratio into its inverse.

use super::estimate::standard_deviation;
use super::{
    Interval, POWER_DEFAULT, StatisticsError, effect_interval, hodges_lehmann, log_ratios, minimum_detectable_effect,
};

/// Candidate over baseline, for one metric, from paired trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedComparison {
    /// Candidate / baseline: the Hodges–Lehmann estimate. 1 is parity.
    pub ratio: f64,
    /// Lower end of the interval of the ratio.
    pub ratio_low: f64,
    /// Upper end of the interval of the ratio.
    pub ratio_high: f64,
    /// Pairs compared.
    pub trials: usize,
    /// The smallest true change of the ratio, as a fraction (0.05: 5 % more), that this many trials with this much noise
    /// would have told from none with probability [`POWER_DEFAULT`]. "No difference seen" means "none above this".
    pub smallest_detectable_ratio_change: f64,
    /// Sample standard deviation of the log ratios: near zero, the relative noise of one trial's ratio.
    pub standard_deviation_log: f64,
}

impl PairedComparison {
    /// Compares measurements of the same trials, in the same order, in the same unit.
    ///
    /// # Errors
    /// As for [`log_ratios`] and [`effect_interval`]; [`StatisticsError::Unrepresentable`] if the measurements are so
    /// far apart that a ratio overflows.
    pub fn from_trials(
        candidate: &[f64],
        baseline: &[f64],
        confidence: f64,
        resamples: u32,
        seed: u64,
    ) -> Result<Self, StatisticsError> {
        let values = log_ratios(candidate, baseline)?;
        let interval = effect_interval(&values, confidence, resamples, seed)?;
        let deviation = standard_deviation(&values);
        let detectable = minimum_detectable_effect(deviation, values.len(), 1.0 - confidence, POWER_DEFAULT)?;
        Ok(Self {
            ratio: ratio_of(hodges_lehmann(&values)?)?,
            ratio_low: ratio_of(interval.low)?,
            ratio_high: ratio_of(interval.high)?,
            trials: values.len(),
            smallest_detectable_ratio_change: ratio_of(detectable)? - 1.0,
            standard_deviation_log: deviation,
        })
    }

    /// The interval of the ratio.
    pub fn interval(&self) -> Interval {
        Interval { low: self.ratio_low, high: self.ratio_high }
    }
}

/// e to the power of `log_ratio`, if that is a finite number above zero.
fn ratio_of(log_ratio: f64) -> Result<f64, StatisticsError> {
    let ratio = log_ratio.exp();
    if ratio.is_normal() { Ok(ratio) } else { Err(StatisticsError::Unrepresentable { log_ratio }) }
}

#[cfg(test)]
mod tests {
    use super::super::{CONFIDENCE_DEFAULT, RESAMPLES_DEFAULT};
    use super::*;

    fn compare(candidate: &[f64], baseline: &[f64]) -> Result<PairedComparison, StatisticsError> {
        PairedComparison::from_trials(candidate, baseline, CONFIDENCE_DEFAULT, RESAMPLES_DEFAULT, 7)
    }

    #[test]
    fn drift_that_hits_both_arms_cancels() {
        // The machine slows down threefold over the run; the candidate is always 10 % faster.
        let baseline: Vec<f64> = (0..8).map(|trial| 3000.0 / (1.0 + f64::from(trial) * 2.0 / 7.0)).collect();
        let candidate: Vec<f64> = baseline.iter().map(|value| value * 1.1).collect();
        let comparison = compare(&candidate, &baseline).unwrap();
        assert_eq!(comparison.trials, 8);
        for ratio in [comparison.ratio, comparison.ratio_low, comparison.ratio_high] {
            assert!((ratio - 1.1).abs() < 1e-12, "{comparison:?}");
        }
        assert!(comparison.interval().half_width_basis_points() < 1e-8);
        assert!(comparison.smallest_detectable_ratio_change < 1e-12);
    }

    #[test]
    fn noise_shows_in_every_field() {
        let comparison = compare(&[110.0, 95.0, 120.0, 104.0, 99.0, 130.0], &[100.0; 6]).unwrap();
        assert!(comparison.ratio_low < comparison.ratio && comparison.ratio < comparison.ratio_high);
        assert!(comparison.interval().half_width_basis_points() > 500.0);
        assert!(comparison.standard_deviation_log > 0.1 && comparison.smallest_detectable_ratio_change > 0.1);
    }

    #[test]
    fn ratios_beyond_numbers_are_refused() {
        let refused = compare(&[f64::MAX; 4], &[f64::MIN_POSITIVE; 4]).unwrap_err();
        assert!(matches!(refused, StatisticsError::Unrepresentable { .. }), "{refused}");
        let refused = compare(&[f64::MIN_POSITIVE; 4], &[f64::MAX; 4]).unwrap_err();
        assert!(matches!(refused, StatisticsError::Unrepresentable { .. }), "{refused}");
    }
}
