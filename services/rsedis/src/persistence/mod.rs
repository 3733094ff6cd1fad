//! The append-only file, as Redis 7 lays it out: a directory with a manifest, at most one base and increments.
//!
//! | file | holds |
//! | --- | --- |
//! | `appendonly.aof.manifest` | a line for each file: `file NAME seq N type b` (base), `i` (increment), `h` (no longer needed) |
//! | `appendonly.aof.N.base.aof` | commands that make the state when increment N began |
//! | `appendonly.aof.N.incr.aof` | commands since |
//!
//! # What is promised
//!
//! With [`Fsync::Always`], [`Aof::commit`] returns well only when everything it was given is on disk: whoever waits for that
//! before acknowledging never acknowledges what a crash can take. All commands of one turn of the loop share one sync.
//!
//! # What a crash can leave
//!
//! - **Killed, or power lost, while commands are written**: the last file ends in the middle of a command, or of a transaction. It
//!   is cut to the last whole one (`aof-load-truncated yes`), or the start is refused.
//! - **Power lost, and sectors of the unsynced tail are missing**: something that is no command stands behind the last sync. The
//!   start is refused with the offset; `redis-check-aof --fix` cuts there. Nothing in front of it is touched: all that was
//!   acknowledged stands there.
//! - **Between a new file and the manifest that names it**: the file is not named, and is replaced.
//! - **While the manifest is replaced**: it is renamed into its place after its sync; the old or the new one is there, whole.

mod load;
mod manifest;
mod syncer;

use std::io;

pub use load::{LoadError, Loaded};
pub use manifest::{Kind, Manifest, ManifestError, Named};
use wal::files::{Directory, File};

use crate::settings::Fsync;
use syncer::Syncer;

/// Why the append-only file cannot be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The manifest cannot be understood.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// A file cannot be replayed.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The file system says no.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        error: io::Error,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let what = what.into();
    move |error| OpenError::Io { what, error }
}

/// See the module's description.
pub struct Aof<D: Directory> {
    directory: D,
    manifest: Manifest,
    file: D::File,
    /// Bytes of the last increment that were written whole.
    written: u64,
    /// Bytes of the other files.
    other_bytes: u64,
    /// Given and not written, since the disk would not take it.
    pending: Vec<u8>,
    has_unsynced: bool,
    syncer: Syncer,
    syncs: u64,
    failure: Option<Failed>,
}

/// Why nothing can be written, and whether trying again may help.
#[derive(Clone, Debug)]
struct Failed {
    text: String,
    is_final: bool,
}

impl<D: Directory> Aof<D> {
    /// Opens the append-only file, or begins one; `apply` gets every command, in order.
    ///
    /// `name` is the setting `appendfilename`; `cuts`: a truncated tail is cut, else refused.
    pub fn open(
        directory: D,
        name: &str,
        cuts: bool,
        apply: impl FnMut(crate::protocol::Args<'_>) -> Result<(), String>,
    ) -> Result<(Self, Loaded), OpenError> {
        let manifest_name = format!("{name}.manifest");
        let names = directory.names().map_err(io_error("list the append-only directory"))?;
        let has_manifest = names.contains(&manifest_name);
        let mut manifest = match has_manifest {
            true => {
                let file = directory.open(&manifest_name).map_err(io_error(format!("open {manifest_name}")))?;
                Manifest::parse(name, &file.read().map_err(io_error(format!("read {manifest_name}")))?)?
            }
            false => Manifest::new(name),
        };
        let loaded = load::all(&directory, &manifest, cuts, apply)?;
        let mut other_bytes = 0;
        let last = manifest.last_increment().map(str::to_owned);
        for file in manifest.files.iter().filter(|file| Some(&file.name) != last.as_ref()) {
            let opened = directory.open(&file.name).map_err(io_error(format!("open {}", file.name)))?;
            other_bytes += opened.bytes().map_err(io_error(format!("look at {}", file.name)))?;
        }
        let last = match last {
            Some(last) => last,
            None => {
                let last = manifest.add_increment();
                directory.create_zeroed(&last, 0).map_err(io_error(format!("create {last}")))?;
                directory.sync().map_err(io_error("sync the append-only directory"))?;
                write_manifest(&directory, &manifest).map_err(io_error(format!("write {manifest_name}")))?;
                last
            }
        };
        let file = directory.open(&last).map_err(io_error(format!("open {last}")))?;
        let for_syncs = directory.open(&last).map_err(io_error(format!("open {last}")))?;
        // What was read may be in the page cache only: it must not vanish after clients have seen it.
        file.sync_data().map_err(io_error(format!("sync {last}")))?;
        let written = file.bytes().map_err(io_error(format!("look at {last}")))?;
        let syncer = Syncer::start(for_syncs).map_err(io_error("start a thread"))?;
        let aof = Self {
            directory,
            manifest,
            file,
            written,
            other_bytes,
            pending: Vec::new(),
            has_unsynced: false,
            syncer,
            syncs: 0,
            failure: None,
        };
        Ok((aof, loaded))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.written + self.other_bytes
    }

    /// Syncs that were made.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Why nothing can be written now.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failed| failed.text.as_str())
    }

