//! The embedded run as a user meets it: the real binary, real stores, real faults; a module for each subject.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../finished/mod.rs"]
mod finished;
#[allow(dead_code)]
#[path = "../later/mod.rs"]
mod later;
#[allow(dead_code)]
#[path = "../world/mod.rs"]
mod world;

mod busy;
mod comparisons;
mod disturbances;
mod failures;
mod going_on;
mod missing;
mod signals;

use std::process::Command;

use world::two_arms;

const REDIS_SET: &str = "redis: { command: Set, keySpace: 20000 }";
const ETCD_PUT: &str = "etcd: { operation: Put, keySpace: 20000 }";

fn two_stores() -> String {
    let workload = |name: &str, command: &str| {
        format!(
            "  - {{ name: {name}, redis: {{ command: {command} }}, load: {{ connections: 10, duration: 500ms, warmUp: 100ms }} }}"
        )
    };
    two_arms("two-stores", &[workload("set", "Set"), workload("get", "Get")].join("\n"))
}

fn kill(process: u32, signal: &str) {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status().unwrap();
    assert!(status.success());
}
