//! Range requests: which records they mean, and the answer. From etcd's `server/etcdserver/txn/range.go`.

use std::cmp::{Ordering, Reverse};

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::error::Error;
use super::keys::Keys;
use super::keyspace::Keyspace;
use super::record::Record;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::proto::mvccpb::KeyValue;

/// What a range request found.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The records that are answered.
    pub records: Vec<&'a Record>,
    /// How many keys there are in the range, whatever limit and filters left of them.
    pub count: usize,
    /// Whether the limit left some out.
    pub more: bool,
    /// The newest revision that could be seen.
    pub revision: i64,
    content: Content,
}

/// What of a record is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All.
    Full,
    /// All but the value.
    NoValue,
    /// All but value and lease: what etcd 3.7 answers to `keys_only`, from its index.
    Key,
}

impl Content {
    /// What a request wants to see.
    pub fn of(request: &pb::RangeRequest) -> Self {
        match request.keys_only {
            false => Self::Full,
            true if request.sort_target == SortTarget::Value as i32 => Self::NoValue,
            true => Self::Key,
        }
    }

    /// A record as a message.
    pub fn message(self, record: &Record) -> KeyValue {
        match self {
            Self::Full => record.to_key_value(),
            Self::NoValue => record.to_key(),
            Self::Key => KeyValue { lease: 0, ..record.to_key() },
        }
    }
}

/// Whether records are wanted in the order of their keys.
pub fn has_default_order(request: &pb::RangeRequest) -> bool {
    let by_key = request.sort_target == SortTarget::Key as i32 && request.sort_order == SortOrder::Ascend as i32;
    by_key || request.sort_order == SortOrder::None as i32
}

/// Whether only records of some revisions are wanted.
pub fn has_revision_filter(request: &pb::RangeRequest) -> bool {
    let pb::RangeRequest { min_mod_revision, max_mod_revision, min_create_revision, max_create_revision, .. } = request;
    [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision].into_iter().any(|bound| *bound != 0)
}

/// How many keys [`range`] will look at, about.
pub fn keys_looked_at(space: &Keyspace, request: &pb::RangeRequest) -> usize {
    let all = space.len_about(Keys::new(&request.key, &request.range_end), request.revision);
    let is_of_now = request.revision <= 0 || request.revision >= space.revision();
    match usize::try_from(request.limit) {
        _ if request.count_only && is_of_now => 1,
        Ok(limit @ 1..) if is_of_now && has_default_order(request) && !has_revision_filter(request) => {
            all.min(limit + 1)
        }
        _ => all,
    }
}

/// Looks for what a request means.
pub fn range<'a>(space: &'a Keyspace, request: &'a pb::RangeRequest) -> Result<Found<'a>, Error> {
    let at = space.at(request.revision)?;
    let keys = Keys::new(&request.key, &request.range_end);
    let revision = space.revision();
    let content = Content::of(request);
    if request.count_only {
        return Ok(Found { records: Vec::new(), count: space.count(keys, at), more: false, revision, content });
    }
    let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
    // As etcd does it: without an order the limit comes before sorting, and one record more tells whether there are more.
    let first = limit.filter(|_| has_default_order(request) && !has_revision_filter(request));
    let mut visible = space.range(keys, at);
    let mut records: Vec<&Record> = visible.by_ref().take(first.map_or(usize::MAX, |limit| limit + 1)).collect();
    let count = match visible.next() {
        None => records.len(),
        Some(_) => space.count(keys, at),
    };
    if has_revision_filter(request) {
        records.retain(|record| passes(request, record));
    }
    sort(request, &mut records);
    let more = limit.is_some_and(|limit| records.len() > limit);
    records.truncate(limit.unwrap_or(usize::MAX));
    Ok(Found { records, count, more, revision, content })
}

fn passes(request: &pb::RangeRequest, record: &Record) -> bool {
    let fields = record.fields();
    let within = |revision: i64, min: i64, max: i64| revision >= min && (max == 0 || revision <= max);
    // A minimum of 0 is none, and no revision is less.
    within(fields.mod_revision, request.min_mod_revision, request.max_mod_revision)
        && within(fields.create_revision, request.min_create_revision, request.max_create_revision)
}

fn sort(request: &pb::RangeRequest, records: &mut [&Record]) {
    let target = SortTarget::try_from(request.sort_target).unwrap_or(SortTarget::Key);
    let order = match SortOrder::try_from(request.sort_order) {
        Ok(SortOrder::Descend) => SortOrder::Descend,
        _ => SortOrder::Ascend,
    };
    if target == SortTarget::Key && order == SortOrder::Ascend {
        return;
    }
    let compare = |a: &Record, b: &Record| -> Ordering {
        match target {
            SortTarget::Key => a.key().cmp(b.key()),
            SortTarget::Version => a.fields().version.cmp(&b.fields().version),
            SortTarget::Create => a.fields().create_revision.cmp(&b.fields().create_revision),
            SortTarget::Mod => a.main().cmp(&b.main()),
            SortTarget::Value => a.value().cmp(&b.value()),
        }
    };
    if target == SortTarget::Value {
        // They may have to be read: each once.
        match order {
            SortOrder::Descend => records.sort_by_cached_key(|record| Reverse(record.value())),
            _ => records.sort_by_cached_key(|record| record.value()),
        }
        return;
    }
    records.sort_by(|a, b| if order == SortOrder::Descend { compare(b, a) } else { compare(a, b) });
}

impl Found<'_> {
    /// As a message; the header has the revision only. Keys and values share the records' memory.
    pub fn response(&self) -> pb::RangeResponse {
        pb::RangeResponse {
            header: Some(pb::ResponseHeader { revision: self.revision, ..Default::default() }),
            kvs: self.records.iter().map(|record| self.content.message(record)).collect(),
            more: self.more,
            count: self.count as i64,
        }
    }

    /// Writes the message with a header of one's own, without making it: the fastest way from records to the wire.
    pub fn encode(&self, header: &pb::ResponseHeader, out: &mut impl BufMut) {
        let tail =
            pb::RangeResponse { header: Some(*header), kvs: Vec::new(), more: self.more, count: self.count as i64 };
        // Fields may stand in any order.
        out.put(Bytes::from(tail.encode_to_vec()));
        for record in &self.records {
            encode_key(KVS, WireType::LengthDelimited, out);
            if self.content == Content::Full {
                encode_varint(record.encoded_len() as u64, out);
                out.put_slice(&record.encoded());
            } else {
                let message = self.content.message(record);
                encode_varint(message.encoded_len() as u64, out);
                out.put(Bytes::from(message.encode_to_vec()));
            }
        }
    }

    /// At least how many bytes [`Found::encode`] writes, and little more.
    pub fn encoded_len_about(&self) -> usize {
        let record = |record: &&Record| {
            let len = match self.content {
                Content::Full => record.encoded_len(),
                // The values of everything shall not be made room for.
                Content::NoValue | Content::Key => record.key().len() + FIELDS_BYTES_MAX,
            };
            key_len(KVS) + encoded_len_varint(len as u64) + len
        };
        64 + self.records.iter().map(record).sum::<usize>()
    }
}

/// Of a record without its value, besides the key: the key's head, and four numbers.
const FIELDS_BYTES_MAX: usize = 6 + 4 * 11;

/// The number of the field `kvs` of a `RangeResponse`.
const KVS: u32 = 2;
