//! What is written is read; what is damaged is refused or read, and never worse.

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{BoltError, Database, ReadAt, Writer};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type Found = Vec<(Vec<u8>, Vec<u8>)>;

fn written(buckets: &BTreeMap<Vec<u8>, Records>) -> Vec<u8> {
    let mut writer = Writer::begin(Cursor::new(Vec::new())).unwrap();
    for (name, records) in buckets {
        writer.bucket(name, records).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn read(file: &[u8], name: &[u8]) -> Result<Option<Found>, BoltError> {
    let database = Database::open(file)?;
    let Some(bucket) = database.bucket(name)? else { return Ok(None) };
    let mut records = Vec::new();
    database.for_each(&bucket, |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        Ok::<_, BoltError>(())
    })?;
    Ok(Some(records))
}

fn numbered(count: u32) -> BTreeMap<Vec<u8>, Records> {
    let records = (0..count).map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; 40])).collect();
    BTreeMap::from([(b"key".to_vec(), records)])
}

#[test]
fn a_bucket_of_three_levels_is_read_in_order() {
    let buckets = numbered(100_000);
    let records = read(&written(&buckets), b"key").unwrap().unwrap();
    assert!(records.into_iter().eq(buckets[b"key".as_slice()].clone()));
    assert_eq!(read(&written(&buckets), b"meta").unwrap(), None);
}

#[test]
fn a_file_that_was_not_finished_is_no_database() {
    let mut unfinished = Cursor::new(Vec::new());
    Writer::begin(&mut unfinished).unwrap().bucket(b"key", [(b"a", b"b")]).unwrap();
    assert!(matches!(Database::open(unfinished.get_ref().as_slice()), Err(BoltError::NotADatabase)));
    assert!(matches!(Database::open([].as_slice()), Err(BoltError::NotADatabase)));
}

#[test]
fn keys_that_do_not_ascend_are_refused() {
    let mut writer = Writer::begin(Cursor::new(Vec::new())).unwrap();
    assert!(writer.bucket(b"key", [(b"b", b""), (b"a", b"")]).is_err());
    assert!(writer.bucket(b"key", [(b"a", b""), (b"a", b"")]).is_err());
    assert!(writer.bucket(b"key", [(b"", b"")]).is_err());
    writer.bucket(b"meta", [(b"a", b"")]).unwrap();
    assert!(writer.bucket(b"meta", [(b"a", b"")]).is_err());
}

#[test]
fn a_page_that_is_its_own_child_ends_the_walk() {
    let mut file = written(&numbered(1_000));
    let database = Database::open(file.as_slice()).unwrap();
    let Some(super::Bucket::Tree(root)) = database.bucket(b"key").unwrap() else { panic!("no tree") };
    let child = root as usize * 4096 + 16 + 8;
    file[child..child + 8].copy_from_slice(&root.to_le_bytes());
    let error = read(&file, b"key").unwrap_err().to_string();
    assert!(error.contains(&format!("page {root} is damaged")), "{error}");
}

#[test]
fn the_newer_of_two_metas_counts_and_the_older_is_enough() {
    let file = written(&numbered(10));
    for page in 0..2 {
        let mut damaged = file.clone();
        damaged[page * 4096 + 30] ^= 1;
        assert_eq!(read(&damaged, b"key").unwrap().unwrap().len(), 10);
    }
}

/// A disk that fails in the middle.
struct Failing(Vec<u8>);

impl ReadAt for Failing {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        if offset >= 3 * 4096 { Err(std::io::Error::other("lamp oil")) } else { self.0.read_at(buffer, offset) }
    }

    fn size(&self) -> std::io::Result<u64> {
        self.0.size()
    }
}

#[test]
fn a_disk_that_fails_is_quoted() {
    let failing = Failing(written(&numbered(10)));
    let error = Database::open(&failing).unwrap().bucket(b"key").unwrap_err().to_string();
    assert!(error.contains("lamp oil"), "{error}");
}

fn records() -> impl Strategy<Value = Records> {
    let value = prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 4_000..9_000)];
    btree_map(vec(any::<u8>(), 1..30), value, 0..120)
}

proptest! {
    #[test]
    fn what_was_written_is_read(buckets in btree_map(vec(any::<u8>(), 1..8), records(), 0..5)) {
        let file = written(&buckets);
        prop_assert_eq!(file.len() % 4096, 0);
        for (name, records) in buckets {
            let found = read(&file, &name).unwrap().unwrap();
            prop_assert_eq!(found, Vec::from_iter(records));
        }
    }

    #[test]
    fn damage_is_an_error_or_other_records(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut file = written(&numbered(2_000));
        for (index, byte) in damage {
            let index = index.index(file.len());
            file[index] = byte;
        }
        if is_cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(Some(records)) = read(&file, b"key") {
            prop_assert!(records.len() <= 0x10000 * file.len() / 4096);
        }
    }
}
