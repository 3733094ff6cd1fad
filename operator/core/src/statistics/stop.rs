//! When to stop measuring: at a wanted precision, never at a wanted result.
//!
//! Promises: a pure decision from the number of trials and the widths of the intervals. It cannot see where an interval
//! lies, and that is the point. A run that looks after every trial and stops as soon as "parity is excluded" has many
//! chances to be fooled once: with no difference between the arms, a 5 % error becomes 15 to 20 % over twenty looks
//! (`simulation.rs` measures it). How wide an interval is says next to nothing about which side of parity it is on, so
//! stopping at a width leaves the error about where it was (Y. S. Chow and H. Robbins, "On the asymptotic theory of
//! fixed-width sequential confidence intervals", 1965). `trials_min` guards the start, where a lucky pair of close
//! trials looks precise.

use super::{StatisticsError, TRIALS_LIMIT, in_range};

/// Bounds on the number of trials and the precision that makes more of them needless.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopRule {
    trials_min: u32,
    trials_max: u32,
    target_half_width_basis_points: f64,
}

/// What to do after a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Run another trial.
    Continue,
    /// Stop: every watched interval is as narrow as asked for.
    Precise,
    /// Stop: the last trial allowed is done and some watched interval is still wider than asked for.
    Exhausted,
}

/// Below so many trials a run that stops because its interval is narrow often stops because it happens to be.
const TRIALS_TO_TRUST: u32 = 6;

/// The confidence at which intervals of a run with this plan are computed so that they are 95 % intervals. One that may stop below six trials
/// stops where trials happen to be close to one another, and its intervals would miss 7 to 9 times in a hundred rather than 5
/// (`simulation.rs` measures both); at 98 % they keep their word.
pub fn confidence(trials_min: u32, trials_max: u32) -> f64 {
    if may_stop_at_few(trials_min, trials_max) { 0.98 } else { super::CONFIDENCE_DEFAULT }
}

/// The same of an interval between two runs with these plans (fewest and most trials). Where each may stop as soon as its own interval is narrow,
/// both stop where their trials happen to be close to one another, and Welch's interval takes its width from these: at 95 % it misses 6 to 11
/// times in a hundred (`unpaired.rs` measures it). At 98 % it misses no more often than promised; where one may stop below six trials, at 99 %.
pub fn confidence_of_two(plans: [(u32, u32); 2]) -> f64 {
    match () {
        () if plans.iter().any(|(min, max)| may_stop_at_few(*min, *max)) => 0.99,
        () if plans.iter().any(|(min, max)| min < max) => 0.98,
        () => super::CONFIDENCE_DEFAULT,
    }
}

fn may_stop_at_few(trials_min: u32, trials_max: u32) -> bool {
    trials_min < TRIALS_TO_TRUST.min(trials_max)
}

impl StopRule {
    /// A rule that never stops before `trials_min` trials, never goes beyond `trials_max`, and in between stops when
    /// every watched half-width is at most `target_half_width_basis_points` (1/10 000 of the value itself).
    ///
    /// An odd `trials_min` lets a run end in half a block of the schedule, with one order of the arms used once more
    /// than the other; an even one is the better choice.
    ///
    /// # Errors
    /// [`StatisticsError::OutOfRange`] unless 1 ≤ `trials_min` ≤ `trials_max` ≤ [`TRIALS_LIMIT`] and the target is a
    /// number above zero.
    pub fn new(trials_min: u32, trials_max: u32, target_half_width_basis_points: f64) -> Result<Self, StatisticsError> {
        in_range("maximum of trials", f64::from(trials_max), 1.0, TRIALS_LIMIT as f64)?;
        in_range("minimum of trials", f64::from(trials_min), 1.0, f64::from(trials_max))?;
        in_range("target half-width", target_half_width_basis_points, f64::MIN_POSITIVE, f64::MAX)?;
        Ok(Self { trials_min, trials_max, target_half_width_basis_points })
    }

    /// Decides after `trials_done` trials. `half_widths_basis_points` has one entry per watched interval, see
    /// [`Interval::half_width_basis_points`](super::Interval::half_width_basis_points); one
    /// that could not be computed (too few valid pairs) counts as `f64::INFINITY`. With nothing to watch, the minimum
    /// of trials is all there is to do.
    pub fn decide(&self, trials_done: u32, half_widths_basis_points: &[f64]) -> Decision {
        // NaN is not narrow enough.
        let precise = half_widths_basis_points.iter().all(|&width| width <= self.target_half_width_basis_points);
        match trials_done {
            done if done < self.trials_min => Decision::Continue,
            _ if precise => Decision::Precise,
            done if done < self.trials_max => Decision::Continue,
            _ => Decision::Exhausted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Decision, StopRule};

    #[test]
    fn stops_only_when_every_watched_interval_is_narrow() {
        let rule = StopRule::new(4, 10, 300.0).unwrap();
        assert_eq!(rule.decide(4, &[300.0, 120.0]), Decision::Precise);
        assert_eq!(rule.decide(4, &[300.1, 120.0]), Decision::Continue);
        assert_eq!(rule.decide(4, &[120.0, f64::INFINITY]), Decision::Continue);
        assert_eq!(rule.decide(4, &[120.0, f64::NAN]), Decision::Continue);
    }

    #[test]
    fn never_before_the_minimum_never_beyond_the_maximum() {
        let rule = StopRule::new(4, 10, 300.0).unwrap();
        assert!((0..4).all(|done| rule.decide(done, &[0.0]) == Decision::Continue));
        assert!((4..10).all(|done| rule.decide(done, &[301.0]) == Decision::Continue));
        assert_eq!(rule.decide(10, &[301.0]), Decision::Exhausted);
        assert_eq!(rule.decide(11, &[f64::NAN]), Decision::Exhausted);
        assert_eq!(rule.decide(10, &[299.0]), Decision::Precise);
    }

    #[test]
    fn with_nothing_to_watch_the_minimum_is_enough() {
        let rule = StopRule::new(2, 10, 300.0).unwrap();
        assert_eq!([rule.decide(1, &[]), rule.decide(2, &[])], [Decision::Continue, Decision::Precise]);
    }

    #[test]
    fn refuses_bounds_that_contradict() {
        assert!(StopRule::new(5, 4, 300.0).is_err());
        assert!(StopRule::new(0, 4, 300.0).is_err());
        assert!(StopRule::new(1, u32::MAX, 300.0).is_err());
        for target in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(StopRule::new(3, 5, target).is_err());
        }
    }
}
