//! Asks the meters in the pods of stores and control planes what they know; what they answer is [`storebench_crds::meter`].

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use storebench_crds::meter::{self, Check, MemberReading};
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

/// Asks the meter at this address. `None`: it does not answer, does not know yet, or says what this operator does not understand, which is logged.
pub async fn read(address: &str) -> Option<Reading> {
    let MemberReading { version, footprint, .. } = get(address, meter::STORE).await?.ok()?;
    let footprint = footprint?;
    let parts = get::<Vec<Check>>(address, meter::PROTOCOL).await?.ok()?;
    let failed: Vec<String> =
        parts.into_iter().filter(|part| !part.ok).map(|part| format!("{}: {}", part.name, part.detail)).collect();
    Some(Reading {
        version,
        footprint,
        protocol_failure: (!failed.is_empty()).then(|| format!("protocol probe failed: {}", failed.join("; "))),
    })
}

/// What of the protocol the store does not serve as the engine claims, as the meter at this address finds; `None`: all works,
/// or the meter does not answer, which its pod's readiness says. What cannot be understood is no proof that all works.
pub async fn protocol_failure(address: &str) -> Option<String> {
    let parts = match get::<Vec<Check>>(address, meter::PROTOCOL).await? {
        Ok(parts) => parts,
        Err(unreadable) => return Some(unreadable),
    };
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

/// What it answers; `None`: nothing, or that it cannot say. Errors: what cannot be understood.
async fn get<T: DeserializeOwned>(address: &str, path: &str) -> Option<Result<T, String>> {
    let (status, body) = ask(address, path).await?;
    status.is_success().then(|| {
        serde_json::from_slice(&body).map_err(|error| {
            tracing::warn!(address, path, %error, "unreadable meter");
            format!("the meter at {address} answered what this operator does not understand: GET {path}: {error}")
        })
    })
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
    use std::io::{Read as _, Write as _};

    /// A meter that answers everything with this.
    fn meter(body: &'static str) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let answer =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_no_proof_that_the_protocol_is_served() {
        assert_eq!(protocol_failure(&meter(r#"[{ "name": "Put", "ok": true, "detail": "" }]"#)).await, None);
        let failed = protocol_failure(&meter(r#"[{ "name": "Put", "ok": false, "detail": "no answer" }]"#)).await;
        assert_eq!(failed.as_deref(), Some("Put: no answer"));
        let unreadable = protocol_failure(&meter(r#"[{ "part": "Put", "ok": true }]"#)).await.unwrap();
        assert!(unreadable.contains("does not understand: GET /protocol: unknown field `part`"), "{unreadable}");
    }

    #[tokio::test]
    async fn a_store_that_was_not_watched_yet_has_no_reading() {
        let answer = r#"{ "version": "3.7.3", "footprint": null, "problem": "not idle for long enough yet", "diskBytes": null, "facts": {} }"#;
        assert!(read(&meter(answer)).await.is_none());
    }
}
