//! TLS towards servers: who must have signed theirs, and what is shown to those that ask for a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, String),
    /// What they say together.
    #[error("TLS cannot be used: {0}")]
    Config(#[from] rustls::Error),
}

/// How servers are checked, and what is shown to them. Clones share it.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Of files in PEM: certificates of those who sign servers' certificates; and for servers that ask for one, a certificate and its key.
    pub fn open(authority: &Path, certificate: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| TlsError::File(authority.to_owned(), error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let read = PrivateKeyDer::from_pem_file(key);
                let read = read.map_err(|error| TlsError::File(key.to_owned(), error.to_string()))?;
                builder.with_client_auth_cert(certificates(certificate)?, read)?
            }
        };
        Ok(Self::of(config))
    }

    /// Of what was made elsewhere. HTTP/2 is asked for, whatever it says.
    pub fn of(mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self(Arc::new(config))
    }

    pub(crate) async fn connect(&self, socket: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("TLS: {error}"))?;
        let connected = TlsConnector::from(Arc::clone(&self.0)).connect(name, socket).await;
        connected.map_err(|error| match error.get_ref().and_then(|error| error.downcast_ref()) {
            None | Some(rustls::Error::InvalidMessage(_)) => {
                format!("TLS: {error}: is this the port for clients, and does the member speak TLS?")
            }
            // It says what is wrong with a certificate.
            Some(_) => format!("TLS: {error}"),
        })
    }
}

/// At least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |said: String| TlsError::File(path.to_owned(), said);
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| failed(error.to_string()))?;
    if read.is_empty() { Err(failed("there is no certificate in it".into())) } else { Ok(read) }
}
