//! Integers are little-endian; byte strings have their length (4 bytes) in front.

use bytes::Bytes;

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is malformed")]
pub struct Malformed(pub &'static str);

/// Takes fields off bytes. What it gives shares their memory.
pub(super) struct Reader {
    bytes: Bytes,
    what: &'static str,
}

impl Reader {
    pub(super) fn new(bytes: Bytes, what: &'static str) -> Self {
        Self { bytes, what }
    }

    pub(super) fn fail<T>(&self) -> Result<T, Malformed> {
        Err(Malformed(self.what))
    }

    fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        if self.bytes.len() < length { self.fail() } else { Ok(self.bytes.split_to(length)) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.fail(),
        }
    }

    pub(super) fn small(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        bytes.first_chunk().map_or_else(|| self.fail(), |bytes| Ok(u32::from_le_bytes(*bytes)))
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        bytes.first_chunk().map_or_else(|| self.fail(), |bytes| Ok(u64::from_le_bytes(*bytes)))
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Malformed> {
        let length = self.small()?;
        self.take(length as usize)
    }

    /// So many items; each takes at least a byte, so that a number that is made up costs nothing.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.small()? as usize;
        if count > self.bytes.len() {
            return self.fail();
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// A string that stands at the end if it is not empty.
    pub(super) fn last_string(&mut self) -> Result<Bytes, Malformed> {
        if self.bytes.is_empty() { Ok(Bytes::new()) } else { self.string() }
    }

    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { self.fail() }
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
