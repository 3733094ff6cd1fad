//! Logs where people look at them: on a terminal.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Read as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use service_kit::logs;

const CHILD: &str = "KIT_TEST_LOGS";

/// What this test's own executable logs on a terminal.
fn on_a_terminal(test: &str, variables: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let theirs = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").env_remove("NO_COLOR").envs(variables.iter().copied());
    let status = child.stderr(File::from(theirs)).output().unwrap().status;
    assert!(status.success(), "{status}");
    drop(child);
    let mut said = Vec::new();
    // A terminal that nobody writes to any more ends with an error.
    let _ = File::from(terminal).read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

fn log_if_asked() {
    if std::env::var_os(CHILD).is_some() {
        logs::start(logs::Format::Text, tracing::Level::INFO);
        tracing::info!("serving clients");
        std::process::exit(0);
    }
}

#[test]
fn a_line_on_a_terminal_has_colours_and_nothing_stands_before_it() {
    log_if_asked();
    let said = on_a_terminal("a_line_on_a_terminal_has_colours_and_nothing_stands_before_it", &[]);
    assert!(said.contains("serving clients") && said.contains("\x1b[32m INFO"), "{said:?}");
    assert_eq!(said.lines().count(), 1, "{said:?}");
}

#[test]
fn a_line_has_no_colours_where_they_are_not_wanted() {
    log_if_asked();
    let said = on_a_terminal("a_line_has_no_colours_where_they_are_not_wanted", &[("NO_COLOR", "1")]);
    assert!(said.contains("INFO") && said.contains("serving clients") && !said.contains('\x1b'), "{said:?}");
}
