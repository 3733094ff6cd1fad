//! The first 136 bytes of the `-shm` file, which tell what a WAL holds at the cost of one small read.
//!
//! Two copies of 48 bytes, in the byte order of the machine {version @0, unused, change counter @8, flags @12 (bytes: is
//! initialised, big-endian checksums; page size u16), last frame @16, pages @20, checksum of the last frame @24, salts @32,
//! checksum of the header @40}; then frames backfilled @96, five read marks @100, locks, backfill attempted @128.
//! Salts are as in the WAL, byte for byte. A header is trusted where both copies agree and its checksum holds.
//! It is read, never mapped, and never written.

use crate::wal_reader::{Checksum, FRAME_HEADER_SIZE, ReadAt, WalPosition, checksum};
use std::io;

/// Bytes that [`WalIndex::decode`] looks at.
pub const WAL_INDEX_BYTES: usize = 136;
/// A read mark that nobody uses.
pub const UNUSED_MARK: u32 = u32::MAX;

/// SQLite's counter of transactions, which means something within one life of the index alone: whoever opens a database that nobody else has
/// open makes the index anew, and counts from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// As the index had it.
    pub changes: u32,
    /// In this life.
    pub life: u64,
    /// Checksum of the last frame, which stays when the WAL is restarted: a recovery within one life begins the counter anew, and it may
    /// come to the same number behind another frame.
    pub checksum: Checksum,
}

impl Counter {
    /// The same after so many transactions more, which end with a frame of this checksum.
    pub fn after(self, commits: u32, checksum: Checksum) -> Counter {
        Counter { changes: self.changes.wrapping_add(commits), checksum, ..self }
    }
}

/// What the index says of the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalIndex {
    /// Grows by one with each transaction, also over restarts; zero again after a recovery.
    pub changes: u32,
    /// The life of the index in which `changes` was read, for whoever witnesses it ([`crate::pin::Pin::witness`]); 0: nobody does.
    pub life: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Frames up to the last commit.
    pub frames: u32,
    /// Size of the database in pages.
    pub pages: u32,
    /// Checksum of the last frame.
    pub checksum: Checksum,
    /// Salts of the WAL.
    pub salts: [u32; 2],
    /// Frames that are in the database file for certain.
    pub backfilled: u32,
    /// Frames that may be in the database file.
    pub backfill_attempted: u32,
    /// How far readers look; mark 0 reads the database file alone.
    pub read_marks: [u32; 5],
}

impl WalIndex {
    /// Bytes of so many frames.
    pub fn bytes_of(&self, frames: u32) -> u64 {
        u64::from(frames) * (FRAME_HEADER_SIZE + u64::from(self.page_size))
    }

    /// The counter of transactions, where somebody witnesses that nobody begins it anew.
    pub fn counter(&self) -> Option<Counter> {
        (self.life != 0).then_some(Counter { changes: self.changes, life: self.life, checksum: self.checksum })
    }

    /// The counter of transactions, where the index stands exactly at `end`.
    pub fn counter_at(&self, end: &WalPosition) -> Option<Counter> {
        let is_of_it = end.frames == 0 || self.salts == end.header.salts() && self.checksum == end.checksum;
        if self.frames == end.frames && is_of_it { self.counter() } else { None }
    }

    /// What an index tells, where it can be trusted.
    pub fn read<R: ReadAt + ?Sized>(index: &R) -> io::Result<Option<WalIndex>> {
        let mut bytes = [0; WAL_INDEX_BYTES];
        let length = index.read_at(0, &mut bytes)?;
        Ok(if length == bytes.len() { WalIndex::decode(&bytes) } else { None })
    }

    /// `None` where the two copies differ (a writer is at work, or died) or the index is not initialised.
    pub fn decode(bytes: &[u8; WAL_INDEX_BYTES]) -> Option<WalIndex> {
        let native = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let big = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let sums = checksum(cfg!(target_endian = "big"), [0, 0], &bytes[..40]);
        let trusted = bytes[..48] == bytes[48..96]
            && native(0) == 3_007_000
            && bytes[12] == 1
            && sums == [native(40), native(44)];
        trusted.then(|| WalIndex {
            changes: native(8),
            life: 0,
            // 65,536 does not fit, and is 1.
            page_size: match u16::from_ne_bytes([bytes[14], bytes[15]]) {
                1 => 65_536,
                size => size.into(),
            },
            frames: native(16),
            pages: native(20),
            checksum: [native(24), native(28)],
            salts: [big(32), big(36)],
            backfilled: native(96),
            backfill_attempted: native(128),
            read_marks: [100, 104, 108, 112, 116].map(native),
        })
    }
}
