//! `rusd import`: what an etcd had goes on.

use std::path::Path;
use std::process::{Command, Output};

use harness::{Etcd, output, peer};

use crate::process::{Rusd, rusd};

const CLIENT_URLS: [&str; 2] =
    ["--listen-client-urls=http://127.0.0.1:0", "--advertise-client-urls=http://127.0.0.1:0"];

fn import(source: &Path, data: &Path) -> Output {
    import_with(source, data, &[])
}

fn import_with(source: &Path, data: &Path, flags: &[&str]) -> Output {
    rusd().arg("import").arg(source).arg("--data-dir").arg(data).args(flags).output().unwrap()
}

/// A data directory that etcdutl makes of a snapshot.
fn restore(snapshot: &Path, data: &Path, flags: &[&str]) {
    let mut restore = Command::new(peer("etcd", "etcdutl"));
    output(restore.arg("snapshot").arg("restore").arg(snapshot).arg("--data-dir").arg(data).args(flags));
}

/// What a start comes to that is refused.
fn at_start(data: &Path, flags: &[&str]) -> Output {
    rusd().arg("--data-dir").arg(data).args(CLIENT_URLS).args(flags).output().unwrap()
}

fn said(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// Revisions, a compaction, a lease, a user; and the hash of it all.
fn fill(etcd: &Etcd) -> String {
    let ctl = |arguments: &[&str]| output(&mut etcd.ctl(arguments));
    for value in ["1", "2", "3"] {
        ctl(&["put", "k", value]);
    }
    ctl(&["put", "gone", "x"]);
    ctl(&["del", "gone"]);
    ctl(&["compaction", "4", "--physical"]);
    let lease = ctl(&["lease", "grant", "6000"]);
    ctl(&["put", "leased", "v", "--lease", lease.split(' ').nth(1).unwrap()]);
    ctl(&["user", "add", "root:secret"]);
    ctl(&["user", "grant-role", "root", "root"]);
    hash(&ctl(&["endpoint", "hashkv"]))
}

/// `ENDPOINT, HASH, REVISION` without the endpoint.
fn hash(text: &str) -> String {
    text.split_once(", ").unwrap().1.to_owned()
}

fn is_there(server: &Rusd, hash_before: &str) {
    assert_eq!(hash(&server.etcdctl(&["endpoint", "hashkv"])), hash_before);
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "3\n");
    assert_eq!(server.etcdctl(&["get", "gone", "--rev=5", "--print-value-only"]), "x\n");
    assert!(server.refused(&["get", "k", "--rev=3"]).contains("has been compacted"));
    assert!(server.etcdctl(&["lease", "list"]).contains("found 1 leases"));
    assert!(server.etcdctl(&["put", "k", "4", "-w", "json"]).contains("\"revision\":8"));
    server.etcdctl(&["auth", "enable"]);
    assert_eq!(server.etcdctl(&["--user=root:secret", "get", "leased", "--print-value-only"]), "v\n");
}

#[test]
fn a_data_directory_of_etcd_is_taken_over() {
    let directory = harness::folder();
    let (theirs, ours) = (directory.path().join("etcd"), harness::folder());
    let etcd = Etcd::start(&theirs);
    let before = fill(&etcd);
    etcd.stop();
    let output = import(&theirs, &ours.path().join("data"));
    assert!(output.status.success(), "{}", said(&output.stderr));
    assert_eq!(said(&output.stdout), "imported revision 7: 2 keys, 1 leases, 1 users\ncompacted at revision 4\n");
    // Twice is once too often.
    let again = import(&theirs, &ours.path().join("data"));
    assert!(said(&again.stderr).contains("is there already; name a new one"));
    is_there(&Rusd::start_on(ours, &[]), &before);
}

#[test]
fn a_snapshot_of_etcd_is_taken_over_and_a_damaged_one_is_not() {
    let directory = harness::folder();
    let (file, ours) = (directory.path().join("snapshot"), harness::folder());
    let etcd = Etcd::start(&directory.path().join("etcd"));
    let before = fill(&etcd);
    output(&mut etcd.ctl(&["snapshot", "save", file.to_str().unwrap()]));
    let mut bytes = std::fs::read(&file).unwrap();
    assert!(import(&file, &ours.path().join("data")).status.success());
    is_there(&Rusd::start_on(ours, &[]), &before);

    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = import(&file, &directory.path().join("other"));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output.stderr).contains("its checksum is wrong"), "{}", said(&output.stderr));
    assert!(!directory.path().join("other").exists());
}

