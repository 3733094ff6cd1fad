//! The one source of chance in this crate: SplitMix64, written out.
//!
//! Promises: the same seed gives the same numbers on every platform and in every future version. A recorded seed is a
//! claim that a reader can re-run, and `rand` permits value-breaking changes to its generators and its shuffles in
//! minor releases (The Rust Rand Book, "Reproducibility"). Not for secrets.
//!
//! Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, and
//! S. Vigna's public-domain `splitmix64.c`.

/// The fractional part of the golden ratio in 64 bits: the step of the generator.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator with 64 bits of state and period 2⁶⁴.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence that belongs to `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Sequence number `index` of `seed`: reached without drawing from those before it. Both arguments pass through the
    /// mixer, so that neighbouring seeds and neighbouring indices give unrelated sequences.
    pub(crate) const fn stream(seed: u64, index: u64) -> Self {
        let key = Self::new(seed).next();
        Self::new(Self::new(key ^ index).next())
    }

    /// The next 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A whole number from 0 up to but not including `bound`, each equally likely; 0 if `bound` is 0 or 1.
    ///
    /// Source: D. Lemire, "Fast random integer generation in an interval", 2019. The loop ends with probability above
    /// one half at each turn, and for the bounds in this crate (below 2³²) practically always at the first.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound <= 1 {
            return 0;
        }
        let bound = bound as u64;
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            let fraction = product as u64;
            if fraction >= bound || fraction >= bound.wrapping_neg() % bound {
                return (product >> 64) as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    /// The reference vector of `splitmix64.c` for seed 1234567.
    #[test]
    fn matches_the_reference_implementation() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| random.next()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn draws_below_a_bound_are_even() {
        let mut random = SplitMix64::new(1);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
        }
        // Binomial with mean 10 000 and standard deviation 93: five of those.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 465), "{counts:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn neighbouring_streams_share_nothing() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20 {
            for index in 0..20 {
                let mut random = SplitMix64::stream(seed, index);
                for _ in 0..20 {
                    assert!(seen.insert(random.next()), "seed {seed}, stream {index} repeats another");
                }
            }
        }
    }
}
