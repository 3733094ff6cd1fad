//! Whatever is wrong with a file, the binary answers with exit code 1 and one line that names the file, and starts nothing.
//!
//! The files are those of `operator/core/tests/bad_input.rs`, which also looks at what the line says of each.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/bad_input");
    let entries = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries(directory).flat_map(entries).collect();
    files.sort();
    assert!(files.len() >= 100, "only {} files: were they moved?", files.len());
    files
}

/// What is wrong with how the file was answered.
fn complaint(command: &str, file: &Path) -> Option<String> {
    let scratch = harness::folder();
    // Where a run would put what it starts.
    let data = scratch.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_storebench"))
        .arg(command)
        .arg(file)
        .env("STOREBENCH_DATA_DIR", &data)
        .env("STOREBENCH_PEERS", scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let problems = [
        (output.status.code() != Some(1), "the exit code is not 1"),
        (!stdout.is_empty(), "something was printed"),
        (stderr.lines().count() != 1, "it is not one line"),
        (!stderr.starts_with(&format!("storebench: {}: ", file.display())), "the file is not named"),
        (stderr.trim_end().chars().any(char::is_control), "it can control a terminal"),
        (data.read_dir().unwrap().next().is_some(), "something was started"),
    ];
    let (_, problem) = problems.into_iter().find(|(found, _)| *found)?;
    Some(format!("{command} {}: {problem}: {:?} {stdout}{stderr}", file.display(), output.status))
}

#[test]
fn every_bad_file_is_answered_with_exit_code_1_and_one_line() {
    let files = files();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let complaints: Vec<String> = std::thread::scope(|scope| {
        let of = |files: &[PathBuf]| Vec::from_iter(files.iter().filter_map(|file| complaint("validate", file)));
        let parts = files.chunks(files.len().div_ceil(cores));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || of(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn no_bad_file_is_run() {
    let complaints: Vec<String> = files().iter().step_by(12).filter_map(|file| complaint("run", file)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The check above can fail: a file that is accepted is a complaint.
#[test]
fn a_good_file_would_be_complained_about() {
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples");
    let good = std::fs::read_dir(good).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_file()).unwrap();
    assert!(complaint("validate", &good).unwrap().contains("the exit code is not 1"));
}
