//! Reads a write-ahead log as SQLite does: up to the last commit whose chain of checksums holds.
//!
//! ```text
//! header, 32 bytes, big-endian            frame, 24 bytes and a page
//!  0  377f0682 (little-endian checksums)   0  page number, never 0
//!     or …83 (big-endian)                  4  database size in pages where the frame ends a transaction, else 0
//!  4  3007000                              8  salts 1 and 2, those of the header
//!  8  page size                           16  checksums 1 and 2
//! 12  checkpoint sequence                 24  the page
//! 16  salts 1 and 2
//! 24  checksums 1 and 2 of bytes 0..24
//! ```
//!
//! Checksums are chained: a frame's is over its first 8 bytes and its page, and begins with that of the frame before, the
//! first one's with the header's. A restart writes over the file from its start and does not shorten it: frames with
//! other salts follow the end. What is not committed may be written over in place; it is never looked at.
//!
//! Pure: bytes come through [`ReadAt`].

use std::io;

/// Bytes before the first frame.
pub const WAL_HEADER_SIZE: u64 = 32;
/// Bytes of a frame before its page.
pub const FRAME_HEADER_SIZE: u64 = 24;
/// Bytes that one read asks for at most.
const READ_BYTES: usize = 256 * 1024;

/// Bytes at an offset; a file, or what stands in for one.
pub trait ReadAt {
    /// Fills `buffer` from `offset` as far as there are bytes, and says how many.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

impl ReadAt for std::fs::File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match std::os::unix::fs::FileExt::read_at(self, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// Whether a WAL has a frame of these salts and this checksum in that place.
pub fn has_frame<R: ReadAt + ?Sized>(
    wal: &R,
    frame: u32,
    page_size: u32,
    salts: [u32; 2],
    checksum: Checksum,
) -> io::Result<bool> {
    let mut header = [0; FRAME_HEADER_SIZE as usize];
    let before = u64::from(frame.saturating_sub(1)) * (FRAME_HEADER_SIZE + u64::from(page_size));
    let length = wal.read_at(WAL_HEADER_SIZE + before, &mut header)?;
    let found = [8, 12, 16, 20].map(|at| word(&header, at));
    Ok(length == header.len() && found == [salts[0], salts[1], checksum[0], checksum[1]])
}

/// Two running sums over pairs of words.
pub type Checksum = [u32; 2];

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// SQLite's checksum of `bytes`, whose length is a multiple of 8, begun with `start`.
pub fn checksum(big_endian: bool, start: Checksum, bytes: &[u8]) -> Checksum {
    debug_assert_eq!(bytes.len() % 8, 0);
    let [mut first, mut second] = start;
    for pair in bytes.as_chunks::<8>().0 {
        let [a, b, c, d, e, f, g, h] = *pair;
        let words = if big_endian {
            [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
        } else {
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
        };
        first = first.wrapping_add(words[0]).wrapping_add(second);
        second = second.wrapping_add(words[1]).wrapping_add(first);
    }
    [first, second]
}

/// A WAL's header whose checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalHeader {
    /// Byte order of the words that checksums are over.
    pub big_endian: bool,
    /// Bytes of a page: 512 to 65,536, a power of two.
    pub page_size: u32,
    /// Restarts since the file was made.
    pub sequence: u32,
    /// Grows by one at each restart.
    pub salt1: u32,
    /// Random at each restart.
    pub salt2: u32,
    /// What the first frame's checksum begins with.
    pub checksum: Checksum,
}

impl WalHeader {
    /// `None` where SQLite would take the WAL for an empty one.
    pub fn decode(bytes: &[u8; 32]) -> Option<WalHeader> {
        let big_endian = match word(bytes, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            _ => return None,
        };
        let page_size = word(bytes, 8);
        let checksum = checksum(big_endian, [0, 0], &bytes[..24]);
        let valid = word(bytes, 4) == 3_007_000
            && page_size.is_power_of_two()
            && (512..=65_536).contains(&page_size)
            && checksum == [word(bytes, 24), word(bytes, 28)];
        valid.then(|| WalHeader {
            big_endian,
            page_size,
            sequence: word(bytes, 12),
            salt1: word(bytes, 16),
            salt2: word(bytes, 20),
            checksum,
        })
    }

    /// Reads the header of `wal`.
    pub fn read<R: ReadAt + ?Sized>(wal: &R) -> io::Result<Option<WalHeader>> {
        let mut bytes = [0; 32];
        let length = wal.read_at(0, &mut bytes)?;
        Ok(if length == bytes.len() { WalHeader::decode(&bytes) } else { None })
    }

    /// Both salts: they name a generation of the WAL.
    pub fn salts(&self) -> [u32; 2] {
        [self.salt1, self.salt2]
    }

    /// Bytes of a frame with its page.
    pub fn frame_size(&self) -> u64 {
        FRAME_HEADER_SIZE + u64::from(self.page_size)
    }

    /// Where frame `frame` (from 1, as in SQLite) begins.
    pub fn frame_offset(&self, frame: u32) -> u64 {
        debug_assert!(frame >= 1);
        WAL_HEADER_SIZE + u64::from(frame - 1) * self.frame_size()
    }
}

/// The end of a committed transaction within a WAL: where reading goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalPosition {
    /// The WAL's header.
    pub header: WalHeader,
    /// Frames up to here; the last one ends a transaction. Zero: before the first frame.
    pub frames: u32,
    /// Checksum of the last frame, or of the header.
    pub checksum: Checksum,
}

impl WalPosition {
    /// Before the first frame.
    pub fn start(header: WalHeader) -> WalPosition {
        WalPosition { checksum: header.checksum, header, frames: 0 }
    }
}

/// What lies between two positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Every page that changed, ordered by its number, and the last frame that has it. Pages beyond the size are left out.
    pub pages: Vec<(u32, u32)>,
    /// Size of the database in pages after the last commit; zero without a commit.
    pub size: u32,
    /// The smallest size after any of the commits: what lies beyond was cut off for a while.
    pub smallest: u32,
    /// Transactions.
    pub commits: u32,
    /// Frames that they take up.
    pub frames: u32,
    /// After the last commit.
    pub end: WalPosition,
}

