//! Who signs record files: RSA keys of the network's nodes, for ranges of blocks. Pure: the content of a file in, keys out.
//!
//! The file is the Java node's: JSON of a `NodeAddressBook` (`rsa-bootstrap-roster.json`), or of a `RangedAddressBookHistory`
//! (`rsa-address-book-history.json`) where keys have changed. Of an address `nodeId` and `RSAPubKey` count: the key in hexadecimal, as an
//! X.509 SubjectPublicKeyInfo or as a certificate, in DER.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Keys that are neither broken in an afternoon nor too long to be verified.
const KEY_BITS: RangeInclusive<usize> = 2_048..=8_192;

/// A file that is no address book.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressBookError {
    /// Not what it should be.
    #[error(
        "not the JSON of an address book: {0}; it must be {{\"nodeAddress\": [{{\"nodeId\": 0, \"RSAPubKey\": \"3082…\"}}]}} or {{\"addressBooks\": \
         [{{\"addressBook\": …, \"startBlock\": 0, \"endBlock\": 9}}]}}"
    )]
    Json(String),
    /// Nobody is in it.
    #[error("the address book that begins with block {0} has no node with a key")]
    Empty(u64),
    /// A key.
    #[error("the RSAPubKey of node {0} is not a public key or certificate in DER, in hexadecimal: {1}")]
    Key(u64, &'static str),
    /// A node twice.
    #[error("node {0} is in an address book twice")]
    Twice(u64),
    /// Ranges.
    #[error(
        "address books must be in the order of their blocks and not overlap; only the last may have no endBlock: the one that begins with block {0} is not so"
    )]
    Ranges(u64),
}

/// A node's public key.
#[derive(Clone, PartialEq, Eq)]
pub struct RsaKey {
    /// `RSAPublicKey` of PKCS #1, in DER.
    pub(super) pkcs1: Vec<u8>,
    /// As it was given, in DER.
    given: Vec<u8>,
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an RSA key, {} bytes in DER", self.pkcs1.len())
    }
}

impl RsaKey {
    /// Of a SubjectPublicKeyInfo or a certificate, in DER. The error says what is wrong with it.
    pub fn of(der: &[u8]) -> Result<Self, &'static str> {
        let certificate = X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty());
        let info = match certificate {
            Some((_, certificate)) => certificate.tbs_certificate.subject_pki,
            None => match SubjectPublicKeyInfo::from_der(der) {
                Ok(([], info)) => info,
                _ => return Err("it cannot be read"),
            },
        };
        let Ok(PublicKey::RSA(key)) = info.parsed() else { return Err("it is no RSA key") };
        if !KEY_BITS.contains(&key.key_size()) {
            return Err("it must have 2048 to 8192 bits");
        }
        Ok(Self { pkcs1: info.subject_public_key.data.to_vec(), given: der.to_vec() })
    }

    /// As it was given, in hexadecimal.
    pub fn given(&self) -> String {
        self.given.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Keys by the node's number.
pub type Nodes = BTreeMap<u64, RsaKey>;

/// Address books, each of the blocks for which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressBooks(Vec<(RangeInclusive<u64>, Nodes)>);

/// Protobuf's JSON has 64-bit integers as text, and what people write has not.
#[derive(Deserialize)]
#[serde(untagged)]
enum Integer {
    Number(u64),
    Text(String),
}

impl Default for Integer {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Integer {
    fn value(&self) -> Result<u64, AddressBookError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.parse().map_err(|_| AddressBookError::Json(format!("`{text}` is no number"))),
        }
    }
}

#[derive(Deserialize)]
struct Node {
    #[serde(rename = "nodeId", default)]
    node_id: Integer,
    #[serde(rename = "RSAPubKey", alias = "RSA_PubKey", alias = "rsaPubKey", default)]
    key: String,
}

#[derive(Deserialize)]
struct Book {
    #[serde(rename = "nodeAddress")]
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ranged {
    address_book: Book,
    #[serde(default)]
    start_block: Integer,
    #[serde(default)]
    end_block: Integer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    address_books: Vec<Ranged>,
}

impl Book {
    fn keys(&self, first: u64) -> Result<Nodes, AddressBookError> {
        let mut nodes = Nodes::new();
        // A node without a key cannot have signed anything.
        for node in self.nodes.iter().filter(|node| !node.key.is_empty()) {
            let id = node.node_id.value()?;
            let digits = node.key.strip_prefix("0x").unwrap_or(&node.key);
            let der = from_hexadecimal(digits).ok_or(AddressBookError::Key(id, "it is not hexadecimal"))?;
            let key = RsaKey::of(&der).map_err(|why| AddressBookError::Key(id, why))?;
            if nodes.insert(id, key).is_some() {
                return Err(AddressBookError::Twice(id));
            }
        }
        if nodes.is_empty() { Err(AddressBookError::Empty(first)) } else { Ok(nodes) }
    }
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

impl AddressBooks {
    /// Of the content of a file.
    pub fn of(json: &[u8]) -> Result<Self, AddressBookError> {
        // The names tell which it is; what is wrong within is told by its own type.
        let not_json = |error: serde_json::Error| AddressBookError::Json(error.to_string());
        let file: serde_json::Value = serde_json::from_slice(json).map_err(not_json)?;
        if file.get("addressBooks").is_none() {
            let book: Book = serde_json::from_value(file).map_err(not_json)?;
            return Ok(Self(vec![(0..=u64::MAX, book.keys(0)?)]));
        }
        let history: History = serde_json::from_value(file).map_err(not_json)?;
        let mut books: Vec<(RangeInclusive<u64>, Nodes)> = Vec::new();
        for ranged in &history.address_books {
            let (first, last) = (ranged.start_block.value()?, ranged.end_block.value()?);
            // 0 is no end.
            let range = first..=if last == 0 { u64::MAX } else { last };
            let is_behind = books.last().is_none_or(|(before, _)| *before.end() < first);
            if range.is_empty() || !is_behind {
                return Err(AddressBookError::Ranges(first));
            }
            books.push((range, ranged.address_book.keys(first)?));
        }
        if books.is_empty() { Err(AddressBookError::Empty(0)) } else { Ok(Self(books)) }
    }

    /// Who signs this block's record file; `None`: nobody knows.
    pub fn of_block(&self, number: u64) -> Option<&Nodes> {
        let index = self.0.partition_point(|(range, _)| *range.end() < number);
        self.0.get(index).filter(|(range, _)| range.contains(&number)).map(|(_, nodes)| nodes)
    }

    /// All of them, in the order of their blocks.
    pub fn all(&self) -> impl Iterator<Item = (&RangeInclusive<u64>, &Nodes)> {
        self.0.iter().map(|(range, nodes)| (range, nodes))
    }
}
