//! Files that have one row of a fixed length for each block number. A row has a checksum that knows the number.

use std::io;
use std::marker::PhantomData;

use wal::files::{Directory, File};

use super::segments::OpenFiles;

const DIGITS: usize = 20;
/// Block numbers for which there is one file.
pub(super) const FILE_BLOCKS: u64 = 1 << 16;

/// What such files hold.
pub(super) trait Row: Copy {
    /// How their names end.
    const SUFFIX: &'static str;
    /// Length of a row.
    const BYTES: usize;

    /// Appends the row of this block.
    fn encode(self, number: u64, out: &mut Vec<u8>);

    /// The row of this block; `None`: it is damaged, or was never written.
    fn decode(number: u64, bytes: &[u8]) -> Option<Self>;
}

/// The name of the file that has a block's row.
pub(super) fn name<R: Row>(number: u64) -> String {
    format!("{:0DIGITS$}{}", number / FILE_BLOCKS, R::SUFFIX)
}

/// Which of these files it is, by its name.
fn place_of_file<R: Row>(file: &str) -> Option<u64> {
    file.strip_suffix(R::SUFFIX).filter(|digits| digits.len() == DIGITS)?.parse().ok()
}

/// Whether a file is one of these, by its name.
pub(super) fn has<R: Row>(file: &str) -> bool {
    place_of_file::<R>(file).is_some()
}

/// Whether a file is one of these, of blocks before this one alone.
pub(super) fn is_before<R: Row>(file: &str, number: u64) -> bool {
    place_of_file::<R>(file).is_some_and(|of| of < number / FILE_BLOCKS)
}

/// Where a block's row stands in its file.
pub(super) fn place<R: Row>(number: u64) -> u64 {
    number % FILE_BLOCKS * R::BYTES as u64
}

/// The row of a block; `None`: there is none, or it is damaged.
pub(super) fn find<R: Row, D: Directory>(files: &OpenFiles<D>, number: u64) -> io::Result<Option<R>> {
    let file = match files.file(&name::<R>(number)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; R::BYTES];
    match file.read_at(&mut bytes, place::<R>(number)) {
        Ok(()) => Ok(R::decode(number, &bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The valid rows of blocks from this one on, in order. They are written behind the sync of their blocks: each tells that its block was
/// safe.
pub(super) fn from<R: Row, D: Directory>(directory: &D, first: u64) -> io::Result<Vec<(u64, R)>> {
    let mut rows = Vec::new();
    let mut begin = first - first % FILE_BLOCKS;
    loop {
        let bytes = match directory.open(&name::<R>(begin)) {
            Ok(file) => file.read()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(rows),
            Err(error) => return Err(error),
        };
        let here = (begin..).zip(bytes.chunks_exact(R::BYTES).take(FILE_BLOCKS as usize));
        let here = here.filter_map(|(number, bytes)| Some((number, R::decode(number, bytes)?)));
        rows.extend(here.skip_while(|(number, _)| *number < first));
        let Some(next) = begin.checked_add(FILE_BLOCKS) else { return Ok(rows) };
        begin = next;
    }
}

/// Behind the last valid row of these; 0: there is none.
pub(super) fn end<R: Row, D: Directory>(directory: &D, first: u64) -> io::Result<u64> {
    Ok(from::<R, D>(directory, first)?.last().map_or(0, |(last, _)| last + 1))
}

/// All of them, from the first file on.
pub(super) fn all<R: Row, D: Directory>(directory: &D) -> io::Result<Vec<(u64, R)>> {
    let first = directory.names()?.iter().filter_map(|name| place_of_file::<R>(name)).min();
    first.map_or(Ok(Vec::new()), |first| from(directory, first.saturating_mul(FILE_BLOCKS)))
}

/// Writes rows.
pub(super) struct RowWriter<D: Directory, R> {
    directory: D,
    /// The file that was written to last, and whether that is safe.
    file: Option<(String, D::File)>,
    is_dirty: bool,
    rows: PhantomData<R>,
}

impl<D: Directory, R: Row> RowWriter<D, R> {
    pub(super) fn new(directory: D) -> Self {
        Self { directory, file: None, is_dirty: false, rows: PhantomData }
    }

    /// Writes the rows of consecutive blocks, the first of which has this number.
    pub(super) fn write(&mut self, first: u64, rows: &[R]) -> io::Result<()> {
        let (mut number, mut rows) = (first, rows);
        while !rows.is_empty() {
            let room = (FILE_BLOCKS - number % FILE_BLOCKS) as usize;
            let (here, later) = rows.split_at(room.min(rows.len()));
            let mut bytes = Vec::with_capacity(here.len() * R::BYTES);
            (number..).zip(here).for_each(|(number, row)| row.encode(number, &mut bytes));
            self.file_of(number)?.write_at(&bytes, place::<R>(number))?;
            self.is_dirty = true;
            number += here.len() as u64;
            rows = later;
        }
        Ok(())
    }

    /// Writes rows of any blocks, each run of consecutive numbers at once: a segment may have hundreds of thousands.
    pub(super) fn write_all(&mut self, rows: &[(u64, R)]) -> io::Result<()> {
        for run in rows.chunk_by(|(one, _), (next, _)| one.checked_add(1) == Some(*next)) {
            let Some((first, _)) = run.first() else { continue };
            let rows: Vec<R> = run.iter().map(|(_, row)| *row).collect();
            self.write(*first, &rows)?;
        }
        Ok(())
    }

    fn file_of(&mut self, number: u64) -> io::Result<&D::File> {
        let name = name::<R>(number);
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

    /// Makes all rows safe; the names of their files are safe after the next sync of the directory.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let (true, Some((_, file))) = (self.is_dirty, &self.file) {
            file.sync_data()?;
        }
        self.is_dirty = false;
        Ok(())
    }
}
