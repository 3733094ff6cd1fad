//! Release 0.2.4 of the original: packages `d_engine.*`. Who does not lead says so with a status.

use bytes::Bytes;
use d_engine_client::proto::d_engine::client as wire;
use d_engine_client::proto::d_engine::error::ErrorCode;
use d_engine_client::{
    Answer, Error, Event, EventKind, Operation, Query, ReadLevel, Transaction, WatchOptions, Written, end_of_prefix,
};
use service_kit::grpc::{self, Code, Requests, Responses, Status, Unary};

use super::{Api, PROGRESS, cluster, decode, decode_items, errors, gone, later, now, only};
use crate::engine::Node;

/// A scan has no pages in this dialect: more than this is refused.
const SCAN_BYTES_MAX: usize = 64 << 20;

/// Its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Reads what begins with a prefix.
    Scan,
    /// Watches.
    Watch,
    /// Watches who the members are.
    WatchMembership,
    /// Who the members are.
    Cluster(cluster::Method),
}

impl Method {
    pub(super) fn of_client(name: &str) -> Option<Self> {
        match name {
            "HandleClientWrite" => Some(Self::Write),
            "HandleClientRead" => Some(Self::Read),
            "HandleClientScan" => Some(Self::Scan),
            "Watch" => Some(Self::Watch),
            "WatchMembership" => Some(Self::WatchMembership),
            _ => None,
        }
    }
}

pub(super) fn unary(api: &Api, method: Method, message: Bytes) -> Result<Unary, Status> {
    let node = &api.node;
    match method {
        Method::Write => {
            let written = node.write_later(transaction(decode(message)?)?, None, api.not_leading);
            Ok(later(api.patience, async { written.await.map(|written| result(&written)).map_err(errors::status) }))
        }
        Method::Read => {
            let (query, level) = query(decode_items(message)?);
            if let Some(answer) = node.read_now(&query, level.into()) {
                return Ok(now(answer.map(|seen| results(seen.value)).map_err(errors::status)));
            }
            let seen = node.read_later(query, level.into());
            Ok(later(api.patience, async { seen.await.map(|seen| results(seen.value)).map_err(errors::status) }))
        }
        Method::Scan => {
            let request: wire::ScanRequest = decode(message)?;
            let node = node.clone();
            Ok(later(api.patience, async move { scan(&node, request.prefix).await }))
        }
        Method::Cluster(method) => cluster::second(api, method, message),
        Method::Watch | Method::WatchMembership => Err(Status::new(Code::Internal, "it is a stream")),
    }
}

pub(super) fn transaction(request: wire::ClientWriteRequest) -> Result<Transaction, Status> {
    use wire::write_command::{CompareAndSwap, Delete, Insert, Operation as Wire};
    match request.command.and_then(|command| command.operation) {
        Some(Wire::Insert(Insert { key, value, ttl_secs })) => {
            let ttl_millis = ttl_secs.saturating_mul(1000);
            Ok(Transaction::of(Operation::Put { key, value, ttl_millis }))
        }
        Some(Wire::Delete(Delete { key })) => Ok(Transaction::delete(key)),
        Some(Wire::CompareAndSwap(CompareAndSwap { key, expected_value, new_value })) => {
            Ok(Transaction::compare_and_swap(key, expected_value, new_value))
        }
        None => Err(Status::new(Code::InvalidArgument, "the request has no operation")),
    }
}

/// A value that was not the expected one is no error.
pub(super) fn result(written: &Written) -> wire::ClientResponse {
    use wire::client_response::SuccessResult;
    let result = wire::WriteResult { succeeded: written.applied.succeeded };
    wire::ClientResponse {
        error: ErrorCode::Success.into(),
        success_result: Some(SuccessResult::WriteResult(result)),
        metadata: None,
    }
}

