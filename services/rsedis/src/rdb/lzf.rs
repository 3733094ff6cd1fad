//! LZF, the compression of strings in RDB files. (Source: the format as liblzf's own notes tell it.)
//!
//! | first byte | means |
//! | --- | --- |
//! | `000LLLLL` | L + 1 bytes follow as they are |
//! | `LLLooooo oooooooo` | L + 2 bytes from o + 1 bytes before; L is 1 to 6 |
//! | `111ooooo LLLLLLLL oooooooo` | L + 9 bytes from o + 1 bytes before |

use std::cell::RefCell;

const TABLE_BITS: u32 = 16;
const LITERALS_MAX: usize = 32;
const OFFSET_MAX: usize = 1 << 13;
const LENGTH_MAX: usize = 264;

fn slot(three: &[u8]) -> usize {
    let word = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    ((word >> (24 - TABLE_BITS)).wrapping_sub(word.wrapping_mul(5)) & ((1 << TABLE_BITS) - 1)) as usize
}

thread_local! {
    static TABLE: RefCell<Table> = const { RefCell::new(Table { places: Vec::new(), base: 0 }) };
}

/// Where three bytes were met last. One for all strings of a thread: to empty it for each took ten times as long as to compress 64 bytes.
struct Table {
    /// Plus `base` and one; what is not above `base` is of an earlier string.
    places: Vec<u32>,
    base: u32,
}

impl Table {
    fn compress(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length < u32::MAX)?;
        if self.places.is_empty() || self.base.checked_add(length).is_none_or(|end| end == u32::MAX) {
            (self.places, self.base) = (vec![0; 1 << TABLE_BITS], 0);
        }
        let small = compress_with(self, bytes);
        self.base += length;
        small
    }

    /// Where these three bytes were met last, and that they are met here.
    fn meet(&mut self, three: &[u8], at: usize) -> Option<usize> {
        let met = std::mem::replace(&mut self.places[slot(three)], self.base + at as u32 + 1);
        met.checked_sub(self.base + 1).map(|before| before as usize)
    }
}

fn push_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(LITERALS_MAX) {
        out.push(piece.len() as u8 - 1);
        out.extend_from_slice(piece);
    }
}

/// Bytes that are at least four fewer; nothing if that cannot be had, or they are 4 GiB and more.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    TABLE.with_borrow_mut(|table| table.compress(bytes))
}

fn compress_with(table: &mut Table, bytes: &[u8]) -> Option<Vec<u8>> {
    let most = bytes.len().checked_sub(4)?;
    let (mut out, mut at, mut literals) = (Vec::with_capacity(most), 0, 0);
    while at + 2 < bytes.len() {
        let matching = table.meet(&bytes[at..], at).filter(|&before| {
            before > 0 && at - before <= OFFSET_MAX && bytes[before..before + 3] == bytes[at..at + 3]
        });
        let Some(before) = matching else {
            at += 1;
            continue;
        };
        // As liblzf does, which leaves the last two bytes alone.
        let limit = (bytes.len() - at - 2).clamp(3, LENGTH_MAX);
        let length = (3..limit).find(|&length| bytes[before + length] != bytes[at + length]).unwrap_or(limit);
        push_literals(&mut out, &bytes[literals..at]);
        // As liblzf does: there must be room for the longest form and a byte besides.
        if out.len() + 4 >= most {
            return None;
        }
        let (offset, code) = (at - before - 1, length - 2);
        if code < 7 {
            out.push((offset >> 8) as u8 | (code as u8) << 5);
        } else {
            out.push((offset >> 8) as u8 | 7 << 5);
            out.push((code - 7) as u8);
        }
        out.push(offset as u8);
        at += length;
        literals = at;
        for place in at - 2..at {
            if place + 2 < bytes.len() {
                table.meet(&bytes[place..], place);
            }
        }
    }
    let waiting = at.min(bytes.len()) - literals;
    let head = if waiting.is_multiple_of(LITERALS_MAX) { 1 } else { 0 };
    if out.len() + waiting + waiting.div_ceil(LITERALS_MAX) + head + 3 > most {
        return None;
    }
    push_literals(&mut out, &bytes[literals..]);
    (out.len() <= most).then_some(out)
}

/// So many bytes; nothing if that is not what comes of it.
pub fn decompress(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    // Not more than what these bytes can become, whatever they say.
    let mut out = Vec::with_capacity(length.min(bytes.len().saturating_mul(LENGTH_MAX)));
    let mut rest = bytes;
    while let [control, tail @ ..] = rest {
        let control = usize::from(*control);
        if control < LITERALS_MAX {
            let (literals, tail) = tail.split_at_checked(control + 1)?;
            out.extend_from_slice(literals);
            rest = tail;
        } else {
            let (more, tail) = match (control >> 5, tail) {
                (7, [more, tail @ ..]) => (usize::from(*more) + 7, tail),
                (7, []) => return None,
                (short, tail) => (short, tail),
            };
            let [low, tail @ ..] = tail else { return None };
            let from = out.len().checked_sub(((control & 31) << 8 | usize::from(*low)) + 1)?;
            for place in from..from + more + 2 {
                out.push(out[place]);
            }
            rest = tail;
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_comes_back(bytes in prop::collection::vec(0u8..4, 0..3000)) {
            if let Some(small) = compress(&bytes) {
                prop_assert!(small.len() + 4 <= bytes.len());
                prop_assert_eq!(decompress(&small, bytes.len()), Some(bytes));
            }
        }

        #[test]
        fn what_came_before_makes_no_difference(bytes in prop::collection::vec(0u8..4, 0..300), base in (u32::MAX - 400)..u32::MAX) {
            let mut fresh = Table { places: vec![0; 1 << TABLE_BITS], base: 0 };
            let expected = compress_with(&mut fresh, &bytes);
            prop_assert_eq!(compress(&bytes), expected.clone());
            // Numbers come to their end, and begin anew.
            let mut full = Table { places: vec![0; 1 << TABLE_BITS], base };
            for _ in 0..4 {
                prop_assert_eq!(full.compress(&bytes), expected.clone());
            }
        }

        #[test]
        fn any_bytes_end_well(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0usize..5000) {
            if let Some(out) = decompress(&bytes, length) {
                prop_assert_eq!(out.len(), length);
            }
        }
    }

    #[test]
    fn repetition_is_small() {
        let bytes = vec![b'x'; 10_000];
        let small = compress(&bytes).unwrap();
        assert!(small.len() < 150, "{}", small.len());
        assert_eq!(decompress(&small, bytes.len()), Some(bytes));
        assert_eq!(compress(b"abcdefgh"), None);
    }
}
