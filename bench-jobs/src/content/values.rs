//! What is written: values that say by themselves which key and which version they belong to.
//!
//! A value of at least [`HEADER_BYTES`] bytes is laid out as
//!
//! ```text
//! 0        8                                  value_bytes
//! ├────────┼──────────────────────────────────┤
//! │ header │ body                             │
//! └────────┴──────────────────────────────────┘
//! header  key (upper 32 bits) and version (lower 32 bits), exclusive-or the seed's mask, little-endian
//! body    a piece of one random block, at an offset that depends on seed, key and version
//! ```
//!
//! so that a check is one comparison of 8 bytes and one `memcmp`, a torn value (half of one version, half of another)
//! is noticed, and a value of another workload, trial or seed is noticed. Shorter values are the first bytes of a hash
//! of seed, key and version: they can be compared but not read back, and one of *n* bytes is mistaken for another with a
//! chance of 1 in 256ⁿ.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::content::seeds::mix;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// How many different offsets a body can start at. Small enough for the block to stay in the processor's cache.
const OFFSETS: usize = 4096;

/// Makes and recognises values of one length and one seed.
#[derive(Debug)]
pub struct Values {
    value_bytes: usize,
    seed: u64,
    mask: u64,
    block: Vec<u8>,
}

impl Values {
    /// Values of `value_bytes` bytes.
    pub fn new(seed: u64, value_bytes: u32) -> Self {
        let value_bytes = value_bytes as usize;
        let mut block = vec![0; value_bytes.saturating_sub(HEADER_BYTES) + OFFSETS];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut block);
        Self { value_bytes, seed, mask: mix(seed, u64::MAX), block }
    }

    /// Length of every value, bytes.
    #[inline]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Appends the value of a key's version.
    #[inline]
    pub fn write(&self, key: u32, version: u32, into: &mut Vec<u8>) {
        if self.value_bytes < HEADER_BYTES {
            into.extend_from_slice(&self.tiny(key, version)[..self.value_bytes]);
            return;
        }
        into.extend_from_slice(&self.header(key, version));
        into.extend_from_slice(self.body(key, version));
    }

    /// Whether `found` is the value of a key's version.
    #[inline]
    pub fn matches(&self, key: u32, version: u32, found: &[u8]) -> bool {
        if found.len() != self.value_bytes {
            return false;
        }
        match found.split_first_chunk::<HEADER_BYTES>() {
            Some((header, body)) => *header == self.header(key, version) && body == self.body(key, version),
            None => *found == self.tiny(key, version)[..self.value_bytes],
        }
    }

    /// The key and version that `found` is the value of. `None` for anything that [`Values::write`] did not make, and
    /// for values too short to say.
    #[inline]
    pub fn read_back(&self, found: &[u8]) -> Option<(u32, u32)> {
        let (header, body) = found.split_first_chunk::<HEADER_BYTES>()?;
        let both = u64::from_le_bytes(*header) ^ self.mask;
        let (key, version) = ((both >> 32) as u32, both as u32);
        (found.len() == self.value_bytes && body == self.body(key, version)).then_some((key, version))
    }

    /// What `found` is, for a message: short, printable, one line.
    pub fn describe(&self, found: &[u8]) -> String {
        if let Some((key, version)) = self.read_back(found) {
            return format!("version {version} of key {key}");
        }
        let shown = &found[..found.len().min(24)];
        let dots = if shown.len() < found.len() { "…" } else { "" };
        format!("{} bytes that were never written, \"{}\"{dots}", found.len(), shown.escape_ascii())
    }

    #[inline]
    fn header(&self, key: u32, version: u32) -> [u8; HEADER_BYTES] {
        (joined(key, version) ^ self.mask).to_le_bytes()
    }

    #[inline]
    fn body(&self, key: u32, version: u32) -> &[u8] {
        // The top 12 bits of a multiplicative hash: 0 to 4095.
        let offset = (joined(key, version).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        &self.block[offset..offset + self.value_bytes - HEADER_BYTES]
    }

    #[inline]
    fn tiny(&self, key: u32, version: u32) -> [u8; HEADER_BYTES] {
        mix(self.seed, joined(key, version)).to_le_bytes()
    }
}

#[inline]
fn joined(key: u32, version: u32) -> u64 {
    u64::from(key) << 32 | u64::from(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(values: &Values, key: u32, version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        values.write(key, version, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_value_is_recognised_and_says_what_it_is(seed: u64, key: u32, version: u32, length in 1u32..5000) {
            let values = Values::new(seed, length);
            let bytes = value(&values, key, version);
            prop_assert_eq!(bytes.len(), length as usize);
            prop_assert!(values.matches(key, version, &bytes));
            let expected = (length as usize >= HEADER_BYTES).then_some((key, version));
            prop_assert_eq!(values.read_back(&bytes), expected);
        }

        #[test]
        fn any_flipped_bit_is_noticed(seed: u64, key: u32, version: u32, length in 1u32..300, at: usize, bit in 0u32..8) {
            let values = Values::new(seed, length);
            let mut bytes = value(&values, key, version);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(!values.matches(key, version, &bytes));
            prop_assert_ne!(values.read_back(&bytes), Some((key, version)));
        }

        #[test]
        fn another_length_is_noticed(seed: u64, key: u32, version: u32, length in 1u32..300) {
            let values = Values::new(seed, length);
            let mut bytes = value(&values, key, version);
            bytes.push(0);
            prop_assert!(!values.matches(key, version, &bytes));
            prop_assert_eq!(values.read_back(&bytes), None);
            bytes.truncate(length as usize - 1);
            prop_assert!(!values.matches(key, version, &bytes));
            prop_assert_eq!(values.read_back(&bytes), None);
        }

        #[test]
        fn nothing_from_outside_makes_it_stumble(seed: u64, length in 1u32..64, found: Vec<u8>) {
            let values = Values::new(seed, length);
            values.matches(1, 1, &found);
            values.read_back(&found);
            prop_assert!(!values.describe(&found).contains('\n'));
        }
    }

    #[test]
    fn versions_keys_and_seeds_differ() {
        let values = Values::new(7, 100);
        let first = value(&values, 3, 1);
        assert!(!values.matches(3, 2, &first));
        assert!(!values.matches(4, 1, &first));
        assert!(!Values::new(8, 100).matches(3, 1, &first));
        assert_eq!(Values::new(8, 100).read_back(&first), None);
    }

    #[test]
    fn a_torn_value_is_noticed() {
        let values = Values::new(7, 100);
        let (old, new) = (value(&values, 3, 1), value(&values, 3, 2));
        for cut in 1..99 {
            let torn = [&new[..cut], &old[cut..]].concat();
            assert!(torn == old || torn == new || values.read_back(&torn).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn descriptions_help() {
        let values = Values::new(7, 100);
        assert_eq!(values.describe(&value(&values, 3, 9)), "version 9 of key 3");
        assert_eq!(values.describe(b"no\r\n"), "4 bytes that were never written, \"no\\r\\n\"");
    }
}
