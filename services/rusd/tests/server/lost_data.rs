//! A member that has lost what it acknowledged does not come back as if nothing had been; and data are their user's alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::group::{flags_of_founders_and_another, flags_of_three, knows_a_leader};
use crate::process::{Rusd, Starting};

#[test]
fn a_member_whose_log_is_gone_does_not_begin_anew() {
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "a", "1"]);
    let (directory, flags) = server.kill();
    let log = directory.path().join("data/member/wal");
    fs::rename(&log, directory.path().join("elsewhere")).unwrap();
    assert!(Rusd::spawn(directory, flags).refusal().contains("had a log, and it is gone"));
}

/// As a file system leaves it whose names came back without their bytes: it was taken for a log that was never begun.
#[test]
fn a_member_whose_log_has_lost_its_content_does_not_begin_anew() {
    let empty = |_: usize| Vec::new();
    let zeros = |length| vec![0; length];
    for (emptied, more) in [(&empty as &dyn Fn(usize) -> Vec<u8>, ""), (&zeros, ""), (&zeros, "--force-new-cluster")] {
        let server = Rusd::start(&[]);
        server.etcdctl(&["put", "a", "1"]);
        let (directory, mut flags) = server.kill();
        for file in fs::read_dir(directory.path().join("data/member/wal")).unwrap() {
            let file = file.unwrap();
            fs::write(file.path(), emptied(file.metadata().unwrap().len() as usize)).unwrap();
        }
        flags.extend((!more.is_empty()).then(|| more.to_owned()));
        let refusal = Rusd::spawn(directory, flags).refusal();
        assert!(refusal.contains("had a log, and it is gone"), "{refusal}");
    }
}

/// C is gone; A and B acknowledge; B loses its directory: A says so as soon as B starts.
#[test]
fn a_member_whose_directory_is_empty_is_refused_by_those_who_know_it() {
    let flags = flags_of_three();
    let started: Vec<_> = flags.iter().map(|flags| Rusd::spawn(harness::folder(), flags.clone())).collect();
    let mut members: Vec<_> = started.into_iter().map(Starting::ready).collect();
    members.pop().unwrap().kill();
    members[0].etcdctl(&["put", "a", "1"]);
    let (_, flags) = members.pop().unwrap().kill();
    // Only a member that knows can tell; it has no majority, and needs none.
    let refusal = Rusd::spawn(harness::folder(), flags).refusal();
    assert!(refusal.contains("has already been bootstrapped, says http://127.0.0.1:"), "{refusal}");
}

/// Stop C; A and B acknowledge; kill both; B loses its directory, and starts while nobody answers. It was asked at its start alone whether
/// somebody knows it: when C went on, B and C elected without what A alone had.
#[test]
fn a_member_whose_directory_is_empty_is_refused_by_one_who_answers_late() {
    let started: Vec<_> = flags_of_three().into_iter().map(|flags| Rusd::spawn(harness::folder(), flags)).collect();
    let mut members: Vec<_> = started.into_iter().map(Starting::ready).collect();
    let late = members.pop().unwrap();
    let knows_all = || late.etcdctl(&["member", "list"]).matches(", started, ").count() == 3;
    harness::until("the third knows that all have served", knows_all);
    late.pause(true);
    // It may have led: who puts meanwhile hears so.
    harness::until("both acknowledge", || members[0].command(&["put", "a", "1"]).output().unwrap().status.success());
    let (_, flags) = members.pop().unwrap().kill();
    members.pop().unwrap().kill();
    let mut emptied = Rusd::spawn(harness::folder(), flags);
    // Another start, too: that nobody answered at the first one is no answer.
    for _ in 0..2 {
        let log = emptied.directory().join("data/member/wal");
        harness::until("it has begun a log", || log.read_dir().is_ok_and(|files| files.count() > 0));
        let (directory, flags) = emptied.kill();
        emptied = Rusd::spawn(directory, flags);
    }
    late.pause(false);
    let refusal = emptied.refusal();
    assert!(refusal.contains("has already been bootstrapped, says http://127.0.0.1:"), "{refusal}");
}

