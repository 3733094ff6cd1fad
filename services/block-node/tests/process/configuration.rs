//! A configuration file, below the environment, below the command line.

use super::*;

/// What a server says that cannot start, with a file that has these lines.
fn refusal(file: &str, environment: &[(&str, &str)], flags: &[&str]) -> (Option<i32>, String) {
    let folder = harness::folder();
    let path = folder.path().join("block-node.toml");
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["--server-port", "0", "--config"]).arg(path).args(flags).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().find(|line| line.starts_with("block-node: ")).unwrap_or_else(|| panic!("{said}"));
    (output.status.code(), last.to_owned())
}

#[test]
fn the_environment_overrides_a_file_and_flags_override_both() {
    let folder = harness::folder();
    // Each is a file, which no server can use: what it says tells which of them counts.
    let [of_file, of_environment, of_flag] = ["file", "environment", "flag"].map(|name| {
        let path = folder.path().join(name);
        std::fs::write(&path, "").unwrap();
        path.to_str().unwrap().to_owned()
    });
    let text = format!("data-dir = {of_file:?}\n");
    let environment = [("FILES_RECENT_LIVE_ROOT_PATH", &*of_environment)];
    for (environment, flags, expected) in [
        (&[][..], &[][..], &of_file),
        (&environment, &[], &of_environment),
        (&environment, &["--data-dir", &of_flag], &of_flag),
        (&[], &["--data-dir", &of_flag], &of_flag),
    ] {
        let (code, said) = refusal(&text, environment, flags);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains(&format!("--data-dir (--files-recent-live-root-path): {expected} is a file")),
            "{expected}: {said}"
        );
    }
}

#[test]
fn a_mistake_in_a_file_is_one_line_that_names_its_own() {
    let (code, said) = refusal("# one\nwire-ear = \"today\"\n", &[], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("block-node.toml: line 2: wire-ear is no flag"), "{said}");
    assert!(said.ends_with("a similar word exists: wire-era"), "{said}");
}

#[test]
fn a_server_runs_with_what_a_file_says() {
    let folder = harness::folder();
    let path = folder.path().join("block-node.toml");
    std::fs::write(&path, "wire-era = \"v0.13\"\n").unwrap();
    let server = Server::start(&folder.path().join("blocks"), &["--config", path.to_str().unwrap()]);
    run(async {
        // NOT_AVAILABLE has another number in that time.
        assert_eq!(get_block(&server, &[0x08, 0]).await.status, 4);
    });
}

#[test]
fn a_token_that_is_not_there_and_a_host_that_is_none_are_told_with_their_flag_at_the_start() {
    let directory = harness::folder();
    for (flags, said) in [
        (["--backfill-token-file", "/nonexistent"], "--backfill-token-file: /nonexistent"),
        (["--server-host", "nonsense.."], "--server-host: cannot listen on"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["--server-port", "0", "--backfill-peers", "127.0.0.1:1", "--data-dir"]).arg(directory.path());
        let mut child = command.args(flags).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}
