//! Load on the etcd v3 API.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder, Subset};
use crate::descriptor::{Descriptor, Statistic, column, delay};
use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::measure::Durations;
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Etcd],
    workload_rules: &[Rule {
        field: ".load.clients",
        holds: "!has(self.load.clients) || self.load.clients >= self.load.connections",
        otherwise: "load.clients must be at least load.connections: a connection without a client would stay idle",
    }],
    metrics: &[&PUT_LATENCY_P50, &PUT_LATENCY_P99, &PUT_LATENCY_MAX],
    run_rules: &[
        Rule {
            field: ".parallelism",
            holds: "w.etcd.keySpace >= self.parallelism",
            otherwise: "parallelism must not exceed load.total or keySpace of any workload: each load pod takes its share of \
                both",
        },
        Rule {
            field: ".parallelism",
            // Of a transaction that exceeds all keys, a rule of the workload says so.
            holds: "!has(w.etcd.operationsPerTransaction) || w.etcd.operationsPerTransaction > w.etcd.keySpace \
                || w.etcd.operationsPerTransaction <= w.etcd.keySpace / self.parallelism",
            otherwise: "parallelism must leave each load pod as many keys, keySpace / parallelism, as operationsPerTransaction",
        },
        Rule {
            field: ".parallelism",
            holds: "self.parallelism == 1 || !(w.etcd.operation in ['WatchLatency', 'WatchThroughput'])",
            otherwise: "parallelism must be 1 where etcd watches are measured: a watcher is told of every put, of which a load \
                pod knows only its own",
        },
    ],
    loads_what_is_somebodys: true,
    answers_one_by_one: |parameters| {
        parameters.etcd().is_some_and(|etcd| match etcd.operation {
            EtcdOperation::Put | EtcdOperation::Delete | EtcdOperation::TxnPut => true,
            EtcdOperation::Range | EtcdOperation::Mixed | EtcdOperation::LeaseKeepAlive => true,
            EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput => false,
        })
    },
    highest_rate: Some(Subset {
        holds: "self.etcd.operation in ['Put', 'Range', 'TxnPut', 'Mixed']",
        words: "Put, Range, TxnPut, Mixed",
    }),
    fault: None,
};

/// WatchLatency, WatchThroughput: each put, from its send to its answer. What an operation's latency is of is the event.
pub const PUT_LATENCY: Durations = Durations("putLatency");

static PUT_LATENCY_P50: Descriptor = delay(
    "PutLatencyP50Micros",
    "p50 latency of puts",
    "Median latency of the puts whose events are watched, from send to answer",
    PUT_LATENCY,
    Statistic::P50,
    column("put p50", 2),
);
static PUT_LATENCY_P99: Descriptor = delay(
    "PutLatencyP99Micros",
    "p99 latency of puts",
    "99th percentile of the latency of the puts whose events are watched, from send to answer",
    PUT_LATENCY,
    Statistic::P99,
    column("put p99", 1),
);
static PUT_LATENCY_MAX: Descriptor = delay(
    "PutLatencyMaxMicros",
    "largest latency of puts",
    "Largest latency of the puts whose events are watched, from send to answer",
    PUT_LATENCY,
    Statistic::Max,
    column("put max", 3),
);

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".limit",
        holds: "!has(self.limit) || (self.operation == 'Range' && self.scope == 'Prefix')",
        otherwise: "limit needs operation: Range and scope: Prefix; remove limit",
    },
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
        field: ".operationsPerTransaction",
        holds: "!has(self.operationsPerTransaction) || self.operation == 'TxnPut'",
        otherwise: "operationsPerTransaction needs operation: TxnPut; remove it",
    },
    Rule {
        field: ".watchers",
        holds: "!has(self.watchers) || self.operation in ['WatchLatency', 'WatchThroughput']",
        otherwise: "watchers needs operation: WatchLatency or WatchThroughput; remove watchers",
    },
    Rule {
        field: ".previousValue",
        holds: "!self.previousValue || self.operation in ['WatchLatency', 'WatchThroughput']",
        otherwise: "previousValue needs operation: WatchLatency or WatchThroughput; remove previousValue",
    },
    Rule {
        field: ".streams",
        holds: "!has(self.streams) || self.operation in ['WatchLatency', 'WatchThroughput']",
        otherwise: "streams needs operation: WatchLatency or WatchThroughput; remove streams",
    },
    Rule {
        field: ".watchers",
        holds: "!has(self.watchers) || !has(self.streams) || self.watchers >= self.streams",
        otherwise: "watchers must be at least streams: a stream without a watcher would stay idle",
    },
    Rule {
        field: ".scope",
        holds: "self.scope == 'Key' || self.operation == 'Range'",
        otherwise: "scope: Prefix needs operation: Range; remove scope",
    },
    Rule {
        field: "",
        holds: "!self.countOnly && !self.keysOnly || self.operation == 'Range'",
        otherwise: "countOnly and keysOnly need operation: Range; remove them",
    },
    Rule {
        field: ".consistency",
        holds: "self.consistency == 'Linearizable' || self.operation in ['Range', 'Mixed']",
        otherwise: "consistency: Serializable needs operation: Range or Mixed; remove consistency",
    },
    Rule {
        field: ".operationsPerTransaction",
        holds: "self.operation != 'TxnPut' || !has(self.operationsPerTransaction) || self.operationsPerTransaction <= \
            self.keySpace",
        otherwise: "operationsPerTransaction must not exceed keySpace: a transaction may not touch a key twice",
    },
];