/// As etcd lets it: what nobody knows is new.
#[test]
fn a_founder_that_starts_for_the_first_time_long_after_the_others_is_welcome() {
    let mut flags = flags_of_three();
    let last = flags.pop().unwrap();
    let started: Vec<_> = flags.into_iter().map(|flags| Rusd::spawn(harness::folder(), flags)).collect();
    let members: Vec<_> = started.into_iter().map(Starting::ready).collect();
    members[0].etcdctl(&["put", "a", "1"]);
    // And where those who began without it begin again: they know at once what they know.
    let killed: Vec<_> = members.into_iter().map(Rusd::kill).collect();
    let again: Vec<_> = killed.into_iter().map(|(directory, flags)| Rusd::spawn(directory, flags)).collect();
    let mut members: Vec<_> = again.into_iter().map(Starting::ready).collect();
    let last = Rusd::spawn(harness::folder(), last).ready();
    assert_eq!(last.etcdctl(&["get", "a", "--print-value-only"]).trim(), "1");
    // It takes the place of one of them, over a start of its own as well.
    members.pop().unwrap().kill();
    let last = last.restart();
    last.etcdctl(&["put", "a", "2"]);
}

/// It was refused as one that had lost its log, although nobody had sent it anything yet.
#[test]
fn a_member_that_joined_and_heard_nothing_yet_starts_again() {
    let (founders, joins) = flags_of_founders_and_another(2);
    let started: Vec<_> = founders.iter().map(|flags| Rusd::spawn(harness::folder(), flags.clone())).collect();
    let mut members: Vec<_> = started.into_iter().map(Starting::ready).collect();
    let url = joins.iter().find_map(|flag| flag.strip_prefix("--initial-advertise-peer-urls=")).unwrap();
    members[0].etcdctl(&["member", "add", "other", "--learner", &format!("--peer-urls={url}")]);
    harness::until("all know it", || members[1].etcdctl(&["member", "list"]).contains(url));
    // Without a majority nobody leads, and who has just joined is sent nothing.
    let (directory, flags) = members.remove(0).kill();
    harness::until("nobody leads", || !knows_a_leader(&members[0]));
    let mut joined = Rusd::spawn(harness::folder(), joins);
    for _ in 0..2 {
        let log = joined.directory().join("data/member/wal");
        harness::until("it has a log", || log.read_dir().is_ok_and(|files| files.count() > 0));
        // What it does with that is done by then, most of the time.
        thread::sleep(Duration::from_millis(300));
        let (directory, flags) = joined.kill();
        joined = Rusd::spawn(directory, flags);
    }
    let _back = Rusd::spawn(directory, flags).ready();
    joined.ready();
}

#[test]
fn a_file_as_data_directory_is_refused_by_its_name_with_what_to_do() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    fs::write(&data, "").unwrap();
    let refusal = Rusd::spawn(directory, Vec::new()).refusal();
    let expected = format!("--data-dir: {} is a file: name a directory, or remove it", data.display());
    assert!(refusal.contains(&expected), "{refusal}");
}

#[test]
fn data_are_their_users_alone() {
    fn look(path: &Path) {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| look(&entry.unwrap().path()));
        }
    }
    let server = Rusd::start(&[]);
    server.etcdctl(&["put", "a", "1"]);
    look(&server.directory().join("data"));
}

/// A directory whose name is not on disk is gone after a power cut, with the log that is in it.
#[test]
#[ignore = "needs strace and the right to trace"]
fn the_names_of_directories_are_safe_before_it_serves() {
    let directory = harness::folder();
    let root = directory.path().canonicalize().unwrap();
    let calls = root.join("calls");
    let before = ["-D", "-f", "-qq", "-y", "-e", "trace=fsync", "-o", calls.to_str().unwrap(), "--"];
    let _server = Rusd::start_by("/usr/bin/strace", &before, directory);
    let calls = fs::read_to_string(&calls).unwrap();
    for above in [root.clone(), root.join("data"), root.join("data/member")] {
        assert!(calls.contains(&format!("<{}>", above.display())), "{above:?}: {calls}");
    }
}
