//! `http(s)://…/v1/metrics`: the figures of a run by OTLP/HTTP in JSON, one POST each. They are of the instant at which the run ended, so that what
//! is sent twice is the same samples.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use object_store_client::http::{agent, without_secrets};
use serde_json::Value;
use service_kit::percent;
use storebench_core::otlp::payload;
use storebench_core::record::RunRecord;
use storebench_crds::line::short_line;

use crate::saved::SavedRun;

/// For connecting, and for each step of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Of an answer, which says in a few words what was wrong.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Of an answer, what is told.
const ANSWER_SHOWN_BYTES: usize = 300;
/// What whoever listens wants to be told, as all exporters of OpenTelemetry read it.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Whoever takes metrics.
pub(crate) struct Receiver {
    url: String,
    headers: Vec<(String, String)>,
}

impl Receiver {
    /// The receiver at an address. Sends nothing.
    pub(super) fn new(url: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        if !url.ends_with("/v1/metrics") {
            let url = without_secrets(url);
            bail!(
                "--to: {url}: an address of OTLP/HTTP ends in /v1/metrics: http://HOST:4318/v1/metrics of a collector, \
                 http://HOST:9090/api/v1/otlp/v1/metrics of Prometheus"
            );
        }
        let headers = variable(HEADERS).map_or(Ok(Vec::new()), |text| headers(&text))?;
        Ok(Self { url: url.into(), headers })
    }

    /// Sends a run's figures.
    pub(super) fn export(&self, run: &SavedRun) -> anyhow::Result<String> {
        // A name and a password before the host are sent, and told to nobody.
        let url = without_secrets(&self.url);
        let told = |error: &dyn std::fmt::Display| error.to_string().replace(&self.url, &url);
        let sent = payload(&run.report, ended_unix_nanos(&run.report.record)?);
        let agent = agent("storebench", self.url.starts_with("https://"), TIMEOUT, None);
        let agent = agent.map_err(|error| anyhow!("{url}: {}", told(&error)))?;
        let mut request = agent.post(self.url.as_str()).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let answer = request.send(sent.body.to_string());
        let answer = answer
            .map_err(|error| anyhow!("{url}: {}: check the address, and that somebody listens there", told(&error)))?;
        let status = answer.status();
        let mut text = Vec::new();
        // What cannot be read of it says nothing.
        let _ = answer.into_body().into_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        if status.as_u16() == 404 {
            bail!(
                "{url}: nobody takes OTLP there (404): Prometheus does with --web.enable-otlp-receiver, at /api/v1/otlp/v1/metrics"
            );
        }
        if !status.is_success() {
            let said = short_line(&text, ANSWER_SHOWN_BYTES);
            bail!(
                "{url}: refused with {}: {said}: what is sent needs in headers is read from {HEADERS}",
                status.as_u16()
            );
        }
        if let Some((rejected, why)) = rejected(&text) {
            let why = short_line(&why, ANSWER_SHOWN_BYTES);
            bail!("{url}: {rejected} of {} data points were refused: {why}", sent.points);
        }
        Ok(format!("sent to {url}: {} data points", sent.points))
    }
}

/// What a receiver that took the rest did not take, and why.
fn rejected(answer: &str) -> Option<(u64, String)> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    // 64-bit integers are strings in the JSON of protocol buffers, and not everybody heeds that.
    let count = partial.get("rejectedDataPoints")?;
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).filter(|count| *count > 0)?;
    Some((count, partial.get("errorMessage").and_then(Value::as_str).unwrap_or("it does not say why").to_owned()))
}

/// `name=value,name=value`, the values percent-encoded.
fn headers(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().to_owned(), percent::decoded(value.trim())?))
    };
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let read: Option<Vec<_>> = pairs.map(header).collect();
    // Values are secrets more often than not.
    read.with_context(|| format!("{HEADERS}: write it as NAME=VALUE,NAME=VALUE, with %20 for a space in a value"))
}

/// When a run ended, Unix time in nanoseconds.
fn ended_unix_nanos(record: &RunRecord) -> anyhow::Result<i128> {
    let said = || format!("{}: startedAt {} and durationMillis are no time", record.name, record.started_at);
    let began: Timestamp = record.started_at.parse().with_context(said)?;
    let took = SignedDuration::from_millis(i64::try_from(record.duration_millis).with_context(said)?);
    Ok(began.checked_add(took).with_context(said)?.as_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_of_metrics_is_refused_with_what_would_be() {
        let refused = Receiver::new("http://localhost:4318", |_| None).err().unwrap().to_string();
        assert!(refused.contains("ends in /v1/metrics: http://HOST:4318/v1/metrics of a collector"), "{refused}");
    }

    #[test]
    fn a_password_in_the_address_is_told_to_nobody() {
        let refused = Receiver::new("http://me:secret@localhost:4318", |_| None).err().unwrap().to_string();
        assert!(refused.starts_with("--to: http://…@localhost:4318: an address"), "{refused}");
    }

    #[test]
    fn headers_are_read_as_other_exporters_read_them() {
        let read = headers("Authorization=Basic%20YTpi, x-scope = team,").unwrap();
        let expected = [("Authorization", "Basic YTpi"), ("x-scope", "team")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for wrong in ["Authorization", "a=%2", "a=%zz"] {
            let refused = headers(wrong).unwrap_err().to_string();
            assert!(
                refused.starts_with("OTEL_EXPORTER_OTLP_HEADERS: write it as") && !refused.contains(wrong),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_was_taken_in_part_was_not_taken() {
        assert_eq!(
            rejected(r#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"late"}}"#),
            Some((3, "late".into()))
        );
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedDataPoints":2}}"#), Some((2, "it does not say why".into())));
        for whole in ["", "{}", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":{"rejectedDataPoints":"0"}}"#] {
            assert_eq!(rejected(whole), None, "{whole}");
        }
    }
}
