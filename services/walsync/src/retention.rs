//! Which files of a replica may go: what no point that is kept needs any more.
//!
//! Kept are all points of the last while, as fine as they were merged, and of the time before that one in each hour, day, week and
//! month. [`plan`] is pure: it chooses files from names and times, and proves from what would be left that every kept point
//! can still be restored, before anybody removes anything.
//!
//! Time is that of the replica's newest file: a database that nobody writes loses nothing. It is no later than the caller's own: what was
//! committed while a clock was ahead makes nothing old.
//! A restore under way has chosen its files by what was there: what a policy gives up stays for a grace.

use crate::chain::Chain;
use crate::replica::{RemoteFile, Replica};
use crate::store::StoreError;
use ltx::SNAPSHOT_LEVEL;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Every upload, for so long.
    pub uploads: Duration,
    /// Every merged file and snapshot, for so long.
    pub merged: Duration,
    /// Before that: one point in each of so many hours, …
    pub hourly: u32,
    /// … days,
    pub daily: u32,
    /// … weeks,
    pub weekly: u32,
    /// … and months.
    pub monthly: u32,
    /// For how long what is not kept any more stays.
    pub grace: Duration,
}

impl Default for Policy {
    fn default() -> Policy {
        let day = Duration::from_secs(86_400);
        let (hourly, daily, weekly, monthly) = (24, 7, 12, 12);
        Policy { uploads: Duration::from_secs(300), merged: day, hourly, daily, weekly, monthly, grace: day / 24 }
    }
}

/// Why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// What is there has a hole already.
    #[error("nothing is removed: the newest point cannot be restored: {0}")]
    Hole(String),
    /// A listing lacks what the store has confirmed.
    #[error("nothing is removed: the store lists files up to TXID {listed}, and has confirmed {confirmed}")]
    StaleListing {
        /// The newest that is listed.
        listed: u64,
        /// The newest that was written.
        confirmed: u64,
    },
    /// The choice was wrong.
    #[error("nothing is removed: without these files TXID {0} could not be restored; this is a mistake in walsync")]
    Unproven(u64),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What goes, and what is proved to stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Files that may be removed, the oldest first.
    pub remove: Vec<RemoteFile>,
    /// Points that are kept; each can be restored from what is left.
    pub points: BTreeSet<u64>,
}

/// Files that are removed between two looks at whether to go on.
pub const FILES_AT_ONCE: usize = 1000;

/// Milliseconds as an `i64`.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The first of a month since year 0.
fn month(unix_millis: i64) -> i64 {
    let date = jiff::Timestamp::from_millisecond(unix_millis).unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
    i64::from(date.year()) * 12 + i64::from(date.month())
}

const HOUR: i64 = 3_600_000;

/// Of each of the newest `count` buckets its newest snapshot, which needs no other file, or else its newest point.
fn newest_of_each(
    points: &BTreeMap<u64, (i64, bool)>,
    count: u32,
    bucket: impl Fn(i64) -> i64,
    kept: &mut BTreeSet<u64>,
) {
    let mut buckets: BTreeMap<i64, (bool, u64)> = BTreeMap::new();
    for (&point, &(time, snapshot)) in points {
        let best = buckets.entry(bucket(time)).or_default();
        *best = (*best).max((snapshot, point));
    }
    kept.extend(buckets.values().rev().take(count as usize).map(|(_, point)| *point));
}

fn kept_points(files: &[RemoteFile], chain: &Chain, policy: &Policy, now: i64) -> BTreeSet<u64> {
    // Of each point that can be restored: its time, the highest level that ends there.
    let mut ends: BTreeMap<u64, (i64, u8)> = BTreeMap::new();
    for file in files {
        let end = ends.entry(file.name.max_txid).or_insert((file.modified_millis, file.level));
        *end = (end.0.min(file.modified_millis), end.1.max(file.level));
    }
    ends.retain(|point, _| chain.is_restorable(*point));
    let mut kept: BTreeSet<u64> = ends.last_key_value().map(|(point, _)| *point).into_iter().collect();
    for (&point, &(time, level)) in &ends {
        let window = if level == 0 { policy.uploads } else { policy.merged };
        if time >= now.saturating_sub(millis(window)) {
            kept.insert(point);
        }
    }
    let points = ends.into_iter().map(|(point, (time, level))| (point, (time, level == SNAPSHOT_LEVEL))).collect();
    newest_of_each(&points, policy.hourly, |time| time.div_euclid(HOUR), &mut kept);
    newest_of_each(&points, policy.daily, |time| time.div_euclid(24 * HOUR), &mut kept);
    // 1970 began on a Thursday.
    newest_of_each(&points, policy.weekly, |time| (time + 3 * 24 * HOUR).div_euclid(7 * 24 * HOUR), &mut kept);
    newest_of_each(&points, policy.monthly, month, &mut kept);
    kept
}

