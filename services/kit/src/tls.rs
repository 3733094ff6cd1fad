//! TLS for those who connect and for those who are connected to: certificates from files, read again when they change, without a
//! restart.

mod authority_shown;
mod files;
mod names;
mod self_signed;
mod verifier;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use authority_shown::Trusted;
pub use files::{ClientTlsFiles, Protocol, SUITES, SelfSigned, TlsFiles};
pub use names::AllowedNames;
use verifier::{Verifier, Whom};

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is wrong with a certificate file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    Read(String, rustls::pki_types::pem::Error),
    /// It holds nothing.
    #[error("{0} has no certificate in PEM form")]
    Empty(String),
    /// It is a list of revoked certificates, and cannot be used.
    #[error("{0} cannot be used as a list of revoked certificates, of version 2, in PEM or DER form: {1}")]
    Revocations(String, String),
    /// It cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Make(String),
    /// It cannot be used.
    #[error("certificates cannot be used: {0}")]
    Refused(String),
}

/// The configuration of now, for those who are connected to.
pub type Tls = Renewed<ServerConfig>;

/// The configuration of now, for those who connect.
pub type ClientTls = Renewed<ClientConfig>;

/// A configuration made of files.
pub struct Renewed<T> {
    paths: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    current: Mutex<Current<T>>,
}

struct Current<T> {
    config: Arc<T>,
    looked_at: Instant,
    changed_at: Vec<Option<SystemTime>>,
    /// They have changed to this and could not be used, which was told.
    refused_at: Option<Vec<Option<SystemTime>>>,
}

impl Tls {
    /// Reads the files, and makes them first if that was asked for.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        Self::open_allowing(files, AllowedNames::Any)
    }

    /// The same, and takes those, too, who show no certificate. One that is shown is checked.
    pub fn open_optional(files: TlsFiles) -> Result<Self, TlsError> {
        Self::open_as(files, AllowedNames::Any, true)
    }

    /// The same, and takes only these names of those that the clients' authority has signed.
    pub fn open_allowing(files: TlsFiles, allowed: AllowedNames) -> Result<Self, TlsError> {
        Self::open_as(files, allowed, false)
    }

    fn open_as(files: TlsFiles, allowed: AllowedNames, is_lenient: bool) -> Result<Self, TlsError> {
        if let Some(wanted) = &files.self_signed {
            self_signed::make(&files, wanted)?;
        }
        let mut paths = vec![files.certificate.clone(), files.key.clone()];
        paths.extend(files.client_authority.clone());
        paths.extend(files.revocations.clone());
        Self::of(paths, move || read(&files, &allowed, is_lenient))
    }
}

impl ClientTls {
    /// Reads the files.
    pub fn open(files: ClientTlsFiles) -> Result<Self, TlsError> {
        Self::open_allowing(files, AllowedNames::Any)
    }

    /// The same, and takes a certificate whatever host it is for: for those who know their peers by their authority alone.
    pub fn open_for_any_host(files: ClientTlsFiles) -> Result<Self, TlsError> {
        Self::open_as(files, AllowedNames::Any, true)
    }

    /// The same, and takes only these names of those that the servers' authority has signed.
    pub fn open_allowing(files: ClientTlsFiles, allowed: AllowedNames) -> Result<Self, TlsError> {
        Self::open_as(files, allowed, false)
    }

    fn open_as(files: ClientTlsFiles, allowed: AllowedNames, is_lenient: bool) -> Result<Self, TlsError> {
        let mut paths = Vec::new();
        paths.extend(files.authority.clone());
        if let Some((certificate, key)) = &files.certificate {
            paths.extend([certificate.clone(), key.clone()]);
        }
        Self::of(paths, move || read_client(&files, &allowed, is_lenient))
    }
}

impl<T> Renewed<T> {
    fn of(
        paths: Vec<PathBuf>,
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let changed_at = changed_at(&paths);
        let config = Arc::new(read()?);
        let current = Mutex::new(Current { config, looked_at: Instant::now(), changed_at, refused_at: None });
        Ok(Self { paths, read: Box::new(read), current })
    }

    /// For the next connection. Files that have changed and cannot be used are left for what was there before, with a warning, and looked
    /// at again: what could not be read may be read later.
    pub fn config(&self) -> Arc<T> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked_at.elapsed() >= LOOK_EVERY {
            current.looked_at = Instant::now();
            let changed_at = changed_at(&self.paths);
            if changed_at != current.changed_at {
                match (self.read)() {
                    Ok(config) => {
                        current.config = Arc::new(config);
                        current.changed_at = changed_at;
                        current.refused_at = None;
                    }
                    Err(error) => {
                        if current.refused_at.as_ref() != Some(&changed_at) {
                            tracing::warn!(%error, "certificates were changed and cannot be used; the old ones stay");
                        }
                        current.refused_at = Some(changed_at);
                    }
                }
            }
        }
        Arc::clone(&current.config)
    }
}

fn changed_at(paths: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let time = |path: &PathBuf| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    paths.iter().map(time).collect()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let name = path.display().to_string();
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(TlsError::Empty(name)),
        Ok(found) => Ok(found),
        Err(error) => Err(TlsError::Read(name, error)),
    }
}

