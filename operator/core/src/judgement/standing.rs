//! How an arm stands to the baseline in one metric: the one place that decides what may be concluded from a comparison. What that is called
//! is up to whoever tells it.

use storebench_crds::status::Comparison;

/// 1, in basis points.
pub(crate) const PARITY: u64 = 10_000;

/// Widest bound, in basis points, at which "no difference larger than" is still a finding; beyond it the trials cannot tell.
pub(crate) const NO_DIFFERENCE_BOUND_MAX: u64 = 1_000;

/// What may be concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing: the two may not be ranked.
    NotRanked,
    /// Nothing of an arm: it is the baseline against itself.
    NoiseFloor,
    /// It is no farther from the baseline than that is from itself.
    WithinFloor,
    /// They differ by no more than so many basis points.
    Tie(u64),
    /// The interval contains 1 and is too wide to be called a tie.
    Undecided,
    /// The whole interval is above 1.
    Higher,
    /// The whole interval is below 1.
    Lower,
}

impl Standing {
    /// What a comparison allows to conclude, in a run that is not invalid.
    pub(crate) fn of(comparison: &Comparison) -> Self {
        let Comparison { ratio_basis_points, low_basis_points, high_basis_points, .. } = *comparison;
        match () {
            () if comparison.not_ranked.is_some() => Self::NotRanked,
            () if comparison.is_noise_floor() => Self::NoiseFloor,
            () if comparison.is_within_noise_floor() => Self::WithinFloor,
            () => Self::of_ratio([ratio_basis_points, low_basis_points, high_basis_points]),
        }
    }

    /// The same of a ratio and the ends of its interval, basis points, of two that may be ranked.
    pub(crate) fn of_ratio(ratio: [u64; 3]) -> Self {
        let [_, low, high] = in_order(ratio);
        let bound = PARITY.saturating_sub(low).max(high.saturating_sub(PARITY));
        match () {
            () if low > PARITY => Self::Higher,
            () if high < PARITY => Self::Lower,
            () if bound <= NO_DIFFERENCE_BOUND_MAX => Self::Tie(bound),
            () => Self::Undecided,
        }
    }

    /// Whether the two differ beyond noise.
    pub(crate) fn is_difference(self) -> bool {
        matches!(self, Self::Higher | Self::Lower)
    }
}

/// A ratio with the lower and the upper end of its interval. A damaged record may have its ends the wrong way round; nothing is concluded from
/// an interval of the wrong kind.
pub(crate) fn in_order([ratio, one_end, other_end]: [u64; 3]) -> [u64; 3] {
    [ratio, one_end.min(ratio).min(other_end), other_end.max(ratio).max(one_end)]
}
