//! Folders and memory as stores: what every store does (S3 in `s3.rs`, Google's and Azure's in `clouds.rs`).

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use support::conformance;
use walsync::store::Store;
use walsync::store::files::FileStore;
use walsync::store::memory::MemoryStore;

fn conforms(store: &Arc<impl Store + 'static>) {
    conformance::objects_are_created_once_read_listed_and_deleted(store.as_ref());
    conformance::a_part_is_of_one_object_and_not_of_its_successor(store.as_ref());
    conformance::a_long_listing_is_whole_and_ordered(store.as_ref(), 50);
    conformance::many_objects_go_at_once_and_those_that_are_gone_are_no_error(store.as_ref());
    conformance::a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long(store.clone());
}

#[test]
fn a_folder_does_what_a_store_does() {
    let folder = harness::folder();
    conforms(&Arc::new(FileStore::new(folder.path().to_owned())));
}

#[test]
fn memory_does_what_a_store_does() {
    conforms(&Arc::new(MemoryStore::default()));
}
