//! Proofs of blocks: which are accepted, and how much each proves. Nothing that was not checked is called checked.

use std::sync::Arc;

use super::{Footer, RecordFileError, RecordFileRule};
use crate::hash::{HASH_BYTES, Hash, sha384};
use crate::wire::{Fields, WireError, once};

/// Lengths of a TSS signature: verification key 1,096, BLS signature 1,632, and a Schnorr (192) or WRAPS (704) part.
const TSS_SIGNATURE_BYTES: [usize; 2] = [2_920, 3_432];

/// What is known of the signature of a block whose hash was verified. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The hash alone: who made the block is not known. Only in tests.
    Dummy = 0,
    /// A signature is there and was not checked.
    SignatureUnchecked = 1,
    /// The signature is valid.
    SignatureValid = 2,
    /// Signatures of the record file in it are valid, which are not over header and footer.
    RecordFileSigned = 3,
}

impl Evidence {
    /// As it is told.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dummy => "hash verified, no signature",
            Self::SignatureUnchecked => "hash verified, signature unchecked",
            Self::SignatureValid => "hash verified, signature valid",
            Self::RecordFileSigned => "hash verified, signatures of the record file valid",
        }
    }

    /// What has this number on disk.
    pub fn stored(number: u8) -> Option<Self> {
        let all = [Self::Dummy, Self::SignatureUnchecked, Self::SignatureValid, Self::RecordFileSigned];
        all.into_iter().find(|evidence| *evidence as u8 == number)
    }

    /// Whether it proves as much as another.
    pub fn is_as_strong_as(self, other: Self) -> bool {
        self.strength() >= other.strength()
    }

    fn strength(self) -> u8 {
        match self {
            Self::Dummy => 0,
            Self::SignatureUnchecked => 1,
            Self::RecordFileSigned => 2,
            Self::SignatureValid => 3,
        }
    }

    /// Of two proofs of a block what proves more.
    pub fn stronger(self, other: Self) -> Self {
        if other.strength() > self.strength() { other } else { self }
    }
}

/// What a verifier says of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is valid.
    Valid,
    /// It is not.
    Invalid,
    /// This verifier cannot tell.
    Unchecked,
}

/// Checks TSS signatures over root hashes.
pub trait SignatureVerifier: Send + Sync {
    /// Looks at a signature of a plausible length.
    fn verify(&self, root: &Hash, signature: &[u8]) -> Verdict;
}

/// Checks no signature, and says so.
#[derive(Clone, Copy, Debug)]
pub struct HashOnly;

impl SignatureVerifier for HashOnly {
    fn verify(&self, _root: &Hash, _signature: &[u8]) -> Verdict {
        Verdict::Unchecked
    }
}

/// Which proofs are accepted.
#[derive(Clone)]
pub struct ProofRules {
    /// Whether the SHA-384 of the root is accepted in a signature's place.
    pub accepts_dummy: bool,
    /// Checks TSS signatures.
    pub verifier: Arc<dyn SignatureVerifier>,
    /// Checks signatures of record files.
    pub record_files: RecordFileRule,
}

/// The block of a proof.
#[derive(Clone, Copy, Debug)]
pub struct Proven<'a> {
    /// Its number.
    pub number: u64,
    /// Its root hash.
    pub root: &'a Hash,
    /// Whether it holds a record file, of whatever content.
    pub has_record_file: bool,
    /// What nodes sign of its record file; `None`: it has none, or none that can be signed.
    pub record_file: Option<&'a Hash>,
}

/// A proof that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It is no message.
    #[error("a block proof is not protobuf: {0}")]
    Wire(#[from] WireError),
    /// Of another block.
    #[error("a block proof is for block {0}")]
    OtherBlock(u64),
    /// Of a kind that is not implemented.
    #[error("a block proof has field {0}: only signed_block_proof (2) and signed_record_file_proof (4) are known here")]
    Kind(u32),
    /// Of a record file.
    #[error("{0}")]
    RecordFile(#[from] RecordFileError),
    /// Nobody can check it, and the block has something that can be checked.
    #[error(
        "the block holds a record file: signed_record_file_proof (4) must prove it, not a signed_block_proof (2) that nobody checks"
    )]
    NotOfRecordFile,
    /// Two kinds at once.
    #[error("a block proof has more than one kind of proof")]
    Several,
    /// Without a proof.
    #[error("a block proof has no signature")]
    Missing,
    /// Without a hash that it must have.
    #[error("a block proof has no {0} of 48 bytes, which a block of its time must have")]
    MissingHash(&'static str),
    /// Not the signature of this root.
    #[error("the signature of {0} bytes is not one of the block's root hash, which was computed from its items")]
    Invalid(usize),
    /// Would be accepted with another setting.
    #[error("the signature is the hash of the root hash, which proves no origin; --accept-dummy-proofs accepts it")]
    DummyRefused,
}

