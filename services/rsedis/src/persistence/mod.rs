//! The append-only file, as Redis 7 lays it out: a directory with a manifest, at most one base and increments.
//!
//! | file | holds |
//! | --- | --- |
//! | `appendonly.aof.manifest` | a line for each file: `file NAME seq N type b` (base), `i` (increment), `h` (no longer needed) |
//! | `appendonly.aof.N.base.rdb`, `.aof` | the keys when the first increment behind it began: an RDB file, or commands |
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
//! - **While a base is written anew** (BGREWRITEAOF): the manifest names the old files and the new increment until the base is
//!   whole and safe; what is left over is not named, and is replaced or removed.
//! - **While the manifest is replaced**: it is renamed into its place after its sync; the old or the new one is there, whole.

pub mod beginning;
mod errand;
mod load;
mod manifest;
pub mod rdb_file;
pub mod recover;
mod replacing;
pub mod snapshot;
mod syncer;

use std::io;
use std::thread;

pub use load::{LoadError, Loaded, Piece};
pub use manifest::{Kind, Manifest, ManifestError, Named};
use wal::files::{Directory, File};

use crate::settings::Fsync;
use errand::Errand;
use replacing::{Next, Placed, name_manifest, place, remove_history, write_manifest};
use syncer::{Order, Syncer};

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
    /// See [`Aof::base_bytes`].
    base_bytes: u64,
    /// Given and not written, since the disk would not take it.
    pending: Vec<u8>,
    has_unsynced: bool,
    /// An increment was begun for a base that is not there.
    is_base_due: bool,
    /// The second that was noted last in the file (`aof-timestamp-enabled`).
    noted_second: i64,
    syncer: Syncer<D>,
    /// The next increment is made.
    preparing: Option<Errand<io::Result<Next<D::File>>>>,
    /// A base takes its place.
    placing: Option<Errand<Placed>>,
    /// See [`Aof::take_syncs`].
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
    /// Opens the append-only file, or begins one; `apply` gets every command and base, in order.
    ///
    /// `name` is the setting `appendfilename`; `cuts`: a truncated tail is cut, else refused.
    pub fn open(
        directory: D,
        name: &str,
        cuts: bool,
        apply: impl FnMut(Piece<'_>) -> Result<usize, String>,
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
        // What is no longer needed may be gone already.
        let is_needed = |file: &&Named| file.kind != Kind::History && Some(&file.name) != last.as_ref();
        for file in manifest.files.iter().filter(is_needed) {
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
        let mut aof = Self::over(directory, manifest, &last, other_bytes)?;
        // What was read, and the names it was found by, may be in the page cache only: it must not vanish after clients have
        // seen it, nor take with it what is written behind it.
        aof.file.sync_data().map_err(io_error(format!("sync {last}")))?;
        aof.directory.sync().map_err(io_error("sync the append-only directory"))?;
        remove_history(&aof.directory, &mut aof.manifest).map_err(io_error("remove what is no longer needed"))?;
        Ok((aof, loaded))
    }

    /// Begins an append-only file anew: what the files hold that are there is not looked at. They stay until a base is put.
    pub fn begin(directory: D, name: &str) -> Result<Self, OpenError> {
        let manifest_name = format!("{name}.manifest");
        let is_there = directory.names().map_err(io_error("list the append-only directory"))?.contains(&manifest_name);
        let mut manifest = Manifest::new(name);
        if is_there {
            let file = directory.open(&manifest_name).map_err(io_error(format!("open {manifest_name}")))?;
            manifest = Manifest::parse(name, &file.read().map_err(io_error(format!("read {manifest_name}")))?)?;
        }
        let increment = manifest.add_increment();
        directory.create_zeroed(&increment, 0).map_err(io_error(format!("create {increment}")))?;
        directory.sync().map_err(io_error("sync the append-only directory"))?;
        Self::over(directory, manifest, &increment, 0)
    }

    /// Writes to an increment behind what is there.
    fn over(directory: D, manifest: Manifest, increment: &str, other_bytes: u64) -> Result<Self, OpenError> {
        let open = || directory.open(increment).map_err(io_error(format!("open {increment}")));
        let (file, for_syncs) = (open()?, open()?);
        let written = file.bytes().map_err(io_error(format!("look at {increment}")))?;
        let syncer = Syncer::start(for_syncs).map_err(io_error("start a thread"))?;
        Ok(Self {
            directory,
            manifest,
            file,
            written,
            other_bytes,
            base_bytes: written + other_bytes,
            pending: Vec::new(),
            has_unsynced: false,
            is_base_due: false,
            noted_second: 0,
            syncer,
            preparing: None,
            placing: None,
            syncs: 0,
            failure: None,
        })
    }

    /// Before an increment is begun: whether it is made and all that was written is safe, but for a little. If not, threads see to that; this is
    /// asked again until they have. How that ends [`Aof::begin_increment`] says.
    pub fn is_ready_for_increment(&mut self) -> bool {
        let outcome = self.syncer.outcome();
        self.note_sync(outcome);
        if self.syncer.is_busy() || self.placing.as_ref().is_some_and(|placing| !placing.has_ended()) {
            return false;
        }
        // One whose end nobody waited for.
        drop(self.finish_base());
        if let Some(preparing) = &self.preparing {
            return preparing.has_ended();
        }
        if self.has_increment() {
            return true;
        }
        let (directory, manifest) = (self.directory.clone(), self.manifest.clone());
        self.preparing = Errand::begin(move || Next::make(&directory, manifest)).ok();
        if self.has_unsynced && self.syncer.begin() {
            self.has_unsynced = false;
        }
        self.preparing.is_none()
    }

    /// The base before this one has failed, and nothing was written since.
    fn has_increment(&self) -> bool {
        self.is_base_due && self.written == 0
    }

    /// Begins a new increment: from now on commands go there. The base of the keys of this moment is to follow
    /// ([`Aof::begin_base`]); until then all files there are make the state.
    pub fn begin_increment(&mut self, policy: Fsync) -> io::Result<()> {
        // What it has not done, the next one does.
        drop(self.finish_base());
        // What is written to the new one may be safe at any time, and must not be before what is in front of it.
        if !self.try_write(Fsync::Always) {
            return Err(io::Error::other(self.failure().unwrap_or_default().to_owned()));
        }
        let has_increment = self.has_increment();
        self.is_base_due = true;
        if has_increment {
            return Ok(());
        }
        // All that may fail comes first: once the manifest names the increment, nothing is written to the one before.
        let Next { manifest, file, for_syncs } = match self.preparing.take() {
            Some(preparing) => preparing.finish()??,
            None => Next::make(&self.directory, self.manifest.clone())?,
        };
        let mut syncer = Syncer::start(for_syncs)?;
        name_manifest(&self.directory, &manifest)?;
        // Nothing that is written from now on is safe before that name: the thread that syncs begins with it.
        if policy == Fsync::Always || !syncer.begin_names(self.directory.clone()) {
            self.directory.sync()?;
        }
        self.syncer = syncer;
        self.file = file;
        self.manifest = manifest;
        self.other_bytes += self.written;
        self.written = 0;
        self.has_unsynced = false;
        self.noted_second = 0;
        Ok(())
    }

    /// Puts a base that was written and synced under a temporary name in the place of all files before the last increment, and
    /// removes these: on another thread. See [`Aof::base_outcome`].
    pub fn begin_base(&mut self, temporary: &str, bytes: u64, is_rdb: bool) -> io::Result<()> {
        let (directory, manifest, temporary) = (self.directory.clone(), self.manifest.clone(), temporary.to_owned());
        self.placing = Some(Errand::begin(move || place(&directory, manifest, &temporary, bytes, is_rdb))?);
        Ok(())
    }

    /// How that ended, if it has.
    pub fn base_outcome(&mut self) -> Option<io::Result<()>> {
        self.placing.take_if(|placing| placing.has_ended()).map(|placing| self.note_base(placing))
    }

    /// Waits until it has ended, if it is under way.
    pub fn finish_base(&mut self) -> io::Result<()> {
        self.placing.take().map_or(Ok(()), |placing| self.note_base(placing))
    }

    fn note_base(&mut self, placing: Errand<Placed>) -> io::Result<()> {
        let Placed { bytes, manifest, outcome } = placing.finish()?;
        if let Some(manifest) = manifest {
            self.manifest = manifest;
            self.other_bytes = bytes;
            self.base_bytes = bytes;
            self.is_base_due = false;
        }
        outcome
    }

    /// Bytes of the base, or of everything when the file was opened.
    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.written + self.other_bytes
    }

    /// Syncs of what was committed that have ended well since this was last asked. Those of bases, manifests and names are none of them: they
    /// make no acknowledgement safe.
    pub fn take_syncs(&mut self) -> u64 {
        std::mem::take(&mut self.syncs)
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
        if self.is_over() {
            // It could never be written.
            return false;
        }
        self.pending.extend_from_slice(bytes);
        self.try_write(policy)
    }

    /// Notes the time in front of what is committed next, once a second: `redis-check-aof --truncate-to-timestamp` looks for that.
    pub fn note_time(&mut self, second: i64) {
        if std::mem::replace(&mut self.noted_second, second) != second && !self.is_over() {
            self.pending.extend_from_slice(&time_note(second));
        }
    }

    /// Once a turn of the loop, and after a failure: tries again what can be tried again. `is_due`: a second has passed.
    pub fn tend(&mut self, policy: Fsync, is_due: bool) {
        let outcome = self.syncer.outcome();
        self.note_sync(outcome);
        if is_due && !self.pending.is_empty() {
            self.try_write(policy);
        }
        if is_due && policy == Fsync::EverySecond && self.has_unsynced && self.syncer.begin() {
            self.has_unsynced = false;
        }
    }

    /// Whether nothing can be written any more, whatever is done.
    fn is_over(&self) -> bool {
        self.failure.as_ref().is_some_and(|failed| failed.is_final)
    }

    /// Takes note of how a sync of the other thread ended.
    fn note_sync(&mut self, outcome: Option<(Order, io::Result<()>)>) {
        match outcome {
            Some((Order::Data, Ok(()))) => self.syncs += 1,
            Some((_, Err(error))) => self.fail("sync", &error, true),
            Some((Order::Names, Ok(()))) | None => {}
        }
    }

    fn try_write(&mut self, policy: Fsync) -> bool {
        if policy == Fsync::Always {
            // What the other thread syncs is not safe before it has ended, and it may fail.
            let outcome = self.syncer.finish();
            self.note_sync(outcome);
        }
        if self.is_over() {
            self.pending = Vec::new();
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
            if let Err(error) = self.file.sync_data() {
                // The kernel may have dropped what it could not write: a second sync would lie.
                self.fail("sync", &error, true);
                return false;
            }
            self.syncs += 1;
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

/// A time, seconds since 1970, as the append-only file notes it.
pub fn time_note(second: i64) -> Vec<u8> {
    format!("#TS:{second}\r\n").into_bytes()
}

/// Closes files that have no name any more: to free what a large one has on the disk takes the file system milliseconds, and they are another thread's.
pub(crate) fn free<F: Send + 'static>(files: Vec<F>) {
    if !files.is_empty() {
        // Without a thread they are closed here.
        drop(thread::Builder::new().name("free".into()).spawn(move || drop(files)));
    }
}

#[cfg(test)]
mod tests;
