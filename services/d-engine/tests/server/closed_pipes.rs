//! Commands whose output nobody reads any more, as behind `| head -1`: what they have done counts.

use std::fs::File;
use std::io::pipe;
use std::process::{Command, Stdio};

use d_engine_client::ReadLevel;

use crate::group::{Group, PROGRAM};

/// How a command ends whose output goes nowhere, and what it says of errors.
fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let output = Command::new(PROGRAM).args(arguments).stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_command_ends_well_when_nobody_reads_what_it_prints() {
    let group = Group::start(1);
    group.leader().await;
    let directory = harness::folder();
    let backup = directory.path().join("backup").display().to_string();
    let done = (Some(0), String::new());
    assert_eq!(ended(&["--help"]), done);
    assert_eq!(ended(&["--version"]), done);
    let ctl = |arguments: &[&str]| ended(&[&["ctl", "--endpoints", &group.addresses[0]], arguments].concat());
    assert_eq!(ctl(&["status"]), done);
    assert_eq!(ctl(&["put", "k", "v"]), done);
    assert_eq!(ctl(&["get", "k"]), done);
    assert_eq!(ctl(&["delete", "k"]), done);
    assert_eq!(ctl(&["user", "list"]), done);
    assert_eq!(ctl(&["snapshot", "save", &backup]), done);
    assert_eq!(ctl(&["snapshot", "verify", &backup]), done);
    assert_eq!(ended(&["bench", "--endpoints", &group.addresses[0], "--total", "3", "put"]), done);
    let client = group.client().await;
    assert_eq!(client.get_with("k", ReadLevel::Linearizable).await.unwrap().value, None, "it was deleted");
}

#[test]
fn a_mistake_has_its_exit_code_when_nobody_reads_errors_either() {
    for (arguments, code) in [(&["nonsense"][..], 2), (&["ctl", "snapshot", "verify", "/nonexistent"], 1)] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let errors: Stdio = writer.try_clone().unwrap().into();
        let status = Command::new(PROGRAM).args(arguments).stdout(writer).stderr(errors).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_result_that_a_full_disk_does_not_take_is_an_error() {
    let group = Group::start(1);
    group.leader().await;
    let full = File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["ctl", "--endpoints", &group.addresses[0], "status"];
    let output = Command::new(PROGRAM).args(arguments).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("standard output cannot be written")), (Some(1), true), "{said}");
}
