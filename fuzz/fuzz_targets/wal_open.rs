//! A segment's file of any content: opening the log gives records or a refusal, the same when it is opened again, and what was
//! opened takes another entry and has it the next time.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wal::files::{Directory as _, SimulatedDirectory};
use wal::{Kind, Log, Options, Record};

const OPTIONS: Options = Options { segment_bytes: 4096, first_segment_bytes: 1024, sync: true };
const SEGMENT: &str = "00000000000000000001.wal";

/// Every record that is found, if the log can be opened.
fn open(directory: &SimulatedDirectory) -> Option<(Log<SimulatedDirectory>, Vec<Record>)> {
    let mut found = Vec::new();
    let log = Log::open(directory.clone(), OPTIONS, |Record { kind, group, term, index, payload }| {
        found.push(Record { kind, group, term, index, payload: Bytes::copy_from_slice(payload) });
    });
    Some((log.ok()?, found))
}

/// The fuzzer cannot make a checksum: what it changes is a log that is right. The first two bytes say how many entries that has and
/// how long they are; after them come triples, an offset and what is put there.
fn directory(data: &[u8]) -> SimulatedDirectory {
    let directory = SimulatedDirectory::default();
    let [entries, length, changes @ ..] = data else {
        directory.create_zeroed(SEGMENT, 64).expect("a name");
        return directory;
    };
    if let Ok(mut log) = Log::open(directory.clone(), OPTIONS, |_| ()) {
        for index in 0..u64::from(entries % 24) {
            let payload = Bytes::from(vec![index as u8; usize::from(*length)]);
            log.commit(&[Record { kind: Kind::Entry, group: 0, term: 1, index: index + 1, payload }]).expect("a disk");
        }
    }
    let mut names = directory.names().expect("names");
    names.sort();
    for change in changes.chunks_exact(3) {
        let Some(name) = names.get(usize::from(change[0] >> 5) % names.len().max(1)) else { break };
        let offset = usize::from(change[0] & 31) << 8 | usize::from(change[1]);
        directory
            .damage(name, |bytes| {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte = change[2]
                }
            })
            .expect("a name");
    }
    directory
}

fuzz_target!(|data: &[u8]| {
    let directory = directory(data);
    let Some((_, found)) = open(&directory) else { return };
    let (mut log, again) = open(&directory).expect("what could be opened can be opened again");
    assert_eq!(found, again);
    let entry = Record { kind: Kind::Entry, group: 9, term: 9, index: 9, payload: Bytes::from_static(b"after") };
    log.commit(std::slice::from_ref(&entry)).expect("a log that is open takes an entry");
    let (_, after) = open(&directory).expect("what was appended to can be opened");
    // A new segment repeats what is newest.
    let entries =
        |records: &[Record]| records.iter().filter(|record| record.kind == Kind::Entry).cloned().collect::<Vec<_>>();
    assert_eq!(entries(&after), [entries(&found), vec![entry]].concat());
});
