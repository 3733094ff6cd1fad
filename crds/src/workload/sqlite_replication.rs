//! Load on SQLite databases that are replicated into an object store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts};
use crate::measure::{Durations, Total};
use crate::measurement::WorkloadMeasurement;
use crate::metric::descriptor::{
    Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay,
};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Sqlite],
    workload_rules: &[
        Rule {
            field: ".load.connections",
            holds: "self.load.connections <= self.sqliteReplication.databases",
            otherwise: "load.connections must not exceed sqliteReplication.databases: each database has one writer",
        },
        Rule {
            field: ".load.threads",
            holds: "self.load.threads == self.load.connections && (!has(self.load.clients) || self.load.clients == \
                self.load.connections)",
            otherwise: "load.threads must equal load.connections, and load.clients if it is given: SQLite blocks the thread that \
                commits",
        },
        Rule {
            field: ".load",
            holds: "self.sqliteReplication.operation != 'Idle' || has(self.load.duration) && self.load.mode == 'ClosedLoop'",
            otherwise: "operation: Idle needs load.duration and no rate: there are no requests to count",
        },
    ],
    metrics: &[
        &REPLICATION_LAG_P50,
        &REPLICATION_LAG_P99,
        &REPLICATION_LAG_MAX,
        &REPLICATOR_CPU,
        &REPLICA_OBJECTS,
        &REPLICA_BYTES,
    ],
    run_rules: &[
        Rule {
            field: ".workloads",
            holds: "self.workloads.size() == 1",
            otherwise: "a run has one sqliteReplication workload: the databases of another would still be replicated; split the run",
        },
        Rule {
            field: ".parallelism",
            holds: "self.parallelism == 1",
            otherwise: "parallelism must be 1 for sqliteReplication: the databases are files of one load pod",
        },
    ],
};

/// From a commit to the moment in which an object that holds it is seen in the object store. Of some databases, at most
/// [`WATCHED_DATABASES_MAX`].
pub const REPLICATION_LAG: Durations = Durations("replicationLag");
/// Objects of all replicas when everything was there.
pub const OBJECTS: Total = Total("replicaObjects");
/// Their bytes.
pub const BYTES: Total = Total("replicaBytes");
/// Databases of which replication lag is measured: looking for more would load the object store.
pub const WATCHED_DATABASES_MAX: u32 = 4;

static REPLICATION_LAG_P50: Descriptor = Descriptor {
    unit: Unit::Millis,
    is_headline: true,
    ..delay(
        "ReplicationLagP50Millis",
        "p50 replication lag",
        "Median time from a commit to the moment in which an object with it is seen in the object store",
        REPLICATION_LAG,
        Statistic::P50,
        column("lag p50", 0),
    )
};
static REPLICATION_LAG_P99: Descriptor = Descriptor {
    unit: Unit::Millis,
    is_headline: true,
    ..delay(
        "ReplicationLagP99Millis",
        "p99 replication lag",
        "99th percentile of the time from a commit to the moment in which an object with it is seen in the object store",
        REPLICATION_LAG,
        Statistic::P99,
        column("lag p99", 0),
    )
};
static REPLICATION_LAG_MAX: Descriptor = Descriptor {
    unit: Unit::Millis,
    is_headline: false,
    ..delay(
        "ReplicationLagMaxMillis",
        "largest replication lag",
        "Largest time from a commit to the moment in which an object with it is seen in the object store",
        REPLICATION_LAG,
        Statistic::Max,
        column("lag max", 2),
    )
};

/// Its work does not follow requests, so that time for each request would say little.
static REPLICATOR_CPU: Descriptor = Descriptor {
    name: "ReplicatorCpuMillicores",
    about: "Processor time of the replicator in each second of the measured phase, thousandths of a core",
    words: "processor time of the replicator",
    unit: Unit::Count,
    direction: Direction::Cost,
    source: Source::Measures(&[OBJECTS.0], cpu_millicores),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("mcores", 0),
    gauge: None,
};

/// Where [`OBJECTS`] were counted: of this family's workloads.
fn cpu_millicores(measured: &WorkloadMeasurement) -> Option<f64> {
    measured.total(OBJECTS)?;
    let usage = measured.usage?;
    Some(usage.cpu_nanos as f64 * 1e3 / usage.elapsed_nanos.max(1) as f64)
}

static REPLICA_OBJECTS: Descriptor = Descriptor {
    name: "ReplicaObjects",
    about: "Objects of all replicas in the object store when everything had arrived, from the databases' creation on",
    words: "objects in the replicas",
    unit: Unit::Count,
    direction: Direction::Cost,
    source: Source::Total(OBJECTS, Per::Trial),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("objects", 1),
    gauge: None,
};

static REPLICA_BYTES: Descriptor = Descriptor {
    name: "ReplicaBytes",
    about: "Bytes of all replicas in the object store when everything had arrived, from the databases' creation on",
    words: "bytes in the replicas",
    unit: Unit::Bytes,
    direction: Direction::Cost,
    source: Source::Total(BYTES, Per::Trial),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("bytes", 1),
    gauge: None,
};

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".rowsPerTransaction",
        holds: "!has(self.rowsPerTransaction) || self.operation == 'Write'",
        otherwise: "rowsPerTransaction needs operation: Write; remove rowsPerTransaction",
    },
    Rule {
        field: ".rowsPerTransaction",
        holds: "!has(self.rowsPerTransaction) || self.rowsPerTransaction <= self.rows",
        otherwise: "rowsPerTransaction must not exceed rows: a transaction changes each row once",
    },
    Rule {
        field: ".rows",
        holds: "self.databases * self.rows <= 20000000",
        otherwise: "databases times rows must not exceed 20000000: the loader knows of each row what it must hold",
    },
];

/// Load on SQLite databases in WAL mode, as an application beside the replicator makes it. Needs services whose engine
/// replicates SQLite. At the end every database is restored from the object store and compared row by row.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct SqliteReplicationWorkload {
    /// What the application does.
    pub operation: SqliteOperation,
    /// How many databases, alike, which are created before the measurement and stay open.
    #[serde(default = "SqliteReplicationWorkload::default_databases")]
    #[schemars(range(min = 1, max = 5000))]
    pub databases: u32,
    /// Rows of each database.
    #[serde(default = "SqliteReplicationWorkload::default_rows")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rows: u32,
    /// Length of the content of a row, bytes; it is random.
    #[serde(default = "SqliteReplicationWorkload::default_row_bytes")]
    #[schemars(range(min = 8, max = 65_536))]
    pub row_bytes: u32,
    /// Write: rows that each transaction changes, besides its own number. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rows_per_transaction: Option<u32>,
    /// What SQLite syncs, `PRAGMA synchronous`.
    #[serde(default)]
    pub synchronous: Synchronous,
}

impl SqliteReplicationWorkload {
    fn default_databases() -> u32 {
        1
    }
    fn default_rows() -> u32 {
        1000
    }
    fn default_row_bytes() -> u32 {
        100
    }

    /// Rows that a transaction changes: as given, or 1.
    pub fn rows_per_transaction(&self) -> u32 {
        self.rows_per_transaction.unwrap_or(1)
    }
}

/// What the application does.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqliteOperation {
    /// Change rows in transactions, database after database. A request is a transaction.
    Write,
    /// Nothing but reading a row each 100 ms, so that what is measured is what it costs to watch. A request is such a read.
    Idle,
}

/// What SQLite syncs. In both, the replica is what survives the machine, as far as it has followed.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Synchronous {
    /// The WAL at each commit.
    #[default]
    Full,
    /// The WAL before check points: commits are quick, and a power loss may take the last of them.
    Normal,
}