/// Load on the etcd v3 API. Parameters follow etcd's own benchmark tool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct EtcdWorkload {
    /// The request to repeat.
    pub operation: EtcdOperation,
    /// Length of a key, bytes. Keys share the prefix `storebench/`.
    #[serde(default = "EtcdWorkload::default_key_bytes")]
    #[schemars(range(min = 24, max = 1024))]
    pub key_bytes: u32,
    /// Length of a value, bytes.
    #[serde(default = "EtcdWorkload::default_value_bytes")]
    #[schemars(range(min = 8, max = 1_048_576))]
    pub value_bytes: u32,
    /// How many distinct keys the requests are spread over.
    #[serde(default = "super::keys::default_key_space")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub key_space: u32,
    /// In which order keys are visited.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// Whether reads see every write acknowledged before them. For Range and Mixed.
    #[serde(default)]
    pub consistency: Consistency,
    /// Range: one key, or everything under the prefix.
    #[serde(default)]
    pub scope: RangeScope,
    /// Range over a prefix: the most keys to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: Option<u32>,
    /// Range: return the number of keys only.
    #[serde(default)]
    pub count_only: bool,
    /// Range: return keys without values.
    #[serde(default)]
    pub keys_only: bool,
    /// Mixed: how many of 100 requests read; the others put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
    /// TxnPut: puts in each transaction. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub operations_per_transaction: Option<u32>,
    /// WatchLatency, WatchThroughput: gRPC streams that carry the watchers. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub streams: Option<u32>,
    /// WatchLatency, WatchThroughput: watchers in all, each of the whole key space, spread over the streams. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub watchers: Option<u32>,
    /// WatchLatency, WatchThroughput: also deliver the value before the change.
    #[serde(default)]
    pub previous_value: bool,
    /// While writing, compact the history this often, as `compact-interval` of etcd's benchmark tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub compact_interval: Option<DurationText>,
    /// How many revisions a compaction leaves. Needs `compactInterval`.
    #[serde(default = "EtcdWorkload::default_compact_keep")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub compact_keep_revisions: u32,
}

impl EtcdWorkload {
    fn default_key_bytes() -> u32 {
        32
    }
    fn default_value_bytes() -> u32 {
        256
    }
    fn default_compact_keep() -> u32 {
        1000
    }
}

impl EtcdWorkload {
    /// See [`super::Parameters::linearizable_reads`].
    pub(super) fn reads_linearizably(&self) -> bool {
        let reads = matches!(self.operation, EtcdOperation::Range | EtcdOperation::Mixed);
        reads && self.consistency == Consistency::Linearizable
    }

    /// See [`super::Parameters::writes_percent`]. What watchers are told is not what writers are.
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            EtcdOperation::Put | EtcdOperation::Delete | EtcdOperation::TxnPut => 100,
            EtcdOperation::Mixed => 100 - self.read_percent.unwrap_or(100).min(100),
            EtcdOperation::Range | EtcdOperation::LeaseKeepAlive => 0,
            EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput => 0,
        }
    }

    /// See [`super::Parameters::value_bytes_of_a_write`].
    pub(super) fn value_bytes_of_a_write(&self) -> u64 {
        let values = match self.operation {
            EtcdOperation::Put | EtcdOperation::Mixed => 1,
            EtcdOperation::TxnPut => self.operations_per_transaction.unwrap_or(1),
            EtcdOperation::Delete | EtcdOperation::Range | EtcdOperation::LeaseKeepAlive => 0,
            EtcdOperation::WatchLatency | EtcdOperation::WatchThroughput => 0,
        };
        u64::from(values) * u64::from(self.value_bytes)
    }
}

/// Requests of the etcd v3 API.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EtcdOperation {
    /// Write one key.
    Put,
    /// Read one key or a prefix. The key space is written before the measurement.
    Range,
    /// Delete one key. Keys are written before the measurement; with `total` above `keySpace` later deletes find nothing.
    Delete,
    /// Write keys in a transaction.
    TxnPut,
    /// Reads and writes of single keys, by `readPercent`.
    Mixed,
    /// Time from the send of a put to the arrival of its event at each watcher.
    WatchLatency,
    /// Events delivered to watchers per second while clients put.
    WatchThroughput,
    /// Keep a lease alive; one lease per client.
    LeaseKeepAlive,
}

/// Consistency of etcd reads.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Consistency {
    /// Sees every write acknowledged before the read began.
    #[default]
    Linearizable,
    /// Answered by the member itself; may be stale.
    Serializable,
}

/// What an etcd Range asks for.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RangeScope {
    /// One key.
    #[default]
    Key,
    /// All keys under the common prefix, up to `limit`.
    Prefix,
}
