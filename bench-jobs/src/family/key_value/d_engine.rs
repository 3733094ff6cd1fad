//! What is spoken to d-engine: the messages of its release 0.2.4 that the loader uses, and a client of them.
//!
//! Numbers of fields and codes are those of `d_engine.client` and `d_engine.error` of that release.

use std::rc::Rc;

use bytes::Bytes;
use prost::{Message, Oneof};
use service_kit::client::{Call, Channel};
use storebench_crds::workload::key_value::ReadLevel;

use crate::failure::Failure;

const WRITE: &str = "/d_engine.client.RaftClientService/HandleClientWrite";
const READ: &str = "/d_engine.client.RaftClientService/HandleClientRead";
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

#[derive(Clone, PartialEq, Oneof)]
enum Operation {
    #[prost(message, tag = "1")]
    Insert(KeyAndValue),
    #[prost(message, tag = "2")]
    Delete(Delete),
}

#[derive(Clone, PartialEq, Message)]
struct WriteCommand {
    #[prost(oneof = "Operation", tags = "1, 2")]
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

/// One client on one connection.
#[derive(Debug)]
pub(super) struct Client {
    channel: Channel,
    endpoint: Rc<str>,
    write: Call,
    read: Call,
}

impl Client {
    /// A client of its own on a connection to `endpoint`, which is named in failures.
    pub(super) fn new(channel: &Channel, endpoint: &str) -> Self {
        Self {
            channel: channel.clone(),
            endpoint: endpoint.into(),
            write: channel.call(WRITE),
            read: channel.call(READ),
        }
    }

    /// Where it is connected to, `host:port`.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Writes a key.
    pub(super) async fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write(Operation::Insert(KeyAndValue { key: key.into(), value: value.into() })).await
    }

    /// Deletes a key, which need not be there.
    pub(super) async fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.write(Operation::Delete(Delete { key: key.into() })).await
    }

    /// Reads a key; `None`: there is none.
    pub(super) async fn get(&mut self, key: &[u8], level: ReadLevel) -> Result<Option<Bytes>, Failure> {
        let policy = match level {
            ReadLevel::Lease => 0,
            ReadLevel::Linearizable => 1,
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

    async fn write(&mut self, operation: Operation) -> Result<(), Failure> {
        let command = Some(WriteCommand { operation: Some(operation) });
        let request = WriteRequest { client_id: CLIENT_ID, command };
        let answer = self.channel.unary(&self.write, &request).await;
        let answer: Response = answer.map_err(|error| self.failure("HandleClientWrite", &error))?;
        match answer {
            Response { error: 0, success: Some(Success::Written(WriteResult { succeeded: true })) } => Ok(()),
            other => Err(self.unexpected("HandleClientWrite", &other)),
        }
    }

    fn unexpected(&self, request: &str, answer: &Response) -> Failure {
        let said = match answer {
            Response { error: 0, .. } => "an answer that this request has not".to_owned(),
            Response { error: 4001, .. } => "it does not lead (error 4001)".to_owned(),
            Response { error, .. } => format!("error {error}"),
        };
        self.failure(request, &said)
    }

    fn failure(&self, request: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(format_args!("{request} at {}: {error}", self.endpoint))
    }
}
