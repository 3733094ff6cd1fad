//! Connections to other block nodes, with TLS where their address says so, and with a token where one is given.

use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use http::header::AUTHORIZATION;

use rustls::pki_types::ServerName;
use service_kit::client::{Channel, GrpcError, Options};
use service_kit::tls::ClientTls;
use service_kit::url::Url;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
    let tls = tls.ok_or_else(|| failed(&"it speaks TLS, and no authority was given to check its certificate with"))?;
    let limit = options.limit;
    let connected = async {
        let stream = TcpStream::connect(&endpoint).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let host = url.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::clone(&tls.config()));
        connector.connect(name, stream).await.map_err(|error| failed(&error))
    };
    let stream = tokio::time::timeout(limit, connected).await.map_err(|error| failed(&error))??;
    Channel::over(stream, &endpoint, Options { is_tls: true, ..options }).await
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
