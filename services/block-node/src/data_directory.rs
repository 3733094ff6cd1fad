//! The directory of a node's blocks: opened once, for one process, or refused with one line that says what to do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use service_kit::directory::{file_in_place_of, make_private};
use wal::files::RealDirectory;

use crate::store;

/// What file systems put into every directory that one is mounted on.
const OF_FILE_SYSTEMS: &str = "lost+found";
/// What the flag of a directory is called, as people type it and as the Java node has it.
pub const DATA_DIR: &str = "--data-dir (--files-recent-live-root-path)";
/// Of [`RealDirectory`].
const LOCK: &str = "lock";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// It must be there, and is not.
    #[error("{0} does not exist: name the directory of a node that has run")]
    Missing(PathBuf),
    /// It is something else.
    #[error("{0} is a file: name a directory, or remove it")]
    File(PathBuf),
    /// One above it is something else.
    #[error("{0} cannot be made, since {1} is a file: name another directory, or remove it")]
    BelowFile(PathBuf, PathBuf),
    /// It cannot be written.
    #[error(
        "{0} cannot be written to: {1}; it must belong to the user that this runs as (chown), on a file system that is not mounted read-only"
    )]
    Unwritable(PathBuf, io::Error),
    /// Somebody has it.
    #[error("{0} is used by another process: stop that first, or name another directory")]
    InUse(PathBuf),
    /// It is somebody else's.
    #[error("{0} holds `{1}` and no blocks of this node: name an empty directory, or one that is not there yet")]
    Foreign(PathBuf, String),
    /// It is the Java node's.
    #[error(
        "{0} seems to hold blocks of the Java node (`{1}`): name an empty directory, and take them over with `block-node import {0}`"
    )]
    OfJavaNode(PathBuf, String),
    /// It is somebody else's, and blocks are to be read from it.
    #[error("{0} holds `{1}` and no blocks of this node: name the directory of a node that has run")]
    ForeignSource(PathBuf, String),
    /// It is the Java node's, and blocks are to be read from it.
    #[error("{0} seems to hold blocks of the Java node (`{1}`): take them over with `block-node import {0}`")]
    SourceOfJavaNode(PathBuf, String),
    /// Anything else.
    #[error("{0}: {1}")]
    Other(PathBuf, io::Error),
}

/// Opens the directory of a server; it is made where it does not exist, for this user alone.
pub fn open(path: &Path) -> Result<RealDirectory, DataDirectoryError> {
    look(path)?;
    make_private(path).map_err(|error| told(path, error))?;
    lock(path)
}

/// Opens a directory that must be there.
pub fn open_existing(path: &Path) -> Result<RealDirectory, DataDirectoryError> {
    if !path.exists() {
        return Err(DataDirectoryError::Missing(path.to_owned()));
    }
    look(path).map_err(|error| match error {
        DataDirectoryError::Foreign(path, name) => DataDirectoryError::ForeignSource(path, name),
        DataDirectoryError::OfJavaNode(path, name) => DataDirectoryError::SourceOfJavaNode(path, name),
        other => other,
    })?;
    lock(path)
}

fn lock(path: &Path) -> Result<RealDirectory, DataDirectoryError> {
    RealDirectory::open(path).map_err(|error| told(path, error))
}

/// Refuses what is no directory, and one that is somebody else's.
fn look(path: &Path) -> Result<(), DataDirectoryError> {
    if let Some(above) = file_in_place_of(path) {
        return Err(match above == path {
            true => DataDirectoryError::File(path.to_owned()),
            false => DataDirectoryError::BelowFile(path.to_owned(), above.to_owned()),
        });
    }
    let names = match fs::read_dir(path) {
        Ok(entries) => entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(told(path, error)),
    };
    let mut names: Vec<String> = names.filter(|name| name != OF_FILE_SYSTEMS).collect();
    names.sort();
    if names.iter().any(|name| store::is_file_name(name)) {
        return Ok(());
    }
    let Some(foreign) = names.into_iter().find(|name| name != LOCK) else { return Ok(()) };
    let is_of_java_node = foreign.len() == 3 && foreign.bytes().all(|byte| byte.is_ascii_digit());
    Err(match is_of_java_node {
        true => DataDirectoryError::OfJavaNode(path.to_owned(), foreign),
        false => DataDirectoryError::Foreign(path.to_owned(), foreign),
    })
}

fn told(path: &Path, error: io::Error) -> DataDirectoryError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            DataDirectoryError::Unwritable(path, error)
        }
        io::ErrorKind::ResourceBusy => DataDirectoryError::InUse(path),
        _ => DataDirectoryError::Other(path, error),
    }
}
