//! Asks a d-engine for answers over HTTP, on the port of its clients.

use std::net::SocketAddr;

use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::family::check::{http, tried};
use crate::measure::exposition::samples;

/// The metric that has its release as a label.
const INFO: &str = "dengine_info";

/// `GET /readyz`, which includes a linearizable read.
pub(crate) fn answers(address: SocketAddr) -> Result<(), Failure> {
    http(address, "/readyz").map(drop)
}

/// The version in its metrics.
pub(crate) fn version(address: SocketAddr) -> Result<String, Failure> {
    version_in(&http(address, "/metrics")?)
}

fn version_in(text: &str) -> Result<String, Failure> {
    let samples = samples(text, |name| name == INFO).map_err(|error| Failure::new(format!("GET /metrics: {error}")))?;
    match samples.first().map(|sample| sample.label("version")) {
        Some(version) if !version.is_empty() => Ok(version.to_owned()),
        _ => Err(Failure::new("GET /metrics: the answer has no dengine_info with a version")),
    }
}

/// What is asked over HTTP; its requests are tried out by the first workload.
pub(crate) fn surface(store: SocketAddr) -> Vec<Check> {
    let bytes = |path: &str| http(store, path).map(|text| format!("{} bytes", text.len()));
    ["/livez", "/readyz", "/metrics"].map(|path| tried(path, bytes(path))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_a_label() {
        let text = "# TYPE dengine info\ndengine_info{version=\"0.1.0\"} 1\n";
        assert_eq!(version_in(text).unwrap(), "0.1.0");
        assert!(version_in("dengine_info 1\n").unwrap_err().text().contains("version"));
    }
}
