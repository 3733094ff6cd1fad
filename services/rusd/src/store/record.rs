//! A record: what one revision did to one key, as one shared allocation of exactly its size.
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | sub revision | little endian; the highest bit is set in a tombstone |
//! | 4 | | `mvccpb.KeyValue` | as protobuf; a tombstone has key and mod_revision, and so has a [bump](Record::bump), of an empty key |
//!
//! The index, the history, the revision log, answers and watch events share it: a key-value is encoded once, when it is written,
//! and copied as it is into every message. Fields stand in the order of their numbers and zeroes are left out, as etcd's own
//! encoder does it, because `HashKV` hashes these bytes.
//!
//! A *cold* record has its value in a file (see [`super::spill`]) and everything else in memory: it stands there as if its value
//! were empty, and behind that is where the value is, a [`Place`]. What needs the value reads it, every time: methods that do so
//! give a [`Cow`]. Whether a record is cold can be seen in nothing that it says.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::encoded_len_varint;
use triomphe::ThinArc;

use super::spill::{Place, SpillFile};
use crate::proto::mvccpb::KeyValue;

/// Values of fewer bytes stay in memory: a cold record would not take less.
pub const COLD_VALUE_BYTES_MIN: usize = 64;

const HEADER_BYTES: usize = 4;
const TOMBSTONE: u32 = 1 << 31;
/// Behind the tag of the key.
const KEY_LENGTH_AT: usize = HEADER_BYTES + 1;

/// Protobuf tags of `mvccpb.KeyValue`: field number and wire type.
mod tag {
    pub const KEY: u8 = 0x0a;
    pub const CREATE_REVISION: u8 = 0x10;
    pub const MOD_REVISION: u8 = 0x18;
    pub const VERSION: u8 = 0x20;
    pub const VALUE: u8 = 0x2a;
    pub const LEASE: u8 = 0x30;
}

/// A place in the order of all changes: the revision of a transaction, and which of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// What clients know as revision.
    pub main: i64,
    /// Counts the changes of one transaction from 0.
    pub sub: u32,
}

/// What one revision did to one key. A clone costs a reference of 8 bytes: the standard library's `Arc<[u8]>` has 16, and there are
/// two or three of them for every record.
#[derive(Clone)]
pub struct Record(ThinArc<Option<Arc<SpillFile>>, u8>);

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Record {}

/// The fields of a record besides its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The revision that created the key; 0 in a tombstone.
    pub create_revision: i64,
    /// The revision of this change.
    pub mod_revision: i64,
    /// How many times the key was written since it was created; 0 in a tombstone.
    pub version: i64,
    /// The lease, or 0.
    pub lease: i64,
    /// Where the value stands in the record.
    value: Range<usize>,
}

/// What a put writes.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The revision that created the key.
    pub create_revision: i64,
    /// How many times the key was written since.
    pub version: i64,
    /// The lease, or 0.
    pub lease: i64,
}

impl Record {
    /// A key-value. `scratch` is overwritten; its memory is used again and again.
    pub fn put(revision: Revision, put: Put<'_>, scratch: &mut Vec<u8>) -> Self {
        encode(scratch, revision, put);
        Self::of(scratch)
    }

    /// The same record, whose value is in this file.
    pub fn cooled(&self, file: &Arc<SpillFile>, place: Place, scratch: &mut Vec<u8>) -> Self {
        let Fields { create_revision, version, lease, .. } = self.fields();
        encode(scratch, self.revision(), Put { key: self.key(), value: &[], create_revision, version, lease });
        scratch.extend_from_slice(&place.to_bytes());
        Self(ThinArc::from_header_and_slice(Some(Arc::clone(file)), scratch))
    }

    /// The end of a key.
    pub fn tombstone(revision: Revision, key: &[u8], scratch: &mut Vec<u8>) -> Self {
        begin(scratch, revision.sub | TOMBSTONE, key);
        number(scratch, tag::MOD_REVISION, revision.main);
        Self::of(scratch)
    }

    /// What a restore has left that went on from a later revision, `etcdutl snapshot restore --bump-revision`: a put of the key of no
    /// bytes, for which nobody can ask, with nothing stored under its revision. etcd keeps it for ever, and its hash counts it.
    pub fn bump(main: i64, scratch: &mut Vec<u8>) -> Self {
        begin(scratch, 0, &[]);
        number(scratch, tag::MOD_REVISION, main);
        Self::of(scratch)
    }

