//! What every store does, whatever it is: the same tests of each.

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;
use walsync::arena::Arena;
use walsync::replica::{LtxFile, PutError, Replica};
use walsync::store::{Attributes, Store, StoreError};

pub fn put(store: &dyn Store, key: &str, content: &[u8]) -> Result<(), StoreError> {
    store.create(key, &mut Cursor::new(content), content.len() as u64, &Attributes::default())
}

pub fn get(store: &dyn Store, key: &str, range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    store.get(key, range)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    store.list(prefix).unwrap().into_iter().map(|object| object.key).collect()
}

pub fn objects_are_created_once_read_listed_and_deleted(store: &dyn Store) {
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let names = ["a/one", "a/two words", "a/ä+&=?%", "b/three"];
    for name in names {
        put(store, name, name.as_bytes()).unwrap();
    }
    put(store, "a/large", &large).unwrap();
    assert!(matches!(put(store, "a/one", b"other"), Err(StoreError::AlreadyExists(_))));
    assert_eq!(get(store, "a/one", None).unwrap(), b"a/one", "what is there stays");
    assert!(get(store, "a/large", None).unwrap() == large);
    assert_eq!(get(store, "a/large", Some(10..20)).unwrap(), large[10..20]);
    assert_eq!(get(store, "a/one", Some(2..100)).unwrap(), b"one");
    assert!(matches!(get(store, "a/none", None), Err(StoreError::NotFound(_))));
    assert_eq!(keys(store, "a/"), ["a/large", "a/one", "a/two words", "a/ä+&=?%"]);
    let after: Vec<String> = store.list_after("a/", "a/one").unwrap().into_iter().map(|object| object.key).collect();
    assert_eq!(after, ["a/two words", "a/ä+&=?%"]);
    store.delete("a/one").unwrap();
    store.delete("a/one").unwrap();
    assert_eq!(store.list("a/o").unwrap(), []);
}

pub fn a_part_is_of_one_object_and_not_of_its_successor(store: &dyn Store) {
    put(store, "p/k", b"0123456789").unwrap();
    let read = |part: walsync::store::Part, most| {
        let mut bytes = Vec::new();
        part.body.take(most).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let first = store.get_part("p/k", 2..5, None).unwrap();
    let version = first.version.clone();
    assert_eq!((first.object_bytes, read(first, 3)), (10, b"234".to_vec()));
    let next = store.get_part("p/k", 5..20, version.as_deref()).unwrap();
    assert_eq!((next.object_bytes, read(next, 20)), (10, b"56789".to_vec()));
    let beyond = store.get_part("p/k", 10..12, None).map(drop);
    assert!(matches!(beyond, Err(StoreError::Changed(_))), "{beyond:?}");
    store.delete("p/k").unwrap();
    // Another time: a folder may give it the place of the old one on the disk.
    let attributes = Attributes { modified_millis: 2, ..Attributes::default() };
    store.create("p/k", &mut Cursor::new(b"9876543210"), 10, &attributes).unwrap();
    let successor = store.get_part("p/k", 5..20, version.as_deref()).map(drop);
    assert!(matches!(successor, Err(StoreError::Changed(_))), "{successor:?}");
    assert!(matches!(store.get_part("p/none", 0..2, None).map(drop), Err(StoreError::NotFound(_))));
}

/// A file of a replica, with one page of so many bytes that do not shrink.
fn ltx_file(seed: u64, page_size: u32) -> LtxFile {
    let mut random = harness::Random::new(seed);
    let page: Vec<u8> = (0..page_size / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
    let header =
        ltx::Header { flags: ltx::NO_CHECKSUM, page_size, commit: 1, min_txid: 1, max_txid: 1, ..Default::default() };
    let staging = Arena::new(1 << 20, std::env::temp_dir()).stage();
    let mut encoder = ltx::Encoder::new(staging, header.clone()).unwrap();
    encoder.page(1, &page).unwrap();
    let (content, checksum) = encoder.finish().unwrap();
    LtxFile { content, header, checksum }
}

pub fn a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long(store: Arc<dyn Store>) {
    for (name, page_size) in [("shorter", 512), ("as-long", 4096), ("longer", 65_536)] {
        let replica = Replica::new(store.clone(), ltx::Layout::Objects, name);
        let foreign = replica.put(0, &mut ltx_file(1, page_size)).unwrap();
        let result = replica.put(0, &mut ltx_file(2, 4096));
        assert!(matches!(&result, Err(PutError::Fenced(key)) if key.starts_with(name)), "{name}: {result:?}");
        // The answer to the first one was lost.
        assert_eq!(replica.put(0, &mut ltx_file(1, page_size)).unwrap(), foreign, "{name}");
    }
}

pub fn a_long_listing_is_whole_and_ordered(store: &dyn Store, objects: usize) {
    for number in 0..objects {
        put(store, &format!("many/{number:04}"), b"x").unwrap();
    }
    let found = store.list("many/").unwrap();
    assert_eq!(found.len(), objects);
    assert!(found.is_sorted_by(|a, b| a.key < b.key));
}

pub fn many_objects_go_at_once_and_those_that_are_gone_are_no_error(store: &dyn Store) {
    let names: Vec<String> = (0..40).map(|number| format!("some/{number} of <&\"> ä")).collect();
    names.iter().for_each(|name| put(store, name, b"x").unwrap());
    put(store, "some-other", b"x").unwrap();
    for _ in 0..2 {
        store.delete_all(&names).unwrap();
        assert_eq!(keys(store, "some"), ["some-other"]);
    }
}

/// So many bytes that nobody can make fewer.
pub fn large(seed: u64) -> Vec<u8> {
    let mut random = harness::Random::new(seed);
    (0..12_000_000 / 8).flat_map(|_| random.draw().to_le_bytes()).collect()
}

/// A body that does something when it is read at a place for the first time.
pub struct Interrupted<F> {
    pub body: Cursor<Vec<u8>>,
    pub at: u64,
    pub action: Option<F>,
}

impl<F: FnOnce() -> std::io::Result<()>> Read for Interrupted<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.body.position() >= self.at
            && let Some(action) = self.action.take()
        {
            action()?;
        }
        self.body.read(buffer)
    }
}

impl<F> Seek for Interrupted<F> {
    fn seek(&mut self, position: SeekFrom) -> std::io::Result<u64> {
        self.body.seek(position)
    }
}
