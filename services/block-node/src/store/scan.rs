//! What a segment's bytes hold, and how they end. Pure.

use super::format::{ALIGNMENT, Head, Kind, Place, has_magic};
use crate::block::{Chain, Digest};

const SUFFIX: &str = ".blocks";
pub(super) const DIGITS: usize = 20;
const SALT_BYTES: usize = 8;

/// The name of a segment's file.
pub(super) fn name(segment: u64) -> String {
    format!("{segment:0DIGITS$}{SUFFIX}")
}

/// The name of another file that belongs to a segment.
pub(super) fn beside(segment: u64, suffix: &str) -> String {
    format!("{segment:0DIGITS$}{suffix}")
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
            has_digest: false,
            batch: 0,
            number: segment,
            stored_bytes: stored.len() as u32,
            plain_bytes: stored.len() as u32,
            root: [0; 48],
            stored_checksum: crc32c::crc32c(&stored),
        };
        head.encode(Place { salt: 0, segment, offset: 0 }, &[&stored], out);
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
    /// Of the block, as far as it stands there and is whole.
    pub(super) digest: Option<Digest>,
}

impl Record {
    fn of(place: Place, head: Head, bytes: &[u8]) -> Self {
        let digest = bytes.get(place.offset as usize..).and_then(|record| head.digest(place, record));
        Self { offset: place.offset, head, digest }
    }
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
    /// Blocks that were safe and are damaged, but whose head is whole, in order: their number and root hash are known.
    pub(super) damaged: Vec<Record>,
    /// Where the last batch begins.
    pub(super) batch: u64,
    /// Behind all that was ever safe, and what is whole behind that; 0: nothing was.
    pub(super) end: u64,
    /// Whole records behind the end, of a write that was cut off.
    pub(super) cut_off: usize,
}

impl Scan {
    /// Where the first record behind the head stands, as far as it is known.
    pub(super) fn first(&self) -> Option<u64> {
        let kinds = [&self.blocks, &self.repaired, &self.dictionaries, &self.damaged];
        kinds.iter().filter_map(|records| records.first()).map(|record| record.offset).min()
    }
}

/// Reads a segment with this head. Everything before the offset `safe_end` was safe once, however that is known; of a segment that is full
/// everything was ([`u64::MAX`]). What is not valid there is damaged, and no end that a crash has left.
pub(super) fn scan(segment: u64, head: SegmentHead, bytes: &[u8], safe_end: u64) -> Scan {
    let salt = head.salt;
    let mut scan = Scan {
        head,
        blocks: Vec::new(),
        repaired: Vec::new(),
        dictionaries: Vec::new(),
        damaged: Vec::new(),
        batch: 0,
        end: 0,
        cut_off: 0,
    };
    let mut offset = SegmentHead::decode(segment, bytes).map_or(0, |(_, head_bytes)| head_bytes);
    let record = |offset: usize, head| Record::of(Place { salt, segment, offset: offset as u64 }, head, bytes);
    while offset < bytes.len() {
        if let Some(head) = whole(salt, segment, bytes, offset) {
            let record_bytes = head.record_bytes();
            scan.batch = head.batch;
            let records = match head.kind {
                Kind::Repaired => &mut scan.repaired,
                Kind::Dictionary => &mut scan.dictionaries,
                Kind::Block | Kind::SegmentHead => &mut scan.blocks,
            };
            records.push(record(offset, head));
            offset += record_bytes;
            continue;
        }
        let Some(next) = behind_damage(salt, segment, bytes, offset, safe_end) else { break };
        if let Some(head) = valid(salt, segment, bytes, offset).filter(|head| head.kind == Kind::Block) {
            scan.damaged.push(record(offset, head));
        }
        offset = next;
    }
    scan.end = match safe_end {
        u64::MAX => offset as u64,
        // The file may have been cut.
        safe_end => safe_end.max(offset as u64),
    };
    let mut behind = scan.end as usize;
    while behind < bytes.len() {
        let record = has_magic(&bytes[behind..]).then(|| whole(salt, segment, bytes, behind)).flatten();
        scan.cut_off += usize::from(record.is_some());
        behind += record.map_or(ALIGNMENT, |head| head.record_bytes());
    }
    scan
}

/// Number of the first block of a segment whose own head is not valid, by the first of its records that is.
pub(super) fn first_block(segment: u64, salt: u64, bytes: &[u8]) -> Option<u64> {
    let places = (0..bytes.len()).step_by(ALIGNMENT).filter(|offset| has_magic(&bytes[*offset..]));
    let mut heads = places.filter_map(|offset| valid(salt, segment, bytes, offset));
    heads.find(|head| head.kind == Kind::Block).map(|head| head.number)
}

impl Scan {
    /// The records that the index names: by number, and then those that were repaired. Of two records of a block the later one counts. The head
    /// of a damaged one still tells its root hash.
    pub(super) fn indexed(&self) -> (Vec<&Record>, Vec<&Record>) {
        let is_whole = |number: u64| self.blocks.binary_search_by_key(&number, |block| block.head.number);
        let damaged = self.damaged.iter().filter(|record| is_whole(record.head.number).is_err());
        let mut blocks: Vec<&Record> = self.blocks.iter().chain(damaged).collect();
        blocks.sort_by_key(|record| record.head.number);
        let is_last = |record: &&Record| {
            let first = is_whole(record.head.number);
            first.ok().and_then(|at| self.blocks.get(at)).is_none_or(|first| first.offset < record.offset)
        };
        (blocks, self.repaired.iter().filter(is_last).collect())
    }
}

/// A record's head, of any that may stand there; what is stored behind it need not be whole.
pub(super) fn valid(salt: u64, segment: u64, bytes: &[u8], offset: usize) -> Option<Head> {
    let head = Head::decode(Place { salt, segment, offset: offset as u64 }, bytes.get(offset..)?)?;
    (head.kind != Kind::SegmentHead).then_some(head)
}

fn whole(salt: u64, segment: u64, bytes: &[u8], offset: usize) -> Option<Head> {
    let record = bytes.get(offset..)?;
    let head = valid(salt, segment, bytes, offset)?;
    (record.len() >= head.record_bytes() && head.stored(record).is_some()).then_some(head)
}

/// Where to go on behind what is damaged at `offset`, if that was safe once; `None`: it is the end, as far as can be told. A batch is written
/// when the one before is safe, so that a record tells by its `batch` that what stands before it was; and one record of a batch that was
/// safe tells that all of it was.
fn behind_damage(salt: u64, segment: u64, bytes: &[u8], offset: usize, safe_end: u64) -> Option<usize> {
    let damaged = offset as u64;
    let mut first = None;
    let mut at = offset + valid(salt, segment, bytes, offset).map_or(ALIGNMENT, |head| head.record_bytes());
    while at < bytes.len() {
        let found = has_magic(&bytes[at..]).then(|| valid(salt, segment, bytes, at)).flatten();
        let Some(head) = found else {
            at += ALIGNMENT;
            continue;
        };
        // Its own batch may be another one, which is then looked at from its beginning.
        let next = *first.get_or_insert(if head.batch > damaged { head.batch as usize } else { at });
        if damaged < safe_end || head.batch > damaged || head.batch < safe_end {
            return Some(next);
        }
        at += head.record_bytes();
    }
    (damaged < safe_end).then_some(bytes.len().min(usize::try_from(safe_end).unwrap_or(usize::MAX)))
}
