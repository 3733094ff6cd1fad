//! LZF, the compression of strings in RDB files. (Source: the format as liblzf's own notes tell it.)
//!
//! | first byte | means |
//! | --- | --- |
//! | `000LLLLL` | L + 1 bytes follow as they are |
//! | `LLLooooo oooooooo` | L + 2 bytes from o + 1 bytes before; L is 1 to 6 |
//! | `111ooooo LLLLLLLL oooooooo` | L + 9 bytes from o + 1 bytes before |

const TABLE_BITS: u32 = 16;
const LITERALS_MAX: usize = 32;
const OFFSET_MAX: usize = 1 << 13;
const LENGTH_MAX: usize = 264;

fn slot(three: &[u8]) -> usize {
    let word = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    ((word >> (24 - TABLE_BITS)).wrapping_sub(word.wrapping_mul(5)) & ((1 << TABLE_BITS) - 1)) as usize
}

fn push_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(LITERALS_MAX) {
        out.push(piece.len() as u8 - 1);
        out.extend_from_slice(piece);
    }
}

/// Bytes that are at least four fewer; nothing if that cannot be had.
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let most = bytes.len().checked_sub(4)?;
    // Positions are kept plus one: zero is none.
    let mut table = vec![0u32; 1 << TABLE_BITS];
    let (mut out, mut at, mut literals) = (Vec::with_capacity(most), 0, 0);
    while at + 2 < bytes.len() {
        let here = slot(&bytes[at..]);
        let before = std::mem::replace(&mut table[here], at as u32 + 1).checked_sub(1);
        let matching = before.map(|before| before as usize).filter(|&before| {
            before > 0 && at - before <= OFFSET_MAX && bytes[before..before + 3] == bytes[at..at + 3]
        });
        let Some(before) = matching else {
            at += 1;
            continue;
        };
        let limit = (bytes.len() - at).min(LENGTH_MAX);
        let length = (3..limit).find(|&length| bytes[before + length] != bytes[at + length]).unwrap_or(limit);
        push_literals(&mut out, &bytes[literals..at]);
        let (offset, code) = (at - before - 1, length - 2);
        if code < 7 {
            out.push((offset >> 8) as u8 | (code as u8) << 5);
        } else {
            out.push((offset >> 8) as u8 | 7 << 5);
            out.push((code - 7) as u8);
        }
        out.push(offset as u8);
        if out.len() > most {
            return None;
        }
        at += length;
        literals = at;
        for place in at - 2..at {
            if place + 2 < bytes.len() {
                table[slot(&bytes[place..])] = place as u32 + 1;
            }
        }
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