/// Chooses what may go. `levels` are merged: what waits there for its turn stays. It is `now_millis` at most, whatever times files have.
///
/// # Errors
/// [`RetentionError::Hole`] where the newest point cannot be restored: then everything stays as it is.
pub fn plan(files: &[RemoteFile], policy: &Policy, levels: u8, now_millis: i64) -> Result<Plan, RetentionError> {
    let chain = Chain::new(files.to_vec());
    let Some(newest) = chain.newest() else { return Ok(Plan::default()) };
    chain.plan(newest).map_err(|error| RetentionError::Hole(error.to_string()))?;
    let now = files.iter().map(|file| file.modified_millis).max().unwrap_or(0).min(now_millis);
    let before = now.saturating_sub(millis(policy.grace));
    let mut points = kept_points(files, &chain, policy, now);
    // Its newest file of then told the time then: one that comes after a long pause gives up at once what was kept a moment ago.
    let earlier: Vec<RemoteFile> = files.iter().filter(|file| file.modified_millis <= before).copied().collect();
    if let Some(then) = earlier.iter().map(|file| file.modified_millis).max() {
        points.extend(kept_points(&earlier, &chain, policy, then));
    }
    let mut needed: HashSet<(u8, ltx::FileName)> = HashSet::new();
    for point in &points {
        let plan = chain.plan(*point).map_err(|_| RetentionError::Unproven(*point))?;
        needed.extend(plan.iter().map(|file| (file.level, file.name)));
    }
    let mut ends = [0; SNAPSHOT_LEVEL as usize + 1];
    for file in files {
        let end = &mut ends[usize::from(file.level)];
        *end = file.name.max_txid.max(*end);
    }
    let (mut remove, mut left) = (Vec::new(), Vec::new());
    for file in files {
        let level = usize::from(file.level);
        let waits = file.level < levels && file.name.max_txid > ends[level + 1];
        // The newest of a level says where merging, or replication, goes on.
        let last = file.name.max_txid == ends[level];
        let stays = waits || last || file.modified_millis > before || needed.contains(&(file.level, file.name));
        if stays { left.push(*file) } else { remove.push(*file) }
    }
    let left = Chain::new(left);
    match points.iter().find(|point| left.plan(**point).is_err()) {
        Some(point) => Err(RetentionError::Unproven(*point)),
        None => {
            remove.sort_by_key(|file| (file.name.max_txid, file.level));
            Ok(Plan { remove, points })
        }
    }
}

/// Lists, plans and removes; gives how many files went. `confirmed` is the newest transaction ID that the store is known to have.
///
/// # Errors
/// Nothing is removed but where the store fails on the way: what went by then was not needed.
pub fn enforce(
    replica: &Replica,
    policy: &Policy,
    levels: u8,
    now_millis: i64,
    confirmed: u64,
    mut goes_on: impl FnMut() -> bool,
) -> Result<usize, RetentionError> {
    let files = replica.files()?;
    let listed = files.iter().map(|file| file.name.max_txid).max().unwrap_or(0);
    if listed < confirmed {
        return Err(RetentionError::StaleListing { listed, confirmed });
    }
    let mut removed = 0;
    for files in plan(&files, policy, levels, now_millis)?.remove.chunks(FILES_AT_ONCE) {
        if !goes_on() {
            break;
        }
        replica.remove_all(files)?;
        removed += files.len();
    }
    Ok(removed)
}
