//! What is known of a block's items: where each stands, which exist, which hash they go into, the root hash of all of them, and what is read
//! of header, footer and proof.
//!
//! Everything else of an item is opaque, and stays as it came. Source: block stream protobufs of consensus node 0.76
//! (`com.hedera.hapi.block.stream`), field numbers in parentheses.

mod address_book;
mod builder;
mod chain;
mod digest;
mod filtered;
mod proof;
mod record_file;
mod root;

pub use address_book::{AddressBookError, AddressBooks, Nodes, RsaKey};
pub use builder::{Builder, BuilderError, Limits, Verified};
pub use chain::{Chain, ChainError};
pub use digest::{DIGEST_BYTES, Digest};
pub use filtered::FilteredItem;
pub use proof::{
    Evidence, HashOnly, OldProof, ProofError, ProofRules, Proven, SignatureVerifier, Verdict, dummy, signature_of,
};
#[cfg(test)]
pub(crate) use record_file::tests as record_file_tests;
pub use record_file::{RecordFileError, RecordFileRule, record_file_hash};
pub use root::{Era, EraError, RootHasher};

use std::fmt;
use std::ops::Range;

use crate::hash::{HASH_BYTES, Hash};
use crate::wire::{Fields, WireError, once};

/// Block numbers are below this: no sum of them overflows, and the greatest number of 64 bits says that there is no block.
pub const BLOCK_NUMBERS_END: u64 = 1 << 63;

/// Field number of an item in `Block` and in `BlockItemSet`.
pub const ITEMS_FIELD: u32 = 1;
/// Field number of a header in `BlockItem`.
pub const HEADER_FIELD: u32 = 1;
/// Field number of a proof in `BlockItem`.
pub const PROOF_FIELD: u32 = 9;
/// Field number of a footer in `BlockItem`.
pub const FOOTER_FIELD: u32 = 12;
const RECORD_FILE_FIELD: u32 = 10;

/// Which subtree of the block's hash an item belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// event_header (2), round_header (3).
    Consensus,
    /// signed_transaction (4).
    Inputs,
    /// block_header (1), transaction_result (5), transaction_output (6), record_file (10).
    Outputs,
    /// state_changes (7).
    StateChanges,
    /// trace_data (11).
    Traces,
    /// Of items to come, 0 to 7.
    Extension(u8),
    /// block_proof (9), block_footer (12).
    NotHashed,
}

impl Category {
    /// The place of its subtree among the leaves below the root, behind previous root, tree of all previous roots and state; `None`: what
    /// is not hashed has none.
    pub fn leaf(self) -> Option<usize> {
        Some(match self {
            Self::Consensus => 3,
            Self::Inputs => 4,
            Self::Outputs => 5,
            Self::StateChanges => 6,
            Self::Traces => 7,
            Self::Extension(number) => 8 + usize::from(number),
            Self::NotHashed => return None,
        })
    }

    /// What has this place; `None`: no subtree has.
    pub fn of_leaf(leaf: usize) -> Option<Self> {
        Some(match leaf {
            3 => Self::Consensus,
            4 => Self::Inputs,
            5 => Self::Outputs,
            6 => Self::StateChanges,
            7 => Self::Traces,
            extension @ 8..=15 => Self::Extension(extension as u8 - 8),
            _ => return None,
        })
    }
}

/// What an item is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// block_header: first, and once.
    Header,
    /// record_file: once at most.
    RecordFile,
    /// block_footer: once, behind everything but proofs; none in the time of two trees.
    Footer,
    /// block_proof: last, at least once.
    Proof,
    /// Anything else.
    Other,
}

/// An item that cannot be part of a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// It is no message.
    #[error("a block item is not protobuf: {0}")]
    Wire(#[from] WireError),
    /// It has no field, or several. How many is not counted: there may be millions, and others wait.
    #[error("a block item must have exactly one field")]
    NotOne,
    /// Nobody knows which hash it goes into.
    #[error("a block item has field {0}, which is unknown: it cannot be told which hash it goes into")]
    Unknown(u32),
    /// Filtered and redacted items are no part of a block that is published.
    #[error("a block item is filtered or redacted (field {0}); only whole blocks are accepted")]
    Incomplete(u32),
}

