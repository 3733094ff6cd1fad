//! Members whose data differ, and files that somebody has changed, are found.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use harness::{Etcd, until};
use wal::files::RealDirectory;

use crate::group::{group, leader_of};
use crate::process::{Rusd, Starting};

/// What the checks of a log never find: another value in an entry, written as if it had always been so.
fn rewrite_log(data: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let (old, new) = (data.join("member/wal"), data.join("member/new"));
    fs::create_dir(&new).unwrap();
    let mut records = Vec::new();
    let mut changed = 0;
    let keep = |record: wal::Record<&[u8]>| {
        let mut payload = record.payload.to_vec();
        if let Some(place) = payload.windows(from.len()).position(|window| window == from) {
            payload[place..place + to.len()].copy_from_slice(to);
            changed += 1;
        }
        let wal::Record { kind, group, term, index, .. } = record;
        records.push(wal::Record { kind, group, term, index, payload: Bytes::from(payload) });
    };
    drop(wal::Log::open(RealDirectory::open(&old).unwrap(), wal::Options::default(), keep).unwrap());
    assert!(changed > 0, "the log does not hold it");
    let mut log = wal::Log::open(RealDirectory::open(&new).unwrap(), wal::Options::default(), |_| {}).unwrap();
    for record in records {
        log.commit(&[record]).unwrap();
    }
    drop(log);
    fs::remove_dir_all(&old).unwrap();
    fs::rename(&new, &old).unwrap();
}

/// Three members, one of which has another value than the others; their flags.
fn differing(flags: &[&str]) -> (Vec<Rusd>, harness::TempDir, Vec<String>) {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    let mut servers = group(3, "http", &flags);
    servers[0].etcdctl(&["put", "key", "good-value"]);
    let leader = leader_of(&servers);
    let differs = servers.remove((leader + 1) % 3);
    until("the value on each member", || {
        differs.etcdctl(&["get", "key", "--consistency=s", "--print-value-only"]) == "good-value\n"
    });
    let (directory, flags) = differs.kill();
    rewrite_log(&directory.path().join("data"), b"good-value", b"evil-value");
    (servers, directory, flags)
}

