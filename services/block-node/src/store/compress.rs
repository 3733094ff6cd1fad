//! A block as it is stored: one zstd frame, or as it is where that is smaller.

use crate::block::{Evidence, Verified};
use crate::hash::Hash;

/// Fast; as the Java node's files, so that sizes can be compared.
const LEVEL: i32 = 1;

/// How a block's bytes are stored. Dictionaries and frames of several blocks will be further numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Plain = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl Encoding {
    pub(super) fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A block that is ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its number.
    pub number: u64,
    /// Its root hash.
    pub root: Hash,
    /// What is known of its signature.
    pub evidence: Evidence,
    /// Length of its `Block` message.
    pub plain_bytes: u32,
    /// How it is stored.
    pub encoding: Encoding,
    /// What is stored.
    pub stored: Vec<u8>,
}

impl Prepared {
    /// Compresses a block.
    pub fn of(block: &Verified) -> Self {
        let plain = &block.bytes;
        // Compression fails for lack of memory alone; then it is stored as it is.
        let (encoding, stored) = match zstd::bulk::compress(plain, LEVEL) {
            Ok(compressed) if compressed.len() < plain.len() => (Encoding::Zstd, compressed),
            _ => (Encoding::Plain, plain.clone()),
        };
        Self {
            number: block.number,
            root: block.root,
            evidence: block.evidence,
            plain_bytes: plain.len() as u32,
            encoding,
            stored,
        }
    }
}

/// What is stored is not what was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The frame.
    #[error("its zstd frame is damaged")]
    Zstd,
    /// The length.
    #[error("it has {0} bytes instead of {1}")]
    Length(usize, u32),
}

/// The `Block` message again.
pub(super) fn unpack(encoding: Encoding, stored: Vec<u8>, plain_bytes: u32) -> Result<Vec<u8>, UnpackError> {
    let plain = match encoding {
        Encoding::Plain => stored,
        // Takes no more memory than the length says, whatever the frame says.
        Encoding::Zstd => zstd::bulk::decompress(&stored, plain_bytes as usize).map_err(|_| UnpackError::Zstd)?,
    };
    match plain.len() == plain_bytes as usize {
        true => Ok(plain),
        false => Err(UnpackError::Length(plain.len(), plain_bytes)),
    }
}
