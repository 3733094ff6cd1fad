//! Load on any replicated key-value store: the same keys, sizes and clients, spoken over each store's own protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fault::{Fault, FaultKind, FaultMember, count_of_trial, time_of_trial};
use super::{Api, Facts, KeyOrder, Subset};
use crate::descriptor::{Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay};
use crate::duration::DurationText;
use crate::measure::{Durations, Total};
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
            holds: "(!(self.keyValue.operation in ['CompareAndSwap', 'WatchLatency', 'Failover']) && !has(self.load.fault)) || \
                self.keyValue.keySpace >= (has(self.load.clients) ? self.load.clients : self.load.connections)",
            otherwise: "keySpace must be at least the number of clients: each swaps, watches, or writes keys of its own",
        },
        Rule {
            field: ".load.duration",
            holds: "self.keyValue.operation != 'Failover' || has(self.load.duration)",
            otherwise: "operation: Failover needs load.duration, not total: the leader is killed at a time of it",
        },
    ],
    metrics: &[&STALENESS_P99, &STALENESS_MAX, &STALE_READS_SHARE, &FIRST_WRITE_MEDIAN, &EXPIRED_LEASES_MEDIAN],
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
        Rule {
            field: ".parallelism",
            holds: "self.parallelism == 1 || w.keyValue.operation != 'Lock'",
            otherwise: "parallelism must be 1 where keyValue locks: one load process sees whether two clients hold a lock",
        },
    ],
    loads_what_is_somebodys: false,
    answers_one_by_one: |parameters| {
        parameters.key_value().is_some_and(|key_value| match key_value.operation {
            KeyValueOperation::Put | KeyValueOperation::Get | KeyValueOperation::Mixed => true,
            KeyValueOperation::Scan | KeyValueOperation::CompareAndSwap => true,
            KeyValueOperation::WatchLatency | KeyValueOperation::Lock | KeyValueOperation::Failover => false,
        })
    },
    highest_rate: Some(Subset {
        holds: "self.keyValue.operation in ['Put', 'Get', 'Mixed', 'CompareAndSwap']",
        words: "Put, Get, Mixed, CompareAndSwap",
    }),
    fault: Some(Subset {
        holds: "self.keyValue.operation in ['Put', 'Mixed'] && self.keyValue.readLevel == 'Linearizable' \
            && !(has(self.keyValue.readPercent) && self.keyValue.readPercent == 100)",
        words: "Put, and Mixed that writes at level Linearizable; also on etcd's API",
    }),
};

/// Mixed at levels Bounded and Eventual: how old a read's answer was, of every read; 0 of one that missed nothing. Of one that missed a write that
/// was acknowledged before the read was sent: how long before, of the oldest such write, or a lower bound of it.
pub const STALENESS: Durations = Durations("staleness");
/// Mixed at levels Bounded and Eventual: reads that missed a write that was acknowledged before they were sent.
pub const STALE_READS: Total = Total("staleReads");

static STALENESS_P99: Descriptor = Descriptor {
    // Where nobody writes nobody misses a write.
    direction: Direction::Harm,
    ..delay(
        "StalenessP99Micros",
        "p99 staleness of reads",
        "99th percentile of the age of what eventual and bounded reads found: 0 of a read that missed nothing, else how long the oldest write that it \
         missed had been acknowledged when it was sent",
        STALENESS,
        Statistic::P99,
        column("stale p99", 2),
    )
};
static STALENESS_MAX: Descriptor = Descriptor {
    // Where nobody writes nobody misses a write.
    direction: Direction::Harm,
    ..delay(
        "StalenessMaxMicros",
        "largest staleness of a read",
        "Largest age of what an eventual or bounded read found: how long the oldest write that it missed had been acknowledged when it was sent",
        STALENESS,
        Statistic::Max,
        column("stale max", 3),
    )
};
static STALE_READS_SHARE: Descriptor = Descriptor {
    name: "StaleReadsPerThousandOperations",
    about: "Eventual and bounded reads that missed a write that was acknowledged before they were sent, for each thousand requests; the most of any trial",
    words: "stale reads",
    unit: Unit::PerThousandOperations,
    direction: Direction::Harm,
    source: Source::Total(STALE_READS, Per::ThousandOperations),
    // Where most trials have none their median would say that there are none.
    over_trials: OverTrials::Largest,
    is_headline: false,
    place: Place::Measures,
    column: column("stale/1,000", 4),
    gauge: None,
};

/// Failover: from the order to kill the leader to the first acknowledgement of a write that was sent after its death. One for each trial.
pub const FIRST_WRITE: Durations = Durations("firstWriteAfterKill");

static FIRST_WRITE_MEDIAN: Descriptor = time_of_trial(
    "FirstWriteAfterKillMicros",
    "time to the first write after the kill",
    "From the order to kill the leader to the first acknowledgement of a write that was sent after its death; the median over trials",
    FIRST_WRITE,
    column("first write", 1),
);

/// Lock: leases that ended because the loader itself was late: it was stopped, or had no processor.
pub const EXPIRED_LEASES: Total = Total("expiredLeases");

