//! What is written is read.

use std::io::Cursor;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::{Change, EtcdFileError, Lease, Metadata, read, write};
use crate::bolt::Writer;
use crate::proto::{authpb, etcdserverpb, mvccpb};

fn key_value(key: &str, revision: i64) -> Vec<u8> {
    let value = Bytes::from(format!("value {revision}"));
    let key = Bytes::copy_from_slice(key.as_bytes());
    mvccpb::KeyValue { key, value, create_revision: 2, mod_revision: revision, version: revision - 1, lease: 0 }
        .encode_to_vec()
}

fn full() -> Metadata {
    Metadata {
        consistent_index: 90,
        term: 4,
        compact_revision: 3,
        cluster_version: "3.7.0".into(),
        members: vec![
            etcdserverpb::Member {
                id: 0x10,
                name: "one".into(),
                peer_ur_ls: vec!["http://127.0.0.1:1".into()],
                client_ur_ls: vec!["http://127.0.0.1:2".into()],
                is_learner: false,
            },
            etcdserverpb::Member {
                id: 0xabc,
                peer_ur_ls: vec!["http://127.0.0.1:3".into()],
                is_learner: true,
                ..Default::default()
            },
        ],
        members_removed: vec![0xfe],
        leases: vec![Lease { id: 7, ttl_seconds: 60, remaining_seconds: 9 }],
        alarms: vec![etcdserverpb::AlarmMember { member_id: 0x10, alarm: 1 }],
        is_auth_enabled: true,
        auth_revision: 12,
        users: vec![authpb::User { name: "root".into(), password: "$2a$".into(), ..Default::default() }],
        roles: vec![authpb::Role { name: "root".into(), key_permission: Vec::new() }],
    }
}

type Owned = (u64, u64, bool, Vec<u8>);

fn read_all(file: &[u8]) -> Result<(Metadata, Vec<Owned>), EtcdFileError> {
    let mut changes = Vec::new();
    let metadata = read(file, |change| {
        changes.push((change.main, change.sub, change.is_tombstone, change.key_value.to_vec()));
        Ok::<_, EtcdFileError>(())
    })?;
    Ok((metadata, changes))
}

fn written(metadata: &Metadata, changes: &[Owned]) -> Vec<u8> {
    let changes = changes.iter().map(|(main, sub, is_tombstone, bytes)| Change {
        main: *main,
        sub: *sub,
        is_tombstone: *is_tombstone,
        key_value: bytes.into(),
    });
    write(Cursor::new(Vec::new()), metadata, changes).unwrap().into_inner()
}

#[test]
fn everything_comes_back() {
    let changes =
        vec![(2, 0, false, key_value("a", 2)), (2, 1, false, key_value("b", 2)), (3, 0, false, key_value("a", 3))];
    for metadata in [full(), Metadata::default()] {
        assert_eq!(read_all(&written(&metadata, &changes)).unwrap(), (metadata, changes.clone()));
    }
}

#[test]
fn a_tombstone_has_nothing_but_its_key() {
    let (_, changes) = read_all(&written(&full(), &[(5, 0, true, key_value("gone", 5))])).unwrap();
    let only_key = mvccpb::KeyValue { key: "gone".into(), ..Default::default() }.encode_to_vec();
    assert_eq!(changes, [(5, 0, true, only_key)]);
}

/// It was refused, so that a database on which `etcdutl snapshot restore --bump-revision` had ever been done could not be read.
#[test]
fn a_revision_that_a_restore_bumped_to_has_no_key() {
    let changes =
        vec![(2, 0, false, key_value("a", 2)), (1_002, 0, false, Vec::new()), (1_003, 0, false, key_value("a", 1_003))];
    assert_eq!(read_all(&written(&full(), &changes)).unwrap(), (full(), changes));
}

#[test]
fn changes_out_of_order_are_not_written() {
    let bytes = key_value("a", 2);
    let change = |main| Change { main, sub: 0, is_tombstone: false, key_value: (&bytes).into() };
    assert!(write(Cursor::new(Vec::new()), &full(), [change(3), change(2)].into_iter()).is_err());
}

fn with(meta: &[(&str, &[u8])], keys: &[(&[u8], &[u8])]) -> String {
    let mut writer = Writer::begin(Cursor::new(Vec::new())).unwrap();
    writer.bucket(b"key", keys.iter().copied()).unwrap();
    writer.bucket(b"meta", meta.iter().map(|(name, value)| (name.as_bytes(), value))).unwrap();
    read_all(writer.finish().unwrap().get_ref()).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named() {
    let value = key_value("a", 2);
    for (error, expected) in [
        (with(&[("storageVersion", b"3.8.0")], &[]), "storage version 3.8.0"),
        (with(&[("term", b"short")], &[]), "bucket `meta`, key 0x7465726d: it is not a number of 8 bytes"),
        (with(&[], &[(b"\0\x01", &value)]), "bucket `key`, key 0x0001: it is not a revision"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0", b"\xff\xff")]), "it is no key and value"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0x", &value)]), "it is not a revision"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0t", b"")]), "it has no key"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\x01", b"")]), "it has no key"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\0_\0\0\0\0\0\0\0\0", b"")]), "it has no key or no revision"),
        (with(&[], &[(b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0", b"\x0a\0")]), "it has no key"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let empty = Writer::begin(Cursor::new(Vec::new())).unwrap().finish().unwrap().into_inner();
    assert!(read_all(&empty).unwrap_err().to_string().contains("this is not a database of etcd"));
}

#[test]
fn who_reads_may_refuse_a_change() {
    #[derive(Debug)]
    enum Error {
        File,
        Enough(u64),
    }
    impl From<EtcdFileError> for Error {
        fn from(_: EtcdFileError) -> Self {
            Self::File
        }
    }
    let changes = [(2, 0, false, key_value("a", 2)), (3, 0, false, key_value("a", 3))];
    let refused = read(written(&full(), &changes).as_slice(), |change| match change.main {
        2 => Ok(()),
        main => Err(Error::Enough(main)),
    });
    assert!(matches!(refused, Err(Error::Enough(3))), "{refused:?}");
    assert!(matches!(read([].as_slice(), |_| Err(Error::Enough(0))), Err(Error::File)));
}

proptest! {
    #[test]
    fn damage_never_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let changes: Vec<Owned> = (2..300).map(|main| (main, 0, false, key_value("a", main as i64))).collect();
        let mut file = written(&full(), &changes);
        for (index, byte) in damage {
            let index = index.index(file.len());
            file[index] = byte;
        }
        if let Ok((_, found)) = read_all(&file) {
            prop_assert!(found.len() <= 10_000);
        }
    }
}
