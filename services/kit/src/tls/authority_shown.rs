//! Certificates that are trusted themselves, or may sign others (`CA:TRUE`), and are shown by who connects or is connected to. `webpki`
//! takes none of the latter; Go's verifier does, and `openssl req -x509` makes them unless it is told not to.
//!
//! Of what Go's `x509.Certificate.Verify` takes, a certificate is taken that is itself one of the trusted ones, or that one of these has
//! signed itself: between them may be no other. A trusted one with name constraints signs none of them, nor does one with SHA-1. And what
//! is trusted but may sign nothing, signs nothing, which `webpki` would not notice.

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{CertificateError, Error, ExtendedKeyPurpose};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

/// What certificates are shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Client,
    Server,
}

/// Who is trusted, and which certificates are not any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Trusted {
    pub(super) roots: Vec<CertificateDer<'static>>,
    pub(super) revocations: Vec<CertificateRevocationListDer<'static>>,
}

impl Trusted {
    /// Those who may sign others.
    pub(super) fn signers(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.roots.iter().filter(|root| X509Certificate::from_der(root).is_ok_and(|(_, root)| may_sign(&root)))
    }

    /// Checks a certificate that is trusted itself, or may sign others; `None`: it is neither, and somebody else checks it.
    pub(super) fn check(
        &self,
        shown: &CertificateDer<'_>,
        purpose: Purpose,
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        let (_, certificate) = X509Certificate::from_der(shown).ok()?;
        let is_mine = certificate.is_ca() || self.roots.iter().any(|root| root == shown);
        is_mine.then(|| self.check_authority(shown, &certificate, purpose, now).map_err(Error::from))
    }

    fn check_authority(
        &self,
        shown: &CertificateDer<'_>,
        certificate: &X509Certificate<'_>,
        purpose: Purpose,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        check_validity(certificate, purpose, now)?;
        if self.is_revoked(certificate) {
            return Err(CertificateError::Revoked);
        }
        if self.roots.iter().any(|root| root == shown) {
            return Ok(());
        }
        let mut found = Err(CertificateError::UnknownIssuer);
        for root in &self.roots {
            let Ok((_, root)) = X509Certificate::from_der(root) else { continue };
            if root.subject().as_raw() != certificate.issuer().as_raw() {
                continue;
            }
            found = check_validity(&root, purpose, now).and_then(|()| check_signed(certificate, &root));
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// As etcd: by its number, whoever has written the list.
    fn is_revoked(&self, certificate: &X509Certificate<'_>) -> bool {
        self.revocations.iter().any(|list| match CertificateRevocationList::from_der(list) {
            Ok((_, list)) => list.iter_revoked_certificates().any(|revoked| revoked.serial() == &certificate.serial),
            // It was read before; what cannot be read clears nobody.
            Err(_) => true,
        })
    }
}

/// What must hold for each certificate of a chain.
fn check_validity(certificate: &X509Certificate<'_>, purpose: Purpose, now: UnixTime) -> Result<(), CertificateError> {
    let seconds = i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    let now = seconds.ok_or(CertificateError::BadEncoding)?;
    if now < certificate.validity().not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after {
        return Err(CertificateError::Expired);
    }
    // An extension that stands there twice says two things.
    certificate.extensions_map().map_err(|_| CertificateError::BadEncoding)?;
    for extension in certificate.extensions() {
        let is_understood = match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(_)
            | ParsedExtension::KeyUsage(_)
            | ParsedExtension::SubjectAlternativeName(_) => true,
            ParsedExtension::ExtendedKeyUsage(usage) => {
                let is_for_it =
                    usage.any || if purpose == Purpose::Client { usage.client_auth } else { usage.server_auth };
                if !is_for_it {
                    return Err(CertificateError::InvalidPurposeContext {
                        required: match purpose {
                            Purpose::Client => ExtendedKeyPurpose::ClientAuth,
                            Purpose::Server => ExtendedKeyPurpose::ServerAuth,
                        },
                        presented: Vec::new(),
                    });
                }
                true
            }
            _ => false,
        };
        if extension.critical && !is_understood {
            return Err(CertificateError::UnhandledCriticalExtension);
        }
    }
    Ok(())
}

/// As Go sees it: certificates of the first version cannot say so.
fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let is_authority = certificate.is_ca() || certificate.version() != X509Version::V3;
    let has_usage = certificate.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    is_authority && has_usage
}

/// Whether this root has signed it, and may.
fn check_signed(certificate: &X509Certificate<'_>, root: &X509Certificate<'_>) -> Result<(), CertificateError> {
    let is_unbounded = root.name_constraints().is_ok_and(|constraints| constraints.is_none());
    if !may_sign(root) || !is_unbounded {
        return Err(CertificateError::UnknownIssuer);
    }
    let algorithm = &certificate.signature_algorithm.algorithm;
    if *algorithm == OID_PKCS1_SHA1WITHRSA || *algorithm == OID_SHA1_WITH_RSA {
        return Err(CertificateError::BadSignature);
    }
    certificate.verify_signature(Some(root.public_key())).map_err(|_| CertificateError::BadSignature)
}
