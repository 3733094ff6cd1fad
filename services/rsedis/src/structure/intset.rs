//! A sorted set of integers in one piece of memory, byte for byte the intset of Redis.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | bytes per integer: 2, 4 or 8; little-endian |
//! | 4 | 4 | integers, little-endian |
//! | 8 | | the integers, ascending, little-endian |

use crate::structure::room::{make_room, room_for};

const HEADER: usize = 8;

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intset(Vec<u8>);

impl Default for Intset {
    fn default() -> Self {
        Self(vec![2, 0, 0, 0, 0, 0, 0, 0])
    }
}

fn width_of(number: i64) -> usize {
    if i16::try_from(number).is_ok() {
        2
    } else if i32::try_from(number).is_ok() {
        4
    } else {
        8
    }
}

impl Intset {
    /// Its bytes as Redis has them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Memory, including what is reserved.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn width(&self) -> usize {
        usize::from(self.0[0])
    }

    /// Number of integers.
    pub fn len(&self) -> usize {
        (self.0.len() - HEADER) / self.width()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == HEADER
    }

    /// By its rank, which must be below [`Intset::len`].
    pub fn get(&self, rank: usize) -> i64 {
        let width = self.width();
        let bytes = &self.0[HEADER + rank * width..HEADER + (rank + 1) * width];
        let mut word = [if bytes[width - 1] & 128 != 0 { 0xFF } else { 0 }; 8];
        word[..width].copy_from_slice(bytes);
        i64::from_le_bytes(word)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.len()).map(|rank| self.get(rank))
    }

    fn search(&self, number: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(&number) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Whether it has this one.
    pub fn contains(&self, number: i64) -> bool {
        self.search(number).is_ok()
    }

    /// Adds one; whether it is new.
    pub fn insert(&mut self, number: i64) -> bool {
        let Err(rank) = self.search(number) else { return false };
        if width_of(number) > self.width() {
            self.widen(width_of(number));
        }
        let width = self.width();
        let at = HEADER + rank * width;
        make_room(&mut self.0, width);
        self.0.splice(at..at, number.to_le_bytes()[..width].iter().copied());
        self.write_length();
        true
    }

    /// Removes one; whether it was there.
    pub fn remove(&mut self, number: i64) -> bool {
        let Ok(rank) = self.search(number) else { return false };
        let width = self.width();
        let at = HEADER + rank * width;
        self.0.drain(at..at + width);
        self.write_length();
        true
    }

    fn widen(&mut self, width: usize) {
        let mut wider = Vec::with_capacity(room_for(HEADER + (self.len() + 1) * width));
        wider.extend_from_slice(&[width as u8, 0, 0, 0, 0, 0, 0, 0]);
        for number in self.iter() {
            wider.extend_from_slice(&number.to_le_bytes()[..width]);
        }
        self.0 = wider;
    }

    fn write_length(&mut self) {
        let length = self.len() as u32;
        self.0[4..8].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_sorted_set(actions in prop::collection::vec((any::<bool>(), prop_oneof![-50i64..50, -40_000i64..40_000, any::<i64>()]), 0..300)) {
            let (mut set, mut model) = (Intset::default(), BTreeSet::new());
            for (adds, number) in actions {
                match adds {
                    true => prop_assert_eq!(set.insert(number), model.insert(number)),
                    false => prop_assert_eq!(set.remove(number), model.remove(&number)),
                }
                prop_assert_eq!(set.contains(number), model.contains(&number));
                prop_assert_eq!(set.as_bytes()[4..8].to_vec(), (model.len() as u32).to_le_bytes().to_vec());
            }
            prop_assert!(set.iter().eq(model));
        }
    }

    #[test]
    fn bytes_are_those_of_redis() {
        let mut set = Intset::default();
        for number in [7, -2, 70_000] {
            set.insert(number);
        }
        assert_eq!(set.as_bytes(), [4, 0, 0, 0, 3, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 7, 0, 0, 0, 0x70, 0x11, 1, 0]);
    }
}
