//! As much of Protocol Buffers and of etcd's messages as the faults need: the header of any answer, fabricated answers
//! to Put and Txn, and where a value is in the answer to Range.
//!
//! Promises: bytes from outside are never trusted: what is malformed, compressed or not fabricable gives `None`, and
//! then the caller passes it on untouched. Wire format: <https://protobuf.dev/programming-guides/encoding/>; field
//! numbers: etcd `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto`.

use std::ops::Range;

/// The fields of one message: number, value, and where the value's bytes are.
struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(u64),
    Bytes(Range<usize>),
    /// Of a fixed size, which none of the fields looked for is.
    Fixed,
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.message.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, length: u64) -> Option<Range<usize>> {
        let start = self.at;
        let end = start.checked_add(usize::try_from(length).ok()?).filter(|end| *end <= self.message.len())?;
        self.at = end;
        Some(start..end)
    }

    fn field(&mut self) -> Option<(u64, Value)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => self.varint().and_then(|length| self.skip(length)).map(Value::Bytes)?,
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

/// All fields of a message, or `None` if it is malformed.
fn fields(message: &[u8]) -> Option<Vec<(u64, Value)>> {
    let mut reader = Fields { message, at: 0 };
    let mut all = Vec::new();
    while reader.at < message.len() {
        all.push(reader.field()?);
    }
    Some(all)
}

/// Where the embedded messages or strings of field `number` are.
fn embedded(message: &[u8], number: u64) -> Option<Vec<Range<usize>>> {
    let wanted = |(field, value)| match value {
        Value::Bytes(range) if field == number => Some(range),
        _ => None,
    };
    Some(fields(message)?.into_iter().filter_map(wanted).collect())
}

/// A `TxnRequest` without what it compares (its field 1), so that it always succeeds. `None`: it is malformed.
pub fn without_compares(message: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Fields { message, at: 0 };
    let mut kept = Vec::new();
    while reader.at < message.len() {
        let start = reader.at;
        if reader.field()?.0 != 1 {
            kept.extend_from_slice(&message[start..reader.at]);
        }
    }
    Some(kept)
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    if number != 0 {
        put_varint(out, field << 3);
        put_varint(out, number);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The one message in the body of a unary gRPC call: a byte that says whether it is compressed, four of length.
/// `None`: there is not exactly one, or it is compressed.
pub fn unframe(body: &[u8]) -> Option<Range<usize>> {
    let [0, l0, l1, l2, l3, message @ ..] = body else {
        return None;
    };
    (u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize == message.len()).then_some(5..body.len())
}

/// A message as the body of a unary gRPC call.
pub fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &(message.len() as u32).to_be_bytes()[..], message].concat()
}

/// `ResponseHeader`, which all of etcd's answers begin with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    cluster: u64,
    member: u64,
    /// The revision of the store.
    pub revision: u64,
    term: u64,
}

impl Header {
    /// Finds the header in any of etcd's answers.
    pub fn of(answer: &[u8]) -> Option<Self> {
        let range = embedded(answer, 1)?.into_iter().next()?;
        let mut header = Self::default();
        for field in fields(&answer[range])? {
            match field {
                (1, Value::Number(cluster)) => header.cluster = cluster,
                (2, Value::Number(member)) => header.member = member,
                (3, Value::Number(revision)) => header.revision = revision,
                (4, Value::Number(term)) => header.term = term,
                _ => {}
            }
        }
        // Other services' messages can look like this one; a header without a cluster is none.
        (header.cluster != 0).then_some(header)
    }

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        for (field, number) in [(1, self.cluster), (2, self.member), (3, self.revision), (4, self.term)] {
            put_number(&mut out, field, number);
        }
        out
    }
}

/// What a write that never reached the store can be answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fabricable {
    /// `PutRequest`.
    Put,
    /// `TxnRequest` with so many operations on success, each a put.
    Txn {
        /// How many.
        puts: usize,
    },
}

