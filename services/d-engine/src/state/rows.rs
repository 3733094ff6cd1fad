//! What stands in the tables. Integers in keys are big-endian, so that their order is that of their bytes; in values little-endian.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | keys | as the client named it | revision (8), end in milliseconds since 1970 or 0 (8), value; with a lease the end's highest bit is set, and the lease (8) stands before the value |
//! | expiries | end (8), key | nothing |
//! | sessions | number (8) | last used, milliseconds (8), awaited from (8), answers kept (4), and its owner's name (string) if it has one |
//! | answers | session (8), sequence (8) | an outcome, see `sessions` |
//! | idle | last used (8), session (8) | nothing |
//! | leases | number (8) | time to live, milliseconds (8), end (8), keys (4), and its owner's name (string) if it has one |
//! | | nothing | when all leases began anew last, milliseconds (8): none ends before it has lasted from there, and no session either |
//! | lease keys | lease (8), key | nothing |
//! | lease ends | end (8), lease (8) | nothing |
//! | members | number (8) | nothing: it has acknowledged entries; or whether it has (1), whether it was removed (1), addresses for clients and for members (strings) |
//! | | nothing | which group this is (8), of those of its name and founders; not in backups: who begins with one is another group |
//! | users | name | see `users` |

use std::ops::ControlFlow;

use bytes::Bytes;
use d_engine_client::KeyValue;

use super::codec::{Malformed, Reader, put_string};
use super::command::Place;
use super::storage::{Rows, StorageError, Table};

const HEAD_BYTES: usize = 16;
/// In the row of a key that has a lease, with its end.
const HAS_LEASE: u64 = 1 << 63;
/// No key or lease ends later.
pub(super) const END_MAX: u64 = HAS_LEASE - 1;

/// Reads all rows of a table, up to one that is damaged: that is the error.
pub(super) fn read_all(
    rows: &(impl Rows + ?Sized),
    table: Table,
    mut read: impl FnMut(&Bytes, &Bytes) -> Result<(), Malformed>,
) -> Result<(), StorageError> {
    let mut outcome = Ok(());
    rows.scan(table, &[], None, &mut |key, row| {
        outcome = read(key, row);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome.map_err(|malformed| StorageError(malformed.to_string()))
}

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) revision: u64,
    /// At most [`END_MAX`].
    pub(super) expires_millis: u64,
    /// 0: none.
    pub(super) lease: u64,
    pub(super) value: Bytes,
}

impl Value {
    /// The row of a key, the key, and the value that the row has, all in one allocation, and in none of others.
    pub(super) fn encode_with(&self, key: &[u8]) -> (Bytes, Bytes, Bytes) {
        let head_bytes = HEAD_BYTES + if self.lease == 0 { 0 } else { 8 };
        let row_bytes = head_bytes + self.value.len();
        let mut out = Vec::with_capacity(row_bytes + key.len());
        out.extend_from_slice(&self.revision.to_le_bytes());
        if self.lease == 0 {
            out.extend_from_slice(&self.expires_millis.to_le_bytes());
        } else {
            out.extend_from_slice(&(self.expires_millis | HAS_LEASE).to_le_bytes());
            out.extend_from_slice(&self.lease.to_le_bytes());
        }
        out.extend_from_slice(&self.value);
        out.extend_from_slice(key);
        let all = Bytes::from(out);
        (all.slice(..row_bytes), all.slice(row_bytes..), all.slice(head_bytes..row_bytes))
    }

    pub(super) fn decode(row: &Bytes) -> Result<Self, Malformed> {
        let numbers = row.first_chunk::<HEAD_BYTES>().ok_or(Malformed("the row of a key"))?;
        let (revision, end) = (number(&numbers[..8]), number(&numbers[8..]));
        let (lease, value) = match end & HAS_LEASE {
            0 => (0, row.slice(HEAD_BYTES..)),
            _ => {
                let lease = row[HEAD_BYTES..].first_chunk::<8>().ok_or(Malformed("the row of a key"))?;
                (u64::from_le_bytes(*lease), row.slice(HEAD_BYTES + 8..))
            }
        };
        Ok(Self { revision, expires_millis: end & END_MAX, lease, value })
    }

    pub(super) fn of_key(self, key: &Bytes) -> KeyValue {
        let Self { revision, expires_millis, lease, value } = self;
        KeyValue { key: key.clone(), value, revision, expires_millis, lease }
    }
}

/// What the group knows of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// It has acknowledged entries.
    pub is_seen: bool,
    /// It was removed for good.
    pub is_removed: bool,
    /// Where it is.
    pub place: Place,
}

impl Known {
    pub(super) fn encode(&self) -> Bytes {
        // As it was before members had addresses.
        if *self == (Self { is_seen: true, ..Self::default() }) {
            return Bytes::new();
        }
        let mut out = vec![u8::from(self.is_seen), u8::from(self.is_removed)];
        put_string(&mut out, &self.place.client);
        put_string(&mut out, &self.place.peer);
        out.into()
    }

    pub(super) fn decode(row: &Bytes) -> Result<Self, Malformed> {
        if row.is_empty() {
            return Ok(Self { is_seen: true, ..Self::default() });
        }
        let mut reader = Reader::new(row.clone(), "the row of a member");
        let (is_seen, is_removed) = (reader.flag()?, reader.flag()?);
        let place = Place { client: reader.string()?, peer: reader.string()? };
        reader.end().map(|()| Self { is_seen, is_removed, place })
    }
}

/// A little-endian number of eight bytes; shorter ones are filled up.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Two numbers as a key.
pub(super) fn pair(first: u64, second: u64) -> Bytes {
    Bytes::copy_from_slice(&[first.to_be_bytes(), second.to_be_bytes()].concat())
}

/// A number as a key.
pub(super) fn single(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// The numbers of [`pair`] and [`single`]; of the latter the second is 0.
pub(super) fn numbers(key: &[u8]) -> (u64, u64) {
    let of = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (first, second) = key.split_at(key.len().min(8));
    (of(first), of(second))
}

/// A client's key behind a number, as the tables of ends and of leases' keys have it.
pub(super) fn numbered(number: u64, key: &[u8]) -> Bytes {
    [&number.to_be_bytes(), key].concat().into()
}

/// The number and the key of [`numbered`].
pub(super) fn of_numbered(row: &Bytes) -> (u64, Bytes) {
    let at = row.len().min(8);
    (numbers(&row[..at]).0, row.slice(at..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_member_stays_as_it_is() {
        let place = Place { client: "a:9081".into(), peer: "a:10081".into() };
        for place in [Place::default(), place] {
            for (is_seen, is_removed) in [(false, false), (true, false), (false, true), (true, true)] {
                let known = Known { is_seen, is_removed, place: place.clone() };
                assert_eq!(Known::decode(&known.encode()), Ok(known));
            }
        }
        assert!(Known::decode(&Bytes::from_static(&[1])).is_err());
        assert!(Known::decode(&Bytes::from_static(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0])).is_err());
    }
}
