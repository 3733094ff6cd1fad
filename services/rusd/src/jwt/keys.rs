//! Keys from files, and what is done with them.

use std::path::Path;

use ring::rand::SystemRandom;
use ring::signature::{EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm};
use ring::{hmac, signature};
use rustls::pki_types::pem::SectionKind;
use service_kit::der::Der;

use super::{JwtError, Method, key_of, key_of_certificate, refuse, sections};

/// A file and what it holds.
type File<'a> = (&'a Path, Vec<u8>);

/// What signs.
pub(super) enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Hmac(hmac::Key),
}

/// What checks.
pub(super) enum Public {
    Key(UnparsedPublicKey<Vec<u8>>),
    Secret(hmac::Key),
}

impl Public {
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Key(key) => key.verify(message, signature).is_ok(),
            Self::Secret(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

impl Pair {
    pub(super) fn sign(&self, method: Method, message: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match (self, method) {
            (Self::Rsa(pair), Method::Rsa(_, encoding)) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, random, message, &mut signature).ok()?;
                Some(signature)
            }
            (Self::Ecdsa(pair), _) => Some(pair.sign(random, message).ok()?.as_ref().to_vec()),
            (Self::Ed(pair), _) => Some(pair.sign(message).as_ref().to_vec()),
            (Self::Hmac(key), _) => Some(hmac::sign(key, message).as_ref().to_vec()),
            (Self::Rsa(_), _) => None,
        }
    }

    fn public(&self) -> Vec<u8> {
        match self {
            Self::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ed(pair) => pair.public_key().as_ref().to_vec(),
            Self::Hmac(_) => Vec::new(),
        }
    }
}

/// The keys of a method. Where there is a private one, the public one follows from it, and must be the one that is given.
pub(super) fn of(
    method: Method,
    public: Option<File<'_>>,
    private: Option<File<'_>>,
) -> Result<(Public, Option<Pair>), JwtError> {
    let algorithm: &'static dyn VerificationAlgorithm = match method {
        Method::Hmac(algorithm) => {
            let Some((_, secret)) = private.filter(|(_, secret)| !secret.is_empty()) else {
                return refuse("jwt with an HS method needs priv-key, a file with the secret");
            };
            let key = hmac::Key::new(algorithm, &secret);
            return Ok((Public::Secret(key.clone()), Some(Pair::Hmac(key))));
        }
        Method::Rsa(parameters, _) => parameters,
        Method::Ecdsa(parameters, _) => parameters,
        Method::Ed => &signature::ED25519,
    };
    let given = public.map(public_key).transpose()?;
    let pair = private.map(|file| private_key(method, file)).transpose()?;
    let key = match (given, &pair) {
        (None, None) => return refuse("jwt needs pub-key to check tokens, or priv-key to make them as well"),
        (Some(given), None) => given,
        (None, Some(pair)) => pair.public(),
        (Some(given), Some(pair)) if given == pair.public() => given,
        (Some(_), Some(_)) => return refuse("pub-key and priv-key do not belong together"),
    };
    Ok((Public::Key(UnparsedPublicKey::new(algorithm, key)), pair))
}

fn public_key((path, text): File<'_>) -> Result<Vec<u8>, JwtError> {
    let key = sections(path, &text)?.into_iter().find_map(|(kind, der)| match kind {
        SectionKind::PublicKey => key_of(&der),
        SectionKind::Certificate => key_of_certificate(&der),
        _ => None,
    });
    key.ok_or_else(|| JwtError(format!("{} has no public key and no certificate", path.display())))
}

fn private_key(method: Method, (path, text): File<'_>) -> Result<Pair, JwtError> {
    let wrong = |what: &str| JwtError(format!("{}: {what}", path.display()));
    let random = SystemRandom::new();
    for (kind, der) in sections(path, &text)? {
        let pair = match (method, kind) {
            (Method::Rsa(..), SectionKind::PrivateKey) => {
                RsaKeyPair::from_pkcs8(&der).map(|pair| Pair::Rsa(pair.into()))
            }
            (Method::Rsa(..), SectionKind::RsaPrivateKey) => {
                RsaKeyPair::from_der(&der).map(|pair| Pair::Rsa(pair.into()))
            }
            (Method::Ecdsa(_, algorithm), SectionKind::PrivateKey) => {
                EcdsaKeyPair::from_pkcs8(algorithm, &der, &random).map(Pair::Ecdsa)
            }
            (Method::Ecdsa(_, algorithm), SectionKind::EcPrivateKey) => {
                let (scalar, point) = sec1(&der).ok_or_else(|| wrong("the EC key cannot be read"))?;
                EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, point, &random).map(Pair::Ecdsa)
            }
            (Method::Ed, SectionKind::PrivateKey) => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map(Pair::Ed),
            _ => continue,
        };
        return pair.map_err(|refused| wrong(&format!("the key cannot be used with this sign-method: {refused}")));
    }
    Err(wrong("has no private key for this sign-method"))
}

/// The private and the public part of an `ECPrivateKey` of RFC 5915.
fn sec1(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut key = Der(Der(der).enter(0x30)?);
    key.enter(0x02)?;
    let scalar = key.enter(0x04)?;
    if key.0.first() == Some(&0xa0) {
        key.enter(0xa0)?;
    }
    let point = Der(key.enter(0xa1)?).enter(0x03)?.strip_prefix(&[0])?;
    Some((scalar, point))
}
