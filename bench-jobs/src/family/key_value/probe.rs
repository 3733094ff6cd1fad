//! Asks a d-engine for answers over HTTP, on the port of its clients.

use std::net::SocketAddr;

use crate::failure::Failure;
use crate::family::check::{Check, http};

/// What its release is called in its metrics.
const VERSION: &str = "dengine_info{version=\"";

/// `GET /readyz`, which includes a linearizable read.
pub(crate) fn answers(address: SocketAddr) -> Result<(), Failure> {
    http(address, "/readyz").map(drop)
}

/// The version in its metrics.
pub(crate) fn version(address: SocketAddr) -> Result<String, Failure> {
    let text = http(address, "/metrics")?;
    let version = text.split_once(VERSION).and_then(|(_, rest)| rest.split_once('"'));
    version
        .map(|(version, _)| version.to_owned())
        .ok_or_else(|| Failure::new("GET /metrics: the answer has no dengine_info"))
}

/// What is asked over HTTP; its requests are tried out by the first workload.
pub(crate) fn surface(store: SocketAddr) -> Vec<Check> {
    let bytes = |path: &str| http(store, path).map(|text| format!("{} bytes", text.len()));
    ["/livez", "/readyz", "/metrics"].map(|path| Check::new(path, bytes(path))).into()
}