fn own_id(server: &Rusd) -> u64 {
    let status = server.etcdctl(&["endpoint", "status", "-w", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status[0]["Status"]["header"]["member_id"].as_u64().unwrap()
}

/// Whether etcdctl tells of this member's alarm, and of no other. Go puts one space between fields, or two.
fn is_about(told: &str, id: u64) -> bool {
    let words = told.split_whitespace().collect::<Vec<_>>();
    words == [format!("memberID:{id}").as_str(), "alarm:CORRUPT"]
}

#[test]
fn a_member_that_differs_does_not_serve_when_it_checks_at_the_start() {
    let (_others, directory, mut flags) = differing(&[]);
    flags.push("--feature-gates=InitialCorruptCheck=true".to_owned());
    let said = Rusd::spawn(directory, flags).refusal();
    assert!(said.contains("found different hash values from remote peer"), "{said}");
    assert!(said.contains("found data inconsistency with peers"), "{said}");
}

#[test]
fn members_that_agree_serve_when_they_check_at_the_start() {
    let mut servers = group(3, "http", &["--feature-gates=InitialCorruptCheck=true".to_owned()]);
    servers[0].etcdctl(&["put", "key", "value"]);
    let again = servers.remove(1).restart();
    assert_eq!(again.etcdctl(&["get", "key", "--print-value-only"]), "value\n");
}

#[test]
fn a_member_that_differs_is_found_by_the_leader_and_nobody_writes_then() {
    let (others, directory, flags) = differing(&["--corrupt-check-time=1s"]);
    let differs = Rusd::spawn(directory, flags).ready();
    let id = own_id(&differs);
    until("the alarm", || is_about(&others[0].etcdctl(&["alarm", "list"]), id));
    assert!(others[0].refused(&["put", "k", "v"]).contains("etcdserver: corrupt cluster"));
    let (status, _) = crate::gateway::send(others[0].address(), "GET", "/readyz/data_corruption", "", "");
    assert_eq!(status, 503);
    differs.kill();
    assert!(is_about(&others[0].etcdctl(&["alarm", "disarm"]), id));
    assert_eq!(others[0].etcdctl(&["put", "k", "v"]), "OK\n");
}

#[test]
fn a_member_that_differed_before_a_compaction_is_found_by_it() {
    let (others, directory, flags) =
        differing(&["--feature-gates=CompactHashCheck=true", "--compact-hash-check-time=1s"]);
    let differs = Rusd::spawn(directory, flags).ready();
    let id = own_id(&differs);
    others[0].etcdctl(&["put", "key", "later"]);
    others[0].etcdctl(&["compaction", "3"]);
    until("the alarm", || is_about(&others[0].etcdctl(&["alarm", "list"]), id));
}

/// What clients hear while the alarm is raised, of etcd and of rusd.
#[test]
fn the_alarm_forbids_what_it_forbids_in_etcd() {
    let data = harness::folder();
    let (etcd, rusd) = (Etcd::start(data.path()), Rusd::start(&[]));
    let run = |arguments: &[&str]| {
        let told = |command: &mut Command| {
            let output = command.output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let refusal = text(&output.stderr);
            // Go's client puts the time in front of what it says of retries.
            let refusal = refusal.lines().find(|line| line.starts_with("Error")).unwrap_or_default().to_owned();
            (output.status.success(), text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "), refusal)
        };
        (told(&mut etcd.ctl(arguments)), told(&mut rusd.command(arguments)))
    };
    let same = |arguments: &[&str]| {
        let (theirs, ours) = run(arguments);
        assert_eq!(ours, theirs, "{arguments:?}");
        ours.0
    };
    assert!(same(&["put", "k", "1"]));
    let alarm = r#"{"action":"ACTIVATE","memberID":"7","alarm":"CORRUPT"}"#;
    for address in [etcd.address(), rusd.address()] {
        assert_eq!(crate::gateway::send(address, "POST", "/v3/maintenance/alarm", "", alarm).0, 200);
    }
    assert!(!same(&["put", "k", "2"]));
    for arguments in [
        &["get", "k"][..],
        &["get", "k", "--consistency=s"],
        &["del", "k"],
        &["lease", "grant", "600"],
        &["compaction", "2"],
        &["lease", "list"],
        &["user", "add", "somebody:secret"],
        &["role", "add", "something"],
        &["alarm", "list"],
    ] {
        same(arguments);
    }
    for path in ["/health", "/readyz", "/livez"] {
        let [theirs, ours] = [etcd.address(), rusd.address()].map(|address| {
            let (status, mut body) = crate::gateway::send(address, "GET", path, "", "");
            let mut text = String::new();
            body.read_to_string(&mut text).unwrap();
            // Go puts the checks in any order.
            let mut lines: Vec<String> = text.trim().lines().map(str::to_owned).collect();
            lines.sort();
            (status, lines)
        });
        assert_eq!(ours, theirs, "{path}");
    }
    assert!(same(&["alarm", "disarm"]));
    assert!(same(&["put", "k", "3"]) && same(&["get", "k"]));
}

/// A byte of the log that was safe on the disk, and was changed there.
#[test]
fn a_log_that_was_changed_on_the_disk_is_not_served() {
    let server = Rusd::start(&[]);
    for number in 0..3 {
        server.etcdctl(&["put", "key", &format!("good-value-{number}")]);
    }
    let (directory, flags) = server.kill();
    let log = directory.path().join("data/member/wal/00000000000000000001.wal");
    let mut bytes = fs::read(&log).unwrap();
    let place = bytes.windows(12).position(|window| window == b"good-value-0").unwrap();
    bytes[place] ^= 1;
    fs::write(&log, bytes).unwrap();
    let said = Starting::refusal(Rusd::spawn(directory, flags));
    assert!(said.contains("00000000000000000001.wal"), "{said}");
}
