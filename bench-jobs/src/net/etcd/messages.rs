//! The messages of the etcd v3 API that this loader sends and reads, and no others.
//!
//! Hand-written for `prost` instead of generated, so that no protoc is needed and each field has a reason. Names,
//! numbers and types are those of `etcdserverpb/rpc.proto` and `mvccpb/kv.proto` in `go.etcd.io/etcd/api/v3` v3.7.3;
//! fields that the loader never looks at are left out and skipped when decoded. Byte fields of answers are `Bytes`: a
//! decoded key or value points into the received buffer. Those of requests are `Vec`: a client fills the same again.

use bytes::Bytes;
use prost::{Message, Oneof};

/// Method paths: `/etcdserverpb.<service>/<method>` of `rpc.proto`.
pub mod path {
    /// `KV.Range`.
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    /// `KV.Put`.
    pub const PUT: &str = "/etcdserverpb.KV/Put";
    /// `KV.DeleteRange`.
    pub const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
    /// `KV.Txn`.
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    /// `KV.Compact`.
    pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
    /// `Watch.Watch`, a bidirectional stream.
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    /// `Lease.LeaseGrant`.
    pub const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    /// `Lease.LeaseRevoke`.
    pub const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    /// `Maintenance.Status`.
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    /// `Auth.Authenticate`.
    pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    /// `Lease.LeaseKeepAlive`, a bidirectional stream.
    pub const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusRequest {}

/// `etcdserverpb.StatusResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusResponse {
    /// The version as the member itself says.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The size of the member's file, bytes, whether in use or not.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// What is wrong with the member, alarms of the cluster among it.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// How large the file may become, bytes; negative: as it will. 0: the member, before 3.6, does not say.
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
}

/// `etcdserverpb.AuthenticateRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub password: String,
}

/// `etcdserverpb.AuthenticateResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateResponse {
    /// What later requests say in their metadata, as `token`.
    #[prost(string, tag = "2")]
    pub token: String,
}

/// `etcdserverpb.ResponseHeader`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ResponseHeader {
    /// The store's revision when the request was applied.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// `mvccpb.KeyValue`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Revision of the last creation.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// Revision of the last change.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Puts since the last creation; 1 is the creation itself.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

/// `etcdserverpb.RangeRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeRequest {
    /// The key, or the first key of a range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The key after the last of a range; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The most keys to return; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Read as of this revision; 0 for the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Let the member answer alone, possibly from the past.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Leave values out.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Return the count alone.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

/// `etcdserverpb.RangeResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeResponse {
    /// Common to all responses.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The keys found, in ascending order.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// Whether `limit` left some out.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// Keys in the range, whatever the limit.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `etcdserverpb.PutResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutResponse {
    /// Common to all responses; its revision is the put's own.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.DeleteRangeRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRangeRequest {
    /// The key, or the first key of a range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The key after the last of a range; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
}

/// `etcdserverpb.DeleteRangeResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRangeResponse {
    /// Common to all responses.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// How many keys there were.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}

/// `etcdserverpb.RequestOp`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestOp {
    /// The request in it.
    #[prost(oneof = "request_op::Request", tags = "2")]
    pub request: Option<request_op::Request>,
}

/// The choices of [`RequestOp`].
pub mod request_op {
    /// `etcdserverpb.RequestOp.request`.
    #[derive(Clone, PartialEq, Eq, super::Oneof)]
    pub enum Request {
        /// A put.
        #[prost(message, tag = "2")]
        Put(super::PutRequest),
    }
}

/// `etcdserverpb.ResponseOp`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResponseOp {
    /// The response in it; absent if it is of a kind that this loader never asks for.
    #[prost(oneof = "response_op::Response", tags = "2")]
    pub response: Option<response_op::Response>,
}

/// The choices of [`ResponseOp`].
pub mod response_op {
    /// `etcdserverpb.ResponseOp.response`.
    #[derive(Clone, PartialEq, Eq, super::Oneof)]
    pub enum Response {
        /// A put's.
        #[prost(message, tag = "2")]
        Put(super::PutResponse),
    }
}

/// `etcdserverpb.Compare`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Compare {
    /// `etcdserverpb.Compare.CompareResult`, such as [`compare::EQUAL`].
    #[prost(int32, tag = "1")]
    pub result: i32,
    /// `etcdserverpb.Compare.CompareTarget`, such as [`compare::VERSION`].
    #[prost(int32, tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// What it is compared with.
    #[prost(oneof = "compare::TargetUnion", tags = "4, 7")]
    pub target_union: Option<compare::TargetUnion>,
}

/// The choices of [`Compare`].
pub mod compare {
    /// `etcdserverpb.Compare.CompareResult.EQUAL`.
    pub const EQUAL: i32 = 0;
    /// `etcdserverpb.Compare.CompareTarget.VERSION`.
    pub const VERSION: i32 = 0;
    /// `etcdserverpb.Compare.CompareTarget.VALUE`.
    pub const VALUE: i32 = 3;

