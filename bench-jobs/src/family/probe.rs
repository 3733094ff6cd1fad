//! Asks a store for an answer over its own protocol: a store is ready when it answers, not when it listens. One line for each
//! protocol in each function; how it is asked is its family's to know.

use std::net::{SocketAddr, TcpStream};

pub use storebench_crds::engine::Protocol;
use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::family::check::{ANSWER_TIMEOUT, http, tried};
use crate::family::{block_stream, etcd, key_value, redis};
use crate::measure::machine;
use crate::net::http_client::{HttpError, get};

/// What every key begins with that is written to try a protocol out.
const KEY_PREFIX: &str = "storebench-probe/";

/// Whether the store at this address answers.
pub fn answers(protocol: Protocol, address: SocketAddr) -> Result<(), Failure> {
    match protocol {
        Protocol::Etcd => etcd::probe::answers(address),
        Protocol::DEngine => key_value::probe::answers(address),
        Protocol::DEngineOriginal => Readiness::Tcp(address).ask(),
        Protocol::Redis => redis::probe::answers(address),
        Protocol::S3 => refuses_strangers(address).map(drop),
        Protocol::BlockStream => block_stream::probe::answers(address),
        Protocol::Sqlite => Err(Failure::new("a store that follows files has no requests")),
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
        Protocol::Etcd => etcd::probe::version(address),
        Protocol::DEngine => key_value::probe::version(address),
        Protocol::DEngineOriginal => {
            Err(Failure::new("release 0.2.4 of d-engine has no request that tells its version"))
        }
        Protocol::Redis => redis::probe::version(address),
        Protocol::S3 => Err(Failure::new("S3 has no request that tells the server's version")),
        Protocol::BlockStream => block_stream::probe::version(address),
        Protocol::Sqlite => Err(Failure::new("a store that follows files has no requests")),
    }
}

/// Tries out what of the protocol a store serves, within 5 s: each kind of request once, on keys that nobody else has and that are
/// deleted afterwards.
pub fn surface(protocol: Protocol, store: SocketAddr) -> Vec<Check> {
    let key = format!("{KEY_PREFIX}{}", machine::monotonic_nanos());
    match protocol {
        Protocol::Etcd => etcd::surface::surface(store, &key),
        Protocol::DEngine => key_value::probe::surface(store),
        Protocol::DEngineOriginal => {
            vec![tried("Connection", answers(protocol, store).map(|()| "accepted".into()))]
        }
        Protocol::Redis => redis::probe::surface(store, &key),
        // What else it serves takes a signature, and with it credentials.
        Protocol::S3 => vec![tried("Signature", refuses_strangers(store))],
        Protocol::BlockStream => block_stream::probe::surface(store),
        // What it does can only be seen beside a load.
        Protocol::Sqlite => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_there_is_not_ready_and_says_why() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(answers(Protocol::Redis, address).unwrap_err().text(), "PING: Connection refused");
        assert!(answers(Protocol::Etcd, address).unwrap_err().text().ends_with("/readyz: Connection refused"));
    }
}
