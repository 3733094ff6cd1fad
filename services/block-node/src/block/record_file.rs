//! Proofs of blocks that hold a record file of the time before block streams: RSA signatures of the network's nodes over that file.
//!
//! What is signed is `SHA-384(00000006 ‖ record_file_contents)`, by SHA384withRSA (PKCS #1 v1.5), which hashes it once more. **Neither header
//! nor footer is part of it**: that a block has the right number, time and predecessors is known from its neighbours alone. Source: block
//! node 0.41, which has the files of version 6 only; those of versions 2 and 5 had to be put together again from what they were
//! converted to.

use std::collections::BTreeSet;
use std::sync::Arc;

use ring::signature::{RSA_PKCS1_2048_8192_SHA384, UnparsedPublicKey};

use super::{AddressBooks, Evidence};
use crate::hash::{Hash, sha384};
use crate::wire::{Fields, WireError, once};

/// The version of record files that is verified, as it stands before what is hashed.
const VERSION: u32 = 6;

/// Signatures of a proof. No network has so many nodes; those of unknown nodes are passed over, but not without an end.
const SIGNATURES_MAX: usize = 1_024;

/// What is done with signatures of record files.
#[derive(Clone, Debug)]
pub enum RecordFileRule {
    /// Nobody knows who may sign: blocks that need it are refused.
    Refuse,
    /// They were looked at when the block came, or somebody else does; they are not called valid.
    Unchecked,
    /// They must be valid.
    Signers {
        /// Who may sign.
        books: Arc<AddressBooks>,
        /// How many of an address book's nodes must have signed, percent; one in any case.
        percent_min: u8,
    },
}

/// A proof of a record file that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFileError {
    /// It is no message.
    #[error("a record file's proof is not protobuf: {0}")]
    Wire(#[from] WireError),
    /// There is nothing that could be signed.
    #[error("the block has no record_file with record_file_contents (2) exactly once, which its proof is of")]
    NoContents,
    /// Of another time.
    #[error("record files of version {0} cannot be verified, only those of version 6")]
    Version(u64),
    /// No keys at all.
    #[error("nobody is known who signs record files: --rsa-address-book names a file with their keys")]
    NoBooks,
    /// No keys of that time.
    #[error("no address book of --rsa-address-book holds for block {0}")]
    NoBook(u64),
    /// A signature.
    #[error("the signature of node {0} is not one of the block's record file")]
    Invalid(u64),
    /// A node twice.
    #[error("node {0} has signed twice")]
    Twice(u64),
    /// Not enough.
    #[error("the record file is signed by {0} of the {1} nodes of the address book; {2} must have")]
    TooFew(usize, usize, usize),
}

/// What nodes sign of the content of a record_file item; `None`: it does not have contents exactly once.
pub fn record_file_hash(item: &[u8]) -> Option<Hash> {
    let mut contents = None;
    for field in Fields::of(item) {
        let field = field.ok()?;
        if field.number == 2 {
            once(&mut contents, field.bytes("RecordFileItem").ok()?, 2, "RecordFileItem").ok()?;
        }
    }
    Some(sha384(&[&VERSION.to_be_bytes(), &item[contents?]]))
}

impl RecordFileRule {
    /// Whether blocks that hold a record file are taken with proofs that nobody has checked here.
    pub(super) fn takes_unchecked(&self) -> bool {
        matches!(self, Self::Unchecked)
    }

    /// Checks a `SignedRecordFileProof` of this block; `hash` is that of its record file.
    pub(super) fn check(&self, proof: &[u8], number: u64, hash: Option<&Hash>) -> Result<Evidence, RecordFileError> {
        let (version, signatures) = read(proof)?;
        let (books, percent_min) = match self {
            Self::Refuse => return Err(RecordFileError::NoBooks),
            Self::Unchecked => return Ok(Evidence::SignatureUnchecked),
            Self::Signers { books, percent_min } => (books, *percent_min),
        };
        if version != u64::from(VERSION) {
            return Err(RecordFileError::Version(version));
        }
        let hash = hash.ok_or(RecordFileError::NoContents)?;
        let nodes = books.of_block(number).ok_or(RecordFileError::NoBook(number))?;
        // Each is verified once at most: whoever sends a block cannot make it dear.
        let mut signed = BTreeSet::new();
        for Signature { node, bytes } in signatures {
            // As the Java node: nodes come and go, and one that did not sign in time has zeros.
            let Some(key) = nodes.get(&node).filter(|_| bytes.iter().any(|byte| *byte != 0)) else { continue };
            if !signed.insert(node) {
                return Err(RecordFileError::Twice(node));
            }
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA384, &key.pkcs1);
            key.verify(hash, bytes).map_err(|_| RecordFileError::Invalid(node))?;
        }
        let wanted = (nodes.len() * usize::from(percent_min)).div_ceil(100).max(1);
        match signed.len() >= wanted {
            true => Ok(Evidence::RecordFileSigned),
            false => Err(RecordFileError::TooFew(signed.len(), nodes.len(), wanted)),
        }
    }
}

struct Signature<'a> {
    node: u64,
    bytes: &'a [u8],
}

