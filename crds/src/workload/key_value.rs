//! Load on any replicated key-value store: the same keys, sizes and clients, spoken over each store's own protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Etcd, Api::DEngine],
    workload_rules: &[Rule {
        field: ".load.clients",
        holds: "!has(self.load.clients) || self.load.clients >= self.load.connections",
        otherwise: "load.clients must be at least load.connections: a connection without a client would stay idle",
    }],
    metrics: &[],
    run_rules: &[Rule {
        field: ".parallelism",
        holds: "w.keyValue.keySpace >= self.parallelism",
        otherwise: "parallelism must not exceed load.total or keySpace of any workload: each load pod takes its share of \
            both",
    }],
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
}

impl KeyValueWorkload {
    fn default_key_bytes() -> u32 {
        32
    }
    fn default_value_bytes() -> u32 {
        256
    }
}

impl KeyValueWorkload {
    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            KeyValueOperation::Put => 100,
            KeyValueOperation::Get => 0,
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
    /// Reads and writes of single keys, by `readPercent`.
    Mixed,
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
