//! Values on disk above a memory budget. Files of values are scratch: the log and the snapshots are the truth. They have no names, are
//! never synced, and are gone with the process.
//!
//! A file is a row of entries:
//!
//! | offset | bytes | field | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | checksum | CRC-32C of the head behind it and of the key |
//! | 4 | 4 | length of the value | |
//! | 8 | 4 | length of the key | |
//! | 12 | 4 | sub revision | |
//! | 16 | 8 | revision | |
//! | 24 | | key, value | |
//!
//! Numbers are little endian. Who reads a value knows its [`Place`] and its checksum from its record; the heads are for [`Spill`],
//! which writes anew what is left of a file when most of its records are gone. A file goes when the last record does that is in it:
//! each has a reference. So all files together have at most about twice the values that are alive.
//!
//! What cannot be written stays in memory. What cannot be read would be an answer that is missing: the function that is given is
//! called, which ends the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::keyspace::Keyspace;
use super::record::{Record, Revision};

mod ahead;
#[cfg(test)]
mod tests;

pub use ahead::Ahead;

const HEAD_BYTES: usize = 24;
/// Most of what is written at once, but for the last record of it.
const WRITE_BYTES: usize = 1 << 20;
/// A file takes at least this part of what all have: they are open, and shall not be many.
const FILE_PART: u64 = 16;
/// Offsets have four bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// What is freed before the memory over the budget counts again, in parts of the budget: records that lie side by side are cheaper
/// to replace together.
const SLACK_PART: u64 = 16;

/// A value that was in a file is not there any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "a value of {len} bytes at byte {offset} of a scratch file in --data-dir cannot be read: {why}; check the disk and start rusd \
     again: nothing is lost, all values are in the log and its snapshots too"
)]
pub struct SpillError {
    offset: u32,
    len: u32,
    why: String,
}

/// Ends the process.
pub type OnFailure = fn(SpillError) -> !;

/// Where a value is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    offset: u32,
    len: u32,
    /// CRC-32C of the value.
    checksum: u32,
}

impl Place {
    /// What [`Place::to_bytes`] takes.
    pub const BYTES: usize = 12;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// From bytes.
    pub fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self { offset: number(bytes, 0), len: number(bytes, 4), checksum: number(bytes, 8) }
    }

    /// Bytes of the value.
    pub fn value_bytes(self) -> usize {
        self.len as usize
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A file of values.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    on_failure: OnFailure,
}

impl SpillFile {
    /// A value. Ends the process if it cannot be read as it was written.
    pub fn read(&self, place: Place) -> Vec<u8> {
        let mut value = vec![0; place.value_bytes()];
        let read = self.file.read_exact_at(&mut value, place.offset.into()).map_err(|error| error.to_string());
        let checked = read.and_then(|()| match crc32c::crc32c(&value) {
            checksum if checksum == place.checksum => Ok(value),
            _ => Err("it is not what was written".to_owned()),
        });
        checked.unwrap_or_else(|why| (self.on_failure)(SpillError { offset: place.offset, len: place.len, why }))
    }

    /// Which record the entry at this offset is of, and where the next one begins.
    fn entry(&self, offset: u32) -> (Vec<u8>, Revision, u32) {
        self.read_entry(offset).unwrap_or_else(|error| {
            let (len, why) = (HEAD_BYTES as u32, error.to_string());
            (self.on_failure)(SpillError { offset, len, why })
        })
    }

    fn read_entry(&self, offset: u32) -> io::Result<(Vec<u8>, Revision, u32)> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact_at(&mut head, offset.into())?;
        let (value_len, key_len) = (number(&head, 4), number(&head, 8));
        let behind = (HEAD_BYTES as u32).checked_add(key_len).and_then(|len| len.checked_add(value_len));
        let next = behind.and_then(|len| offset.checked_add(len));
        let is_there = next.is_some_and(|next| self.file.metadata().is_ok_and(|file| u64::from(next) <= file.len()));
        let mut key = vec![0; if is_there { key_len as usize } else { 0 }];
        self.file.read_exact_at(&mut key, u64::from(offset) + HEAD_BYTES as u64)?;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), &key);
        let (Some(next), true) = (next, checksum == number(&head, 0)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not what was written"));
        };
        let main = head[16..].first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        Ok((key, Revision { main, sub: number(&head, 12) }, next))
    }
}

