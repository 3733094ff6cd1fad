//! A directory that cannot be used is refused with one line that says what to do.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use super::*;

/// The last line that a server says which does not start.
fn refusal(mut command: Command, data: &Path) -> String {
    let output = command.args(["--server-port", "0", "--data-dir"]).arg(data).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("block-node: ")).collect();
    assert_eq!(errors.len(), 1, "{said}");
    let named = "block-node: --data-dir (--files-recent-live-root-path): ";
    errors[0].strip_prefix(named).expect("the flag is named, by both names").to_owned()
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_what_to_do() {
    let folder = harness::folder();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("file"), "x").unwrap();
    for (name, holds) in [("rusd", "member.json"), ("java", "000")] {
        std::fs::create_dir_all(path(name).join(holds)).unwrap();
    }
    let shown = |name: &str| path(name).display().to_string();
    for (name, said) in [
        ("file", format!("{} is a file: name a directory, or remove it", shown("file"))),
        (
            "file/below/it",
            format!(
                "{} cannot be made, since {} is a file: name another directory, or remove it",
                shown("file/below/it"),
                shown("file")
            ),
        ),
        (
            "rusd",
            format!(
                "{} holds `member.json` and no blocks of this node: name an empty directory, or one that is not there yet",
                shown("rusd")
            ),
        ),
        (
            "java",
            format!(
                "{0} seems to hold blocks of the Java node (`000`): name an empty directory, and take them over with `block-node import {0}`",
                shown("java")
            ),
        ),
    ] {
        assert_eq!(refusal(Command::new(PROGRAM), &path(name)), said);
    }
    assert_eq!(std::fs::read_dir(path("rusd")).unwrap().count(), 1, "nothing was put there");
    let verify = Command::new(PROGRAM).args(["verify", "--data-dir"]).arg(path("none")).output().unwrap();
    let said = String::from_utf8(verify.stderr).unwrap();
    assert!(
        !verify.status.success() && said.contains("does not exist: name the directory of a node that has run"),
        "{said}"
    );
    assert!(!path("none").exists(), "it is not made to be verified");
    for (name, remedy) in [
        ("rusd", "name the directory of a node that has run".to_owned()),
        ("java", format!("take them over with `block-node import {}`", shown("java"))),
    ] {
        let mut export = Command::new(PROGRAM);
        let output = export.args(["export", "--data-dir"]).arg(path(name)).arg(path("out")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.trim_end().ends_with(&remedy) && !said.contains("empty directory"), "{said}");
    }
}

#[test]
fn a_directory_that_others_own_or_another_process_uses_is_refused_with_what_to_do() {
    let folder = harness::folder();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(folder.path(), 0o755);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    mode(&data, 0o555);
    let mut command = Command::new(PROGRAM);
    if rustix::process::geteuid().is_root() {
        // Whom modes do not bind becomes somebody else, with a program that everybody may run.
        let program = folder.path().join("block-node");
        std::fs::copy(PROGRAM, &program).unwrap();
        mode(&program, 0o755);
        command = Command::new(program);
        command.uid(65_534).gid(65_534).current_dir(folder.path());
    }
    let said = refusal(command, &data);
    assert!(said.contains("cannot be written to: Permission denied") && said.contains("(chown)"), "{said}");
    mode(&data, 0o700);
    let _server = Server::start(&data, &[]);
    let said = refusal(Command::new(PROGRAM), &data);
    assert!(said.ends_with("is used by another process: stop that first, or name another directory"), "{said}");
}
