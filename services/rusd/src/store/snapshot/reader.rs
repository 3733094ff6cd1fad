//! Reads bytes that may be anything: nothing is taken before it is there, and what is wrong is told with its place.

/// Bytes that are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct Refused {
    /// Where it went wrong.
    pub offset: usize,
    /// What is wrong.
    pub what: String,
}

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub fn refuse(&self, what: &str) -> Refused {
        Refused { offset: self.offset, what: what.to_owned() }
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], Refused> {
        let end = self.offset.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.refuse(&format!("it ends before {what} does")))?;
        let taken = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Refused> {
        let taken = self.take(N, what)?;
        taken.first_chunk::<N>().copied().ok_or_else(|| self.refuse(what))
    }

    /// The items of a section.
    pub fn section<T>(&mut self, number: u8, what: &str, item: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, Refused> {
        if self.array::<1>("a section")? != [number] {
            return Err(self.refuse(&format!("section {number} should be here")));
        }
        let count = u64::from_le_bytes(self.array("a section")?);
        // An item takes four bytes at least: a count that cannot be makes no memory be asked for.
        let items_max = (self.bytes.len() - self.offset) / 4;
        let mut items = Vec::with_capacity(usize::try_from(count).unwrap_or(usize::MAX).min(items_max));
        for _ in 0..count {
            let offset = self.offset;
            let len = u32::from_le_bytes(self.array(what)?) as usize;
            let bytes = self.take(len, what)?;
            items.push(item(bytes).ok_or_else(|| Refused { offset, what: format!("this is not {what}") })?);
        }
        Ok(items)
    }

    pub fn end(&self) -> Result<(), Refused> {
        if self.offset == self.bytes.len() { Ok(()) } else { Err(self.refuse("it should end here")) }
    }
}
