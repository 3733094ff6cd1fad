//! Asks a store for an answer over its own protocol: a store is ready when it answers, not when it listens.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
pub use storebench_crds::engine::Protocol;

use crate::failure::Failure;
use crate::http_client::{HttpError, exchange, get};
use crate::redis::resp::{Token, read, write_command};

/// A store that does not answer within this is asked again.
pub const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Whether the store at this address answers.
///
/// etcd: `GET /readyz`, which includes a linearizable read. Redis: `PING`, refused while the store loads its data. S3: a request
/// without a signature is refused.
pub fn answers(protocol: Protocol, address: SocketAddr) -> Result<(), Failure> {
    match protocol {
        Protocol::Etcd => http(address, "/readyz").map(drop),
        Protocol::Redis => redis(address, &[b"PING"], |token| match token {
            Token::Simple(b"PONG") => Ok(()),
            token => Err(described(&token)),
        }),
        Protocol::S3 => refuses_strangers(address).map(drop),
    }
}

/// What a store is asked to find out whether it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// For an answer over its own protocol.
    Protocol(Protocol, SocketAddr),
    /// For a path, which it answers with 200.
    Http(SocketAddr, String),
    /// For a connection.
    Tcp(SocketAddr),
    /// For nothing: it is ready when it runs.
    Running,
}

impl Readiness {
    /// Whether it serves.
    pub fn ask(&self) -> Result<(), Failure> {
        match self {
            Self::Protocol(protocol, address) => answers(*protocol, *address),
            Self::Http(address, path) => http(*address, path).map(drop),
            Self::Tcp(address) => match TcpStream::connect_timeout(address, ANSWER_TIMEOUT) {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::io(format_args!("connect to {address}"), &error)),
            },
            Self::Running => Ok(()),
        }
    }
}

/// An S3 server tells whoever gives no signature so in the words of S3.
pub fn refuses_strangers(address: SocketAddr) -> Result<String, Failure> {
    match get(&address.to_string(), "/", ANSWER_TIMEOUT) {
        Err(HttpError::Status { status: 403, said }) if said.contains("<Code>AccessDenied</Code>") => {
            Ok("AccessDenied".into())
        }
        Err(error) => Err(Failure::new(format_args!("GET /: {error}"))),
        Ok(_) => Err(Failure::new("GET /: expected AccessDenied, as the request has no signature")),
    }
}

/// The version as the server itself reports it.
pub fn version(protocol: Protocol, address: SocketAddr) -> Result<String, Failure> {
    match protocol {
        Protocol::Etcd => {
            let answer: Value = serde_json::from_str(&http(address, "/version")?).unwrap_or_default();
            let version = answer["etcdserver"].as_str().map(str::to_owned);
            version.ok_or_else(|| Failure::new("GET /version: the answer has no etcdserver"))
        }
        Protocol::Redis => redis(address, &[b"INFO", b"server"], |token| match token {
            Token::Bulk(text) => {
                let text = String::from_utf8_lossy(text);
                let version = version_in(&text).map(str::to_owned);
                version.ok_or_else(|| Failure::new("the answer has no redis_version"))
            }
            token => Err(described(&token)),
        }),
        Protocol::S3 => Err(Failure::new("S3 has no request that tells the server's version")),
    }
}

/// What is wrong with the answer to a command, if it was something else than it can be.
pub fn described(token: &Token<'_>) -> Failure {
    match token {
        Token::Error(text) => Failure::new(String::from_utf8_lossy(text)),
        token => Failure::new(format_args!("answered with {}", token.kind())),
    }
}

fn http(address: SocketAddr, path: &str) -> Result<String, Failure> {
    let answer = get(&address.to_string(), path, ANSWER_TIMEOUT);
    answer.map_err(|error| Failure::new(format_args!("GET {path}: {error}")))
}

/// One command on a connection of its own; `take` judges the first token of the reply. A failure begins with the
/// command's name.
pub fn redis<T>(
    address: SocketAddr,
    command: &[&[u8]],
    take: impl FnOnce(Token<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = String::from_utf8_lossy(command.first().copied().unwrap_or_default());
    let mut request = Vec::new();
    write_command(command, &mut request);
    let complete = |answer: &[u8]| !matches!(read(answer), Ok(None));
    let taken = match exchange(address, &request, ANSWER_TIMEOUT, complete) {
        Ok(answer) => match read(&answer) {
            Ok(Some((token, _))) => take(token),
            Ok(None) => Err(Failure::new("the store closed the connection")),
            Err(malformed) => Err(Failure::new(malformed)),
        },
        Err(error) => return Err(Failure::io(name, &error)),
    };
    taken.map_err(|failure| Failure::new(format_args!("{name}: {failure}")))
}

/// Valkey says both: the version of redis that it is compatible with, and its own.
fn version_in(info: &str) -> Option<&str> {
    let value = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    value("valkey_version").or_else(|| value("redis_version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_servers_own() {
        let redis = "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\n";
        let valkey = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(version_in(redis), Some("7.0.15"));
        assert_eq!(version_in(valkey), Some("9.1.2"));
        assert_eq!(version_in("# Server\r\n"), None);
    }

    #[test]
    fn a_store_that_is_not_there_is_not_ready_and_says_why() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(answers(Protocol::Redis, address).unwrap_err().text(), "PING: Connection refused");
        assert!(answers(Protocol::Etcd, address).unwrap_err().text().ends_with("/readyz: Connection refused"));
    }
}
