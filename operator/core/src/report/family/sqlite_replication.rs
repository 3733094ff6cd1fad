//! Load on replicated SQLite databases, in words.

use storebench_crds::workload::sqlite_replication::{
    OutageKind, SqliteOperation, SqliteReplicationWorkload, Synchronous,
};

use super::super::lookup::api_word;
use super::super::units;

/// The request and its parameters, in parts.
pub(super) fn request(replication: &SqliteReplicationWorkload) -> Vec<String> {
    let mut parts = vec![format!("SQLite {}", api_word(&replication.operation))];
    if let Some(outage) = &replication.outage {
        let what = match outage.kind {
            OutageKind::BlackHole => "the object store says nothing",
            OutageKind::ServiceUnavailable => "the object store answers 503",
            OutageKind::Kill => "the replicator is killed",
        };
        parts.push(format!("in which {what} from {} on for {}", outage.after.as_str(), outage.duration.as_str()));
    }
    if replication.operation == SqliteOperation::Restore {
        parts.push(format!("{} behind the snapshot", units::things(replication.increments(), "transaction")));
    }
    if replication.operation != SqliteOperation::Idle {
        parts.push(format!("{} in each transaction", units::things(replication.rows_per_transaction(), "row")));
        parts.push(match replication.synchronous {
            Synchronous::Full => "synchronous=FULL".to_owned(),
            Synchronous::Normal => "synchronous=NORMAL".to_owned(),
        });
    }
    let rows = units::things(replication.rows, "row");
    parts.push(format!(
        "{} of {rows} of {}",
        units::things(replication.databases, "database"),
        units::bytes(replication.row_bytes.into())
    ));
    parts
}