/// Where in the hash an item with this field goes. Fields from 20 on say so by their number modulo 20, as in the Java node.
pub fn category(field: u32) -> Result<Category, ItemError> {
    Ok(match field {
        8 | 19 => return Err(ItemError::Incomplete(field)),
        2 | 3 => Category::Consensus,
        4 => Category::Inputs,
        1 | 5 | 6 | RECORD_FILE_FIELD => Category::Outputs,
        7 => Category::StateChanges,
        11 => Category::Traces,
        PROOF_FIELD | FOOTER_FIELD => Category::NotHashed,
        20.. => match field % 20 {
            0 | 19 => Category::NotHashed,
            3 => Category::Consensus,
            4 => Category::Inputs,
            5 => Category::Outputs,
            6 => Category::StateChanges,
            7 => Category::Traces,
            extension @ 8..=15 => Category::Extension(extension as u8 - 8),
            _ => return Err(ItemError::Unknown(field)),
        },
        _ => return Err(ItemError::Unknown(field)),
    })
}

/// An item, looked at as far as needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The number of its only field.
    pub field: u32,
    /// What that holds.
    pub content: &'a [u8],
    /// Where in the hash it goes.
    pub category: Category,
}

impl<'a> Item<'a> {
    /// Reads an item.
    pub fn of(item: &'a [u8]) -> Result<Self, ItemError> {
        let mut fields = Fields::of(item);
        let field = fields.next().transpose()?.ok_or(ItemError::NotOne)?;
        if fields.next().is_some() {
            return Err(ItemError::NotOne);
        }
        let category = category(field.number)?;
        let content = &item[field.bytes("BlockItem")?];
        Ok(Self { field: field.number, content, category })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        match self.field {
            HEADER_FIELD => Kind::Header,
            RECORD_FILE_FIELD => Kind::RecordFile,
            FOOTER_FIELD => Kind::Footer,
            PROOF_FIELD => Kind::Proof,
            _ => Kind::Other,
        }
    }
}

/// Where each item of a `Block` or `BlockItemSet` stands with its frame, and where its own bytes do.
pub fn item_ranges(set: &[u8]) -> impl Iterator<Item = Result<(Range<usize>, Range<usize>), WireError>> {
    Fields::of(set).map(|field| {
        let field = field?;
        if field.number != ITEMS_FIELD {
            return Err(WireError::Field(field.number, "BlockItemSet", "it is unknown, and would be lost"));
        }
        Ok((field.range.clone(), field.bytes("BlockItemSet")?))
    })
}

/// The items of a `Block` or `BlockItemSet`.
pub fn items(set: &[u8]) -> impl Iterator<Item = Result<&[u8], WireError>> {
    item_ranges(set).map(|item| item.map(|(_, content)| &set[content]))
}

/// A semantic version without what may follow the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    fn of(bytes: &[u8]) -> Result<Self, WireError> {
        let [mut major, mut minor, mut patch] = [None; 3];
        for field in Fields::of(bytes) {
            let field = field?;
            let slot = match field.number {
                1 => &mut major,
                2 => &mut minor,
                3 => &mut patch,
                _ => continue,
            };
            once(slot, field.varint("SemanticVersion")? as u32, field.number, "SemanticVersion")?;
        }
        let number = Option::unwrap_or_default;
        Ok(Self { major: number(major), minor: number(minor), patch: number(patch) })
    }
}

/// What is read of a block's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block's number.
    pub number: u64,
    /// Version of its protocol, which the hash rules go by.
    pub version: Version,
    /// The exact bytes of its timestamp; `None`: it has none.
    pub timestamp: Option<Vec<u8>>,
    /// 0 is SHA-384.
    pub hash_algorithm: u64,
}

impl Header {
    /// Reads the content of a header item.
    pub fn of(content: &[u8]) -> Result<Self, WireError> {
        const NAME: &str = "BlockHeader";
        let (mut version, mut number, mut timestamp, mut hash_algorithm) = (None, None, None, None);
        for field in Fields::of(content) {
            let field = field?;
            match field.number {
                1 => once(&mut version, Version::of(&content[field.bytes(NAME)?])?, 1, NAME)?,
                3 => once(&mut number, field.varint(NAME)?, 3, NAME)?,
                4 => once(&mut timestamp, content[field.bytes(NAME)?].to_vec(), 4, NAME)?,
                5 => once(&mut hash_algorithm, field.varint(NAME)?, 5, NAME)?,
                _ => {}
            }
        }
        Ok(Self {
            number: number.unwrap_or_default(),
            version: version.unwrap_or_default(),
            timestamp,
            hash_algorithm: hash_algorithm.unwrap_or_default(),
        })
    }
}

