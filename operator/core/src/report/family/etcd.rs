//! Load on the etcd v3 API, in words.

use storebench_crds::workload::etcd::{Consistency, EtcdOperation, EtcdWorkload, RangeScope};

use super::super::lookup::api_word;
use super::super::units;
use super::value_sizes;

/// The request and its parameters, in parts.
pub(super) fn request(etcd: &EtcdWorkload) -> Vec<String> {
    let mut parts = vec![format!("etcd {}", api_word(&etcd.operation))];
    if let Some(percent) = etcd.read_percent {
        parts.push(format!("{percent} % reads"));
    }
    if matches!(etcd.operation, EtcdOperation::Range | EtcdOperation::Mixed) {
        parts.push(match etcd.consistency {
            Consistency::Linearizable => "linearizable".to_owned(),
            Consistency::Serializable => "serializable".to_owned(),
        });
    }
    if etcd.scope == RangeScope::Prefix {
        let limit = etcd.limit.map_or_else(String::new, |limit| format!(" limited to {}", units::count(limit.into())));
        parts.push(format!("prefix{limit}"));
    }
    if etcd.count_only {
        parts.push("count only".to_owned());
    }
    if etcd.keys_only {
        parts.push("keys only".to_owned());
    }
    if let Some(operations) = etcd.operations_per_transaction {
        parts.push(format!("{operations} puts in each transaction"));
    }
    if let Some(watchers) = etcd.watchers {
        let streams = etcd.streams.unwrap_or(1);
        parts.push(format!("{} on {}", units::things(watchers, "watcher"), units::things(streams, "stream")));
    }
    if etcd.previous_value {
        parts.push("with previous values".to_owned());
    }
    if etcd.operation != EtcdOperation::LeaseKeepAlive {
        parts.push(format!("{} keys", units::bytes(etcd.key_bytes.into())));
        parts.push(value_sizes(etcd.value_bytes, etcd.key_space, etcd.key_order));
    }
    if let Some(every) = &etcd.compact_interval {
        parts.push(format!("compacted every {}", every.as_str()));
    }
    parts
}
