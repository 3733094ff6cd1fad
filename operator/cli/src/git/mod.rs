//! The repository around the current directory, through the `git` program: places in it that can be read ([`place`]), and branches on which
//! runs are kept ([`branch`]). Neither looks at a working tree or an index, so that no checkout changes.

pub(crate) mod branch;
pub(crate) mod place;

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};
use storebench_crds::line::one_line;

/// What git prints; within, where it refuses, what it says of that. Errors: it cannot be started.
fn ask(arguments: &[&str], input: &[u8]) -> anyhow::Result<Result<Vec<u8>, String>> {
    let mut command = Command::new("git");
    command.args(arguments).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("git is not on PATH: install it, or name a folder"),
        _ => anyhow!("git cannot be started: {error}"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read all of it says why.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().context("git cannot be waited for")?;
    if output.status.success() {
        return Ok(Ok(output.stdout));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let fatal = said.lines().find_map(|line| line.strip_prefix("fatal: "));
    Ok(Err(one_line(fatal.or_else(|| said.lines().last()).unwrap_or("it refused"))))
}

/// What git prints; that it refuses is an error.
fn must(arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    ask(arguments, input)?.map_err(|said| anyhow!("git {}: {said}", arguments.first().copied().unwrap_or_default()))
}

/// What is printed as one line.
fn line(printed: &[u8]) -> String {
    String::from_utf8_lossy(printed).trim().to_owned()
}

/// Where there is no repository, nothing can be looked for.
fn check_repository() -> anyhow::Result<()> {
    if let Err(said) = ask(&["rev-parse", "--git-dir"], b"")? {
        bail!("there is no Git repository around the current directory ({said}): go into a checkout");
    }
    Ok(())
}

/// What `git ls-tree -z` says of one name.
struct Entry {
    mode: String,
    kind: String,
    object: String,
    /// Without a coding that Git would know of.
    path: Vec<u8>,
}

fn entries(listed: &[u8]) -> impl Iterator<Item = Entry> {
    listed.split(|byte| *byte == 0).filter_map(|line| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ').map(str::to_owned);
        let (mode, kind, object) = (words.next()?, words.next()?, words.next()?);
        Some(Entry { mode, kind, object, path: line[tab + 1..].to_vec() })
    })
}
