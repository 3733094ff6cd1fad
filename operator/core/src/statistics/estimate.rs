//! The size of an effect: paired log ratios and their Hodges–Lehmann estimate.
//!
//! Promises: swapping the arms negates every number here exactly; reordering the trials changes none of them.

use super::{Side, StatisticsError, TRIALS_LIMIT};

/// The natural logarithm of candidate / baseline, pair by pair. Any unit, as long as both sides share it.
///
/// # Errors
/// [`StatisticsError::Unpaired`] if the slices differ in length, [`StatisticsError::NotPositive`] if a measurement is
/// zero, negative, NaN or infinite.
pub fn log_ratios(candidate: &[f64], baseline: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    if candidate.len() != baseline.len() {
        return Err(StatisticsError::Unpaired { candidate: candidate.len(), baseline: baseline.len() });
    }
    let logarithm = |side, index, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(value.ln())
        } else {
            Err(StatisticsError::NotPositive { side, index, value })
        }
    };
    let pairs = candidate.iter().zip(baseline).enumerate();
    // A difference of logarithms, not the logarithm of a quotient: it cannot overflow, and swapping the arms negates it.
    pairs
        .map(|(index, (&ours, &theirs))| {
            Ok(logarithm(Side::Candidate, index, ours)? - logarithm(Side::Baseline, index, theirs)?)
        })
        .collect()
}

/// The Hodges–Lehmann estimate of the centre: the median of all Walsh averages (xᵢ + xⱼ)/2 with i ≤ j.
///
/// Almost as precise as the mean when the noise is normal (95 %), and unlike the mean not ruined by one bad trial: it
/// stays put until 29 % of the trials are bad. Source: J. L. Hodges and E. L. Lehmann, "Estimates of location based on
/// rank tests", 1963.
///
/// # Errors
/// [`StatisticsError::NotEnoughTrials`] if the slice is empty, [`StatisticsError::TooManyTrials`] above
/// [`TRIALS_LIMIT`], [`StatisticsError::NotFinite`] for a value that is no number.
pub fn hodges_lehmann(values: &[f64]) -> Result<f64, StatisticsError> {
    Ok(WalshAverages::new(values)?.median())
}

/// The standard deviation of a sample, with n − 1 below the fraction bar; 0 for fewer than two values.
pub(super) fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The arithmetic mean of a sample that is not empty.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// All Walsh averages of a sample, sorted once, so that the estimate of any resample of it needs no sorting at all.
///
/// A resample holds value i `counts[i]` times. Among its own Walsh averages, (xᵢ + xⱼ)/2 with i ≠ j then occurs
/// `counts[i] · counts[j]` times, and xᵢ with itself `counts[i] · (counts[i] + 1) / 2` times. The median is found by
/// walking the sorted averages and adding up these multiplicities: exact, and some tens of times faster than sorting.
pub(super) struct WalshAverages {
    sorted: Vec<WalshAverage>,
    trials: usize,
}

struct WalshAverage {
    value: f64,
    first: usize,
    second: usize,
}

impl WalshAverages {
    /// The averages of `values`; errors as for [`hodges_lehmann`].
    pub(super) fn new(values: &[f64]) -> Result<Self, StatisticsError> {
        let trials = values.len();
        if trials == 0 {
            return Err(StatisticsError::NotEnoughTrials { trials, needed: 1 });
        }
        if trials > TRIALS_LIMIT {
            return Err(StatisticsError::TooManyTrials { trials });
        }
        if let Some((index, &value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(StatisticsError::NotFinite { index, value });
        }
        let mut sorted = Vec::with_capacity(trials * (trials + 1) / 2);
        for second in 0..trials {
            for first in 0..=second {
                // Halved before they are added: the sum of two large numbers may overflow.
                sorted.push(WalshAverage { value: values[first] / 2.0 + values[second] / 2.0, first, second });
            }
        }
        sorted.sort_unstable_by(|left, right| left.value.total_cmp(&right.value));
        Ok(Self { sorted, trials })
    }

    /// The Hodges–Lehmann estimate of the sample itself.
    pub(super) fn median(&self) -> f64 {
        let middle = self.sorted.len() / 2;
        let upper = self.sorted[middle].value;
        let lower = if self.sorted.len().is_multiple_of(2) { self.sorted[middle - 1].value } else { upper };
        lower / 2.0 + upper / 2.0
    }

    /// The Hodges–Lehmann estimate of the resample that holds value i `counts[i]` times. The counts add up to the
    /// number of trials.
    pub(super) fn median_of_resample(&self, counts: &[u32]) -> f64 {
        debug_assert_eq!(counts.iter().sum::<u32>() as usize, self.trials);
        let total = (self.trials * (self.trials + 1) / 2) as u32;
        // Ranks of the middle, from 1: one and the same if the total is odd.
        let (lower_rank, upper_rank) = (total.div_ceil(2), total / 2 + 1);
        let mut lower = None;
        let mut passed = 0;
        for average in &self.sorted {
            let (first, second) = (counts[average.first], counts[average.second]);
            passed += if average.first == average.second { first * (first + 1) / 2 } else { first * second };
            if lower.is_none() && passed >= lower_rank {
                lower = Some(average.value);
            }
            if let (Some(lower), true) = (lower, passed >= upper_rank) {
                return lower / 2.0 + average.value / 2.0;
            }
        }
        debug_assert!(false, "the multiplicities add up to the total, so the walk ends inside it");
        self.median()
    }
}

#[cfg(test)]
mod tests {
    use super::{Side, StatisticsError, TRIALS_LIMIT, WalshAverages, hodges_lehmann, log_ratios, standard_deviation};

