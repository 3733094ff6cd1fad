//! Names of files: `{min:016x}-{max:016x}.ltx`, and where Litestream puts them: in folders of levels.

use std::fmt;
use std::str::FromStr;

/// The level of snapshots; 0 is what came from the WAL, 1 to 8 are merged.
pub const SNAPSHOT_LEVEL: u8 = 9;

/// The last transaction ID that a name may have: nobody comes that far, and whoever counts on from it does not overflow.
pub const TXID_MAX: u64 = i64::MAX as u64;

/// What the name of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// First transaction ID, from 1.
    pub min_txid: u64,
    /// Last transaction ID, up to [`TXID_MAX`].
    pub max_txid: u64,
}

impl FileName {
    /// Whether the file has a whole state, in whatever level: it begins with the first transaction, and follows nothing.
    pub fn is_snapshot(self) -> bool {
        self.min_txid == 1
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{:016x}.ltx", self.min_txid, self.max_txid)
    }
}

/// Metadata of an object that say when its last transaction was committed, in RFC 3339.
pub const TIMESTAMP_METADATA: &str = "litestream-timestamp";

/// Where the files of one replica lie below its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In a file system: `ltx/0/NAME`.
    Files,
    /// In a bucket: `0000/NAME`.
    Objects,
}

impl Layout {
    /// What the keys of a level begin with.
    pub fn level(self, level: u8) -> String {
        match self {
            Layout::Files => format!("ltx/{level}/"),
            Layout::Objects => format!("{level:04x}/"),
        }
    }

    /// The key of a file.
    pub fn key(self, level: u8, name: FileName) -> String {
        format!("{}{name}", self.level(level))
    }

    /// The level and the name in a key; others are nobody's.
    pub fn parse(self, key: &str) -> Option<(u8, FileName)> {
        let (level, name) = match self {
            Layout::Files => {
                let (level, name) = key.strip_prefix("ltx/")?.split_once('/')?;
                (level.parse().ok()?, name)
            }
            Layout::Objects => {
                let (level, name) = key.split_once('/')?;
                (u8::from_str_radix(level, 16).ok()?, name)
            }
        };
        let name = name.parse().ok()?;
        (level <= SNAPSHOT_LEVEL && self.key(level, name) == key).then_some((level, name))
    }
}

/// The name is not that of an LTX file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("\"{0}\" is not the name of an LTX file: two TXIDs of 16 hexadecimal digits, as in \"{first}\"", first = FileName { min_txid: 1, max_txid: 1 })]
pub struct NameError(String);

impl FromStr for FileName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let parse = || {
            let (min, max) = name.strip_suffix(".ltx")?.split_once('-')?;
            let txid = |text: &str| {
                let digits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
            };
            let name = FileName { min_txid: txid(min)?, max_txid: txid(max)? };
            let in_order = name.min_txid >= 1 && name.min_txid <= name.max_txid;
            (in_order && name.max_txid <= TXID_MAX).then_some(name)
        };
        parse().ok_or_else(|| NameError(name.to_owned()))
    }
}
