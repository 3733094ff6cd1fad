//! Entries of the log, and how they stand in the write-ahead log.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 1 | kind | 0 empty, 1 command, 2 membership |
//! | 1 | 8 | time | milliseconds since 1970, by the leader that proposed it; 0 unless a command |
//! | 9 | | data | |
//!
//! Term and index are fields of the record itself.

use bytes::Bytes;

use crate::codec::{Malformed, Reader};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// What a leader begins its term with.
    Empty,
    /// For the state machine.
    Command,
    /// A change of the membership.
    Membership,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's position in the log, from 1.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// Whether the entry is a command, a change of the membership, or empty.
    pub kind: EntryKind,
    /// Milliseconds since 1970 when it was proposed, by the leader's clock; never less than that of an entry before. The only
    /// time that a state machine may know.
    pub time_millis: u64,
    /// The command as the store encoded it. A few kibibytes of entries share memory: who keeps a part for long copies it.
    pub data: Bytes,
}

impl Entry {
    /// The payload of its record.
    pub(crate) fn payload(&self) -> Bytes {
        encode(self.kind, self.time_millis, &self.data)
    }
}

/// Bytes in front of the data.
pub(crate) const HEAD_BYTES: usize = 9;

/// The payload of an entry's record.
pub(crate) fn encode(kind: EntryKind, time_millis: u64, data: &[u8]) -> Bytes {
    [&head(kind, time_millis), data].concat().into()
}

/// What stands in front of the data.
pub(crate) fn head(kind: EntryKind, time_millis: u64) -> [u8; HEAD_BYTES] {
    let kind = match kind {
        EntryKind::Empty => 0,
        EntryKind::Command => 1,
        EntryKind::Membership => 2,
    };
    let mut head = [kind; HEAD_BYTES];
    head[1..].copy_from_slice(&time_millis.to_le_bytes());
    head
}

/// What [`encode`] was given.
pub(crate) fn parse(payload: &[u8]) -> Result<(EntryKind, u64, &[u8]), Malformed> {
    const WHAT: &str = "an entry";
    let mut reader = Reader::new(payload, WHAT);
    let kind = match reader.byte()? {
        0 => EntryKind::Empty,
        1 => EntryKind::Command,
        2 => EntryKind::Membership,
        _ => return Err(Malformed(WHAT)),
    };
    let time_millis = reader.number()?;
    Ok((kind, time_millis, reader.rest()))
}
