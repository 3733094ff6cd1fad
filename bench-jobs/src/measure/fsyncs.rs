//! How often a store has synced its disk so far: what it counts itself, in its metrics.
//!
//! etcd, rusd and d-engine count the syncs of their logs. etcd's backend is a bbolt database, each commit of which syncs twice: the
//! pages, then the page that makes them valid (bbolt 1.4, `tx.go`). Syncs of snapshots and of new files, which are rare, are not
//! counted by any of them. Of 500 puts, strace and this sum agree to the last sync.

use std::time::Duration;

use crate::failure::Failure;
use crate::measure::exposition::samples;
use crate::net::http_client::get;

/// A store that does not hand over its metrics within this does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Syncs of the log, by the name that etcd and rusd have for it, and by d-engine's.
const LOGS: [&str; 2] = ["etcd_disk_wal_fsync_duration_seconds_count", "dengine_log_sync_seconds_count"];
/// Commits of the database behind it, where there is one.
const DATABASE: &str = "etcd_disk_backend_commit_duration_seconds_count";
/// Syncs of one such commit.
const SYNCS_PER_COMMIT: u64 = 2;

/// How often the store at `host:port` has synced so far.
pub fn so_far(address: &str) -> Result<u64, Failure> {
    let text = get(address, "/metrics", ANSWER_TIMEOUT);
    let text = text.map_err(|error| Failure::new(format_args!("GET /metrics: {error}")))?;
    counted(&text)
}

fn counted(text: &str) -> Result<u64, Failure> {
    let found = samples(text, |name| LOGS.contains(&name) || name == DATABASE);
    let found = found.map_err(|error| Failure::new(format_args!("GET /metrics: {error}")))?;
    let of = |name: &str| found.iter().find(|sample| sample.name == name).map(|sample| sample.value as u64);
    let log = LOGS.into_iter().find_map(of);
    let log = log.ok_or_else(|| Failure::new(format_args!("GET /metrics: the answer has no {}", LOGS.join(" or "))))?;
    Ok(log + SYNCS_PER_COMMIT * of(DATABASE).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_of_the_database_syncs_twice_and_may_be_none() {
        let counted = |text: &str| counted(text).map_err(|failure| failure.text().to_owned());
        let [etcd, d_engine] = LOGS;
        assert_eq!(counted(&format!("{etcd} 506\n{DATABASE} 16\n")), Ok(538));
        assert_eq!(counted(&format!("# HELP {etcd} x\n{etcd} 3\n")), Ok(3));
        assert_eq!(counted(&format!("{d_engine} 42\n")), Ok(42));
        let none = counted("etcd_server_has_leader 1\n").unwrap_err();
        assert!(none.contains("has no etcd_disk_wal_fsync"), "{none}");
    }
}
