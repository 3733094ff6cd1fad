//! Asks the meters in the pods of stores and control planes what they know.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use storebench_crds::storage_service::{Footprint, StorageServiceStatus};

/// The protocol probe is the slowest answer; it takes at most 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a meter says.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The version as the server itself reports it.
    pub version: Option<String>,
    /// What the idle store costs.
    pub footprint: Footprint,
    /// What of the protocol does not work as the engine claims. Absent: all does.
    pub protocol_failure: Option<String>,
}

/// What a meter says of its store. Before that has answered and been watched for a while, there is no footprint.
#[derive(Debug, Deserialize)]
struct Member {
    version: Option<String>,
    footprint: Option<Footprint>,
}

/// One part of the protocol probe.
#[derive(Debug, Deserialize)]
struct Part {
    name: String,
    ok: bool,
    #[serde(default)]
    detail: String,
}

impl Reading {
    /// What an earlier reading left in a status.
    pub fn of_status(status: &StorageServiceStatus) -> Option<Self> {
        let failed = status.conditions.iter().find(|one| one.type_ == "ProtocolReady" && one.status == "False");
        Some(Self {
            version: status.version.clone(),
            footprint: status.footprint?,
            protocol_failure: failed.map(|failed| failed.message.clone()),
        })
    }
}

/// Asks the meter at this address. `None`: it does not answer, or does not know yet.
pub async fn read(address: &str) -> Option<Reading> {
    let Member { version, footprint } = get(address, "/store").await?;
    let footprint = footprint?;
    let parts = get::<Vec<Part>>(address, "/protocol").await?;
    let failed: Vec<String> =
        parts.into_iter().filter(|part| !part.ok).map(|part| format!("{}: {}", part.name, part.detail)).collect();
    Some(Reading {
        version,
        footprint,
        protocol_failure: (!failed.is_empty()).then(|| format!("protocol probe failed: {}", failed.join("; "))),
    })
}

/// What of the protocol the store does not serve as the engine claims, as the meter at this address finds; `None`: all works,
/// or the meter does not answer, which its pod's readiness says.
pub async fn protocol_failure(address: &str) -> Option<String> {
    let parts = get::<Vec<Part>>(address, "/protocol").await?;
    let failed = parts.into_iter().find(|part| !part.ok)?;
    Some(format!("{}: {}", failed.name, failed.detail))
}

/// A line of text from the meter at this address. Errors: what it says instead, or that it does not answer.
pub async fn text(address: &str, path: &str) -> Result<String, String> {
    let silent = || format!("the meter at {address} does not answer");
    let (status, body) = ask(address, path).await.ok_or_else(silent)?;
    let text = String::from_utf8_lossy(&body).trim().to_owned();
    if status.is_success() { Ok(text) } else { Err(text) }
}

async fn get<T: DeserializeOwned>(address: &str, path: &str) -> Option<T> {
    let (status, body) = ask(address, path).await?;
    if !status.is_success() {
        return None;
    }
    serde_json::from_slice(&body).map_err(|error| tracing::warn!(address, path, %error, "unreadable meter")).ok()
}

async fn ask(address: &str, path: &str) -> Option<(StatusCode, Bytes)> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}{path}").parse().ok()?;
    let answer = async {
        let answer = client.get(uri).await.ok()?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?.to_bytes();
        Some((status, body))
    };
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_not_watched_yet_is_readable_and_has_no_footprint() {
        let answer = r#"{ "version": "3.7.3", "problem": "not idle for long enough yet", "facts": { "cores": "2" } }"#;
        let Member { version, footprint } = serde_json::from_str(answer).unwrap();
        assert_eq!((version.as_deref(), footprint), (Some("3.7.3"), None));
    }
}
