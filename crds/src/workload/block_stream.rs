//! Load on a Hiero block node: blocks in, blocks out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder};
use crate::descriptor::{Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay};
use crate::measure::{Durations, Largest, Total};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::BlockStream],
    workload_rules: &[
        Rule {
            field: ".load.clients",
            holds: "!has(self.load.clients) || self.load.clients == self.load.connections",
            otherwise: "load.clients must equal load.connections for blockStream, where each connection is one publisher, \
                subscriber or reader; set connections",
        },
        Rule {
            field: ".load.threads",
            holds: "self.load.threads == 1",
            otherwise: "load.threads must be 1 for blockStream: each block names the one before, so one thread makes them all",
        },
    ],
    metrics: &[
        &ACKNOWLEDGEMENT_P50,
        &ACKNOWLEDGEMENT_P99,
        &BLOCK_BYTES_PER_SECOND,
        &REFUSALS_PER_SECOND,
        &REFUSAL_P99,
        &STORED_BLOCKS_AT_END,
        &BLOCKS_WITHOUT_ACKNOWLEDGEMENT,
    ],
    run_rules: &[Rule {
        field: ".parallelism",
        holds: "self.parallelism == 1",
        otherwise: "parallelism must be 1 for blockStream workloads: each block names the one before, so one load pod makes \
            them all",
    }],
    loads_what_is_somebodys: false,
    answers_one_by_one: |_| false,
    highest_rate: None,
    fault: None,
};

/// Each block that is published, from the instant at which it was due, where there is a rate, or else the decision to send it, to the first
/// acknowledgement that a publisher hears.
pub const ACKNOWLEDGEMENT: Durations = Durations("acknowledgement");
/// Blocks of which a publisher heard nothing but the acknowledgement of a later one, which stands for all before it.
pub const UNNAMED_BLOCKS: Total = Total("unnamedBlocks");
/// Bytes of the blocks that operations are of: acknowledged, delivered, or answered with.
pub const BLOCK_BYTES: Total = Total("blockBytes");
/// Requests for a block that is not there, which were refused as they must.
pub const REFUSALS: Total = Total("refusals");
/// From the send of such a request to the refusal.
pub const REFUSAL_LATENCY: Durations = Durations("refusalLatency");
/// Blocks that the store has when the workload is over.
pub const STORED_BLOCKS: Largest = Largest("storedBlocks");

static ACKNOWLEDGEMENT_P50: Descriptor = delay(
    "AcknowledgementP50Micros",
    "p50 latency of acknowledgements",
    "Median time from the send of a block to its acknowledgement; where blocks come at a rate, from when it was due",
    ACKNOWLEDGEMENT,
    Statistic::P50,
    column("ack p50", 2),
);
static ACKNOWLEDGEMENT_P99: Descriptor = delay(
    "AcknowledgementP99Micros",
    "p99 latency of acknowledgements",
    "99th percentile of the time from the send of a block to its acknowledgement; where blocks come at a rate, from when it was due",
    ACKNOWLEDGEMENT,
    Statistic::P99,
    column("ack p99", 1),
);
static REFUSAL_P99: Descriptor = delay(
    "RefusalLatencyP99Micros",
    "p99 latency of refusals",
    "99th percentile of the time from a request for a block that is not there to its refusal",
    REFUSAL_LATENCY,
    Statistic::P99,
    column("refusal p99", 3),
);
static BLOCK_BYTES_PER_SECOND: Descriptor = Descriptor {
    name: "BlockBytesPerSecond",
    about: "Bytes of blocks in a second: acknowledged, delivered, or answered with",
    words: "bytes of blocks",
    unit: Unit::BytesPerSecond,
    direction: Direction::Speed,
    source: Source::Total(BLOCK_BYTES, Per::Second),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("bytes/s", 2),
    gauge: None,
};
static REFUSALS_PER_SECOND: Descriptor = Descriptor {
    name: "RefusalsPerSecond",
    about: "Requests for a block that is not there, refused in a second",
    words: "refusals",
    unit: Unit::PerSecond,
    direction: Direction::Speed,
    source: Source::Total(REFUSALS, Per::Second),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("refusals/s", 4),
    gauge: None,
};
static STORED_BLOCKS_AT_END: Descriptor = Descriptor {
    name: "StoredBlocks",
    about: "Blocks that the store has when the workload is over: what its space on disk is to be divided by",
    words: "blocks stored at the end",
    unit: Unit::Count,
    direction: Direction::Gain,
    source: Source::Largest(STORED_BLOCKS),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("stored", 5),
    gauge: None,
};
static BLOCKS_WITHOUT_ACKNOWLEDGEMENT: Descriptor = Descriptor {
    name: "BlocksWithoutAcknowledgement",
    about: "Blocks that had no acknowledgement of their own: that of a later block stood for them",
    words: "blocks without an acknowledgement of their own",
    unit: Unit::Count,
    direction: Direction::Harm,
    source: Source::Total(UNNAMED_BLOCKS, Per::Trial),
    over_trials: OverTrials::Largest,
    is_headline: false,
    place: Place::Measures,
    column: column("without ack", 6),
    gauge: None,
};

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".from",
        holds: "!has(self.from) || self.operation == 'Subscribe'",
        otherwise: "from needs operation: Subscribe; remove from",
    },
    Rule {
        field: ".window",
        holds: "!has(self.window) || self.operation in ['Publish', 'Mixed'] || (has(self.from) && self.from == 'Live')",
        otherwise: "window needs operation: Publish or Mixed, or Subscribe with from: Live; remove window",
    },
    Rule {
        field: ".publishRate",
        holds: "has(self.publishRate) == (self.operation == 'Mixed')",
        otherwise: "publishRate and operation: Mixed belong together: say how many blocks a second are published beside the \
            reads, or remove publishRate",
    },
    Rule {
        field: ".refusalPercent",
        holds: "!has(self.refusalPercent) || self.operation in ['GetBlock', 'Mixed']",
        otherwise: "refusalPercent needs operation: GetBlock or Mixed; remove refusalPercent",
    },
    Rule {
        field: ".blockOrder",
        holds: "self.blockOrder == 'Random' || self.operation in ['GetBlock', 'Mixed']",
        otherwise: "blockOrder needs operation: GetBlock or Mixed; remove blockOrder",
    },
    Rule {
        field: ".itemsPerBlock",
        holds: "!has(self.itemsPerBlock) || self.itemsPerBlock * 16 + 600 <= self.blockBytes",
        otherwise: "itemsPerBlock must leave each item 16 bytes of blockBytes, of which 600 are the block's own",
    },
];