static EXPIRED_LEASES_MEDIAN: Descriptor = count_of_trial(
    "ExpiredLeases",
    "leases that the loader let end",
    "Leases of a trial that ended because the loader itself was late to keep them alive; the store is not blamed for what became of their \
     locks; the median over trials",
    EXPIRED_LEASES,
    column("late leases", 4),
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
        field: ".maxAge",
        holds: "has(self.maxAge) == (self.readLevel == 'Bounded')",
        otherwise: "maxAge and readLevel: Bounded belong together: set both, or neither",
    },
    Rule {
        field: ".door",
        holds: "!has(self.door) || self.door != 'Unary' || (self.operation != 'Lock' && self.readLevel != 'Bounded')",
        otherwise: "operation: Lock and readLevel: Bounded need door: Streaming, which alone has them; remove door",
    },
    Rule {
        field: ".locks",
        holds: "!has(self.locks) || self.operation == 'Lock'",
        otherwise: "locks needs operation: Lock; remove locks",
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
    /// Level Bounded: how old an answer may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationText>,
    /// How d-engine is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Door>,
    /// Mixed: how many of 100 requests read; the others put. Failover may have it, too; without it all put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
    /// Scan: how many keys are read at once, 10, 100 or 1000; 100 if it is not given. They are those that have a prefix in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 1000))]
    pub scan_keys: Option<u32>,
    /// Lock: for how many locks the clients contend; 1 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub locks: Option<u32>,
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

    /// By which door d-engine is asked.
    pub fn door(&self) -> Door {
        let is_streaming_only = self.operation == KeyValueOperation::Lock || self.read_level == ReadLevel::Bounded;
        self.door.unwrap_or(if is_streaming_only { Door::Streaming } else { Door::Unary })
    }

    /// For how many locks clients contend.
    pub fn contended_locks(&self) -> u32 {
        self.locks.unwrap_or(1)
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
            (KeyValueOperation::Get | KeyValueOperation::Mixed, ReadLevel::Bounded | ReadLevel::Eventual) => None,
            (
                KeyValueOperation::Put
                | KeyValueOperation::CompareAndSwap
                | KeyValueOperation::WatchLatency
                | KeyValueOperation::Lock
                // At another level, which the schema refuses.
                | KeyValueOperation::Failover,
                _,
            ) => None,
        }
    }

    /// What a Failover is: a leader that is killed.
    pub(super) fn failover(&self) -> Option<Fault> {
        let (after, duration) = (self.kill_after.clone()?, self.restart_after.clone()?);
        let is_failover = self.operation == KeyValueOperation::Failover;
        is_failover.then_some(Fault {
            kind: FaultKind::Kill,
            member: FaultMember::Leader,
            after,
            duration,
            sync_delay: None,
        })
    }

    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            // A lock that is acquired is a write at least.
            KeyValueOperation::Put | KeyValueOperation::CompareAndSwap | KeyValueOperation::Lock => 100,
            // What watchers are told is not what writers are.
            KeyValueOperation::Get | KeyValueOperation::Scan | KeyValueOperation::WatchLatency => 0,
            // A member that starts anew counts its syncs anew.
            KeyValueOperation::Failover => 0,
            KeyValueOperation::Mixed => 100 - self.read_percent.unwrap_or(100).min(100),
        }
    }

    /// See [`super::Parameters::value_bytes_of_a_write`].
    pub(super) fn value_bytes_of_a_write(&self) -> u64 {
        use KeyValueOperation as Operation;
        match self.operation {
            Operation::Put | Operation::CompareAndSwap | Operation::Mixed => u64::from(self.value_bytes),
            Operation::Lock | Operation::Failover => 0,
            Operation::Get | Operation::Scan | Operation::WatchLatency => 0,
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
    /// Reads and writes of single keys, by `readPercent`. At levels Bounded and Eventual, reads go to another member than writes where there are
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
    /// Acquire one of `locks` locks, write a key that it guards, and release it. Latency is the time to acquire a lock, waiting in line
    /// included; an operation is an acquisition. No two clients may hold a lock at a time, fencing tokens must rise with each holder, a write
    /// with the token of who holds the lock must be taken, and its value must be there at the end. etcd's API: `v3lockpb.Lock`, with a
    /// lease for each client, the revision of the answer as the token, and a transaction that compares the lock's key; d-engine: the same
    /// line of keys that end with leases, kept by the client over the streaming RPC of ours, the key's revision as the token.
    Lock,
    /// Write keys, and read them by `readPercent`, while the leader of three or five members is killed (SIGKILL), `killAfter` into the
    /// load, and started again `restartAfter` later. Measured are the time without an acknowledged write, what became of requests, and
    /// when the killed member has caught up. Every acknowledged write must be there at the end, at every member. A client that has no
    /// answer for `load.timeout`, or whose connection breaks, asks the next member. In a cluster the kubelet starts
    /// the member again, mostly at once, and `restartAfter` says nothing.
    Failover,
}

/// How d-engine is asked. Without it: by `Unary`, but by `Streaming` for what that alone has, operation Lock and level Bounded. etcd's API has unary
/// calls alone: an arm that is asked by them is ranked against one that is asked by `Streaming` only where the run's `allowUnequal` names `door`.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Door {
    /// One gRPC call for each request, in the dialect of release 0.2.4.
    Unary,
    /// One stream for each connection, `Operate` of the streaming RPC of ours: what the connection's clients ask in the same moment leaves in
    /// one frame, and answers come in any order. A watch is a call of its own, `Watch`.
    Streaming,
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
    /// Nothing that was acknowledged `maxAge` before the read began. d-engine: a bounded read of the streaming RPC of ours. etcd's API has
    /// no such level, and stores that speak it are refused: compare them at level Linearizable, or at level Eventual.
    Bounded,
    /// Whatever the member that is asked does not have yet. etcd's API: a serializable range; d-engine: `EventualConsistency`.
    Eventual,
}
