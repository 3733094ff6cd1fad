//! What a segment's bytes hold, and how they end. Pure.

use std::ops::Range;

use crate::record::{ALIGNMENT, Code, Raw, claimed_batch};

const SUFFIX: &str = ".wal";
const NUMBER_DIGITS: usize = 20;
/// What the first record of a segment says, after which the format's version.
const HEAD: &[u8] = b"storebench-wal-2";

/// The name of a segment's file.
pub(crate) fn name(number: u64) -> String {
    format!("{number:0NUMBER_DIGITS$}{SUFFIX}")
}

/// The number of a segment by its file's name.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == NUMBER_DIGITS).then(|| digits.parse().ok()).flatten()
}

/// The first record of a segment.
pub(crate) fn head(number: u64, previous_end: u32) -> Raw<'static> {
    Raw { code: Code::SegmentHead, group: 0, batch: 0, term: previous_end.into(), index: number, payload: HEAD }
}

/// Bytes of a segment's first record: enough for [`has_head`].
pub(crate) fn head_bytes() -> usize {
    head(0, 0).size()
}

/// Whether a segment that begins with these bytes was written to, as far as can be told from them.
pub(crate) fn has_head(number: u64, bytes: &[u8]) -> bool {
    Raw::decode(number, bytes, 0).is_some_and(|raw| raw.code == Code::SegmentHead)
}

/// The record that is written behind the end of a log that was found. It belongs to the last batch, with which it is written: a
/// batch of its own would say that the one before is safe, which is what it says as a seal.
pub(crate) fn cut(last_batch: u32) -> Raw<'static> {
    Raw { code: Code::Cut, group: 0, batch: last_batch, term: 0, index: 0, payload: b"" }
}

/// How a segment's records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Where the last batch begins: everything before it was once safe on disk.
    pub(crate) batch: u32,
    /// Behind the last record.
    pub(crate) offset: u32,
    /// Where bytes other than zero end: behind `offset` if a batch was torn, or if the file was another segment before.
    pub(crate) dirty: u32,
}

/// Damage of what was safe on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) offset: u32,
    pub(crate) what: String,
}

