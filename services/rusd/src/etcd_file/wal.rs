//! etcd's write-ahead log, as far as to tell whether its database has everything that was committed. From etcd's
//! `server/storage/wal/{decoder,encoder}.go`.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | little endian: length of the record in 56 bits; in the highest byte, if its first bit is set, the padding in 3 bits |
//! | 8 | | `walpb.Record`, and the padding |
//!
//! Files are zeroed ahead: a length of 0 is the end of one, and so is what was torn.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use prost::Message;

const ENTRY: i64 = 2;
const STATE: i64 = 3;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(int64, tag = "1")]
    kind: i64,
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

/// `raftpb.HardState`.
#[derive(Clone, PartialEq, Message)]
struct HardState {
    #[prost(uint64, tag = "3")]
    commit: u64,
}

/// The index of the newest command that was committed and is later than `after`.
pub fn committed_after(directory: &Path, after: u64) -> io::Result<Option<u64>> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(directory)? {
        files.push(file?.path());
    }
    // Their names begin with their numbers.
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    let mut commit = 0;
    let mut is_command: BTreeMap<u64, bool> = BTreeMap::new();
    for file in files {
        let bytes = std::fs::read(file)?;
        let mut rest = &bytes[..];
        while let Some((record, next)) = split(rest) {
            rest = next;
            let data = &record.data[..];
            match record.kind {
                ENTRY => {
                    let Ok(entry) = Entry::decode(data) else { break };
                    // What another leader wrote takes the place of what was there.
                    is_command.split_off(&entry.index);
                    if entry.index > after {
                        is_command.insert(entry.index, entry.kind == 0 && !entry.data.is_empty());
                    }
                }
                STATE => commit = HardState::decode(data).map_or(commit, |state| state.commit),
                _ => {}
            }
        }
    }
    Ok(is_command.range(..=commit).rev().find(|(_, is_command)| **is_command).map(|(index, _)| *index))
}

fn split(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let head = u64::from_le_bytes(*head);
    let length = usize::try_from(head & (u64::MAX >> 8)).ok().filter(|length| *length > 0)?;
    let padding = if head >> 63 == 1 { (head >> 56) & 7 } else { 0 };
    let (record, rest) = rest.split_at_checked(length.checked_add(padding as usize)?)?;
    Some((Record::decode(&record[..length]).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: i64, message: &impl Message) -> Vec<u8> {
        let mut bytes = Record { kind, data: message.encode_to_vec() }.encode_to_vec();
        let padding = (8 - bytes.len() % 8) % 8;
        let flags = if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 };
        let head = (bytes.len() as u64 | flags).to_le_bytes();
        bytes.resize(bytes.len() + padding, 0);
        [&head[..], &bytes].concat()
    }

    fn entry(index: u64, data: &str) -> Vec<u8> {
        record(ENTRY, &Entry { kind: 0, index, data: data.into() })
    }

    #[test]
    fn only_commands_that_were_committed_count() {
        let directory = tempfile::tempdir().unwrap();
        let state = |commit| record(STATE, &HardState { commit });
        let change = record(ENTRY, &Entry { kind: 1, index: 7, data: b"change".to_vec() });
        let first = [entry(4, "a"), entry(5, "lost"), entry(6, "lost"), state(4), vec![0; 64]].concat();
        let second = [entry(5, "b"), entry(6, ""), change, state(7), entry(8, "not committed"), vec![9; 5]].concat();
        std::fs::write(directory.path().join("0-0.wal"), first).unwrap();
        std::fs::write(directory.path().join("1-5.wal"), second).unwrap();
        std::fs::write(directory.path().join("2.tmp"), "being made").unwrap();
        for (after, expected) in [(0, Some(5)), (4, Some(5)), (5, None), (9, None)] {
            assert_eq!(committed_after(directory.path(), after).unwrap(), expected, "after {after}");
        }
    }
}
