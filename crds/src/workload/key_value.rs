//! Load on any replicated key-value store: the same keys, sizes and clients, spoken over each store's own protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder};
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
            holds: "!(self.keyValue.operation in ['CompareAndSwap', 'WatchLatency']) || self.keyValue.keySpace >= \
                (has(self.load.clients) ? self.load.clients : self.load.connections)",
            otherwise: "keySpace must be at least the number of clients: each swaps, or watches, keys of its own",
        },
    ],
    metrics: &[&STALENESS_P99, &STALENESS_MAX, &STALE_READS_SHARE],
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

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".readPercent",
        holds: "!has(self.readPercent) || self.operation == 'Mixed'",
        otherwise: "readPercent needs operation: Mixed; remove readPercent",
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
    /// Mixed: how many of 100 requests read; the others put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
    /// Scan: how many keys are read at once, 10, 100 or 1000; 100 if it is not given. They are those that have a prefix in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 1000))]
    pub scan_keys: Option<u32>,
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
    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            KeyValueOperation::Put | KeyValueOperation::CompareAndSwap => 100,
            // What watchers are told is not what writers are.
            KeyValueOperation::Get | KeyValueOperation::Scan | KeyValueOperation::WatchLatency => 0,
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