/// Load on a Hiero block node. Blocks are made of a seed, each with a hash that names the one before; the store must accept the
/// hash of the root hash in the place of a signature, as test networks do. Each connection is one publisher, subscriber or reader.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct BlockStreamWorkload {
    /// What to repeat.
    pub operation: BlockStreamOperation,
    /// Length of a block, about, bytes.
    #[serde(default = "BlockStreamWorkload::default_block_bytes")]
    #[schemars(range(min = 1000, max = 16_000_000))]
    pub block_bytes: u32,
    /// Items in a block besides header, footer and proof. Absent: one for each 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub items_per_block: Option<u32>,
    /// Publish, Mixed, Subscribe from Live: blocks on their way to an acknowledgement at a time. Absent: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub window: Option<u32>,
    /// Blocks that are there before the load; what is missing is published first. Absent: 600; for Publish and for Subscribe
    /// from Live 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub history_blocks: Option<u32>,
    /// Subscribe: which blocks. Absent: History.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SubscribeFrom>,
    /// GetBlock, Mixed: in which order blocks are asked for.
    #[serde(default)]
    pub block_order: KeyOrder,
    /// GetBlock, Mixed: how many of 100 requests ask for a block that is not there. Refusals are counted apart and are no
    /// operations. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 99))]
    pub refusal_percent: Option<u32>,
    /// Mixed: blocks a second that are published beside the reads. Where fewer than 98 % of those that were due could be sent, the rate was
    /// not reached, and the run is Invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub publish_rate: Option<u32>,
    /// By which rules a block is hashed, which its header says.
    #[serde(default)]
    pub hash_rules: HashRules,
}

impl BlockStreamWorkload {
    fn default_block_bytes() -> u32 {
        13_000
    }

    /// Blocks on their way to an acknowledgement at a time: as given, or 4.
    pub fn window(&self) -> u32 {
        self.window.unwrap_or(4)
    }

    /// Which blocks a subscriber wants: as given, or those that are there.
    pub fn from(&self) -> SubscribeFrom {
        self.from.unwrap_or_default()
    }

    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        match self.operation {
            BlockStreamOperation::Publish => 100,
            BlockStreamOperation::Subscribe | BlockStreamOperation::GetBlock => 0,
            BlockStreamOperation::ServerStatus | BlockStreamOperation::Mixed => 0,
        }
    }

    /// See [`super::Parameters::in_flight_max`].
    pub(super) fn in_flight_max(&self, clients: u32) -> u32 {
        match self.operation {
            // However many publishers have them, the blocks are of one chain.
            BlockStreamOperation::Publish => self.window(),
            BlockStreamOperation::Subscribe | BlockStreamOperation::GetBlock => clients,
            BlockStreamOperation::ServerStatus | BlockStreamOperation::Mixed => clients,
        }
    }

    /// Blocks that are there before the load.
    pub fn history_blocks(&self) -> u32 {
        let needs_none = match self.operation {
            BlockStreamOperation::Publish => true,
            BlockStreamOperation::Subscribe => self.from() == SubscribeFrom::Live,
            BlockStreamOperation::GetBlock | BlockStreamOperation::ServerStatus | BlockStreamOperation::Mixed => false,
        };
        self.history_blocks.unwrap_or(if needs_none { 0 } else { 600 })
    }
}

/// What publishers, subscribers and other clients of a block node do.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BlockStreamOperation {
    /// Publish blocks, `window` of them in flight; each until its acknowledgement. Every connection is a publisher of the same
    /// blocks, as consensus nodes are: the store lets one of them send each block.
    Publish,
    /// Receive blocks; every connection is a subscriber. From History: the blocks that are there, again and again; a latency
    /// is the time from one block to the next. From Live: blocks that are published meanwhile on a connection besides; a
    /// latency is the time from the send of a block to its arrival, and the next ones wait until all subscribers have it.
    Subscribe,
    /// Read one block.
    GetBlock,
    /// Ask which blocks there are.
    ServerStatus,
    /// Read single blocks while others are published on a connection besides, `publishRate` a second, each as soon as it is due and the
    /// window has room.
    Mixed,
}

/// Which blocks a subscriber wants.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubscribeFrom {
    /// Those that were there before the load.
    #[default]
    History,
    /// Those that come.
    Live,
}

/// Rules of a block's root hash.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HashRules {
    /// Those of block node 0.41 and later.
    #[default]
    MountainTop,
    /// Those of block node 0.28 to 0.40. For HieroBlockNode, of which 0.38.1 is the last that accepts blocks without a signature.
    Legacy,
}
