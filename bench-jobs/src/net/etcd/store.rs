//! One client's way to the store: each request of the API as a method that answers or fails in one line.

use std::rc::Rc;

use prost::Message;
use service_kit::client::{Call, Channel, GrpcError, StreamReceiver, StreamSender};
use service_kit::grpc::Code;

use crate::failure::Failure;
use crate::net::etcd::messages::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    ResponseHeader, StatusRequest, StatusResponse, TxnRequest, TxnResponse, path,
};

/// One client on one connection.
#[derive(Debug)]
pub struct Store {
    channel: Channel,
    endpoint: Rc<str>,
    put: Call,
    range: Call,
    delete: Call,
    transact: Call,
}

impl Store {
    /// A client of its own on a connection to `endpoint`, which is named in failures.
    pub fn new(channel: &Channel, endpoint: &str) -> Self {
        Self {
            channel: channel.clone(),
            endpoint: endpoint.into(),
            put: channel.call(path::PUT),
            range: channel.call(path::RANGE),
            delete: channel.call(path::DELETE_RANGE),
            transact: channel.call(path::TXN),
        }
    }

    /// Where it is connected to, `host:port`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Writes a key. The answer's revision is the write's own.
    pub async fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Failure> {
        let answer = self.channel.unary(&self.put, request).await;
        answer.map_err(|error| self.failure("Put", &error))
    }

    /// Reads a key or a range.
    pub async fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, Failure> {
        let answer = self.channel.unary(&self.range, request).await;
        answer.map_err(|error| self.failure("Range", &error))
    }

    /// Deletes a key or a range.
    pub async fn delete(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Failure> {
        let answer = self.channel.unary(&self.delete, request).await;
        answer.map_err(|error| self.failure("DeleteRange", &error))
    }

    /// Runs a transaction.
    pub async fn transact(&mut self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        let answer = self.channel.unary(&self.transact, request).await;
        answer.map_err(|error| self.failure("Txn", &error))
    }

    /// Forgets the history before a revision. A revision that is forgotten already is no failure: the store may compact
    /// by itself.
    pub async fn compact(&mut self, request: &CompactionRequest) -> Result<(), Failure> {
        let call = self.channel.call(path::COMPACT);
        match self.channel.unary::<_, CompactionResponse>(&call, request).await {
            Ok(_) => Ok(()),
            // etcd's ErrCompacted, "required revision has been compacted", has this code.
            Err(GrpcError::Status(status)) if status.code == Code::OutOfRange => Ok(()),
            Err(error) => Err(self.failure("Compact", &error)),
        }
    }

    /// What the member says of itself.
    pub async fn status(&mut self) -> Result<StatusResponse, Failure> {
        let call = self.channel.call(path::STATUS);
        let answer = self.channel.unary(&call, &StatusRequest {}).await;
        answer.map_err(|error| self.failure("Status", &error))
    }

    /// Grants a lease.
    pub async fn grant(&mut self, request: &LeaseGrantRequest) -> Result<LeaseGrantResponse, Failure> {
        let call = self.channel.call(path::LEASE_GRANT);
        let answer = self.channel.unary(&call, request).await;
        answer.map_err(|error| self.failure("LeaseGrant", &error))
    }

    /// Ends a lease.
    pub async fn revoke(&mut self, request: &LeaseRevokeRequest) -> Result<LeaseRevokeResponse, Failure> {
        let call = self.channel.call(path::LEASE_REVOKE);
        let answer = self.channel.unary(&call, request).await;
        answer.map_err(|error| self.failure("LeaseRevoke", &error))
    }

    /// Opens a stream of messages both ways. `path` as in [`path`].
    pub async fn stream<A, B>(
        &mut self,
        path: &'static str,
        first: &A,
    ) -> Result<(StreamSender<A>, StreamReceiver<B>), Failure>
    where
        A: Message,
        B: Message + Default,
    {
        let call = self.channel.call(path);
        let stream = self.channel.stream(&call, first).await;
        stream.map_err(|error| self.failure("stream", &error))
    }

    /// What went wrong, while doing what, and where.
    #[cold]
    pub fn failure(&self, doing: &str, error: &GrpcError) -> Failure {
        match error {
            GrpcError::Connect(said) => Failure::new(said).without_effect(),
            error => {
                let failure = Failure::grpc(format_args!("{doing} at {}: {error}", self.endpoint), error);
                if is_of_time(error) { failure } else { failure.never_of_time() }
            }
        }
    }
}

/// Whether a delay may explain it: of what a store answers, that nobody leads, that it took too long, or that something has expired.
fn is_of_time(error: &GrpcError) -> bool {
    match error {
        GrpcError::Connect(_) | GrpcError::Broken(_) | GrpcError::TimedOut(_) => true,
        GrpcError::Status(status) => match status.code {
            Code::Canceled | Code::DeadlineExceeded | Code::Aborted | Code::Unavailable | Code::Unknown => true,
            Code::NotFound | Code::FailedPrecondition | Code::Unauthenticated => true,
            Code::Ok | Code::InvalidArgument | Code::AlreadyExists | Code::PermissionDenied => false,
            Code::ResourceExhausted | Code::OutOfRange | Code::Unimplemented | Code::Internal | Code::DataLoss => false,
        },
        GrpcError::Protocol(_) | GrpcError::Frame(_) | GrpcError::Decode(_) => false,
    }
}

/// The revision in an answer; 0 if it has none, which no check accepts.
pub fn revision_of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
