//! Bytes of records. The layout is in [`super`].

use std::ops::Range;

use crate::block::{DIGEST_BYTES, Digest};
use crate::hash::{HASH_BYTES, Hash};

/// Records begin at multiples of this.
pub(super) const ALIGNMENT: usize = 8;
/// Length of a record's head.
pub(super) const HEAD_BYTES: usize = 88;
const MAGIC: [u8; 4] = *b"BLK1";
/// How a zstd frame begins that is passed over, and how long the rest of this one is: a release that knows no digests decompresses what is before it.
const DIGEST_FRAME: [u8; 8] = [0x50, 0x2a, 0x4d, 0x18, DIGEST_BYTES as u8 + 4, 0, 0, 0];
/// Length of a digest behind what is stored, with its frame and checksum.
pub(super) const DIGEST_FRAME_BYTES: usize = DIGEST_FRAME.len() + DIGEST_BYTES + 4;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    SegmentHead = 1,
    Block = 2,
    /// A block that was damaged where it stood first, once more.
    Repaired = 3,
    /// What blocks of this segment need to be read.
    Dictionary = 4,
}

/// A record's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) encoding: u8,
    pub(super) evidence: u8,
    /// Whether what is stored ends with the block's digest.
    pub(super) has_digest: bool,
    pub(super) batch: u64,
    pub(super) number: u64,
    pub(super) stored_bytes: u32,
    pub(super) plain_bytes: u32,
    pub(super) root: Hash,
    pub(super) stored_checksum: u32,
}

/// Where a record is, which its checksum knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) salt: u64,
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Place {
    fn checksum(self, head: &[u8]) -> u32 {
        let mut checksum = crc32c::crc32c(&self.salt.to_le_bytes());
        for part in [self.segment, self.offset] {
            checksum = crc32c::crc32c_append(checksum, &part.to_le_bytes());
        }
        crc32c::crc32c_append(checksum, head)
    }

    /// What stands behind a block that is stored in a record here.
    pub(super) fn digest_frame(self, digest: &Digest) -> [u8; DIGEST_FRAME_BYTES] {
        let mut frame = [0; DIGEST_FRAME_BYTES];
        let (begin, behind) = frame.split_at_mut(DIGEST_FRAME.len());
        begin.copy_from_slice(&DIGEST_FRAME);
        let (place, checksum) = behind.split_at_mut(DIGEST_BYTES);
        place.copy_from_slice(digest);
        checksum.copy_from_slice(&self.checksum(digest).to_le_bytes());
        frame
    }

    /// The digest in such a frame, if its own checksum is right.
    pub(super) fn digest(self, frame: &[u8]) -> Option<Digest> {
        let digest: Digest = *frame.strip_prefix(&DIGEST_FRAME)?.first_chunk()?;
        (self.digest_frame(&digest) == *frame).then_some(digest)
    }
}

/// The checksum of what is stored, which comes in pieces.
pub(super) fn checksum(stored: &[&[u8]]) -> u32 {
    stored.iter().fold(0, |checksum, piece| crc32c::crc32c_append(checksum, piece))
}

impl Head {
    /// Length of the whole record.
    pub(super) fn record_bytes(&self) -> usize {
        record_bytes(self.stored_bytes as usize)
    }

    pub(super) fn encode(&self, place: Place, stored: &[&[u8]], out: &mut Vec<u8>) {
        debug_assert_eq!(stored.iter().map(|piece| piece.len()).sum::<usize>(), self.stored_bytes as usize);
        let start = out.len();
        out.extend(MAGIC);
        out.extend([0; 4]);
        out.extend(self.stored_checksum.to_le_bytes());
        out.extend([self.kind as u8, self.encoding, self.evidence, self.has_digest.into()]);
        out.extend(self.batch.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.stored_bytes.to_le_bytes());
        out.extend(self.plain_bytes.to_le_bytes());
        out.extend(self.root);
        debug_assert_eq!(out.len() - start, HEAD_BYTES);
        let checksum = place.checksum(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        stored.iter().for_each(|piece| out.extend(*piece));
        out.resize(start + self.record_bytes(), 0);
    }

    /// The head at the beginning of these bytes, if its checksum is right.
    pub(super) fn decode(place: Place, bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let integer = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(integer(at)) | u64::from(integer(at + 4)) << 32;
        if head[..4] != MAGIC || integer(4) != place.checksum(&head[8..]) {
            return None;
        }
        let kind = match head[12] {
            1 => Kind::SegmentHead,
            2 => Kind::Block,
            3 => Kind::Repaired,
            4 => Kind::Dictionary,
            _ => return None,
        };
        let mut root = [0; HASH_BYTES];
        root.copy_from_slice(&head[40..]);
        Some(Self {
            kind,
            encoding: head[13],
            evidence: head[14],
            has_digest: head[15] == 1,
            batch: long(16),
            number: long(24),
            stored_bytes: integer(32),
            plain_bytes: integer(36),
            root,
            stored_checksum: integer(8),
        })
    }

    /// What is stored behind the head, if it is whole and its checksum is right.
    pub(super) fn stored<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let stored = record.get(HEAD_BYTES..HEAD_BYTES + self.stored_bytes as usize)?;
        (crc32c::crc32c(stored) == self.stored_checksum).then_some(stored)
    }

