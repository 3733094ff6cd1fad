//! etcd's write-ahead log, as far as to tell whether its database has everything that is in it. From etcd's
//! `server/storage/wal/{decoder,encoder,repair}.go`.
//!
//! Promises: a command that etcd would find in its log at a start is seen here, or the log is refused. How much of it was committed is not
//! asked: the log says so only with the entry that comes next, and a member that is alone commits all that it has.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | little endian: length of the record in 56 bits; in the highest byte, if its first bit is set, the padding in 3 bits |
//! | 8 | | `walpb.Record`, and the padding |
//!
//! A record has the CRC-32C of all data from the first record of its file on, continued from the file before. Files are zeroed ahead: a
//! length of 0 is the end of one. What was torn when the machine stopped is the end of the last one, and was not acknowledged.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message;

const ENTRY: i64 = 2;
const CHECKSUM: i64 = 4;
const HEAD_BYTES: usize = 8;
/// What a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// Why a log is not read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It is not there, or cannot be read.
    #[error(
        "{0}: {1}; etcd's log is looked for in member/wal of its data directory: if it is elsewhere (--wal-dir), move that folder there, or \
         import a snapshot"
    )]
    Read(PathBuf, io::Error),
    /// A record is not what was written.
    #[error(
        "{0}: the record at byte {1} is damaged, and etcd would not start with it; import a snapshot of another member, or \
         member/snap/db itself, without what only the log had"
    )]
    Damaged(PathBuf, usize),
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(uint32, tag = "2")]
    crc: u32,
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

/// `raftpb.Entry`.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    /// 0: a command; others change the membership.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

/// The index of the newest command that is later than `after`.
pub fn command_after(directory: &Path, after: u64) -> Result<Option<u64>, LogError> {
    let read = |error| LogError::Read(directory.to_owned(), error);
    let files = fs::read_dir(directory).map_err(read)?.map(|file| file.map(|file| file.path()));
    let mut files = files.collect::<io::Result<Vec<_>>>().map_err(read)?;
    // Their names begin with their numbers.
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    let mut crc = 0;
    let mut is_command: BTreeMap<u64, bool> = BTreeMap::new();
    for (number, file) in (1..).zip(&files) {
        let bytes = fs::read(file).map_err(|error| LogError::Read(file.clone(), error))?;
        let mut offset = 0;
        while let Some(length) = length_at(&bytes, offset) {
            let damaged = || LogError::Damaged(file.clone(), offset);
            let record = record_at(&bytes, offset, length, &mut crc);
            if record.is_none() && number == files.len() && is_torn(&bytes, offset, length) {
                break;
            }
            let record = record.ok_or_else(damaged)?;
            if record.kind == ENTRY {
                let entry = Entry::decode(&record.data[..]).map_err(|_| damaged())?;
                // What another leader wrote takes the place of what was there.
                is_command.split_off(&entry.index);
                if entry.index > after {
                    is_command.insert(entry.index, entry.kind == 0 && !entry.data.is_empty());
                }
            }
            offset += HEAD_BYTES + length.record + length.padding;
        }
    }
    Ok(is_command.iter().rev().find(|(_, is_command)| **is_command).map(|(index, _)| *index))
}

#[derive(Clone, Copy)]
struct Length {
    record: usize,
    padding: usize,
}

/// Of the record that begins here; `None` behind the last one of a file.
fn length_at(bytes: &[u8], offset: usize) -> Option<Length> {
    let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
    // Less than a head is one that was torn.
    let Some((head, _)) = rest.split_first_chunk::<HEAD_BYTES>() else {
        return Some(Length { record: usize::MAX, padding: 0 });
    };
    let head = u64::from_le_bytes(*head);
    let padding = if head >> 63 == 1 { (head >> 56) & 7 } else { 0 };
    let record = usize::try_from(head & (u64::MAX >> 8)).unwrap_or(usize::MAX);
    (head != 0).then_some(Length { record, padding: padding as usize })
}

/// What stands behind the head at `offset`, padding included, if the file has that much.
fn behind_head(bytes: &[u8], offset: usize, length: Length) -> Option<&[u8]> {
    let begin = offset.checked_add(HEAD_BYTES)?;
    bytes.get(begin..begin.checked_add(length.record)?.checked_add(length.padding)?)
}

/// A record that is as it was written. `crc` is that of everything before it, and then with it.
fn record_at(bytes: &[u8], offset: usize, length: Length, crc: &mut u32) -> Option<Record> {
    let record = Record::decode(&behind_head(bytes, offset, length)?[..length.record]).ok()?;
    if record.kind == CHECKSUM {
        // The first file may be gone, and with it where this began.
        let follows = *crc == 0 || *crc == record.crc;
        *crc = record.crc;
        return follows.then_some(record);
    }
    *crc = crc32c::crc32c_append(*crc, &record.data);
    (*crc == record.crc).then_some(record)
}

