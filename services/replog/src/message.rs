//! What nodes send each other, and how it is written down. The transport carries bytes between members that have authenticated
//! each other; it may lose, repeat, delay and reorder messages, and must not change them.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 1 | version | 1 |
//! | 8, 8 | from, to | |
//! | 1 | what | 0 consensus, 1 snapshot, 2 note |
//!
//! Consensus: the stamp, seven times 8 (see `Stamp`); kind and rejection, 1 each; term, term of the entry before, index, commit
//! index, its term, requested snapshot, hint, priority, 8 each; context, behind its length (4); 0, or 1 and the description of a
//! snapshot; the number of entries (4), and of each its term (8), its index (8) and, behind its length (4), its record's payload.
//! Snapshot: kind, 1; which one, 20; then by kind chunk numbers, or a chunk with its number and checksum. Note: all
//! the rest, which only servers understand. All is little-endian.

use bytes::Bytes;

use crate::codec::{Malformed, Packed, Reader, put, put_bytes, put_small};
#[cfg(any(test, feature = "simulator"))]
use crate::consensus::WireKind;
use crate::consensus::{self, Wire};
use crate::entry;
use crate::snapshot::{SnapshotId, SnapshotMessage};

/// The version of the format below.
const VERSION: u8 = 1;
/// A change of the membership is not longer than this; what parses it need not be trusted with more.
const MEMBERSHIP_BYTES_MAX: usize = 4096;
const WHAT: &str = "a message";
/// Beside its payload a message takes about this much memory.
const WITHOUT_PAYLOAD_BYTES: usize = 512;

/// A moment by the clock of the node that marked it. A node that starts again has another incarnation, because its clock may
/// have started again as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) incarnation: u64,
    pub(crate) micros: u64,
}

/// What travels with every message of the consensus, for leases and for reads of bounded age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// From a leader: when it sent this, by its clock.
    pub(crate) sent: u64,
    /// To a leader: the newest `sent` of this term that was heard, for which a vote is withheld.
    pub(crate) heard: u64,
    /// To a leader: when this was sent, by the sender's clock.
    pub(crate) mark: Mark,
    /// From a leader that has a lease: the newest mark that came from who gets this. `commit` is younger.
    pub(crate) echo: Mark,
    /// From a leader that has a lease: its commit index. To a leader: for how long a vote is withheld for what was `heard`,
    /// microseconds; 0 from releases that do not say.
    pub(crate) commit_or_promise: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Consensus(Box<Wire>, Stamp),
    Snapshot(SnapshotMessage),
    /// Something between servers that the log knows nothing of. Transports hand it over beside the log.
    Note(Bytes),
}

/// A message from one node to another.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) body: Body,
}

impl Message {
    /// The member that sent the message.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The member that the message is for.
    pub fn to(&self) -> u64 {
        self.to
    }

