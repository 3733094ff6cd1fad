//! `/metrics`: what a member is and has done, and what its process uses. It looks when it is asked.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use service_kit::metrics::{Process, counter, gauge, histogram};
use wal::BOUNDS_MICROS;

use crate::engine::{Durability, Node};

/// All of a member, and of its process.
pub fn registry(node: &Node) -> Registry {
    let mut registry = Registry::default();
    registry.register("dengine", "The release", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    registry.register_collector(Box::new(Metrics(node.clone())));
    registry.register_collector(Box::new(Process));
    registry
}

struct Metrics(Node);

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(node) = self;
        let (status, counted) = (node.status(), node.counters().counted());
        let leads = status.leader == Some(node.id());
        let (has_lease, sessions, watchers) = (node.has_lease(), node.sessions(), node.watchers());
        let gauges: [(&str, &str, i64); 11] = [
            ("dengine_term", "The term of the log", status.term as i64),
            ("dengine_has_leader", "1 if this member knows who leads", status.leader.is_some().into()),
            ("dengine_is_leader", "1 if this member leads", leads.into()),
            ("dengine_has_lease", "1 if this member may answer strong reads alone now", has_lease.into()),
            ("dengine_committed_index", "The last entry that is committed", status.commit as i64),
            ("dengine_applied_index", "The last entry that is applied", status.applied as i64),
            ("dengine_log_last_index", "The last entry of the log", status.last as i64),
            ("dengine_log_bytes", "Bytes of the log's files", status.wal_bytes as i64),
            ("dengine_in_flight", "Commands in the log that are not applied", status.in_flight as i64),
            ("dengine_sessions", "Sessions that are open", sessions as i64),
            ("dengine_watchers", "Watches that this member serves", watchers as i64),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value)?;
        }
        let slowest = status.progress.iter().map(|(_, matched)| status.last.saturating_sub(*matched)).max();
        if let Some(lag) = slowest {
            let help = "Entries that the slowest member lacks; of the leader";
            gauge(&mut encoder, "dengine_member_lag_max", help, lag as i64)?;
        }
        let reads = [
            ("read_index", counted.reads_read_index),
            ("lease", counted.reads_lease),
            ("age", counted.reads_age),
            ("local", counted.reads_local),
        ];
        counters(&mut encoder, "dengine_reads", "Reads that were answered, by the path that was used", "path", &reads)?;
        let writes = [("applied", counted.written), ("other", counted.not_written)];
        let help = "Commands of clients: applied, or refused, not applied or nobody knows";
        counters(&mut encoder, "dengine_commands", help, "outcome", &writes)?;
        let help = "Commands of clients that were handed to the leader";
        counter(&mut encoder, "dengine_forwarded", help, counted.forwarded)?;
        match node.durability() {
            Durability::Fsync => {
                let times = node.sync_times();
                let help = "Until a batch of the log was written and synced";
                let counted = (&BOUNDS_MICROS[..], &times.counts[..]);
                histogram(&mut encoder, "dengine_log_sync_seconds", help, counted, times.sum_nanos)
            }
            Durability::None => Ok(()),
        }
    }
}

/// A counter for each value of a label.
fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(*count).encode(metric.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}
