//! From a replica to a database: which files, in which order, and the proof that none is missing.
//!
//! A hole is an error for every kind of target. [`Chain`] is pure: it knows from names alone which points can be restored.

mod integrity;
mod output;
mod steps;

pub use integrity::{IntegrityCheck, check_integrity};
pub(crate) use output::{is_scratch, remove_abandoned, scratch};
pub use steps::{Applied, Judged};

use crate::clock::CLOCK_STEP_MILLIS;
use crate::follow::Note;
use crate::replica::{RemoteFile, Replica};
use crate::store::StoreError;
use output::{PageWriter, while_syncing};
use service_kit::directory::sync_name;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Files are missing.
    #[error("hole: {missing}; nearest points that can be restored: {}", nearest(.below, .above))]
    Hole {
        /// What is missing.
        missing: String,
        /// The nearest point before the target.
        below: Option<u64>,
        /// The nearest point after it.
        above: Option<u64>,
    },
    /// The replica begins later, or does not reach the target.
    #[error("{what}; nearest points that can be restored: {}", nearest(.below, .above))]
    NoSuchPoint {
        /// What was asked.
        what: String,
        /// The nearest point before the target.
        below: Option<u64>,
        /// The nearest point after it.
        above: Option<u64>,
    },
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

fn nearest(below: &Option<u64>, above: &Option<u64>) -> String {
    let point = |point: &Option<u64>| point.map_or("none".to_owned(), |txid| format!("TXID {txid}"));
    format!("{} before, {} after", point(below), point(above))
}

/// The files of a replica as steps from point to point.
pub struct Chain {
    files: Vec<RemoteFile>,
    /// Points at which some file ends.
    points: BTreeSet<u64>,
    /// Points that a snapshot and an unbroken row of files lead to, with the last of these files.
    reachable: BTreeMap<u64, RemoteFile>,
}

impl Chain {
    /// Follows all files; cost is that of sorting them.
    pub fn new(mut files: Vec<RemoteFile>) -> Chain {
        // Of files that end at one point, the one that begins first: it needs the fewest before it. Of equal ones that of the highest
        // level, which stays longest.
        files.sort_by_key(|file| (file.name.max_txid, file.name.min_txid, std::cmp::Reverse(file.level)));
        let mut reachable: BTreeMap<u64, RemoteFile> = BTreeMap::new();
        for file in &files {
            let (min, max) = (file.name.min_txid, file.name.max_txid);
            let before = reachable.range(..max).next_back().map(|(point, _)| *point);
            if file.name.is_snapshot() || before.is_some_and(|before| before + 1 >= min) {
                reachable.entry(max).or_insert(*file);
            }
        }
        let points = files.iter().map(|file| file.name.max_txid).collect();
        Chain { files, points, reachable }
    }

    /// The newest point that a file names, whether it can be restored or not.
    pub fn newest(&self) -> Option<u64> {
        self.points.last().copied()
    }

