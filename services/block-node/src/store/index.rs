//! Where blocks are, by number: 16 bytes for each.

use super::rows::Row;

/// Where a block's record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) record_bytes: u32,
}

impl Entry {
    /// Behind the record.
    pub(super) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.record_bytes)
    }
}

impl Row for Entry {
    const SUFFIX: &'static str = ".index";
    const BYTES: usize = 16;

    fn encode(self, number: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        for part in [self.segment, self.offset, self.record_bytes] {
            out.extend(part.to_le_bytes());
        }
        out.extend(checksum(number, &out[begin..]));
    }

    fn decode(number: u64, bytes: &[u8]) -> Option<Self> {
        let (parts, found) = bytes.split_at_checked(Self::BYTES - 4)?;
        let part = |at: usize| u32::from_le_bytes([parts[at], parts[at + 1], parts[at + 2], parts[at + 3]]);
        let entry = Self { segment: part(0), offset: part(4), record_bytes: part(8) };
        (checksum(number, parts) == found).then_some(entry)
    }
}

fn checksum(number: u64, parts: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), parts).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::rows::{self, FILE_BLOCKS, RowWriter};
    use super::super::segments::OpenFiles;
    use super::*;
    use wal::files::SimulatedDirectory;

    #[test]
    fn entries_are_found_across_files_and_no_other_is() {
        let directory = SimulatedDirectory::default();
        let mut writer = RowWriter::new(directory.clone());
        let entry = |offset| Entry { segment: 7, offset, record_bytes: 100 };
        let first = FILE_BLOCKS - 2;
        writer.write(first, &[entry(1), entry(2), entry(3), entry(4)]).unwrap();
        let files = OpenFiles::new(directory.clone());
        let find = |number| rows::find::<Entry, _>(&files, number).unwrap();
        for number in 0..4 {
            assert_eq!(find(first + number), Some(entry(1 + number as u32)));
        }
        for number in [0, first - 1, first + 4, 5 * FILE_BLOCKS] {
            assert_eq!(find(number), None, "{number}");
        }
        let place = rows::place::<Entry>(first) as usize;
        directory.damage(&rows::name::<Entry>(first), |bytes| bytes[place] ^= 1).unwrap();
        assert_eq!(find(first), None);
    }
}
