//! From a replica to a database: the files that [`Chain`] tells of are fetched, proved, and written one over the other.

mod integrity;
mod output;

pub use integrity::{IntegrityCheck, check_integrity};
pub use output::is_scratch;
pub(crate) use output::{remove_abandoned, scratch};

use crate::chain::{Applied, Chain, InFile, NoWay, nearest};
use crate::clock::CLOCK_STEP_MILLIS;
use crate::note::Note;
use crate::replica::{RemoteFile, Replica};
use crate::store::StoreError;
use output::{PageWriter, while_syncing};
use service_kit::directory::sync_name;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Headers that are read at once.
const READ_AT_ONCE: usize = 8;

/// Plans of one restore: files may be removed under it.
const PLANS: u32 = 3;

/// Where to restore to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The newest point that any file names.
    Latest,
    /// The state after this transaction.
    Txid(u64),
    /// The newest state not after this Unix time in milliseconds.
    Time {
        /// That time.
        millis: i64,
        /// What time it is: later ones say nothing.
        now_millis: i64,
    },
}

/// Why nothing was restored. The output is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The replica has no file.
    #[error("there is no replica here: no LTX file below this place")]
    Empty,
    /// No row of files leads there.
    #[error(transparent)]
    NoWay(#[from] NoWay),
    /// A file on the way is damaged, or says what cannot be.
    #[error("{why}; nearest points that do not need this file: {}", nearest(.below, .above))]
    Damaged {
        /// What is wrong with it.
        why: String,
        /// The file.
        file: RemoteFile,
        /// The nearest point before the target.
        below: Option<u64>,
        /// The nearest point after it.
        above: Option<u64>,
    },
    /// The output is there.
    #[error("{0} is there already: restore to another path, or move it away")]
    OutputExists(PathBuf),
    /// Somebody restores to the same place.
    #[error("another process is restoring to {0}: wait for it, or restore to another path")]
    Busy(PathBuf),
    /// The store, or a file in it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output cannot be written.
    #[error("cannot write {0}: {1}")]
    Output(PathBuf, io::Error),
    /// SQLite finds the result damaged.
    #[error("integrity check of the restored database: {0}")]
    Integrity(String),
}

/// What was restored.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The point.
    pub txid: u64,
    /// Unix time of its commit in milliseconds.
    pub time_millis: i64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages of the database.
    pub pages: u32,
    /// Files that were read, with the checksum of each, all of which held.
    pub files: Vec<(String, u64)>,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Of these the most that were in memory at any time.
    pub bytes_ahead_max: u64,
    /// A page that no file has, as far as is known: it is zero.
    pub unwritten: Option<u32>,
    /// Why SQLite could not be asked for the integrity, where it was to be: checksums alone prove it.
    pub integrity_unknown: Option<String>,
}

/// What `read` makes of each of these files, in their order. Many requests at once: there are thousands of files, and each answer is small.
///
/// # Errors
/// The first one of each thread ends it.
pub fn read_each<T: Send>(
    files: &[RemoteFile],
    read: impl Fn(&RemoteFile) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let (share, read) = (files.len().div_ceil(READ_AT_ONCE).max(1), &read);
    std::thread::scope(|scope| {
        let parts = files.chunks(share);
        let threads: Vec<_> =
            parts.map(|files| scope.spawn(move || files.iter().map(read).collect::<Result<Vec<T>, _>>())).collect();
        let mut all = Vec::with_capacity(files.len());
        for thread in threads {
            let panicked = |_| Err(StoreError::Permanent("a thread that reads headers panicked".into()));
            all.extend(thread.join().unwrap_or_else(panicked)?);
        }
        Ok(all)
    })
}

