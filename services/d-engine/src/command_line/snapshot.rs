//! `d-engine ctl snapshot`: all of a group's data in a file, whole or not at all, and whether a file is that.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use d_engine_client::grpc::GrpcError;
use d_engine_client::wire;
use service_kit::console;
use service_kit::directory::sync_name;

use super::access::{Access, Problem};
use crate::state::{Backup, verify_backup};

/// What is done.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Keeps all data in a file, as of a moment after this is called.
    Save {
        /// The file; made, or replaced when all of it is there.
        file: PathBuf,
    },
    /// Says whether a file is whole and as it was written, and what it has. Asks no member.
    Verify {
        /// The file.
        file: PathBuf,
    },
}

pub(super) async fn run(access: &Access, endpoints: &[String], verb: Verb) -> anyhow::Result<()> {
    let (file, backup) = match verb {
        Verb::Verify { file } => {
            let backup = verify_backup(&file).with_context(|| file.display().to_string())?;
            (file, backup)
        }
        Verb::Save { file } => {
            let backup = save(access, endpoints, &file).await?;
            (file, backup)
        }
    };
    let Backup { index, keys, bytes, checksum } = backup;
    console::print(format_args!(
        "{}: index {index}, keys {keys}, bytes {bytes}, checksum {checksum:08x}\n",
        file.display()
    ))?;
    Ok(())
}

/// Of the first member that has it.
async fn save(access: &Access, endpoints: &[String], file: &Path) -> anyhow::Result<Backup> {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let mut problem = Problem::default();
    for endpoint in endpoints {
        match fetch(access, endpoint, &part).await {
            Ok(Ok(())) => {
                let backup = verify_backup(&part).with_context(|| part.display().to_string())?;
                fs::rename(&part, file).with_context(|| file.display().to_string())?;
                sync_name(file).with_context(|| file.display().to_string())?;
                return Ok(backup);
            }
            Ok(Err(error)) => problem.met(endpoint, &error),
            Err(error) => problem.said(error),
        }
    }
    // Whatever has come of it is of no use.
    let _ = fs::remove_file(&part);
    Err(problem.into_error())
}

/// Has a member write it there. Within: what was met there; else the file cannot be written.
async fn fetch(access: &Access, endpoint: &str, part: &Path) -> anyhow::Result<Result<(), GrpcError>> {
    let opened = async {
        let channel = access.channel(endpoint).await?;
        channel.stream("/storebench.dengine.v1.Store/Snapshot", &wire::SnapshotRequest {}, true).await
    };
    let (_questions, mut pieces) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    let mut out = create_private(part).with_context(|| part.display().to_string())?;
    loop {
        match pieces.next().await {
            Ok(Some(wire::SnapshotPiece { data })) => {
                out.write_all(&data).with_context(|| part.display().to_string())?;
            }
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        }
    }
    out.sync_all().with_context(|| part.display().to_string())?;
    Ok(Ok(()))
}

/// A new file that nobody else may read: it has all data, and the hashes of all passwords. One that is there, half done, may be readable.
fn create_private(file: &Path) -> std::io::Result<File> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}