/// What a test network puts in a signature's place.
pub fn dummy(root: &Hash) -> Hash {
    sha384(&[root])
}

impl ProofRules {
    /// For blocks that are published: no signature of a block is checked, and those of record files as the rule says.
    pub fn published(accepts_dummy: bool, record_files: RecordFileRule) -> Self {
        Self { accepts_dummy, verifier: Arc::new(HashOnly), record_files }
    }

    /// For blocks that were accepted before, here or elsewhere: which proofs are good enough was decided then. Their hashes are compared.
    pub fn accepted_before() -> Self {
        Self::published(true, RecordFileRule::Unchecked)
    }

    /// Checks the content of a proof item.
    pub fn check(&self, proof: &[u8], of: Proven<'_>) -> Result<Evidence, ProofError> {
        const NAME: &str = "BlockProof";
        let (mut block, mut signed, mut record_file) = (None, None, None);
        for field in Fields::of(proof) {
            let field = field?;
            match field.number {
                1 => once(&mut block, field.varint(NAME)?, 1, NAME)?,
                2 => once(&mut signed, &proof[field.bytes(NAME)?], 2, NAME)?,
                4 => once(&mut record_file, &proof[field.bytes(NAME)?], 4, NAME)?,
                other => return Err(ProofError::Kind(other)),
            }
        }
        match block.unwrap_or_default() {
            block if block == of.number => {}
            other => return Err(ProofError::OtherBlock(other)),
        }
        match (signed, record_file) {
            (Some(signed), None) => match self.check_signature(signature(signed)?, of.root)? {
                // Or whoever has no key would choose the kind of proof that needs none.
                Evidence::SignatureUnchecked if of.has_record_file && !self.record_files.takes_unchecked() => {
                    Err(ProofError::NotOfRecordFile)
                }
                evidence => Ok(evidence),
            },
            (None, Some(record_file)) => Ok(self.record_files.check(record_file, of.number, of.record_file)?),
            (Some(_), Some(_)) => Err(ProofError::Several),
            (None, None) => Err(ProofError::Missing),
        }
    }

    /// Checks the proof of a block of the time of two trees.
    pub fn check_old(&self, proof: &OldProof, number: u64, root: &Hash) -> Result<Evidence, ProofError> {
        match proof.block {
            block if block == number => {}
            other => return Err(ProofError::OtherBlock(other)),
        }
        match proof.signature.len() {
            // Nothing is known of what else stood there at that time.
            HASH_BYTES => self.check_signature(&proof.signature, root),
            length => Err(ProofError::Invalid(length)),
        }
    }

    fn check_signature(&self, signature: &[u8], root: &Hash) -> Result<Evidence, ProofError> {
        let length = signature.len();
        if length == HASH_BYTES {
            return match (signature == dummy(root), self.accepts_dummy) {
                (true, true) => Ok(Evidence::Dummy),
                (true, false) => Err(ProofError::DummyRefused),
                (false, _) => Err(ProofError::Invalid(length)),
            };
        }
        if !TSS_SIGNATURE_BYTES.contains(&length) {
            return Err(ProofError::Invalid(length));
        }
        match self.verifier.verify(root, signature) {
            Verdict::Valid => Ok(Evidence::SignatureValid),
            Verdict::Unchecked => Ok(Evidence::SignatureUnchecked),
            Verdict::Invalid => Err(ProofError::Invalid(length)),
        }
    }
}

/// The proof of a block of the time of two trees (block node 0.13 and 0.14), which is its footer as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldProof {
    block: u64,
    /// What it says of the block before.
    pub footer: Footer,
    signature: Vec<u8>,
}