impl Fabricable {
    /// Looks at a `PutRequest`. `None`: the answer depends on what the store holds (`prev_kv`).
    pub fn put(request: &[u8]) -> Option<Self> {
        let wants_previous = fields(request)?.contains(&(4, Value::Number(1)));
        (!wants_previous).then_some(Self::Put)
    }

    /// Looks at a `TxnRequest`. `None`: on success it does something else than puts, or nothing.
    pub fn txn(request: &[u8]) -> Option<Self> {
        let success = embedded(request, 2)?;
        for operation in &success {
            // RequestOp: 1 range, 2 put, 3 delete, 4 transaction.
            let put = embedded(&request[operation.clone()], 2)?.pop()?;
            Self::put(&request[operation.clone()][put])?;
        }
        (!success.is_empty()).then_some(Self::Txn { puts: success.len() })
    }

    /// The answer of a store that had done it. `header`: of the store's last answer that was seen; the write claims
    /// the revision after that.
    pub fn answer(&self, header: Header) -> Vec<u8> {
        let header = Header { revision: header.revision.saturating_add(1), ..header }.encode();
        let mut out = Vec::new();
        put_bytes(&mut out, 1, &header);
        if let Self::Txn { puts } = self {
            put_number(&mut out, 2, 1);
            // ResponseOp { response_put = 2: PutResponse { header = 1: only the revision is set in there } }
            let (mut revision, mut put, mut operation) = (Vec::new(), Vec::new(), Vec::new());
            put_number(&mut revision, 3, Header::of(&out).unwrap_or_default().revision);
            put_bytes(&mut put, 1, &revision);
            put_bytes(&mut operation, 2, &put);
            for _ in 0..*puts {
                put_bytes(&mut out, 3, &operation);
            }
        }
        out
    }
}