#[test]
fn a_directory_that_etcdutl_restored_is_not_served_but_named() {
    let directory = harness::folder();
    let (file, restored) = (directory.path().join("snapshot"), directory.path().join("restored"));
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "k", "v"]);
    server.etcdctl(&["snapshot", "save", file.to_str().unwrap()]);
    restore(&file, &restored, &[]);
    let output = at_start(&restored, &[]);
    let told = said(&output.stderr);
    assert!(told.contains("was written by etcd or etcdutl; start once with --import-in-place, which keeps what etcd wrote beside it, or take it over with rusd import"), "{told}");
    assert_eq!(output.status.code(), Some(1));
    let ours = harness::folder();
    assert!(import(&restored, &ours.path().join("data")).status.success());
    assert_eq!(Rusd::start_on(ours, &[]).etcdctl(&["get", "k", "--print-value-only"]), "v\n");
}

const BUMP: [&str; 2] = ["--bump-revision=1000000", "--mark-compacted"];

/// What is there of [`fill`] and [`BUMP`], and what clients of before are told.
fn is_bumped(server: &Rusd, hash_before: &str) {
    assert_eq!(hash(&server.etcdctl(&["endpoint", "hashkv"])), hash_before);
    assert_eq!(server.etcdctl(&["get", "", "--prefix", "--keys-only"]), "k\n\nleased\n\n");
    assert!(server.etcdctl(&["get", "", "--prefix", "--count-only", "-w", "fields"]).contains("\"Count\" : 2"));
    assert!(server.refused(&["get", "k", "--rev=7"]).contains("has been compacted"));
    // They go on from what they have seen before the restore, be it more than was restored.
    for seen in ["--rev=8", "--rev=1000006"] {
        assert!(server.refused(&["watch", "k", seen]).contains("has been compacted"), "{seen}");
    }
}

/// A write and a compaction above [`BUMP`], and the hash of what is left.
fn goes_on(ctl: impl Fn(&[&str]) -> String) -> String {
    assert!(ctl(&["put", "k", "4", "-w", "json"]).contains("\"revision\":1000008"));
    ctl(&["compaction", "1000008", "--physical"]);
    hash(&ctl(&["endpoint", "hashkv"]))
}

/// The record that it leaves was refused, finished compaction or not; and what rusd had itself could not be restored so.
#[test]
fn a_restore_that_bumped_the_revision_is_taken_over_and_can_be_done_by_an_import() {
    let directory = harness::folder();
    let [file, restored] = ["snapshot", "restored"].map(|name| directory.path().join(name));
    let etcd = Etcd::start(&directory.path().join("etcd"));
    fill(&etcd);
    output(&mut etcd.ctl(&["snapshot", "save", file.to_str().unwrap()]));
    drop(etcd);

    restore(&file, &restored, &BUMP);
    let [unfinished, finished, ours] = [(); 3].map(|()| harness::folder());
    let is_taken = |output: Output| {
        let expected = "imported revision 1000007: 2 keys, 1 leases, 1 users\ncompacted at revision 1000007\n";
        assert_eq!(said(&output.stdout), expected, "{}", said(&output.stderr));
    };
    is_taken(import(&restored, &unfinished.path().join("data")));
    is_taken(import_with(&file, &ours.path().join("data"), &BUMP));
    // Its first start does what is to be compacted.
    let etcd = Etcd::start(&restored);
    let before = hash(&output(&mut etcd.ctl(&["endpoint", "hashkv"])));
    etcd.stop();
    is_taken(import(&restored, &finished.path().join("data")));

    let etcd = Etcd::start(&restored);
    let after = goes_on(|arguments| output(&mut etcd.ctl(arguments)));
    drop(etcd);
    for folder in [unfinished, finished, ours] {
        let server = Rusd::start_on(folder, &[]);
        is_bumped(&server, &before);
        let server = server.restart();
        is_bumped(&server, &before);
        assert_eq!(goes_on(|arguments| server.etcdctl(arguments)), after);
        // And etcd takes it back.
        let [back, again] = ["back", "again"].map(|name| server.directory().join(name));
        server.etcdctl(&["snapshot", "save", back.to_str().unwrap()]);
        restore(&back, &again, &[]);
        let etcd = Etcd::start(&again);
        assert_eq!(hash(&output(&mut etcd.ctl(&["endpoint", "hashkv"]))), after);
    }
}

