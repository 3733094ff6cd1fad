//! From a replica to a database: which files, in which order, and the proof that none is missing.
//!
//! A hole is an error for every kind of target. [`Chain`] is pure: it knows from names alone which points can be restored.

use crate::replica::{RemoteFile, Replica};
use crate::store::{StoreError, retry};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
    Time(i64),
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
    /// The output is there.
    #[error("{0} is there already: restore to another path, or move it away")]
    OutputExists(PathBuf),
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
            if min == 1 || before.is_some_and(|before| before + 1 >= min) {
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

    /// Whether a point can be restored.
    pub fn is_restorable(&self, point: u64) -> bool {
        self.reachable.contains_key(&point)
    }

    fn around(&self, point: u64) -> (Option<u64>, Option<u64>) {
        let below = self.reachable.range(..point).next_back().map(|(point, _)| *point);
        let above = self.reachable.range(point + 1..).next().map(|(point, _)| *point);
        (below, above)
    }

    fn hole(&self, target: u64) -> RestoreError {
        let (below, above) = self.around(target);
        let after = below.unwrap_or(0);
        let next = self.files.iter().filter(|file| file.name.max_txid > after).map(|file| file.name.min_txid).min();
        let missing = match next {
            Some(next) if next > after + 2 => format!("the files of TXIDs {} to {} are missing", after + 1, next - 1),
            Some(next) if next > after + 1 => format!("the file of TXID {} is missing", after + 1),
            _ => format!("no snapshot and row of files leads to TXID {target}"),
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
        while let Some(file) = self.reachable.get(&point) {
            plan.push(*file);
            if file.name.min_txid == 1 {
                break;
            }
            // Of the points that this file can follow, the newest snapshot, or else the oldest: what it repeats need not be read.
            let mut follows = self.reachable.range(file.name.min_txid - 1..point);
            let snapshot = follows.clone().rfind(|(_, file)| file.name.min_txid == 1);
            let before = snapshot.or_else(|| follows.next());
            let Some((before, _)) = before else { return Err(self.hole(target)) };
            point = *before;
        }
        plan.reverse();
        Ok(plan)
    }

    /// The newest point whose time, as `time` tells it, is not after `millis`. The point after it must follow it without a
    /// hole, or it would be a guess.
    pub fn point_at(
        &self,
        millis: i64,
        mut time: impl FnMut(&RemoteFile) -> Result<i64, StoreError>,
    ) -> Result<u64, RestoreError> {
        let points: Vec<u64> = self.points.iter().copied().collect();
        let file = |point: u64| self.files.iter().filter(move |file| file.name.max_txid == point);
        let (mut low, mut high) = (0, points.len());
        while low < high {
            let middle = (low + high) / 2;
            let Some(at) = file(points[middle]).min_by_key(|file| file.level) else { break };
            if time(at)? <= millis { low = middle + 1 } else { high = middle }
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
#[derive(Clone, Debug)]
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
}

/// Chooses the files for a target.
pub fn plan(replica: &Replica, target: Target) -> Result<(u64, Vec<RemoteFile>), RestoreError> {
    let chain = Chain::new(replica.files()?);
    let newest = chain.newest().ok_or(RestoreError::Empty)?;
    let point = match target {
        Target::Latest => newest,
        Target::Txid(txid) => txid,
        Target::Time(millis) => chain.point_at(millis, |file| Ok(replica.header(file)?.timestamp_millis))?,
    };
    Ok((point, chain.plan(point)?))
}

/// Restores to `output`, which must not be there, nor a WAL of it. Writes beside it, syncs, and renames at the end.
///
/// Memory: one page and buffers. `integrity_check` asks SQLite before the file gets its name.
pub fn restore(
    replica: &Replica,
    target: Target,
    output: &Path,
    integrity_check: bool,
) -> Result<Restored, RestoreError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = crate::database::with_suffix(output, suffix);
        if path.symlink_metadata().is_ok() {
            return Err(RestoreError::OutputExists(path));
        }
    }
    let failed = |error: io::Error| RestoreError::Output(output.to_owned(), error);
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().prefix(".walsync-restore-").tempfile_in(folder).map_err(failed)?;
    // A file that retention removed since it was listed is replaced by another, or else the new plan names the hole.
    let mut tries = 0;
    let restored = loop {
        tries += 1;
        let (txid, files) = plan(replica, target)?;
        match apply_all(replica, txid, &files, temporary.as_file(), failed) {
            Err(RestoreError::Store(StoreError::NotFound(_))) if tries < PLANS => {}
            result => break result?,
        }
    };
    temporary.as_file().sync_all().map_err(failed)?;
    if integrity_check {
        check_integrity(temporary.path())?;
    }
    match temporary.persist_noclobber(output) {
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(RestoreError::OutputExists(output.to_owned()));
        }
        result => result.map_err(|error| failed(error.error))?,
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(restored)
}

/// Writes files over each other, and compares every checksum.
fn apply_all(
    replica: &Replica,
    txid: u64,
    files: &[RemoteFile],
    output: &File,
    failed: impl Fn(io::Error) -> RestoreError,
) -> Result<Restored, RestoreError> {
    output.set_len(0).map_err(&failed)?;
    let mut restored = Restored { txid, time_millis: 0, page_size: 0, pages: 0, files: Vec::new(), bytes_read: 0 };
    for file in files {
        let (header, checksum) = retry(5, || apply(replica, file, output))?;
        if restored.page_size != 0 && restored.page_size != header.page_size {
            let key = replica.key(file.level, file.name);
            return Err(StoreError::Permanent(format!("{key}: its page size is not that of the files before")).into());
        }
        let length = u64::from(header.commit) * u64::from(header.page_size);
        output.set_len(length).map_err(&failed)?;
        restored.time_millis = header.timestamp_millis;
        (restored.page_size, restored.pages) = (header.page_size, header.commit);
        restored.bytes_read += file.size;
        restored.files.push((replica.key(file.level, file.name), checksum));
    }
    Ok(restored)
}

/// Writes the pages of one file into `output`. Doing it again does it over.
fn apply(replica: &Replica, file: &RemoteFile, output: &File) -> Result<(ltx::Header, u64), StoreError> {
    replica.read(file, |header, number, page| {
        output.write_all_at(page, u64::from(number - 1) * u64::from(header.page_size))
    })
}

/// SQLite's own integrity check. Opens the file as one that nobody changes, so that no WAL is made beside it.
pub fn check_integrity(path: &Path) -> Result<(), RestoreError> {
    let failed = |error: rusqlite::Error| RestoreError::Integrity(error.to_string());
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let text = path.to_str().ok_or_else(|| RestoreError::Integrity("the path is not UTF-8".into()))?;
    let text = text.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let connection =
        rusqlite::Connection::open_with_flags(format!("file:{text}?immutable=1"), flags).map_err(failed)?;
    let result: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(failed)?;
    if result == "ok" { Ok(()) } else { Err(RestoreError::Integrity(result)) }
}
