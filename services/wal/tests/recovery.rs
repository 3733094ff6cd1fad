//! Whatever happens to the files of a small log: opening it gives exactly a prefix of what was written, or refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is a failure")]

use bytes::Bytes;
use wal::files::{CountingDirectory, Directory as _, Fault, SimulatedDirectory};
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

/// Twelve batches of one to four entries from this index on.
fn write_batches(log: &mut Log<SimulatedDirectory>, mut index: u64) -> Vec<(u64, Vec<u8>)> {
    let mut written = Vec::new();
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
    written
}

/// Three segments; the last one holds batches of one and of three entries.
fn small_log() -> (SimulatedDirectory, Vec<(u64, Vec<u8>)>) {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    let written = write_batches(&mut log, 0);
    (directory, written)
}

/// As before, in files that were other segments, full of records of the same kind at the same places; and three such files wait.
fn recycled_log() -> (SimulatedDirectory, Vec<(u64, Vec<u8>)>) {
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    for life in 0..3 {
        let written = write_batches(&mut log, life * 25);
        if life == 2 {
            let found = entries(&directory.copy()).unwrap();
            let before = found.len() - written.len();
            assert_eq!(found[before..], written);
            return (directory, found);
        }
        let all = Record { kind: Kind::Compaction, ..entry((life + 1) * 25, b"") };
        log.commit(&[all]).unwrap();
    }
    unreachable!("the third life returns")
}

/// The name of the segment that is written to: those ahead are removed when they are found with something in them.
fn last_written(directory: &SimulatedDirectory) -> String {
    let copy = directory.copy();
    entries(&copy).unwrap();
    segments(&copy).pop().unwrap()
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
    for (directory, written) in [small_log(), recycled_log()] {
        let last = last_written(&directory);
        let (mut refusals, mut cuts) = (0, 0);
        for name in &segments(&directory) {
            for offset in 0..directory.contents(name).unwrap().len() {
                for flip in [0x01, 0xff] {
                    let copy = directory.copy();
                    copy.damage(name, |bytes| bytes[offset] ^= flip).unwrap();
                    let what = format!("{name} byte {offset} ^ {flip:#x}");
                    match prefix_or_refusal(&copy, &written, &what) {
                        None => refusals += 1,
                        // Behind the end of a segment, and in files that wait, nothing counts.
                        Some(count) if count == written.len() => {}
                        Some(count) => {
                            cuts += 1;
                            assert_eq!(name, &last, "only the last segment may be cut: {what}");
                            assert!(count >= written.len() - 3, "only the last batch may be cut: {what}");
                        }
                    }
                }
            }
        }
        assert!(refusals > 1_000 && cuts > 100, "{refusals} refusals, {cuts} cuts");
    }
}

/// A byte of the last write that a disk changed while the server did not run was no damage, but a shorter log: an acknowledged write was gone.
#[test]
fn behind_a_gentle_end_a_flipped_byte_takes_nothing_away() {
    for (directory, mut written) in [small_log(), recycled_log()] {
        let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
        let (mut refusals, mut segments_begun) = (0, 0);
        // Such lengths that there is room for the seal at some ends of a segment, and none at others.
        for number in 0..40 {
            let record = entry(900 + number, &vec![9; (number * 7 % 64) as usize]);
            log.commit(std::slice::from_ref(&record)).unwrap();
            let before = last_written(&directory);
            log.seal().unwrap();
            segments_begun += usize::from(last_written(&directory) != before);
            written.push((record.index, record.payload.to_vec()));
            for offset in 0..OPTIONS.segment_bytes as usize {
                let copy = directory.copy();
                copy.damage(&before, |bytes| bytes[offset] ^= 0x01).unwrap();
                match prefix_or_refusal(&copy, &written, &format!("{before} byte {offset}")) {
                    None => refusals += 1,
                    Some(count) => assert_eq!(count, written.len(), "{before} byte {offset}"),
                }
            }
        }
        assert!(refusals > 1_000 && segments_begun > 0, "{refusals}, {segments_begun}");
    }
}

#[test]
fn what_is_cut_off_is_told_and_what_a_file_held_before_is_not() {
    for (directory, _) in [small_log(), recycled_log()] {
        let open = |directory: &SimulatedDirectory| Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
        assert_eq!(open(&directory.copy()).torn(), None);
        let name = last_written(&directory);
        let last = directory.contents(&name).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
        directory.damage(&name, |bytes| bytes[last] ^= 1).unwrap();
        let log = open(&directory);
        let torn = log.torn().unwrap();
        assert!(torn.segment == name && (1..last as u64).contains(&torn.offset), "{torn:?}");
    }
}

#[test]
fn every_truncation_gives_a_prefix_or_a_refusal() {
    for (directory, written) in [small_log(), recycled_log()] {
        let last = last_written(&directory);
        for name in segments(&directory) {
            for left in 0..directory.contents(&name).unwrap().len() {
                let copy = directory.copy();
                copy.damage(&name, |bytes| bytes.truncate(left)).unwrap();
                let found = prefix_or_refusal(&copy, &written, &format!("{name} cut to {left}"));
                // What stands at the end of an earlier segment is no loss.
                let is_whole = found == Some(written.len());
                assert!(name == last || found.is_none() || is_whole, "{name} cut to {left}");
            }
        }
    }
}

