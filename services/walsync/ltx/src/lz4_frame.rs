//! Reads an LZ4 frame of any length, as Litestream 0.3 wrote all of its files. Every checksum is compared, that of the content at the end.

use crate::lz4;
use std::hash::Hasher as _;
use std::io::{self, ErrorKind, Read};
use twox_hash::XxHash32;

pub(crate) const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// In the size of a block: it is stored as it is.
pub(crate) const STORED: u32 = 1 << 31;
/// How far a match may reach back, also into the blocks before where they are linked.
const WINDOW: usize = 65_536;

/// What the flags of a frame say.
pub(crate) struct Flags {
    /// A block may refer to those before it.
    is_linked: bool,
    pub(crate) has_block_checksums: bool,
    pub(crate) has_content_size: bool,
    pub(crate) has_content_checksum: bool,
}

impl Flags {
    /// `None`: they are of an unknown version, or tell of a dictionary.
    pub(crate) fn of(flags: u8) -> Option<Self> {
        (flags >> 6 == 1 && flags & 0x03 == 0).then_some(Flags {
            is_linked: flags & 0x20 == 0,
            has_block_checksums: flags & 0x10 != 0,
            has_content_size: flags & 0x08 != 0,
            has_content_checksum: flags & 0x04 != 0,
        })
    }
}

/// What a frame holds. Memory: a block, compressed and not (4 MiB each at most), and what the next one may refer to.
///
/// Damage is an error of [`ErrorKind::InvalidData`]; what was read before it is not to be trusted.
pub struct Lz4Frame<R> {
    reader: R,
    flags: Flags,
    content: Option<XxHash32>,
    block_max: usize,
    block: Vec<u8>,
    /// The window, then the block that is being read.
    output: Vec<u8>,
    read: usize,
    has_ended: bool,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the LZ4 frame is damaged: {what}"))
}

impl<R: Read> Lz4Frame<R> {
    /// Reads what stands before the first block.
    pub fn new(mut reader: R) -> io::Result<Self> {
        let mut head = [0; 6];
        reader.read_exact(&mut head)?;
        let [magic @ .., flag_bits, sizes] = head;
        if magic != MAGIC {
            return Err(damaged("it begins with other bytes"));
        }
        let flags = Flags::of(flag_bits).ok_or_else(|| damaged("it is of an unknown version, or has a dictionary"))?;
        let block_max = match sizes >> 4 & 7 {
            size @ 4..=7 => 1 << (8 + 2 * size),
            _ => return Err(damaged("its blocks have an unknown size")),
        };
        let mut descriptor = vec![flag_bits, sizes];
        if flags.has_content_size {
            let mut size = [0; 8];
            reader.read_exact(&mut size)?;
            descriptor.extend(size);
        }
        let mut checksum = [0];
        reader.read_exact(&mut checksum)?;
        if (XxHash32::oneshot(0, &descriptor) >> 8) as u8 != checksum[0] {
            return Err(damaged("the checksum of its header does not hold"));
        }
        Ok(Lz4Frame {
            reader,
            content: flags.has_content_checksum.then(|| XxHash32::with_seed(0)),
            flags,
            block_max,
            block: Vec::new(),
            output: Vec::new(),
            read: 0,
            has_ended: false,
        })
    }

