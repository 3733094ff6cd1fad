//! Whatever happens to the files of a small log: opening it gives exactly a prefix of what was written, or refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is a failure")]

use bytes::Bytes;
use wal::files::{Directory as _, Fault, SimulatedDirectory};
use wal::{Kind, Log, OpenError, Options, Record};

/// Small, so that a few batches fill several segments.
const OPTIONS: Options = Options { segment_bytes: 512, first_segment_bytes: 512, sync: true };

fn entry(index: u64, payload: &[u8]) -> Record {
    Record { kind: Kind::Entry, group: 0, term: 1, index, payload: Bytes::copy_from_slice(payload) }
}

/// Indexes and payloads of all entries.
fn entries(directory: &SimulatedDirectory) -> Result<Vec<(u64, Vec<u8>)>, OpenError> {
    let mut entries = Vec::new();
    Log::open(directory.clone(), OPTIONS, |record| {
        if record.kind == Kind::Entry {
            entries.push((record.index, record.payload.to_vec()));
        }
    })?;
    Ok(entries)
}

/// Three segments; the last one holds batches of one and of three entries.
fn small_log() -> (SimulatedDirectory, Vec<(u64, Vec<u8>)>) {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    let mut written = Vec::new();
    let mut index = 0;
    for count in [1, 2, 3, 1, 2, 4, 1, 3, 1, 3, 1, 3] {
        let batch: Vec<Record> = (0..count)
            .map(|_| {
                index += 1;
                entry(index, &vec![index as u8; 5 * index as usize % 23])
            })
            .collect();
        log.commit(&batch).unwrap();
        written.extend(batch.iter().map(|record| (record.index, record.payload.to_vec())));
    }
    (directory, written)
}

fn segments(directory: &SimulatedDirectory) -> Vec<String> {
    let mut names = directory.names().unwrap();
    names.sort();
    names
}