/// Version (1) and signatures (2): bytes (1), node (2).
fn read(proof: &[u8]) -> Result<(u64, Vec<Signature<'_>>), WireError> {
    const NAME: &str = "SignedRecordFileProof";
    const SIGNATURE: &str = "RecordFileSignature";
    let (mut version, mut signatures) = (None, Vec::new());
    for field in Fields::of(proof) {
        let field = field?;
        match field.number {
            1 => once(&mut version, field.varint(NAME)?, 1, NAME)?,
            2 if signatures.len() == SIGNATURES_MAX => {
                return Err(WireError::Field(2, NAME, "there are more than 1,024 signatures"));
            }
            2 => {
                let message = &proof[field.bytes(NAME)?];
                let (mut node, mut bytes) = (None, None);
                for field in Fields::of(message) {
                    let field = field?;
                    match field.number {
                        1 => once(&mut bytes, &message[field.bytes(SIGNATURE)?], 1, SIGNATURE)?,
                        2 => once(&mut node, field.varint(SIGNATURE)?, 2, SIGNATURE)?,
                        other => return Err(WireError::Field(other, SIGNATURE, "it is unknown")),
                    }
                }
                signatures.push(Signature { node: node.unwrap_or_default(), bytes: bytes.unwrap_or_default() });
            }
            other => return Err(WireError::Field(other, NAME, "it is unknown")),
        }
    }
    Ok((version.unwrap_or_default(), signatures))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::block::{AddressBookError, RsaKey};
    use crate::wire::{put_bytes, put_varint};

    const BOOK: &str = include_str!("../../tests/vectors/record_file/rsa-bootstrap-roster.json");
    const SIGNATURES: &str = include_str!("../../tests/vectors/record_file/signatures.txt");
    const CONTENTS: &str = include_str!("../../tests/vectors/record_file/contents.hex");
    const REFUSED_KEYS: &str = include_str!("../../tests/vectors/record_file/refused-keys.txt");

    fn bytes(digits: &str) -> Vec<u8> {
        let digits = digits.trim();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    /// Content of a record_file item that the nodes have signed.
    pub(crate) fn record_file() -> Vec<u8> {
        let mut item = Vec::new();
        put_bytes(&mut item, 1, &[0x08, 9]);
        put_bytes(&mut item, 2, &bytes(CONTENTS));
        put_bytes(&mut item, 3, b"a sidecar, which nobody signs here");
        item
    }

    /// Nodes and their signatures, made by OpenSSL.
    pub(crate) fn signatures() -> Vec<(u64, Vec<u8>)> {
        let lines = SIGNATURES.lines().map(|line| line.split_once(' ').unwrap());
        lines.map(|(node, signature)| (node.parse().unwrap(), bytes(signature))).collect()
    }

    pub(crate) fn proof(version: u8, signatures: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut proof = vec![0x08, version];
        for (node, signature) in signatures {
            let mut message = Vec::new();
            put_bytes(&mut message, 1, signature);
            message.push(0x10);
            put_varint(&mut message, *node);
            put_bytes(&mut proof, 2, &message);
        }
        proof
    }

    pub(crate) fn rule(percent_min: u8) -> RecordFileRule {
        RecordFileRule::Signers { books: Arc::new(AddressBooks::of(BOOK.as_bytes()).unwrap()), percent_min }
    }

    fn check(rule: &RecordFileRule, proof: &[u8]) -> Result<Evidence, RecordFileError> {
        rule.check(proof, 5, record_file_hash(&record_file()).as_ref())
    }

    #[test]
    fn a_proof_of_more_signatures_than_any_network_has_nodes_is_refused_whoever_asks() {
        let many = vec![(99, Vec::new()); 5_000];
        for rule in [RecordFileRule::Refuse, RecordFileRule::Unchecked, rule(0)] {
            let error = check(&rule, &proof(6, &many)).unwrap_err();
            assert!(matches!(error, RecordFileError::Wire(_)), "{rule:?}: {error}");
        }
    }

    #[test]
    fn signatures_that_openssl_has_made_are_valid_and_no_other_is() {
        let all = signatures();
        assert_eq!(all.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [0, 3, 7]);
        assert_eq!(check(&rule(100), &proof(6, &all)), Ok(Evidence::RecordFileSigned));
        for (node, signature) in &all {
            let mut one = [(*node, signature.clone())];
            assert_eq!(check(&rule(0), &proof(6, &one)), Ok(Evidence::RecordFileSigned), "node {node}");
            for place in [0, signature.len() / 2, signature.len() - 1] {
                one[0].1[place] ^= 0x10;
                assert_eq!(check(&rule(0), &proof(6, &one)), Err(RecordFileError::Invalid(*node)));
                one[0].1[place] ^= 0x10;
            }
            one[0].1.pop();
            assert_eq!(check(&rule(0), &proof(6, &one)), Err(RecordFileError::Invalid(*node)));
        }
    }

    #[test]
    fn one_invalid_signature_among_valid_ones_is_too_many_and_a_strange_node_is_none() {
        let all = signatures();
        let mut one_wrong = all.clone();
        one_wrong[1].1 = all[0].1.clone();
        assert_eq!(check(&rule(0), &proof(6, &one_wrong)), Err(RecordFileError::Invalid(3)));
        let strange = [(99, all[0].1.clone()), (3, vec![0; 384]), all[2].clone()];
        assert_eq!(check(&rule(0), &proof(6, &strange)), Ok(Evidence::RecordFileSigned));
        // Of three nodes 34 % are two.
        assert_eq!(check(&rule(34), &proof(6, &strange)), Err(RecordFileError::TooFew(1, 3, 2)));
        assert_eq!(check(&rule(33), &proof(6, &strange)), Ok(Evidence::RecordFileSigned));
        assert_eq!(check(&rule(0), &proof(6, &strange[..2])), Err(RecordFileError::TooFew(0, 3, 1)));
        assert_eq!(check(&rule(0), &proof(6, &[])), Err(RecordFileError::TooFew(0, 3, 1)));
        let twice = [all[0].clone(), all[0].clone()];
        assert_eq!(check(&rule(0), &proof(6, &twice)), Err(RecordFileError::Twice(0)));
    }

    #[test]
    fn what_cannot_be_checked_is_refused_and_never_called_valid() {
        let right = proof(6, &signatures());
        assert_eq!(check(&RecordFileRule::Refuse, &right), Err(RecordFileError::NoBooks));
        assert_eq!(check(&RecordFileRule::Unchecked, &right), Ok(Evidence::SignatureUnchecked));
        assert_eq!(check(&rule(0), &proof(5, &signatures())), Err(RecordFileError::Version(5)));
        assert_eq!(rule(0).check(&right, 5, None), Err(RecordFileError::NoContents));
        assert!(matches!(check(&rule(0), &[&right[..], &[0x18, 1]].concat()), Err(RecordFileError::Wire(_))));
        // Of contents that occur twice nobody knows which are signed.
        assert_eq!(record_file_hash(&[record_file(), record_file()].concat()), None);
        assert_eq!(record_file_hash(&[0x08, 1]), None);
        let mut changed = record_file();
        changed[20] ^= 1;
        assert_eq!(
            rule(0).check(&right, 5, record_file_hash(&changed).as_ref()),
            Err(RecordFileError::Invalid(0)),
            "other contents"
        );
    }

    #[test]
    fn address_books_hold_for_their_blocks() {
        let book = BOOK.trim();
        let history = |ranges: &[(u64, &str)]| {
            let books = ranges.iter().map(|(first, last)| {
                format!("{{\"addressBook\": {book}, \"startBlock\": \"{first}\", \"endBlock\": {last}}}")
            });
            AddressBooks::of(format!("{{\"addressBooks\": [{}]}}", books.collect::<Vec<_>>().join(",")).as_bytes())
        };
        let books = history(&[(0, "9"), (20, "\"29\""), (30, "0")]).unwrap();
        let known: Vec<bool> =
            [0, 9, 10, 19, 20, 29, 30, u64::MAX].map(|number| books.of_block(number).is_some()).into();
        assert_eq!(known, [true, true, false, false, true, true, true, true]);
        let right = proof(6, &signatures());
        let rule = RecordFileRule::Signers { books: Arc::new(books), percent_min: 0 };
        let hash = record_file_hash(&record_file());
        assert_eq!(rule.check(&right, 15, hash.as_ref()), Err(RecordFileError::NoBook(15)));
        for wrong in [&[(5, "9"), (9, "0")][..], &[(0, "0"), (5, "0")], &[(9, "5")]] {
            assert!(matches!(history(wrong), Err(AddressBookError::Ranges(_))), "{wrong:?}");
        }
        assert_eq!(history(&[]), Err(AddressBookError::Empty(0)));
    }

    #[test]
    fn a_file_that_is_no_address_book_is_refused_with_what_is_wrong() {
        let refused = |json: &str| AddressBooks::of(json.as_bytes()).unwrap_err().to_string();
        assert!(refused("[]").starts_with("not the JSON of an address book"));
        assert!(refused("{\"nodes\": []}").contains("nodeAddress"));
        assert!(refused("{\"nodeAddress\": []}").contains("no node with a key"));
        let node = |key: &str| format!("{{\"nodeAddress\": [{{\"nodeId\": 4, \"RSAPubKey\": \"{key}\"}}]}}");
        assert!(refused(&node("30f")).ends_with("it is not hexadecimal"));
        assert!(refused(&node("3000")).contains("node 4"));
        for line in REFUSED_KEYS.lines() {
            let (kind, key) = line.split_once(' ').unwrap();
            let said = if kind == "P-256" { "it is no RSA key" } else { "it must have 2048 to 8192 bits" };
            assert!(refused(&node(key)).ends_with(said), "{kind}: {}", refused(&node(key)));
        }
        let books = AddressBooks::of(BOOK.as_bytes()).unwrap();
        let key = &books.of_block(1).unwrap()[&3];
        assert_eq!(RsaKey::of(&bytes(&key.given())).as_ref(), Ok(key));
        // As mirror nodes write it.
        assert!(AddressBooks::of(node(&format!("0x{}", key.given())).as_bytes()).is_ok());
    }
}
