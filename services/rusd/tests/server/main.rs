//! The program itself, with etcd's own client.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commands;
mod concurrency;
mod corruption;
mod differential;
mod flood;
mod from_etcd;
mod full_disk;
mod gateway;
mod group;
mod hostile;
mod hostile_minutes;
mod hostile_reads;
mod http2;
mod import;
mod in_etcds_place;
mod lost_data;
mod metrics;
mod process;
mod tls;
mod tokens;
mod unix;
mod values;

use std::io::BufRead;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{output, peer};

use process::{Rusd, rusd};

#[test]
fn etcdctl_works_in_its_everyday_commands() {
    let server = Rusd::start(&[]);
    assert_eq!(server.etcdctl(&["put", "a", "1"]), "OK\n");
    assert_eq!(server.etcdctl(&["put", "b", "2", "--prev-kv"]), "OK\n");
    assert_eq!(server.etcdctl(&["get", "--prefix", "", "--print-value-only"]), "1\n2\n");
    assert_eq!(server.etcdctl(&["get", "--prefix", "", "--stream", "--keys-only"]).replace('\n', ""), "ab");
    assert_eq!(server.etcdctl(&["del", "a"]), "1\n");
    assert_eq!(server.etcdctl(&["get", "a", "--rev=2", "--print-value-only"]), "1\n");
    assert!(server.etcdctl(&["compaction", "3"]).contains("compacted revision 3"));
    assert!(server.refused(&["get", "a", "--rev=2"]).contains("required revision has been compacted"));
    assert!(server.refused(&["get", "a", "--rev=99"]).contains("required revision is a future revision"));
    assert!(server.etcdctl(&["endpoint", "health"]).contains("is healthy"));
    assert!(server.etcdctl(&["endpoint", "status"]).contains(", 3.7.3,"));
    assert!(server.etcdctl(&["endpoint", "hashkv"]).contains(", 4"));
    assert!(server.etcdctl(&["member", "list"]).contains("started, default"));
    assert!(server.etcdctl(&["alarm", "list"]).is_empty());
    assert!(server.etcdctl(&["defrag"]).contains("Finished defragmenting"));
    assert!(server.etcdctl(&["lock", "name", "echo", "held"]).contains("held"));
}

#[test]
fn a_lease_takes_its_keys_along() {
    let server = Rusd::start(&[]);
    let granted = server.etcdctl(&["lease", "grant", "600"]);
    let lease = granted.split(' ').nth(1).unwrap();
    server.etcdctl(&["put", "k", "v", "--lease", lease]);
    assert!(server.etcdctl(&["lease", "timetolive", lease, "--keys"]).contains("attached keys([k])"));
    assert!(server.etcdctl(&["lease", "keep-alive", "--once", lease]).contains("keepalived with TTL(600)"));
    assert!(server.etcdctl(&["lease", "revoke", lease]).contains("revoked"));
    assert_eq!(server.etcdctl(&["get", "k"]), "");
    let granted = server.etcdctl(&["lease", "grant", "2"]);
    let lease = granted.split(' ').nth(1).unwrap();
    server.etcdctl(&["put", "short", "v", "--lease", lease]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !server.etcdctl(&["get", "short"]).is_empty() {
        assert!(Instant::now() < deadline, "a lease of 2 s is still there after a minute");
    }
}

#[test]
fn users_may_do_what_they_may_and_nothing_else() {
    let server = Rusd::start(&[]);
    server.etcdctl(&["user", "add", "root:secret"]);
    server.etcdctl(&["user", "grant-role", "root", "root"]);
    server.etcdctl(&["user", "add", "alice:word"]);
    server.etcdctl(&["role", "add", "reader"]);
    server.etcdctl(&["role", "grant-permission", "reader", "read", "public"]);
    server.etcdctl(&["user", "grant-role", "alice", "reader"]);
    server.etcdctl(&["auth", "enable"]);
    assert_eq!(server.etcdctl(&["--user", "root:secret", "put", "public", "1"]), "OK\n");
    assert_eq!(server.etcdctl(&["--user", "alice:word", "get", "public", "--print-value-only"]), "1\n");
    assert!(server.refused(&["--user", "alice:word", "put", "public", "2"]).contains("permission denied"));
    assert!(server.refused(&["--user", "alice:word", "get", "private"]).contains("permission denied"));
    assert!(server.refused(&["--user", "alice:wrong", "get", "public"]).contains("authentication failed"));
    let said = server.refused(&["get", "public"]);
    assert!(said.contains("user name is empty"), "{said}");
}

/// What the original rusd lost, facts D1 and D2: everything, and its count of revisions.
#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let mut server = Rusd::start(&[]);
    for value in ["1", "2", "3"] {
        server.etcdctl(&["put", "k", value]);
    }
    server = server.restart();
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "3\n");
    assert_eq!(server.etcdctl(&["get", "k", "--rev=3", "--print-value-only"]), "2\n");
    assert!(server.etcdctl(&["put", "k", "4", "-w", "json"]).contains("\"revision\":5"));
}