    /// `etcdserverpb.Compare.target_union`.
    #[derive(Clone, PartialEq, Eq, super::Oneof)]
    pub enum TargetUnion {
        /// Puts since the key's creation.
        #[prost(int64, tag = "4")]
        Version(i64),
        /// The value.
        #[prost(bytes, tag = "7")]
        Value(Vec<u8>),
    }
}

/// `etcdserverpb.TxnRequest`, without the branch for conditions that do not hold.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnRequest {
    /// Conditions, all of which must hold.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// What to do.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
}

/// `etcdserverpb.TxnResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnResponse {
    /// Common to all responses; its revision is that of all the transaction's puts.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether the `success` branch ran.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// One for each request, in order.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// `etcdserverpb.CompactionRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CompactionRequest {
    /// Forget the history before this revision.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Answer only when the history is gone from disk.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

/// `etcdserverpb.CompactionResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CompactionResponse {
    /// Common to all responses.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.WatchRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchRequest {
    /// The request in it.
    #[prost(oneof = "watch_request::Request", tags = "1")]
    pub request: Option<watch_request::Request>,
}

/// The choices of [`WatchRequest`].
pub mod watch_request {
    /// `etcdserverpb.WatchRequest.request_union`.
    #[derive(Clone, PartialEq, Eq, super::Oneof)]
    pub enum Request {
        /// Begin a watch.
        #[prost(message, tag = "1")]
        Create(super::WatchCreateRequest),
    }
}

/// `etcdserverpb.WatchCreateRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchCreateRequest {
    /// The key, or the first key of a range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The key after the last of a range; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision to tell; 0 for what comes next.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Tell the value before the change as well.
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
}

/// `etcdserverpb.WatchResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchResponse {
    /// Common to all responses.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Which watch of the stream it is for.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// The watch has begun.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// The watch is over.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Canceled because the history it needs is compacted up to this revision.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why it was canceled.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// The changes, oldest first.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// `mvccpb.Event`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Event {
    /// `mvccpb.Event.EventType`: [`EVENT_PUT`], or 1 for a deletion.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// The pair after the change; for a deletion only its key and `mod_revision`.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    /// The pair before the change, if asked for.
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

/// `mvccpb.Event.EventType.PUT`.
pub const EVENT_PUT: i32 = 0;

/// `etcdserverpb.LeaseGrantRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseGrantRequest {
    /// Time to live, seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

/// `etcdserverpb.LeaseGrantResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseGrantResponse {
    /// The lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live that the server chose, seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Why not, if not granted.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// `etcdserverpb.LeaseRevokeRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseRevokeRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `etcdserverpb.LeaseRevokeResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseRevokeResponse {
    /// Common to all responses.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.LeaseKeepAliveRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseKeepAliveRequest {
    /// The lease.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// `etcdserverpb.LeaseKeepAliveResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeaseKeepAliveResponse {
    /// The lease.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// Time to live from now, seconds; 0 if the lease is gone.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes written down by hand from the `.proto` files: field number << 3 | wire type.
    #[test]
    fn field_numbers_are_those_of_the_public_api() {
        let range = RangeRequest {
            key: "k".into(),
            range_end: "l".into(),
            limit: 2,
            revision: 3,
            serializable: true,
            keys_only: true,
            count_only: true,
        };
        let expected = b"\x0a\x01k\x12\x01l\x18\x02\x20\x03\x38\x01\x40\x01\x48\x01";
        assert_eq!(range.encode_to_vec(), expected);

        let put = PutRequest { key: "k".into(), value: "v".into() };
        let version = Some(compare::TargetUnion::Version(1));
        let first = Compare { key: "k".into(), target_union: version, ..Compare::default() };
        let success = vec![RequestOp { request: Some(request_op::Request::Put(put)) }];
        let txn = TxnRequest { compare: vec![first], success };
        assert_eq!(txn.encode_to_vec(), b"\x0a\x05\x1a\x01k\x20\x01\x12\x08\x12\x06\x0a\x01k\x12\x01v");

        let watch = WatchRequest {
            request: Some(watch_request::Request::Create(WatchCreateRequest {
                key: "k".into(),
                range_end: "l".into(),
                start_revision: 4,
                prev_kv: true,
            })),
        };
        assert_eq!(watch.encode_to_vec(), b"\x0a\x0a\x0a\x01k\x12\x01l\x18\x04\x30\x01");
    }

    #[test]
    fn unknown_fields_of_a_real_answer_are_skipped() {
        // header {cluster_id 1, member_id 2, revision 3, raft_term 4}, kvs [{key k, version 5, value v, lease 6}], count 1
        let bytes = b"\x0a\x08\x08\x01\x10\x02\x18\x03\x20\x04\x12\x0a\x0a\x01k\x20\x05\x2a\x01v\x30\x06\x20\x01";
        let answer = RangeResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(answer.header.unwrap().revision, 3);
        assert_eq!((answer.kvs[0].version, &answer.kvs[0].value[..]), (5, &b"v"[..]));
        assert_eq!(answer.count, 1);
    }
}