#[test]
fn every_zeroed_sector_gives_a_prefix_or_a_refusal() {
    for (directory, written) in [small_log(), recycled_log()] {
        for name in segments(&directory) {
            for start in (0..directory.contents(&name).unwrap().len()).step_by(64) {
                let copy = directory.copy();
                copy.damage(&name, |bytes| bytes[start..].iter_mut().take(64).for_each(|byte| *byte = 0)).unwrap();
                prefix_or_refusal(&copy, &written, &format!("{name} zeroed at {start}"));
            }
        }
    }
}

/// A batch was torn: its first record is missing, the others arrived. What is written next ends just where they begin.
#[test]
fn the_rest_of_a_torn_batch_does_not_continue_what_is_written_over_it() {
    const PAGE_BYTES: usize = 4096;
    let options = Options { first_segment_bytes: 3 * PAGE_BYTES as u32, ..OPTIONS };
    let open = |directory: &SimulatedDirectory| {
        let mut found = Vec::new();
        let log = Log::open(directory.clone(), options, |record| found.push(record.index)).unwrap();
        (log, found)
    };
    // A record takes 32 bytes and its payload. What is written ends with zeros up to a page, so the rest stands behind one.
    let end = 48 + 40;
    let missing = PAGE_BYTES - end - 32;
    for next in [None, Some(missing), Some(missing - 32)] {
        let directory = SimulatedDirectory::default();
        let (mut log, _) = open(&directory);
        log.commit(&[entry(1, b"safe")]).unwrap();
        let name = &segments(&directory)[0];
        log.commit(&[entry(900, &vec![1; missing]), entry(901, b"torn"), entry(902, b"torn")]).unwrap();
        directory.damage(name, |bytes| bytes[end..end + 32].fill(0)).unwrap();
        let (mut log, found) = open(&directory);
        assert_eq!(found, [1]);
        if let Some(bytes) = next {
            log.commit(&[entry(900, &vec![2; bytes])]).unwrap();
        }
        let expected = if next.is_some() { vec![1, 900] } else { vec![1] };
        assert_eq!(open(&directory).1, expected, "{next:?}");
    }
}

/// A process was killed between write and sync; the next one finds the batch in the page cache, and something behind it. Then the
/// power goes while it makes both safe: what it wrote behind the batch must not count as proof that the batch was safe.
#[test]
fn a_cut_does_not_say_that_the_batch_in_front_of_it_is_safe() {
    let options = Options { first_segment_bytes: 3 * 4096, ..OPTIONS };
    for sectors in 0..256u64 {
        let directory = SimulatedDirectory::default();
        let mut log = Log::open(directory.clone(), options, |_| ()).unwrap();
        log.commit(&[entry(1, b"safe")]).unwrap();
        directory.damage(&segments(&directory)[0], |bytes| bytes[8000] = 1).unwrap();
        directory.fail(Fault::DataSync, 0);
        log.commit(&[entry(2, &[2; 1500])]).unwrap_err();
        directory.fail(Fault::Power, 1);
        assert!(Log::open(directory.clone(), options, |_| ()).is_err());
        let mut arrive = sectors << 1;
        directory.crash(|| {
            let sector = arrive & 1;
            arrive >>= 1;
            sector
        });
        let found = entries(&directory).unwrap();
        assert!(found.len() == 1 || found.len() == 2, "{sectors:b}");
    }
}

/// Files go round: after the first ones none is made, and none is removed.
#[test]
fn a_log_that_is_compacted_makes_no_new_files() {
    let directory = CountingDirectory::new(SimulatedDirectory::default());
    let mut log = Log::open(directory.clone(), OPTIONS, |_| ()).unwrap();
    let mut made = Vec::new();
    for index in 1..400 {
        log.commit(&[entry(index, &[7; 100])]).unwrap();
        if index % 10 == 0 {
            log.commit(&[Record { kind: Kind::Compaction, ..entry(index, b"") }]).unwrap();
            made.push(directory.counts().creations);
        }
    }
    assert!((3..8).contains(&made[3]), "{made:?}");
    assert_eq!(made.last(), made.get(3), "{made:?}");
}

/// The first batch of a segment was torn, and a shorter one comes in its place.
#[test]
fn the_torn_first_batch_of_a_segment_is_no_file_for_the_next() {
    // A head takes 48 bytes: the first record ends with a page, since what is written ends with zeros up to one.
    let options = Options { first_segment_bytes: 3 * 4096, ..OPTIONS };
    let long = entry(1, &[1; 4096 - 48 - 32]);
    let directory = SimulatedDirectory::default();
    let mut log = Log::open(directory.clone(), options, |_| ()).unwrap();
    log.commit(&[long.clone(), entry(2, b"torn")]).unwrap();
    directory.damage(&segments(&directory)[0], |bytes| bytes[..8].fill(0)).unwrap();
    let mut log = Log::open(directory.clone(), options, |_| ()).unwrap();
    log.commit(&[long]).unwrap();
    assert_eq!(entries(&directory).unwrap().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
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
    // Of those that were written to: others wait to be.
    let written = || {
        let copy = directory.copy();
        entries(&copy).unwrap();
        segments(&copy).len()
    };
    let before = written();
    assert!(before > 3);
    log.commit(&[of(0, Kind::Compaction, 38)]).unwrap();
    assert!(written() >= before, "group 1 still needs its entry in the first segment");
    log.commit(&[of(1, Kind::Compaction, 1)]).unwrap();
    assert!(written() <= 2, "{:?}", segments(&directory));
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