    /// The record that [`Record::as_bytes`] gave, if it is one in every byte.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = u32::from_le_bytes(*header);
        let is_tombstone = header & TOMBSTONE != 0;
        let fields = parse(bytes)?;
        let key = key_range(bytes)?;
        let is_bump = key.is_empty();
        let exact = is_bump
            || if is_tombstone { fields.version == 0 } else { fields.version > 0 && fields.create_revision > 0 };
        if fields.mod_revision <= 0 || !exact {
            return None;
        }
        // Written anew it must be the same: no field twice, none in another order, no long form of a number.
        let revision = Revision { main: fields.mod_revision, sub: header & !TOMBSTONE };
        let mut scratch = Vec::with_capacity(bytes.len());
        let record = if is_bump {
            Self::bump(revision.main, &mut scratch)
        } else if is_tombstone {
            Self::tombstone(revision, &bytes[key], &mut scratch)
        } else {
            let Fields { create_revision, version, lease, ref value, .. } = fields;
            let put = Put { key: &bytes[key], value: &bytes[value.clone()], create_revision, version, lease };
            Self::put(revision, put, &mut scratch)
        };
        (record.in_memory() == bytes).then_some(record)
    }

    fn of(bytes: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice(None, bytes))
    }

    /// All of it but the value of a cold one: see the table above.
    fn in_memory(&self) -> &[u8] {
        let bytes = &self.0.slice;
        match self.file() {
            None => bytes,
            Some(_) => &bytes[..bytes.len().saturating_sub(Place::BYTES)],
        }
    }

    /// The file that has its value, if it is cold.
    pub fn file(&self) -> Option<&Arc<SpillFile>> {
        self.0.header.header.as_ref()
    }

    /// Where its value is, if it is cold.
    fn cold(&self) -> Option<(&SpillFile, Place)> {
        Some((self.file()?, Place::of_bytes(self.0.slice.last_chunk()?)))
    }

    /// All of it: see the table above.
    pub fn as_bytes(&self) -> Cow<'_, [u8]> {
        let Some((file, place)) = self.cold() else { return Cow::Borrowed(self.in_memory()) };
        let Fields { create_revision, version, lease, .. } = self.fields();
        let mut bytes = Vec::with_capacity(self.size());
        let value = &file.read(place);
        encode(&mut bytes, self.revision(), Put { key: self.key(), value, create_revision, version, lease });
        Cow::Owned(bytes)
    }

    /// How many bytes [`Record::as_bytes`] has.
    pub fn size(&self) -> usize {
        let value = self.cold().map_or(0, |(_, place)| {
            let len = place.value_bytes();
            1 + encoded_len_varint(len as u64) + len
        });
        self.in_memory().len() + value
    }

    /// The message `mvccpb.KeyValue`.
    pub fn encoded(&self) -> Cow<'_, [u8]> {
        from(self.as_bytes(), HEADER_BYTES)
    }

    /// How many bytes [`Record::encoded`] has.
    pub fn encoded_len(&self) -> usize {
        self.size() - HEADER_BYTES
    }

    /// The key. Every step of a search asks for it: a length of one byte, which most keys have, is read without a loop.
    pub fn key(&self) -> &[u8] {
        let bytes = &self.0.slice;
        match bytes.get(KEY_LENGTH_AT) {
            Some(length) if *length < 0x80 => {
                bytes.get(KEY_LENGTH_AT + 1..KEY_LENGTH_AT + 1 + usize::from(*length)).unwrap_or_default()
            }
            _ => key_range(bytes).map_or(&[], |range| &bytes[range]),
        }
    }

    /// The fields besides the key.
    pub fn fields(&self) -> Fields {
        // What a constructor wrote can be read.
        parse(self.in_memory()).unwrap_or(Fields {
            create_revision: 0,
            mod_revision: 0,
            version: 0,
            lease: 0,
            value: 0..0,
        })
    }

    /// The value.
    pub fn value(&self) -> Cow<'_, [u8]> {
        match self.cold() {
            Some((file, place)) => Cow::Owned(file.read(place)),
            None => Cow::Borrowed(&self.in_memory()[self.fields().value]),
        }
    }

    /// How many bytes of its value are in memory and could be in a file.
    pub fn hot_bytes(&self) -> usize {
        // What has fewer bytes in all need not be looked into.
        if self.file().is_some() || self.0.slice.len() < COLD_VALUE_BYTES_MIN {
            return 0;
        }
        let len = self.fields().value.len();
        if len < COLD_VALUE_BYTES_MIN { 0 } else { len }
    }

    /// The lease, or 0.
    pub fn lease(&self) -> i64 {
        self.fields().lease
    }

    /// Whether it ends the key.
    pub fn is_tombstone(&self) -> bool {
        self.header() & TOMBSTONE != 0
    }

    /// Whether it is no change of a key: see [`Record::bump`].
    pub fn is_bump(&self) -> bool {
        self.key().is_empty()
    }

    /// Whether it begins the key.
    pub fn is_create(&self) -> bool {
        self.fields().version == 1
    }

    /// Its place in the order of all changes.
    pub fn revision(&self) -> Revision {
        Revision { main: self.main(), sub: self.header() & !TOMBSTONE }
    }

    /// The revision of its transaction.
    pub fn main(&self) -> i64 {
        // What a constructor wrote can be read.
        mod_revision(&self.0.slice).unwrap_or(0)
    }

    /// What etcd keeps in its database under this revision: the hash is over that.
    pub fn stored(&self) -> Cow<'_, [u8]> {
        if self.is_bump() {
            return Cow::Borrowed(&[]);
        }
        if self.is_tombstone() {
            let end = key_range(self.in_memory()).map_or(HEADER_BYTES, |key| key.end);
            return Cow::Borrowed(&self.in_memory()[HEADER_BYTES..end]);
        }
        self.encoded()
    }

    /// As a message. The key shares the record's memory, and so does the value if it is there.
    pub fn to_key_value(&self) -> KeyValue {
        let Fields { create_revision, mod_revision, version, lease, value } = self.fields();
        let key = key_range(self.in_memory()).unwrap_or(0..0);
        let all = Bytes::from_owner(Shared(self.clone()));
        let value = match self.cold() {
            Some((file, place)) => file.read(place).into(),
            None => all.slice(value),
        };
        KeyValue { key: all.slice(key), create_revision, mod_revision, version, value, lease }
    }

    /// As a message without its value.
    pub fn to_key(&self) -> KeyValue {
        let Fields { create_revision, mod_revision, version, lease, .. } = self.fields();
        let key = Bytes::copy_from_slice(self.key());
        KeyValue { key, create_revision, mod_revision, version, value: Bytes::new(), lease }
    }

    fn header(&self) -> u32 {
        self.0.slice.first_chunk::<HEADER_BYTES>().map_or(0, |header| u32::from_le_bytes(*header))
    }
}

