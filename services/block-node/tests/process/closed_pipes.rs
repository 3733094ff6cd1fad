//! Commands whose output nobody reads any more, as behind `| head -1`: what they have done counts.

use std::io::pipe;
use std::process::Stdio;

use super::*;

/// How a command ends whose output goes nowhere, and what it says of errors.
fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let output = Command::new(PROGRAM).args(arguments).stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_command_does_not_panic_when_nobody_reads_what_it_prints() {
    let directory = harness::folder();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [data, java, again] = ["data", "java", "again"].map(path);
    let done = (Some(0), String::new());
    assert_eq!(ended(&["--help"]), done);
    assert_eq!(ended(&["--version"]), done);
    let server = Server::start(data.as_ref(), &[]);
    assert_eq!(ended(&["simulate", "publisher", "--blocks", "5", "--address", &server.address]), done);
    assert_eq!(ended(&["simulate", "consumer", "--start", "0", "--end", "4", "--address", &server.address]), done);
    assert!(server.terminate());
    assert_eq!(ended(&["verify", "--data-dir", &data]), done);
    assert_eq!(ended(&["export", "--data-dir", &data, &java]), done);
    assert_eq!(ended(&["import", "--accept-dummy-proofs", "--data-dir", &again, &java]), done);
    assert_eq!(ended(&["verify", "--data-dir", &again]), done, "what was imported is there");
}

#[test]
fn a_mistake_has_its_exit_code_when_nobody_reads_errors_either() {
    for (arguments, code) in [(&["nonsense"][..], 2), (&["verify", "--data-dir", "/nonexistent"], 1)] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let errors: Stdio = writer.try_clone().unwrap().into();
        let status = Command::new(PROGRAM).args(arguments).stdout(writer).stderr(errors).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_result_that_a_full_disk_does_not_take_is_an_error() {
    let directory = harness::folder();
    let data = directory.path().join("data");
    assert!(Server::start(&data, &[]).terminate());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(PROGRAM).args(["verify", "--data-dir"]).arg(&data).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.contains("standard output cannot be written")), (Some(1), true), "{said}");
}