/// What is read, and how. Without a policy, or with one that nobody knows: the strongest.
pub(super) fn query(request: wire::ClientReadRequest) -> (Query, ReadLevel) {
    let policy = request.consistency_policy.and_then(|policy| wire::ReadConsistencyPolicy::try_from(policy).ok());
    let level = match policy {
        Some(wire::ReadConsistencyPolicy::LeaseRead) => ReadLevel::Lease,
        Some(wire::ReadConsistencyPolicy::EventualConsistency) => ReadLevel::Eventual,
        Some(wire::ReadConsistencyPolicy::LinearizableRead) | None => ReadLevel::Linearizable,
    };
    (Query::GetMany(request.keys), level)
}

/// Only keys that exist, in the order of the request.
pub(super) fn results(answer: Answer) -> wire::ClientResponse {
    use wire::client_response::SuccessResult;
    wire::ClientResponse {
        error: ErrorCode::Success.into(),
        success_result: Some(SuccessResult::ReadData(wire::ReadResults { results: entries(answer) })),
        metadata: None,
    }
}

fn entries(answer: Answer) -> Vec<wire::ClientResult> {
    answer.items.into_iter().map(|item| wire::ClientResult { key: item.key, value: item.value }).collect()
}

/// All that begins so, of one moment; linearizable, unlike the original's. An empty prefix finds nothing, as there.
async fn scan(node: &Node, prefix: Bytes) -> Result<wire::ScanResponse, Status> {
    let seen = match prefix.is_empty() {
        true => node.read_later(Query::GetMany(Vec::new()), ReadLevel::Linearizable.into()).await,
        false => node.scan_all(prefix, SCAN_BYTES_MAX).await,
    };
    let seen = seen.map_err(errors::status)?;
    if seen.value.has_more {
        return Err(Status::new(Code::ResourceExhausted, "more than 64 MiB begin so: choose a longer prefix"));
    }
    Ok(wire::ScanResponse { entries: entries(seen.value), revision: seen.index })
}

/// What a watch asks for. A prefix begins and ends with `/`.
pub(super) fn watched(request: wire::WatchRequest) -> Result<WatchOptions, Status> {
    let wire::WatchRequest { key, prefix, prev_kv, .. } = request;
    let end = if prefix { end_of_prefix(&key) } else { None };
    if prefix && !(key.starts_with(b"/") && key.ends_with(b"/")) {
        return Err(Status::new(Code::InvalidArgument, "a watched prefix must begin and end with /"));
    }
    Ok(WatchOptions { start: key, end, from_revision: 0, with_previous: prev_kv })
}

pub(super) fn happened(event: Event) -> wire::WatchResponse {
    let kind = match event.kind {
        EventKind::Put => wire::WatchEventType::Put,
        EventKind::Delete | EventKind::Expire => wire::WatchEventType::Delete,
    };
    wire::WatchResponse {
        key: event.key,
        value: event.value,
        event_type: kind.into(),
        error: ErrorCode::Success.into(),
        revision: event.revision,
        prev_value: event.previous.unwrap_or_default(),
    }
}

/// Events from now on; ends with one that says so where the client was too slow.
pub(super) async fn watch(node: Node, requests: Requests, responses: Responses) -> Result<(), Status> {
    let options = watched(only(requests).await?)?;
    let mut watching = node.watch_now(options).map_err(errors::status)?;
    responses.open().map_err(gone)?;
    let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    loop {
        responses.turn().await;
        let step = match watching.step() {
            Ok(step) => step,
            Err(error @ Error::Denied(_)) => return Err(errors::status(error)),
            Err(_) => {
                let canceled = wire::WatchEventType::Canceled.into();
                let last = wire::WatchResponse { event_type: canceled, ..wire::WatchResponse::default() };
                return responses.send(grpc::encode(&last)).await.map_err(gone);
            }
        };
        for event in step.events {
            responses.send_counted(grpc::encode(&happened(event))).await?;
        }
        if step.has_more {
            continue;
        }
        tokio::select! {
            changed = watching.changed() => changed.map_err(errors::status)?,
            _ = progress.tick() => {
                let kind = wire::WatchEventType::Progress.into();
                // Everything up to there has been told.
                let said = wire::WatchResponse { event_type: kind, revision: step.index, ..wire::WatchResponse::default() };
                responses.send(grpc::encode(&said)).await.map_err(gone)?;
            }
        }
    }
}
