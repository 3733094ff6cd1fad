//! Commands whose output nobody reads any more, as behind `| head -1`.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::pipe;
use std::process::Stdio;
use support::walsync;

#[test]
fn a_command_ends_well_when_nobody_reads_what_it_prints() {
    let folder = harness::folder();
    let place = format!("file://{}", folder.path().display());
    let explain = ["explain", "/nowhere/app.db", "--to", &place];
    for arguments in [&["--help"][..], &["--version"], &explain] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = walsync().args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*said), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_mistake_has_its_exit_code_when_nobody_reads_errors_either() {
    for (arguments, code) in [(&["nonsense"][..], 2), (&["verify", "file:///nowhere/app.db"], 1)] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let errors: Stdio = writer.try_clone().unwrap().into();
        let status = walsync().args(arguments).stdout(writer).stderr(errors).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
