//! Change points: where a series of runs moved to another level, and stayed.
//!
//! As Hunter does (now Apache Otava): E-divisive cuts the series where the energy distance between both sides is largest, and Student's
//! t-test, which unlike a test by permutation can be sure of three runs and gives the same answer each time, says whether that is more than
//! noise; then each side is looked at alike. Before, a Hampel filter takes out lone bad nights: one or two are no level, of which a segment
//! has three runs at least. Noise is estimated within both sides, and from one run to the next, which another change within a side does not
//! widen; either may be sure. Since a series is looked at each night, and cut wherever it looks worst, the level of each test is one in
//! ten thousand, divided by the number of places where it could have been cut. What that comes to, the tests below measure.
//!
//! The test takes nights for independent. Drift of a machine breaks that, so callers look at ratios to a control where there is one.
//!
//! Promises: the same values give the same answer; work is bounded by the last [`RUNS_MAX`] runs.
//!
//! Sources: D. S. Matteson and N. A. James, "A nonparametric approach for multiple change point analysis of multivariate data", JASA 109,
//! 2014; M. Fleming et al., "Hunter: Using Change Point Detection to Hunt for Performance Regressions", ICPE 2023.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::estimate::mean;
use super::{StatisticsError, TRIALS_MIN, median};

/// Fewest runs of a level.
pub const SEGMENT_MIN: usize = TRIALS_MIN;
/// Of more runs than these, the last are looked at.
pub const RUNS_MAX: usize = 1_000;
/// The chance that a test is wrong at one look, if nights are independent and normal.
const LEVEL: f64 = 0.000_1;
/// Runs before and after one that tell whether it is alone.
const NEIGHBOURS: usize = 3;
/// A run is alone if it is farther from the median of its neighbours than so many of their median deviations; 1.4826 of these are a
/// standard deviation of normal noise.
const ALONE: f64 = 3.0 * 1.4826;
/// Levels that are closer than this, as logarithms, are equal: differences of rounding.
const EQUAL: f64 = 1e-9;