impl Changes {
    /// The last frame that has this page.
    pub fn frame_of(&self, page: u32) -> Option<u32> {
        self.pages.binary_search_by_key(&page, |(page, _)| *page).ok().map(|at| self.pages[at].1)
    }

    /// Whether a database of `before` pages can have become as large as they say: what is made as large as that, of zeros, would take the disk
    /// from everybody.
    pub fn can_follow(&self, before: u32) -> bool {
        u64::from(self.size) <= size_max(before, self.frames, self.end.header.page_size)
    }

    /// What a file of them holds, where the database had `before` pages: every page that changed, or that it grew by, in order, with the last
    /// frame that has it. `None`: SQLite took the page and gave it back within a transaction, and yet the database has it. The lock page is left out.
    pub fn pages_with_growth(&self, before: u32) -> impl Iterator<Item = (u32, Option<u32>)> + '_ {
        let grown_from = before.min(self.smallest).saturating_add(1);
        let lock_page = ltx::lock_page(self.end.header.page_size);
        let changed = self.pages.iter().map(|&(number, frame)| (number, Some(frame)));
        let before_growth = changed.take_while(move |(number, _)| *number < grown_from);
        let growth = (grown_from..=self.size).map(|number| (number, self.frame_of(number)));
        before_growth.chain(growth).filter(move |(number, _)| *number != lock_page)
    }
}