impl OldProof {
    /// Reads the content of a proof item: block (1), previous_block_root_hash (2), start_of_block_state_root_hash (3), block_signature (4),
    /// scheme_id (6). A proof that is of another block, and leads to this one by sibling_hashes (5), is refused, and so is one that
    /// brings its own verification_key (7).
    pub fn of(content: &[u8]) -> Result<Self, ProofError> {
        const NAME: &str = "BlockProof";
        let (mut block, mut previous, mut state, mut signature, mut scheme) = (None, None, None, None, None);
        for field in Fields::of(content) {
            let field = field?;
            match field.number {
                1 => once(&mut block, field.varint(NAME)?, 1, NAME)?,
                2 => once(&mut previous, &content[field.bytes(NAME)?], 2, NAME)?,
                3 => once(&mut state, &content[field.bytes(NAME)?], 3, NAME)?,
                4 => once(&mut signature, &content[field.bytes(NAME)?], 4, NAME)?,
                6 => once(&mut scheme, field.varint(NAME)?, 6, NAME)?,
                other => return Err(ProofError::Kind(other)),
            }
        }
        let hash = |bytes: Option<&[u8]>, name| {
            bytes.and_then(|bytes| <Hash>::try_from(bytes).ok()).ok_or(ProofError::MissingHash(name))
        };
        let footer = Footer {
            previous_root: hash(previous, "previous_block_root_hash (2)")?,
            all_previous_root: None,
            state_root: Some(hash(state, "start_of_block_state_root_hash (3)")?),
        };
        let signature = signature.ok_or(ProofError::Missing)?.to_vec();
        Ok(Self { block: block.unwrap_or_default(), footer, signature })
    }
}

/// The signature over the root hash in the content of a proof item; `None`: it has none, being of another kind or time.
pub fn signature_of(proof: &[u8]) -> Option<Vec<u8>> {
    let signed = Fields::of(proof).find_map(|field| field.ok().filter(|field| field.number == 2))?;
    signature(&proof[signed.bytes("BlockProof").ok()?]).ok().map(<[u8]>::to_vec)
}

