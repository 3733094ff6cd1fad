//! Asks a d-engine for answers over HTTP, on the port of its clients.

use std::net::SocketAddr;

use crate::failure::Failure;
use crate::family::check::{Check, http};

/// What its release is called in its metrics.
const VERSION: &str = "dengine_info{version=\"";
/// Syncs of the log.
const SYNCS: &str = "dengine_log_sync_seconds_count ";

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

/// How often it has synced its log so far.
pub(crate) fn fsyncs(address: SocketAddr) -> Result<u64, Failure> {
    syncs_in(&http(address, "/metrics")?)
}

fn syncs_in(text: &str) -> Result<u64, Failure> {
    let count = text.lines().find_map(|line| line.strip_prefix(SYNCS)?.trim().parse().ok());
    count.ok_or_else(|| Failure::new("GET /metrics: the answer does not count syncs of the log"))
}

/// What is asked over HTTP; its requests are tried out by the first workload.
pub(crate) fn surface(store: SocketAddr) -> Vec<Check> {
    let bytes = |path: &str| http(store, path).map(|text| format!("{} bytes", text.len()));
    ["/livez", "/readyz", "/metrics"].map(|path| Check::new(path, bytes(path))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_read_where_they_are_counted() {
        let text = "dengine_term 3\ndengine_log_sync_seconds_sum 0.5\ndengine_log_sync_seconds_count 42\n# EOF\n";
        assert_eq!(syncs_in(text).unwrap(), 42);
        assert!(syncs_in("dengine_term 3\n").unwrap_err().text().contains("does not count"));
    }
}
