//! From one seed, many: every draw and every value of a run follows from the trial's seed, so that a trial can be
//! repeated exactly.
//!
//! Not cryptographic, and need not be: a store does not choose our seed.

/// Mixes two numbers into one whose bits all depend on both. SplitMix64's finaliser (Steele, Lea, Flood: "Fast
/// Splittable Pseudorandom Number Generators", OOPSLA 2014).
#[inline]
pub fn mix(seed: u64, number: u64) -> u64 {
    let mut bits = (seed ^ number.rotate_left(32)).wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Mixes a text into a seed: workloads of different names get different data from the same trial.
pub fn mix_text(seed: u64, text: &str) -> u64 {
    text.bytes().fold(mix(seed, text.len() as u64), |state, byte| mix(state, u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_do_not_collide() {
        let mixed: HashSet<u64> = (0..100).flat_map(|seed| (0..100).map(move |number| mix(seed, number))).collect();
        assert_eq!(mixed.len(), 10_000);
    }

    #[test]
    fn every_letter_counts() {
        assert_ne!(mix_text(1, "put"), mix_text(1, "get"));
        assert_ne!(mix_text(1, "ab"), mix_text(1, "ba"));
        assert_ne!(mix_text(1, "put"), mix_text(2, "put"));
        assert_eq!(mix_text(1, "put"), mix_text(1, "put"));
    }
}
