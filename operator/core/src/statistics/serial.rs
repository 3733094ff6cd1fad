//! Whether trials resemble the ones before them, so that there are fewer independent ones than were counted.
//!
//! Pairing takes away what drifts for both arms alike. What is left may still go slowly: a machine on which one arm suffers for some
//! trials, and not for others. Intervals then miss more often than they say; `simulation.rs` measures how often.

use super::estimate::mean;

/// Fewer trials have no course that could be told from chance.
const TRIALS_MIN: usize = 6;
/// Of independent trials one run in twenty has a larger correlation: the quantile of the normal distribution at 0.95.
const NORMAL_QUANTILE: f64 = 1.645;

/// The correlation of each value with the next, if it is larger than chance alone would make it 19 times out of 20; values in the order in
/// which they were measured. `None`: it is not, or there are fewer than six.
///
/// Source of the bound: R. L. Anderson, "Distribution of the serial correlation coefficient", 1942: of n independent normal values it is
/// about normal with mean −1/n and standard deviation (n − 2)/(n √(n − 1)).
pub fn serial_correlation(values: &[f64]) -> Option<f64> {
    if values.len() < TRIALS_MIN {
        return None;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    let products: f64 = values.windows(2).map(|pair| (pair[0] - centre) * (pair[1] - centre)).sum();
    let correlation = products / squares;
    let count = values.len() as f64;
    let bound = (-1.0 + NORMAL_QUANTILE * (count - 2.0) / (count - 1.0).sqrt()) / count;
    // Values that are all equal have none.
    (correlation.is_finite() && correlation > bound).then_some(correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_course_is_noticed_and_an_alternating_one_is_none() {
        let slow = [0.0, 0.1, 0.2, 0.2, 0.1, 0.0, -0.1, -0.2, -0.2, -0.1];
        let found = serial_correlation(&slow).unwrap();
        // From a second implementation, in Python: sum of products over sum of squares.
        assert!((found - 0.8).abs() < 1e-12, "{found}");
        assert_eq!(serial_correlation(&[0.1, -0.1, 0.1, -0.1, 0.1, -0.1]), None);
        assert_eq!(serial_correlation(&slow[..5]), None, "too few");
        assert_eq!(serial_correlation(&[0.5; 8]), None, "all equal");
    }
}