fn read(files: &TlsFiles, allowed: &AllowedNames, is_lenient: bool) -> Result<ServerConfig, TlsError> {
    let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    let provider = provider(&files.protocol);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(&files.protocol))
        .map_err(|error| refused(&error))?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let revocations = files.revocations.as_deref().map(|path| revocations(path)).transpose()?;
            let trusted = Trusted { roots: certificates(path)?, revocations: revocations.unwrap_or_default() };
            let algorithms = provider.signature_verification_algorithms;
            let by_authority = roots(&trusted)?.map(|roots| -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                Ok(match &files.revocations {
                    None => verifier.build().map_err(|error| refused(&error))?,
                    Some(path) => {
                        // As in etcd: whoever no list speaks of is taken, and a list does not expire.
                        let verifier =
                            verifier.with_crls(trusted.revocations.clone()).allow_unknown_revocation_status();
                        verifier.build().map_err(|error| unusable_revocations(path, &error))?
                    }
                })
            });
            let by_authority = by_authority.transpose()?;
            let whom = Whom::Trusted { trusted, by_authority, allowed: allowed.clone() };
            builder.with_client_cert_verifier(Arc::new(Verifier { whom, algorithms, is_lenient }))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| refused(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read_client(files: &ClientTlsFiles, allowed: &AllowedNames, is_lenient: bool) -> Result<ClientConfig, TlsError> {
    let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
    let provider = provider(&files.protocol);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(&files.protocol))
        .map_err(|error| refused(&error))?;
    let algorithms = provider.signature_verification_algorithms;
    let whom = match &files.authority {
        Some(authority) => {
            let trusted = Trusted { roots: certificates(authority)?, revocations: Vec::new() };
            let by_authority = roots(&trusted)?.map(|roots| -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
                Ok(verifier.build().map_err(|error| refused(&error))?)
            });
            Whom::Trusted { trusted, by_authority: by_authority.transpose()?, allowed: allowed.clone() }
        }
        None => Whom::Anybody,
    };
    // No less is checked than without it, but for who trusts anybody.
    let builder =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { whom, algorithms, is_lenient }));
    match &files.certificate {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let (chain, key) = (certificates(certificate)?, private_key(key)?);
            builder.with_client_auth_cert(chain, key).map_err(|error| refused(&error))
        }
    }
}

/// As long as nothing is chosen, all that rustls takes for safe.
fn versions(protocol: &Protocol) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match protocol {
        Protocol { only_13: true, .. } => &BOTH[..1],
        Protocol { only_12: true, .. } => &BOTH[1..],
        Protocol { .. } => &BOTH,
    }
}

fn provider(protocol: &Protocol) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    // Rust's names are Go's.
    let is_chosen = |suite: &SupportedCipherSuite| protocol.suites.contains(&format!("{:?}", suite.suite()));
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || protocol.suites.is_empty() || is_chosen(suite));
    Arc::new(provider)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::Read(path.display().to_string(), error))
}

/// Those who may sign others, for rustls; `None`: nobody may.
fn roots(trusted: &Trusted) -> Result<Option<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted.signers() {
        roots.add(certificate.clone()).map_err(|error| TlsError::Refused(error.to_string()))?;
    }
    Ok((!roots.is_empty()).then_some(roots))
}

/// Lists in PEM form, or one in DER form: that is the only one that etcd takes.
fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let bytes = std::fs::read(path).map_err(|error| unusable_revocations(path, &error))?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match lists {
        Ok(lists) if lists.is_empty() => Ok(vec![bytes.into()]),
        Ok(lists) => Ok(lists),
        Err(error) => Err(unusable_revocations(path, &error)),
    }
}

fn unusable_revocations(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Revocations(path.display().to_string(), error.to_string())
}

/// The common name of a certificate's subject: the last of several, as Go reads it.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().last()?;
    Some(String::from_utf8_lossy(name.as_slice()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_common_name_of_a_certificate_is_found() {
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "somebody");
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        assert_eq!(common_name(certificate.der()), Some("alice".to_owned()));
    }

    #[test]
    fn files_that_could_not_be_read_for_a_moment_are_read_again() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("certificate");
        let reads = AtomicU32::new(0);
        let renewed = Renewed::of(vec![path.clone()], move || match reads.fetch_add(1, Ordering::Relaxed) {
            1 => Err(TlsError::Empty("too many open files".to_owned())),
            read => Ok(read),
        });
        let renewed = renewed.unwrap();
        let look = || {
            let mut current = renewed.current.lock().unwrap();
            current.looked_at = current.looked_at.checked_sub(LOOK_EVERY).unwrap();
            drop(current);
            *renewed.config()
        };
        assert_eq!(look(), 0);
        std::fs::write(&path, "new").unwrap();
        assert_eq!(look(), 0);
        assert_eq!(look(), 2, "the new certificate is never taken");
        assert_eq!(look(), 2, "files that were read are not read again");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_name_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = common_name(&bytes);
            let nested = [&[0x30, bytes.len() as u8 + 2, 0x30, bytes.len() as u8], &bytes[..]].concat();
            let _ = common_name(&nested);
        }
    }
}
