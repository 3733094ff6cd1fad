//! An HTTP client as object stores want it: a time limit for each step, no redirects, answers of every status as answers, and for `https`
//! the certificates of the caller or of the system.

use crate::StoreError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Certificates where distributions keep them.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Connections that are kept for later, as many as anybody uses at once: each has buffers, and one to begin with costs handshakes.
const IDLE_CONNECTIONS: usize = 8;

/// A client with a pool of connections of its own. Where it is to speak `https` it trusts `certificates` (a file in PEM), or else those that
/// `SSL_CERT_FILE` names, or else the system's. `timeout` is for connecting, for the head of an answer, and for each read of its body.
///
/// # Errors
/// [`StoreError::Permanent`]: there are no certificates to trust.
pub fn agent(https: bool, timeout: Duration, certificates: Option<&Path>) -> Result<ureq::Agent, StoreError> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS)
        .user_agent("object-store-client")
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout));
    if https {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(trust(certificates)?)
            .unversioned_rustls_crypto_provider(provider);
        config = config.tls_config(tls.build());
    }
    Ok(config.build().into())
}

fn trust(certificates: Option<&Path>) -> Result<ureq::tls::RootCerts, StoreError> {
    let environment = std::env::var_os("SSL_CERT_FILE").map(Into::into);
    let system = || SYSTEM_CERTIFICATES.iter().map(PathBuf::from).find(|path| path.exists());
    let path = certificates.map(Path::to_owned).or(environment).or_else(system);
    let path = path.ok_or_else(|| StoreError::Permanent("no certificates to trust: set SSL_CERT_FILE".into()))?;
    let text = std::fs::read(&path).map_err(|error| StoreError::Permanent(format!("{}: {error}", path.display())))?;
    let certificates = ureq::tls::parse_pem(&text).filter_map(|item| match item {
        Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(ureq::tls::RootCerts::new_with_certs(&certificates.collect::<Vec<_>>()))
}
