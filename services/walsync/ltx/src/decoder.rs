//! Reads a file, page by page, and checks all of it.

use crate::Error;
use crate::checksum::{CHECKSUM_FLAG, FileChecksum, page_checksum};
use crate::encoder::put_uvarint;
use crate::header::{HEADER_SIZE, Header, lock_page};
use crate::page::{Decompressor, FLAG_BLOCK, PAGE_HEADER_SIZE};
use std::io::Read;

/// The last 16 bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Checksum of the database after the file is applied; zero under [`crate::NO_CHECKSUM`].
    pub post_apply_checksum: u64,
    /// Checksum of the file.
    pub file_checksum: u64,
}

/// Reads one file: [`Decoder::new`] the header, [`Decoder::page`] until it gives `None`, [`Decoder::finish`].
///
/// A file is as good as its checksum, which [`Decoder::finish`] compares: until then its pages are not to be trusted. Memory is that of a page.
pub struct Decoder<R> {
    reader: R,
    header: Header,
    checksum: FileChecksum,
    /// XOR over the pages of a snapshot that has a checksum of the database.
    database_checksum: u64,
    offset: u64,
    previous: u32,
    /// Of what the index must say, given the pages that came; the index itself would grow with the database.
    index: FileChecksum,
    index_length: u64,
    entry: Vec<u8>,
    scratch: Vec<u8>,
    ended: bool,
}

impl<R: Read> Decoder<R> {
    /// Reads the header.
    pub fn new(mut reader: R) -> Result<Self, Error> {
        let mut bytes = [0; HEADER_SIZE];
        reader.read_exact(&mut bytes).map_err(Error::Read)?;
        let header = Header::decode(&bytes)?;
        let mut checksum = FileChecksum::new();
        checksum.update(&bytes);
        Ok(Decoder {
            reader,
            header,
            checksum,
            database_checksum: 0,
            offset: HEADER_SIZE as u64,
            previous: 0,
            index: FileChecksum::new(),
            index_length: 0,
            entry: Vec::new(),
            scratch: Vec::new(),
            ended: false,
        })
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn next_of_snapshot(&self) -> u32 {
        let next = self.previous.saturating_add(1);
        if next == lock_page(self.header.page_size) { next + 1 } else { next }
    }

    /// Reads the next page into `page`, whose length is the header's page size, and gives its number. `None` ends the pages.
    pub fn page(&mut self, page: &mut [u8]) -> Result<Option<u32>, Error> {
        assert_eq!(page.len(), self.header.page_size as usize, "the buffer must have the size of a page");
        if self.ended {
            return Ok(None);
        }
        let mut head = [0; PAGE_HEADER_SIZE];
        self.reader.read_exact(&mut head).map_err(Error::Read)?;
        self.checksum.update(&head);
        let [a, b, c, d, e, f] = head;
        let (number, flags) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        if number == 0 && flags == 0 {
            return self.end_of_pages().map(|()| None);
        }
        self.check_number(number, flags)?;
        let start = self.offset;
        self.offset += PAGE_HEADER_SIZE as u64;
        let mut data = Decompressor { reader: &mut self.reader, number, scratch: &mut self.scratch, bytes_read: 0 };
        if flags & FLAG_BLOCK != 0 {
            let mut size = [0; 4];
            data.reader.read_exact(&mut size).map_err(Error::Read)?;
            self.checksum.update(&size);
            data.bytes_read += 4;
            data.block(u32::from_be_bytes(size), page)?;
        } else {
            data.frame(page)?;
        }
        self.offset += data.bytes_read;
        self.checksum.update(page);
        if !self.header.has_no_checksum() && self.header.is_snapshot() {
            self.database_checksum = CHECKSUM_FLAG | (self.database_checksum ^ page_checksum(number, page));
        }
        self.expect_in_index(&[number.into(), start, self.offset - start]);
        self.previous = number;
        Ok(Some(number))
    }

    fn expect_in_index(&mut self, values: &[u64]) {
        self.entry.clear();
        values.iter().for_each(|value| put_uvarint(&mut self.entry, *value));
        self.index.update(&self.entry);
        self.index_length += self.entry.len() as u64;
    }

    fn check_number(&self, number: u32, flags: u16) -> Result<(), Error> {
        let refuse = |what| Err(Error::Page { number, what });
        if flags & !FLAG_BLOCK != 0 {
            return refuse("its flags are unknown: a newer format");
        }
        if number > self.header.commit {
            return refuse("its number is greater than the database's size in pages");
        }
        if number == lock_page(self.header.page_size) {
            return refuse("the lock page is never stored");
        }
        if number <= self.previous {
            return refuse("it does not come in ascending order");
        }
        if self.header.is_snapshot() && number != self.next_of_snapshot() {
            return refuse("pages before it are missing from the snapshot");
        }
        Ok(())
    }

    fn end_of_pages(&mut self) -> Result<(), Error> {
        if self.header.is_snapshot() && self.next_of_snapshot() <= self.header.commit {
            return Err(Error::Page { number: self.next_of_snapshot(), what: "the snapshot ends before it" });
        }
        self.expect_in_index(&[0]);
        self.ended = true;
        Ok(())
    }

    /// Reads what follows the pages (passing over those that were not read), and compares every checksum.
    pub fn finish(mut self) -> Result<(Header, Trailer), Error> {
        let mut page = vec![0; if self.ended { 0 } else { self.header.page_size as usize }];
        while !self.ended {
            self.page(&mut page)?;
        }
        // The index is compared, not trusted: its length is known before it is read.
        let mut index = FileChecksum::new();
        let mut chunk = [0; 4096];
        let mut left = self.index_length;
        while left > 0 {
            let most = left.min(chunk.len() as u64) as usize;
            self.reader.read_exact(&mut chunk[..most]).map_err(Error::Read)?;
            index.update(&chunk[..most]);
            self.checksum.update(&chunk[..most]);
            left -= most as u64;
        }
        if index.finish() != self.index.finish() {
            return Err(Error::Index("it names other places"));
        }
        let mut end = [0; 24];
        self.reader.read_exact(&mut end).map_err(Error::Read)?;
        let [length, post_apply_checksum, file_checksum] =
            [0, 8, 16].map(|at| u64::from_be_bytes(std::array::from_fn(|byte| end[at + byte])));
        if length != self.index_length {
            return Err(Error::Index("its length is another"));
        }
        self.checksum.update(&end[..16]);
        let actual = self.checksum.finish();
        if actual != file_checksum {
            return Err(Error::Checksum { expected: file_checksum, actual });
        }
        let refuse = |remedy| Err(Error::Header { field: "post-apply checksum", value: post_apply_checksum, remedy });
        if self.header.has_no_checksum() && post_apply_checksum != 0 {
            return refuse("is not 0, though the file has no checksums");
        }
        if !self.header.has_no_checksum() && self.header.is_snapshot() && post_apply_checksum != self.database_checksum
        {
            return refuse("is not that of the pages");
        }
        if self.reader.read(&mut [0]).map_err(Error::Read)? != 0 {
            return Err(Error::TrailingBytes);
        }
        Ok((self.header, Trailer { post_apply_checksum, file_checksum }))
    }
}
