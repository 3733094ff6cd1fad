//! What probes and monitoring ask: gRPC's health protocol, `/livez`, `/readyz`, `/metrics`.

use std::fmt::Write as _;
use std::time::Duration;

use d_engine_client::proto::grpc::health::v1::health_check_response::ServingStatus;
use d_engine_client::proto::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse};
use http::{Response, StatusCode, request};
use service_kit::grpc::{self, Requests, Responses, Status};
use service_kit::http::{Body, answer, not_found, only_get, text};
use wal::BOUNDS_MICROS;

use super::{gone, only};
use crate::engine::{Durability, Node};

/// How long `/readyz` waits for a majority.
const PATIENCE: Duration = Duration::from_secs(1);

/// Its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks once.
    Check,
    /// Is told of changes.
    Watch,
}

impl Method {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "Check" => Some(Self::Check),
            "Watch" => Some(Self::Watch),
            _ => None,
        }
    }
}

/// Serving: somebody leads.
pub(super) fn health(node: &Node) -> HealthCheckResponse {
    let serves = node.leadership().borrow().leader.is_some() && node.shown().broken().is_none();
    let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status.into() }
}

pub(super) async fn watch(node: Node, mut requests: Requests, responses: Responses) -> Result<(), Status> {
    let HealthCheckRequest { .. } = only(&mut requests).await?;
    let mut leadership = node.leadership();
    let mut told = None;
    loop {
        let health = health(&node);
        if told.replace(health) != Some(health) {
            responses.send(grpc::encode(&health)).await.map_err(gone)?;
        }
        if leadership.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Answers a request over HTTP.
pub(super) async fn http(node: Node, head: request::Parts) -> Response<Body> {
    let path = head.uri.path();
    if !matches!(path, "/livez" | "/readyz" | "/metrics") {
        return not_found();
    }
    if head.method != http::Method::GET {
        return only_get();
    }
    let refuse = |why: String| text(StatusCode::SERVICE_UNAVAILABLE, why + "\n");
    match path {
        "/livez" if node.handle().status().has_ended => refuse("the log has ended".into()),
        "/livez" => text(StatusCode::OK, "ok\n".into()),
        "/readyz" => match tokio::time::timeout(PATIENCE, node.is_ready()).await {
            Ok(Ok(())) => text(StatusCode::OK, "ok\n".into()),
            Ok(Err(error)) => refuse(error.to_string()),
            Err(_) => refuse("waiting for a leader with a majority".into()),
        },
        _ => answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics(&node)),
    }
}

/// In the format of OpenMetrics.
fn metrics(node: &Node) -> String {
    let mut out = String::new();
    let status = node.handle().status();
    let counted = node.counters().counted();
    let leads = status.leader == Some(node.options().id);
    let mut one = |name: &str, kind: &str, help: &str, samples: &[(&str, u64)]| {
        let suffix = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(out, "# TYPE {name} {kind}\n# HELP {name} {help}");
        for (labels, value) in samples {
            let _ = writeln!(out, "{name}{suffix}{labels} {value}");
        }
    };
    one("dengine", "info", "The release.", &[(concat!("_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1)]);
    one("dengine_term", "gauge", "The term of the log.", &[("", status.term)]);
    one("dengine_has_leader", "gauge", "1 if this member knows who leads.", &[("", status.leader.is_some().into())]);
    one("dengine_is_leader", "gauge", "1 if this member leads.", &[("", leads.into())]);
    one("dengine_committed_index", "gauge", "The last entry that is committed.", &[("", status.commit)]);
    one("dengine_applied_index", "gauge", "The last entry that is applied.", &[("", status.applied)]);
    one("dengine_log_last_index", "gauge", "The last entry of the log.", &[("", status.last)]);
    one("dengine_log_bytes", "gauge", "Bytes of the log's files.", &[("", status.wal_bytes)]);
    one("dengine_in_flight", "gauge", "Commands in the log that are not applied.", &[("", status.in_flight as u64)]);
    let slowest = status.progress.iter().map(|(_, matched)| status.last.saturating_sub(*matched)).max();
    if let Some(lag) = slowest {
        one("dengine_member_lag_max", "gauge", "Entries that the slowest member lacks; of the leader.", &[("", lag)]);
    }
    let reads = [
        ("{path=\"read_index\"}", counted.reads_read_index),
        ("{path=\"lease\"}", counted.reads_lease),
        ("{path=\"age\"}", counted.reads_age),
        ("{path=\"local\"}", counted.reads_local),
    ];
    one("dengine_reads", "counter", "Reads that were answered, by the path that was used.", &reads);
    let writes = [("{outcome=\"applied\"}", counted.written), ("{outcome=\"other\"}", counted.not_written)];
    one("dengine_commands", "counter", "Commands of clients and of the leader, by outcome.", &writes);
    let resident = resident_bytes();
    one("process_resident_memory_bytes", "gauge", "Resident memory.", &[("", resident)]);
    if node.options().durability == Durability::Fsync {
        sync_times(&mut out, &node.handle().sync_times());
    }
    out.push_str("# EOF\n");
    out
}

/// A batch's write and sync.
fn sync_times(out: &mut String, times: &wal::SyncTimes) {
    const NAME: &str = "dengine_log_sync_seconds";
    let _ = writeln!(out, "# TYPE {NAME} histogram\n# HELP {NAME} Until a batch of the log was written and synced.");
    let mut so_far = 0;
    for (bound, count) in BOUNDS_MICROS.iter().zip(&times.counts) {
        so_far += count;
        let _ = writeln!(out, "{NAME}_bucket{{le=\"{}\"}} {so_far}", *bound as f64 / 1e6);
    }
    let (all, sum) = (times.syncs(), times.sum_nanos as f64 / 1e9);
    let _ = writeln!(out, "{NAME}_bucket{{le=\"+Inf\"}} {all}\n{NAME}_sum {sum}\n{NAME}_count {all}");
}

/// 0 if the kernel does not tell.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}
