//! A block as it is stored: one zstd frame, with or without a dictionary, or as it is where that is smaller.

use std::sync::Arc;

use zstd::dict::DecoderDictionary;

use super::contexts;
use super::dictionary::Dictionary;
use crate::block::{Digest, Evidence, Verified};
use crate::hash::Hash;

/// How hard zstd tries, where nothing else is said: fast, and as the Java node's files, so that sizes can be compared.
pub const LEVEL: i32 = 1;

/// How a block's bytes are stored. Frames of several blocks would be further numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAs {
    /// As they are.
    Plain = 0,
    /// One zstd frame.
    Zstd = 1,
    /// Where the two copies of a dictionary begin in the segment (4 bytes each, little-endian), then a zstd frame that needs it.
    Dictionary = 2,
}

impl StoredAs {
    pub(super) fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            1 => Some(Self::Zstd),
            2 => Some(Self::Dictionary),
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
    /// What it is byte for byte.
    pub digest: Digest,
    /// What is known of its signature.
    pub evidence: Evidence,
    /// Length of its `Block` message.
    pub plain_bytes: u32,
    /// How it is stored.
    pub encoding: StoredAs,
    /// What is stored; where the dictionary is, is put before it when it is written, and the digest behind it.
    pub stored: Vec<u8>,
    /// What it needs to be read again.
    pub dictionary: Option<Arc<Dictionary>>,
}

impl Prepared {
    /// Compresses a block by itself, at the level of most tests.
    #[cfg(test)]
    pub(crate) fn of(block: &Verified) -> Self {
        Self::with(block, None, LEVEL)
    }

    /// Compresses a block, with a dictionary and its level if there is one, otherwise with this level.
    pub fn with(block: &Verified, dictionary: Option<Arc<Dictionary>>, level: i32) -> Self {
        let plain = &block.bytes;
        let compressed = match &dictionary {
            Some(dictionary) => dictionary.compress(plain),
            None => contexts::compress(plain, level),
        };
        // Compression fails for lack of memory alone; then it is stored as it is.
        let (encoding, stored, dictionary) = match (compressed, dictionary) {
            (Ok(compressed), Some(dictionary)) if compressed.len() + 8 < plain.len() => {
                (StoredAs::Dictionary, compressed, Some(dictionary))
            }
            (Ok(compressed), None) if compressed.len() < plain.len() => (StoredAs::Zstd, compressed, None),
            _ => (StoredAs::Plain, plain.clone(), None),
        };
        Self {
            number: block.number,
            root: block.root,
            digest: block.digest,
            evidence: block.evidence,
            plain_bytes: plain.len() as u32,
            encoding,
            stored,
            dictionary,
        }
    }
}

/// A dictionary to read with, which several read with at a time.
pub(super) type SharedDictionary = Arc<DecoderDictionary<'static>>;

/// What is stored is not what was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The frame.
    #[error("its zstd frame is damaged")]
    Zstd,
    /// Both copies of what it needs.
    #[error("both copies of its dictionary are damaged")]
    Dictionary,
    /// The length.
    #[error("it has {0} bytes instead of {1}")]
    Length(usize, u32),
}

/// Where the copies of the dictionary begin in the segment, and the frame.
pub(super) fn split(stored: &[u8]) -> Option<([u32; 2], &[u8])> {
    let (first, rest) = stored.split_first_chunk::<4>()?;
    let (second, frame) = rest.split_first_chunk::<4>()?;
    Some(([u32::from_le_bytes(*first), u32::from_le_bytes(*second)], frame))
}

/// The `Block` message again; `dictionary` finds a copy of the dictionary.
pub(super) fn unpack(
    encoding: StoredAs,
    stored: &[u8],
    plain_bytes: u32,
    dictionary: impl FnOnce([u32; 2]) -> Option<SharedDictionary>,
) -> Result<Vec<u8>, UnpackError> {
    let plain = match encoding {
        StoredAs::Plain => stored.to_vec(),
        // Takes no more memory than the length says, whatever the frame says.
        StoredAs::Zstd => contexts::decompress(stored, plain_bytes as usize).map_err(|_| UnpackError::Zstd)?,
        StoredAs::Dictionary => {
            let (copies, frame) = split(stored).ok_or(UnpackError::Zstd)?;
            let dictionary = dictionary(copies).ok_or(UnpackError::Dictionary)?;
            contexts::decompress_with(frame, &dictionary, plain_bytes as usize).map_err(|_| UnpackError::Zstd)?
        }
    };
    match plain.len() == plain_bytes as usize {
        true => Ok(plain),
        false => Err(UnpackError::Length(plain.len(), plain_bytes)),
    }
}
