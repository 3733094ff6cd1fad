//! RDB: all keys in one file, one value as a string (DUMP). Version 10 is written, that of Redis 7.0; 1 to 12 are read, as far as
//! their values are of types that this server has.
//!
//! A file: `REDIS0010`, then opcodes ([`opcode`]) and pairs of type, key and value ([`kind`]), then `FF` and the CRC-64 of all before
//! (8 bytes, little-endian; 0: not checked). A value of DUMP: type, value, version (2 bytes, little-endian), CRC-64.

mod lzf;
mod old;
mod read;
mod write;

pub use read::{Loader, RdbError, is_whole, read, restore, restore_libraries};
pub use write::{dump, dump_body, dump_libraries, encode_compressed, encode_plain, header, push_database, write};

/// The last piece of a file before its checksum.
pub const END: u8 = opcode::END;
/// The version that is written.
pub const VERSION: u16 = 10;
/// The latest version that is read.
pub const VERSION_MAX: u16 = 12;

/// What the first byte of a piece says.
mod opcode {
    pub const FUNCTION: u8 = 245;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const AUX: u8 = 250;
    pub const SIZES: u8 = 251;
    pub const EXPIRY_MILLIS: u8 = 252;
    pub const EXPIRY_SECONDS: u8 = 253;
    pub const DATABASE: u8 = 254;
    pub const END: u8 = 255;
}

/// Types of values.
mod kind {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const ZSET_TEXT: u8 = 3;
    pub const HASH: u8 = 4;
    pub const ZSET: u8 = 5;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const STREAM: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM_2: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_3: u8 = 21;
}

type Checksum = crc::Crc<u64, crc::Table<16>>;

/// CRC-64 as Redis has it.
pub(crate) const CRC: Checksum = Checksum::new(&crc::CRC_64_REDIS);

/// A CRC-64 that is not done.
type Digest = crc::Digest<'static, u64, crc::Table<16>>;

/// The CRC-64 of bytes.
fn checksum(bytes: &[u8]) -> u64 {
    CRC.checksum(bytes)
}

#[cfg(test)]
mod tests;
