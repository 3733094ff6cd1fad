//! Heads of segments. Each stands twice: at the segment's beginning, and in a small file of its own, which is safe before the segment
//! is begun. Directories of earlier versions have no such files but for the segment that is written to.

use std::io;

use wal::files::{Directory, File};

use super::index::Entry;
use super::rows;
use super::scan::{self, SegmentHead};
use super::segments::OpenFiles;

const SUFFIX: &str = ".head";
/// What is set aside of a segment, and a number behind it.
const ASIDE: &str = ".blocks.torn-";
/// A head is not longer: it has a chain of at most 64 hashes.
const HEAD_BYTES_MAX: usize = 64 << 10;

fn name(segment: u64) -> String {
    scan::beside(segment, SUFFIX)
}

/// The segment that a file stands beside, by its name: a copy of its head, or what was set aside of it.
pub(super) fn beside(name: &str) -> Option<u64> {
    let (digits, rest) = name.split_at_checked(scan::DIGITS)?;
    (rest == SUFFIX || rest.starts_with(ASIDE)).then(|| digits.parse().ok()).flatten()
}

/// Whether a file is a copy of a head, by its name.
pub(super) fn is_head(name: &str) -> bool {
    name.ends_with(SUFFIX) && beside(name).is_some()
}

/// Writes the copy of a segment's head; its name is safe after the next sync of the directory.
pub(super) fn write<D: Directory>(directory: &D, segment: u64, head: &[u8]) -> io::Result<()> {
    let file = directory.create_zeroed(&name(segment), 0)?;
    file.write_at(head, 0)?;
    file.sync_data()
}

/// Removes the copy of a segment that is removed.
pub(super) fn remove<D: Directory>(directory: &D, segment: u64) -> io::Result<()> {
    missing_is_none(directory.remove(&name(segment))).map(drop)
}

/// The copy of a segment's head; `None`: there is none that is valid.
pub(super) fn copy<D: Directory>(directory: &D, segment: u64) -> io::Result<Option<SegmentHead>> {
    first_of(directory, &name(segment), segment)
}

/// The head of a segment, at its beginning or its copy.
pub(super) fn find<D: Directory>(directory: &D, segment: u64) -> io::Result<Option<SegmentHead>> {
    match first_of(directory, &scan::name(segment), segment)? {
        Some(head) => Ok(Some(head)),
        None => copy(directory, segment),
    }
}

fn first_of<D: Directory>(directory: &D, name: &str, segment: u64) -> io::Result<Option<SegmentHead>> {
    let Some(file) = missing_is_none(directory.open(name))? else { return Ok(None) };
    let bytes = file.read_first(HEAD_BYTES_MAX)?;
    Ok(SegmentHead::decode(segment, &bytes).map(|(head, _)| head))
}

/// Number of the first block of a segment. Without a head it is that of its first record, or of one before which the index knows; `None`:
/// there is nothing to tell it.
pub(super) fn first_block<D: Directory>(files: &OpenFiles<D>, segment: u64, salt: u64) -> io::Result<Option<u64>> {
    let directory = files.directory();
    if let Some(head) = find(directory, segment)? {
        return Ok(Some(head.chain.next()));
    }
    let Some(file) = missing_is_none(directory.open(&scan::name(segment)))? else { return Ok(None) };
    let Some(mut first) = scan::first_block(segment, salt, &file.read()?) else { return Ok(None) };
    while let Some(before) = first.checked_sub(1)
        && rows::find::<Entry, _>(files, before)?.is_some_and(|entry| u64::from(entry.segment) == segment)
    {
        first = before;
    }
    Ok(Some(first))
}

/// Sets bytes of a segment aside that are no longer part of the store: nothing that is whole is thrown away. The name of the file.
pub(super) fn set_aside<D: Directory>(directory: &D, segment: u64, bytes: &[u8]) -> io::Result<String> {
    for number in 1_u64.. {
        let name = scan::beside(segment, &format!("{ASIDE}{number}"));
        match missing_is_none(directory.open(&name))? {
            // As an opening has left it that was cut off itself.
            Some(file) if file.read()? == bytes => return Ok(name),
            Some(_) => {}
            None => {
                let file = directory.create_zeroed(&name, 0)?;
                file.write_at(bytes, 0)?;
                file.sync_data()?;
                directory.sync()?;
                return Ok(name);
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