/// What a block's footer says of what was before it; in the time of two trees its proof says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Root hash of the block before.
    pub previous_root: Hash,
    /// Root of the tree of all root hashes before; `None`: the block is of the time of two trees, which had none.
    pub all_previous_root: Option<Hash>,
    /// Root hash of the state at the start of the block; `None`: it is empty.
    pub state_root: Option<Hash>,
}

impl Footer {
    /// Reads the content of a footer item.
    pub fn of(content: &[u8]) -> Result<Self, WireError> {
        const NAME: &str = "BlockFooter";
        let mut hashes = [None; 3];
        for field in Fields::of(content) {
            let field = field?;
            // What is not part of the root hash could be anything: an unknown field, or a known one with a flipped bit in its tag.
            let Some(slot) = (field.number as usize).checked_sub(1).and_then(|index| hashes.get_mut(index)) else {
                return Err(WireError::Field(field.number, NAME, "it is unknown, and no hash vouches for it"));
            };
            let bytes = &content[field.bytes(NAME)?];
            let hash = match bytes.len() {
                0 => None,
                HASH_BYTES => <Hash>::try_from(bytes).ok(),
                _ => return Err(WireError::Field(field.number, NAME, "a hash must have 48 bytes")),
            };
            once(slot, hash, field.number, NAME)?;
        }
        let [previous_root, all_previous_root, state_root] = hashes.map(Option::flatten);
        let missing = |number| WireError::Field(number, NAME, "a hash of 48 bytes must be there");
        Ok(Self {
            previous_root: previous_root.ok_or(missing(1))?,
            all_previous_root: Some(all_previous_root.ok_or(missing(2))?),
            state_root,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_bytes;

    #[test]
    fn every_field_number_has_its_place_or_is_refused() {
        let hashed = |field| category(field).ok();
        for (field, expected) in [
            (1, Some(Category::Outputs)),
            (2, Some(Category::Consensus)),
            (3, Some(Category::Consensus)),
            (4, Some(Category::Inputs)),
            (5, Some(Category::Outputs)),
            (6, Some(Category::Outputs)),
            (7, Some(Category::StateChanges)),
            (8, None),
            (9, Some(Category::NotHashed)),
            (10, Some(Category::Outputs)),
            (11, Some(Category::Traces)),
            (12, Some(Category::NotHashed)),
            (13, None),
            (18, None),
            (19, None),
            (20, Some(Category::NotHashed)),
            (21, None),
            (22, None),
            (23, Some(Category::Consensus)),
            (27, Some(Category::Traces)),
            (28, Some(Category::Extension(0))),
            (35, Some(Category::Extension(7))),
            (36, None),
            (38, None),
            (39, Some(Category::NotHashed)),
            (40, Some(Category::NotHashed)),
            (44, Some(Category::Inputs)),
            (115, Some(Category::Extension(7))),
        ] {
            assert_eq!(hashed(field), expected, "field {field}");
        }
    }

    #[test]
    fn an_item_has_exactly_one_field() {
        assert_eq!(Item::of(&[]), Err(ItemError::NotOne));
        let mut two = Vec::new();
        put_bytes(&mut two, 4, b"a");
        assert_eq!(Item::of(&two).unwrap().content, b"a");
        put_bytes(&mut two, 5, b"b");
        assert_eq!(Item::of(&two), Err(ItemError::NotOne));
        assert!(matches!(Item::of(&[0x20, 0x01]), Err(ItemError::Wire(WireError::Field(4, ..)))));
    }

    #[test]
    fn a_footer_without_its_hashes_is_refused() {
        let mut footer = Vec::new();
        put_bytes(&mut footer, 1, &[7; 48]);
        assert!(Footer::of(&footer).unwrap_err().to_string().contains("field 2 of BlockFooter"));
        put_bytes(&mut footer, 2, &[8; 48]);
        put_bytes(&mut footer, 3, b"");
        let expected = Footer { previous_root: [7; 48], all_previous_root: Some([8; 48]), state_root: None };
        assert_eq!(Footer::of(&footer), Ok(expected));
        put_bytes(&mut footer, 1, &[7; 48]);
        assert!(Footer::of(&footer).is_err(), "a hash occurs twice");
        assert!(Footer::of(&[0x0a, 0x01, 0x00]).is_err(), "a hash of one byte");
    }
}