#[test]
fn etcdutl_restores_a_snapshot() {
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "k", "v"]);
    let file = server.directory().join("snapshot.db");
    server.etcdctl(&["snapshot", "save", file.to_str().unwrap()]);
    let restored = server.directory().join("restored");
    let mut restore = Command::new(peer("etcd", "etcdutl"));
    restore.arg("snapshot").arg("restore").arg(&file).arg("--data-dir").arg(&restored);
    output(&mut restore);
    assert!(restored.join("member/snap/db").exists());
}

#[test]
fn a_stop_is_gentle_and_soon() {
    let server = Rusd::start(&[]);
    let mut watch = server.command(&["watch", "k"]).spawn().unwrap();
    server.etcdctl(&["put", "k", "v"]);
    let stopped = server.stop();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(stopped.code(), Some(0));
}

#[test]
fn data_of_another_member_are_refused() {
    let (directory, _) = Rusd::start(&[]).kill();
    std::fs::remove_file(directory.path().join("data/member/identity.json")).unwrap();
    let flags = ["--name=other", "--initial-cluster=other=http://127.0.0.1:1"];
    let said = Rusd::spawn(directory, flags.map(str::to_owned).to_vec()).refusal();
    assert!(said.contains("it is of another member, or was made with another --name"), "{said}");
}

#[test]
fn a_mistake_on_the_command_line_touches_nothing() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    let output = rusd().arg("--data-dir").arg(&data).arg("--no-such-flag").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "rusd: --no-such-flag is not a flag of etcd 3.7; --help has all\n");
    assert!(!data.exists());
}

#[test]
fn help_tells_every_flag_and_starts_nothing() {
    let said = output(rusd().args(["--name", "a", "--help"]));
    assert!(said.starts_with("rusd: a server of etcd's API."), "{said}");
    assert!(said.contains("\nClustering:\n  --advertise-client-urls TEXT "), "{said}");
}

#[test]
fn the_version_is_what_tools_look_for() {
    let said = output(rusd().arg("--version"));
    assert!(said.starts_with("etcd Version: 3.7.3\n"), "{said}");
    assert!(said.contains(concat!("\nrusd Version: ", env!("CARGO_PKG_VERSION"), "\n")), "{said}");
}

/// A dashboard for etcd shows rusd's syncs; storebench counts them.
#[test]
fn metrics_count_the_syncs_of_the_log() {
    let rusd = Rusd::start(&[]);
    let sample = |name: &str| -> u64 {
        let (status, body) = gateway::send(rusd.address(), "GET", "/metrics", "", "");
        assert_eq!(status, 200);
        let lines: Vec<String> = body.lines().map(Result::unwrap).collect();
        let line = lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let count = || sample("etcd_disk_wal_fsync_duration_seconds_count");
    let before = count();
    for number in 0..10 {
        rusd.etcdctl(&["put", "key", &number.to_string()]);
    }
    // What is shown is a turn of the core thread old.
    let deadline = Instant::now() + Duration::from_secs(60);
    while count() < before + 10 {
        assert!(Instant::now() < deadline, "{} syncs after {before}, for 10 puts one after the other", count());
    }
    assert!(sample("etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"}") >= before + 10);
}

#[test]
fn a_downgrade_is_validated_enabled_and_canceled() {
    let server = Rusd::start(&[]);
    let status = |field: &str| {
        let said = server.etcdctl(&["endpoint", "status", "-w", "json"]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said[0]["Status"]["downgradeInfo"][field].clone()
    };
    assert!(
        server.etcdctl(&["downgrade", "validate", "3.6.0"]).contains("Downgrade validate success, cluster version 3.7")
    );
    assert!(server.refused(&["downgrade", "enable", "3.5.0"]).contains("invalid downgrade target version"));
    assert!(server.refused(&["downgrade", "validate", "old"]).contains("wrong downgrade target version format"));
    assert!(server.etcdctl(&["downgrade", "enable", "3.6.0"]).contains("Downgrade enable success"));
    assert!(server.refused(&["downgrade", "enable", "3.5.0"]).contains("downgrade"));
    assert_eq!(status("targetVersion"), "3.6.0");
    assert!(server.etcdctl(&["downgrade", "cancel"]).contains("Downgrade cancel success"));
    assert_eq!(status("targetVersion"), serde_json::Value::Null);
    assert!(server.etcdctl(&["downgrade", "validate", "3.6.0"]).contains("cluster version 3.7"));
}

/// As etcd: members compare what they had before they compacted.
#[test]
fn the_hash_of_a_compacted_revision_is_that_of_before() {
    let server = Rusd::start(&[]);
    for value in ["1", "2", "3"] {
        server.etcdctl(&["put", "k", value]);
    }
    server.etcdctl(&["del", "k"]);
    let hash = || {
        let said = server.etcdctl(&["endpoint", "hashkv", "--rev=5", "-w", "json"]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap()[0]["HashKV"]["hash"].clone()
    };
    let before = hash();
    server.etcdctl(&["compaction", "5", "--physical"]);
    assert_eq!(hash(), before);
    let server = server.restart();
    assert!(server.etcdctl(&["endpoint", "hashkv", "--rev=5"]).contains("127.0.0.1"));
}