/// What can be seen of it from elsewhere.
#[derive(Debug, Default)]
pub struct Spilled {
    file_bytes: AtomicU64,
    is_failing: AtomicBool,
}

impl Spilled {
    /// Size of all files.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// Whether what should be written could not be.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }
}

/// How much goes where.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values in memory, about; those of fewer than [`super::record::COLD_VALUE_BYTES_MIN`] bytes do not count.
    pub memory_bytes: u64,
    /// A file takes no more when it has so many bytes, unless there are many files; at most 1 GiB.
    pub file_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, file_bytes: 16 << 20 }
    }
}

/// A file, and what was written to it.
#[derive(Debug)]
struct Written {
    file: Arc<SpillFile>,
    bytes: u32,
    records: usize,
}

impl Written {
    /// How many of its records are left, somewhere.
    fn alive(&self) -> usize {
        Arc::strong_count(&self.file) - 1
    }
}

/// Moves the oldest values to files, in steps, on the thread that writes.
pub struct Spill {
    limits: Limits,
    create: Box<dyn FnMut() -> io::Result<File> + Send>,
    on_failure: OnFailure,
    /// The one that takes more.
    filling: Option<Written>,
    full: Vec<Written>,
    /// The one that is written anew, and how far that is.
    emptying: Option<(Written, u32)>,
    /// There were too many bytes in memory, and are until there is some slack.
    is_over: bool,
    /// After a failure: not to be tried again below so many bytes in memory.
    retry_from: u64,
    shown: Arc<Spilled>,
    scratch: Vec<u8>,
}

impl Spill {
    /// `create` makes a new file, empty, to be read and written, which nobody else has.
    pub fn new(
        limits: Limits,
        create: impl FnMut() -> io::Result<File> + Send + 'static,
        on_failure: OnFailure,
    ) -> Self {
        Self {
            limits,
            create: Box::new(create),
            on_failure,
            filling: None,
            full: Vec::new(),
            emptying: None,
            is_over: false,
            retry_from: 0,
            shown: Arc::default(),
            scratch: Vec::new(),
        }
    }

    /// What others may see.
    pub fn shown(&self) -> Arc<Spilled> {
        Arc::clone(&self.shown)
    }

    /// Does some of what is to be done, for about so many records. Whether that was anything.
    pub fn step(&mut self, space: &mut Keyspace, records_max: usize) -> bool {
        self.full.retain(|written| written.alive() > 0);
        let has_spilled = self.is_over(space.hot_bytes()) && self.spill(space, records_max);
        let has_emptied = self.empty(space, records_max);
        self.show_bytes();
        has_spilled || has_emptied
    }

    /// Counts the bytes of all files, for others too.
    fn show_bytes(&self) -> u64 {
        let files = self.full.iter().chain(&self.filling).chain(self.emptying.as_ref().map(|(written, _)| written));
        let file_bytes = files.map(|written| u64::from(written.bytes)).sum();
        self.shown.file_bytes.store(file_bytes, Ordering::Relaxed);
        file_bytes
    }

    fn is_over(&mut self, hot_bytes: u64) -> bool {
        let max = self.limits.memory_bytes;
        self.is_over = hot_bytes > if self.is_over { max - max / SLACK_PART } else { max };
        self.is_over && hot_bytes >= self.retry_from
    }

    fn spill(&mut self, space: &mut Keyspace, records_max: usize) -> bool {
        let (records, looked_until) = space.oldest_hot(records_max, WRITE_BYTES);
        let cooled = self.cool(&records);
        let Some(cold) = self.noted(space.hot_bytes(), cooled) else { return false };
        replace(space, &records, cold);
        space.looked_for_hot(looked_until) || !records.is_empty()
    }