/// As etcdutl has it; and what is asked for in vain makes nothing.
#[test]
fn a_bump_is_for_imports_and_compacts() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    for flags in [&BUMP[..1], &BUMP[1..]] {
        let output = import_with(&directory.path().join("nothing"), &data, flags);
        let told = said(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("--mark-compacted"), "{told}");
    }
    let output = at_start(&data, &BUMP);
    assert!(said(&output.stderr).contains("is not a flag of etcd 3.7"), "{}", said(&output.stderr));
    assert!(!data.exists());
}

/// It printed that this is no source, and failed.
#[test]
fn an_import_that_is_asked_for_help_prints_its_own() {
    for arguments in [&["import", "--help"][..], &["import", "snapshot", "-h"]] {
        let output = rusd().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", said(&output.stderr));
        let help = said(&output.stdout);
        for part in
            ["rusd import SOURCE", "--data-dir NEW", "--bump-revision", "--mark-compacted", "--initial-cluster "]
        {
            assert!(help.contains(part), "{part}: {help}");
        }
        assert!(!help.contains("--listen-client-urls"), "{help}");
    }
}

#[test]
fn what_a_killed_etcd_had_only_in_its_log_is_not_left_behind() {
    let directory = harness::folder();
    let theirs = directory.path().join("etcd");
    // What is put goes into the log at once, and into the database an hour later.
    let etcd = Etcd::start_with(&theirs, &["--backend-batch-interval=1h"]);
    output(&mut etcd.ctl(&["put", "k", "v"]));
    drop(etcd);
    let output = import(&theirs, &directory.path().join("data"));
    assert!(said(&output.stderr).contains("start it there once and stop it gently"), "{}", said(&output.stderr));
    let etcd = Etcd::start(&theirs);
    etcd.stop();
    assert!(import(&theirs, &directory.path().join("data")).status.success());
}

/// How much of its log was committed an etcd that is alone writes down with the next entry only, so the log of a killed one never says it of the
/// last one; but at its next start it has that, and whoever wrote it was told so.
#[test]
fn the_last_write_of_a_killed_etcd_is_not_left_behind() {
    let directory = harness::folder();
    let (theirs, ours) = (directory.path().join("etcd"), directory.path().join("data"));
    let etcd = Etcd::start_with(&theirs, &["--backend-batch-interval=1h"]);
    output(&mut etcd.ctl(&["put", "k", "v"]));
    // Now the database has everything so far.
    output(&mut etcd.ctl(&["defrag"]));
    output(&mut etcd.ctl(&["put", "last", "acknowledged"]));
    drop(etcd);
    let is_refused = |output: Output| {
        let told = said(&output.stderr);
        assert!(told.contains("etcd was killed") && told.contains("start it there once and stop it gently"), "{told}");
        assert_eq!(output.status.code(), Some(1));
    };
    is_refused(import(&theirs, &ours));
    is_refused(at_start(&theirs, &["--import-in-place"]));
    let etcd = Etcd::start(&theirs);
    assert_eq!(output(&mut etcd.ctl(&["get", "last", "--print-value-only"])), "acknowledged\n");
    etcd.stop();
    let imported = import(&theirs, &ours);
    assert!(said(&imported.stdout).contains("imported revision 3: 2 keys"), "{}", said(&imported.stderr));
}

/// It was refused, but as if the data directory were not there; and with `--wal-dir` a start in its place lost sight of its own log.
#[test]
fn a_log_that_etcd_had_elsewhere_is_asked_for_and_can_be_elsewhere_again() {
    let directory = harness::folder();
    let (data, log) = (directory.path().join("data"), directory.path().join("log"));
    let (at_home, wal_dir) = (data.join("member/wal"), format!("--wal-dir={}", log.display()));
    let etcd = Etcd::start_with(&data, &[&wal_dir]);
    output(&mut etcd.ctl(&["put", "k", "v"]));
    etcd.stop();
    let imported = import(&data, &directory.path().join("other"));
    let told = said(&imported.stderr);
    let expected = format!(
        "{}: No such file or directory (os error 2); etcd's log is looked for in member/wal",
        at_home.display()
    );
    assert!(told.contains(&expected) && !imported.status.success(), "{told}");
    let told = said(&at_start(&data, &["--import-in-place", &wal_dir]).stderr);
    assert!(told.contains("start once without --wal-dir"), "{told}");
    // As it was told.
    std::fs::rename(&log, &at_home).unwrap();
    let server = Rusd::start_on(directory, &["--import-in-place"]);
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
    let (directory, mut flags) = server.kill();
    std::fs::rename(&at_home, &log).unwrap();
    flags.push(wal_dir);
    let server = Rusd::spawn(directory, flags).ready();
    assert_eq!(server.etcdctl(&["get", "k", "--print-value-only"]), "v\n");
}

