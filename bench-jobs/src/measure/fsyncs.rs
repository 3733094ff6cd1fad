//! How often a store has synced its disk so far: what it counts itself, in its metrics.
//!
//! etcd, rusd and d-engine count the syncs of their logs, block-node those of its groups of blocks. etcd's backend is a bbolt database,
//! each commit of which syncs twice: the pages, then the page that makes them valid (bbolt 1.4, `tx.go`). rusd has the names of etcd's
//! metrics and no such database, so that it counts its syncs under a name of its own, which comes first. Syncs of snapshots and of new
//! files, which are rare, are not counted by any of them. Of 500 puts on etcd, strace and this sum agree to the last sync.

use std::time::Duration;

use crate::failure::Failure;
use crate::measure::exposition::samples;
use crate::net::http_client::get;

/// A store that does not hand over its metrics within this does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// By store, what counts syncs in its metrics, and how many syncs one of each is. The first store whose counters are there is the one.
const COUNTERS: [&[(&str, u64)]; 4] = [
    // rusd: the log.
    &[("rusd_log_syncs_total", 1)],
    // etcd: the log, and commits of the database behind it, where there is one.
    &[("etcd_disk_wal_fsync_duration_seconds_count", 1), ("etcd_disk_backend_commit_duration_seconds_count", 2)],
    // d-engine: the log.
    &[("dengine_log_sync_seconds_count", 1)],
    // block-node: groups of blocks.
    &[("block_node_batch_sync_seconds_count", 1)],
];

/// How often the store at `host:port` has synced so far.
pub fn so_far(address: &str) -> Result<u64, Failure> {
    let text = get(address, "/metrics", ANSWER_TIMEOUT);
    let text = text.map_err(|error| Failure::new(format_args!("GET /metrics: {error}")))?;
    counted(&text)
}

fn counted(text: &str) -> Result<u64, Failure> {
    let found = samples(text, |name| COUNTERS.iter().any(|counters| syncs_each(counters, name).is_some()));
    let found = found.map_err(|error| Failure::new(format_args!("GET /metrics: {error}")))?;
    let of_store = |counters: &&&[(&str, u64)]| found.iter().any(|sample| syncs_each(counters, sample.name).is_some());
    let Some(counters) = COUNTERS.iter().find(of_store) else {
        return Err(Failure::new("GET /metrics: the answer does not count syncs"));
    };
    Ok(found.iter().map(|sample| sample.value as u64 * syncs_each(counters, sample.name).unwrap_or_default()).sum())
}

/// How many syncs one of `name` is, if it is of `counters`.
fn syncs_each(counters: &[(&str, u64)], name: &str) -> Option<u64> {
    counters.iter().find(|(known, _)| *known == name).map(|(_, syncs)| *syncs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_of_the_database_syncs_twice_and_may_be_none() {
        let counted = |text: &str| counted(text).map_err(|failure| failure.text().to_owned());
        let [[(rusd, _)], [(log, _), (database, _)], [(d_engine, _)], [(block_node, _)]] = COUNTERS else {
            panic!("a store has counters that this test does not know: {COUNTERS:?}");
        };
        assert_eq!(counted(&format!("{log} 506\n{database} 16\n")), Ok(538));
        assert_eq!(counted(&format!("{log} 506\n{database} 16\n{rusd} 506\n")), Ok(506), "rusd has no database");
        assert_eq!(counted(&format!("# HELP {log} x\n{log} 3\n")), Ok(3));
        assert_eq!(counted(&format!("dengine_term 3\n{d_engine} 42\n# EOF\n")), Ok(42));
        assert_eq!(counted(&format!("{block_node} 82\n")), Ok(82));
        let none = counted("etcd_server_has_leader 1\n").unwrap_err();
        assert!(none.contains("does not count syncs"), "{none}");
    }
}
