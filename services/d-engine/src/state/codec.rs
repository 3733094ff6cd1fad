//! Integers are little-endian; byte strings have their length (4 bytes) in front.

use bytes::Bytes;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is malformed")]
pub struct Malformed(pub &'static str);

/// Takes fields off bytes. What it gives shares their memory.
pub(super) struct Reader {
    bytes: Bytes,
    /// Where the next field begins.
    at: usize,
    what: &'static str,
}

impl Reader {
    pub(super) fn new(bytes: Bytes, what: &'static str) -> Self {
        Self { bytes, at: 0, what }
    }

    pub(super) fn fail<T>(&self) -> Result<T, Malformed> {
        Err(Malformed(self.what))
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let array = self.bytes[self.at..].first_chunk::<N>().copied().ok_or(Malformed(self.what))?;
        self.at += N;
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.fail(),
        }
    }

    pub(super) fn small(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Malformed> {
        let length = self.small()? as usize;
        if self.left() < length {
            return self.fail();
        }
        self.at += length;
        Ok(self.bytes.slice(self.at - length..self.at))
    }

    /// So many items; each takes at least a byte, so that a number that is made up costs nothing.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.small()? as usize;
        if count > self.left() {
            return self.fail();
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// A string that stands at the end if it is not empty.
    pub(super) fn last_string(&mut self) -> Result<Bytes, Malformed> {
        if self.left() == 0 { Ok(Bytes::new()) } else { self.string() }
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.left() == 0 { Ok(()) } else { self.fail() }
    }
}

/// A number of four bytes.
pub(super) fn put_small(out: &mut Vec<u8>, number: usize) {
    // Lengths are bounded by the largest command, which is far below four gibibytes.
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_small(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_list<T>(out: &mut Vec<u8>, items: &[T], mut item: impl FnMut(&mut Vec<u8>, &T)) {
    put_small(out, items.len());
    for each in items {
        item(out, each);
    }
}
