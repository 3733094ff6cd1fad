//! How to replicate, and what no replicator can: whoever reads settings, in whatever words, asks [`Settings::check`].

use super::DrillSettings;
use crate::compaction::LITESTREAM_INTERVALS;
use crate::pin::PinKind;
use crate::retention::Policy;
use std::path::PathBuf;
use std::time::Duration;

/// Between two uploads of one database, at least: as often as a database is looked at.
pub const INTERVAL_LEAST: Duration = super::wheel::TICK;
/// Levels that are merged, at most: the one behind them is that of snapshots.
pub const LEVELS_MAX: usize = 8;

/// How to replicate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between two uploads of one database, and between two looks at an idle one.
    pub interval: Duration,
    /// Between two snapshots of one database.
    pub snapshot_interval: Duration,
    /// How long a file waits in level 0, 1, … before it is merged with those that came since; at most [`LEVELS_MAX`].
    pub levels: Vec<Duration>,
    /// What is kept of what was merged; nothing is removed where absent.
    pub retention: Option<Policy>,
    /// Uploads at once, beside one of a large file and one of a snapshot.
    pub uploads: usize,
    /// Memory for what is staged, all databases together.
    pub arena_bytes: usize,
    /// For staged files that are larger.
    pub staging_folder: PathBuf,
    /// What holds frames; where absent locks, and a read transaction of each database for which they do not work.
    pub pin: Option<PinKind>,
    /// By so much the WAL of a database may grow because we hold it: beyond that frames are let go of, staged or not.
    pub wal_bytes_max: u64,
    /// Uploads in a month, all databases together; unbounded where absent.
    pub uploads_a_month_max: Option<u64>,
    /// What is restored for a trial, and how often; nothing where absent.
    pub drill: Option<DrillSettings>,
    /// A database that another process of ours watches when it is found is left to it, as long as that does, where its replica has files:
    /// of two that write there each would stop the other.
    pub stands_back: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interval: Duration::from_secs(1),
            snapshot_interval: Duration::from_secs(24 * 3600),
            levels: LITESTREAM_INTERVALS.to_vec(),
            retention: Some(Policy::default()),
            uploads: 4,
            arena_bytes: 2 * 1024 * 1024,
            staging_folder: std::env::temp_dir(),
            pin: None,
            wal_bytes_max: 4 << 30,
            uploads_a_month_max: None,
            drill: None,
            stands_back: false,
        }
    }
}

/// Which setting cannot be, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// [`Settings::interval`].
    #[error("must be {} ms or more", INTERVAL_LEAST.as_millis())]
    Interval,
    /// [`Settings::levels`], all of them.
    #[error("names more than {LEVELS_MAX} levels")]
    Levels,
    /// One of [`Settings::levels`].
    #[error("must be more than 0")]
    Level,
}

impl Settings {
    /// Whether somebody may want these.
    pub fn check(&self) -> Result<(), Unfit> {
        if self.interval < INTERVAL_LEAST {
            return Err(Unfit::Interval);
        }
        if self.levels.len() > LEVELS_MAX {
            return Err(Unfit::Levels);
        }
        if self.levels.contains(&Duration::ZERO) { Err(Unfit::Level) } else { Ok(()) }
    }
}
