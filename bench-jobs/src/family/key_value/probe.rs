//! Asks a d-engine for answers over HTTP, on the port of its clients.

use std::net::SocketAddr;

use crate::failure::Failure;
use crate::family::check::{Check, http};
use crate::measure::exposition::samples;

/// The metric that has its release as a label.
const INFO: &str = "dengine_info";
/// Syncs of the log.
const SYNCS: &str = "dengine_log_sync_seconds_count";

/// `GET /readyz`, which includes a linearizable read.
pub(crate) fn answers(address: SocketAddr) -> Result<(), Failure> {
    http(address, "/readyz").map(drop)
}

/// The version in its metrics.
pub(crate) fn version(address: SocketAddr) -> Result<String, Failure> {
    version_in(&http(address, "/metrics")?)
}

fn version_in(text: &str) -> Result<String, Failure> {
    match found(text, INFO)? {
        Some((version, _)) if !version.is_empty() => Ok(version),
        _ => Err(Failure::new("GET /metrics: the answer has no dengine_info with a version")),
    }
}

/// The label `version` and the value of the first sample with this name.
fn found(text: &str, name: &str) -> Result<Option<(String, f64)>, Failure> {
    let samples =
        samples(text, |found| found == name).map_err(|error| Failure::new(format!("GET /metrics: {error}")))?;
    Ok(samples.first().map(|sample| (sample.label("version").to_owned(), sample.value)))
}

/// How often it has synced its log so far.
pub(crate) fn fsyncs(address: SocketAddr) -> Result<u64, Failure> {
    syncs_in(&http(address, "/metrics")?)
}

fn syncs_in(text: &str) -> Result<u64, Failure> {
    let (_, count) =
        found(text, SYNCS)?.ok_or_else(|| Failure::new("GET /metrics: the answer does not count syncs of the log"))?;
    Ok(count as u64)
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
        let broken = syncs_in("dengine_log_sync_seconds_count x\n").unwrap_err();
        assert!(broken.text().contains("line 1"), "{}", broken.text());
    }

    #[test]
    fn the_release_is_a_label() {
        let text = "# TYPE dengine info\ndengine_info{version=\"0.1.0\"} 1\n";
        assert_eq!(version_in(text).unwrap(), "0.1.0");
        assert!(version_in("dengine_info 1\n").unwrap_err().text().contains("version"));
    }
}
