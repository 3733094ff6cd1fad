//! Deterministic randomness: splitmix64. A seed gives the same numbers on every machine and in every version.

/// A sequence of numbers that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The bias for ends far below 2^64 does not matter here.
        if end == 0 { 0 } else { self.next() % end }
    }
}

/// Spreads a number over 64 bits.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
