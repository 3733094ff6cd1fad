//! Keys and values of a load: the same for the same numbers.

/// Which key has which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Bytes of a key.
    pub bytes: usize,
    /// In order, and not mixed.
    pub is_sequential: bool,
}

impl Keys {
    /// The key with this number. Sequential ones count down from all nines, as those of the report's tool; others are digits that
    /// the number seeds.
    pub fn key(&self, number: u64) -> Vec<u8> {
        let digits = match self.is_sequential {
            true => format!("{:0width$}", nines(self.bytes).saturating_sub(number), width = self.bytes),
            false => {
                let mut digits = String::new();
                let mut state = number;
                while digits.len() < self.bytes {
                    state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
                    digits.push_str(&format!("{state:020}"));
                }
                digits
            }
        };
        digits.as_bytes()[digits.len() - self.bytes..].to_vec()
    }
}

/// 999…: so many digits, as far as 64 bits go.
fn nines(digits: usize) -> u64 {
    10_u64.checked_pow(digits as u32).map_or(u64::MAX, |power| power - 1)
}

/// splitmix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A value of so many bytes, which the key's number is in.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = number.to_string().into_bytes();
    value.resize(bytes, b'v');
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sequential_keys_count_down_from_all_nines() {
        let keys = Keys { bytes: 8, is_sequential: true };
        assert_eq!((keys.key(0), keys.key(1)), (b"99999999".to_vec(), b"99999998".to_vec()));
    }

    #[test]
    fn keys_have_their_size_and_differ() {
        for is_sequential in [true, false] {
            for bytes in [8, 20, 64] {
                let keys = Keys { bytes, is_sequential };
                let all: HashSet<_> = (0..1000).map(|number| keys.key(number)).collect();
                assert_eq!(all.len(), 1000);
                assert!(all.iter().all(|key| key.len() == bytes));
            }
        }
    }

    #[test]
    fn a_value_has_its_size() {
        assert_eq!((value(7, 3), value(1234, 2)), (b"7vv".to_vec(), b"12".to_vec()));
    }
}
