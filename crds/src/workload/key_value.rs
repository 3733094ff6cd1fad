//! Load on any replicated key-value store: the same keys, sizes and clients, spoken over each store's own protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder};
use crate::duration::DurationText;
use crate::measure::{Durations, Total};
use crate::metric::descriptor::{
    Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay,
};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Etcd, Api::DEngine],
    workload_rules: &[
        Rule {
            field: ".load.clients",
            holds: "!has(self.load.clients) || self.load.clients >= self.load.connections",
            otherwise: "load.clients must be at least load.connections: a connection without a client would stay idle",
        },
        Rule {
            field: ".keyValue.keySpace",
            holds: "!(self.keyValue.operation in ['CompareAndSwap', 'WatchLatency', 'Failover']) || self.keyValue.keySpace >= \
                (has(self.load.clients) ? self.load.clients : self.load.connections)",
            otherwise: "keySpace must be at least the number of clients: each swaps, watches, or writes keys of its own",
        },
        Rule {
            field: ".load.duration",
            holds: "self.keyValue.operation != 'Failover' || has(self.load.duration)",
            otherwise: "operation: Failover needs load.duration, not total: the leader is killed at a time of it",
        },
    ],
    metrics: &[
        &STALENESS_P99,
        &STALENESS_MAX,
        &STALE_READS_SHARE,
        &WRITE_PAUSE_MEDIAN,
        &WRITE_PAUSE_MAX,
        &FIRST_WRITE_MEDIAN,
        &CATCH_UP_MEDIAN,
        &FAILED_REQUESTS_MEDIAN,
        &UNKNOWN_WRITES_MEDIAN,
    ],
    run_rules: &[
        Rule {
            field: ".parallelism",
            holds: "w.keyValue.keySpace >= self.parallelism",
            otherwise: "parallelism must not exceed load.total or keySpace of any workload: each load pod takes its share of \
                both",
        },
        Rule {
            field: ".parallelism",
            holds: "self.parallelism == 1 || w.keyValue.operation != 'Scan'",
            otherwise: "parallelism must be 1 where keyValue scans: a load pod knows only its own share of the keys",
        },
        Rule {
            field: ".parallelism",
            holds: "self.parallelism == 1 || w.keyValue.operation != 'Failover'",
            otherwise: "parallelism must be 1 where keyValue fails over: one load process has the leader killed and times every write",
        },
    ],
};

/// Mixed at level Eventual: how old a read's answer was, of every read; 0 of one that missed nothing. Of one that missed a write that
/// was acknowledged before the read was sent: how long before, of the newest such write.
pub const STALENESS: Durations = Durations("staleness");
/// Mixed at level Eventual: reads that missed a write that was acknowledged before they were sent.
pub const STALE_READS: Total = Total("staleReads");

static STALENESS_P99: Descriptor = delay(
    "StalenessP99Micros",
    "p99 staleness of reads",
    "99th percentile of the age of what eventual reads found: 0 of a read that missed nothing, else how long the newest write that it \
     missed had been acknowledged when it was sent",
    STALENESS,
    Statistic::P99,
    column("stale p99", 2),
);
static STALENESS_MAX: Descriptor = delay(
    "StalenessMaxMicros",
    "largest staleness of a read",
    "Largest age of what an eventual read found: how long the newest write that it missed had been acknowledged when it was sent",
    STALENESS,
    Statistic::Max,
    column("stale max", 3),
);
static STALE_READS_SHARE: Descriptor = Descriptor {
    name: "StaleReadsPerThousandOperations",
    about: "Eventual reads that missed a write that was acknowledged before they were sent, for each thousand requests",
    words: "stale reads",
    unit: Unit::PerThousandOperations,
    direction: Direction::Delay,
    source: Source::Total(STALE_READS, Per::ThousandOperations),
    over_trials: OverTrials::Pooled,
    is_headline: false,
    place: Place::Measures,
    column: column("stale/1,000", 4),
    gauge: None,
};

/// Failover: the longest time of a trial during which no client had a write acknowledged. One for each trial.
pub const WRITE_PAUSE: Durations = Durations("writePause");
/// Failover: from the order to kill the leader to the first acknowledgement of a write that was sent after its death. One for each trial.
pub const FIRST_WRITE: Durations = Durations("firstWriteAfterKill");
/// Failover: from the moment at which the killed member was due to start again to when its own state had a write that was acknowledged
/// after that. One for each trial.
pub const CATCH_UP: Durations = Durations("catchUp");
/// Failover: requests that clients gave up, reads and writes.
pub const FAILED_REQUESTS: Total = Total("failedRequests");
/// Failover: of these the writes of which nobody can say whether they were made.
pub const UNKNOWN_WRITES: Total = Total("unknownWrites");

