//! A fault of the store within the measured phase: what is done to which of its members, and what is measured of what follows.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::descriptor::{
    Column, Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay,
};
use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::measure::{Durations, Total};
use crate::rules::{Rule, Rules};

/// What a fault must be.
const RULES: &[Rule] = &[Rule {
    field: ".syncDelay",
    holds: "has(self.syncDelay) == (self.kind == 'SlowDisk')",
    otherwise: "syncDelay says by how much a sync takes longer where kind is SlowDisk: give it there, and nowhere else",
}];

/// What is done to a member of the store while it is loaded. In a cluster Kill and Stop alone.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct Fault {
    /// What is done.
    pub kind: FaultKind,
    /// To which member. A store of one member has only that, which counts as its leader.
    #[serde(default)]
    pub member: FaultMember,
    /// When, from the beginning of the measured phase.
    #[schemars(extend("example" = "3s"))]
    pub after: DurationText,
    /// How long it lasts. In a cluster a Kill lasts until the kubelet starts the member again, whatever is said here.
    #[x_kube(validation = LONGER_THAN_ZERO)]
    #[schemars(extend("example" = "2s"))]
    pub duration: DurationText,
    /// SlowDisk: by how much each sync of the member takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    #[schemars(extend("example" = "20ms"))]
    pub sync_delay: Option<DurationText>,
}

/// What is done to a member.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultKind {
    /// It is killed with SIGKILL, and started again on its data when the time is over; in a cluster when the kubelet does so, mostly at once. What
    /// the store uses is then not measured.
    Kill,
    /// It is stopped with SIGSTOP, and goes on where it was when the time is over.
    Stop,
    /// It is cut off from clients and from the other members, and they from it: nothing comes through, and what was sent arrives when the time is
    /// over. All that is sent to any member goes through a relay on loopback for the whole trial, in every arm. Embedded runs only.
    Partition,
    /// Each of its syncs takes longer by `syncDelay`. Needs `strace`, which also makes its other system calls slower meanwhile. What the store
    /// uses is then not measured. Embedded runs only.
    SlowDisk,
}

/// Which member.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultMember {
    /// The one that leads when the time has come, or the only one.
    #[default]
    Leader,
    /// One that does not lead then. Needs 3 or 5 members.
    Follower,
}

/// The longest time of a trial during which no client had a write acknowledged. One for each trial.
pub const WRITE_PAUSE: Durations = Durations("writePause");
/// To the first acknowledgement of a write: where others of a group go on, from the beginning of the fault, of a write that was sent after it;
/// of a single member, from the end of the fault. One for each trial.
pub const RECOVERY: Durations = Durations("recovery");
/// From the moment at which the fault was due to end to when the member's own state had a write that was acknowledged after that. One for each
/// trial.
pub const CATCH_UP: Durations = Durations("catchUp");
/// Requests that clients gave up, reads and writes.
pub const FAILED_REQUESTS: Total = Total("failedRequests");
/// Of these the writes of which nobody can say whether they were made.
pub const UNKNOWN_WRITES: Total = Total("unknownWrites");
/// Keys of which the newest acknowledged write was not there at the end, where the store's durability lets it lose that.
pub const LOST_WRITES: Total = Total("lostWrites");

/// What is measured of faults, of whichever family the workload is.
pub static METRICS: &[&Descriptor] = &[
    &WRITE_PAUSE_MEDIAN,
    &WRITE_PAUSE_MAX,
    &RECOVERY_MEDIAN,
    &CATCH_UP_MEDIAN,
    &FAILED_REQUESTS_MEDIAN,
    &UNKNOWN_WRITES_MEDIAN,
    &LOST_WRITES_MOST,
];

/// A time of which each trial has one: the median over trials.
pub(super) const fn time_of_trial(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    durations: Durations,
    column: Option<Column>,
) -> Descriptor {
    Descriptor {
        over_trials: OverTrials::Median,
        is_headline: true,
        direction: Direction::Lag,
        ..delay(name, words, about, durations, Statistic::Max, column)
    }
}

/// A number of things of a trial: the median over trials.
pub(super) const fn count_of_trial(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    total: Total,
    column: Option<Column>,
) -> Descriptor {
    Descriptor {
        name,
        about,
        words,
        unit: Unit::Count,
        direction: Direction::Harm,
        source: Source::Total(total, Per::Trial),
        over_trials: OverTrials::Median,
        is_headline: false,
        place: Place::Measures,
        column,
        gauge: None,
    }
}

static WRITE_PAUSE_MEDIAN: Descriptor = time_of_trial(
    "WritePauseMicros",
    "time without writes",
    "Longest time of a trial during which no client had a write acknowledged; the median over trials",
    WRITE_PAUSE,
    column("no writes for", 0),
);
static WRITE_PAUSE_MAX: Descriptor = Descriptor {
    direction: Direction::Lag,
    ..delay(
        "WritePauseMaxMicros",
        "longest time without writes",
        "Longest time during which no client had a write acknowledged, of all trials",
        WRITE_PAUSE,
        Statistic::Max,
        column("at worst", 2),
    )
};
static RECOVERY_MEDIAN: Descriptor = time_of_trial(
    "RecoveryMicros",
    "time to recover",
    "To the first acknowledgement of a write: where others of a group go on, from the beginning of the fault; of a store of one member, from \
     its end; the median over trials",
    RECOVERY,
    column("recovered", 1),
);
static CATCH_UP_MEDIAN: Descriptor = time_of_trial(
    "CatchUpMicros",
    "time to catch up",
    "From the moment at which the fault of a member was due to end to when its own state had a write that was acknowledged after \
     that; the median over trials",
    CATCH_UP,
    column("caught up", 2),
);
static FAILED_REQUESTS_MEDIAN: Descriptor = count_of_trial(
    "FailedRequests",
    "failed requests",
    "Requests of a trial that clients gave up around a fault, reads and writes; the median over trials",
    FAILED_REQUESTS,
    column("gave up", 3),
);
static UNKNOWN_WRITES_MEDIAN: Descriptor = count_of_trial(
    "UnknownWrites",
    "writes of unknown outcome",
    "Writes of a trial of which nobody can say whether they were made, because no answer came; the median over trials",
    UNKNOWN_WRITES,
    column("unknown", 4),
);
static LOST_WRITES_MOST: Descriptor = Descriptor {
    // Where most trials lose nothing their median would say that nothing is lost.
    over_trials: OverTrials::Largest,
    ..count_of_trial(
        "LostWrites",
        "lost acknowledged writes",
        "Keys of a trial of which the newest acknowledged write was not there at the end, where the store's durability lets it lose that in a kill; \
         where it does not, one is a wrong answer; the most of any trial",
        LOST_WRITES,
        column("lost", 3),
    )
};
