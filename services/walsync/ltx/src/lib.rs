//! LTX v3: Litestream's files of SQLite pages, each the step of a database from one transaction ID to another.
//!
//! ```text
//! header (100 bytes) | pages, ascending | six zero bytes | page index | length of the index (8) | trailer (16)
//! ```
//!
//! [`Encoder`] and [`Decoder`] stream: a page at a time, memory of one page, and for the encoder of the index. [`merge`] makes one file of
//! several that follow each other. [`FileName`] is how Litestream names files. All integers are big-endian. The layout is
//! as Litestream 0.5.17 writes and reads it; what this crate writes, Litestream 0.5.0 and later restore.
//!
//! [`Lz4Frame`] reads what Litestream 0.3 wrote, which was no LTX yet.
//!
//! Every error is one line. Nothing that a file says makes the decoder allocate more than a page.
#![doc = include_str!("../README.md")]

mod checksum;
mod decoder;
mod encoder;
mod header;
mod lz4;
mod lz4_frame;
mod merge;
mod name;
mod page;

pub use checksum::{CHECKSUM_FLAG, page_checksum};
pub use decoder::{Decoder, Trailer};
pub use encoder::Encoder;
pub use header::{HEADER_SIZE, Header, NO_CHECKSUM, RESERVED_SIZE, lock_page};
pub use lz4_frame::Lz4Frame;
pub use merge::merge;
pub use name::{FileName, Layout, SNAPSHOT_LEVEL, TIMESTAMP_METADATA, TXID_MAX};

/// What can be wrong with a file, or with how it is written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file ends before its trailer, or the reader failed.
    #[error("the file cannot be read: {0}")]
    Read(std::io::Error),
    /// The destination failed.
    #[error("the file cannot be written: {0}")]
    Write(std::io::Error),
    /// The first four bytes are not `LTX1`.
    #[error("not an LTX file: it begins with {0:02x?} instead of \"LTX1\"")]
    Magic([u8; 4]),
    /// A field of the header cannot be so.
    #[error("header field {field}: {value} {remedy}")]
    Header {
        /// Name of the field.
        field: &'static str,
        /// What it says.
        value: u64,
        /// What it should be.
        remedy: &'static str,
    },
    /// A page's number, flags or order.
    #[error("page {number}: {what}")]
    Page {
        /// Number of the page.
        number: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A page's data do not decompress to a page.
    #[error("page {number}: its LZ4 data are damaged: {what}")]
    Compression {
        /// Number of the page.
        number: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The index does not say where the pages are.
    #[error("the page index does not agree with the pages: {0}")]
    Index(&'static str),
    /// Some bit of the file has changed.
    #[error("file checksum mismatch: the trailer says {expected:016x}, the content gives {actual:016x}")]
    Checksum {
        /// What the trailer says.
        expected: u64,
        /// What the bytes give.
        actual: u64,
    },
    /// Something follows the trailer.
    #[error("bytes follow the trailer")]
    TrailingBytes,
    /// Files that should be merged do not follow each other, or differ in page size.
    #[error("files cannot be merged: {0}")]
    Merge(String),
}