/// Opens what was damaged: a prefix or a refusal. What was opened must take further entries, and have them the next time.
fn prefix_or_refusal(directory: &SimulatedDirectory, written: &[(u64, Vec<u8>)], what: &str) -> Option<usize> {
    let found = match entries(directory) {
        Ok(found) => found,
        Err(OpenError::Damaged { segment, .. }) => {
            assert!(segment.ends_with(".wal"), "{what}");
            return None;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    assert_eq!(found, written[..found.len()], "{what}: not a prefix");
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    log.commit(&[entry(1_000, b"after")]).unwrap();
    let after = entries(directory).unwrap();
    assert_eq!(after[..found.len()], found, "{what}: changed by going on");
    assert_eq!(after[found.len()..], [(1_000, b"after".to_vec())], "{what}: what was appended after opening");
    Some(found.len())
}

#[test]
fn a_log_is_found_as_it_was_left() {
    let (directory, written) = small_log();
    assert_eq!(segments(&directory).len(), 3);
    assert_eq!(entries(&directory).unwrap(), written);
}

#[test]
fn every_flipped_byte_gives_a_prefix_or_a_refusal() {
    let (directory, written) = small_log();
    let names = segments(&directory);
    let (mut refusals, mut cuts) = (0, 0);
    for name in &names {
        for offset in 0..directory.contents(name).unwrap().len() {
            for flip in [0x01, 0xff] {
                let copy = directory.copy();
                copy.damage(name, |bytes| bytes[offset] ^= flip).unwrap();
                match prefix_or_refusal(&copy, &written, &format!("{name} byte {offset} ^ {flip:#x}")) {
                    None => refusals += 1,
                    Some(count) => {
                        cuts += 1;
                        assert_eq!(name, &names[2], "only the last segment may be cut, not {name} at {offset}");
                        assert!(count >= written.len() - 3, "only the last batch may be cut: {name} at {offset}");
                    }
                }
            }
        }
    }
    assert!(refusals > 1_000 && cuts > 100, "{refusals} refusals, {cuts} cuts");
}

#[test]
fn every_truncation_gives_a_prefix_or_a_refusal() {
    let (directory, written) = small_log();
    let names = segments(&directory);
    for name in &names {
        let length = directory.contents(name).unwrap().len();
        for left in 0..length {
            let copy = directory.copy();
            copy.damage(name, |bytes| bytes.truncate(left)).unwrap();
            let found = prefix_or_refusal(&copy, &written, &format!("{name} cut to {left}"));
            // Zeros at the end of an earlier segment are no loss, and their absence neither.
            let is_whole = found == Some(written.len());
            assert!(name == &names[2] || found.is_none() || is_whole, "{name} cut to {left}");
        }
    }
}

#[test]
fn every_zeroed_sector_gives_a_prefix_or_a_refusal() {
    let (directory, written) = small_log();
    for name in segments(&directory) {
        for start in (0..directory.contents(&name).unwrap().len()).step_by(64) {
            let copy = directory.copy();
            copy.damage(&name, |bytes| bytes[start..].iter_mut().take(64).for_each(|byte| *byte = 0)).unwrap();
            prefix_or_refusal(&copy, &written, &format!("{name} zeroed at {start}"));
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    let (directory, _) = small_log();
    let names = segments(&directory);
    directory.remove(&names[1]).unwrap();
    let error = entries(&directory).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: damaged at byte 0: this segment is missing", names[1])), "{error}");
}

#[test]
fn swapped_segments_are_refused() {
    let (directory, _) = small_log();
    let names = segments(&directory);
    let [first, second] = [0, 1].map(|index: usize| directory.contents(&names[index]).unwrap());
    directory.damage(&names[0], |bytes| *bytes = second).unwrap();
    directory.damage(&names[1], |bytes| *bytes = first).unwrap();
    assert!(matches!(entries(&directory), Err(OpenError::Damaged { .. })));
}

#[test]
fn files_of_others_and_unfinished_ones_do_not_disturb() {
    let (directory, written) = small_log();
    for name in ["spare", "new", "notes.txt", "7.wal"] {
        directory.create_zeroed(name, 10).unwrap();
    }
    assert_eq!(entries(&directory).unwrap(), written);
    let names = segments(&directory);
    assert!(names.contains(&"notes.txt".to_owned()), "not ours to remove");
    assert!(!names.contains(&"spare".to_owned()) && !names.contains(&"new".to_owned()), "{names:?}");
}

#[test]
fn a_segment_goes_when_nothing_in_it_is_needed_and_not_before() {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    let of = |group, kind, index| Record { kind, group, term: 3, index, payload: Bytes::from_static(b"0123456789") };
    log.commit(&[of(1, Kind::HardState, 0), of(0, Kind::Entry, 1), of(1, Kind::Entry, 1)]).unwrap();
    for index in 2..40 {
        log.commit(&[of(0, Kind::Entry, index)]).unwrap();
    }
    let before = segments(&directory).len();
    assert!(before > 3);
    log.commit(&[of(0, Kind::Compaction, 38)]).unwrap();
    assert!(segments(&directory).len() >= before, "group 1 still needs its entry in the first segment");
    log.commit(&[of(1, Kind::Compaction, 1)]).unwrap();
    assert!(segments(&directory).len() <= 2, "{:?}", segments(&directory));
    let mut hard_states = 0;
    let mut last = None;
    Log::open(directory, OPTIONS, |record| match record.kind {
        Kind::HardState => hard_states += usize::from(record.group == 1 && record.payload == b"0123456789"),
        Kind::Entry => last = Some(record.index),
        Kind::Compaction => {}
    })
    .unwrap();
    assert!(hard_states >= 1, "the hard state went with its segment");
    assert_eq!(last, Some(39));
}

/// A process is killed between a write and its sync, or its sync fails: the next one sees the batch in the page cache. It may
/// act on what it saw, and then the power goes.
#[test]
fn what_opening_shows_survives_a_loss_of_power() {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    log.commit(&[entry(1, b"safe")]).unwrap();
    directory.fail(Fault::DataSync, 0);
    log.commit(&[entry(2, b"not"), entry(3, b"safe")]).unwrap_err();
    let seen = entries(&directory).unwrap();
    assert_eq!(seen.len(), 3);
    directory.crash(|| 0);
    assert_eq!(entries(&directory).unwrap(), seen);
}

/// Nor may it become a hole in front of what is written next.
#[test]
fn what_opening_shows_is_safe_before_anything_is_written_behind_it() {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    log.commit(&[entry(1, b"safe")]).unwrap();
    directory.fail(Fault::DataSync, 0);
    log.commit(&[entry(2, b"not")]).unwrap_err();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    log.commit(&[entry(3, b"safe")]).unwrap();
    directory.crash(|| 0);
    assert_eq!(entries(&directory).unwrap().len(), 3);
}