/// Where the last byte of the first value is in a `RangeResponse`. `None`: it has no value that is not empty.
pub fn last_byte_of_value(response: &[u8]) -> Option<usize> {
    for pair in embedded(response, 2)? {
        let value = embedded(&response[pair.clone()], 5)?.pop();
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Some(pair.start + value.end - 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    // What prost makes of the same field numbers: a second opinion on the encoding.
    #[derive(Clone, PartialEq, Message)]
    struct ResponseHeader {
        #[prost(uint64, tag = "1")]
        cluster_id: u64,
        #[prost(uint64, tag = "2")]
        member_id: u64,
        #[prost(int64, tag = "3")]
        revision: i64,
        #[prost(uint64, tag = "4")]
        raft_term: u64,
    }
    #[derive(Clone, PartialEq, Message)]
    struct KeyValue {
        #[prost(bytes, tag = "1")]
        key: Vec<u8>,
        #[prost(int64, tag = "2")]
        create_revision: i64,
        #[prost(bytes, tag = "5")]
        value: Vec<u8>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct RangeResponse {
        #[prost(message, tag = "1")]
        header: Option<ResponseHeader>,
        #[prost(message, repeated, tag = "2")]
        kvs: Vec<KeyValue>,
        #[prost(int64, tag = "4")]
        count: i64,
    }
    #[derive(Clone, PartialEq, Message)]
    struct PutRequest {
        #[prost(bytes, tag = "1")]
        key: Vec<u8>,
        #[prost(bytes, tag = "2")]
        value: Vec<u8>,
        #[prost(bool, tag = "4")]
        prev_kv: bool,
    }
    #[derive(Clone, PartialEq, Message)]
    struct RequestOp {
        #[prost(message, tag = "2")]
        put: Option<PutRequest>,
        #[prost(message, tag = "3")]
        delete: Option<PutRequest>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct TxnRequest {
        #[prost(message, repeated, tag = "1")]
        compare: Vec<PutRequest>,
        #[prost(message, repeated, tag = "2")]
        success: Vec<RequestOp>,
        #[prost(message, repeated, tag = "3")]
        failure: Vec<RequestOp>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct PutResponse {
        #[prost(message, tag = "1")]
        header: Option<ResponseHeader>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct ResponseOp {
        #[prost(message, tag = "2")]
        put: Option<PutResponse>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct TxnResponse {
        #[prost(message, tag = "1")]
        header: Option<ResponseHeader>,
        #[prost(bool, tag = "2")]
        succeeded: bool,
        #[prost(message, repeated, tag = "3")]
        responses: Vec<ResponseOp>,
    }

    fn range_response(values: &[&[u8]]) -> RangeResponse {
        let header = ResponseHeader { cluster_id: u64::MAX, member_id: 2, revision: 300, raft_term: 4 };
        let pair = |value: &&[u8]| KeyValue { key: b"k".into(), create_revision: 9, value: value.to_vec() };
        RangeResponse { header: Some(header), kvs: values.iter().map(pair).collect(), count: 1 }
    }

    #[test]
    fn header_is_found() {
        let header = Header::of(&range_response(&[]).encode_to_vec()).unwrap();
        assert_eq!(header, Header { cluster: u64::MAX, member: 2, revision: 300, term: 4 });
        assert_eq!(Header::of(b""), None);
        assert_eq!(Header::of(b"\x0a\x7f"), None);
    }

    #[test]
    fn put_is_fabricated() {
        let mut request = PutRequest { key: b"k".into(), value: b"v".into(), prev_kv: false };
        let fabricable = Fabricable::put(&request.encode_to_vec()).unwrap();
        let answer =
            PutResponse::decode(&fabricable.answer(Header::of(&range_response(&[]).encode_to_vec()).unwrap())[..]);
        let header = ResponseHeader { revision: 301, ..range_response(&[]).header.unwrap() };
        assert_eq!(answer.unwrap(), PutResponse { header: Some(header) });
        request.prev_kv = true;
        assert_eq!(Fabricable::put(&request.encode_to_vec()), None);
        assert_eq!(Fabricable::put(b"\xff"), None);
    }

    #[test]
    fn txn_is_fabricated_where_it_only_puts() {
        let put = RequestOp { put: Some(PutRequest::default()), delete: None };
        let other = RequestOp { put: None, delete: Some(PutRequest::default()) };
        let txn = |success: &[&RequestOp]| {
            let success = success.iter().map(|operation| (*operation).clone()).collect();
            Fabricable::txn(&TxnRequest { success, failure: vec![other.clone()], ..Default::default() }.encode_to_vec())
        };
        assert_eq!((txn(&[]), txn(&[&other]), txn(&[&put, &other])), (None, None, None));
        let answer = txn(&[&put, &put]).unwrap().answer(Header { cluster: 1, revision: 5, ..Header::default() });
        let answer = TxnResponse::decode(&answer[..]).unwrap();
        assert!(answer.succeeded);
        let revisions: Vec<i64> =
            answer.responses.iter().map(|r| r.put.as_ref().unwrap().header.as_ref().unwrap().revision).collect();
        assert_eq!((answer.header.unwrap().revision, revisions), (6, vec![6, 6]));
    }

    #[test]
    fn the_first_value_is_found() {
        let mut bytes = range_response(&[b"", b"value", b"other"]).encode_to_vec();
        let place = last_byte_of_value(&bytes).unwrap();
        bytes[place] ^= 1;
        assert_eq!(RangeResponse::decode(&bytes[..]).unwrap(), range_response(&[b"", b"valud", b"other"]));
        assert_eq!(last_byte_of_value(&range_response(&[b""]).encode_to_vec()), None);
        assert_eq!(last_byte_of_value(&range_response(&[]).encode_to_vec()), None);
    }

    #[test]
    fn frames() {
        assert_eq!(unframe(&frame(b"abc")), Some(5..8));
        for body in [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\0", b"\0\0\0\0\x01", b"\0\0\0\0\0\0"] {
            assert_eq!(unframe(body), None);
        }
    }

    proptest! {
        #[test]
        fn bytes_from_outside_are_never_fatal(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Header::of(&bytes), Fabricable::put(&bytes), Fabricable::txn(&bytes), unframe(&bytes));
            prop_assert!(last_byte_of_value(&bytes).is_none_or(|place| place < bytes.len()));
        }
    }
}
