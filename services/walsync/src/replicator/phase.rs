//! How a database stands, as others are told.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is nothing to read of a database for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nobody has looked at it.
    NotLookedAt,
    /// It is not there.
    NoFile,
    /// Nothing was ever written into it.
    Empty,
    /// It is not yet as it must be, or somebody is in the way.
    Busy(&'static str),
}

impl Waits {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Waits::NotLookedAt => "not looked at yet",
            Waits::NoFile => "there is no such file",
            Waits::Empty => "it is still empty",
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

impl Phase {
    /// All kinds, each in one word.
    pub const KINDS: [&str; 6] = ["waiting", "running", "failing", "stalled", "refused", "fenced"];

    /// Its kind, one of [`Phase::KINDS`].
    pub fn kind(&self) -> &'static str {
        let number = match self {
            Phase::Waiting(_) => 0,
            Phase::Running => 1,
            Phase::Failing(_) => 2,
            Phase::Stalled(_) => 3,
            Phase::Refused(_) => 4,
            Phase::Fenced(_) => 5,
        };
        Phase::KINDS[number]
    }

    /// Why it is not running.
    pub fn why(&self) -> Option<Cow<'_, str>> {
        match self {
            Phase::Running => None,
            Phase::Waiting(why) => Some(why.why().into()),
            Phase::Failing(why) | Phase::Stalled(why) | Phase::Refused(why) => Some(why.into()),
            Phase::Fenced(key) => Some(format!("another process writes {key}").into()),
        }
    }
}

/// The kind, and why.
impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())?;
        self.why().map_or(Ok(()), |why| write!(formatter, ": {why}"))
    }
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
    /// The store failed last in a way that trying again does not mend.
    pub fails_for_good: bool,
    /// For how long the store has been asked for something, without an answer.
    pub asked: Option<Duration>,
}

impl Status {
    /// Whether nobody has looked yet at what is there.
    pub fn is_unknown(&self) -> bool {
        self.phase == Phase::Waiting(Waits::NotLookedAt)
    }
}

/// Why a snapshot that is due is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLate {
    /// For how long it has been tried.
    pub by: Duration,
    /// What was in the way the last time.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_is_told_by_its_kind_and_why() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(str::to_owned);
        let all = [
            (Phase::default(), "waiting: not looked at yet"),
            (Phase::Running, "running"),
            (Phase::Failing(a), "failing: a"),
            (Phase::Stalled(b), "stalled: b"),
            (Phase::Refused(c), "refused: c"),
            (Phase::Fenced(d), "fenced: another process writes d"),
        ];
        assert_eq!(all.each_ref().map(|(phase, _)| phase.kind()), Phase::KINDS);
        for (phase, told) in all {
            assert_eq!(phase.to_string(), told);
        }
    }
}
