//! What a segment's bytes hold, and how they end. Pure.

use super::format::{ALIGNMENT, Head, Kind, Place, has_magic};
use crate::block::Chain;

const SUFFIX: &str = ".blocks";
const DIGITS: usize = 20;
const SALT_BYTES: usize = 8;

/// The name of a segment's file.
pub(super) fn name(segment: u64) -> String {
    format!("{segment:0DIGITS$}{SUFFIX}")
}

/// The number of a segment by its file's name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == DIGITS).then(|| digits.parse().ok()).flatten()
}

/// What the first record of a segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) salt: u64,
    pub(super) chain: Chain,
}

impl SegmentHead {
    /// Appends it to an empty segment.
    pub(super) fn encode(&self, segment: u64, out: &mut Vec<u8>) {
        let mut stored = self.salt.to_le_bytes().to_vec();
        stored.extend(self.chain.encode());
        let head = Head {
            kind: Kind::SegmentHead,
            encoding: 0,
            evidence: 0,
            batch: 0,
            number: segment,
            stored_bytes: stored.len() as u32,
            plain_bytes: stored.len() as u32,
            root: [0; 48],
            stored_checksum: crc32c::crc32c(&stored),
        };
        head.encode(Place { salt: 0, segment, offset: 0 }, &stored, out);
    }

    /// Of a segment that begins with these bytes, and its length.
    pub(super) fn decode(segment: u64, bytes: &[u8]) -> Option<(Self, usize)> {
        let head = Head::decode(Place { salt: 0, segment, offset: 0 }, bytes)?;
        let (salt, chain) = head.stored(bytes)?.split_first_chunk::<SALT_BYTES>()?;
        let is_head = head.kind == Kind::SegmentHead && head.number == segment;
        let chain = Chain::decode(chain).filter(|_| is_head)?;
        Some((Self { salt: u64::from_le_bytes(*salt), chain }, head.record_bytes()))
    }
}

/// A block's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) head: Head,
}

/// What a segment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) head: SegmentHead,
    /// Blocks that are whole, in order.
    pub(super) blocks: Vec<Record>,
    /// Blocks of any earlier number that were damaged and are whole here, in the order in which they were written.
    pub(super) repaired: Vec<Record>,
    /// Dictionaries, each of them twice.
    pub(super) dictionaries: Vec<Record>,
    /// Offsets at which something that was safe is damaged.
    pub(super) damaged: Vec<u64>,
    /// Where the last batch begins.
    pub(super) batch: u64,
    /// Behind the last record.
    pub(super) end: u64,
}

/// Reads a segment from its beginning; `None`: it has no head. Of one that is full all was safe once: what is not valid in it is damaged, and
/// no end that a crash has left.
pub(super) fn scan(segment: u64, bytes: &[u8], is_full: bool) -> Option<Scan> {
    let (head, head_bytes) = SegmentHead::decode(segment, bytes)?;
    let salt = head.salt;
    let mut scan = Scan {
        head,
        blocks: Vec::new(),
        repaired: Vec::new(),
        dictionaries: Vec::new(),
        damaged: Vec::new(),
        batch: 0,
        end: head_bytes as u64,
    };
    let mut offset = head_bytes;
    while offset < bytes.len() {
        if let Some(head) = valid(salt, segment, bytes, offset) {
            let record_bytes = head.record_bytes();
            scan.batch = head.batch;
            let records = match head.kind {
                Kind::Repaired => &mut scan.repaired,
                Kind::Dictionary => &mut scan.dictionaries,
                Kind::Block | Kind::SegmentHead => &mut scan.blocks,
            };
            records.push(Record { offset: offset as u64, head });
            offset += record_bytes;
            scan.end = offset as u64;
            continue;
        }
        let Some(next) = behind_damage(salt, segment, bytes, offset, is_full) else { break };
        scan.damaged.push(offset as u64);
        offset = next;
    }
    Some(scan)
}

fn valid(salt: u64, segment: u64, bytes: &[u8], offset: usize) -> Option<Head> {
    let record = bytes.get(offset..)?;
    let head = Head::decode(Place { salt, segment, offset: offset as u64 }, record)?;
    let is_whole =
        head.kind != Kind::SegmentHead && record.len() >= head.record_bytes() && head.stored(record).is_some();
    is_whole.then_some(head)
}

/// Where the next valid record stands, if one behind it was written when what is damaged at `offset` was already safe, as in a full
/// segment all was.
fn behind_damage(salt: u64, segment: u64, bytes: &[u8], offset: usize, is_full: bool) -> Option<usize> {
    let mut first = None;
    let mut at = offset + ALIGNMENT;
    while at < bytes.len() {
        let found = has_magic(&bytes[at..]).then(|| valid(salt, segment, bytes, at)).flatten();
        let Some(head) = found else {
            at += ALIGNMENT;
            continue;
        };
        let first = *first.get_or_insert(at);
        if is_full || head.batch > offset as u64 {
            return Some(first);
        }
        at += head.record_bytes();
    }
    None
}
