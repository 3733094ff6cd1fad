//! What a watch stream is told.

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::super::record::Record;
use crate::proto::etcdserverpb as pb;
use crate::proto::mvccpb;

/// The watcher id of a response that is about none, or about all.
pub const NO_WATCHER: i64 = -1;

/// A change that is told. Clones share the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub record: Record,
    /// What was before, for who wants to know; of now only.
    pub previous: Option<Record>,
}

/// One message of a watch stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The watcher it is for, or [`NO_WATCHER`].
    pub watch_id: i64,
    /// For the header: all that happened up to here has been told to the watcher with this message.
    pub revision: i64,
    /// The watcher was created.
    pub created: bool,
    /// The watcher is no more.
    pub canceled: bool,
    /// Why: what it wanted to see was compacted at this revision. 0 otherwise.
    pub compact_revision: i64,
    /// Why, in words.
    pub cancel_reason: &'static str,
    /// More of the same revision follows.
    pub fragment: bool,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl Event {
    /// As a message. Keys and values share the records' memory.
    pub fn message(&self) -> mvccpb::Event {
        let r#type =
            if self.record.is_tombstone() { mvccpb::event::EventType::Delete } else { mvccpb::event::EventType::Put };
        mvccpb::Event {
            r#type: r#type as i32,
            kv: Some(self.record.to_key_value()),
            prev_kv: self.previous.as_ref().map(Record::to_key_value),
        }
    }

    /// How many bytes the message has.
    pub fn encoded_len(&self) -> usize {
        let field = |record: &Record| 1 + encoded_len_varint(record.encoded_len() as u64) + record.encoded_len();
        let kind = if self.record.is_tombstone() { 2 } else { 0 };
        kind + field(&self.record) + self.previous.as_ref().map_or(0, field)
    }

    fn encode(&self, out: &mut impl BufMut) {
        if self.record.is_tombstone() {
            encode_key(1, WireType::Varint, out);
            out.put_u8(mvccpb::event::EventType::Delete as u8);
        }
        for (number, record) in [(2, Some(&self.record)), (3, self.previous.as_ref())] {
            if let Some(record) = record {
                encode_key(number, WireType::LengthDelimited, out);
                encode_varint(record.encoded_len() as u64, out);
                out.put_slice(&record.encoded());
            }
        }
    }
}

impl Response {
    /// As a message; of the header the revision only.
    pub fn message(&self) -> pb::WatchResponse {
        let header = pb::ResponseHeader { revision: self.revision, ..Default::default() };
        pb::WatchResponse { events: self.events.iter().map(Event::message).collect(), ..self.head(header) }
    }

    /// Writes the message with a header of one's own, whose revision is overwritten, without making it.
    pub fn encode(&self, header: &pb::ResponseHeader, out: &mut impl BufMut) {
        out.put(Bytes::from(self.head(pb::ResponseHeader { revision: self.revision, ..*header }).encode_to_vec()));
        for event in &self.events {
            encode_key(11, WireType::LengthDelimited, out);
            encode_varint(event.encoded_len() as u64, out);
            event.encode(out);
        }
    }

    /// At least how many bytes [`Response::encode`] writes, and at most 192 more.
    pub fn encoded_len_about(&self) -> usize {
        let event = |event: &Event| 1 + encoded_len_varint(event.encoded_len() as u64) + event.encoded_len();
        192 + self.events.iter().map(event).sum::<usize>()
    }

    fn head(&self, header: pb::ResponseHeader) -> pb::WatchResponse {
        pb::WatchResponse {
            header: Some(header),
            watch_id: self.watch_id,
            created: self.created,
            canceled: self.canceled,
            compact_revision: self.compact_revision,
            cancel_reason: self.cancel_reason.to_owned(),
            fragment: self.fragment,
            events: Vec::new(),
        }
    }
}
