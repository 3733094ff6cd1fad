//! `/metrics`: the names that dashboards for etcd use, of what rusd has.

use std::fmt::Write;

use wal::{BOUNDS_MICROS, SyncTimes};

use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;

/// All of them, in Prometheus's text format.
pub fn text(node: &Node) -> String {
    let (view, status) = (node.reader.view(), node.handle.status());
    let spilled = node.reader.spilled();
    let leads = status.leader == Some(node.member_id);
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, value: f64| {
        // A String takes everything.
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    };
    gauge(
        "etcd_server_has_leader",
        "Whether or not a leader exists. 1 is existence, 0 is not.",
        truth(status.leader.is_some()),
    );
    gauge("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise.", truth(leads));
    gauge(
        "etcd_server_is_learner",
        "Whether or not this member is a learner. 1 if is, 0 otherwise.",
        truth(node.group.is_learner()),
    );
    gauge(
        "etcd_server_proposals_committed_total",
        "The total number of consensus proposals committed.",
        status.commit as f64,
    );
    gauge(
        "etcd_server_proposals_applied_total",
        "The total number of consensus proposals applied.",
        status.applied as f64,
    );
    gauge(
        "etcd_server_proposals_pending",
        "The current number of pending proposals to commit.",
        status.in_flight as f64,
    );
    gauge(
        "etcd_server_quota_backend_bytes",
        "Current backend storage quota size in bytes.",
        node.settings.quota_bytes.unwrap_or_default() as f64,
    );
    gauge("etcd_debugging_mvcc_keys_total", "Total number of keys.", view.keyspace.len() as f64);
    gauge("etcd_debugging_mvcc_current_revision", "The current revision of store.", view.revision() as f64);
    gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The revision of the last compaction in store.",
        view.keyspace.compacted() as f64,
    );
    gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Total size of the underlying database physically allocated in bytes.",
        view.bytes() as f64,
    );
    gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Total size of the underlying database logically in use in bytes.",
        view.bytes() as f64,
    );
    gauge(
        "rusd_store_values_in_memory_bytes",
        "Values in memory that could be in files: --values-memory-bytes of them stay.",
        view.keyspace.hot_bytes() as f64,
    );
    gauge("rusd_store_values_files_bytes", "Scratch files of values.", spilled.file_bytes() as f64);
    gauge(
        "rusd_store_values_files_failing",
        "Whether values stay in memory because they cannot be written to files. 1 if so, 0 otherwise.",
        truth(spilled.is_failing()),
    );
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes());
    let _ = writeln!(
        out,
        "# HELP etcd_server_version Which version is running. 1 for 'server_version' label with current version.\n\
         # TYPE etcd_server_version gauge\netcd_server_version{{server_version=\"{ETCD_VERSION}\"}} 1"
    );
    let alarms = view.cluster.alarms(AlarmType::None as i32);
    let _ = writeln!(
        out,
        "# HELP etcd_server_alarms Alarms that are raised.\n# TYPE etcd_server_alarms gauge\netcd_server_alarms {}",
        alarms.len()
    );
    sync_times(&mut out, &node.handle.sync_times());
    out
}

/// How long batches of the log took to be safe on disk: a write and a sync, where etcd has the sync alone.
fn sync_times(out: &mut String, times: &SyncTimes) {
    const NAME: &str = "etcd_disk_wal_fsync_duration_seconds";
    let _ = write!(out, "# HELP {NAME} The latency distributions of fsync called by WAL.\n# TYPE {NAME} histogram\n");
    let mut so_far = 0;
    for (bound, count) in BOUNDS_MICROS.iter().zip(&times.counts) {
        so_far += count;
        let _ = writeln!(out, "{NAME}_bucket{{le=\"{}\"}} {so_far}", *bound as f64 / 1e6);
    }
    let (all, sum) = (times.syncs(), times.sum_nanos as f64 / 1e9);
    let _ = writeln!(out, "{NAME}_bucket{{le=\"+Inf\"}} {all}\n{NAME}_sum {sum}\n{NAME}_count {all}");
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// 0 if the kernel does not tell.
fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as f64
}
