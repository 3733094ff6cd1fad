//! Release 0.1.4 of the original: packages `raft.*`. Who does not lead says so within the answer to a write.

use bytes::Bytes;
use d_engine_client::proto::raft::client as wire;
use d_engine_client::proto::raft::error::{ErrorCode, ErrorMetadata};
use d_engine_client::{Answer, Error, Operation, Query, ReadLevel, Transaction};
use service_kit::grpc::{Code, Status, Unary};

use super::{Api, cluster, decode_items, errors, later, now};

/// Its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Who the members are.
    Cluster(cluster::Method),
}

impl Method {
    pub(super) fn of_client(name: &str) -> Option<Self> {
        match name {
            "HandleClientWrite" => Some(Self::Write),
            "HandleClientRead" => Some(Self::Read),
            _ => None,
        }
    }
}

pub(super) fn unary(api: &Api, method: Method, message: Bytes) -> Result<Unary, Status> {
    let node = &api.node;
    match method {
        Method::Write => {
            let transaction = transaction(decode_items(message)?)?;
            let written = node.write_later(transaction, None, api.not_leading);
            Ok(later(api.patience, async { acknowledgement(written.await.map(|_| ())) }))
        }
        Method::Read => {
            let (query, level) = query(decode_items(message)?);
            if let Some(answer) = node.read_now(&query, level.into()) {
                return Ok(now(answer.map(|seen| results(seen.value)).map_err(errors::status)));
            }
            let seen = node.read_later(query, level.into());
            Ok(later(api.patience, async { seen.await.map(|seen| results(seen.value)).map_err(errors::status) }))
        }
        Method::Cluster(method) => cluster::first(api, method, message),
    }
}

/// Several commands become one transaction.
pub(super) fn transaction(request: wire::ClientWriteRequest) -> Result<Transaction, Status> {
    use wire::write_command::{Delete, Insert, Operation as Wire};
    let operation = |command: wire::WriteCommand| match command.operation {
        Some(Wire::Insert(Insert { key, value })) => Ok(Operation::Put { key, value, ttl_millis: 0 }),
        Some(Wire::Delete(Delete { key })) => Ok(Operation::Delete { key }),
        None => Err(Status::new(Code::InvalidArgument, "a command has no operation")),
    };
    let then = request.commands.into_iter().map(operation).collect::<Result<Vec<_>, _>>()?;
    Ok(Transaction { then, ..Transaction::default() })
}

pub(super) fn acknowledgement(written: Result<(), Error>) -> Result<wire::ClientResponse, Status> {
    use wire::client_response::SuccessResult;
    match written {
        Ok(()) => Ok(wire::ClientResponse {
            error: ErrorCode::Success.into(),
            success_result: Some(SuccessResult::WriteAck(true)),
            metadata: None,
        }),
        Err(Error::NotLeader(leader)) => {
            let leader = leader.as_ref();
            let metadata = ErrorMetadata {
                leader_id: leader.map(|leader| leader.id.to_string()),
                leader_address: leader.map(|leader| leader.address.clone()),
                debug_message: "Not leader".into(),
                ..ErrorMetadata::default()
            };
            Ok(wire::ClientResponse {
                error: ErrorCode::NotLeader.into(),
                success_result: None,
                metadata: Some(metadata),
            })
        }
        Err(error) => Err(errors::status(error)),
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
    let result = |item: d_engine_client::KeyValue| wire::ClientResult { key: item.key, value: item.value };
    let results = answer.items.into_iter().map(result).collect();
    wire::ClientResponse {
        error: ErrorCode::Success.into(),
        success_result: Some(SuccessResult::ReadData(wire::ReadResults { results })),
        metadata: None,
    }
}
