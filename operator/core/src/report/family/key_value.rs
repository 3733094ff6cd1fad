//! Load on any replicated key-value store, in words.

use storebench_crds::workload::key_value::{Door, KeyValueOperation, KeyValueWorkload, ReadLevel};

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
    if key_value.operation == KeyValueOperation::Lock {
        parts.push(units::things(key_value.contended_locks(), "lock"));
    }
    let reads = match key_value.operation {
        KeyValueOperation::Get | KeyValueOperation::Mixed => true,
        KeyValueOperation::Failover => key_value.read_percent.unwrap_or_default() > 0,
        KeyValueOperation::Put
        | KeyValueOperation::Scan
        | KeyValueOperation::CompareAndSwap
        | KeyValueOperation::Lock
        | KeyValueOperation::WatchLatency => false,
    };
    if reads {
        parts.push(match key_value.read_level {
            ReadLevel::Linearizable => "linearizable".to_owned(),
            ReadLevel::Lease => "by lease, linearizable where etcd's API is spoken".to_owned(),
            ReadLevel::Bounded => {
                let age = key_value.max_age.as_ref().map_or("an age", |age| age.as_str());
                format!("no older than {age}, from what members have where that is known to be so young")
            }
            ReadLevel::Eventual => "eventual, serializable where etcd's API is spoken".to_owned(),
        });
    }
    if key_value.door() == Door::Streaming {
        parts.push("by d-engine's streaming door, by unary calls where etcd's API is spoken".to_owned());
    }
    parts.push(format!("{} keys", units::bytes(key_value.key_bytes.into())));
    parts.push(value_sizes(key_value.value_bytes, key_value.key_space, key_value.key_order));
    parts
}
