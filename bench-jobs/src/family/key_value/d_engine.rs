//! What is spoken to d-engine: the messages of its release 0.2.4 that the loader uses, and a client of them.
//!
//! Numbers of fields and codes are those of `d_engine.client` and `d_engine.error` of that release.

use std::rc::Rc;

use bytes::Bytes;
use prost::{Message, Oneof};
use service_kit::client::{Call, Channel, GrpcError, StreamReceiver};
use service_kit::grpc::Code;
use storebench_crds::workload::key_value::ReadLevel;

use crate::failure::Failure;

const WRITE: &str = "/d_engine.client.RaftClientService/HandleClientWrite";
const READ: &str = "/d_engine.client.RaftClientService/HandleClientRead";
const SCAN: &str = "/d_engine.client.RaftClientService/HandleClientScan";
const WATCH: &str = "/d_engine.client.RaftClientService/Watch";
/// The kind of an event that is a put.
pub(super) const PUT_EVENT: i32 = 0;
/// Names this client; a server makes no use of it.
const CLIENT_ID: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct KeyAndValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct CompareAndSwap {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    expected_value: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "3")]
    new_value: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Operation {
    #[prost(message, tag = "1")]
    Insert(KeyAndValue),
    #[prost(message, tag = "2")]
    Delete(Delete),
    #[prost(message, tag = "3")]
    CompareAndSwap(CompareAndSwap),
}

#[derive(Clone, PartialEq, Message)]
struct WriteCommand {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    operation: Option<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(uint32, tag = "1")]
    client_id: u32,
    #[prost(message, optional, tag = "2")]
    command: Option<WriteCommand>,
}

