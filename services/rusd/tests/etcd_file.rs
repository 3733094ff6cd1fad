//! What etcd itself makes of the files that are written here.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::process::Command;

use harness::{Etcd, output, peer};
use prost::Message;
use rusd::etcd_file::{Change, EtcdFileError, Lease, Metadata, read, write};
use rusd::proto::mvccpb::KeyValue;

type Owned = (u64, u64, bool, Vec<u8>);

fn key_value(key: String, value: String, created: i64, revision: i64, version: i64) -> Vec<u8> {
    let (key, value) = (key.into(), value.into());
    KeyValue { key, value, create_revision: created, mod_revision: revision, version, lease: 0 }.encode_to_vec()
}

/// A thousand keys, each written twice, and the first hundred deleted in one transaction.
fn history() -> Vec<Owned> {
    let key = |number| format!("key-{number:04}");
    let first = (2..1_002).map(|revision| {
        (revision as u64, 0, false, key_value(key(revision - 2), "first".into(), revision, revision, 1))
    });
    let second = (1_002..2_002).map(|revision| {
        let created = revision - 1_000;
        (revision as u64, 0, false, key_value(key(created - 2), "second".into(), created, revision, 2))
    });
    let deleted = (0..100).map(|sub| {
        let tombstone = KeyValue { key: key(sub as i64).into(), ..KeyValue::default() };
        (2_002, sub, true, tombstone.encode_to_vec())
    });
    first.chain(second).chain(deleted).collect()
}

fn write_file(path: &Path) -> Vec<Owned> {
    let history = history();
    let changes = history.iter().map(|(main, sub, is_tombstone, key_value)| Change {
        main: *main,
        sub: *sub,
        is_tombstone: *is_tombstone,
        key_value: key_value.into(),
    });
    let metadata = Metadata {
        consistent_index: 2_500,
        term: 3,
        cluster_version: "3.7.0".into(),
        leases: vec![Lease { id: 77, ttl_seconds: 600, remaining_seconds: 0 }],
        ..Metadata::default()
    };
    write(File::create(path).unwrap(), &metadata, changes).unwrap().sync_all().unwrap();
    history
}

#[test]
fn etcd_restores_and_serves_what_was_written_and_its_snapshot_is_read() {
    let folder = harness::folder();
    let (file, data, back) = (folder.path().join("ours.db"), folder.path().join("data"), folder.path().join("back.db"));
    let history = write_file(&file);

    let status =
        output(Command::new(peer("etcd", "etcdutl")).args(["snapshot", "status", "--write-out=json"]).arg(&file));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["revision"], &status["totalKey"]), (&2_002.into(), &900.into()), "{status}");
    assert_eq!(status["version"], "3.7.0");

    let mut restore = Command::new(peer("etcd", "etcdutl"));
    restore.args(["snapshot", "restore", "--skip-hash-check", "--data-dir"]).arg(&data).arg(&file);
    output(&mut restore);

    let etcd = Etcd::start(&data);
    let count = output(&mut etcd.ctl(&["get", "key-", "--prefix", "--count-only", "--write-out=fields"]));
    assert!(count.contains("\"Count\" : 900") && count.contains("\"Revision\" : 2002"), "{count}");
    assert_eq!(output(&mut etcd.ctl(&["get", "key-0100", "--print-value-only"])), "second\n");
    assert_eq!(output(&mut etcd.ctl(&["get", "key-0000", "--rev=1001", "--print-value-only"])), "first\n");
    let leases = output(&mut etcd.ctl(&["lease", "list"]));
    assert!(leases.contains(&format!("{:x}", 77)), "{leases}");

    output(&mut etcd.ctl(&["snapshot", "save", back.to_str().unwrap()]));
    let mut changes = Vec::new();
    let metadata = read(&File::open(&back).unwrap(), |change| {
        changes.push((change.main, change.sub, change.is_tombstone, change.key_value.to_vec()));
        Ok::<_, EtcdFileError>(())
    });
    let metadata = metadata.unwrap();
    assert_eq!(changes, history);
    assert_eq!(metadata.leases.iter().map(|lease| lease.id).collect::<Vec<_>>(), [77]);
    assert_eq!((metadata.members.len(), metadata.cluster_version.as_str()), (1, "3.7.0"));
}