    #[test]
    fn log_ratios_pair_trial_by_trial() {
        let ratios = log_ratios(&[2.0, 1.0, 50.0], &[1.0, 2.0, 50.0]).unwrap();
        assert_eq!(ratios, [2_f64.ln(), -(2_f64.ln()), 0.0]);
        assert!(log_ratios(&[f64::MAX], &[f64::MIN_POSITIVE]).unwrap()[0].is_finite());
    }

    #[test]
    fn log_ratios_refuse_what_has_no_logarithm() {
        let unpaired = Err(StatisticsError::Unpaired { candidate: 1, baseline: 2 });
        assert_eq!(log_ratios(&[1.0], &[1.0, 2.0]), unpaired);
        for value in [0.0, -1.0, f64::INFINITY] {
            let refused = |side| Err(StatisticsError::NotPositive { side, index: 1, value });
            assert_eq!(log_ratios(&[1.0, value], &[1.0, 1.0]), refused(Side::Candidate));
            assert_eq!(log_ratios(&[1.0, 1.0], &[1.0, value]), refused(Side::Baseline));
        }
        assert!(log_ratios(&[f64::NAN], &[1.0]).is_err());
    }

    #[test]
    fn hodges_lehmann_of_small_samples_by_hand() {
        assert_eq!(hodges_lehmann(&[7.0]), Ok(7.0));
        assert_eq!(hodges_lehmann(&[1.0, 4.0]), Ok(2.5));
        // Averages 1, 1.5, 2, 5.5, 6, 10: the middle two are 2 and 5.5. The mean would say 4.33.
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 10.0]), Ok(3.75));
        // One wild trial in five does not move it out of the others' range.
        assert!(hodges_lehmann(&[0.01, 0.02, 0.0, 0.015, 1e9]).unwrap() <= 0.02);
    }

    #[test]
    fn hodges_lehmann_refuses_what_is_no_sample() {
        assert_eq!(hodges_lehmann(&[]), Err(StatisticsError::NotEnoughTrials { trials: 0, needed: 1 }));
        let infinite = StatisticsError::NotFinite { index: 1, value: f64::INFINITY };
        assert_eq!(hodges_lehmann(&[0.0, f64::INFINITY]), Err(infinite));
        let trials = TRIALS_LIMIT + 1;
        assert_eq!(hodges_lehmann(&vec![0.0; trials]), Err(StatisticsError::TooManyTrials { trials }));
    }

    #[test]
    fn the_estimate_of_a_resample_is_the_estimate_of_its_values_written_out() {
        let values = [0.3, -1.2, 0.05, 2.5, 0.31];
        let averages = WalshAverages::new(&values).unwrap();
        for counts in [[1, 1, 1, 1, 1], [5, 0, 0, 0, 0], [0, 2, 1, 0, 2], [3, 0, 0, 2, 0], [0, 0, 1, 1, 3]] {
            let written_out: Vec<f64> = std::iter::zip(values, counts)
                .flat_map(|(value, count)| std::iter::repeat_n(value, count as usize))
                .collect();
            assert_eq!(averages.median_of_resample(&counts), hodges_lehmann(&written_out).unwrap(), "{counts:?}");
        }
    }

    #[test]
    fn standard_deviation_by_hand() {
        assert_eq!(standard_deviation(&[2.0, 4.0, 6.0]), 2.0);
        assert_eq!(standard_deviation(&[1.0]), 0.0);
    }
}
