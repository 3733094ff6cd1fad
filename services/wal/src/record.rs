//! Records as bytes, and bytes as records. Pure; the layout is in the crate's documentation.

use bytes::Bytes;

/// Bytes in front of a payload.
pub(crate) const HEADER_BYTES: usize = 32;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// The largest payload: such a record fits a segment of its own, whose offsets have 32 bits.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An entry of a group's log. It replaces those of the same or a higher index that were appended before.
    Entry,
    /// A group's term and vote, as its owner writes them. It replaces the one before.
    HardState,
    /// Entries of a group up to `index` are no longer needed.
    Compaction,
}

/// One record. `P` is [`Bytes`] where it is to be written, `&[u8]` where it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<P = Bytes> {
    /// What kind of record it is.
    pub kind: Kind,
    /// The group that the record belongs to.
    pub group: u16,
    /// The entry's term.
    pub term: u64,
    /// The entry's index, or the last one that is no longer needed.
    pub index: u64,
    /// What its owner has to say.
    pub payload: P,
}

/// The kinds as they stand on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    SegmentHead = 1,
    Entry = 2,
    HardState = 3,
    Compaction = 4,
    /// Written when the log was opened and something stood behind its end. The batch in front of it does not go on behind it.
    Cut = 5,
}

impl Code {
    fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Code; 5] = [Code::SegmentHead, Code::Entry, Code::HardState, Code::Compaction, Code::Cut];
        ALL.into_iter().find(|code| *code as u8 == byte)
    }
}

impl From<Kind> for Code {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Entry => Self::Entry,
            Kind::HardState => Self::HardState,
            Kind::Compaction => Self::Compaction,
        }
    }
}

impl Code {
    /// What users of the log know it as; heads and cuts are none of their business.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::SegmentHead | Self::Cut => None,
            Self::Entry => Some(Kind::Entry),
            Self::HardState => Some(Kind::HardState),
            Self::Compaction => Some(Kind::Compaction),
        }
    }
}

/// Bytes that a record with such a payload takes on disk.
pub(crate) fn size(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGNMENT)
}

/// A record with its place, as it is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a> {
    pub(crate) code: Code,
    pub(crate) group: u16,
    /// Offset at which the write that holds it began.
    pub(crate) batch: u32,
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) payload: &'a [u8],
}

impl Raw<'_> {
    /// How many bytes the record takes on disk.
    pub(crate) fn size(&self) -> usize {
        size(self.payload.len())
    }

    /// Appends it to what is to be written, for this segment and offset.
    pub(crate) fn encode(&self, segment: u64, offset: u32, out: &mut Vec<u8>) {
        assert!(self.payload.len() <= PAYLOAD_BYTES_MAX, "checked before");
        assert!((offset as usize).is_multiple_of(ALIGNMENT), "records are aligned");
        let start = out.len();
        out.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[self.code as u8, 0]);
        out.extend_from_slice(&self.group.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(self.payload);
        let checksum = checksum(segment, offset, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        out.resize(start + self.size(), 0);
    }

    /// The record at this offset of a segment, unless there is no valid one. Bounded by the bytes that there are.
    pub(crate) fn decode(segment: u64, bytes: &[u8], offset: usize) -> Option<Raw<'_>> {
        let rest = bytes.get(offset..)?;
        let header = rest.first_chunk::<HEADER_BYTES>()?;
        let length = number(header, 0) as usize;
        if length > PAYLOAD_BYTES_MAX || header[9] != 0 {
            return None;
        }
        let code = Code::from_byte(header[8])?;
        let record = rest.get(..HEADER_BYTES + length)?;
        // The padding is part of the record: what stands there was not written by us.
        let padding = rest.get(HEADER_BYTES + length..size(length))?;
        let offset = u32::try_from(offset).ok()?;
        if padding.iter().any(|byte| *byte != 0) || number(header, 4) != checksum(segment, offset, record) {
            return None;
        }
        Some(Raw {
            code,
            group: u16::from_le_bytes([header[10], header[11]]),
            batch: number(header, 12),
            term: wide(header, 16),
            index: wide(header, 24),
            payload: &record[HEADER_BYTES..],
        })
    }
}

/// The batch that a record would name if it were one: a cheap look before [`Raw::decode`].
pub(crate) fn claimed_batch(bytes: &[u8], offset: usize) -> Option<u32> {
    let header = bytes.get(offset..)?.first_chunk::<HEADER_BYTES>()?;
    Code::from_byte(header[8]).map(|_| number(header, 12))
}

fn number(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn wide(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(number(header, at)) | u64::from(number(header, at + 4)) << 32
}

/// Of everything but the checksum itself, and of the place: a record that was written elsewhere is not valid here.
fn checksum(segment: u64, offset: u32, record: &[u8]) -> u32 {
    let mut place = [0; 20];
    place[..8].copy_from_slice(&segment.to_le_bytes());
    place[8..16].copy_from_slice(&u64::from(offset).to_le_bytes());
    place[16..].copy_from_slice(&record[..4]);
    crc32c::crc32c_append(crc32c::crc32c(&place), &record[8..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(raw: &Raw<'_>, segment: u64, offset: u32) -> Vec<u8> {
        let mut bytes = vec![0; offset as usize];
        raw.encode(segment, offset, &mut bytes);
        bytes
    }

    fn any_code() -> impl Strategy<Value = Code> {
        prop_oneof![
            Just(Code::SegmentHead),
            Just(Code::Entry),
            Just(Code::HardState),
            Just(Code::Compaction),
            Just(Code::Cut)
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            code in any_code(), group: u16, batch: u32, term: u64, index: u64, segment: u64, eighth in 0..64u32,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let raw = Raw { code, group, batch, term, index, payload: &payload };
            let bytes = encoded(&raw, segment, eighth * 8);
            prop_assert_eq!(bytes.len() % ALIGNMENT, 0);
            prop_assert_eq!(Raw::decode(segment, &bytes, (eighth * 8) as usize), Some(raw));
            prop_assert_eq!(claimed_batch(&bytes, (eighth * 8) as usize), Some(batch));
        }

        #[test]
        fn no_flipped_bit_goes_unnoticed(payload in proptest::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0..8u32) {
            let raw = Raw { code: Code::Entry, group: 1, batch: 0, term: 2, index: 3, payload: &payload };
            let mut bytes = encoded(&raw, 7, 16);
            let position = 16 + at.index(bytes.len() - 16);
            bytes[position] ^= 1 << bit;
            prop_assert_eq!(Raw::decode(7, &bytes, 16), None, "byte {}", position);
        }

        #[test]
        fn arbitrary_bytes_are_no_record_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), offset in 0..210usize) {
            prop_assert_eq!(Raw::decode(1, &bytes, offset), None);
        }
    }

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let raw = Raw { code: Code::Entry, group: 0, batch: 0, term: 1, index: 1, payload: b"x" };
        let bytes = encoded(&raw, 1, 0);
        assert!(Raw::decode(1, &bytes, 0).is_some());
        assert_eq!(Raw::decode(2, &bytes, 0), None, "another segment");
        let moved = [vec![0; 8], bytes].concat();
        assert_eq!(Raw::decode(1, &moved, 8), None, "another offset");
    }
}
