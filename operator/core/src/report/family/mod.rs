//! What a workload asks for, in words: one module for each family.

mod block_stream;
mod etcd;
mod key_value;
mod kubernetes;
mod redis;
mod sqlite_replication;

use storebench_crds::workload::{KeyOrder, Parameters, Workload};

use super::units;

/// A workload's request and parameters, as `etcd Put, 32 B keys, 256 B values over 10.0k keys`.
pub(super) fn request(workload: &Workload) -> String {
    let parts = match &workload.parameters {
        Parameters::Etcd(etcd) => etcd::request(etcd),
        Parameters::KeyValue(key_value) => key_value::request(key_value),
        Parameters::Redis(redis) => redis::request(redis),
        Parameters::Kubernetes(kubernetes) => kubernetes::request(kubernetes),
        Parameters::BlockStream(block_stream) => block_stream::request(block_stream),
        Parameters::SqliteReplication(replication) => sqlite_replication::request(replication),
    };
    parts.join(", ")
}

/// As `256 B values over 10,000 keys`.
fn value_sizes(value_bytes: u32, key_space: u32, order: KeyOrder) -> String {
    let order = match order {
        KeyOrder::Random => "",
        KeyOrder::Sequential => " in sequence",
    };
    format!("{} values over {}{order}", units::bytes(value_bytes.into()), units::things(key_space, "key"))
}