/// Chooses the files for a target.
pub fn plan(replica: &Replica, target: Target) -> Result<(u64, Vec<RemoteFile>), RestoreError> {
    let chain = Chain::new(replica.files()?);
    let newest = chain.newest().ok_or(RestoreError::Empty)?;
    let point = match target {
        Target::Latest => newest,
        Target::Txid(txid) => txid,
        Target::Time { millis, now_millis } => {
            let files: Vec<RemoteFile> = chain.timed().copied().collect();
            let times = read_each(&files, |file| Ok((file.name.max_txid, replica.header(file)?.timestamp_millis)))?;
            let times: BTreeMap<u64, i64> = times.into_iter().collect();
            let time = |file: &RemoteFile| {
                let unread =
                    || StoreError::Permanent(format!("{}: its time was not read", replica.key(file.level, file.name)));
                times.get(&file.name.max_txid).copied().ok_or_else(|| RestoreError::from(unread()))
            };
            chain.point_at(millis, now_millis.saturating_add(CLOCK_STEP_MILLIS), time)?
        }
    };
    Ok((point, chain.plan(point)?))
}

/// Neither a database nor what is left of one may be in the way.
pub(crate) fn refuse_existing(output: &Path) -> Result<(), RestoreError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = crate::paths::with_suffix(output, suffix);
        if path.symlink_metadata().is_ok() {
            return Err(RestoreError::OutputExists(path));
        }
    }
    Ok(())
}

/// Restores to `output`, which must not be there, nor a WAL of it. Writes beside it, syncs, and renames at the end. A note beside it, of
/// a database that followed and is gone, is removed.
///
/// Memory: that of [`crate::fetch::ReadAhead`], a few runs of pages, and what the decoder needs. `integrity_check` asks SQLite before the file gets
/// its name.
pub fn restore(
    replica: &Replica,
    target: Target,
    output: &Path,
    integrity_check: impl Into<IntegrityCheck>,
) -> Result<Restored, RestoreError> {
    refuse_existing(output)?;
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    let scratch = scratch(output)?;
    let restored = restore_into(replica, target, &scratch, output, integrity_check.into())?;
    // A note that an earlier database of this name left behind tells nothing of this one.
    Note::remove(output).map_err(failed)?;
    give_name(scratch, output)?;
    Ok(restored)
}

/// Restores into a file of no content, and syncs it.
pub(crate) fn restore_into(
    replica: &Replica,
    target: Target,
    scratch: &NamedTempFile,
    output: &Path,
    integrity_check: IntegrityCheck,
) -> Result<Restored, RestoreError> {
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    let file = scratch.as_file();
    let mut restored = while_syncing(file, || restore_pages(replica, target, file, output)).map_err(failed)??;
    file.sync_all().map_err(failed)?;
    restored.integrity_unknown = check_integrity(scratch.path(), integrity_check)?;
    Ok(restored)
}

/// Restores the newest state for a trial, to a path where nothing is, and asks SQLite for its integrity. It will not stay: nothing is synced.
pub(crate) fn restore_for_trial(replica: &Replica, path: &Path) -> Result<Restored, RestoreError> {
    let file = File::create_new(path).map_err(|error| RestoreError::Output(path.to_owned(), error))?;
    let mut restored = restore_pages(replica, Target::Latest, &file, path)?;
    restored.integrity_unknown = check_integrity(path, IntegrityCheck::Full)?;
    Ok(restored)
}

/// Writes all pages into a file of no content, and syncs nothing.
fn restore_pages(replica: &Replica, target: Target, scratch: &File, output: &Path) -> Result<Restored, RestoreError> {
    let mut progress = Progress::default();
    let mut tries = 0;
    loop {
        let before = progress.applied;
        let planned = plan(replica, target);
        let result = planned.and_then(|(txid, files)| {
            let files = progress.go_on(txid, files);
            apply_all(replica, &files, scratch, output, &mut progress)
        });
        tries = if progress.applied > before { 1 } else { tries + 1 };
        match result {
            // A file that retention removed since it was listed is replaced by another, or else the new plan names the hole.
            Err(RestoreError::Store(StoreError::NotFound(_))) if tries < PLANS => {}
            Err(RestoreError::Damaged { why, file, .. }) => {
                let (below, above) =
                    Chain::new(replica.files().unwrap_or_default()).around_without(&file, progress.restored.txid);
                return Err(RestoreError::Damaged { why, file, below, above });
            }
            result => return result.map(|()| progress.restored),
        }
    }
}