/// The positions at which a new level begins, in order. `values` are logarithms, the oldest first.
///
/// # Errors
/// [`StatisticsError::NotFinite`] for a value that is no number.
pub fn change_points(values: &[f64]) -> Result<Vec<usize>, StatisticsError> {
    if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(StatisticsError::NotFinite { index, value: *value });
    }
    let skipped = values.len().saturating_sub(RUNS_MAX);
    let values = without_lone_outliers(&values[skipped..]);
    let mut found = Vec::new();
    // No recursion: the depth would be somebody else's to choose.
    let mut segments = vec![(0, values.len())];
    while let Some((from, to)) = segments.pop() {
        if let Some(cut) = significant_cut(&values[from..to]) {
            found.push(skipped + from + cut);
            segments.extend([(from, from + cut), (from + cut, to)]);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A Hampel filter: what is far from its neighbours on both sides is replaced by their median.
fn without_lone_outliers(values: &[f64]) -> Vec<f64> {
    let filtered = |position: usize| {
        let around = &values[position.saturating_sub(NEIGHBOURS)..(position + NEIGHBOURS + 1).min(values.len())];
        let centre = median(around.to_vec()).unwrap_or_default();
        let deviation = median(around.iter().map(|value| (value - centre).abs()).collect()).unwrap_or_default();
        let value = values[position];
        if (value - centre).abs() > ALONE * deviation { centre } else { value }
    };
    (0..values.len()).map(filtered).collect()
}

/// The cut of a segment, if both sides are farther apart than noise puts them.
fn significant_cut(values: &[f64]) -> Option<usize> {
    let places = (values.len() + 1).checked_sub(2 * SEGMENT_MIN).filter(|places| *places > 0)?;
    let (cut, _) = best_cut(values)?;
    let (before, after) = values.split_at(cut);
    let difference = (mean(after) - mean(before)).abs();
    if difference < EQUAL {
        return None;
    }
    let count = values.len() as f64;
    let squares = |side: &[f64]| side.iter().map(|value| (value - mean(side)).powi(2)).sum::<f64>();
    let steps: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    // Variances and their degrees of freedom; the second is von Neumann's, of successive differences.
    let within = ((squares(before) + squares(after)) / (count - 2.0), count - 2.0);
    let successive = (steps / (2.0 * (count - 1.0)), 2.0 * (count - 1.0) / 3.0);
    let is_beyond = |(variance, freedom): (f64, f64)| {
        let error = (variance * (1.0 / before.len() as f64 + 1.0 / after.len() as f64)).sqrt();
        // The constructor refuses only degrees of freedom that are not positive.
        let student = StudentsT::new(0.0, 1.0, freedom);
        student.is_ok_and(|student| difference > student.inverse_cdf(1.0 - LEVEL / places as f64 / 2.0) * error)
    };
    (is_beyond(within) || is_beyond(successive)).then_some(cut)
}

/// The cut at which both sides are farthest apart, and how far: n·m/(n+m) times the energy distance.
fn best_cut(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    let distances_to =
        |position: usize, others: &[f64]| -> f64 { others.iter().map(|other| (values[position] - other).abs()).sum() };
    // Sums of distances within the left side, within the right one, and between them; one value after the other changes sides.
    let mut left = 0.0;
    let mut right: f64 = (1..count).map(|position| distances_to(position, &values[..position])).sum();
    let mut between = 0.0;
    let mut best: Option<(usize, f64)> = None;
    for moved in 0..count {
        let (to_left, to_right) = (distances_to(moved, &values[..moved]), distances_to(moved, &values[moved + 1..]));
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        let cut = moved + 1;
        if cut < SEGMENT_MIN || count - cut < SEGMENT_MIN {
            continue;
        }
        let (n, m) = (cut as f64, (count - cut) as f64);
        let energy = 2.0 * between / (n * m) - 2.0 * left / (n * (n - 1.0)) - 2.0 * right / (m * (m - 1.0));
        let scaled = energy * n * m / (n + m);
        if best.is_none_or(|(_, most)| scaled > most) {
            best = Some((cut, scaled));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::super::simulation::normal;
    use super::*;

    /// Nights of a machine: 2 % of noise between nights, and one night in thirty that is 10 to 30 % off.
    fn nights(count: usize, seed: u64) -> Vec<f64> {
        let mut random = SplitMix64::stream(seed, 7);
        let mut night = || {
            let noise = 0.02 * normal(&mut random);
            let is_bad = random.below(30) == 0;
            noise - if is_bad { 0.1 + random.below(200) as f64 / 1_000.0 } else { 0.0 }
        };
        (0..count).map(|_| night()).collect()
    }

    #[test]
    fn fifty_nights_without_a_change_give_at_most_one_false_alarm() {
        let mut in_all = 0;
        for history in 0..100 {
            let values = nights(50, history);
            // Looked at every night; one alarm that moves by a night or two is one.
            let mut alarms = std::collections::BTreeSet::new();
            for night in 1..=values.len() {
                alarms.extend(change_points(&values[..night]).unwrap());
            }
            let alarms: Vec<usize> = alarms.into_iter().collect();
            let events = alarms.len().min(1) + alarms.windows(2).filter(|pair| pair[1] > pair[0] + 3).count();
            assert!(events <= 1, "history {history}: {alarms:?}");
            in_all += events;
        }
        println!("100 histories of 50 nights without a change, looked at each night: {in_all} false alarms");
        assert!(in_all <= 15, "{in_all} false alarms");
    }

    #[test]
    fn a_slow_down_of_ten_percent_is_found_within_three_runs() {
        let (mut found, mut places) = (0, 0);
        for history in 0..100 {
            let mut values = nights(50, 1_000 + history);
            let planted = 25 + (history as usize % 20);
            values[planted..].iter_mut().for_each(|value| *value += 0.9_f64.ln());
            // What is known when three runs have shown it.
            let changes = change_points(&values[..planted + 3]).unwrap();
            found += usize::from(changes.iter().any(|at| at.abs_diff(planted) <= 1));
            let later = change_points(&values).unwrap();
            places += usize::from(later.iter().any(|at| at.abs_diff(planted) <= 1));
        }
        println!(
            "a planted slow-down of 10 %: found within three runs in {found} of 100 histories, at the end in {places}"
        );
        assert!(found >= 95, "{found} of 100");
        assert!(places >= 95, "{places} of 100 at the right place");
    }

    #[test]
    fn levels_are_found_where_they_begin_and_both_ways() {
        let noise = nights(60, 3);
        let values: Vec<f64> = noise
            .iter()
            .enumerate()
            .map(|(night, value)| value * 0.2 + if (20..40).contains(&night) { 0.3 } else { 0.0 })
            .collect();
        assert_eq!(change_points(&values).unwrap(), [20, 40]);
    }

    #[test]
    fn too_few_equal_or_no_numbers_have_no_change() {
        assert_eq!(change_points(&[]).unwrap(), [0; 0]);
        assert_eq!(change_points(&[0.0, 0.0, 0.0, 9.0, 9.0]).unwrap(), [0; 0]);
        assert_eq!(change_points(&[1.0; 50]).unwrap(), [0; 0]);
        assert!(change_points(&[1.0, f64::NAN]).is_err());
        let long = vec![0.5; 10_000];
        assert_eq!(change_points(&long).unwrap(), [0; 0]);
    }

    #[test]
    fn two_bad_nights_are_no_level() {
        let mut values: Vec<f64> = nights(50, 5).iter().map(|value| value * 0.1).collect();
        values[30] -= 0.5;
        values[31] -= 0.5;
        assert_eq!(change_points(&values).unwrap(), [0; 0]);
    }
}
