//! One module for each command, and [`cluster`] and [`cluster_record`] for those that ask a cluster.

pub(crate) mod across;
pub(crate) mod cluster;
mod cluster_record;
pub(crate) mod crds;
pub(crate) mod engines;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod init;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod suite;
pub(crate) mod validate;
pub(crate) mod wait;
pub(crate) mod words;

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use storebench_core::equality::unranked;
use storebench_core::input::{Input, InputErrors, load};
use storebench_core::validate::{ValidatedRun, doubtful_gates, foregone_gates};
use storebench_crds::document::FILE_BYTES_MAX;

/// Reads and validates files together.
fn read_input(files: &[PathBuf]) -> anyhow::Result<Input> {
    Ok(load_from_here(&files.iter().map(|file| read_file(file)).collect::<anyhow::Result<Vec<_>>>()?)?)
}

/// Validates files together whose names are meant from the current folder. Where that cannot be told, paths stay as they were written.
fn load_from_here(files: &[(String, Vec<u8>)]) -> Result<Input, InputErrors> {
    load(files, &std::env::current_dir().unwrap_or_default())
}

/// What a run that is valid may not tell, a line each: whoever checks it is told, and whoever starts it.
fn warnings(run: &ValidatedRun) -> Vec<String> {
    [unranked(run), foregone_gates(run), doubtful_gates(run), Vec::from_iter(run.few_trials())].concat()
}

/// A file with its name. Reads at most one byte more than is allowed, so that a huge or endless file costs nothing.
fn read_file(file: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    if file.as_os_str() == "-" {
        std::io::stdin().take(limit).read_to_end(&mut bytes).context("standard input cannot be read")?;
        return Ok(("standard input".into(), bytes));
    }
    let name = file.display().to_string();
    if file.is_dir() {
        anyhow::bail!("{name}: is a directory: pass its YAML files, such as {name}/*.yaml");
    }
    let opened = std::fs::File::open(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow::anyhow!("{name}: is not there: name a file that is (a path is meant from the current folder)")
        }
        _ => anyhow::anyhow!("{name}: cannot be opened: {error}"),
    })?;
    opened.take(limit).read_to_end(&mut bytes).with_context(|| format!("{name}: cannot be read"))?;
    Ok((name, bytes))
}
