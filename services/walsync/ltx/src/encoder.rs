//! Writes a file, page by page.

use crate::checksum::FileChecksum;
use crate::header::{Header, lock_page};
use crate::page::{PAGE_HEADER_SIZE, compress};
use crate::{Error, HEADER_SIZE};
use std::io::Write;

/// Writes one file: [`Encoder::new`] the header, [`Encoder::page`] for every page in ascending order, [`Encoder::finish`].
///
/// A snapshot must hold every page but the lock page. Memory: a page twice, and about 3 bytes a page for the index.
pub struct Encoder<W> {
    writer: W,
    header: Header,
    checksum: FileChecksum,
    offset: u64,
    previous: u32,
    /// Of each page how far its number is from the one before, and how long its data are: where they lie follows from that.
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

/// The next number of what [`put_uvarint`] wrote; zero at the end.
fn take_uvarint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Bytes of the index that are written at once, or a few more.
const INDEX_BYTES: usize = 4096;

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
        put_uvarint(&mut self.index, (number - self.previous).into());
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
        let mut end = vec![0; PAGE_HEADER_SIZE];
        let (mut number, mut offset, mut length) = (0, HEADER_SIZE as u64, 0);
        let index = std::mem::take(&mut self.index);
        let mut entries = index.as_slice();
        while !entries.is_empty() {
            number += take_uvarint(&mut entries);
            let size = take_uvarint(&mut entries);
            let before = end.len();
            [number, offset, size].into_iter().for_each(|value| put_uvarint(&mut end, value));
            length += (end.len() - before) as u64;
            offset += size;
            if end.len() >= INDEX_BYTES {
                self.checksum.update(&end);
                self.writer.write_all(&end).map_err(Error::Write)?;
                end.clear();
            }
        }
        put_uvarint(&mut end, 0);
        end.extend_from_slice(&(length + 1).to_be_bytes());
        // The checksum of the database, which is left out.
        end.extend_from_slice(&0u64.to_be_bytes());
        self.checksum.update(&end);
        let checksum = self.checksum.finish();
        end.extend_from_slice(&checksum.to_be_bytes());
        self.writer.write_all(&end).map_err(Error::Write)?;
        Ok((self.writer, checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_many_pages_takes_little_memory() {
        let header =
            Header { flags: crate::NO_CHECKSUM, page_size: 512, commit: 2_000_000, min_txid: 2, ..Header::default() };
        let mut encoder = Encoder::new(std::io::sink(), Header { max_txid: 2, ..header }).unwrap();
        for number in 1..=100_000 {
            encoder.page(number * 19, &[number as u8; 512]).unwrap();
        }
        assert!(encoder.index.len() <= 300_000, "{}", encoder.index.len());
        encoder.finish().unwrap();
    }
}