/// A time of a failover, of which each trial has one: the median over trials.
const fn failover_time(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    durations: Durations,
    column: Option<crate::metric::Column>,
) -> Descriptor {
    Descriptor {
        over_trials: OverTrials::Median,
        is_headline: true,
        ..delay(name, words, about, durations, Statistic::Max, column)
    }
}

/// A number of requests of a trial: the median over trials.
const fn failover_count(
    name: &'static str,
    words: &'static str,
    about: &'static str,
    total: Total,
    column: Option<crate::metric::Column>,
) -> Descriptor {
    Descriptor {
        name,
        about,
        words,
        unit: Unit::Count,
        direction: Direction::Delay,
        source: Source::Total(total, Per::Trial),
        over_trials: OverTrials::Median,
        is_headline: false,
        place: Place::Measures,
        column,
        gauge: None,
    }
}

static WRITE_PAUSE_MEDIAN: Descriptor = failover_time(
    "WritePauseMicros",
    "time without writes",
    "Longest time of a trial during which no client had a write acknowledged; the median over trials",
    WRITE_PAUSE,
    column("no writes for", 0),
);
static WRITE_PAUSE_MAX: Descriptor = delay(
    "WritePauseMaxMicros",
    "longest time without writes",
    "Longest time during which no client had a write acknowledged, of all trials",
    WRITE_PAUSE,
    Statistic::Max,
    column("at worst", 2),
);
static FIRST_WRITE_MEDIAN: Descriptor = failover_time(
    "FirstWriteAfterKillMicros",
    "time to the first write after the kill",
    "From the order to kill the leader to the first acknowledgement of a write that was sent after its death; the median over trials",
    FIRST_WRITE,
    column("first write", 1),
);
static CATCH_UP_MEDIAN: Descriptor = failover_time(
    "CatchUpMicros",
    "time to catch up",
    "From the moment at which the killed member was due to start again to when its own state had a write that was acknowledged after \
     that; the median over trials",
    CATCH_UP,
    column("caught up", 2),
);
static FAILED_REQUESTS_MEDIAN: Descriptor = failover_count(
    "FailedRequests",
    "failed requests",
    "Requests of a trial that clients gave up around the kill, reads and writes; the median over trials",
    FAILED_REQUESTS,
    column("gave up", 3),
);
static UNKNOWN_WRITES_MEDIAN: Descriptor = failover_count(
    "UnknownWrites",
    "writes of unknown outcome",
    "Writes of a trial of which nobody can say whether they were made, because no answer came; the median over trials",
    UNKNOWN_WRITES,
    column("unknown", 4),
);

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".readPercent",
        holds: "!has(self.readPercent) || self.operation in ['Mixed', 'Failover']",
        otherwise: "readPercent needs operation: Mixed or Failover; remove readPercent",
    },
    Rule {
        field: ".readPercent",
        holds: "self.operation != 'Mixed' || has(self.readPercent)",
        otherwise: "operation: Mixed needs readPercent; say how many of 100 requests read",
    },
    Rule {
        field: ".readLevel",
        holds: "self.readLevel == 'Linearizable' || self.operation in ['Get', 'Mixed']",
        otherwise: "readLevel needs operation: Get or Mixed; remove readLevel",
    },
    Rule {
        field: ".killAfter",
        holds: "has(self.killAfter) == (self.operation == 'Failover')",
        otherwise: "killAfter and operation: Failover belong together: set both, or neither",
    },
    Rule {
        field: ".restartAfter",
        holds: "has(self.restartAfter) == (self.operation == 'Failover')",
        otherwise: "restartAfter and operation: Failover belong together: set both, or neither",
    },
    Rule {
        field: ".scanKeys",
        holds: "!has(self.scanKeys) || self.operation == 'Scan'",
        otherwise: "scanKeys needs operation: Scan; remove scanKeys",
    },
    Rule {
        field: ".scanKeys",
        holds: "!has(self.scanKeys) || self.scanKeys in [10, 100, 1000]",
        otherwise: "scanKeys must be 10, 100 or 1000: as many keys have a prefix in common",
    },
    Rule {
        field: ".keySpace",
        holds: "self.operation != 'Scan' || self.keySpace >= (has(self.scanKeys) ? self.scanKeys : 100)",
        otherwise: "keySpace must be at least scanKeys, which is 100 if it is not given",
    },
];

