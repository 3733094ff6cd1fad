//! Google's and Azure's stores: what every store does, and what large objects are. `testing/walsync/clouds/test` starts emulators of both and runs
//! this; `WALSYNC_TEST_GCS` and `WALSYNC_TEST_AZURE` say where they are.

#![cfg(feature = "clouds")]
// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use support::conformance::{self, Interrupted, get, large, put};
use walsync::store::azure::{AzureCredentials, AzureSettings, AzureStore};
use walsync::store::gcs::{GcsSettings, GcsStore};
use walsync::store::{Attributes, Store, StoreError};

/// As small as it takes for three parts.
const PART_BYTES: u64 = 5 << 20;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run testing/walsync/clouds/test"))
}

fn gcs(bucket: &str) -> GcsStore {
    let endpoint = variable("WALSYNC_TEST_GCS");
    let (found, _) = GcsSettings::find(bucket, Some(&endpoint), |_| None);
    let settings =
        GcsSettings { timeout: Duration::from_secs(10), time_word: Some("litestream-timestamp".into()), ..found };
    GcsStore::new(settings, None).unwrap().sending_parts_of(PART_BYTES)
}

fn azure_with(container: &str, key: &str) -> AzureStore {
    let endpoint = variable("WALSYNC_TEST_AZURE");
    let found = AzureSettings::new("devstoreaccount1", container, Some(&endpoint));
    let settings =
        AzureSettings { timeout: Duration::from_secs(10), time_word: Some("litestream-timestamp".into()), ..found };
    AzureStore::new(settings, AzureCredentials::key(key).unwrap()).unwrap().sending_parts_of(PART_BYTES)
}

fn azure() -> AzureStore {
    azure_with("conformance", &variable("WALSYNC_TEST_AZURE_KEY"))
}

fn both(test: impl Fn(Arc<dyn Store>)) {
    test(Arc::new(gcs("conformance")));
    test(Arc::new(azure()));
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn objects_are_created_once_read_listed_and_deleted() {
    both(|store| conformance::objects_are_created_once_read_listed_and_deleted(store.as_ref()));
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn a_part_is_of_one_object_and_not_of_its_successor() {
    both(|store| conformance::a_part_is_of_one_object_and_not_of_its_successor(store.as_ref()));
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long() {
    both(conformance::a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long);
}

/// More than a page of Google's, and of Azure's one, too.
#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn a_long_listing_comes_in_pages_and_is_whole() {
    conformance::a_long_listing_is_whole_and_ordered(&gcs("conformance"), 1100);
    conformance::a_long_listing_is_whole_and_ordered(&azure(), 5100);
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn many_objects_go_and_those_that_are_gone_are_no_error() {
    both(|store| conformance::many_objects_go_at_once_and_those_that_are_gone_are_no_error(store.as_ref()));
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn the_time_of_an_object_is_what_its_metadata_say() {
    both(|store| {
        let metadata = [("litestream-timestamp", "2026-11-23T00:00:00.25Z".to_owned())];
        let attributes = Attributes { modified_millis: 0, metadata: &metadata };
        store.create("t/small", &mut Cursor::new(b"x"), 1, &attributes).unwrap();
        let bytes = PART_BYTES as usize + 1;
        store.create("t/large", &mut Cursor::new(vec![7; bytes]), bytes as u64, &attributes).unwrap();
        let times = store.list("t/").unwrap().into_iter().map(|object| object.modified_millis);
        assert_eq!(times.collect::<Vec<_>>(), [1_795_392_000_250; 2]);
    });
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn a_large_object_is_sent_in_parts_and_once() {
    both(|store| {
        let content = large(1);
        put(store.as_ref(), "l/large", &content).unwrap();
        assert!(get(store.as_ref(), "l/large", None).unwrap() == content);
        assert!(matches!(put(store.as_ref(), "l/large", &large(2)), Err(StoreError::AlreadyExists(_))));
        assert!(get(store.as_ref(), "l/large", None).unwrap() == content, "what is there stays");
        // One byte more than a part, and no more.
        for bytes in [PART_BYTES, PART_BYTES + 1] {
            put(store.as_ref(), &format!("l/{bytes}"), &content[..bytes as usize]).unwrap();
            assert!(get(store.as_ref(), &format!("l/{bytes}"), None).unwrap() == content[..bytes as usize]);
        }
    });
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn of_two_writers_of_a_large_object_the_one_that_ends_last_is_refused() {
    both(|store| {
        let content = large(1);
        // Theirs is there when our last part is sent: only the last request can tell.
        let action = || put(store.as_ref(), "w/large", &content).map_err(std::io::Error::other);
        let mut body = Interrupted { body: Cursor::new(large(2)), at: 2 * PART_BYTES, action: Some(action) };
        let result = store.create("w/large", &mut body, 12_000_000, &Attributes::default());
        assert!(matches!(&result, Err(StoreError::AlreadyExists(key)) if key == "w/large"), "{result:?}");
        assert!(body.action.is_none() && get(store.as_ref(), "w/large", None).unwrap() == content);
    });
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn of_an_upload_in_parts_that_fails_nobody_sees_anything() {
    both(|store| {
        let action = || -> std::io::Result<()> { Err(std::io::ErrorKind::PermissionDenied.into()) };
        let mut body = Interrupted { body: Cursor::new(large(1)), at: 2 * PART_BYTES, action: Some(action) };
        let result = store.create("f/large", &mut body, 13_000_000, &Attributes::default());
        assert!(matches!(&result, Err(StoreError::Permanent(text)) if text.contains("shorter")), "{result:?}");
        assert_eq!(store.list("f/").unwrap(), []);
    });
}

#[test]
#[ignore = "needs emulators: testing/walsync/clouds/test"]
fn a_wrong_key_and_a_wrong_bucket_are_final() {
    let error = azure_with("conformance", "d3Jvbmc=").list("").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("403"), "{error}");
    for (error, name) in [
        (azure_with("nowhere", &variable("WALSYNC_TEST_AZURE_KEY")).list("").unwrap_err(), "no container nowhere"),
        (gcs("nowhere").list("").unwrap_err(), "no bucket nowhere"),
        (put(&gcs("nowhere"), "k", b"x").unwrap_err(), "no bucket nowhere"),
    ] {
        assert!(!error.is_transient() && error.to_string().contains(name), "{error}");
    }
}
