//! Load on SQLite databases that are replicated into an object store.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts};
use crate::descriptor::{Descriptor, Direction, OverTrials, Per, Place, Source, Statistic, Unit, column, delay};
use crate::duration::{DurationText, LONGER_THAN_ZERO};
use crate::measure::{Durations, Largest, TOOLS_CPU_NANOS, Total};
use crate::measurement::WorkloadMeasurement;
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
        Rule {
            field: ".load",
            holds: "self.sqliteReplication.operation != 'Restore' || has(self.load.total) && self.load.mode == 'ClosedLoop'",
            otherwise: "operation: Restore needs load.total and no rate: every database that is restored is kept until it is compared",
        },
        Rule {
            field: ".load.total",
            holds: "self.sqliteReplication.operation != 'Restore' || !has(self.load.total) || self.load.total * \
                self.sqliteReplication.rows <= 50000000000 / self.sqliteReplication.rowBytes",
            otherwise: "load.total times rows times rowBytes must not exceed 50000000000 for operation: Restore: what is restored is \
                kept until it is compared",
        },
        Rule {
            field: ".load",
            holds: "self.sqliteReplication.operation != 'Outage' || has(self.load.duration)",
            otherwise: "operation: Outage needs load.duration, within which the outage begins and ends",
        },
    ],
    metrics: &[
        &REPLICATION_LAG_P50,
        &REPLICATION_LAG_P99,
        &REPLICATION_LAG_MAX,
        &REPLICATOR_CPU,
        &REPLICA_OBJECTS,
        &REPLICA_BYTES,
        &RESTORE_BYTES_PER_SECOND,
        &RESTORE_OF_PLAIN_GET,
        &RESTORE_CPU,
        &RESTORE_RSS_PEAK,
        &OUTAGE_RECOVERY_MAX,
        &OUTAGE_COMMITS,
        &TRANSACTIONS_LOST,
        &ROWS_LOST,
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
    loads_what_is_somebodys: false,
    answers_one_by_one: |_| false,
    highest_rate: None,
    fault: None,
};

/// From a commit to the moment in which an object that holds it is seen in the object store. Of some databases, at most
/// [`WATCHED_DATABASES_MAX`].
pub const REPLICATION_LAG: Durations = Durations("replicationLag");
/// Objects of all replicas when everything was there.
pub const OBJECTS: Total = Total("replicaObjects");
/// Their bytes.
pub const BYTES: Total = Total("replicaBytes");
/// Restore: bytes of the databases that were restored.
pub const RESTORED_BYTES: Total = Total("restoredBytes");
/// Restore: from the start of the restoring process to its end, all of them together, nanoseconds.
pub const RESTORE_NANOS: Total = Total("restoreNanos");
/// Restore: the same objects read by the loader, one after the other, nanoseconds.
pub const PLAIN_GET_NANOS: Total = Total("plainGetNanos");
/// Restore: the most memory that a restoring process had resident, bytes.
pub const RESTORE_RSS_BYTES: Largest = Largest("restoreRssBytes");
/// Outage: from its end to the moment in which everything that was committed until then is seen in the object store, for
/// each database that is watched. What never came counts until it was given up.
pub const OUTAGE_RECOVERY: Durations = Durations("outageRecovery");
/// Outage: transactions that the application committed while it lasted.
pub const COMMITS_IN_OUTAGE: Total = Total("commitsInOutage");
/// Outage: acknowledged transactions that a restore at the end did not bring back.
pub const LOST_TRANSACTIONS: Total = Total("lostTransactions");
/// Outage: rows that these changed, and that have another content after the restore.
pub const LOST_ROWS: Total = Total("lostRows");
/// Databases of which replication lag is measured: looking for more would load the object store.
pub const WATCHED_DATABASES_MAX: u32 = 4;