#[test]
fn what_is_no_source_is_told() {
    let directory = harness::folder();
    let output = import(&directory.path().join("nothing"), &directory.path().join("data"));
    assert!(said(&output.stderr).contains("name a data directory of etcd"), "{}", said(&output.stderr));
    let output = rusd().args(["import", "a", "b"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// One step, with everything that etcd wrote kept; and the flag may stay.
#[test]
fn what_etcd_left_is_taken_over_in_its_place_when_told_so() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    let etcd = Etcd::start(&data);
    let before = fill(&etcd);
    etcd.stop();
    let database = std::fs::read(data.join("member/snap/db")).unwrap();
    let of_two = "--initial-cluster=default=http://127.0.0.1:1,other=http://127.0.0.1:2";
    let told = said(&at_start(&data, &["--import-in-place", of_two]).stderr);
    assert!(told.contains("--import-in-place: is for a group of one member"), "{told}");
    let server = Rusd::start_on(directory, &["--import-in-place"]);
    is_there(&server, &before);
    let kept = server.directory().join("data/member.etcd/snap/db");
    assert_eq!(std::fs::read(&kept).unwrap(), database);
    assert!(!server.directory().join("data/import-in-place").exists());
    // Also where members were added since, and the flags name them.
    let (directory, mut flags) = server.kill();
    flags.push(of_two.into());
    let server = Rusd::spawn(directory, flags).ready();
    assert_eq!(server.etcdctl(&["--user=root:secret", "get", "leased", "--print-value-only"]), "v\n");
}

/// Killed at any moment, a start goes on where it was: before they change places with etcd's data, behind it with its own.
#[test]
fn an_import_in_place_that_was_killed_goes_on() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    let etcd = Etcd::start(&data);
    let before = fill(&etcd);
    etcd.stop();
    // Half of a new member.
    std::fs::create_dir_all(data.join("import-in-place/member/wal")).unwrap();
    std::fs::write(data.join("import-in-place/member/wal/00000000000000000001.wal"), "half").unwrap();
    let server = Rusd::start_on(directory, &["--import-in-place"]);
    assert_eq!(hash(&server.etcdctl(&["endpoint", "hashkv"])), before);
    let (directory, flags) = server.kill();
    // They have changed places, and nothing more.
    let data = directory.path().join("data");
    std::fs::create_dir(data.join("import-in-place")).unwrap();
    std::fs::rename(data.join("member.etcd"), data.join("import-in-place/member")).unwrap();
    let server = Rusd::spawn(directory, flags).ready();
    is_there(&server, &before);
    assert!(server.directory().join("data/member.etcd/snap/db").exists());
}

/// It was taken for etcd's: rusd's own advice failed, or founded an empty store in the place of the data.
#[test]
fn an_etcd_that_was_started_on_rusds_data_is_named_and_nothing_is_imported() {
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "k", "v"]);
    let (directory, _) = server.kill();
    let data = directory.path().join("data");
    let mut etcd = Command::new(peer("etcd", "etcd"));
    etcd.arg("--data-dir").arg(&data).args(CLIENT_URLS).arg("--listen-peer-urls=http://127.0.0.1:0");
    assert!(!etcd.output().unwrap().status.success());
    let left = data.join("member/snap/db");
    assert!(left.exists(), "etcd has left nothing");
    for flags in [&[][..], &["--import-in-place"]] {
        let refused = at_start(&data, flags);
        let stderr = said(&refused.stderr);
        assert!(stderr.contains(&format!("nothing of rusd's is lost; remove {}", left.display())), "{stderr}");
        assert!(!data.join("member.etcd").exists());
    }
    std::fs::remove_file(left).unwrap();
    assert_eq!(Rusd::start_on(directory, &[]).etcdctl(&["get", "k", "--print-value-only"]), "v\n");
}