/// How far a restore is.
#[derive(Default)]
struct Progress {
    /// The state is that after this transaction, but for pages of a file that was broken off; 0: nothing is applied.
    applied: u64,
    /// What it is then, as the files say.
    state: Applied,
    /// The first file of the plan.
    first: Option<RemoteFile>,
    restored: Restored,
}

impl Progress {
    /// What is left to be applied of a new plan. Where that cannot go on from what is applied, that is forgotten.
    ///
    /// A file that was broken off in the middle is written again, whole, by those that lead from what is applied to its end or beyond. That they are
    /// of the same replica is proved by the first file, which is there still.
    fn go_on(&mut self, txid: u64, files: Vec<RemoteFile>) -> Vec<RemoteFile> {
        let first = files.first().copied();
        let rest: Vec<RemoteFile> = files.iter().filter(|file| file.name.max_txid > self.applied).copied().collect();
        let follows = rest.first().is_some_and(|next| next.name.min_txid <= self.applied + 1);
        if self.applied > 0 && first == self.first && follows && txid >= self.restored.txid {
            self.restored.txid = txid;
            return rest;
        }
        let restored = Restored { txid, ..Restored::default() };
        *self = Progress { applied: 0, state: Applied::default(), first, restored };
        files
    }
}

/// Gives what was restored its name, durably, and never over what came meanwhile.
pub(crate) fn give_name(scratch: NamedTempFile, output: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    match scratch.persist_noclobber(output) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(RestoreError::OutputExists(output.to_owned()));
        }
        result => result.map_err(|error| failed(error.error))?,
    };
    sync_name(output).map_err(failed)
}

/// Writes files over each other and over what is applied, and compares every checksum.
fn apply_all(
    replica: &Replica,
    files: &[RemoteFile],
    scratch: &File,
    output: &Path,
    progress: &mut Progress,
) -> Result<(), RestoreError> {
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    if progress.applied == 0 {
        scratch.set_len(0).map_err(failed)?;
    }
    let Progress { applied, state, restored, .. } = progress;
    std::thread::scope(|scope| {
        let mut fetch = replica.fetch(files).map_err(StoreError::from)?;
        let mut writer = PageWriter::start(scope, scratch).map_err(failed)?;
        for file in files {
            let damaged = |why| RestoreError::Damaged { why, file: *file, below: None, above: None };
            let (mut unwritten, mut held) = (None, InFile::of(file.level));
            let decoded = replica.decode(file, fetch.next_object(), |header, number, page| {
                held.page(header, number);
                let written = writer.write(u64::from(number - 1) * u64::from(header.page_size), page);
                written.map_err(|error| unwritten.insert(error).kind().into())
            });
            if let Some(error) = unwritten {
                return Err(failed(error));
            }
            let (header, checksum) = decoded.map_err(|error| match error {
                StoreError::Damaged(why) => damaged(why),
                error => error.into(),
            })?;
            writer.flush().map_err(failed)?;
            held.ends(checksum);
            let after = state.then(&header, &held);
            *state = after.map_err(|why| damaged(format!("{}: {why}", replica.key(file.level, file.name))))?;
            let length = u64::from(header.commit) * u64::from(header.page_size);
            scratch.set_len(length).map_err(failed)?;
            restored.time_millis = header.timestamp_millis;
            (restored.page_size, restored.pages, restored.unwritten) = (state.page_size, state.pages, state.unwritten);
            restored.bytes_read += file.size;
            restored.files.push((replica.key(file.level, file.name), checksum));
            restored.bytes_ahead_max = restored.bytes_ahead_max.max(fetch.bytes_max());
            *applied = file.name.max_txid;
        }
        Ok(())
    })
}
