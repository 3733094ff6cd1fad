//! Where blocks are, by number: 16 bytes for each.

use std::io;

use wal::files::{Directory, File};

use super::segments::OpenFiles;

const SUFFIX: &str = ".index";
const DIGITS: usize = 20;
/// Block numbers for which there is one file.
const FILE_BLOCKS: u64 = 1 << 16;
const ENTRY_BYTES: usize = 16;

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

    fn encode(self, number: u64) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (place, part) in [self.segment, self.offset, self.record_bytes].into_iter().enumerate() {
            bytes[4 * place..4 * place + 4].copy_from_slice(&part.to_le_bytes());
        }
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &bytes[..12]);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(number: u64, bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let part = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let entry = Self { segment: part(0), offset: part(4), record_bytes: part(8) };
        (entry.encode(number) == *bytes).then_some(entry)
    }
}

/// The name of the file that has a block's entry.
pub(super) fn name(number: u64) -> String {
    format!("{:0DIGITS$}{SUFFIX}", number / FILE_BLOCKS)
}

/// Which index a file is, by its name.
fn index_of(file: &str) -> Option<u64> {
    file.strip_suffix(SUFFIX).filter(|digits| digits.len() == DIGITS)?.parse().ok()
}

/// Whether a file is an index, by its name.
pub(super) fn is_index(file: &str) -> bool {
    index_of(file).is_some()
}

/// Whether a file is an index of blocks before this one alone.
pub(super) fn is_before(file: &str, number: u64) -> bool {
    index_of(file).is_some_and(|of| of < number / FILE_BLOCKS)
}

fn place(number: u64) -> u64 {
    number % FILE_BLOCKS * ENTRY_BYTES as u64
}

/// The entry of a block; `None`: there is none, or it is damaged.
pub(super) fn find<D: Directory>(files: &OpenFiles<D>, number: u64) -> io::Result<Option<Entry>> {
    let file = match files.file(&name(number)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; ENTRY_BYTES];
    match file.read_at(&mut bytes, place(number)) {
        Ok(()) => Ok(Entry::decode(number, &bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The valid entries of blocks from this one on, in order. They are written behind the sync of their blocks: each tells that its block was
/// safe.
pub(super) fn entries<D: Directory>(directory: &D, first: u64) -> io::Result<Vec<(u64, Entry)>> {
    let mut entries = Vec::new();
    let mut begin = first - first % FILE_BLOCKS;
    loop {
        let bytes = match directory.open(&name(begin)) {
            Ok(file) => file.read()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(entries),
            Err(error) => return Err(error),
        };
        let here = (begin..).zip(bytes.as_chunks::<ENTRY_BYTES>().0.iter().take(FILE_BLOCKS as usize));
        let here = here.filter_map(|(number, bytes)| Some((number, Entry::decode(number, bytes)?)));
        entries.extend(here.skip_while(|(number, _)| *number < first));
        let Some(next) = begin.checked_add(FILE_BLOCKS) else { return Ok(entries) };
        begin = next;
    }
}

/// All of them, from the first file on.
pub(super) fn all<D: Directory>(directory: &D) -> io::Result<Vec<(u64, Entry)>> {
    let first = directory.names()?.iter().filter_map(|name| index_of(name)).min();
    first.map_or(Ok(Vec::new()), |first| entries(directory, first.saturating_mul(FILE_BLOCKS)))
}

/// Writes entries.
pub(super) struct IndexWriter<D: Directory> {
    directory: D,
    /// The file that was written to last, and whether that is safe.
    file: Option<(String, D::File)>,
    is_dirty: bool,
}

impl<D: Directory> IndexWriter<D> {
    pub(super) fn new(directory: D) -> Self {
        Self { directory, file: None, is_dirty: false }
    }

    /// Writes the entries of consecutive blocks, the first of which has this number.
    pub(super) fn write(&mut self, first: u64, entries: &[Entry]) -> io::Result<()> {
        let (mut number, mut entries) = (first, entries);
        while !entries.is_empty() {
            let room = (FILE_BLOCKS - number % FILE_BLOCKS) as usize;
            let (here, later) = entries.split_at(room.min(entries.len()));
            let bytes: Vec<u8> = (number..).zip(here).flat_map(|(number, entry)| entry.encode(number)).collect();
            self.file_of(number)?.write_at(&bytes, place(number))?;
            self.is_dirty = true;
            number += here.len() as u64;
            entries = later;
        }
        Ok(())
    }

    fn file_of(&mut self, number: u64) -> io::Result<&D::File> {
        let name = name(number);
        if self.file.as_ref().is_none_or(|(open, _)| *open != name) {
            self.sync()?;
            let file = match self.directory.open(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.directory.create_zeroed(&name, 0)?,
                file => file?,
            };
            self.file = Some((name, file));
        }
        self.file.as_ref().map(|(_, file)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes all entries safe; the names of their files are safe after the next sync of the directory.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let (true, Some((_, file))) = (self.is_dirty, &self.file) {
            file.sync_data()?;
        }
        self.is_dirty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wal::files::SimulatedDirectory;

    #[test]
    fn entries_are_found_across_files_and_no_other_is() {
        let directory = SimulatedDirectory::default();
        let mut writer = IndexWriter::new(directory.clone());
        let entry = |offset| Entry { segment: 7, offset, record_bytes: 100 };
        let first = FILE_BLOCKS - 2;
        writer.write(first, &[entry(1), entry(2), entry(3), entry(4)]).unwrap();
        let files = OpenFiles::new(directory.clone());
        for number in 0..4 {
            assert_eq!(find(&files, first + number).unwrap(), Some(entry(1 + number as u32)));
        }
        for number in [0, first - 1, first + 4, 5 * FILE_BLOCKS] {
            assert_eq!(find(&files, number).unwrap(), None, "{number}");
        }
        directory.damage(&name(first), |bytes| bytes[place(first) as usize] ^= 1).unwrap();
        assert_eq!(find(&files, first).unwrap(), None);
    }
}