/// Reads a segment from its beginning. `visit` is given every record in front of the end, the head included. What stands
/// behind the end is a torn batch, or was there before this segment, or this is an error.
pub(crate) fn scan(number: u64, bytes: &[u8], mut visit: impl FnMut(&Raw<'_>)) -> Result<End, Damage> {
    let mut offset = 0;
    let mut batch = 0;
    // What a torn batch has left behind a cut is not its continuation.
    let mut is_cut = false;
    while let Some(raw) = Raw::decode(number, bytes, offset) {
        let is_first = offset == 0;
        let continues = raw.batch as usize == offset || raw.batch == batch && (!is_cut || raw.code == Code::Cut);
        if !continues || is_first != (raw.code == Code::SegmentHead) {
            break;
        }
        if is_first && (raw.payload != HEAD || raw.index != number) {
            let what = format!("the segment's head says `{}`", String::from_utf8_lossy(raw.payload).escape_debug());
            return Err(Damage { offset: 0, what });
        }
        visit(&raw);
        (batch, is_cut) = (raw.batch, raw.code == Code::Cut);
        offset += raw.size();
    }
    let rest = bytes.get(offset..).unwrap_or_default();
    let dirty = offset + rest.iter().rposition(|byte| *byte != 0).map_or(0, |position| position + 1);
    if let Some(later) = later_batch(number, bytes, offset..dirty) {
        let what = format!("this record is not valid, but the one at byte {later}, written after it was safe, is");
        return Err(Damage { offset: offset as u32, what });
    }
    Ok(End { batch, offset: offset as u32, dirty: dirty as u32 })
}

/// Where among the bytes that are not zero a valid record stands that was written when what they begin with was already safe.
fn later_batch(number: u64, bytes: &[u8], dirty: Range<usize>) -> Option<usize> {
    dirty.clone().skip(ALIGNMENT).step_by(ALIGNMENT).find(|offset| {
        // Without this look in front, every run of plausible lengths would be summed up.
        claimed_batch(bytes, *offset).is_some_and(|batch| batch as usize > dirty.start && batch as usize <= *offset)
            && Raw::decode(number, bytes, *offset).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of batches, each of so many one-byte entries, and the offsets at which batches begin.
    fn segment(batches: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        head(1, 0).encode(1, 0, &mut bytes);
        let mut index = 0;
        for (batch, count) in batches.iter().enumerate() {
            // The first batch holds the head, too.
            let start = if batch == 0 { 0 } else { bytes.len() };
            if batch > 0 {
                starts.push(start);
            }
            for _ in 0..*count {
                index += 1;
                let entry =
                    Raw { code: Code::Entry, group: 0, batch: start as u32, term: 1, index, payload: &[index as u8] };
                entry.encode(1, bytes.len() as u32, &mut bytes);
            }
        }
        starts.push(bytes.len());
        bytes.resize(bytes.len() + 256, 0);
        (bytes, starts)
    }

    fn entries(bytes: &[u8]) -> Result<(Vec<u64>, End), Damage> {
        let mut indexes = Vec::new();
        let end = scan(1, bytes, |raw| {
            if raw.code == Code::Entry {
                indexes.push(raw.index);
            }
        })?;
        Ok((indexes, end))
    }

    #[test]
    fn names_are_numbers_and_sort_like_them() {
        assert_eq!(name(17), "00000000000000000017.wal");
        assert_eq!(number(&name(u64::MAX)), Some(u64::MAX));
        for other in ["17.wal", "spare", "0000000000000000001x.wal", "000000000000000000017.wal"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn a_whole_segment_is_read_to_its_end() {
        let (bytes, starts) = segment(&[2, 3, 1]);
        let (indexes, end) = entries(&bytes).unwrap();
        assert_eq!(indexes, [1, 2, 3, 4, 5, 6]);
        assert_eq!((end.offset as usize, end.dirty), (starts[3], end.offset));
    }

    #[test]
    fn a_torn_last_batch_ends_the_log_even_where_its_later_sectors_arrived_first() {
        let (mut bytes, starts) = segment(&[2, 3]);
        bytes[starts[1]..starts[1] + 8].fill(0);
        let (indexes, end) = entries(&bytes).unwrap();
        assert_eq!(indexes, [1, 2]);
        assert_eq!(end.offset as usize, starts[1]);
        assert!(end.dirty > end.offset, "the other two records of the batch are still there");
    }

    #[test]
    fn a_hole_before_a_later_batch_is_damage() {
        let (mut bytes, starts) = segment(&[2, 3, 1]);
        bytes[starts[1] + 40] ^= 1;
        let damage = entries(&bytes).unwrap_err();
        assert!(damage.offset as usize >= starts[1] && (damage.offset as usize) < starts[2], "{damage:?}");
        assert!(damage.what.contains(&format!("byte {}", starts[2])), "{damage:?}");
    }

    #[test]
    fn a_stale_record_of_a_batch_that_never_was_here_does_not_continue_the_log() {
        let (mut bytes, starts) = segment(&[1, 1]);
        // It is valid, at its place, and adjacent; but the batch it names is neither the one before nor its own.
        let at = starts[2];
        bytes.truncate(at);
        let stale = Raw { code: Code::Entry, group: 0, batch: 8, term: 9, index: 9, payload: b"" };
        stale.encode(1, at as u32, &mut bytes);
        let (indexes, end) = entries(&bytes).unwrap();
        assert_eq!(indexes, [1, 2]);
        assert_eq!(end.offset as usize, at);
    }

    #[test]
    fn a_segment_of_another_format_is_refused() {
        let mut bytes = Vec::new();
        Raw { payload: b"storebench-wal-9", ..head(1, 0) }.encode(1, 0, &mut bytes);
        assert!(entries(&bytes).unwrap_err().what.contains("storebench-wal-9"));
    }
}
