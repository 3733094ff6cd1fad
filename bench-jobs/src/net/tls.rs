//! TLS to a store that is somebody's: whom it must be signed by, and what it is shown.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use service_kit::tls::{ClientTls, ClientTlsFiles, Protocol};
use storebench_crds::external::ExternalTls;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::failure::{Failure, Kind};
use crate::net::file::unreadable;

/// How a store is reached over TLS. Read once, where a workload begins.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// The same, which asks for HTTP/2: gRPC servers refuse whoever does not.
    config_of_http2: Arc<ClientConfig>,
    /// Absent: the host that is dialled.
    server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Errors: one line that names the field, and the file.
    pub fn of(tls: &ExternalTls) -> io::Result<Self> {
        let Some(authority) = &tls.ca_file else {
            return Err(io::Error::other("external.tls: names a Secret, and no file is there: add caFile"));
        };
        let certificate = tls.certificate_file.as_ref().zip(tls.key_file.as_ref());
        let files = ClientTlsFiles {
            authority: Some(authority.into()),
            certificate: certificate.map(|(certificate, key)| (PathBuf::from(certificate), PathBuf::from(key))),
            protocol: Protocol::default(),
        };
        if let Some(error) = closed(tls).into_iter().next() {
            return Err(error);
        }
        let config = ClientTls::open(files).map_err(|error| {
            let said = error.to_string();
            let field = fields(tls).find(|(_, path)| said.starts_with(*path)).map(|(field, _)| format!(".{field}"));
            io::Error::other(format!("external.tls{}: {said}", field.unwrap_or_default()))
        })?;
        let config = config.config();
        let mut config_of_http2 = ClientConfig::clone(&config);
        config_of_http2.alpn_protocols = vec![b"h2".to_vec()];
        let server_name = tls.server_name.clone().map(|name| {
            ServerName::try_from(name).map_err(|error| io::Error::other(format!("external.tls.serverName: {error}")))
        });
        Ok(Self { config, config_of_http2: Arc::new(config_of_http2), server_name: server_name.transpose()? })
    }

    /// All files that cannot be opened, or what else is wrong with them: one line each, as [`Self::of`] says of the first.
    pub fn problems(tls: &ExternalTls) -> Vec<io::Error> {
        let closed = closed(tls);
        if closed.is_empty() { Self::of(tls).err().into_iter().collect() } else { closed }
    }

    /// Shakes hands on a connection to `endpoint`, `host:port`, within `limit`.
    pub async fn connect(
        &self,
        stream: TcpStream,
        endpoint: &str,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        self.shake_hands(&self.config, stream, endpoint, limit).await
    }

    /// The same where HTTP/2 is to be spoken.
    pub async fn connect_http2(
        &self,
        stream: TcpStream,
        endpoint: &str,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        self.shake_hands(&self.config_of_http2, stream, endpoint, limit).await
    }

    async fn shake_hands(
        &self,
        config: &Arc<ClientConfig>,
        stream: TcpStream,
        endpoint: &str,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let failed = |said: &dyn fmt::Display| {
            let failure = Failure::new(format_args!("connect to {endpoint} over TLS: {said}"));
            failure.without_effect().of_kind(Kind::Tls)
        };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => host_of(endpoint).map_err(|error| failed(&error))?,
        };
        let shaken = timeout(limit, TlsConnector::from(Arc::clone(config)).connect(name, stream)).await;
        let shaken = shaken.map_err(|_| failed(&format_args!("no answer within {limit:?}")))?;
        shaken.map_err(|error| failed(&error))
    }
}

/// The files that are named, each with its field.
fn fields(tls: &ExternalTls) -> impl Iterator<Item = (&'static str, &str)> {
    let files = [("caFile", &tls.ca_file), ("certificateFile", &tls.certificate_file), ("keyFile", &tls.key_file)];
    files.into_iter().filter_map(|(field, path)| Some((field, path.as_deref()?)))
}

/// Those that cannot be opened.
fn closed(tls: &ExternalTls) -> Vec<io::Error> {
    let error = |(field, path): (&str, &str)| {
        let error = File::open(path).err()?;
        Some(io::Error::other(format!("external.tls.{field}: {path}: {}", unreadable(&error))))
    };
    fields(tls).filter_map(error).collect()
}

/// The host of an address, as certificates name it.
fn host_of(endpoint: &str) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(tls: ExternalTls) -> String {
        Tls::of(&tls).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_field() {
        let authority = harness::Authority::new();
        let (certificate, key) = authority.sign("client");
        let text = |path: &std::path::Path| Some(path.display().to_string());
        let good = ExternalTls {
            ca_file: text(&authority.path()),
            certificate_file: text(&certificate),
            key_file: text(&key),
            ..ExternalTls::default()
        };
        assert!(Tls::of(&good).is_ok());
        let missing = Some(authority.file("missing.pem"));
        for (tls, field) in [
            (ExternalTls { ca_file: missing.clone(), ..good.clone() }, "caFile"),
            (ExternalTls { certificate_file: missing.clone(), ..good.clone() }, "certificateFile"),
            (ExternalTls { key_file: missing.clone(), ..good.clone() }, "keyFile"),
        ] {
            let said = refusal(tls);
            assert!(said.starts_with(&format!("external.tls.{field}: ")) && said.contains("missing.pem"), "{said}");
            assert!(said.contains("is not there: name a file that is"), "{said}");
        }
        std::fs::write(authority.file("empty.pem"), "no certificate\n").unwrap();
        let said = refusal(ExternalTls { ca_file: Some(authority.file("empty.pem")), ..good.clone() });
        assert!(said.starts_with("external.tls.caFile: ") && said.contains("empty.pem"), "{said}");
        let (_, other) = authority.sign("other");
        let said = refusal(ExternalTls { key_file: text(&other), ..good.clone() });
        assert!(said.starts_with("external.tls: "), "{said}");
        let said = refusal(ExternalTls { server_name: Some("not a name".into()), ..good });
        assert!(said.starts_with("external.tls.serverName: "), "{said}");
        let secret = ExternalTls { secret_name: Some("s".into()), ..ExternalTls::default() };
        assert!(refusal(secret).ends_with("add caFile"));
    }

    #[test]
    fn a_certificate_is_held_against_the_host_without_its_port() {
        for (endpoint, name) in
            [("redis.example:6379", "redis.example"), ("10.0.0.7:1", "10.0.0.7"), ("[::1]:1", "::1")]
        {
            assert_eq!(host_of(endpoint).unwrap().to_str(), name);
        }
    }
}
