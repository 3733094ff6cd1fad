//! Asks a store that serves the etcd v3 API for answers over HTTP, on the same port.

use std::net::SocketAddr;

use serde_json::Value;

use crate::failure::Failure;
use crate::family::check::http;

/// `GET /readyz`, which includes a linearizable read.
pub fn answers(address: SocketAddr) -> Result<(), Failure> {
    http(address, "/readyz").map(drop)
}

/// The version in `GET /version`.
pub fn version(address: SocketAddr) -> Result<String, Failure> {
    let answer: Value = serde_json::from_str(&http(address, "/version")?).unwrap_or_default();
    let version = answer["etcdserver"].as_str().map(str::to_owned);
    version.ok_or_else(|| Failure::new("GET /version: the answer has no etcdserver"))
}
