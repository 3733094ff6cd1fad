//! How a page is stored: compressed with LZ4, as a frame (flag 0) or as a block behind its size (flag 1).
//!
//! Every Litestream since 0.5.0 reads frames, only those since 0.5.16 read blocks: this crate writes frames. A frame is
//! written and read by hand, because a general decoder would read past its end, and needs buffers of up to 4 MiB.

use crate::lz4_frame::{Flags, MAGIC as FRAME_MAGIC, STORED};
use crate::{Error, lz4};
use std::io::Read;

/// Page number 4, flags 2.
pub const PAGE_HEADER_SIZE: usize = 6;
/// Flag: a compressed size follows, and the data are an LZ4 block.
pub const FLAG_BLOCK: u16 = 1;

/// Version 1, independent blocks, a checksum of the content; blocks of at most 64 KiB; the header's own checksum byte.
/// Litestream counts on the 8 bytes of end mark and checksum: it refuses a frame without the checksum.
const FRAME_DESCRIPTOR: [u8; 3] = [0x64, 0x40, 0xa7];

/// Appends the frame of `page` to `output`.
pub fn compress(page: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&FRAME_MAGIC);
    output.extend_from_slice(&FRAME_DESCRIPTOR);
    let size_at = output.len();
    let data_at = size_at + 4;
    output.resize(data_at + lz4_flex::block::get_maximum_output_size(page.len()), 0);
    let size = match lz4_flex::block::compress_into(page, &mut output[data_at..]) {
        Ok(size) if size < page.len() => {
            output.truncate(data_at + size);
            size as u32
        }
        _ => {
            output.truncate(data_at);
            output.extend_from_slice(page);
            page.len() as u32 | STORED
        }
    };
    output[size_at..data_at].copy_from_slice(&size.to_le_bytes());
    output.extend_from_slice(&[0; 4]);
    output.extend_from_slice(&twox_hash::XxHash32::oneshot(0, page).to_le_bytes());
}

/// Reads a compressed page; counts what it reads. `scratch` is its to use.
pub struct Decompressor<'a, R> {
    pub reader: &'a mut R,
    pub number: u32,
    pub scratch: &'a mut Vec<u8>,
    pub bytes_read: u64,
}

impl<R: Read> Decompressor<'_, R> {
    fn damaged<T>(&self, what: &'static str) -> Result<T, Error> {
        Err(Error::Compression { number: self.number, what })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(Error::Read)?;
        self.bytes_read += N as u64;
        Ok(bytes)
    }

    /// Reads `size` bytes of a block that decompresses into a part of `page`, whose length it returns.
    fn data(&mut self, size: usize, stored: bool, page: &mut [u8]) -> Result<usize, Error> {
        let limit = if stored { page.len() } else { lz4_flex::block::get_maximum_output_size(65_536) };
        if size > limit {
            return self.damaged("a block is larger than a page can be");
        }
        self.scratch.resize(size, 0);
        self.reader.read_exact(self.scratch).map_err(Error::Read)?;
        self.bytes_read += size as u64;
        if stored {
            page[..size].copy_from_slice(self.scratch);
            return Ok(size);
        }
        match lz4::decompress(self.scratch, page, 0) {
            Some(length) => Ok(length),
            None => self.damaged("a block does not decompress to a page"),
        }
    }

    /// A block of `size` bytes.
    pub fn block(&mut self, size: u32, page: &mut [u8]) -> Result<(), Error> {
        match self.data(size as usize, false, page)? {
            length if length == page.len() => Ok(()),
            _ => self.damaged("a block is shorter than a page"),
        }
    }

    /// A frame as any LZ4 library writes it. Its checksums are passed over: the file has one that covers them.
    pub fn frame(&mut self, page: &mut [u8]) -> Result<(), Error> {
        if self.bytes::<4>()? != FRAME_MAGIC {
            return self.damaged("no LZ4 frame begins here");
        }
        let [flags, _sizes] = self.bytes::<2>()?;
        let Some(flags) = Flags::of(flags) else {
            return self.damaged("a frame of an unknown version, or with a dictionary");
        };
        if flags.has_content_size {
            self.bytes::<8>()?;
        }
        self.bytes::<1>()?;
        let mut filled = 0;
        loop {
            let size = u32::from_le_bytes(self.bytes()?);
            if size == 0 {
                break;
            }
            // Blocks hold at least 64 KiB where they are full, and a page is no larger: what follows one is empty.
            let length = self.data((size & !STORED) as usize, size & STORED != 0, &mut page[filled..])?;
            if length == 0 {
                return self.damaged("an empty block");
            }
            filled += length;
            if flags.has_block_checksums {
                self.bytes::<4>()?;
            }
        }
        if flags.has_content_checksum {
            self.bytes::<4>()?;
        }
        if filled == page.len() { Ok(()) } else { self.damaged("a frame is shorter than a page") }
    }
}
