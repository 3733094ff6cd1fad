//! Connections to other block nodes, with TLS where their address says so, and with a token where one is given.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use service_kit::client::{Channel, GrpcError, Options};
use service_kit::tls::ClientTls;
use service_kit::url::Url;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long it may take to find out whether a node speaks TLS.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
pub fn address(text: &str) -> Result<Url, String> {
    let url: Result<Url, _> = if text.contains("://") { text.parse() } else { format!("http://{text}").parse() };
    match url {
        Ok(url) if !url.is_unix => Ok(url),
        _ => Err(format!("expected HOST:PORT, http://HOST:PORT or https://HOST:PORT, found {text:?}")),
    }
}

/// Shows the token in this file with each call. It is read anew for each connection.
pub fn show_token(channel: &mut Channel, file: Option<&Path>) -> Result<(), GrpcError> {
    let Some(path) = file else { return Ok(()) };
    let failed = |what: &dyn std::fmt::Display| GrpcError::Connect(format!("the token in {}: {what}", path.display()));
    let token = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|error| failed(&error))?;
    value.set_sensitive(true);
    channel.set_metadata(AUTHORIZATION, value);
    Ok(())
}

/// Connects; `tls` is needed where the address begins with `https`.
pub async fn connect(url: &Url, tls: Option<&ClientTls>, options: Options) -> Result<Channel, GrpcError> {
    let endpoint = format!("{}:{}", url.host, url.port);
    if !url.is_tls {
        return Channel::connect(&endpoint, options).await;
    }
    let failed = |error: &dyn std::fmt::Display| GrpcError::Connect(format!("connect to {url}: {error}"));
    let tls = tls.ok_or_else(|| {
        failed(&"--tls-authority must say who signs its certificate; where it speaks no TLS, leave https:// away")
    })?;
    let limit = options.limit;
    let connected = async {
        let stream = TcpStream::connect(&endpoint).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let name = ServerName::try_from(host(url)).map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::clone(&tls.config()));
        connector.connect(name, stream).await.map_err(|error| match is_no_tls(&error) {
            true => failed(&format!("{error}; where it speaks no TLS, leave https:// away")),
            false => failed(&error),
        })
    };
    let stream = tokio::time::timeout(limit, connected).await.map_err(|error| failed(&error))??;
    Channel::over(stream, &endpoint, Options { is_tls: true, ..options }).await
}

/// Whether an answer to TLS may be that of who does not speak it: no message of TLS, or none at all.
fn is_no_tls(error: &io::Error) -> bool {
    matches!(of_tls(error), Some(rustls::Error::InvalidMessage(_)))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Whether a node speaks TLS where its address does not say so: it then shows a certificate, which nobody is trusted to have signed.
pub async fn wants_tls(url: &Url) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let (Ok(versions), Ok(name)) = (versions, ServerName::try_from(host(url))) else { return false };
    let config = versions.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let connected = async {
        let stream = TcpStream::connect(format!("{}:{}", url.host, url.port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let refused = match tokio::time::timeout(PROBE_LIMIT, connected).await {
        Ok(Err(error)) if !url.is_tls => error,
        _ => return false,
    };
    matches!(of_tls(&refused), Some(rustls::Error::InvalidCertificate(_)))
}

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The host as certificates name it.
fn host(url: &Url) -> String {
    url.host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port_and_may_have_a_scheme() {
        assert_eq!(address("a:1").unwrap().to_string(), "http://a:1");
        assert_eq!(address("https://[::1]:2").unwrap().to_string(), "https://[::1]:2");
        for wrong in ["a", "unix:///run/a", "ftp://a:1", "a:b"] {
            assert!(address(wrong).unwrap_err().contains("expected HOST:PORT"), "{wrong}");
        }
    }
}
