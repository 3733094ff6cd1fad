//! Asks a store for an answer over its own protocol: a store is ready when it answers, not when it listens. One line for each
//! protocol in each function; how it is asked is its family's to know.

use std::net::SocketAddr;

use crate::failure::Failure;
use crate::family::check::Check;
use crate::family::{etcd, redis};
use crate::measure::fsyncs;
use crate::measure::machine;

/// What every key begins with that is written to try a protocol out.
const KEY_PREFIX: &str = "storebench-probe/";

/// What a store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// The etcd v3 API: gRPC and, on the same port, HTTP.
    Etcd,
    /// The Redis protocol.
    Redis,
}

/// Whether the store at this address answers.
pub fn answers(protocol: Protocol, address: SocketAddr) -> Result<(), Failure> {
    match protocol {
        Protocol::Etcd => etcd::probe::answers(address),
        Protocol::Redis => redis::probe::answers(address),
    }
}

/// The version as the server itself reports it.
pub fn version(protocol: Protocol, address: SocketAddr) -> Result<String, Failure> {
    match protocol {
        Protocol::Etcd => etcd::probe::version(address),
        Protocol::Redis => redis::probe::version(address),
    }
}

/// Tries out what of the protocol a store serves, within 5 s: each kind of request once, on keys that nobody else has and that are
/// deleted afterwards.
pub fn surface(protocol: Protocol, store: SocketAddr) -> Vec<Check> {
    let key = format!("{KEY_PREFIX}{}", machine::monotonic_nanos());
    match protocol {
        Protocol::Etcd => etcd::surface::surface(store, &key),
        Protocol::Redis => redis::probe::surface(store, &key),
    }
}

/// How often the store has synced its disk so far, as it counts itself.
pub fn fsyncs(protocol: Protocol, address: SocketAddr) -> Result<u64, Failure> {
    match protocol {
        Protocol::Etcd => fsyncs::so_far(&address.to_string()),
        Protocol::Redis => Err(Failure::new("a store that speaks Redis does not count its syncs")),
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

    #[test]
    fn redis_does_not_count_its_syncs() {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(fsyncs(Protocol::Redis, nowhere).unwrap_err().text().contains("does not count"));
    }
}
