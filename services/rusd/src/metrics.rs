//! `/metrics`: the names that dashboards for etcd use, of what rusd has.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use service_kit::metrics::{Process, counter, gauge, histogram};
use wal::BOUNDS_MICROS;

use crate::node::{ETCD_VERSION, Node};
use crate::proto::etcdserverpb::AlarmType;

/// All of a member, and of its process. It looks when it is asked.
pub fn registry(node: &Arc<Node>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(Arc::clone(node))));
    registry.register_collector(Box::new(Process));
    registry
}

struct Metrics(Arc<Node>);

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(node) = self;
        let (view, status) = (node.reader.view(), node.handle.status());
        let spilled = node.reader.spilled();
        let leads = status.leader == Some(node.member_id);
        let alarms = view.cluster.alarms(AlarmType::None as i32);
        // In etcd some are gauges whose names are those of counters.
        let gauges: [(&str, &str, i64); 17] = [
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
            (
                "etcd_mvcc_db_total_size_in_bytes",
                "Total size of the underlying database physically allocated in bytes",
                view.bytes() as i64,
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
            (
                "rusd_linearizable_reads_by_lease",
                "Whether linearizable reads stand on the leader's lease. 1 if so, 0 if each takes a round to a majority",
                node.settings.reads_by_lease.into(),
            ),
            ("etcd_server_alarms", "Alarms that are raised", alarms.len() as i64),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value)?;
        }
        let help = "Which version is running. 1 for 'server_version' label with current version";
        let mut version = encoder.encode_descriptor("etcd_server_version", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_u64).encode(version.encode_family(&[("server_version", ETCD_VERSION)])?)?;
        let counts = node.handle.counts();
        for (name, help, value) in [
            ("etcd_server_leader_changes_seen", "The number of leader changes seen", counts.leader_changes),
            ("etcd_server_proposals_failed", "The total number of failed proposals seen", counts.proposals_failed),
        ] {
            counter(&mut encoder, name, help, value)?;
        }
        // A write and a sync, where etcd has the sync alone.
        let times = node.handle.sync_times();
        let name = "etcd_disk_wal_fsync_duration_seconds";
        let help = "The latency distributions of fsync called by WAL";
        histogram(&mut encoder, name, help, (&BOUNDS_MICROS, &times.counts), times.sum_nanos)
    }
}
