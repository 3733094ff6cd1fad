//! Integers as bytes and back: little-endian, byte strings behind their length. Decoding never reads beyond what is there and
//! never allocates for more than what is there.

use bytes::{Bytes, BytesMut};

/// What came cannot be what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not {0}")]
pub struct Malformed(pub(crate) &'static str);

/// Appends an integer to `out`.
pub(crate) fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a smaller integer.
pub(crate) fn put_small(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_small(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

/// Appends integers behind their number.
pub(crate) fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    put_small(out, numbers.len() as u32);
    numbers.iter().for_each(|number| put(out, *number));
}

/// What one allocation of [`Packed`] has, if not one of its strings is larger.
const PACKED_BYTES: usize = 16 << 10;

/// Many byte strings, a few kibibytes of them in one allocation: one for each costs more than what is done with them. Who keeps one of
/// them keeps its neighbours: what stays shall be copied.
#[derive(Debug)]
pub(crate) struct Packed {
    room: BytesMut,
    to_come: usize,
}

impl Packed {
    /// For strings that take so many bytes together, about.
    pub(crate) fn of(bytes: usize) -> Self {
        Self { room: BytesMut::new(), to_come: bytes }
    }

    /// A string of two parts.
    pub(crate) fn add(&mut self, head: &[u8], rest: &[u8]) -> Bytes {
        let bytes = head.len() + rest.len();
        if self.room.capacity() < bytes {
            self.room = BytesMut::with_capacity(self.to_come.min(PACKED_BYTES).max(bytes));
        }
        self.to_come = self.to_come.saturating_sub(bytes);
        self.room.extend_from_slice(head);
        self.room.extend_from_slice(rest);
        self.room.split().freeze()
    }
}

/// Reads what the functions above wrote.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// `what` is named in the error.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed(self.what))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed(self.what)),
        }
    }

    pub(crate) fn small(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        self.slice().map(Bytes::copy_from_slice)
    }

    /// As [`Reader::bytes`], not copied.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.small()? as usize;
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Malformed(self.what))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn all(&mut self) -> Result<Vec<u64>, Malformed> {
        let count = self.small()? as usize;
        if count > self.rest.len() / 8 {
            return Err(Malformed(self.what));
        }
        (0..count).map(|_| self.number()).collect()
    }

    /// How many bytes were not read yet.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The bytes that were not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed(self.what)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_strings_are_what_they_were_whatever_was_said_of_their_size() {
        for to_come in [0, 10, PACKED_BYTES, usize::MAX] {
            let mut packed = Packed::of(to_come);
            let large = vec![7; 2 * PACKED_BYTES];
            let added: Vec<Bytes> = (0..100_u8)
                .map(|number| packed.add(&[number], if number == 50 { &large } else { &[1, 2, 3] }))
                .collect();
            for (number, bytes) in (0..100_u8).zip(&added) {
                let rest = if number == 50 { &large[..] } else { &[1, 2, 3] };
                assert_eq!((bytes[0], &bytes[1..]), (number, rest));
            }
        }
    }
}
