//! Proofs of blocks: which are accepted, and how much each proves. Nothing that was not checked is called checked.

use std::sync::Arc;

use crate::hash::{HASH_BYTES, Hash, sha384};
use crate::wire::{Fields, WireError, once};

/// Lengths of a TSS signature: verification key 1,096, BLS signature 1,632, and a Schnorr (192) or WRAPS (704) part.
const TSS_SIGNATURE_BYTES: [usize; 2] = [2_920, 3_432];

/// What is known of the signature of a block whose hash was verified; the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The hash alone: who made the block is not known. Only in tests.
    Dummy,
    /// A signature is there and was not checked.
    SignatureUnchecked,
    /// The signature is valid.
    SignatureValid,
}

impl Evidence {
    /// As it is told.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dummy => "hash verified, no signature",
            Self::SignatureUnchecked => "hash verified, signature unchecked",
            Self::SignatureValid => "hash verified, signature valid",
        }
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
    /// Checks all others.
    pub verifier: Arc<dyn SignatureVerifier>,
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
    #[error("a block proof has field {0}: only signed_block_proof (2) can be verified")]
    Kind(u32),
    /// Without a proof.
    #[error("a block proof has no signature")]
    Missing,
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
    /// Checks the content of a proof item.
    pub fn check(&self, proof: &[u8], number: u64, root: &Hash) -> Result<Evidence, ProofError> {
        const NAME: &str = "BlockProof";
        let (mut block, mut signed) = (None, None);
        for field in Fields::of(proof) {
            let field = field?;
            match field.number {
                1 => once(&mut block, field.varint(NAME)?, 1, NAME)?,
                2 => once(&mut signed, &proof[field.bytes(NAME)?], 2, NAME)?,
                other => return Err(ProofError::Kind(other)),
            }
        }
        match block.unwrap_or_default() {
            block if block == number => {}
            other => return Err(ProofError::OtherBlock(other)),
        }
        self.check_signature(signature(signed.ok_or(ProofError::Missing)?)?, root)
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
        ProofRules { accepts_dummy, verifier: Arc::new(Fixed(verdict)) }
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
        assert_eq!(rules(true, Verdict::Valid).check(&right, 9, &root), Ok(Evidence::Dummy));
        assert_eq!(rules(false, Verdict::Valid).check(&right, 9, &root), Err(ProofError::DummyRefused));
        assert_eq!(rules(true, Verdict::Valid).check(&right, 9, &[4; 48]), Err(ProofError::Invalid(48)));
        assert_eq!(rules(true, Verdict::Valid).check(&right, 8, &root), Err(ProofError::OtherBlock(9)));
    }

    #[test]
    fn a_signature_is_what_its_verifier_says() {
        let long = proof(1, &[0; 2_920]);
        let check = |verdict| rules(true, verdict).check(&long, 1, &[0; 48]);
        assert_eq!(check(Verdict::Valid), Ok(Evidence::SignatureValid));
        assert_eq!(check(Verdict::Unchecked), Ok(Evidence::SignatureUnchecked));
        assert_eq!(check(Verdict::Invalid), Err(ProofError::Invalid(2_920)));
        let short = proof(1, &[0; 2_919]);
        assert_eq!(rules(true, Verdict::Valid).check(&short, 1, &[0; 48]), Err(ProofError::Invalid(2_919)));
        assert_eq!(HashOnly.verify(&[0; 48], &[]), Verdict::Unchecked);
    }

    #[test]
    fn other_kinds_of_proofs_are_not_taken_for_granted() {
        let mut state_proof = vec![0x08, 1];
        put_bytes(&mut state_proof, 3, b"");
        assert_eq!(rules(true, Verdict::Valid).check(&state_proof, 1, &[0; 48]), Err(ProofError::Kind(3)));
        assert_eq!(rules(true, Verdict::Valid).check(&[0x08, 1], 1, &[0; 48]), Err(ProofError::Missing));
    }
}