    fn word(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.reader.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Makes the next block what is read; at the end nothing.
    fn next_block(&mut self) -> io::Result<()> {
        let keep = if self.flags.is_linked { self.output.len().min(WINDOW) } else { 0 };
        self.output.drain(..self.output.len() - keep);
        self.read = keep;
        let size = self.word()?;
        if size == 0 {
            self.has_ended = true;
            if let Some(content) = self.content.take()
                && content.finish() != u64::from(self.word()?)
            {
                return Err(damaged("the checksum of its content does not hold"));
            }
            return match self.reader.read(&mut [0])? {
                0 => Ok(()),
                _ => Err(damaged("bytes follow its end")),
            };
        }
        let length = (size & !STORED) as usize;
        if length > self.block_max {
            return Err(damaged("a block is larger than it may be"));
        }
        self.block.resize(length, 0);
        self.reader.read_exact(&mut self.block)?;
        if self.flags.has_block_checksums && XxHash32::oneshot(0, &self.block) != self.word()? {
            return Err(damaged("the checksum of a block does not hold"));
        }
        if size & STORED != 0 {
            self.output.extend_from_slice(&self.block);
        } else {
            self.output.resize(keep + self.block_max, 0);
            let end = lz4::decompress(&self.block, &mut self.output, keep);
            let end = end.ok_or_else(|| damaged("a block does not decompress"))?;
            self.output.truncate(end);
        }
        if let Some(content) = &mut self.content {
            content.write(&self.output[keep..]);
        }
        Ok(())
    }
}

impl<R: Read> Read for Lz4Frame<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A block may be empty.
        while self.read == self.output.len() && !self.has_ended {
            self.next_block()?;
        }
        let count = buffer.len().min(self.output.len() - self.read);
        buffer[..count].copy_from_slice(&self.output[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Litestream 0.3.13 wrote it: 36 bytes of a WAL's header, which do not compress, and a block that does.
    fn frame(flags: u8, blocks: &[&[u8]]) -> Vec<u8> {
        let mut frame = [&MAGIC[..], &[flags, 0x40]].concat();
        frame.push((XxHash32::oneshot(0, &[flags, 0x40]) >> 8) as u8);
        let mut window = Vec::new();
        for block in blocks {
            let compressed = match flags & 0x20 == 0 && !window.is_empty() {
                true => lz4_flex::block::compress_with_dict(block, &window),
                false => lz4_flex::block::compress(block),
            };
            let stored = compressed.len() >= block.len();
            let data = if stored { block.to_vec() } else { compressed };
            frame.extend((data.len() as u32 | if stored { STORED } else { 0 }).to_le_bytes());
            frame.extend(&data);
            if flags & 0x10 != 0 {
                frame.extend(XxHash32::oneshot(0, &data).to_le_bytes());
            }
            window.extend_from_slice(block);
        }
        frame.extend([0; 4]);
        if flags & 0x04 != 0 {
            frame.extend(XxHash32::oneshot(0, &window).to_le_bytes());
        }
        frame
    }

    fn read(frame: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Lz4Frame::new(frame)?.read_to_end(&mut content).map(|_| content)
    }

    fn blocks() -> [Vec<u8>; 4] {
        let noise = |seed: u32| (0..40_000u32).map(move |at| (at.wrapping_mul(seed) >> 11) as u8);
        [vec![7; 65_536], noise(0x9e37_79b9).collect(), vec![], noise(0x9e37_79b9).chain([1, 2, 3]).collect()]
    }

    #[test]
    fn frames_of_every_kind_are_read_to_their_end() {
        let blocks = blocks();
        let all: Vec<&[u8]> = blocks.iter().filter(|block| !block.is_empty()).map(Vec::as_slice).collect();
        // Linked or not, with checksums of blocks, of the content, of neither.
        for flags in [0x64, 0x60, 0x44, 0x40, 0x74, 0x54, 0x50] {
            assert!(read(&frame(flags, &all)).unwrap() == all.concat(), "{flags:x}");
        }
        assert_eq!(read(&frame(0x64, &[])).unwrap(), b"");
    }

    #[test]
    fn no_changed_byte_of_a_frame_goes_unnoticed() {
        let block = [&[9; 100][..], b"not the same again"].concat();
        let whole = frame(0x64, &[&block, b"and more"]);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut frame = whole.clone();
                frame[at] ^= 1 << bit;
                // How it is compressed may change while what it holds does not.
                if let Ok(content) = read(&frame) {
                    assert!(content == [&block[..], b"and more"].concat(), "byte {at}, bit {bit}");
                }
            }
            assert!(read(&whole[..at]).is_err(), "cut to {at}");
        }
        assert!(read(&[&whole[..], b"x"].concat()).is_err());
    }
}