/// What messages share.
struct Shared(Record);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.in_memory()
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Revision { main, sub } = self.revision();
        let what = if self.is_tombstone() { "delete" } else { "put" };
        write!(formatter, "{what} {:?} at {main}.{sub} {:?}", Bytes::copy_from_slice(self.key()), self.fields())
    }
}

/// What is behind so many bytes.
fn from(bytes: Cow<'_, [u8]>, begin: usize) -> Cow<'_, [u8]> {
    match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[begin..]),
        Cow::Owned(mut bytes) => {
            bytes.drain(..begin);
            Cow::Owned(bytes)
        }
    }
}

/// The bytes of a put.
fn encode(out: &mut Vec<u8>, revision: Revision, put: Put<'_>) {
    begin(out, revision.sub, put.key);
    number(out, tag::CREATE_REVISION, put.create_revision);
    number(out, tag::MOD_REVISION, revision.main);
    number(out, tag::VERSION, put.version);
    if !put.value.is_empty() {
        out.push(tag::VALUE);
        varint(out, put.value.len() as u64);
        out.extend_from_slice(put.value);
    }
    number(out, tag::LEASE, put.lease);
}

fn begin(out: &mut Vec<u8>, header: u32, key: &[u8]) {
    out.clear();
    out.extend_from_slice(&header.to_le_bytes());
    out.push(tag::KEY);
    varint(out, key.len() as u64);
    out.extend_from_slice(key);
}

