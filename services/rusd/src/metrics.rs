//! `/metrics`: the names that dashboards and alerts for etcd use, of what rusd has. What etcd has besides, and why it is not here, is in
//! `tests/server/metrics.rs`, which looks at both.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use replog::runtime::tcp::Traffic;
use service_kit::metrics::{Process, counter, gauge, histogram};
use service_kit::{open_files, resources};
use wal::BOUNDS_MICROS;

use crate::api::calls::Calls;
use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;
use crate::settings::hex;

/// All of a member, of calls of its clients, and of its process. It looks when it is asked.
pub fn registry(node: &Arc<Node>, calls: &Arc<Calls>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics { node: Arc::clone(node), calls: Arc::clone(calls) }));
    registry.register_collector(Box::new(Process));
    registry
}

struct Metrics {
    node: Arc<Node>,
    calls: Arc<Calls>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { node, calls } = self;
        group(node, &mut encoder)?;
        store(node, &mut encoder)?;
        who(node, &mut encoder)?;
        disk(node, &mut encoder)?;
        network(node, &mut encoder)?;
        calls.encode(&mut encoder)
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// In etcd some gauges have names of counters, and some counters those of gauges.
fn gauges(encoder: &mut DescriptorEncoder<'_>, all: &[(&str, &str, i64)]) -> fmt::Result {
    all.iter().try_for_each(|(name, help, value)| gauge(encoder, name, help, *value))
}

fn counters(encoder: &mut DescriptorEncoder<'_>, all: &[(&str, &str, u64)]) -> fmt::Result {
    all.iter().try_for_each(|(name, help, value)| counter(encoder, name, help, *value))
}

fn group(node: &Node, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (view, status, counts) = (node.reader.view(), node.handle.status(), node.handle.counts());
    let leads = status.leader == Some(node.member_id);
    let alarms = view.cluster.alarms(AlarmType::None as i32);
    gauges(
        encoder,
        &[
            (
                "etcd_server_has_leader",
                "Whether or not a leader exists. 1 is existence, 0 is not",
                status.leader.is_some().into(),
            ),
            ("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise", leads.into()),
            (
                "etcd_server_is_learner",
                "Whether or not this member is a learner. 1 if is, 0 otherwise",
                node.group.is_learner().into(),
            ),
            (
                "etcd_server_proposals_committed_total",
                "The total number of consensus proposals committed",
                status.commit as i64,
            ),
            (
                "etcd_server_proposals_applied_total",
                "The total number of consensus proposals applied",
                status.applied as i64,
            ),
            (
                "etcd_server_proposals_pending",
                "The current number of pending proposals to commit",
                status.in_flight as i64,
            ),
            (
                "rusd_linearizable_reads_by_lease",
                "Whether linearizable reads stand on the leader's lease. 1 if so, 0 if each takes a round to a majority",
                node.settings.reads_by_lease.into(),
            ),
            ("etcd_server_alarms", "Alarms that are raised", alarms.len() as i64),
            (
                "etcd_server_health_success",
                "The total number of successful health checks",
                read(&node.measured.health_successes) as i64,
            ),
            (
                "etcd_server_health_failures",
                "The total number of failed health checks",
                read(&node.measured.health_failures) as i64,
            ),
            (
                "etcd_server_learner_promote_successes",
                "The total number of successful learner promotions while this member is leader",
                read(&node.measured.learners_promoted) as i64,
            ),
        ],
    )?;
    counters(
        encoder,
        &[
            ("etcd_server_leader_changes_seen", "The number of leader changes seen", counts.leader_changes),
            ("etcd_server_proposals_failed", "The total number of failed proposals seen", counts.proposals_failed),
            (
                "rusd_messages_refused",
                "Messages of other members that were not taken: too many waited, or the disk or the state was behind",
                counts.messages_refused,
            ),
            (
                "etcd_server_slow_apply",
                "The total number of slow apply requests (likely overloaded from slow disk)",
                read(&node.measured.slow_applies),
            ),
            (
                "etcd_server_read_indexes_failed",
                "The total number of failed read indexes seen",
                read(&node.measured.read_indexes_failed),
            ),
        ],
    )
}

fn store(node: &Node, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (view, spilled, counts) = (node.reader.view(), node.reader.spilled(), node.reader.counts());
    let (streams, watchers) = node.watched();
    gauges(
        encoder,
        &[
            (
                "etcd_server_quota_backend_bytes",
                "Current backend storage quota size in bytes",
                node.settings.quota_bytes.unwrap_or_default() as i64,
            ),
            ("etcd_debugging_mvcc_keys_total", "Total number of keys", view.keyspace.len() as i64),
            ("etcd_debugging_mvcc_current_revision", "The current revision of store", view.revision()),
            (
                "etcd_debugging_mvcc_compact_revision",
                "The revision of the last compaction in store",
                view.keyspace.compacted(),
            ),
            ("etcd_debugging_auth_revision", "The current revision of auth store", view.auth.revision() as i64),
            (
                "etcd_debugging_mvcc_total_put_size_in_bytes",
                "The total size of put kv pairs seen by this member",
                read(&counts.put_bytes) as i64,
            ),
            ("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams", streams as i64),
            ("etcd_debugging_mvcc_watcher_total", "Total number of watchers", watchers as i64),
            (
                "etcd_mvcc_db_total_size_in_bytes",
                "Total size of the underlying database physically allocated in bytes",
                node.allocated_bytes() as i64,
            ),
            (
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Total size of the underlying database logically in use in bytes",
                view.bytes() as i64,
            ),
            (
                "rusd_store_values_in_memory_bytes",
                "Values in memory that could be in files: --values-memory-bytes of them stay",
                view.keyspace.hot_bytes() as i64,
            ),
            ("rusd_store_values_files_bytes", "Scratch files of values", spilled.file_bytes() as i64),
            (
                "rusd_store_values_files_failing",
                "Whether values stay in memory because they cannot be written to files. 1 if so, 0 otherwise",
                spilled.is_failing().into(),
            ),
        ],
    )?;
    counters(
        encoder,
        &[
            ("etcd_mvcc_put", "Total number of puts seen by this member", read(&counts.puts)),
            ("etcd_mvcc_delete", "Total number of deletes seen by this member", read(&counts.deletes)),
            ("etcd_mvcc_range", "Total number of ranges seen by this member", read(&counts.ranges)),
            ("etcd_mvcc_txn", "Total number of txns seen by this member", read(&counts.txns)),
            ("etcd_debugging_mvcc_events", "Total number of events sent by this member", read(&counts.events)),
            ("etcd_debugging_lease_granted", "The total number of granted leases", read(&counts.leases_granted)),
            ("etcd_debugging_lease_revoked", "The total number of revoked leases", read(&counts.leases_revoked)),
            ("etcd_debugging_lease_renewed", "The number of renewed leases seen by the leader", node.lessor.renewed()),
            (
                "etcd_debugging_server_lease_expired",
                "The total number of expired leases",
                read(&node.measured.leases_expired),
            ),
        ],
    )
}

/// What stands in a label, with the value 1.
fn who(node: &Node, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let version = node.reader.view().cluster.version.clone();
    let id = hex(node.member_id);
    let told = [
        (
            "etcd_server_version",
            "Which version is running. 1 for 'server_version' label with current version",
            ("server_version", ETCD_VERSION),
        ),
        (
            "etcd_cluster_version",
            "Which version is running. 1 for 'cluster_version' label with current cluster version",
            ("cluster_version", version.rsplit_once('.').map_or("", |(minor, _)| minor)),
        ),
        (
            "etcd_server_id",
            "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID",
            ("server_id", &id),
        ),
    ];
    for (name, help, label) in told {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(1_u64).encode(metric.encode_family(&[label])?)?;
    }
    let help = "Whether or not a feature is enabled. 1 is enabled, 0 is not";
    let mut metric = encoder.encode_descriptor("etcd_server_feature_enabled", help, None, MetricType::Gauge)?;
    for (name, stage, is_enabled) in node.settings.features.all() {
        let labels = [("name", name), ("stage", stage)];
        ConstGauge::new(u64::from(is_enabled)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn disk(node: &Node, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    // A write and a sync, where etcd has the sync alone.
    let times = node.handle.sync_times();
    let (name, help) = ("etcd_disk_wal_fsync_duration_seconds", "The latency distributions of fsync called by WAL");
    histogram(encoder, name, help, (&BOUNDS_MICROS, &times.counts), times.sum_nanos)?;
    // etcd's database syncs too when it commits: whoever adds both up for etcd, needs one name for rusd.
    counters(encoder, &[("rusd_log_syncs", "Syncs of the log; nothing else is synced at a commit", times.syncs())])?;
    let (name, help) =
        ("etcd_disk_backend_commit_duration_seconds", "The latency distributions of commit called by backend");
    node.measured.commits.encode(encoder, name, help)?;
    gauges(
        encoder,
        &[
            ("os_fd_used", "The number of used file descriptors", resources::open_files() as i64),
            ("os_fd_limit", "The file descriptor limit", open_files::limit().unwrap_or_default() as i64),
        ],
    )
}

fn network(node: &Node, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (peers, local) = (node.group.peers(), hex(node.member_id));
    let known = peers.known();
    type IsCounted<'a> = &'a dyn Fn(u64) -> bool;
    let gauges: [(&str, &str, IsCounted<'_>); 2] = [
        ("etcd_network_known_peers", "The current number of known peers", &|_| true),
        ("etcd_network_active_peers", "The current number of active peer connections", &|peer| {
            node.group.is_connected(peer)
        }),
    ];
    for (name, help, is_counted) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for peer in &known {
            let labels = [("Local", local.clone()), ("Remote", format!("{peer:x}"))];
            ConstGauge::new(u64::from(is_counted(*peer))).encode(metric.encode_family(&labels)?)?;
        }
    }
    let traffic = peers.traffic();
    type Field = fn(&Traffic) -> u64;
    let counters: [(&str, &str, &str, Field); 4] = [
        ("etcd_network_peer_sent_bytes", "The total number of bytes sent to peers", "To", |to| to.sent_bytes),
        ("etcd_network_peer_received_bytes", "The total number of bytes received from peers", "From", |from| {
            from.received_bytes
        }),
        ("etcd_network_peer_sent_failures", "The total number of send failures from peers", "To", |to| {
            // As etcd counts them: also what is dropped because too much waits.
            to.send_failures + to.lost_messages
        }),
        ("etcd_network_peer_received_failures", "The total number of receive failures from peers", "From", |from| {
            from.receive_failures
        }),
    ];
    for (name, help, label, field) in counters {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (peer, counted) in &traffic {
            let labels = [(label, format!("{peer:x}"))];
            ConstCounter::new(field(counted)).encode(metric.encode_family(&labels)?)?;
        }
    }
    node.group.encode_round_trips(encoder)
}
