//! Real disks that are full, broken or slow: a clear stop, or slow; never wrong.

use std::fs;
use std::process::Command;

use crate::children::Children;

/// Puts until that fails. How many were acknowledged, and the first answer that was another one.
fn put_until_it_ends(children: &Children, max: usize) -> (usize, Option<String>) {
    let mut connection = children.wait_for(1);
    let mut acknowledged = 0;
    while acknowledged < max {
        let answer = connection.ask(&format!("put key{acknowledged} {}", "x".repeat(4_000)));
        match answer.as_deref() {
            Some(answer) if answer.starts_with("ok ") => acknowledged += 1,
            // It has not been elected yet.
            Some("notleader 0") => {}
            _ => return (acknowledged, Some(answer.unwrap_or_default())),
        }
    }
    (acknowledged, None)
}

/// After a start on a disk that is well: what was acknowledged is there.
fn all_are_there(children: &Children, acknowledged: usize) {
    children.start(1);
    let mut connection = children.wait_for(1);
    for number in 0..acknowledged {
        let answer = connection.ask(&format!("get linearizable key{number}")).unwrap();
        assert!(answer.starts_with("value xxx"), "{number} of {acknowledged} is lost: {answer}");
    }
    assert_eq!(put_until_it_ends(children, 3), (3, None));
}

/// A file system in memory, of this size.
struct Mount<'a>(&'a std::path::Path);

impl<'a> Mount<'a> {
    fn new(path: &'a std::path::Path, options: &str) -> Self {
        fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "replog"]).arg(path).status().unwrap();
        assert!(mounted.success());
        Self(path)
    }

    fn resize(&self, options: &str) {
        let mounted = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.0).status().unwrap();
        assert!(mounted.success());
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
#[ignore = "needs root: mounts a small file system"]
fn a_full_disk_is_a_clear_stop_and_nothing_is_lost() {
    let scratch = harness::folder();
    let path = scratch.path().join("small");
    let mount = Mount::new(&path, "size=6m");
    let children = Children::new(&path, 1);
    children.start(1);
    let (acknowledged, end) = put_until_it_ends(&children, 100_000);
    assert!(acknowledged > 0 && end.is_some());
    let (status, log) = children.wait_for_end(1);
    assert!(!status.success());
    assert!(log.contains("No space left on device"), "{log}");
    mount.resize("size=64m");
    all_are_there(&children, acknowledged);
    drop(children);
}

/// Lets the kernel do this to the member's syncs. The member is the child, and strace its grandchild (`-D`): who is killed is the
/// member.
fn strace(inject: &str) -> [&str; 9] {
    ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", inject, "--"]
}

#[test]
#[ignore = "needs strace and the right to trace"]
fn a_failed_sync_is_a_clear_stop_and_nothing_is_lost() {
    let scratch = harness::folder();
    let children = Children::new(scratch.path(), 1);
    children.start_by(1, &strace("inject=fdatasync:error=EIO:when=40+"));
    let (acknowledged, end) = put_until_it_ends(&children, 100_000);
    assert!(acknowledged > 0 && end.is_some());
    let (status, log) = children.wait_for_end(1);
    assert!(!status.success());
    assert!(log.contains("out of service since a sync failed"), "{log}");
    all_are_there(&children, acknowledged);
}

#[test]
#[ignore = "needs strace and the right to trace"]
fn a_slow_disk_is_slow() {
    let scratch = harness::folder();
    let children = Children::new(scratch.path(), 1);
    children.start_by(1, &strace("inject=fdatasync:delay_exit=5000"));
    assert_eq!(put_until_it_ends(&children, 100), (100, None));
    children.kill(1);
    all_are_there(&children, 100);
}

/// A log whose name is not on disk is gone after a power cut, with all that was acknowledged.
#[test]
#[ignore = "needs strace and the right to trace"]
fn names_are_safe_before_anything_is_acknowledged() {
    let scratch = harness::folder();
    let root = scratch.path().canonicalize().unwrap();
    let calls = root.join("calls");
    let children = Children::new(&root, 1);
    let output = calls.to_str().unwrap();
    children.start_by(1, &["strace", "-D", "-f", "-qq", "-y", "-e", "trace=fsync", "-o", output, "--"]);
    assert_eq!(put_until_it_ends(&children, 1), (1, None));
    children.kill(1);
    let calls = fs::read_to_string(&calls).unwrap();
    // The folder above says that there are directories, and these say which files.
    for folder in ["1", "1/wal", "1/snapshots"] {
        assert!(calls.contains(&format!("<{}>", root.join(folder).display())), "{folder}: {calls}");
    }
}
