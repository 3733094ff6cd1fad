//! Paired comparison of a candidate with a baseline over a handful of trials.
//!
//! One trial runs every arm once under the same conditions, so a candidate and a baseline are compared trial by trial:
//! the effect is the logarithm of their ratio, which is the same number with the other sign when the arms swap. From
//! 3 to 30 such log ratios this module says how large the effect is ([`hodges_lehmann`]), how sure that is
//! ([`effect_interval`]), what would have gone unseen ([`minimum_detectable_effect`]), and whether more trials are
//! worth their time ([`StopRule`], [`trials_needed`]). [`PairedComparison`] holds all of it for one metric.
//!
//! Of several runs: how far two are apart ([`UnpairedDifference`]), and where many moved ([`change_points`]).
//!
//! Promises: pure functions of their arguments, seeds included; every loop is bounded by [`TRIALS_LIMIT`] or
//! [`RESAMPLES_LIMIT`]; bad numbers come back as a [`StatisticsError`], never as NaN and never as a panic. Results are
//! repeatable bit for bit on one platform; across platforms `ln` and `exp` may differ in the last digit.
//!
//! Not here: trials that must not count. The caller leaves an invalid trial out of both slices.

mod change;
mod comparison;
mod estimate;
mod interval;
mod power;
pub(crate) mod random;
mod serial;
mod stop;
mod unpaired;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod simulation;

pub use change::{RUNS_MAX, SEGMENT_MIN, change_points};
pub use comparison::PairedComparison;
pub use estimate::{hodges_lehmann, log_ratios};
pub use interval::{
    Interval, bootstrap_interval, confidence_of_each, effect_interval, expanded_tail_probability, student_interval,
};
pub use power::{TRIALS_NEEDED_LIMIT, minimum_detectable_effect, trials_needed};
pub use serial::serial_correlation;
pub use stop::{Decision, StopRule, confidence, confidence_of_two};
pub use unpaired::UnpairedDifference;

/// Fewest trials from which an interval is computed. Two points have no shape to resample.
pub const TRIALS_MIN: usize = 3;

/// Most trials accepted: Walsh averages grow with the square of it.
pub const TRIALS_LIMIT: usize = 1000;

/// Confidence of a reported interval unless the caller has a reason for another.
pub const CONFIDENCE_DEFAULT: f64 = 0.95;

/// Least confidence accepted.
pub const CONFIDENCE_MIN: f64 = 0.5;

/// Greatest confidence accepted: that of each of five hundred intervals which together are to have 95 %.
pub const CONFIDENCE_MAX: f64 = 0.9999;

/// Bootstrap resamples unless the caller has a reason for another number.
pub const RESAMPLES_DEFAULT: u32 = 4000;

/// Fewest resamples accepted: below this the tails of the bootstrap distribution are noise.
pub const RESAMPLES_MIN: u32 = 1000;

/// Most resamples accepted.
pub const RESAMPLES_LIMIT: u32 = 1_000_000;

/// Power at which the smallest detectable effect of a [`PairedComparison`] is stated.
pub const POWER_DEFAULT: f64 = 0.8;

/// The median: of an even number of values the mean of the middle two. `None` of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(values[middle - 1].midpoint(values[middle])),
    }
}

/// The median of whole numbers, rounded down; 0 of nothing.
pub(crate) fn median_of_whole(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() {
        0 => 0,
        odd if odd % 2 == 1 => values[middle],
        _ => values[middle - 1].midpoint(values[middle]),
    }
}

/// Which side of a comparison a bad measurement was found on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The arm that is judged.
    Candidate,
    /// The arm it is judged against.
    Baseline,
}

impl std::fmt::Display for Side {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Candidate => "candidate",
            Self::Baseline => "baseline",
        })
    }
}

/// Why a statistic could not be computed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// The two sides do not pair up trial by trial.
    #[error("the candidate has {candidate} trials and the baseline {baseline}: they cannot be paired")]
    Unpaired {
        /// Number of measurements of the candidate.
        candidate: usize,
        /// Number of measurements of the baseline.
        baseline: usize,
    },
    /// A measurement has no logarithm.
    #[error("the {side} measured {value} in pair {index}: a ratio needs a finite number above zero")]
    NotPositive {
        /// Whose measurement.
        side: Side,
        /// Position in the slice, from 0.
        index: usize,
        /// The measurement.
        value: f64,
    },
    /// A log ratio is NaN or infinite.
    #[error("log ratio {index} is {value}: a finite number is needed")]
    NotFinite {
        /// Position in the slice, from 0.
        index: usize,
        /// The log ratio.
        value: f64,
    },
    /// Too few trials to say anything about their spread.
    #[error("{trials} trials are not enough: {needed} are needed")]
    NotEnoughTrials {
        /// Number of trials at hand.
        trials: usize,
        /// Number of trials required.
        needed: usize,
    },
    /// More trials than [`TRIALS_LIMIT`].
    #[error("{trials} trials are too many: {TRIALS_LIMIT} is the limit")]
    TooManyTrials {
        /// Number of trials at hand.
        trials: usize,
    },
    /// A setting (confidence, power, resamples, a bound of the stop rule) outside its range.
    #[error("{setting} is {value}: it must be from {low} to {high}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// What was given.
        value: f64,
        /// Least accepted value.
        low: f64,
        /// Greatest accepted value.
        high: f64,
    },
    /// The effect is finite as a logarithm but its ratio is not: the measurements are nonsense.
    #[error("a log ratio of {log_ratio} has no finite ratio above zero")]
    Unrepresentable {
        /// The logarithm that could not be turned into a ratio.
        log_ratio: f64,
    },
}

/// `value`, if it is a number from `low` to `high`.
fn in_range(setting: &'static str, value: f64, low: f64, high: f64) -> Result<f64, StatisticsError> {
    // NaN is in no range.
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(StatisticsError::OutOfRange { setting, value, low, high })
    }
}

/// Checks that the number of trials allows an interval.
fn enough_trials(trials: usize) -> Result<(), StatisticsError> {
    match trials {
        0..TRIALS_MIN => Err(StatisticsError::NotEnoughTrials { trials, needed: TRIALS_MIN }),
        TRIALS_MIN..=TRIALS_LIMIT => Ok(()),
        _ => Err(StatisticsError::TooManyTrials { trials }),
    }
}