    /// Encodes the message.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out.into()
    }

    /// Appends it as bytes.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put(out, self.from);
        put(out, self.to);
        match &self.body {
            Body::Consensus(wire, stamp) => {
                out.push(0);
                encode_stamp(stamp, out);
                encode_wire(wire, out);
            }
            Body::Snapshot(message) => {
                out.push(1);
                encode_snapshot(message, out);
            }
            Body::Note(note) => {
                out.push(2);
                out.extend_from_slice(note);
            }
        }
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, WHAT);
        if reader.byte()? != VERSION {
            return Err(Malformed("a message of a version that is known here"));
        }
        let (from, to) = (reader.number()?, reader.number()?);
        let body = match reader.byte()? {
            0 => {
                let stamp = decode_stamp(&mut reader)?;
                Body::Consensus(Box::new(decode_wire(&mut reader, from, to)?), stamp)
            }
            1 => Body::Snapshot(decode_snapshot(&mut reader)?),
            2 => return Ok(Self { from, to, body: Body::Note(Bytes::copy_from_slice(reader.rest())) }),
            _ => return Err(Malformed(WHAT)),
        };
        reader.end()?;
        Ok(Self { from, to, body })
    }

    /// Size of the entries, of the chunk or of the note in it, for who bounds what is under way.
    pub fn payload_bytes(&self) -> usize {
        match &self.body {
            Body::Consensus(wire, _) => wire.get_entries().iter().map(|entry| entry.data.len()).sum(),
            Body::Snapshot(SnapshotMessage::Chunk { data, .. }) => data.len(),
            Body::Snapshot(_) => 0,
            Body::Note(note) => note.len(),
        }
    }

    /// What it takes in memory, about: its payload, and what is around that.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.payload_bytes() + WITHOUT_PAYLOAD_BYTES
    }

    /// Describes the message in one line, for traces.
    pub fn describe(&self) -> String {
        match &self.body {
            Body::Consensus(wire, stamp) => {
                let kind = format!("{:?}", wire.get_msg_type());
                let kind = kind.strip_prefix("Msg").unwrap_or(&kind);
                let mut text = format!("{kind} term {}", wire.term);
                let numbers = [
                    ("index", wire.index),
                    ("log_term", wire.log_term),
                    ("entries", wire.get_entries().len() as u64),
                    ("commit", wire.commit),
                    ("snapshot", wire.get_snapshot().get_metadata().index),
                    ("sent", stamp.sent),
                    ("heard", stamp.heard),
                ];
                for (name, number) in numbers.iter().filter(|(_, number)| *number != 0) {
                    text.push_str(&format!(" {name} {number}"));
                }
                if wire.reject {
                    text.push_str(&format!(" REJECT hint {}", wire.reject_hint));
                }
                text
            }
            Body::Snapshot(message) => format!("{message:?}").chars().take(100).collect(),
            Body::Note(note) => format!("note of {} bytes", note.len()),
        }
    }

    /// The term and the candidate for whom this message gives a vote; also the own one of who asks.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn vote(&self) -> Option<(u64, u64)> {
        let Body::Consensus(wire, _) = &self.body else { return None };
        match wire.get_msg_type() {
            WireKind::MsgRequestVoteResponse if !wire.reject => Some((wire.term, self.to)),
            WireKind::MsgRequestVote => Some((wire.term, self.from)),
            _ => None,
        }
    }

    /// The first and the last entry in it.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn entries(&self) -> Option<(u64, u64)> {
        let Body::Consensus(wire, _) = &self.body else { return None };
        Some((wire.get_entries().first()?.index, wire.get_entries().last()?.index))
    }

    /// The term, and the last index that this message says its sender has safe on disk.
    #[cfg(any(test, feature = "simulator"))]
    pub(crate) fn acknowledges(&self) -> Option<(u64, u64)> {
        let Body::Consensus(wire, _) = &self.body else { return None };
        (wire.get_msg_type() == WireKind::MsgAppendResponse && !wire.reject).then_some((wire.term, wire.index))
    }
}

fn encode_stamp(stamp: &Stamp, out: &mut Vec<u8>) {
    let Stamp { sent, heard, mark, echo, commit_or_promise } = stamp;
    [*sent, *heard, mark.incarnation, mark.micros, echo.incarnation, echo.micros, *commit_or_promise]
        .into_iter()
        .for_each(|number| put(out, number));
}

fn decode_stamp(reader: &mut Reader<'_>) -> Result<Stamp, Malformed> {
    let (sent, heard) = (reader.number()?, reader.number()?);
    let mark = Mark { incarnation: reader.number()?, micros: reader.number()? };
    let echo = Mark { incarnation: reader.number()?, micros: reader.number()? };
    Ok(Stamp { sent, heard, mark, echo, commit_or_promise: reader.number()? })
}