static REPLICATION_LAG_P50: Descriptor = Descriptor {
    unit: Unit::Millis,
    is_headline: true,
    direction: Direction::Lag,
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
    direction: Direction::Lag,
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
    direction: Direction::Lag,
    ..delay(
        "ReplicationLagMaxMillis",
        "largest replication lag",
        "Largest time from a commit to the moment in which an object with it is seen in the object store: for so long the newest \
         commits were at risk",
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

static RESTORE_BYTES_PER_SECOND: Descriptor = Descriptor {
    name: "RestoreBytesPerSecond",
    about: "Bytes of restored databases in a second of a restoring process, from its start to its end",
    words: "restore speed",
    unit: Unit::BytesPerSecond,
    direction: Direction::Speed,
    source: Source::Measures(&[RESTORED_BYTES.0, RESTORE_NANOS.0], restore_bytes_per_second),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("restore B/s", 0),
    gauge: None,
};

fn restore_bytes_per_second(measured: &WorkloadMeasurement) -> Option<f64> {
    Some(measured.total(RESTORED_BYTES)? as f64 * 1e9 / measured.total(RESTORE_NANOS)?.max(1) as f64)
}

static RESTORE_OF_PLAIN_GET: Descriptor = Descriptor {
    name: "RestorePercentOfPlainGet",
    about: "Speed of a restore in percent of that at which the loader reads the same objects, one after the other, and keeps nothing",
    words: "restore speed in percent of a plain GET",
    unit: Unit::Count,
    direction: Direction::Gain,
    source: Source::Measures(&[PLAIN_GET_NANOS.0, RESTORE_NANOS.0], restore_percent_of_plain_get),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("% of GET", 0),
    gauge: None,
};

fn restore_percent_of_plain_get(measured: &WorkloadMeasurement) -> Option<f64> {
    Some(measured.total(PLAIN_GET_NANOS)? as f64 * 100.0 / measured.total(RESTORE_NANOS)?.max(1) as f64)
}

static RESTORE_CPU: Descriptor = Descriptor {
    name: "RestoreCpuMillis",
    about: "Processor time of a restoring process, for each restore",
    words: "processor time of a restore",
    unit: Unit::Millis,
    direction: Direction::Cost,
    source: Source::Measures(&[TOOLS_CPU_NANOS.0], restore_cpu_millis),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("restore cpu", 0),
    gauge: None,
};

fn restore_cpu_millis(measured: &WorkloadMeasurement) -> Option<f64> {
    Some(measured.per_operation(measured.total(TOOLS_CPU_NANOS)?) / 1e6)
}

static RESTORE_RSS_PEAK: Descriptor = Descriptor {
    name: "RestoreRssPeakBytes",
    about: "The most memory that a restoring process had resident",
    words: "memory peak of a restore",
    unit: Unit::Bytes,
    direction: Direction::Cost,
    source: Source::Largest(RESTORE_RSS_BYTES),
    over_trials: OverTrials::Median,
    is_headline: true,
    place: Place::Measures,
    column: column("restore rss", 0),
    gauge: None,
};

static OUTAGE_RECOVERY_MAX: Descriptor = Descriptor {
    unit: Unit::Millis,
    is_headline: true,
    direction: Direction::Lag,
    ..delay(
        "OutageRecoveryMaxMillis",
        "largest recovery time",
        "From the end of an outage to the moment in which everything that was committed until then is seen in the object store, of the \
         slowest database",
        OUTAGE_RECOVERY,
        Statistic::Max,
        column("recovery", 0),
    )
};

static OUTAGE_COMMITS: Descriptor = Descriptor {
    name: "OutageCommits",
    about: "Transactions that the application committed during an outage",
    words: "commits during the outage",
    unit: Unit::Count,
    direction: Direction::Gain,
    source: Source::Total(COMMITS_IN_OUTAGE, Per::Trial),
    over_trials: OverTrials::Median,
    is_headline: false,
    place: Place::Measures,
    column: column("meanwhile", 1),
    gauge: None,
};

static TRANSACTIONS_LOST: Descriptor = Descriptor {
    name: "TransactionsLost",
    about: "Acknowledged transactions that a restore after an outage did not bring back",
    words: "transactions lost",
    unit: Unit::Count,
    direction: Direction::Harm,
    source: Source::Total(LOST_TRANSACTIONS, Per::Trial),
    over_trials: OverTrials::Largest,
    is_headline: false,
    place: Place::Measures,
    column: column("lost", 0),
    gauge: None,
};

static ROWS_LOST: Descriptor = Descriptor {
    name: "RowsLost",
    about: "Rows that have an older content after an outage and a restore than was acknowledged",
    words: "rows lost",
    unit: Unit::Count,
    direction: Direction::Harm,
    source: Source::Total(LOST_ROWS, Per::Trial),
    over_trials: OverTrials::Largest,
    is_headline: false,
    place: Place::Measures,
    column: column("lost rows", 1),
    gauge: None,
};

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".rowsPerTransaction",
        holds: "!has(self.rowsPerTransaction) || self.operation != 'Idle'",
        otherwise: "rowsPerTransaction needs operation: Write, Restore or Outage; remove rowsPerTransaction",
    },
    Rule {
        field: ".increments",
        holds: "!has(self.increments) || self.operation == 'Restore'",
        otherwise: "increments needs operation: Restore; remove increments",
    },
    Rule {
        field: ".outage",
        holds: "has(self.outage) == (self.operation == 'Outage')",
        otherwise: "outage and operation: Outage belong together: say what fails, when and for how long, or remove outage",
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
    /// Write, Restore, Outage: rows that each transaction changes, besides its own number. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rows_per_transaction: Option<u32>,
    /// Restore: transactions behind the snapshot. Each is committed when the one before it has arrived in the object store, so that it
    /// is an object of its own until it is merged. Absent: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub increments: Option<u32>,
    /// Outage: what fails, when and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
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

    /// Transactions behind the snapshot: as given, or 10.
    pub fn increments(&self) -> u32 {
        self.increments.unwrap_or(10)
    }
}

/// What fails, when and for how long.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// What fails.
    pub kind: OutageKind,
    /// Measured time before it.
    pub after: DurationText,
    /// How long it lasts.
    #[x_kube(validation = LONGER_THAN_ZERO)]
    pub duration: DurationText,
}

/// What fails.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OutageKind {
    /// The object store is reached, and says nothing any more: what is sent to it meanwhile is held back and arrives afterwards.
    BlackHole,
    /// The object store breaks all connections, and answers each request with 503 SlowDown.
    ServiceUnavailable,
    /// The replicator is killed with SIGKILL, and started again when the time is over. Embedded runs only. What it uses is then not
    /// measured.
    Kill,
}

/// What the application does.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqliteOperation {
    /// Change rows in transactions, database after database. A request is a transaction.
    Write,
    /// Nothing but reading a row each 100 ms, so that what is measured is what it costs to watch. A request is such a read.
    Idle,
    /// Restore databases, one after the other, with the replicator's own tool: to the newest state, which is a snapshot and `increments`.
    /// A request is a restore. Afterwards each restored database is compared with what was written.
    Restore,
    /// Change rows in transactions, as Write, while for some time what replicates fails (`outage`). Afterwards each database is
    /// restored, with Litestream's own tool where that is installed, and what it lacks is counted as lost.
    Outage,
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
