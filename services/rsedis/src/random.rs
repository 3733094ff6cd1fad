//! Random numbers for choices that nobody must be able to repeat, but whose quality nothing rests on: SplitMix64.

/// Seeded, so that tests can repeat what it chose.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below a bound; none below zero.
    pub fn below(&mut self, bound: usize) -> Option<usize> {
        (bound > 0).then(|| ((u128::from(self.word()) * bound as u128) >> 64) as usize)
    }

    /// Forty hexadecimal digits, as Redis names runs.
    pub fn name(&mut self) -> String {
        let words = [self.word(), self.word(), self.word()];
        format!("{:016x}{:016x}{:08x}", words[0], words[1], words[2] as u32)
    }
}