/// Whether a record was being written when the machine stopped: etcd's `isTornEntry`. It goes beyond the file, or a sector of it is empty.
fn is_torn(bytes: &[u8], offset: usize, length: Length) -> bool {
    let Some(record) = behind_head(bytes, offset, length) else { return true };
    let first = SECTOR_BYTES - (offset + HEAD_BYTES) % SECTOR_BYTES;
    let (first, rest) = record.split_at(first.min(record.len()));
    std::iter::once(first).chain(rest.chunks(SECTOR_BYTES)).any(|sector| sector.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as etcd writes them.
    struct Written {
        directory: tempfile::TempDir,
        crc: u32,
    }

    impl Written {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap(), crc: 0 }
        }

        fn record(&mut self, kind: i64, data: &[u8]) -> Vec<u8> {
            if kind != CHECKSUM {
                self.crc = crc32c::crc32c_append(self.crc, data);
            }
            let mut bytes = Record { kind, crc: self.crc, data: data.into() }.encode_to_vec();
            let padding = (8 - bytes.len() % 8) % 8;
            let flags = if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 };
            let head = (bytes.len() as u64 | flags).to_le_bytes();
            bytes.resize(bytes.len() + padding, 0);
            [&head[..], &bytes].concat()
        }

        fn begin(&mut self) -> Vec<u8> {
            self.record(CHECKSUM, b"")
        }

        fn entry(&mut self, kind: i32, index: u64, data: &str) -> Vec<u8> {
            self.record(ENTRY, &Entry { kind, index, data: data.into() }.encode_to_vec())
        }

        fn file(&self, name: &str, bytes: &[u8]) {
            fs::write(self.directory.path().join(name), bytes).unwrap();
        }

        fn command_after(&self, after: u64) -> Result<Option<u64>, LogError> {
            command_after(self.directory.path(), after)
        }
    }

    #[test]
    fn the_newest_command_counts_whatever_was_committed_and_what_was_replaced_does_not() {
        const COMMIT_4: &[u8] = &[0x18, 4];
        let mut log = Written::new();
        let first = [log.begin(), log.entry(0, 4, "a"), log.entry(0, 5, "lost"), log.entry(0, 6, "lost")].concat();
        let first = [first, log.record(3, COMMIT_4), vec![0; 64]].concat();
        let second = [log.begin(), log.entry(0, 5, "b"), log.entry(0, 6, ""), log.entry(1, 7, "change"), vec![9; 5]];
        log.file("0-0.wal", &first);
        log.file("1-5.wal", &second.concat());
        log.file("2.tmp", b"being made");
        for (after, expected) in [(0, Some(5)), (4, Some(5)), (5, None), (9, None)] {
            assert_eq!(log.command_after(after).unwrap(), expected, "after {after}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_bytes_there_are_they_are_read_or_refused(tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            let mut log = Written::new();
            let bytes = [log.begin(), log.entry(0, 4, "a"), tail].concat();
            log.file("0-0.wal", &bytes);
            proptest::prop_assert!(matches!(log.command_after(0), Ok(Some(4)) | Err(LogError::Damaged(..))));
        }
    }

    /// A byte that has changed hid all entries behind it, and the database was taken for whole.
    #[test]
    fn a_damaged_record_is_refused_and_a_torn_one_is_the_end() {
        let mut log = Written::new();
        let whole = [log.begin(), log.entry(0, 4, "a"), log.entry(0, 5, &"b".repeat(2 * SECTOR_BYTES))];
        let at = whole[0].len() + whole[1].len();
        let (whole, rest) = (whole.concat(), vec![0; 64]);
        for cut in [at + 3, at + HEAD_BYTES + 20, whole.len() - 1] {
            log.file("0-0.wal", &whole[..cut]);
            assert_eq!(log.command_after(0).unwrap(), Some(4), "cut at {cut}");
        }
        let mut torn = [whole.clone(), rest.clone()].concat();
        torn[SECTOR_BYTES..2 * SECTOR_BYTES].fill(0);
        log.file("0-0.wal", &torn);
        assert_eq!(log.command_after(0).unwrap(), Some(4));
        for damaged in [at - 3, at + 30] {
            let mut bytes = [whole.clone(), rest.clone()].concat();
            bytes[damaged] ^= 1;
            log.file("0-0.wal", &bytes);
            assert!(matches!(log.command_after(0), Err(LogError::Damaged(..))), "byte {damaged}");
        }
        // Only the last file can end in what was torn.
        log.file("0-0.wal", &torn);
        let next = log.begin();
        log.file("1-6.wal", &next);
        let refused = log.command_after(0).unwrap_err();
        assert!(matches!(&refused, LogError::Damaged(_, place) if *place == at), "{refused}");
        let missing = command_after(&log.directory.path().join("none"), 0).unwrap_err().to_string();
        assert!(missing.contains("none: No such file") && missing.contains("--wal-dir"), "{missing}");
    }
}
