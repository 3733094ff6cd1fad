//! Blocks in files: append-only, checksummed, compressed. Looked up by number in two reads, whatever their count.
//!
//! No threads and no clock here: [`Writer`] gives the store a thread and shares syncs. All access to files goes through
//! [`wal::files::Directory`], so that a test can cut the power at every operation.
//!
//! # On disk
//!
//! One flat directory. `00000000000000000001.blocks` and up are *segments*, sequences of records, each at a multiple of 8; integers
//! are little-endian. A segment is written to until it is full, then never again.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | magic | `BLK1` |
//! | 4 | 4 | head checksum | CRC-32C of: salt (8), segment number (8), offset of the record (8), bytes 8 to 88 |
//! | 8 | 4 | stored checksum | CRC-32C of what is stored |
//! | 12 | 1 | kind | 1 segment head, 2 block, 3 block of an earlier number that was damaged and is written once more, 4 dictionary |
//! | 13 | 1 | encoding | 0 as it is, 1 a zstd frame, 2 offsets of the two copies of a dictionary in this segment (4 bytes each) and a zstd frame that needs it; 3 and up are for frames of several blocks |
//! | 14 | 1 | evidence | 0 dummy proof, 1 signature unchecked, 2 signature valid |
//! | 15 | 1 | digest | 1: what is stored ends with the digest of the block; 0: a release has written it that kept none, or it is no block |
//! | 16 | 8 | batch | offset at which the write that holds this record began |
//! | 24 | 8 | number | of the block, or of the segment; of a dictionary the beginning of its hash |
//! | 32 | 4 | stored length | |
//! | 36 | 4 | plain length | of the `Block` message |
//! | 40 | 48 | root hash | |
//! | 88 | stored length | | |
//! | | 0 to 7 | zeros | up to a multiple of 8 |
//!
//! Behind a block, and counted to what is stored, stands its digest ([`crate::block::Digest`]), which says what the block is byte for byte: 8 bytes that
//! begin a zstd frame to be passed over (so that releases before read the block all the same, unless it is stored as it is), the digest (32), and the
//! CRC-32C of salt, segment number, offset of the record and digest (4). Its own checksum holds where the block before it is damaged. For what takes the
//! record away, or its head, the digest stands a second time: `00000000000000000000.digests` and up have 36 bytes for each of 65,536 block numbers, the
//! digest and the CRC-32C of block number and digest. These files are written and made safe where the index is, and tell as much as its entries of what was
//! safe.
//!
//! The first record is the segment's head: it holds the store's salt (8) and what the first block of the segment continues
//! ([`crate::block::Chain`]), so that a start reads the last segment alone. The head's own checksum has the salt 0. The salt is
//! random: who can choose what is in blocks cannot make bytes that count as a record. `00000000000000000001.head` and up are copies of the
//! heads, each safe before its segment begins. Where an earlier version has left none, the last segment gets one at the next start.
//! When a segment is full or the store is closed, the copy of the head that the next segment would have is written, too: it has the last block's
//! root hash.
//!
//! `00000000000000000000.index` and up have 16 bytes for each of 65,536 block numbers: segment (4), offset (4), length of the record
//! (4), CRC-32C of block number and these (4). They are written behind the sync of the blocks, and are safe before the next segment
//! begins and when the store is closed; for the last segment they are written anew at each start.
//!
//! # What a crash can leave, and what opening makes of it
//!
//! A *batch* is one write followed by one sync. The next is written only when the sync has returned: a record with a valid head tells, by
//! its `batch`, that everything before that offset was once safe. A valid entry of the index tells the same of the block that it names, and
//! so of all of its batch; a valid digest in the second file tells that there was such a block, and not where.
//!
//! - **Killed between write and sync, or power lost**: the first record that is not valid, and of which nothing tells that it was safe, is
//!   the end. What stands behind it is overwritten with zeros, the last batch is written again, and both are synced, before anything is shown
//!   or written. Blocks that are whole behind the cut are set aside first, as `00000000000000000001.blocks.torn-1`, and the log says so:
//!   they are what was never acknowledged, unless index and digests that were not synced were lost together with damage to the same batch.
//! - **Between the creation of a segment and its first sync**: neither its head nor the index tells that anything in it was safe; it is
//!   removed, and what looks like records is set aside as well.
//! - **Not a crash**: a record that is not valid, but was safe. The block is quarantined: it is not served, status tells the gap, and the rest
//!   goes on; also the last block of all, and blocks of which a file that was cut has nothing left. Where the head of its record is whole, its
//!   root hash is still known, and its digest where one of both places is. Fetched again, byte for byte the same, it is appended as a record of its
//!   own kind, to which the index points from then on. Of two records of a block the later one counts; one that was repaired keeps its
//!   number where no whole block stands behind it.
//! - **A head that is not valid** is taken from its copy, or made again of the segment before, and written again. An entry of the index
//!   that is not valid is written again by the first who asks for its block, from the segment that must have it. A store is refused where head
//!   and copy of its only segment are damaged, or all segments are gone of which the index tells.
//!
//! - **Between the removals of old segments** ([`Options::keep_blocks`]): they go one by one, the oldest first. The store begins with
//!   the first segment that is left; an index, digests, a head or what was set aside without its segment is removed with the next one.
//!
//! A failed write or sync ends the store: nothing more is written, and what was not safe is not acknowledged. Reading goes on. So it is from the
//! start on where the disk has no room for what an opening writes: entries of the index are kept in memory then, and what is cut off stays in its place.

mod compress;
mod contexts;
mod dictionary;
mod digests;
mod format;
mod heads;
mod index;
mod mend;
mod open;
mod reader;
mod replay;
mod retention;
mod rows;
mod scan;
mod segments;
mod writer;

pub use compress::{LEVEL, Prepared, StoredAs, UnpackError};
pub use dictionary::{Dictionary, Trainer, Training};
pub use open::Store;
pub use reader::{ReadError, Reader, Stored};
pub use writer::{Appended, Writer};

use std::io;
use std::sync::Arc;

/// Settings of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment that is larger gets no more batches.
    pub segment_bytes: u64,
    /// Number of the first block of a new store.
    pub first_block: u64,
    /// At least so many of the newest blocks are kept, in whole segments; `None`: all.
    pub keep_blocks: Option<u64>,
    /// Random bits for a new store; see the layout above.
    pub salt: u64,
    /// How hard zstd tries with the dictionary that is found.
    pub compression_level: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, first_block: 0, keep_blocks: None, salt: 0, compression_level: LEVEL }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The files cannot be read or prepared.
    #[error("{what}: {source}")]
    Files {
        /// What was tried, with the file's name.
        what: String,
        /// What the file system said.
        source: io::Error,
    },
    /// What was safe on disk has been damaged in a way that leaves no store.
    #[error("{file}: damaged at byte {offset}: {what}; restore this directory from a backup")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

/// The store takes no more blocks, since this failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no more blocks are stored since {what} failed: {source}; correct the cause and restart")]
pub struct AppendError {
    /// What was tried.
    pub what: &'static str,
    /// What the file system said then.
    pub source: Arc<io::Error>,
}

/// Whether a file of this name is one of a store's.
pub fn is_file_name(name: &str) -> bool {
    let has_rows = rows::has::<index::Entry>(name) || rows::has::<digests::Acknowledged>(name);
    scan::number(name).is_some() || has_rows || heads::is_head(name)
}

/// Whether there is no room for what was written: what is stored can be read all the same.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let what = what.into();
    move |source| OpenError::Files { what, source }
}

#[cfg(test)]
mod tests;
