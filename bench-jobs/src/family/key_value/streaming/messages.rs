//! Messages of the streaming RPC of our d-engine, as far as the loader uses them. Numbers of fields and codes are those of
//! `services/d-engine/proto/storebench/dengine/v1.proto`.

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Requests {
    #[prost(message, repeated, tag = "1")]
    pub(super) requests: Vec<Request>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(oneof = "Asked", tags = "2, 3")]
    pub(super) body: Option<Asked>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Asked {
    #[prost(message, tag = "2")]
    Write(Write),
    #[prost(message, tag = "3")]
    Read(Read),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Write {
    #[prost(message, repeated, tag = "1")]
    pub(super) compares: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) then: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Condition", tags = "2, 4")]
    pub(super) condition: Option<Condition>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Condition {
    #[prost(bytes, tag = "2")]
    ValueIs(Vec<u8>),
    #[prost(uint64, tag = "4")]
    RevisionIs(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Done", tags = "1, 2, 5, 6, 7, 8")]
    pub(super) body: Option<Done>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Done {
    #[prost(message, tag = "1")]
    Put(Put),
    #[prost(bytes, tag = "2")]
    Delete(Vec<u8>),
    #[prost(message, tag = "5")]
    Attach(Attach),
    #[prost(uint64, tag = "6")]
    GrantMillis(u64),
    #[prost(uint64, tag = "7")]
    KeepAlive(u64),
    #[prost(uint64, tag = "8")]
    Revoke(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attach {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(super) lease: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Read {
    #[prost(oneof = "Level", tags = "1, 2, 3, 4")]
    pub(super) level: Option<Level>,
    #[prost(oneof = "What", tags = "6, 8")]
    pub(super) what: Option<What>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(super) enum Level {
    #[prost(message, tag = "1")]
    Linearizable(Nothing),
    #[prost(message, tag = "2")]
    Lease(Nothing),
    #[prost(uint64, tag = "3")]
    BoundedMicros(u64),
    #[prost(message, tag = "4")]
    Eventual(Nothing),
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum What {
    #[prost(bytes, tag = "6")]
    Get(Vec<u8>),
    #[prost(message, tag = "8")]
    Scan(Scan),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scan {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) start: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) end: Option<Vec<u8>>,
    #[prost(uint32, tag = "3")]
    pub(super) limit: u32,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) after: Option<Vec<u8>>,
    #[prost(bool, tag = "5")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Replies {
    #[prost(message, repeated, tag = "1")]
    pub(super) replies: Vec<Reply>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Reply {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) index: u64,
    #[prost(oneof = "Answer", tags = "4, 5, 6")]
    pub(super) body: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Answer {
    #[prost(message, tag = "4")]
    Error(Error),
    #[prost(message, tag = "5")]
    Written(Written),
    #[prost(message, tag = "6")]
    Found(Found),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Error {
    /// NOT_LEADER 1, BUSY 2, INVALID 3, UNKNOWN_OUTCOME 4, NO_QUORUM 5, NO_SESSION 6, TOO_OLD 7, STOPPED 8, DENIED 9.
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Written {
    #[prost(bool, tag = "1")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "2")]
    pub(super) results: Vec<OperationResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OperationResult {
    #[prost(oneof = "Outcome", tags = "2, 5, 6")]
    pub(super) body: Option<Outcome>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Outcome {
    #[prost(bool, tag = "2")]
    Deleted(bool),
    #[prost(bool, tag = "5")]
    Attached(bool),
    #[prost(message, tag = "6")]
    Lease(GotLease),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GotLease {
    #[prost(message, optional, tag = "1")]
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Lease {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Found {
    #[prost(message, repeated, tag = "1")]
    pub(super) items: Vec<KeyValue>,
    #[prost(bool, tag = "2")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(uint64, tag = "3")]
    pub(super) revision: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) start: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(super) from_revision: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Events {
    #[prost(message, repeated, tag = "1")]
    pub(super) events: Vec<Event>,
    #[prost(message, optional, tag = "3")]
    pub(super) error: Option<Error>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// PUT 0, DELETE 1, EXPIRE 2.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) value: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes written down by hand from the `.proto` file: field number << 3 | wire type.
    #[test]
    fn field_numbers_are_those_of_the_proto_file() {
        let compare = Compare { key: "k".into(), condition: Some(Condition::RevisionIs(3)) };
        assert_eq!(compare.encode_to_vec(), b"\x0a\x01k\x20\x03");
        let compare = Compare { key: "k".into(), condition: Some(Condition::ValueIs("v".into())) };
        assert_eq!(compare.encode_to_vec(), b"\x0a\x01k\x12\x01v");
        let operations = [
            (Done::Put(Put { key: "k".into(), value: "v".into() }), &b"\x0a\x06\x0a\x01k\x12\x01v"[..]),
            (Done::Delete("k".into()), b"\x12\x01k"),
            (Done::Attach(Attach { key: "k".into(), lease: 4 }), b"\x2a\x05\x0a\x01k\x10\x04"),
            (Done::GrantMillis(5), b"\x30\x05"),
            (Done::KeepAlive(6), b"\x38\x06"),
            (Done::Revoke(7), b"\x40\x07"),
        ];
        for (done, bytes) in operations {
            assert_eq!(Operation { body: Some(done) }.encode_to_vec(), bytes);
        }
        let scan = Scan { start: "a".into(), end: Some("b".into()), limit: 2, after: None, keys_only: true };
        let read = Read { level: Some(Level::Linearizable(Nothing {})), what: Some(What::Scan(scan)) };
        assert_eq!(read.encode_to_vec(), b"\x0a\x00\x42\x0a\x0a\x01a\x12\x01b\x18\x02\x28\x01");
        let next = Scan { start: "a".into(), end: None, limit: 2, after: Some("b".into()), keys_only: false };
        assert_eq!(next.encode_to_vec(), b"\x0a\x01a\x18\x02\x22\x01b");
        let read = Read { level: Some(Level::BoundedMicros(9)), what: Some(What::Get("k".into())) };
        assert_eq!(read.encode_to_vec(), b"\x18\x09\x32\x01k");
        for (level, bytes) in
            [(Level::Lease(Nothing {}), b"\x12\x00\x32\x01k"), (Level::Eventual(Nothing {}), b"\x22\x00\x32\x01k")]
        {
            assert_eq!(Read { level: Some(level), what: Some(What::Get("k".into())) }.encode_to_vec(), bytes);
        }
        let watch = WatchRequest { start: "k".into(), from_revision: 8 };
        assert_eq!(watch.encode_to_vec(), b"\x0a\x01k\x18\x08");
        let told = Events::decode(&b"\x0a\x08\x08\x01\x12\x01k\x1a\x01v\x10\x05"[..]).unwrap();
        assert_eq!(told, Events { events: vec![Event { kind: 1, value: "v".into() }], error: None });
        let reply = Replies::decode(&b"\x0a\x0c\x08\x01\x10\x02\x2a\x06\x08\x01\x12\x02\x10\x01"[..]).unwrap();
        let results = vec![OperationResult { body: Some(Outcome::Deleted(true)) }];
        let written = Answer::Written(Written { succeeded: true, results });
        assert_eq!(reply.replies, [Reply { id: 1, index: 2, body: Some(written) }]);
    }
}
