//! Entries of the index that are damaged, or lost with a whole file of it, and digests in the second file: what they said is in the segments, too.

use std::collections::BTreeMap;
use std::io;
use std::sync::PoisonError;

use wal::files::{Directory, File};

use super::digests::Acknowledged;
use super::index::Entry;
use super::is_full;
use super::reader::Shown;
use super::rows::RowWriter;
use super::scan::{self, SegmentHead};
use crate::block::Chain;

impl<D: Directory> Shown<D> {
    /// The entry of a block whose own is not valid; `None`: its record is not whole, either. The segment in which the block must be is read
    /// through, once for all blocks in it: entries that are missing are written again, and blocks that are not there are quarantined.
    pub(super) fn mend(&self, number: u64) -> io::Result<Option<Entry>> {
        let _one_at_a_time = self.mending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.entry(number)? {
            return Ok(Some(entry));
        }
        // Up to here everything is safe, also in the segment that is written to.
        let next = self.next();
        let Some((segment, end)) = self.segment_of(number)? else { return Ok(None) };
        let file = self.files().file(&scan::name(segment))?;
        let begin = self.first_block(segment)?.unwrap_or(number).max(self.first());
        let head = SegmentHead { salt: self.salt(), chain: Chain::unknown(begin) };
        let scan = scan::scan(segment, head, &file.read()?, u64::MAX);
        let mut records = BTreeMap::new();
        for record in scan.blocks.iter().chain(&scan.repaired).filter(|record| record.head.number < next) {
            let record_bytes = record.head.record_bytes() as u32;
            let entry = Entry { segment: segment as u32, offset: record.offset as u32, record_bytes };
            let known = records.entry(record.head.number).or_insert(entry);
            // Of two records of a block the later one counts.
            if known.offset < entry.offset {
                *known = entry;
            }
        }
        let mut writer = RowWriter::new(self.files().directory().clone());
        let (mut written, mut damaged) = (0, 0);
        for missing in begin..end.unwrap_or(next).min(next) {
            // Whoever repairs a block writes its entry meanwhile.
            let _alone = self.index();
            if self.entry(missing)?.is_some() {
                continue;
            }
            match records.get(&missing) {
                Some(entry) => {
                    match writer.write(missing, &[*entry]) {
                        Err(error) if is_full(&error) => self.keep_unwritten([(missing, *entry)]),
                        result => result?,
                    }
                    written += 1;
                }
                None => damaged += u64::from(self.quarantined().insert(missing)),
            }
        }
        match writer.sync() {
            Err(error) if is_full(&error) => {}
            result => result?,
        }
        tracing::error!(segment, written, damaged, "entries of the index were damaged, and are written again");
        self.entry(number)
    }

    /// Writes digests of blocks into the second file once more.
    pub(super) fn mend_digests(&self, digests: &[(u64, Acknowledged)]) -> io::Result<()> {
        let mut writer = RowWriter::new(self.files().directory().clone());
        {
            let _alone = self.index();
            writer.write_all(digests)?;
        }
        writer.sync()
    }

    /// The segment that a block was first written to, and the first block behind it.
    fn segment_of(&self, number: u64) -> io::Result<Option<(u64, Option<u64>)>> {
        let names = self.files().directory().names()?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| scan::number(name)).collect();
        segments.sort_unstable();
        let mut behind = None;
        let (mut low, mut high) = (0, segments.len());
        let mut found = None;
        while low < high {
            // One that does not tell its first block counts to the one before it.
            let middle = (low + high) / 2;
            let mut told = None;
            for (at, segment) in segments.iter().enumerate().take(high).skip(middle) {
                if let Some(first) = self.first_block(*segment)? {
                    told = Some((at, first));
                    break;
                }
            }
            match told {
                Some((at, first)) if first <= number => {
                    found = Some(segments[at]);
                    low = at + 1;
                }
                Some((_, first)) => {
                    behind = Some(first);
                    high = middle;
                }
                None => high = middle,
            }
        }
        Ok(found.map(|segment| (segment, behind)))
    }
}