    /// What came of an attempt to free memory: after a failure the next one waits.
    fn noted<T>(&mut self, hot_bytes: u64, result: io::Result<T>) -> Option<T> {
        match &result {
            Ok(_) => {
                self.retry_from = 0;
                self.shown.is_failing.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                if !self.shown.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "values cannot be moved to the disk of --data-dir: they stay in memory until they can");
                }
                self.retry_from = hot_bytes + (self.limits.memory_bytes / SLACK_PART).max(WRITE_BYTES as u64);
            }
        }
        result.ok()
    }

    /// Writes values to the file that takes more: the same records, cold in that one.
    fn cool(&mut self, records: &[Record]) -> io::Result<Vec<Record>> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let file_bytes = (self.show_bytes() / FILE_PART).max(self.limits.file_bytes.into()).min(FILE_BYTES_MAX);
        if let Some(full) = self.filling.take_if(|written| u64::from(written.bytes) >= file_bytes) {
            self.full.push(full);
        }
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => {
                let file = Arc::new(SpillFile { file: (self.create)()?, on_failure: self.on_failure });
                none.insert(Written { file, bytes: 0, records: 0 })
            }
        };
        let mut bytes = Vec::with_capacity(WRITE_BYTES);
        let places: Vec<Place> = records.iter().map(|record| append(&mut bytes, filling.bytes, record)).collect();
        filling.file.file.write_all_at(&bytes, filling.bytes.into())?;
        filling.bytes += bytes.len() as u32;
        filling.records += records.len();
        let places = records.iter().zip(places);
        Ok(places.map(|(record, place)| record.cooled(&filling.file, place, &mut self.scratch)).collect())
    }

    /// Writes some of a file anew that is mostly dead.
    fn empty(&mut self, space: &mut Keyspace, records_max: usize) -> bool {
        if self.emptying.is_none() {
            let mostly_dead = |written: &Written| 2 * written.alive() < written.records;
            let Some(at) = self.full.iter().position(mostly_dead) else { return false };
            self.emptying = Some((self.full.swap_remove(at), 0));
        }
        let Some((written, begin)) = &mut self.emptying else { return false };
        let (mut offset, mut left, mut bytes) = (*begin, Vec::new(), 0);
        for _ in 0..records_max {
            if offset >= written.bytes || bytes >= WRITE_BYTES {
                break;
            }
            let (key, revision, next) = written.file.entry(offset);
            let record = space.placed(&key, revision);
            if let Some(record) = record.filter(|it| it.file().is_some_and(|file| Arc::ptr_eq(file, &written.file))) {
                left.push(record.clone());
                bytes += (next - offset) as usize;
            }
            offset = next;
        }
        let is_at_end = offset >= written.bytes;
        *begin = offset;
        // What cannot be written stays where it is; what readers still have of the file keeps it until they are done.
        let is_written = self.cool(&left).map(|cold| replace(space, &left, cold)).is_ok();
        drop(left);
        if is_at_end || !is_written {
            self.emptying = None;
        }
        true
    }
}

/// Puts records in the places of those that say the same.
fn replace(space: &mut Keyspace, old: &[Record], new: Vec<Record>) {
    for (old, new) in old.iter().zip(new) {
        space.replace(old, new);
    }
}

/// Appends an entry to what will be written behind `begin`.
fn append(out: &mut Vec<u8>, begin: u32, record: &Record) -> Place {
    let (key, value, Revision { main, sub }) = (record.key(), record.value(), record.revision());
    let mut head = [0; HEAD_BYTES];
    head[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&(key.len() as u32).to_le_bytes());
    head[12..16].copy_from_slice(&sub.to_le_bytes());
    head[16..].copy_from_slice(&main.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), key);
    head[..4].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(key);
    let offset = begin + out.len() as u32;
    out.extend_from_slice(&value);
    Place { offset, len: value.len() as u32, checksum: crc32c::crc32c(&value) }
}
