//! TLS for clients and between members: certificates from files, read again when they change, without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::der::{Der, from_subject};
use crate::settings::{PeerTlsFiles, TlsFiles};

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
    /// It cannot be used.
    #[error("certificates cannot be used: {0}")]
    Refused(String),
}

/// The configuration of now, for those who are connected to.
pub type Tls = Renewed<ServerConfig>;

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
}

impl Tls {
    /// Reads the files.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let mut paths = vec![files.certificate.clone(), files.key.clone()];
        paths.extend(files.client_authority.clone());
        Self::of(paths, move || read(&files))
    }
}

/// Both ends of connections between members.
pub fn open_peer(files: PeerTlsFiles) -> Result<replog::runtime::tcp::Tls, TlsError> {
    let server = Tls::open(files.server.clone())?;
    let paths = vec![files.authority.clone(), files.client_certificate.clone(), files.client_key.clone()];
    let client = Renewed::of(paths, move || read_client(&files))?;
    Ok(replog::runtime::tcp::Tls {
        server: Arc::new(move || server.config()),
        client: Arc::new(move || client.config()),
        server_name: None,
    })
}

impl<T> Renewed<T> {
    fn of(
        paths: Vec<PathBuf>,
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let changed_at = changed_at(&paths);
        let config = Arc::new(read()?);
        let current = Mutex::new(Current { config, looked_at: Instant::now(), changed_at });
        Ok(Self { paths, read: Box::new(read), current })
    }

    /// For the next connection. Files that have changed and cannot be used are left for what was there before, with a warning.
    pub fn config(&self) -> Arc<T> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked_at.elapsed() >= LOOK_EVERY {
            current.looked_at = Instant::now();
            let changed_at = changed_at(&self.paths);
            if changed_at != current.changed_at {
                current.changed_at = changed_at;
                match (self.read)() {
                    Ok(config) => current.config = Arc::new(config),
                    Err(error) => {
                        tracing::warn!(%error, "certificates were changed and cannot be used; the old ones stay")
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

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| refused(&error))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| refused(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// For who connects to another member.
fn read_client(files: &PeerTlsFiles) -> Result<ClientConfig, TlsError> {
    let refused = |error: &dyn std::fmt::Display| TlsError::Refused(error.to_string());
    let chain = certificates(&files.client_certificate)?;
    let key = private_key(&files.client_key)?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .with_root_certificates(roots(&files.authority)?)
        .with_client_auth_cert(chain, key)
        .map_err(|error| refused(&error))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::Read(path.display().to_string(), error))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::Refused(error.to_string()))?;
    }
    Ok(roots)
}

/// The common name of a certificate's subject: the last of several, as Go reads it.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut subject = Der(from_subject(certificate)?.enter(0x30)?);
    let mut name = None;
    while let Some(set) = subject.enter(0x31) {
        let mut pair = Der(Der(set).enter(0x30)?);
        let is_common_name = pair.enter(0x06)? == [0x55, 0x04, 0x03];
        let (_, value) = pair.any()?;
        if is_common_name {
            name = Some(String::from_utf8_lossy(value).into_owned());
        }
    }
    name
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

    proptest! {
        #[test]
        fn any_bytes_have_a_name_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = common_name(&bytes);
            let nested = [&[0x30, bytes.len() as u8 + 2, 0x30, bytes.len() as u8], &bytes[..]].concat();
            let _ = common_name(&nested);
        }
    }
}