/// The signature in a `SignedBlockProof`.
fn signature(signed: &[u8]) -> Result<&[u8], ProofError> {
    const NAME: &str = "SignedBlockProof";
    let mut signature = None;
    for field in Fields::of(signed) {
        let field = field?;
        match field.number {
            1 => once(&mut signature, &signed[field.bytes(NAME)?], 1, NAME)?,
            other => return Err(ProofError::Kind(other)),
        }
    }
    signature.ok_or(ProofError::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{put_bytes, put_varint};

    struct Fixed(Verdict);

    impl SignatureVerifier for Fixed {
        fn verify(&self, _root: &Hash, _signature: &[u8]) -> Verdict {
            self.0
        }
    }

    fn rules(accepts_dummy: bool, verdict: Verdict) -> ProofRules {
        ProofRules { accepts_dummy, verifier: Arc::new(Fixed(verdict)), record_files: RecordFileRule::Refuse }
    }

    fn proven(number: u64, root: &Hash) -> Proven<'_> {
        Proven { number, root, has_record_file: false, record_file: None }
    }

    fn proof(block: u64, signature: &[u8]) -> Vec<u8> {
        let (mut signed, mut proof) = (Vec::new(), vec![0x08]);
        put_bytes(&mut signed, 1, signature);
        put_varint(&mut proof, block);
        put_bytes(&mut proof, 2, &signed);
        proof
    }

    #[test]
    fn a_dummy_is_accepted_where_that_was_asked_for_and_only_for_its_root() {
        let root = [3; 48];
        let right = proof(9, &dummy(&root));
        assert_eq!(rules(true, Verdict::Valid).check(&right, proven(9, &root)), Ok(Evidence::Dummy));
        assert_eq!(rules(false, Verdict::Valid).check(&right, proven(9, &root)), Err(ProofError::DummyRefused));
        assert_eq!(rules(true, Verdict::Valid).check(&right, proven(9, &[4; 48])), Err(ProofError::Invalid(48)));
        assert_eq!(rules(true, Verdict::Valid).check(&right, proven(8, &root)), Err(ProofError::OtherBlock(9)));
    }

    #[test]
    fn a_proof_of_the_time_of_two_trees_is_a_footer_too_and_only_the_dummy_is_accepted() {
        let root = [3; 48];
        let old = |signature: &[u8], hash_bytes: usize| {
            let mut proof = vec![0x08, 9];
            put_bytes(&mut proof, 2, &vec![1; hash_bytes]);
            put_bytes(&mut proof, 3, &[2; 48]);
            put_bytes(&mut proof, 4, signature);
            proof
        };
        let read = OldProof::of(&old(&dummy(&root), 48)).unwrap();
        let footer = Footer { previous_root: [1; 48], all_previous_root: None, state_root: Some([2; 48]) };
        assert_eq!(read.footer, footer);
        assert_eq!(rules(true, Verdict::Valid).check_old(&read, 9, &root), Ok(Evidence::Dummy));
        assert_eq!(rules(false, Verdict::Valid).check_old(&read, 9, &root), Err(ProofError::DummyRefused));
        assert_eq!(rules(true, Verdict::Valid).check_old(&read, 8, &root), Err(ProofError::OtherBlock(9)));
        assert_eq!(rules(true, Verdict::Valid).check_old(&read, 9, &[4; 48]), Err(ProofError::Invalid(48)));
        // Long enough for today's signature.
        let long = OldProof::of(&old(&[0; 2_920], 48)).unwrap();
        assert_eq!(rules(true, Verdict::Valid).check_old(&long, 9, &root), Err(ProofError::Invalid(2_920)));
        assert!(matches!(OldProof::of(&old(&[], 47)), Err(ProofError::MissingHash(_))));
        let mut siblings = old(&dummy(&root), 48);
        put_bytes(&mut siblings, 5, b"");
        assert_eq!(OldProof::of(&siblings), Err(ProofError::Kind(5)));
    }

    #[test]
    fn a_signature_is_what_its_verifier_says() {
        let long = proof(1, &[0; 2_920]);
        let check = |verdict| rules(true, verdict).check(&long, proven(1, &[0; 48]));
        assert_eq!(check(Verdict::Valid), Ok(Evidence::SignatureValid));
        assert_eq!(check(Verdict::Unchecked), Ok(Evidence::SignatureUnchecked));
        assert_eq!(check(Verdict::Invalid), Err(ProofError::Invalid(2_920)));
        let short = proof(1, &[0; 2_919]);
        assert_eq!(rules(true, Verdict::Valid).check(&short, proven(1, &[0; 48])), Err(ProofError::Invalid(2_919)));
        assert_eq!(HashOnly.verify(&[0; 48], &[]), Verdict::Unchecked);
    }

    #[test]
    fn a_signature_of_a_record_files_block_counts_when_its_verifier_has_checked_it() {
        let long = proof(1, &[0; 2_920]);
        let of = Proven { has_record_file: true, ..proven(1, &[0; 48]) };
        assert_eq!(rules(true, Verdict::Valid).check(&long, of), Ok(Evidence::SignatureValid));
        assert_eq!(rules(true, Verdict::Unchecked).check(&long, of), Err(ProofError::NotOfRecordFile));
        assert_eq!(rules(true, Verdict::Invalid).check(&long, of), Err(ProofError::Invalid(2_920)));
    }

    #[test]
    fn other_kinds_of_proofs_are_not_taken_for_granted() {
        let mut state_proof = vec![0x08, 1];
        put_bytes(&mut state_proof, 3, b"");
        assert_eq!(rules(true, Verdict::Valid).check(&state_proof, proven(1, &[0; 48])), Err(ProofError::Kind(3)));
        assert_eq!(rules(true, Verdict::Valid).check(&[0x08, 1], proven(1, &[0; 48])), Err(ProofError::Missing));
        let mut two = proof(1, &[0; 2_920]);
        put_bytes(&mut two, 4, b"");
        assert_eq!(rules(true, Verdict::Valid).check(&two, proven(1, &[0; 48])), Err(ProofError::Several));
    }

    #[test]
    fn of_two_proofs_what_proves_more_counts() {
        use Evidence::{Dummy, RecordFileSigned, SignatureUnchecked, SignatureValid};
        let ascending = [Dummy, SignatureUnchecked, RecordFileSigned, SignatureValid];
        for (index, weak) in ascending.into_iter().enumerate() {
            for strong in &ascending[index..] {
                assert_eq!((weak.stronger(*strong), strong.stronger(weak)), (*strong, *strong));
            }
        }
    }
}
