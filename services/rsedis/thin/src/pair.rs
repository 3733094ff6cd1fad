//! A name and what belongs to it, one behind the other in bytes:
//!
//! | bytes | field |
//! | --- | --- |
//! | 1, or 5 | length of the name; 255: the length follows in 4 bytes, little-endian |
//! | | name |
//! | | what belongs to it |
//!
//! The length is also what stands in front of all bytes that a [`Thin`](crate::Thin) owns.

/// In place of a length that takes four bytes more.
const LONG: usize = 255;

/// Bytes of the length in front of so many.
#[inline]
pub(crate) const fn head_bytes(length: usize) -> usize {
    if length < LONG { 1 } else { 5 }
}

/// Gives what stands in front of a name of so many bytes; of a size that is known where it is used.
#[inline]
pub fn with_head<T>(length: usize, put: impl FnOnce(&[u8]) -> T) -> T {
    if length < LONG {
        return put(&[length as u8]);
    }
    let [a, b, c, d] = (length as u32).to_le_bytes();
    put(&[LONG as u8, a, b, c, d])
}

/// Where the name begins and where it ends.
#[inline]
pub fn span(bytes: &[u8]) -> (usize, usize) {
    match usize::from(bytes[0]) {
        LONG => {
            let length = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            (5, 5 + length as usize)
        }
        length => (1, 1 + length),
    }
}

/// The name.
#[inline]
pub fn name(bytes: &[u8]) -> &[u8] {
    let (from, to) = span(bytes);
    &bytes[from..to]
}

/// What belongs to it.
#[inline]
pub fn rest(bytes: &[u8]) -> &[u8] {
    &bytes[span(bytes).1..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_come_back() {
        for length in [0, 1, 254, 255, 256, 70_000] {
            let text = vec![7; length];
            let bytes = with_head(length, |head| [head, &text, b"rest"].concat());
            assert_eq!((name(&bytes), rest(&bytes)), (&text[..], &b"rest"[..]));
            assert_eq!(span(&bytes).0, head_bytes(length));
        }
    }
}
