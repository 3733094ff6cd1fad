use std::fs::OpenOptions;

use super::*;
use crate::store::keys::Keys;

fn panics(error: SpillError) -> ! {
    panic!("{error}");
}

fn files() -> io::Result<File> {
    tempfile::tempfile()
}

fn spill(memory_bytes: u64, create: impl FnMut() -> io::Result<File> + Send + 'static) -> Spill {
    Spill::new(Limits { memory_bytes, file_bytes: 4096 }, create, panics)
}

fn value(number: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(16)
}

/// Puts so many keys.
fn put(space: &mut Keyspace, keys: std::ops::Range<usize>) {
    for number in keys {
        space.write(&mut Vec::new()).put(format!("key-{number:04}").as_bytes(), &value(number), 0);
    }
}

fn cold(space: &Keyspace) -> usize {
    space.range(Keys::ALL, space.revision()).filter(|record| record.file().is_some()).count()
}

#[test]
fn the_oldest_values_are_moved_until_there_is_some_slack() {
    let (mut space, mut spill) = (Keyspace::default(), spill(64 * 128, files));
    put(&mut space, 0..64);
    assert!(!spill.step(&mut space, 10), "all of them fit");
    put(&mut space, 64..65);
    while spill.step(&mut space, 1) {}
    assert_eq!((space.hot_bytes(), cold(&space)), (60 * 128, 5));
    for (number, record) in space.range(Keys::ALL, space.revision()).enumerate() {
        assert_eq!(record.file().is_some(), number < 5, "the oldest");
        assert_eq!(*record.value(), value(number));
    }
    assert!(spill.shown().file_bytes() > 5 * 128);
}

#[test]
fn a_view_of_before_is_as_it_was() {
    let (mut space, mut spill) = (Keyspace::default(), spill(0, files));
    put(&mut space, 0..50);
    let before = space.clone();
    while spill.step(&mut space, 7) {}
    assert_eq!((cold(&before), cold(&space), space.hot_bytes()), (0, 50, 0));
    assert!(before.range(Keys::ALL, 51).eq(space.range(Keys::ALL, 51)));
    assert_eq!(before.bytes(), space.bytes());
}

#[test]
fn values_that_compaction_took_out_of_the_log_are_found() {
    let (mut space, mut spill) = (Keyspace::default(), spill(0, files));
    put(&mut space, 0..50);
    put(&mut space, 0..25);
    space.compact(space.revision()).unwrap();
    while !space.sweep(10, i64::MAX) {}
    assert_eq!(space.hot_bytes(), 50 * 128, "superseded versions do not count");
    while spill.step(&mut space, 7) {}
    assert_eq!((cold(&space), space.hot_bytes()), (50, 0));
}

#[test]
fn files_that_are_mostly_dead_are_emptied_and_go() {
    let (mut space, mut spill) = (Keyspace::default(), spill(0, files));
    for round in 0..40 {
        // One key of each hundred stays.
        put(&mut space, 100 * round..100 * (round + 1));
        while spill.step(&mut space, 50) {}
        for number in 100 * round + 1..100 * (round + 1) {
            space.write(&mut Vec::new()).delete(format!("key-{number:04}").as_bytes());
        }
        space.compact(space.revision()).unwrap();
        while !space.sweep(50, i64::MAX) {}
        while spill.step(&mut space, 50) {}
    }
    assert_eq!(cold(&space), 40);
    let files = spill.shown().file_bytes();
    assert!(files < 4 * 4096, "{files} bytes for 40 values of 128");
    for (number, record) in space.range(Keys::ALL, space.revision()).enumerate() {
        assert_eq!(*record.value(), value(100 * number));
    }
}

#[test]
fn where_there_is_no_room_values_stay_in_memory_until_there_is() {
    let (sent, has_room) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut spill = spill(0, {
        let (sent, has_room) = (Arc::clone(&sent), Arc::clone(&has_room));
        move || {
            sent.store(true, Ordering::Relaxed);
            match has_room.load(Ordering::Relaxed) {
                true => tempfile::tempfile(),
                false => Err(io::ErrorKind::StorageFull.into()),
            }
        }
    });
    let mut space = Keyspace::default();
    put(&mut space, 0..10);
    assert!(!spill.step(&mut space, 50) && sent.swap(false, Ordering::Relaxed));
    assert!(spill.shown().is_failing());
    assert!(!spill.step(&mut space, 50) && !sent.load(Ordering::Relaxed), "not tried again at once");
    assert_eq!((cold(&space), space.hot_bytes()), (0, 1280));
    has_room.store(true, Ordering::Relaxed);
    space.write(&mut Vec::new()).put(b"large", &vec![7; 2 << 20], 0);
    while spill.step(&mut space, 50) {}
    assert!(!spill.shown().is_failing());
    assert_eq!(cold(&space), 11);
}

