//! `/metrics` has what etcd's has, or it is said here why not; and what dashboards and alerts ask for moves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::Stdio;

use harness::{Etcd, Process, until};

use crate::gateway::send;
use crate::group::{group, leader_of};
use crate::process::Rusd;

pub fn metrics(address: &str) -> String {
    let (status, mut body) = send(address, "GET", "/metrics", "", "");
    assert_eq!(status, 200);
    let mut text = String::new();
    body.read_to_string(&mut text).unwrap();
    text
}

fn names(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

/// The sum of a metric over all its labels that say so.
pub fn sum(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| {
        let head = line.split(['{', ' ']).next().unwrap();
        head == name && labels.iter().all(|label| line.contains(label))
    };
    let values: Vec<f64> =
        text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// Beginnings of names that etcd has and rusd has not, and why.
const NOT_HERE: [(&str, &str); 31] = [
    ("go_", "Go's runtime, which is not here"),
    ("promhttp_", "Go's handler of /metrics"),
    ("etcd_server_go_version", "there is no Go"),
    ("etcd_grpc_proxy_", "of etcd grpc-proxy, which rusd is not"),
    ("etcd_debugging_store_", "of API version 2, which etcd itself has no more"),
    ("etcd_debugging_disk_backend_commit_", "parts of a commit of bbolt, which is not here"),
    ("etcd_debugging_mvcc_db_compaction_", "compaction of bbolt, which is not here; rusd sweeps between other work"),
    ("etcd_debugging_mvcc_index_compaction_pause_", "nothing pauses for it"),
    (
        "etcd_debugging_mvcc_pending_events_total",
        "streams read the history when they have room: nothing waits as events",
    ),
    ("etcd_debugging_mvcc_slow_watcher_total", "a slow watcher reads the history: there is no second kind"),
    ("etcd_debugging_server_watch_send_loop_", "there is no such loop: streams are asked for what they have to say"),
    ("etcd_debugging_snap_save_", "snapshots are written beside everything else: nobody waits for them"),
    ("etcd_debugging_lease_ttl_total", "not counted yet"),
    ("etcd_disk_backend_defrag_duration_seconds", "not measured yet: nothing waits for it"),
    ("etcd_disk_backend_snapshot_duration_seconds", "not measured yet"),
    ("etcd_disk_defrag_inflight", "defragmentation stops nobody here"),
    ("etcd_disk_wal_write_bytes_total", "not counted yet"),
    (
        "etcd_disk_wal_write_duration_seconds",
        "a write and its sync are measured together, as etcd_disk_wal_fsync_duration_seconds",
    ),
    ("etcd_mvcc_db_open_read_transactions", "reads hold nothing open"),
    ("etcd_mvcc_hash_duration_seconds", "not measured yet"),
    ("etcd_mvcc_hash_rev_duration_seconds", "not measured yet"),
    ("etcd_server_apply_duration_seconds", "not measured by operation; see etcd_disk_backend_commit_duration_seconds"),
    ("etcd_server_client_requests_total", "not counted by version of the client"),
    (
        "etcd_server_heartbeat_send_failures_total",
        "heartbeats go from the same queue as entries; see etcd_network_peer_sent_failures_total",
    ),
    ("etcd_server_range_duration_seconds", "see grpc_server_handling_seconds with --metrics=extensive"),
    ("etcd_server_request_duration_seconds", "see grpc_server_handling_seconds with --metrics=extensive"),
    ("etcd_server_slow_read_indexes_total", "a read is answered or fails: see etcd_server_read_indexes_failed_total"),
    ("etcd_server_snapshot_apply_in_progress_total", "a member that gets a snapshot serves what it had"),
    ("etcd_snap_", "snapshots are files of rusd's own, beside everything else"),
    ("process_network_", "the kernel counts them for the machine, not for the process"),
    ("process_virtual_memory_max_bytes", "there is no limit to tell"),
];

#[test]
fn every_metric_of_etcd_is_here_or_it_is_said_why_not() {
    let data = harness::folder();
    let etcd = Etcd::start_with(data.path(), &["--metrics=extensive"]);
    let rusd = Rusd::start(&["--metrics=extensive"]);
    let (theirs, ours) = (metrics(etcd.address()), metrics(rusd.address()));
    let why = |name: &str| NOT_HERE.iter().find(|(beginning, _)| name.starts_with(beginning));
    let missing: Vec<_> =
        names(&theirs).difference(&names(&ours)).filter(|name| why(name).is_none()).copied().collect();
    assert_eq!(missing, Vec::<&str>::new());
    let is_theirs = |beginning: &str| names(&theirs).iter().any(|name| name.starts_with(beginning));
    let stale: Vec<_> = NOT_HERE.iter().filter(|(beginning, _)| !is_theirs(beginning)).collect();
    assert!(stale.is_empty(), "etcd has none of these: {stale:?}");
    let both: Vec<_> = names(&ours).iter().filter(|name| why(name).is_some()).copied().collect::<Vec<_>>();
    assert!(both.is_empty(), "these are here, and said not to be: {both:?}");
    // Methods, and the labels that dashboards sum over.
    let labelled = |text: &str, name: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).map(sorted_labels).collect()
    };
    for name in ["grpc_server_started_total", "grpc_server_handled_total"] {
        let of_etcd = |label: &&String| label.contains("etcdserverpb.");
        let (theirs, ours) = (labelled(&theirs, name), labelled(&ours, name));
        let missing: Vec<_> = theirs.iter().filter(of_etcd).filter(|label| !ours.contains(*label)).collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
    let features = |text: &str| labelled(text, "etcd_server_feature_enabled");
    assert_eq!(features(&ours), features(&theirs));
}

fn sorted_labels(line: &str) -> String {
    let labels = line.split_once('{').unwrap().1.rsplit_once('}').unwrap().0;
    let labels: BTreeSet<&str> = labels.split(',').collect();
    labels.into_iter().collect::<Vec<_>>().join(",")
}

/// What etcd's published dashboard and the alerts of its Prometheus mixin look at (`contrib/mixin` in etcd's repository), and that a
/// little work moves; the labels are those that they select by.
const MOVE: [(&str, &[&str]); 20] = [
    ("grpc_server_started_total", &["grpc_type=\"unary\""]),
    ("grpc_server_handled_total", &["grpc_type=\"unary\"", "grpc_code=\"OK\""]),
    ("grpc_server_handled_total", &["grpc_type=\"unary\"", "grpc_code=\"FailedPrecondition\""]),
    ("grpc_server_handling_seconds_bucket", &["grpc_type=\"unary\"", "le="]),
    ("grpc_server_started_total", &["grpc_service=\"etcdserverpb.Watch\"", "grpc_type=\"bidi_stream\""]),
    ("grpc_server_started_total", &["grpc_service=\"etcdserverpb.Lease\"", "grpc_type=\"bidi_stream\""]),
    ("etcd_disk_wal_fsync_duration_seconds_bucket", &["le="]),
    ("etcd_disk_backend_commit_duration_seconds_bucket", &["le="]),
    ("etcd_mvcc_db_total_size_in_bytes", &[]),
    ("etcd_network_client_grpc_received_bytes_total", &[]),
    ("etcd_network_client_grpc_sent_bytes_total", &[]),
    ("etcd_network_peer_sent_bytes_total", &["To="]),
    ("etcd_network_peer_received_bytes_total", &["From="]),
    ("etcd_network_peer_round_trip_time_seconds_bucket", &["To=", "le="]),
    ("etcd_network_peer_sent_failures_total", &["To="]),
    ("etcd_server_proposals_committed_total", &[]),
    ("etcd_server_proposals_applied_total", &[]),
    ("etcd_mvcc_put_total", &[]),
    ("etcd_mvcc_range_total", &[]),
    ("etcd_mvcc_delete_total", &[]),
];

/// The others of the same: what they say of a group that is well.
const ARE: [(&str, f64); 4] = [
    ("etcd_server_has_leader", 1.0),
    ("etcd_server_proposals_pending", 0.0),
    ("etcd_server_proposals_failed_total", 0.0),
    ("etcd_server_quota_backend_bytes", 2_147_483_648.0),
];

#[test]
fn what_dashboards_and_alerts_look_at_moves() {
    let mut servers = group(3, "http", &["--metrics=extensive".to_owned()]);
    let leader = servers.swap_remove(leader_of(&servers));
    let before = metrics(leader.address());
    let granted = leader.etcdctl(&["lease", "grant", "600"]);
    let lease = granted.split(' ').nth(1).unwrap();
    for number in 0..20 {
        leader.etcdctl(&["put", &number.to_string(), "value"]);
    }
    leader.etcdctl(&["get", "", "--prefix"]);
    leader.etcdctl(&["del", "1"]);
    // It is no member's number.
    leader.refused(&["move-leader", "1"]);
    let background = |arguments: &[&str]| Process::start(leader.command(arguments).stdout(Stdio::null()));
    let _streams = [background(&["watch", "k"]), background(&["lease", "keep-alive", lease])];
    servers.pop();
    let value = |text: &str, (name, labels): (&str, &[&str])| sum(text, name, labels).unwrap_or(0.0);
    for moved in MOVE {
        let old = value(&before, moved);
        until(&format!("{moved:?} to move from {old}"), || value(&metrics(leader.address()), moved) > old);
    }
    let text = metrics(leader.address());
    for (name, expected) in ARE {
        assert_eq!(sum(&text, name, &[]), Some(expected), "{name}");
    }
    assert!(sum(&text, "etcd_server_leader_changes_seen_total", &[]).unwrap() >= 1.0);
    let open = |service: &str| {
        let labels = [service, "grpc_type=\"bidi_stream\""];
        let of = |name| sum(&metrics(leader.address()), name, &labels).unwrap();
        of("grpc_server_started_total") - of("grpc_server_handled_total")
    };
    assert_eq!(open("grpc_service=\"etcdserverpb.Watch\""), 1.0);
    assert_eq!(open("grpc_service=\"etcdserverpb.Lease\""), 1.0);
    assert_eq!(sum(&text, "etcd_debugging_mvcc_watcher_total", &[]), Some(1.0));
    assert!(sum(&text, "process_resident_memory_bytes", &[]).unwrap() > 1e6);
    let is_quota_left =
        sum(&text, "etcd_mvcc_db_total_size_in_bytes", &[]) < sum(&text, "etcd_server_quota_backend_bytes", &[]);
    assert!(is_quota_left);
}

/// Who adds up what etcd's log and database sync, would count a put of rusd three times.
#[test]
fn a_put_is_one_sync_under_one_name() {
    let server = Rusd::start(&[]);
    let counted = || {
        let text = metrics(server.address());
        let [own, of_log] = ["rusd_log_syncs_total", "etcd_disk_wal_fsync_duration_seconds_count"]
            .map(|name| sum(&text, name, &[]).unwrap());
        assert_eq!(own, of_log);
        own
    };
    let before = counted();
    for number in 0..20 {
        server.etcdctl(&["put", &number.to_string(), "value"]);
    }
    let syncs = counted() - before;
    assert!((20.0..=22.0).contains(&syncs), "{syncs} syncs of 20 puts, one after the other");
}

/// Space that deletes have made free is free inside of the file until somebody defragments.
#[test]
fn the_size_and_what_is_in_use_differ_until_defragmentation() {
    let server = Rusd::start(&[]);
    let sizes = || {
        let status = server.etcdctl(&["endpoint", "status", "-w", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let status = &status[0]["Status"];
        // What is 0 is left out.
        (status["dbSize"].as_u64().unwrap_or(0), status["dbSizeInUse"].as_u64().unwrap_or(0))
    };
    let value = "v".repeat(100_000);
    for number in 0..10 {
        server.etcdctl(&["put", &number.to_string(), &value]);
    }
    let (full, in_use) = sizes();
    assert!(full >= 1_000_000 && full == in_use, "{full} {in_use}");
    let deleted = server.etcdctl(&["del", "", "--prefix", "-w", "json"]);
    let deleted: BTreeMap<String, serde_json::Value> = serde_json::from_str(&deleted).unwrap();
    server.etcdctl(&["compaction", "--physical", &deleted["header"]["revision"].to_string()]);
    until("space that is not in use", || sizes().1 < 100_000);
    assert!(sizes().0 >= full);
    server.etcdctl(&["defrag"]);
    let (size, in_use) = sizes();
    assert_eq!(size, in_use.max(1), "nothing is left, and clients divide by the size");
}

#[test]
fn commands_that_take_long_are_counted() {
    let server = Rusd::start(&["--warning-apply-duration=1ns"]);
    let slow = || sum(&metrics(server.address()), "etcd_server_slow_apply_total", &[]).unwrap();
    let before = slow();
    server.etcdctl(&["put", "k", "v"]);
    assert!(slow() > before);
    let patient = Rusd::start(&["--warning-apply-duration=1h"]);
    patient.etcdctl(&["put", "k", "v"]);
    assert_eq!(sum(&metrics(patient.address()), "etcd_server_slow_apply_total", &[]), Some(0.0));
}
