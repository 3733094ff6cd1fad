//! Packed values of older versions: ziplists and zipmaps. They are only read.

const ZIPLIST_HEADER: usize = 10;
const END: u8 = 0xFF;

/// The elements of a ziplist; nothing if the bytes are none.
///
/// An entry: the length of the one before (1 byte, or 254 and 4 bytes), encoding (`00` 6 bits, `01` 14 bits, `80` 4 bytes of length
/// of a string; `C0` 2, `D0` 4, `E0` 8, `F0` 3, `FE` 1 byte of an integer; `F1` to `FD` 0 to 12), data.
pub(super) fn ziplist(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = bytes.get(ZIPLIST_HEADER..)?;
    let mut found = Vec::new();
    loop {
        match rest {
            [END] => return Some(found),
            [254, tail @ ..] => rest = tail.get(4..)?,
            [_, tail @ ..] => rest = tail,
            [] => return None,
        }
        let (&head, tail) = rest.split_first()?;
        let (length, tail) = match head {
            0x00..=0x3F => (usize::from(head), tail),
            0x40..=0x7F => (usize::from(head & 0x3F) << 8 | usize::from(*tail.first()?), &tail[1..]),
            0x80 => {
                let (length, tail) = tail.split_at_checked(4)?;
                (u32::from_be_bytes(length.try_into().ok()?) as usize, tail)
            }
            _ => {
                let width = match head {
                    0xC0 => 2,
                    0xD0 => 4,
                    0xE0 => 8,
                    0xF0 => 3,
                    0xFE => 1,
                    0xF1..=0xFD => 0,
                    _ => return None,
                };
                let (data, tail) = tail.split_at_checked(width)?;
                let number = match width {
                    0 => i64::from(head & 0x0F) - 1,
                    _ => signed(data),
                };
                found.push(crate::number::integer_text(number));
                rest = tail;
                continue;
            }
        };
        let (text, tail) = tail.split_at_checked(length)?;
        found.push(text.to_vec());
        rest = tail;
    }
}

/// Little-endian, of any width.
fn signed(data: &[u8]) -> i64 {
    let unused = 64 - 8 * data.len() as u32;
    let word = data.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    (word << unused) as i64 >> unused
}

/// Fields and values of a zipmap in turn; nothing if the bytes are none.
///
/// Number of entries (1 byte), then for each: length (1 byte, or 254 and 4 bytes little-endian), field, length, bytes unused behind
/// the value (1 byte), value.
pub(super) fn zipmap(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    fn length(rest: &[u8]) -> Option<(usize, &[u8])> {
        match rest {
            [254, tail @ ..] => {
                let (length, tail) = tail.split_at_checked(4)?;
                Some((u32::from_le_bytes(length.try_into().ok()?) as usize, tail))
            }
            [END, ..] | [] => None,
            [short, tail @ ..] => Some((usize::from(*short), tail)),
        }
    }
    let mut rest = bytes.get(1..)?;
    let mut found = Vec::new();
    while rest != [END] {
        let (field_bytes, tail) = length(rest)?;
        let (field, tail) = tail.split_at_checked(field_bytes)?;
        let (value_bytes, tail) = length(tail)?;
        let (&unused, tail) = tail.split_first()?;
        let (value, tail) = tail.split_at_checked(value_bytes)?;
        found.extend([field.to_vec(), value.to_vec()]);
        rest = tail.get(usize::from(unused)..)?;
    }
    Some(found)
}
