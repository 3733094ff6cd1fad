//! One module for each command, and [`cluster`] for those that ask a cluster.

pub(crate) mod cluster;
pub(crate) mod crds;
pub(crate) mod engines;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod validate;
pub(crate) mod wait;
pub(crate) mod words;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use storebench_core::input::{Input, load};
use storebench_crds::document::FILE_BYTES_MAX;

/// Reads and validates files together. Reads at most one byte more than is allowed of each, so that a huge or endless file
/// costs nothing.
fn read_input(files: &[PathBuf]) -> anyhow::Result<Input> {
    let mut named = Vec::with_capacity(files.len());
    for file in files {
        let mut bytes = Vec::new();
        let limit = FILE_BYTES_MAX as u64 + 1;
        let name = if file.as_os_str() == "-" { "standard input".into() } else { file.display().to_string() };
        if file.as_os_str() == "-" {
            std::io::stdin().take(limit).read_to_end(&mut bytes).context("standard input cannot be read")?;
        } else {
            open(file, &name)?
                .take(limit)
                .read_to_end(&mut bytes)
                .with_context(|| format!("{name}: cannot be read"))?;
        }
        named.push((name, bytes));
    }
    Ok(load(&named)?)
}

fn open(file: &Path, name: &str) -> anyhow::Result<std::fs::File> {
    if file.is_dir() {
        anyhow::bail!("{name}: is a directory: pass its YAML files, such as {name}/*.yaml");
    }
    std::fs::File::open(file).map_err(|error| anyhow::anyhow!("{name}: cannot be opened: {error}"))
}

/// Writes to standard output; a reader that went away (`| head`) is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("standard output cannot be written"),
    }
}
