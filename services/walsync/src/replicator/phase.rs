//! How a database stands, as others are told.

use std::path::PathBuf;
use std::time::Duration;

/// Why there is nothing to read of a database for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nobody has looked at it.
    NotLookedAt,
    /// It is not there.
    NoFile,
    /// It is not yet as it must be, or somebody is in the way.
    Busy(&'static str),
}

impl Waits {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Waits::NotLookedAt => "not looked at yet",
            Waits::NoFile => "there is no such file",
            Waits::Busy(why) => why,
        }
    }
}

/// What a database is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is nothing to read for now, and why; looked at again all the time.
    Waiting(Waits),
    /// Replicating.
    Running,
    /// The store does not take it; tried again.
    Failing(String),
    /// What is committed finds no room in the staging folder, and is not durable; tried again.
    Stalled(String),
    /// It cannot be replicated as it is; looked at again later.
    Refused(String),
    /// Another process writes into its replica. Nothing is done any more.
    Fenced(String),
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Waiting(Waits::NotLookedAt)
    }
}

/// How a database stands.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The database.
    pub path: PathBuf,
    /// What it is doing.
    pub phase: Phase,
    /// The last transaction ID that is staged.
    pub staged_txid: u64,
    /// The last transaction ID that the store has.
    pub durable_txid: u64,
    /// When that was staged, Unix time in milliseconds.
    pub durable_millis: i64,
    /// How long the oldest commit that the store has not has been known. Zero: it has all that was seen.
    pub at_risk: Duration,
    /// A snapshot is due, and cannot be taken. What is committed is sent all the same.
    pub snapshot_late: Option<SnapshotLate>,
    /// Frames were let go of that are not staged, for how long, and for whom. What the store lacks is found by comparing.
    pub let_go: Option<(Duration, &'static str)>,
}

/// Why a snapshot that is due is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLate {
    /// For how long it has been tried.
    pub by: Duration,
    /// What was in the way the last time.
    pub why: String,
}