#[test]
fn a_write_that_finds_the_disk_full_changes_nothing() {
    let full = || OpenOptions::new().read(true).write(true).open("/dev/full");
    let (mut space, mut spill) = (Keyspace::default(), spill(0, full));
    put(&mut space, 0..10);
    assert!(!spill.step(&mut space, 50));
    assert_eq!((cold(&space), space.hot_bytes(), spill.shown().is_failing()), (0, 1280, true));
    assert_eq!(*space.get(b"key-0003").unwrap().value(), value(3));
}

/// Records of a store with small values and tombstones among the large ones, in order.
fn records() -> Vec<Record> {
    let mut space = Keyspace::default();
    for number in 0..60 {
        match number % 3 {
            0 => drop(space.write(&mut Vec::new()).put(b"small", b"value", 0)),
            1 => drop(space.write(&mut Vec::new()).delete(b"small")),
            _ => put(&mut space, number..number + 1),
        }
    }
    space.changes(0).cloned().collect()
}

/// All records, let through in order; and how much of it was in memory at most.
fn let_through(spill: &mut Spill, records: &[Record]) -> (Vec<Record>, u64) {
    let (mut ahead, mut out, mut out_bytes, mut most) = (Ahead::new(Some(spill)), Vec::new(), 0, 0);
    let mut waiting_bytes = 0;
    for (number, record) in records.iter().enumerate() {
        waiting_bytes += record.hot_bytes() as u64;
        for (record, number) in ahead.push(record.clone(), number, out_bytes) {
            assert_eq!(number, out.len(), "the order is kept");
            waiting_bytes -= records[number].hot_bytes() as u64;
            out_bytes += record.hot_bytes() as u64;
            out.push(record);
        }
        most = most.max(waiting_bytes + out_bytes);
    }
    out.extend(ahead.finish().map(|(record, _)| record));
    (out, most)
}

#[test]
fn records_wait_in_order_and_the_oldest_are_cold_when_they_go_on() {
    let (records, mut spill) = (records(), spill(5 * 128, files));
    let (out, most) = let_through(&mut spill, &records);
    assert_eq!(out, records);
    assert!(most <= 5 * 128, "{most} bytes in memory");
    let hot: Vec<i64> = out.iter().filter(|record| record.hot_bytes() > 0).map(Record::main).collect();
    assert_eq!(hot, [49, 52, 55, 58, 61], "the newest");
}

#[test]
fn records_go_on_with_their_values_where_there_is_no_room_for_files() {
    let (records, mut spill) = (records(), spill(0, || Err(io::ErrorKind::StorageFull.into())));
    let (out, _) = let_through(&mut spill, &records);
    assert_eq!(out, records);
    assert!(spill.shown().is_failing() && out.iter().all(|record| record.file().is_none()));
}

/// A cold value, and its file.
fn one_cold() -> (Record, File) {
    let file = tempfile::tempfile().unwrap();
    let copy = file.try_clone().unwrap();
    let mut spill = spill(0, move || copy.try_clone());
    let mut space = Keyspace::default();
    put(&mut space, 0..1);
    while spill.step(&mut space, 1) {}
    (space.get(b"key-0000").unwrap().clone(), file)
}

#[test]
#[should_panic(expected = "it is not what was written; check the disk")]
fn a_damaged_value_is_not_told() {
    let (record, file) = one_cold();
    assert_eq!(*record.value(), value(0));
    file.write_all_at(b"!", HEAD_BYTES as u64 + 8 + 17).unwrap();
    record.value();
}

#[test]
#[should_panic(expected = "cannot be read: failed to fill whole buffer")]
fn a_value_that_is_gone_is_not_told() {
    let (record, file) = one_cold();
    file.set_len(40).unwrap();
    record.value();
}

#[test]
fn everything_that_a_cold_record_says_it_said_before() {
    let (mut space, mut spill) = (Keyspace::default(), spill(0, files));
    space.write(&mut Vec::new()).put(b"key", b"first", 0);
    space.write(&mut Vec::new()).put(b"key", &[9; 300], 77);
    let hot = space.get(b"key").unwrap().clone();
    while spill.step(&mut space, 1) {}
    let cold = space.get(b"key").unwrap();
    assert!(cold.file().is_some() && hot.file().is_none());
    assert_eq!((cold.key(), cold.revision(), cold.lease()), (hot.key(), hot.revision(), hot.lease()));
    assert_eq!((cold.is_tombstone(), cold.is_create()), (false, false));
    assert_eq!((cold.as_bytes(), cold.encoded(), cold.stored()), (hot.as_bytes(), hot.encoded(), hot.stored()));
    assert_eq!((cold.size(), cold.encoded_len()), (hot.as_bytes().len(), hot.encoded().len()));
    assert_eq!((cold.to_key_value(), cold.to_key()), (hot.to_key_value(), hot.to_key()));
    assert_eq!((cold.hot_bytes(), hot.hot_bytes()), (0, 300));
    assert_eq!(*cold, hot);
}
