//! Load on any replicated key-value store, in words.

use storebench_crds::workload::key_value::{KeyValueOperation, KeyValueWorkload, ReadLevel};

use super::super::lookup::api_word;
use super::super::units;
use super::value_sizes;

/// The request and its parameters, in parts.
pub(super) fn request(key_value: &KeyValueWorkload) -> Vec<String> {
    let mut parts = vec![format!("key-value {}", api_word(&key_value.operation))];
    if let (Some(kill), Some(restart)) = (&key_value.kill_after, &key_value.restart_after) {
        parts.push(format!("leader killed after {}, restarted {} later", kill.as_str(), restart.as_str()));
    }
    if let Some(percent) = key_value.read_percent {
        parts.push(format!("{percent} % reads"));
    }
    if key_value.operation == KeyValueOperation::Scan {
        parts.push(format!("{} keys at once", key_value.scanned_keys()));
    }
    let reads = match key_value.operation {
        KeyValueOperation::Get | KeyValueOperation::Mixed => true,
        KeyValueOperation::Failover => key_value.read_percent.unwrap_or_default() > 0,
        KeyValueOperation::Put
        | KeyValueOperation::Scan
        | KeyValueOperation::CompareAndSwap
        | KeyValueOperation::WatchLatency => false,
    };
    if reads {
        parts.push(match key_value.read_level {
            ReadLevel::Linearizable => "linearizable".to_owned(),
            ReadLevel::Lease => "by lease, linearizable where etcd's API is spoken".to_owned(),
            ReadLevel::Eventual => "eventual, serializable where etcd's API is spoken".to_owned(),
        });
    }
    parts.push(format!("{} keys", units::bytes(key_value.key_bytes.into())));
    parts.push(value_sizes(key_value.value_bytes, key_value.key_space, key_value.key_order));
    parts
}