fn encode_wire(wire: &Wire, out: &mut Vec<u8>) {
    out.push(wire.get_msg_type() as u8);
    out.push(u8::from(wire.reject));
    let numbers = [
        wire.term,
        wire.log_term,
        wire.index,
        wire.commit,
        wire.commit_term,
        wire.request_snapshot,
        wire.reject_hint,
        wire.priority as u64,
    ];
    numbers.into_iter().for_each(|number| put(out, number));
    put_bytes(out, &wire.context);
    match consensus::snapshot_of_wire(wire) {
        Some(meta) => {
            out.push(1);
            meta.encode(out);
        }
        None => out.push(0),
    }
    put_small(out, wire.get_entries().len() as u32);
    for entry in wire.get_entries() {
        put(out, entry.term);
        put(out, entry.index);
        let (head, rest) = consensus::payload_parts(entry);
        put_small(out, (head.map_or(0, |head| head.len()) + rest.len()) as u32);
        out.extend_from_slice(head.as_ref().map_or(&[], |head| head.as_slice()));
        out.extend_from_slice(rest);
    }
}

fn decode_wire(reader: &mut Reader<'_>, from: u64, to: u64) -> Result<Wire, Malformed> {
    let mut wire = Wire::default();
    wire.set_msg_type(consensus::wire_kind(reader.byte()?).ok_or(Malformed(WHAT))?);
    wire.from = from;
    wire.to = to;
    wire.reject = reader.flag()?;
    wire.term = reader.number()?;
    wire.log_term = reader.number()?;
    wire.index = reader.number()?;
    wire.commit = reader.number()?;
    wire.commit_term = reader.number()?;
    wire.request_snapshot = reader.number()?;
    wire.reject_hint = reader.number()?;
    wire.priority = reader.number()? as i64;
    wire.context = reader.bytes()?;
    if reader.flag()? {
        let meta = crate::snapshot::SnapshotMeta::decode(reader)?;
        wire.set_snapshot(consensus::offer(&meta));
    }
    let count = reader.small()?;
    let mut entries = Vec::new();
    let mut packed = Packed::of(reader.left());
    for _ in 0..count {
        let (term, index) = (reader.number()?, reader.number()?);
        let payload = reader.slice()?;
        let (kind, _, data) = entry::parse(payload)?;
        if kind == entry::EntryKind::Membership && data.len() > MEMBERSHIP_BYTES_MAX {
            return Err(Malformed("a change of the membership"));
        }
        entries.push(consensus::of_payload(index, term, kind, packed.add(payload, &[])));
    }
    wire.set_entries(entries.into());
    Ok(wire)
}

fn encode_id(id: &SnapshotId, out: &mut Vec<u8>) {
    put(out, id.index);
    put(out, id.term);
    put_small(out, id.checksum);
}

fn decode_id(reader: &mut Reader<'_>) -> Result<SnapshotId, Malformed> {
    Ok(SnapshotId { index: reader.number()?, term: reader.number()?, checksum: reader.small()? })
}

fn encode_snapshot(message: &SnapshotMessage, out: &mut Vec<u8>) {
    match message {
        SnapshotMessage::Fetch { id, chunks } => {
            out.push(0);
            encode_id(id, out);
            put_small(out, chunks.len() as u32);
            chunks.iter().for_each(|chunk| put_small(out, *chunk));
        }
        SnapshotMessage::Chunk { id, chunk, checksum, data } => {
            out.push(1);
            encode_id(id, out);
            put_small(out, *chunk);
            put_small(out, *checksum);
            put_bytes(out, data);
        }
        SnapshotMessage::Gone { id } => {
            out.push(2);
            encode_id(id, out);
        }
    }
}

fn decode_snapshot(reader: &mut Reader<'_>) -> Result<SnapshotMessage, Malformed> {
    let kind = reader.byte()?;
    let id = decode_id(reader)?;
    Ok(match kind {
        0 => {
            let count = reader.small()?;
            let mut chunks = Vec::new();
            for _ in 0..count {
                chunks.push(reader.small()?);
            }
            SnapshotMessage::Fetch { id, chunks }
        }
        1 => {
            let (chunk, checksum) = (reader.small()?, reader.small()?);
            SnapshotMessage::Chunk { id, chunk, checksum, data: reader.bytes()? }
        }
        2 => SnapshotMessage::Gone { id },
        _ => return Err(Malformed(WHAT)),
    })
}

#[cfg(test)]
mod tests;
