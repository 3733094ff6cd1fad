//! Reads bytes that may be anything, piece by piece: no memory is asked for what is not there, and what is wrong is told with its
//! place.

use std::io::{ErrorKind, Read};

/// Bytes that are no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct Refused {
    /// Where it went wrong.
    pub offset: usize,
    /// What is wrong.
    pub what: String,
}

impl Refused {
    /// What is wrong, and where.
    pub fn at(offset: usize, what: &str) -> Self {
        Self { offset, what: what.to_owned() }
    }
}

/// An item of more bytes is read as far as it is there; others are read at once.
const TRUSTED_BYTES: usize = 1 << 20;

pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    offset: usize,
    /// What was read last; kept for its memory.
    taken: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub fn new(from: &'a mut dyn Read) -> Self {
        Self { from, offset: 0, taken: Vec::new() }
    }

    pub fn refuse(&self, what: &str) -> Refused {
        Refused::at(self.offset, what)
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&[u8], Refused> {
        self.taken.clear();
        let read = if count <= TRUSTED_BYTES {
            self.taken.resize(count, 0);
            self.from.read_exact(&mut self.taken)
        } else {
            let read = (&mut *self.from).take(count as u64).read_to_end(&mut self.taken);
            read.and_then(|read| if read == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) })
        };
        match read {
            Ok(()) => {
                self.offset += count;
                Ok(&self.taken)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.refuse(&format!("it ends before {what} does")))
            }
            Err(error) => Err(self.refuse(&error.to_string())),
        }
    }

    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Refused> {
        let array = self.take(N, what)?.first_chunk::<N>().copied();
        array.ok_or_else(|| self.refuse(what))
    }

    /// Shows the items of a section, one by one, with their places.
    pub fn section(
        &mut self,
        number: u8,
        what: &str,
        mut item: impl FnMut(usize, &[u8]) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        if self.array::<1>("a section")? != [number] {
            return Err(self.refuse(&format!("section {number} should be here")));
        }
        let count = u64::from_le_bytes(self.array("a section")?);
        for _ in 0..count {
            let offset = self.offset;
            let len = u32::from_le_bytes(self.array(what)?) as usize;
            item(offset, self.take(len, what)?)?;
        }
        Ok(())
    }

    /// The items of a section.
    pub fn items<T>(&mut self, number: u8, what: &str, item: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, Refused> {
        let mut items = Vec::new();
        self.section(number, what, |offset, bytes| {
            items.push(item(bytes).ok_or_else(|| Refused::at(offset, &format!("this is not {what}")))?);
            Ok(())
        })?;
        Ok(items)
    }

    pub fn end(&mut self) -> Result<(), Refused> {
        match self.from.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.refuse("it should end here")),
            Err(error) => Err(self.refuse(&error.to_string())),
        }
    }
}
