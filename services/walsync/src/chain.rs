//! A replica as a row of files: which points can be restored, from which files, in which order, and the proof that none is missing.
//!
//! A hole is an error for every kind of target. Pure: names alone tell which points can be restored, headers what stands after them.

mod steps;
mod way;

pub use steps::{Applied, InFile, Judged, follow, tag};
pub use way::{Way, way_from};

use crate::replica::RemoteFile;
use std::collections::{BTreeMap, BTreeSet};

/// Why a point cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
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
}

pub(crate) fn nearest(below: &Option<u64>, above: &Option<u64>) -> String {
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

    fn hole(&self, target: u64) -> NoWay {
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
        NoWay::Hole { missing, below, above }
    }

    /// The files that lead to `target`, in the order of their application; the first one is a snapshot.
    pub fn plan(&self, target: u64) -> Result<Vec<RemoteFile>, NoWay> {
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
            return Err(NoWay::NoSuchPoint { what, below, above });
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
    pub fn timed(&self) -> impl Iterator<Item = &RemoteFile> {
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
    ///
    /// # Errors
    /// Those of `time`, which is asked for the file of each point that [`Chain::timed`] names.
    pub fn point_at<E: From<NoWay>>(
        &self,
        millis: i64,
        now_millis: i64,
        mut time: impl FnMut(&RemoteFile) -> Result<i64, E>,
    ) -> Result<u64, E> {
        let points: Vec<u64> = self.points.iter().copied().collect();
        // How many points are surely not after it, and how many may be.
        let (mut low, mut most) = (0, None);
        let (first, mut first_millis) = (self.restorable().next(), None);
        for (at, file) in self.timed().enumerate() {
            let time = time(file)?;
            if Some(file.name.max_txid) == first {
                first_millis = Some(time);
            }
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
            return Err(NoWay::NoSuchPoint { what, below, above }.into());
        }
        let Some(point) = low.checked_sub(1).map(|at| points[at]) else {
            let begins = first_millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
            let when = begins.map(|begins| format!(": what can be restored begins at {begins}")).unwrap_or_default();
            let what = format!("the replica begins after this time{when}");
            return Err(NoWay::NoSuchPoint { what, below: None, above: first }.into());
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
            return Err(NoWay::Hole { missing, below, above }.into());
        }
        Ok(point)
    }
}