    /// All points that can be restored.
    pub fn restorable(&self) -> impl Iterator<Item = u64> + '_ {
        self.reachable.keys().copied()
    }

    /// Points at which a file ends and that cannot be restored: something before it is missing, or was thinned out and this is what is left.
    pub fn stranded(&self) -> impl Iterator<Item = u64> + '_ {
        self.points.iter().copied().filter(|point| !self.reachable.contains_key(point))
    }

    /// Whether a point can be restored.
    pub fn is_restorable(&self, point: u64) -> bool {
        self.reachable.contains_key(&point)
    }

    /// The file that a restore of this point ends with.
    pub fn last_file(&self, point: u64) -> Option<&RemoteFile> {
        self.reachable.get(&point)
    }

    fn around(&self, point: u64) -> (Option<u64>, Option<u64>) {
        let below = self.reachable.range(..point).next_back().map(|(point, _)| *point);
        let above = self.reachable.range(point.saturating_add(1)..).next().map(|(point, _)| *point);
        (below, above)
    }

    fn hole(&self, target: u64) -> RestoreError {
        let (below, above) = self.around(target);
        let after = below.unwrap_or(0);
        // A snapshot that came later tells of nothing before it, and no more does a merged file that begins before the hole.
        let after_it = self.files.iter().map(|file| file.name.min_txid).filter(|min_txid| *min_txid > after + 1);
        let next = after_it.min();
        let missing = match next {
            Some(next) if next > after + 2 => format!("the files of TXIDs {} to {} are missing", after + 1, next - 1),
            Some(_) => format!("the file of TXID {} is missing", after + 1),
            None => format!("no snapshot and row of files leads to TXID {target}"),
        };
        RestoreError::Hole { missing, below, above }
    }

    /// The files that lead to `target`, in the order of their application; the first one is a snapshot.
    pub fn plan(&self, target: u64) -> Result<Vec<RemoteFile>, RestoreError> {
        if !self.reachable.contains_key(&target) {
            let covered = self.files.iter().any(|file| (file.name.min_txid..=file.name.max_txid).contains(&target));
            if self.points.contains(&target) || !covered && self.newest().is_some_and(|newest| target < newest) {
                return Err(self.hole(target));
            }
            let (below, above) = self.around(target);
            let what = if covered {
                format!("TXID {target} lies within a merged file, and is no point of its own any more")
            } else {
                format!("the replica does not reach TXID {target}")
            };
            return Err(RestoreError::NoSuchPoint { what, below, above });
        }
        let mut plan = Vec::new();
        let mut point = target;
        loop {
            let file = self.reachable.get(&point).ok_or_else(|| self.hole(target))?;
            plan.push(*file);
            if file.name.is_snapshot() {
                break;
            }
            point = self.before(file).ok_or_else(|| self.hole(target))?;
        }
        plan.reverse();
        Ok(plan)
    }

    /// Of the points that a file can follow, the newest snapshot, or else the oldest: what it repeats need not be read. `None`: it follows nothing.
    fn before(&self, file: &RemoteFile) -> Option<u64> {
        if file.name.is_snapshot() {
            return None;
        }
        let mut follows = self.reachable.range(file.name.min_txid - 1..file.name.max_txid);
        let snapshot = follows.clone().rfind(|(_, file)| file.name.is_snapshot());
        snapshot.or_else(|| follows.next()).map(|(point, _)| *point)
    }

    /// Of each point the file that tells its time: of the lowest level, for that is as it was committed.
    fn timed(&self) -> impl Iterator<Item = &RemoteFile> {
        self.files
            .chunk_by(|a, b| a.name.max_txid == b.name.max_txid)
            .filter_map(|files| files.iter().min_by_key(|file| file.level))
    }

    /// The newest point whose time, as `time` tells it, is not after `millis`. The point after it must follow it without a
    /// hole, or it would be a guess.
    ///
    /// Times go back where the writer's clock was stepped, and those after `now_millis` tell nothing. Whatever has a point of this time or an
    /// earlier one after it was committed by then, if that one is right; whatever has a later one before it was not. Where the two
    /// disagree it is an error that names both.
    pub fn point_at(
        &self,
        millis: i64,
        now_millis: i64,
        mut time: impl FnMut(&RemoteFile) -> Result<i64, StoreError>,
    ) -> Result<u64, RestoreError> {
        let points: Vec<u64> = self.points.iter().copied().collect();
        // How many points are surely not after it, and how many may be.
        let (mut low, mut most) = (0, None);
        for (at, file) in self.timed().enumerate() {
            let time = time(file)?;
            if time <= millis {
                low = at + 1;
            } else if time <= now_millis {
                most = most.or(Some(at));
            }
        }
        let most = most.unwrap_or(points.len());
        if low != most {
            let point = |count: usize| count.checked_sub(1).map_or(0, |at| points[at]);
            let (first, last) = (point(low.min(most)), point(low.max(most)));
            let what = format!(
                "this time may be that of any point of TXID {first} to {last}: the clock of who wrote them was stepped, or is ahead \
                 of this one; choose one by --txid"
            );
            let below = Some(first).filter(|first| self.is_restorable(*first)).or(self.around(first).0);
            let above = Some(last).filter(|last| self.is_restorable(*last)).or(self.around(last).1);
            return Err(RestoreError::NoSuchPoint { what, below, above });
        }
        let Some(point) = low.checked_sub(1).map(|at| points[at]) else {
            let above = self.restorable().next();
            let what = "the replica begins after this time".to_owned();
            return Err(RestoreError::NoSuchPoint { what, below: None, above });
        };
        // Merging makes steps coarser, and that is no hole: some file goes on from here.
        let goes_on = |file: &RemoteFile| (2..=point + 1).contains(&file.name.min_txid) && file.name.max_txid > point;
        if let Some(next) = points.get(low)
            && !self.files.iter().any(goes_on)
        {
            // Only a snapshot, or a file that does not follow: what lies between may be what was asked for.
            let missing = match next - point {
                2 => format!("the file of TXID {} is missing, and it may be from before this time", point + 1),
                1 => return Ok(point),
                _ => format!(
                    "the files of TXIDs {} to {} are missing, and may be from before this time",
                    point + 1,
                    next - 1
                ),
            };
            let (below, _) = self.around(point + 1);
            let (_, above) = self.around(next - 1);
            return Err(RestoreError::Hole { missing, below, above });
        }
        Ok(point)
    }
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
                times.get(&file.name.max_txid).copied().ok_or_else(unread)
            };
            chain.point_at(millis, now_millis.saturating_add(CLOCK_STEP_MILLIS), time)?
        }
    };
    Ok((point, chain.plan(point)?))
}

/// Neither a database nor what is left of one may be in the way.
pub(crate) fn refuse_existing(output: &Path) -> Result<(), RestoreError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = crate::database::with_suffix(output, suffix);
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
        *self = Progress { applied: 0, first, restored: Restored { txid, ..Restored::default() } };
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
    let Progress { applied, restored, .. } = progress;
    std::thread::scope(|scope| {
        let mut fetch = replica.fetch(files).map_err(StoreError::from)?;
        let mut writer = PageWriter::start(scope, scratch).map_err(failed)?;
        for file in files {
            let damaged = |why| RestoreError::Damaged { why, file: *file, below: None, above: None };
            let (mut unwritten, mut pages) = (None, 0);
            let decoded = replica.decode(file, fetch.next_object(), |header, number, page| {
                pages += 1;
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
            let before = Applied { page_size: restored.page_size, pages: restored.pages, files: 0 };
            let after = before.then(&header, pages);
            after.map_err(|why| damaged(format!("{}: {why}", replica.key(file.level, file.name))))?;
            let length = u64::from(header.commit) * u64::from(header.page_size);
            scratch.set_len(length).map_err(failed)?;
            restored.time_millis = header.timestamp_millis;
            (restored.page_size, restored.pages) = (header.page_size, header.commit);
            restored.bytes_read += file.size;
            restored.files.push((replica.key(file.level, file.name), checksum));
            restored.bytes_ahead_max = restored.bytes_ahead_max.max(fetch.bytes_max());
            *applied = file.name.max_txid;
        }
        Ok(())
    })
}