fn number(out: &mut Vec<u8>, tag: u8, value: i64) {
    if value != 0 {
        out.push(tag);
        varint(out, value as u64);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn read_range(bytes: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let len = usize::try_from(read_varint(bytes, at)?).ok()?;
    let end = at.checked_add(len).filter(|end| *end <= bytes.len())?;
    let range = *at..end;
    *at = end;
    Some(range)
}

fn key_range(bytes: &[u8]) -> Option<Range<usize>> {
    let mut at = KEY_LENGTH_AT;
    (bytes.get(HEADER_BYTES) == Some(&tag::KEY)).then(|| read_range(bytes, &mut at))?
}

/// One field of [`parse`], which stands in front of the value: searches by revision ask for it at every step.
fn mod_revision(bytes: &[u8]) -> Option<i64> {
    let mut at = key_range(bytes)?.end;
    loop {
        let tag = *bytes.get(at)?;
        at += 1;
        let number = read_varint(bytes, &mut at)? as i64;
        match tag {
            tag::MOD_REVISION => return Some(number),
            tag::CREATE_REVISION => {}
            _ => return None,
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Fields> {
    let mut at = key_range(bytes)?.end;
    let mut fields = Fields { create_revision: 0, mod_revision: 0, version: 0, lease: 0, value: at..at };
    while let Some(tag) = bytes.get(at) {
        at += 1;
        match *tag {
            tag::CREATE_REVISION => fields.create_revision = read_varint(bytes, &mut at)? as i64,
            tag::MOD_REVISION => fields.mod_revision = read_varint(bytes, &mut at)? as i64,
            tag::VERSION => fields.version = read_varint(bytes, &mut at)? as i64,
            tag::VALUE => fields.value = read_range(bytes, &mut at)?,
            tag::LEASE => fields.lease = read_varint(bytes, &mut at)? as i64,
            _ => return None,
        }
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    proptest! {
        #[test]
        fn a_record_is_what_a_protobuf_encoder_writes(
            key in proptest::collection::vec(any::<u8>(), 1..200),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            main in 1..i64::MAX, sub in 0..TOMBSTONE, version in 1..i64::MAX, lease in any::<i64>(),
        ) {
            let put = Put { key: &key, value: &value, create_revision: main, version, lease };
            let record = Record::put(Revision { main, sub }, put, &mut Vec::new());
            prop_assert_eq!(&*record.encoded(), record.to_key_value().encode_to_vec());
            prop_assert_eq!(KeyValue::decode(&*record.encoded()).unwrap(), record.to_key_value());
            prop_assert_eq!((record.key(), &*record.value(), record.lease()), (&key[..], &value[..], lease));
            prop_assert_eq!((record.revision(), record.is_tombstone()), (Revision { main, sub }, false));
            prop_assert_eq!(Record::from_bytes(&record.as_bytes()), Some(record));
        }

        #[test]
        fn a_tombstone_has_key_and_revision(key in proptest::collection::vec(any::<u8>(), 1..200), main in 1..i64::MAX, sub in 0..TOMBSTONE) {
            let record = Record::tombstone(Revision { main, sub }, &key, &mut Vec::new());
            let message = KeyValue { key: key.clone().into(), mod_revision: main, ..KeyValue::default() };
            prop_assert_eq!(&*record.encoded(), message.encode_to_vec());
            prop_assert_eq!(&*record.stored(), KeyValue { key: key.into(), ..KeyValue::default() }.encode_to_vec());
            prop_assert_eq!((record.revision(), record.is_tombstone()), (Revision { main, sub }, true));
            prop_assert_eq!(Record::from_bytes(&record.as_bytes()), Some(record));
        }

        #[test]
        fn a_bump_has_a_revision_and_nothing_is_stored(main in 1..i64::MAX) {
            let record = Record::bump(main, &mut Vec::new());
            prop_assert_eq!((record.revision(), record.is_bump()), (Revision { main, sub: 0 }, true));
            prop_assert!(record.key().is_empty() && record.stored().is_empty() && !record.is_tombstone());
            let mut tombstone = record.as_bytes().to_vec();
            prop_assert_eq!(Record::from_bytes(&tombstone), Some(record));
            tombstone[HEADER_BYTES - 1] |= 1 << 7;
            prop_assert_eq!(Record::from_bytes(&tombstone), None);
        }

        #[test]
        fn hostile_bytes_are_refused_or_mean_what_they_say(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(record) = Record::from_bytes(&bytes) {
                prop_assert_eq!(&*record.as_bytes(), &bytes[..]);
            }
        }

        #[test]
        fn a_changed_byte_is_refused_or_means_what_it_says(at in 0..40usize, byte in any::<u8>()) {
            let put = Put { key: b"key", value: b"value", create_revision: 300, version: 2, lease: 77 };
            let mut bytes = Record::put(Revision { main: 301, sub: 1 }, put, &mut Vec::new()).as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(record) = Record::from_bytes(&bytes) {
                prop_assert_eq!(&*record.as_bytes(), &bytes[..]);
                record.to_key_value();
            }
        }
    }
}
