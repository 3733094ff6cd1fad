//! Writes a file, page by page.

use crate::checksum::FileChecksum;
use crate::header::{Header, lock_page};
use crate::page::{PAGE_HEADER_SIZE, compress};
use crate::{Error, HEADER_SIZE};
use std::io::Write;

/// Writes one file: [`Encoder::new`] the header, [`Encoder::page`] for every page in ascending order, [`Encoder::finish`].
///
/// A snapshot must hold every page but the lock page. Memory: a page twice, and about 10 bytes of index a page.
pub struct Encoder<W> {
    writer: W,
    header: Header,
    checksum: FileChecksum,
    offset: u64,
    previous: u32,
    index: Vec<u8>,
    buffer: Vec<u8>,
}

pub(crate) fn put_uvarint(output: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

impl<W: Write> Encoder<W> {
    /// Writes the header, which must be valid and without checksums of the database.
    pub fn new(mut writer: W, header: Header) -> Result<Self, Error> {
        header.validate()?;
        if !header.has_no_checksum() {
            let remedy = "lacks 0x2: this encoder does not compute checksums of the database";
            return Err(Error::Header { field: "flags", value: header.flags.into(), remedy });
        }
        let bytes = header.encode();
        let mut checksum = FileChecksum::new();
        checksum.update(&bytes);
        writer.write_all(&bytes).map_err(Error::Write)?;
        let (offset, index, buffer) = (HEADER_SIZE as u64, Vec::new(), Vec::new());
        Ok(Encoder { writer, header, checksum, offset, previous: 0, index, buffer })
    }

    /// The header as it was given.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of the next page in a snapshot.
    fn next_of_snapshot(&self) -> u32 {
        let next = self.previous + 1;
        if next == lock_page(self.header.page_size) { next + 1 } else { next }
    }

    /// Writes one page: `page` has the length of the header's page size.
    pub fn page(&mut self, number: u32, page: &[u8]) -> Result<(), Error> {
        let refuse = |what| Err(Error::Page { number, what });
        if page.len() != self.header.page_size as usize {
            return refuse("its length is not the page size of the header");
        }
        if number > self.header.commit {
            return refuse("its number is greater than the database's size in pages");
        }
        if number == lock_page(self.header.page_size) {
            return refuse("the lock page is never stored");
        }
        if number <= self.previous {
            return refuse("pages must come in ascending order, from 1");
        }
        if self.header.is_snapshot() && number != self.next_of_snapshot() {
            return refuse("a snapshot must hold every page");
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&number.to_be_bytes());
        self.buffer.extend_from_slice(&0u16.to_be_bytes());
        self.checksum.update(&self.buffer);
        self.checksum.update(page);
        compress(page, &mut self.buffer);
        self.writer.write_all(&self.buffer).map_err(Error::Write)?;
        put_uvarint(&mut self.index, number.into());
        put_uvarint(&mut self.index, self.offset);
        put_uvarint(&mut self.index, self.buffer.len() as u64);
        self.offset += self.buffer.len() as u64;
        self.previous = number;
        Ok(())
    }

    /// Writes what ends the file; gives the writer back, and the file's checksum.
    pub fn finish(mut self) -> Result<(W, u64), Error> {
        if self.header.is_snapshot() && self.next_of_snapshot() <= self.header.commit {
            let number = self.next_of_snapshot();
            return Err(Error::Page { number, what: "the snapshot ends before it" });
        }
        put_uvarint(&mut self.index, 0);
        let mut end = vec![0; PAGE_HEADER_SIZE];
        end.append(&mut self.index);
        end.extend_from_slice(&((end.len() - PAGE_HEADER_SIZE) as u64).to_be_bytes());
        // The checksum of the database, which is left out.
        end.extend_from_slice(&0u64.to_be_bytes());
        self.checksum.update(&end);
        let checksum = self.checksum.finish();
        end.extend_from_slice(&checksum.to_be_bytes());
        self.writer.write_all(&end).map_err(Error::Write)?;
        Ok((self.writer, checksum))
    }
}
