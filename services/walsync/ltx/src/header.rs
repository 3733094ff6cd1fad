//! The first 100 bytes of a file.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | `LTX1` |
//! | 4 | 4 | flags; 0x2: no checksums of the database |
//! | 8 | 4 | page size |
//! | 12 | 4 | commit: size of the database in pages after the file is applied |
//! | 16, 24 | 8, 8 | first and last transaction ID |
//! | 32 | 8 | time of the last commit, milliseconds since 1970 |
//! | 40 | 8 | checksum of the database before; zero in a snapshot |
//! | 48, 56 | 8, 8 | where in the WAL the content was, and how much of it |
//! | 64, 68 | 4, 4 | salts of that WAL |
//! | 72 | 8 | node ID |
//! | 80 | 20 | reserved; Litestream ignores them |

use crate::checksum::CHECKSUM_FLAG;
use crate::{Error, FileName, TXID_MAX};

/// Bytes of a header.
pub const HEADER_SIZE: usize = 100;
/// Bytes at the end of the header that Litestream ignores.
pub const RESERVED_SIZE: usize = 20;
/// Flag: neither the header nor the trailer has a checksum of the database. Litestream 0.5 restores nothing else.
pub const NO_CHECKSUM: u32 = 0x2;

/// The header of a file. [`Header::validate`] says what may be in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`NO_CHECKSUM`] or zero.
    pub flags: u32,
    /// 512 to 65,536, a power of two.
    pub page_size: u32,
    /// Pages of the database after the file is applied.
    pub commit: u32,
    /// First transaction; 1 makes the file a snapshot, which holds every page.
    pub min_txid: u64,
    /// Last transaction.
    pub max_txid: u64,
    /// Unix time of the last commit, in milliseconds.
    pub timestamp_millis: i64,
    /// Checksum of the database before; zero in a snapshot and under [`NO_CHECKSUM`].
    pub pre_apply_checksum: u64,
    /// Offset of the first frame in the WAL; zero where the file is not from a WAL.
    pub wal_offset: u64,
    /// Bytes of the WAL from there on.
    pub wal_size: u64,
    /// First salt of the WAL.
    pub wal_salt1: u32,
    /// Second salt of the WAL.
    pub wal_salt2: u32,
    /// Who wrote the file.
    pub node_id: u64,
    /// The writer's own; a compaction by Litestream drops it.
    pub reserved: [u8; RESERVED_SIZE],
}

/// The page that SQLite never stores, for it locks bytes there: the one that holds the byte at 1 GiB.
pub fn lock_page(page_size: u32) -> u32 {
    0x4000_0000 / page_size + 1
}

fn field<const N: usize>(bytes: &[u8; HEADER_SIZE], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl Header {
    /// What the file is called.
    pub fn name(&self) -> FileName {
        FileName { min_txid: self.min_txid, max_txid: self.max_txid }
    }

    /// Whether the file holds a whole database.
    pub fn is_snapshot(&self) -> bool {
        self.name().is_snapshot()
    }

    /// Whether checksums of the database are left out.
    pub fn has_no_checksum(&self) -> bool {
        self.flags & NO_CHECKSUM != 0
    }

    /// Bytes of this header. The header is valid, or [`Header::decode`] will refuse them.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(b"LTX1");
        put(&self.flags.to_be_bytes());
        put(&self.page_size.to_be_bytes());
        put(&self.commit.to_be_bytes());
        put(&self.min_txid.to_be_bytes());
        put(&self.max_txid.to_be_bytes());
        put(&self.timestamp_millis.to_be_bytes());
        put(&self.pre_apply_checksum.to_be_bytes());
        put(&self.wal_offset.to_be_bytes());
        put(&self.wal_size.to_be_bytes());
        put(&self.wal_salt1.to_be_bytes());
        put(&self.wal_salt2.to_be_bytes());
        put(&self.node_id.to_be_bytes());
        put(&self.reserved);
        debug_assert_eq!(at, HEADER_SIZE);
        bytes
    }

    /// Reads and validates.
    pub fn decode(bytes: &[u8; HEADER_SIZE]) -> Result<Header, Error> {
        let magic: [u8; 4] = field(bytes, 0);
        if &magic != b"LTX1" {
            return Err(Error::Magic(magic));
        }
        let u32_at = |at| u32::from_be_bytes(field(bytes, at));
        let u64_at = |at| u64::from_be_bytes(field(bytes, at));
        let header = Header {
            flags: u32_at(4),
            page_size: u32_at(8),
            commit: u32_at(12),
            min_txid: u64_at(16),
            max_txid: u64_at(24),
            timestamp_millis: i64::from_be_bytes(field(bytes, 32)),
            pre_apply_checksum: u64_at(40),
            wal_offset: u64_at(48),
            wal_size: u64_at(56),
            wal_salt1: u32_at(64),
            wal_salt2: u32_at(68),
            node_id: u64_at(72),
            reserved: field(bytes, 80),
        };
        header.validate()?;
        Ok(header)
    }

    /// Litestream's rules for headers.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |field, value, remedy| Err(Error::Header { field, value, remedy });
        if self.flags & !NO_CHECKSUM != 0 {
            return refuse("flags", self.flags.into(), "has flags other than 0x2: a newer format");
        }
        if !(512..=65_536).contains(&self.page_size) || !self.page_size.is_power_of_two() {
            return refuse("page size", self.page_size.into(), "is not a power of two from 512 to 65536");
        }
        if self.commit == 0 {
            return refuse("commit", 0, "is not 1 or more: a database has a page at least");
        }
        if self.min_txid == 0 {
            return refuse("min TXID", 0, "is not 1 or more");
        }
        if self.min_txid > self.max_txid {
            return refuse("max TXID", self.max_txid, "is less than the min TXID");
        }
        if self.max_txid > TXID_MAX {
            return refuse("max TXID", self.max_txid, "is greater than the last one, 2^63 - 1");
        }
        if self.wal_offset == 0 && (self.wal_size != 0 || self.wal_salt1 != 0 || self.wal_salt2 != 0) {
            return refuse("WAL offset", 0, "is not that of a frame, though the file is from a WAL");
        }
        let checksum = self.pre_apply_checksum;
        if self.is_snapshot() || self.has_no_checksum() {
            if checksum != 0 {
                return refuse("pre-apply checksum", checksum, "is not 0, as in snapshots and files without checksums");
            }
        } else if checksum & CHECKSUM_FLAG == 0 {
            return refuse("pre-apply checksum", checksum, "lacks the top bit");
        }
        Ok(())
    }
}