#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(uint32, tag = "1")]
    client_id: u32,
    #[prost(bytes = "vec", repeated, tag = "2")]
    keys: Vec<Vec<u8>>,
    /// LEASE_READ 0, LINEARIZABLE_READ 1, EVENTUAL_CONSISTENCY 2.
    #[prost(int32, optional, tag = "3")]
    consistency_policy: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct WriteResult {
    #[prost(bool, tag = "1")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Found {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct ReadResults {
    #[prost(message, repeated, tag = "1")]
    results: Vec<Found>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Success {
    #[prost(message, tag = "2")]
    Written(WriteResult),
    #[prost(message, tag = "3")]
    Read(ReadResults),
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    /// 0: success; 4001: not the leader.
    #[prost(int32, tag = "1")]
    error: i32,
    #[prost(oneof = "Success", tags = "2, 3")]
    success: Option<Success>,
}

#[derive(Clone, PartialEq, Message)]
struct ScanRequest {
    #[prost(uint32, tag = "1")]
    client_id: u32,
    #[prost(bytes = "vec", tag = "2")]
    prefix: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ScanResponse {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Found>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(uint32, tag = "1")]
    client_id: u32,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

/// Something that happened to a watched key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    /// PUT 0, DELETE 1, CANCELED 2, PROGRESS 3.
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
}

impl Event {
    /// Whether it only says how far the state is.
    pub(super) fn is_progress(&self) -> bool {
        self.kind == 3
    }
}

/// One client on one connection.
#[derive(Debug)]
pub(super) struct Client {
    channel: Channel,
    endpoint: Rc<str>,
    write: Call,
    read: Call,
    scan: Call,
}

impl Client {
    /// A client of its own on a connection to `endpoint`, which is named in failures.
    pub(super) fn new(channel: &Channel, endpoint: &str) -> Self {
        Self {
            channel: channel.clone(),
            endpoint: endpoint.into(),
            write: channel.call(WRITE),
            read: channel.call(READ),
            scan: channel.call(SCAN),
        }
    }

    /// Where it is connected to, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Writes a key.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write_surely(Operation::Insert(KeyAndValue { key: key.into(), value: value.into() })).await
    }

    /// Gives a key another value if it has the expected one; whether it had.
    pub(super) async fn swap(&mut self, key: &[u8], expected: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let (expected_value, new_value) = (Some(expected.into()), value.into());
        self.write(Operation::CompareAndSwap(CompareAndSwap { key: key.into(), expected_value, new_value })).await
    }

    /// Reads all keys with a prefix, with their values.
    pub(super) async fn scan(&mut self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let request = ScanRequest { client_id: CLIENT_ID, prefix: prefix.into() };
        let answer: Result<ScanResponse, _> = self.channel.unary(&self.scan, &request).await;
        let answer = answer.map_err(|error| self.failure("HandleClientScan", &error))?;
        Ok(answer.entries.into_iter().map(|found| (found.key, found.value)).collect())
    }

    /// Watches a key from some moment on.
    pub(super) async fn watch(&mut self, key: &[u8]) -> Result<StreamReceiver<Event>, Failure> {
        let call = self.channel.call(WATCH);
        let request = WatchRequest { client_id: CLIENT_ID, key: key.into() };
        let stream = self.channel.stream(&call, &request).await;
        let (mut sender, receiver) = stream.map_err(|error| self.failure("Watch", &error))?;
        sender.finish().map_err(|error| self.failure("Watch", &error))?;
        Ok(receiver)
    }

    /// Deletes a key, which need not be there.
    pub(super) async fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.write_surely(Operation::Delete(Delete { key: key.into() })).await
    }

    /// Reads a key; `None`: there is none.
    pub(super) async fn get(&mut self, key: &[u8], level: ReadLevel) -> Result<Option<Bytes>, Failure> {
        let policy = match level {
            ReadLevel::Lease => 0,
            // Which this dialect does not have: what promises more.
            ReadLevel::Linearizable | ReadLevel::Bounded => 1,
            ReadLevel::Eventual => 2,
        };
        let request = ReadRequest { client_id: CLIENT_ID, keys: vec![key.into()], consistency_policy: Some(policy) };
        let answer = self.channel.unary(&self.read, &request).await;
        let answer: Response = answer.map_err(|error| self.failure("HandleClientRead", &error))?;
        match answer {
            Response { error: 0, success: Some(Success::Read(ReadResults { mut results })) } => {
                match (results.pop(), results.is_empty()) {
                    (None, _) => Ok(None),
                    (Some(found), true) if found.key == key => Ok(Some(found.value)),
                    (Some(found), _) => {
                        let text = format_args!("found key {} in its place", found.key.escape_ascii()).to_string();
                        Err(self.failure("HandleClientRead", &text))
                    }
                }
            }
            // Nothing found is an empty message, which some encoders leave out.
            Response { error: 0, success: None } => Ok(None),
            other => Err(self.unexpected("HandleClientRead", &other)),
        }
    }

    /// A write that depends on nothing.
    async fn write_surely(&mut self, operation: Operation) -> Result<(), Failure> {
        match self.write(operation).await? {
            true => Ok(()),
            false => Err(self.failure("HandleClientWrite", &"it did not succeed, and depends on nothing")),
        }
    }

    async fn write(&mut self, operation: Operation) -> Result<bool, Failure> {
        let command = Some(WriteCommand { operation: Some(operation) });
        let request = WriteRequest { client_id: CLIENT_ID, command };
        let answer = self.channel.unary(&self.write, &request).await;
        let answer: Response = answer.map_err(|error| {
            let failure = self.failure("HandleClientWrite", &error);
            match error {
                // "Not leader", as release 0.2.4 says it.
                GrpcError::Status(status) if status.code == Code::FailedPrecondition => failure.without_effect(),
                _ => failure,
            }
        })?;
        match answer {
            Response { error: 0, success: Some(Success::Written(WriteResult { succeeded })) } => Ok(succeeded),
            other => Err(self.unexpected("HandleClientWrite", &other)),
        }
    }

    fn unexpected(&self, request: &str, answer: &Response) -> Failure {
        match answer {
            Response { error: 0, .. } => self.failure(request, &"an answer that this request has not"),
            Response { error: 4001, .. } => self.failure(request, &"it does not lead (error 4001)").without_effect(),
            Response { error, .. } => self.failure(request, &format_args!("error {error}")),
        }
    }

    pub(super) fn failure(&self, request: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(format_args!("{request} at {}: {error}", self.endpoint))
    }
}