    /// Where in the record the frame of the digest stands, if there is one.
    pub(super) fn digest_place(&self) -> Option<Range<usize>> {
        let end = HEAD_BYTES + self.stored_bytes as usize;
        let begin = end.checked_sub(DIGEST_FRAME_BYTES).filter(|begin| self.has_digest && *begin >= HEAD_BYTES)?;
        Some(begin..end)
    }

    /// The block's digest, of a record of which nothing else need be whole.
    pub(super) fn digest(&self, place: Place, record: &[u8]) -> Option<Digest> {
        place.digest(record.get(self.digest_place()?)?)
    }
}

/// Length of a record that stores so many bytes.
pub(super) fn record_bytes(stored_bytes: usize) -> usize {
    (HEAD_BYTES + stored_bytes).next_multiple_of(ALIGNMENT)
}

/// Whether a record might begin here.
pub(super) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(stored: &[u8]) -> Head {
        Head {
            kind: Kind::Block,
            encoding: 1,
            evidence: 2,
            has_digest: false,
            batch: 16,
            number: 77,
            stored_bytes: stored.len() as u32,
            plain_bytes: 900,
            root: [5; 48],
            stored_checksum: crc32c::crc32c(stored),
        }
    }

    const PLACE: Place = Place { salt: 3, segment: 4, offset: 80 };

    proptest! {
        #[test]
        fn a_record_comes_back_and_a_changed_one_does_not(
            stored in prop::collection::vec(any::<u8>(), 0..100),
            place: prop::sample::Index,
            bit in 0_u8..8,
        ) {
            let head = head(&stored);
            let mut bytes = Vec::new();
            let (first, second) = stored.split_at(stored.len() / 3);
            prop_assert_eq!(checksum(&[first, second]), head.stored_checksum);
            head.encode(PLACE, &[first, second], &mut bytes);
            prop_assert_eq!(bytes.len(), head.record_bytes());
            prop_assert_eq!(bytes.len() % ALIGNMENT, 0);
            let found = Head::decode(PLACE, &bytes).unwrap();
            prop_assert_eq!(found.stored(&bytes), Some(&stored[..]));
            prop_assert_eq!(&found, &head);
            for other in [Place { salt: 0, ..PLACE }, Place { segment: 5, ..PLACE }, Place { offset: 88, ..PLACE }] {
                prop_assert_eq!(Head::decode(other, &bytes), None);
            }
            let place = place.index(HEAD_BYTES + stored.len());
            bytes[place] ^= 1 << bit;
            prop_assert_eq!(Head::decode(PLACE, &bytes).and_then(|head| head.stored(&bytes).map(|_| ())), None);
        }
    }

    #[test]
    fn a_digest_is_known_where_the_block_before_it_is_damaged_and_no_other_is() {
        let (plain, digest) = (vec![7; 1_000], [9; DIGEST_BYTES]);
        let frame = PLACE.digest_frame(&digest);
        let packed = zstd::bulk::compress(&plain, 1).unwrap();
        let stored = [&packed[..], &frame].concat();
        let mut bytes = Vec::new();
        let head = Head { has_digest: true, ..head(&stored) };
        head.encode(PLACE, &[&packed, &frame], &mut bytes);
        let head = Head::decode(PLACE, &bytes).unwrap();
        let without_knowing = zstd::bulk::decompress(head.stored(&bytes).unwrap(), 1_000).unwrap();
        assert_eq!(without_knowing, plain, "a release that knows no digests reads the block");
        bytes[HEAD_BYTES] ^= 1;
        assert_eq!((head.stored(&bytes), head.digest(PLACE, &bytes)), (None, Some(digest)));
        assert_eq!(head.digest(Place { offset: 88, ..PLACE }, &bytes), None, "of another record");
        let end = HEAD_BYTES + stored.len();
        for place in end - DIGEST_FRAME_BYTES..end {
            bytes[place] ^= 1;
            assert_eq!(head.digest(PLACE, &bytes), None, "byte {place}");
            bytes[place] ^= 1;
        }
        assert_eq!(head.digest(PLACE, &bytes[..end - 1]), None, "cut off");
        let before = Head { has_digest: false, ..head.clone() };
        assert_eq!(before.digest(PLACE, &bytes), None);
        assert_eq!(Head { stored_bytes: 3, ..head }.digest(PLACE, &bytes), None);
    }
}