/// The most pages that a database of `before` pages can have after so many more frames. A page that it grows by is in a frame, or was taken and
/// given back within a transaction: then a page that is in a frame names it as free, and has room for the names of a quarter of its bytes. The lock
/// page is in none.
pub fn size_max(before: u32, frames: u32, page_size: u32) -> u64 {
    u64::from(before) + u64::from(frames) * u64::from(page_size / 4) + 1
}

/// Reads the page in a frame. False: the WAL is shorter than that.
pub fn read_frame<R: ReadAt + ?Sized>(wal: &R, header: &WalHeader, frame: u32, page: &mut [u8]) -> io::Result<bool> {
    let length = wal.read_at(header.frame_offset(frame) + FRAME_HEADER_SIZE, page)?;
    Ok(length == page.len())
}

/// Of each page the last frame alone; `pages` is ordered afterwards.
fn keep_last(pages: &mut Vec<(u32, u32)>) {
    pages.sort_unstable_by_key(|&(page, frame)| (page, std::cmp::Reverse(frame)));
    pages.dedup_by_key(|(page, _)| *page);
}

/// Entries that are not worth being looked through for pages that come again.
const FEW_PAGES: usize = 8192;

/// Reads `wal` from `from` to the last valid commit, but not beyond frame `limit`.
///
/// Memory: a buffer of 256 KiB at most, and 8 bytes for each page that changed, twice as many for a while, and for each frame of the transaction that
/// is being read. Frames that are being written while this reads do not pass their checksum, and end the reading.
///
/// # Errors
/// Only those of `wal`. Damage is not an error: it ends the log, as it does for SQLite.
pub fn read_changes<R: ReadAt + ?Sized>(wal: &R, from: WalPosition, limit: Option<u32>) -> io::Result<Changes> {
    let header = from.header;
    let frame_size = header.frame_size() as usize;
    let mut changes = Changes { pages: Vec::new(), size: 0, smallest: u32::MAX, commits: 0, frames: 0, end: from };
    // What is committed comes first.
    let (mut pages, mut committed): (Vec<(u32, u32)>, usize) = (Vec::new(), 0);
    let mut many = FEW_PAGES;
    let mut chain = from.checksum;
    let mut frame = from.frames;
    let mut buffer = Vec::new();
    'reading: loop {
        let left = limit.map_or(u32::MAX, |limit| limit.saturating_sub(frame));
        let frames = (READ_BYTES / frame_size).clamp(1, 64).min(left as usize);
        let Some(first) = frame.checked_add(1).filter(|_| frames > 0) else { break };
        buffer.resize(frames * frame_size, 0);
        let length = wal.read_at(header.frame_offset(first), &mut buffer)?;
        for bytes in buffer[..length].chunks_exact(frame_size) {
            let (page, size) = (word(bytes, 0), word(bytes, 4));
            if page == 0 || [word(bytes, 8), word(bytes, 12)] != header.salts() {
                break 'reading;
            }
            chain = checksum(header.big_endian, chain, &bytes[..8]);
            chain = checksum(header.big_endian, chain, &bytes[FRAME_HEADER_SIZE as usize..]);
            if chain != [word(bytes, 16), word(bytes, 20)] {
                break 'reading;
            }
            frame += 1;
            pages.push((page, frame));
            if size != 0 {
                if pages.len() >= many {
                    keep_last(&mut pages);
                    many = FEW_PAGES.max(2 * pages.len());
                }
                committed = pages.len();
                changes.size = size;
                changes.smallest = changes.smallest.min(size);
                changes.commits = changes.commits.saturating_add(1);
                changes.frames = frame - from.frames;
                changes.end = WalPosition { header, frames: frame, checksum: chain };
            }
        }
        if length < buffer.len() {
            break;
        }
    }
    pages.truncate(committed);
    keep_last(&mut pages);
    // A shrunken database ends at its size, even where earlier transactions wrote beyond.
    pages.truncate(pages.partition_point(|(page, _)| *page <= changes.size));
    changes.pages = pages;
    Ok(changes)
}
