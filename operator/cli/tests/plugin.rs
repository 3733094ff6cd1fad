//! `kubectl storebench`: kubectl runs whatever is called `kubectl-storebench`, and that calls itself by what users type.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod finished;

use std::process::Command;

use finished::Finished;

/// What the program says when it is called by a name.
fn said(name: &str, arguments: &[&str]) -> Finished {
    let folder = harness::folder();
    let program = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_storebench"), &program).unwrap();
    Finished::of(Command::new(program).args(arguments).output().unwrap())
}

#[test]
fn a_plugin_of_kubectl_names_itself_as_users_type_it() {
    let help = said("kubectl-storebench", &["--help"]);
    assert_eq!(help.code, Some(0), "{}", help.stderr);
    assert!(help.stdout.contains("Usage: kubectl storebench <COMMAND>"), "{}", help.stdout);
    assert!(help.stdout.contains("Start here: kubectl storebench engines"), "{}", help.stdout);
    let help = said("kubectl-storebench", &["wait", "--help"]).stdout;
    assert!(help.contains("Usage: kubectl storebench wait [OPTIONS] <RUN>"), "{help}");
}

#[test]
fn a_mistake_is_answered_with_the_usage_that_was_meant() {
    let refused = said("kubectl-storebench", &["wait"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("Usage: kubectl storebench wait"), "{}", refused.stderr);
}

#[test]
fn by_its_own_name_nothing_is_different() {
    let help = said("storebench", &["--help"]).stdout;
    assert!(help.contains("Usage: storebench <COMMAND>") && !help.contains("kubectl storebench"), "{help}");
    assert_eq!(said("kubectl-storebench", &["--version"]).stdout, said("storebench", &["--version"]).stdout);
}