    /// The directory.
    pub fn directory(&self) -> &D {
        &self.directory
    }

    /// The files.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes commands, and syncs them under [`Fsync::Always`]. False: they are not safe, and must not be acknowledged; see
    /// [`Aof::failure`].
    pub fn commit(&mut self, bytes: &[u8], policy: Fsync) -> bool {
        self.pending.extend_from_slice(bytes);
        self.try_write(policy)
    }

    /// Once a turn of the loop, and after a failure: tries again what can be tried again. `is_due`: a second has passed.
    pub fn tend(&mut self, policy: Fsync, is_due: bool) {
        match self.syncer.outcome() {
            Some(Ok(())) => self.syncs += 1,
            Some(Err(error)) => self.fail("sync", &error, true),
            None => {}
        }
        if is_due && !self.pending.is_empty() {
            self.try_write(policy);
        }
        if is_due && policy == Fsync::EverySecond && self.has_unsynced && self.syncer.begin() {
            self.has_unsynced = false;
        }
    }

    fn try_write(&mut self, policy: Fsync) -> bool {
        if self.failure.as_ref().is_some_and(|failed| failed.is_final) {
            return false;
        }
        if !self.pending.is_empty() {
            // At a fixed place: what a failed write left of itself is written over.
            if let Err(error) = self.file.write_at(&self.pending, self.written) {
                self.fail("write", &error, false);
                return false;
            }
            self.written += self.pending.len() as u64;
            self.pending.clear();
            self.pending.shrink_to(1 << 20);
            self.has_unsynced = true;
        }
        if policy == Fsync::Always && self.has_unsynced {
            self.syncs += 1;
            if let Err(error) = self.file.sync_data() {
                // The kernel may have dropped what it could not write: a second sync would lie.
                self.fail("sync", &error, true);
                return false;
            }
            self.has_unsynced = false;
        }
        self.failure = None;
        true
    }

    fn fail(&mut self, what: &str, error: &io::Error, is_final: bool) {
        let remedy = if is_final { "; restart the server once the disk is well" } else { "" };
        self.failure = Some(Failed { text: format!("{what}: {error}{remedy}"), is_final });
    }

    /// Makes everything safe before the end. Errors: why it is not.
    pub fn close(mut self) -> Result<(), String> {
        match self.try_write(Fsync::Always) {
            true => Ok(()),
            false => Err(self.failure.map(|failed| failed.text).unwrap_or_default()),
        }
    }
}

/// Puts a manifest in the place of the one before, if there is one.
fn write_manifest<D: Directory>(directory: &D, manifest: &Manifest) -> io::Result<()> {
    let name = format!("{}.manifest", manifest.name);
    let temporary = format!("temp-{name}");
    let file = directory.create_zeroed(&temporary, 0)?;
    file.write_at(manifest.to_string().as_bytes(), 0)?;
    file.sync_data()?;
    directory.rename(&temporary, &name)?;
    directory.sync()
}

#[cfg(test)]
mod tests;
