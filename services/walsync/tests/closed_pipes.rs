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

#[test]
fn who_asks_a_replicator_at_work_ends_well_when_nobody_reads_its_answer() {
    let folder = harness::folder();
    let (database, port) = (folder.path().join("app.db"), harness::free_port());
    let listen = format!("--listen=http://127.0.0.1:{port}");
    let application = support::Application::start(&database, "CREATE TABLE t(v)");
    let mut watch = walsync();
    watch.arg("watch").arg(&database).arg("--to").arg(folder.path().join("store")).arg(&listen);
    let mut watching = support::Walsync::start(watch, &folder.path().join("log"));
    watching.wait_durable(1);
    for arguments in [&["status"][..], &["sync", database.to_str().unwrap()]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = walsync().args(arguments).arg(&listen).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*said), (Some(0), ""), "{arguments:?}");
    }
    watching.stop();
    application.close();
}

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}