/// Load on any replicated key-value store. Stores that speak different protocols are compared under the same requests.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct KeyValueWorkload {
    /// The request to repeat.
    pub operation: KeyValueOperation,
    /// Length of a key, bytes.
    #[serde(default = "KeyValueWorkload::default_key_bytes")]
    #[schemars(range(min = 8, max = 1024))]
    pub key_bytes: u32,
    /// Length of a value, bytes.
    #[serde(default = "KeyValueWorkload::default_value_bytes")]
    #[schemars(range(min = 8, max = 1_048_576))]
    pub value_bytes: u32,
    /// How many distinct keys the requests are spread over.
    #[serde(default = "super::keys::default_key_space")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub key_space: u32,
    /// In which order keys are visited.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// What a read may miss. For Get and Mixed.
    #[serde(default)]
    pub read_level: ReadLevel,
    /// Mixed: how many of 100 requests read; the others put. Failover may have it, too; without it all put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
    /// Scan: how many keys are read at once, 10, 100 or 1000; 100 if it is not given. They are those that have a prefix in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 1000))]
    pub scan_keys: Option<u32>,
    /// Failover: when the leader is killed, from the beginning of the measured phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_after: Option<DurationText>,
    /// Failover: how long the killed member is down, from the kill to its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_after: Option<DurationText>,
}

impl KeyValueWorkload {
    fn default_key_bytes() -> u32 {
        32
    }
    fn default_value_bytes() -> u32 {
        256
    }

    /// How many keys a scan reads.
    pub fn scanned_keys(&self) -> u32 {
        self.scan_keys.unwrap_or(100)
    }
}

impl KeyValueWorkload {
    /// See [`super::Parameters::linearizable_reads`].
    pub(super) fn linearizable_reads(&self) -> Option<super::ReadsBy> {
        match (self.operation, self.read_level) {
            (KeyValueOperation::Scan, _) => Some(super::ReadsBy::Engine),
            (
                KeyValueOperation::Get | KeyValueOperation::Mixed | KeyValueOperation::Failover,
                ReadLevel::Linearizable,
            ) => Some(super::ReadsBy::Engine),
            (KeyValueOperation::Get | KeyValueOperation::Mixed, ReadLevel::Lease) => Some(super::ReadsBy::Lease),
            (KeyValueOperation::Get | KeyValueOperation::Mixed, ReadLevel::Eventual) => None,
            (
                KeyValueOperation::Put
                | KeyValueOperation::CompareAndSwap
                | KeyValueOperation::WatchLatency
                // At another level, which the schema refuses.
                | KeyValueOperation::Failover,
                _,
            ) => None,
        }
    }

    /// See [`super::Parameters::kills_members`].
    pub(super) fn kills_members(&self) -> bool {
        self.operation == KeyValueOperation::Failover
    }

    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            KeyValueOperation::Put | KeyValueOperation::CompareAndSwap => 100,
            // What watchers are told is not what writers are.
            KeyValueOperation::Get | KeyValueOperation::Scan | KeyValueOperation::WatchLatency => 0,
            // A member that starts anew counts its syncs anew.
            KeyValueOperation::Failover => 0,
            KeyValueOperation::Mixed => 100 - self.read_percent.unwrap_or(100).min(100),
        }
    }
}

/// Requests that every such store has.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyValueOperation {
    /// Write one key.
    Put,
    /// Read one key. The key space is written before the measurement.
    Get,
    /// Reads and writes of single keys, by `readPercent`. At level Eventual, reads go to another member than writes where there are
    /// several, and how stale their answers are is measured.
    Mixed,
    /// Read all keys with a common prefix, `scanKeys` of them, at level Linearizable. The key space is written before the measurement.
    /// etcd's API: a range; d-engine: `HandleClientScan`.
    Scan,
    /// Replace the value of a key, of which the value before is given. Each client does so with keys of its own, so that every swap
    /// must succeed. The key space is written before the measurement. etcd's API: a transaction that compares the value; d-engine:
    /// `CompareAndSwap`.
    CompareAndSwap,
    /// Write a key and wait for its event on a watch. Each client has a key and a watch of its own, watches on all members. Latency is
    /// from the send of the write to its event.
    WatchLatency,
    /// Write keys, and read them by `readPercent`, while the leader of three or five members is killed (SIGKILL), `killAfter` into the
    /// load, and started again `restartAfter` later. Measured are the time without an acknowledged write, what became of requests, and
    /// when the killed member has caught up. Every acknowledged write must be there at the end, at every member. A client that has no
    /// answer for `load.timeout`, or whose connection breaks, asks the next member. In embedded runs only: in a cluster a load may kill
    /// nothing.
    Failover,
}

/// What a read may miss, and what each protocol calls it.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadLevel {
    /// Nothing that was acknowledged before the read began. etcd's API: a linearizable range; d-engine: `LinearizableRead`.
    #[default]
    Linearizable,
    /// The same, as long as clocks keep to a bound. d-engine: `LeaseRead`. etcd's API has no such level: a linearizable range,
    /// which promises at least as much.
    Lease,
    /// Whatever the member that is asked does not have yet. etcd's API: a serializable range; d-engine: `EventualConsistency`.
    Eventual,
}
