//! Files of the Java block node: what each holds, where it lies, and how it is read and written. `block-node import` and `export` use them.
//!
//! | kind | name | holds |
//! | --- | --- | --- |
//! | recent | `000/000/000/000/000/1/0000000000000001234.blk.zstd` | one block: 19 digits, the first 16 of them in folders of three |
//! | historic | `000/000/000/000/00/10000s.zip` | 10ⁿ blocks, stored (not compressed again), each under its recent name without folders |
//!
//! A `.blk.zstd` is one zstd frame of a `Block` message; `.blk` is the message itself. Source: the Java node's path rules from 0.14 on.
//!
//! Promises: any bytes give a `Block` message's bytes or an error, in memory that the caller bounds; a file is whole under its name or not
//! there.

mod archive;
mod export;
mod import;

pub use archive::Archive;
pub use export::{ExportFlags, Exported, export, run as run_export};
pub use import::{ImportError, ImportFlags, Imported, Source, import, run as run_import};

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Digits of a block's number in names.
const DIGITS: usize = 19;
/// The last ones, which are no folders.
const DIGITS_IN_FOLDER: usize = 3;
/// As the Java node compresses.
const ZSTD_LEVEL: i32 = 1;

/// What is wrong with a file of the Java node.
#[derive(Debug, thiserror::Error)]
pub enum JavaFileError {
    /// It cannot be read or written.
    #[error("{0}: {1}")]
    Files(PathBuf, io::Error),
    /// It is no ZIP file, or one that is damaged.
    #[error("not a ZIP file that can be read: {0}")]
    Zip(#[from] zip::result::ZipError),
    /// It has no such block.
    #[error("it has no block {0}")]
    NoBlock(u64),
    /// It has a block twice.
    #[error("it has block {0} twice")]
    Twice(u64),
    /// The content of a block's file.
    #[error("block {0}: {1}")]
    Content(u64, io::Error),
    /// More than is taken.
    #[error("block {0} has more than {1} bytes; --server-max-message-size-bytes allows more")]
    TooLarge(u64, usize),
}

/// How the file of a block is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// `.blk`
    Plain,
    /// `.blk.zstd`
    Zstd,
}

/// Which block a file holds, by its name; `None`: none.
pub fn block_of(name: &str) -> Option<(u64, Packing)> {
    let (stem, packing) = match name.strip_suffix(".blk.zstd") {
        Some(stem) => (stem, Packing::Zstd),
        None => (name.strip_suffix(".blk")?, Packing::Plain),
    };
    let is_number = stem.len() == DIGITS && stem.bytes().all(|byte| byte.is_ascii_digit());
    Some((is_number.then(|| stem.parse().ok()).flatten()?, packing))
}

/// The name of a block's file.
pub fn file_name(number: u64) -> String {
    format!("{number:0DIGITS$}.blk.zstd")
}

fn folders(digits: &str) -> PathBuf {
    // Digits are one byte each.
    (0..digits.len()).step_by(3).map(|at| &digits[at..digits.len().min(at + 3)]).collect()
}

/// Where a block of its own lies.
pub fn recent_path(number: u64) -> PathBuf {
    let digits = format!("{number:0DIGITS$}");
    folders(&digits[..DIGITS - DIGITS_IN_FOLDER]).join(file_name(number))
}

/// Where the ZIP file of a block lies that holds ten to this power (1 to 6) of them.
pub fn historic_path(number: u64, power_of_ten: u32) -> PathBuf {
    let digits = format!("{number:0DIGITS$}");
    let at = DIGITS - power_of_ten as usize - 1;
    folders(&digits[..at]).join(format!("{}{}s.zip", &digits[at..=at], "0".repeat(power_of_ten as usize)))
}

/// A block's bytes as in a `.blk.zstd`.
fn pack(block: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(block, ZSTD_LEVEL)
}

/// The `Block` message of a file's content, of at most so many bytes.
fn unpack(number: u64, content: impl Read, packing: Packing, bytes_max: usize) -> Result<Vec<u8>, JavaFileError> {
    let failed = |error| JavaFileError::Content(number, error);
    let mut block = Vec::new();
    let limit = bytes_max as u64 + 1;
    match packing {
        Packing::Plain => content.take(limit).read_to_end(&mut block),
        // The frame may name any length: memory grows with what really comes out of it.
        Packing::Zstd => zstd::Decoder::new(content).map_err(failed)?.take(limit).read_to_end(&mut block),
    }
    .map_err(failed)?;
    match block.len() > bytes_max {
        true => Err(JavaFileError::TooLarge(number, bytes_max)),
        false => Ok(block),
    }
}

/// Reads a block's own file.
fn read_recent(path: &Path, number: u64, packing: Packing, bytes_max: usize) -> Result<Vec<u8>, JavaFileError> {
    let file = std::fs::File::open(path).map_err(|error| JavaFileError::Files(path.to_owned(), error))?;
    unpack(number, file, packing, bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_java_node() {
        let shown = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(shown(recent_path(1_234)), "000/000/000/000/000/1/0000000000000001234.blk.zstd");
        assert_eq!(shown(recent_path(0)), "000/000/000/000/000/0/0000000000000000000.blk.zstd");
        let large = 1_234_567_890_123_456_789;
        assert_eq!(shown(recent_path(large)), "123/456/789/012/345/6/1234567890123456789.blk.zstd");
        assert_eq!(shown(historic_path(12_345, 4)), "000/000/000/000/00/10000s.zip");
        assert_eq!(shown(historic_path(large, 4)), "123/456/789/012/34/50000s.zip");
        assert_eq!(shown(historic_path(57, 1)), "000/000/000/000/000/00/50s.zip");
        assert_eq!(shown(historic_path(large, 6)), "123/456/789/012/3000000s.zip");
    }

    #[test]
    fn a_name_tells_its_block() {
        assert_eq!(block_of(&file_name(77)), Some((77, Packing::Zstd)));
        assert_eq!(block_of("0000000000000000077.blk"), Some((77, Packing::Plain)));
        for other in
            ["77.blk.zstd", "0000000000000000077.blk.gz", "000000000000000007x.blk", "+000000000000000077.blk", ".blk"]
        {
            assert_eq!(block_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_frame_that_claims_or_holds_too_much_takes_no_more_than_is_allowed() {
        let bomb = pack(&vec![0; 1 << 20]).unwrap();
        assert!(bomb.len() < 1_000);
        assert!(matches!(unpack(3, &bomb[..], Packing::Zstd, 1_000), Err(JavaFileError::TooLarge(3, 1_000))));
        assert_eq!(unpack(3, &bomb[..], Packing::Zstd, 1 << 20).unwrap().len(), 1 << 20);
        assert!(matches!(unpack(3, &bomb[..20], Packing::Zstd, 1 << 20), Err(JavaFileError::Content(3, _))));
        assert!(unpack(3, &b"no frame"[..], Packing::Zstd, 1 << 20).is_err());
        assert_eq!(unpack(3, &b"plain"[..], Packing::Plain, 5).unwrap(), b"plain");
        assert!(unpack(3, &b"plain"[..], Packing::Plain, 4).is_err());
    }
}
