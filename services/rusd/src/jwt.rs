//! JSON web tokens as etcd makes and takes them. From etcd's `server/auth/{jwt,options}.go`.
//!
//! A token names a user and the revision of the users when it was made; whoever has the key may make one, and nothing is kept of
//! it. Signatures are ring's: `RS256` to `RS512`, `PS256` to `PS512`, `ES256`, `ES384`, `EdDSA`, `HS256` to `HS512`. `ES512` is
//! refused: ring has no P-521. RSA keys have 2048 bits at least.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::{hmac, signature};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Value, json};

use service_kit::der::{Der, from_subject};

mod keys;

use keys::{Pair, Public};

/// What `--auth-token=jwt,...` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// `pub-key`: a public key or a certificate, PEM.
    pub public_key: Option<PathBuf>,
    /// `priv-key`: a private key, PEM; for HS, the secret itself.
    pub private_key: Option<PathBuf>,
    /// `sign-method`.
    pub sign_method: String,
    /// `ttl`: how long tokens live.
    pub ttl: Duration,
}

/// Why tokens cannot be made or taken.
#[derive(Debug, thiserror::Error)]
#[error("--auth-token: {0}")]
pub struct JwtError(String);

fn refuse<T>(what: impl Into<String>) -> Result<T, JwtError> {
    Err(JwtError(what.into()))
}

/// How a token is signed.
#[derive(Clone, Copy)]
enum Method {
    Rsa(&'static signature::RsaParameters, &'static dyn signature::RsaEncoding),
    Ecdsa(&'static signature::EcdsaVerificationAlgorithm, &'static signature::EcdsaSigningAlgorithm),
    Ed,
    Hmac(hmac::Algorithm),
}

impl Method {
    fn of(name: &str) -> Result<Self, JwtError> {
        Ok(match name {
            "RS256" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256, &signature::RSA_PKCS1_SHA256),
            "RS384" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384, &signature::RSA_PKCS1_SHA384),
            "RS512" => Self::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512, &signature::RSA_PKCS1_SHA512),
            "PS256" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA256, &signature::RSA_PSS_SHA256),
            "PS384" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA384, &signature::RSA_PSS_SHA384),
            "PS512" => Self::Rsa(&signature::RSA_PSS_2048_8192_SHA512, &signature::RSA_PSS_SHA512),
            "ES256" => Self::Ecdsa(&signature::ECDSA_P256_SHA256_FIXED, &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => Self::Ecdsa(&signature::ECDSA_P384_SHA384_FIXED, &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            "ES512" => return refuse("sign-method ES512 is not supported by rusd; use ES256 or ES384"),
            "EdDSA" => Self::Ed,
            "HS256" => Self::Hmac(hmac::HMAC_SHA256),
            "HS384" => Self::Hmac(hmac::HMAC_SHA384),
            "HS512" => Self::Hmac(hmac::HMAC_SHA512),
            other => {
                return refuse(format!("expected sign-method RS256, ES256, EdDSA, HS256 or alike, found {other:?}"));
            }
        })
    }
}

/// Makes and takes tokens.
pub struct Jwt {
    name: String,
    method: Method,
    public: Public,
    pair: Option<Pair>,
    ttl: Duration,
    random: SystemRandom,
}

impl fmt::Debug for Jwt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Jwt").field("method", &self.name).finish_non_exhaustive()
    }
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The user.
    pub user: String,
    /// The revision of users and roles when it was made.
    pub auth_revision: u64,
}

impl Jwt {
    /// Reads the keys.
    pub fn open(settings: &JwtSettings) -> Result<Self, JwtError> {
        let read =
            |path: &PathBuf| std::fs::read(path).map_err(|error| JwtError(format!("{}: {error}", path.display())));
        let public = settings.public_key.as_ref().map(|path| Ok((path.as_path(), read(path)?))).transpose()?;
        let private = settings.private_key.as_ref().map(|path| Ok((path.as_path(), read(path)?))).transpose()?;
        let method = Method::of(&settings.sign_method)?;
        let (public, pair) = keys::of(method, public, private)?;
        let (name, ttl) = (settings.sign_method.clone(), settings.ttl);
        Ok(Self { name, method, public, pair, ttl, random: SystemRandom::new() })
    }

    /// A token of this user; `None`: there is only a public key.
    pub fn make(&self, claims: &Claims, now_millis: u64) -> Option<String> {
        let expires = (u128::from(now_millis) + self.ttl.as_millis()) / 1000;
        let head = json!({ "alg": self.name, "typ": "JWT" });
        let body = json!({ "exp": expires as u64, "revision": claims.auth_revision, "username": claims.user });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", encode(&head), encode(&body));
        let signature = self.pair.as_ref()?.sign(self.method, token.as_bytes(), &self.random)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }

    /// Whose token it is, if its signature is right and its time has not come.
    pub fn check(&self, token: &str, now_millis: u64) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, body) = signed.split_once('.')?;
        let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // A token does not choose how it is checked.
        if head.get("alg")?.as_str()? != self.name || !self.public.verify(signed.as_bytes(), &signature) {
            return None;
        }
        let body: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        let now = now_millis as f64 / 1000.0;
        let is_number = |name: &str| body.get(name).map(Value::as_f64);
        let (expires, begins) = (is_number("exp"), is_number("nbf"));
        if expires.is_some_and(|at| at.is_none_or(|at| at <= now))
            || begins.is_some_and(|at| at.is_none_or(|at| at > now))
        {
            return None;
        }
        let user = body.get("username")?.as_str()?.to_owned();
        let auth_revision = body.get("revision")?.as_f64()? as u64;
        Some(Claims { user, auth_revision })
    }
}

/// The sections of a PEM file.
fn sections(path: &Path, text: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, JwtError> {
    let found = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => refuse(format!("{} has no key in PEM form", path.display())),
        Ok(found) => Ok(found),
        Err(error) => refuse(format!("{}: {error}", path.display())),
    }
}

/// The key in a `SubjectPublicKeyInfo`.
fn key_of(info: &[u8]) -> Option<Vec<u8>> {
    let mut info = Der(Der(info).enter(0x30)?);
    info.enter(0x30)?;
    // The first byte counts unused bits: there are none.
    info.enter(0x03)?.strip_prefix(&[0]).map(<[u8]>::to_vec)
}

/// The `SubjectPublicKeyInfo` in a certificate, without its head.
fn key_of_certificate(certificate: &[u8]) -> Option<Vec<u8>> {
    let mut body = from_subject(certificate)?;
    body.enter(0x30)?;
    key_of(body.0)
}

#[cfg(test)]
mod tests;
