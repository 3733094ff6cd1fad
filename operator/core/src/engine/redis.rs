//! Redis, and Valkey, which takes the same settings. Settings: the servers' own redis.conf / valkey.conf.
//!
//! Snapshots (`save`) are off: they are another kind of durability, would start in the middle of a trial, and are not what
//! any of the classes promises. The append-only file gives `Fsync` (`always`) and `Interval` (`everysec`).

use storebench_crds::storage_service::{Durability, EngineKind};

use super::{Engine, Placement, ProcessPlan, Protocol, VersionProbe};
use crate::validate::ValidatedService;

pub(super) static REDIS: Engine = Engine {
    kind: EngineKind::Redis,
    name: "redis",
    protocol: Protocol::Redis,
    default_version: "7.0.15",
    binary: "redis-server",
    image: "storebench/redis",
    client_port: 6379,
    peer_port: None,
    metrics_path: None,
    install: "peers/fetch redis",
    version_probe: VersionProbe { argument: "--version", marker: " v=" },
    durability_setting,
    reserved_flags: RESERVED,
    members: redis_members,
};

pub(super) static VALKEY: Engine = Engine {
    kind: EngineKind::Valkey,
    name: "valkey",
    protocol: Protocol::Redis,
    default_version: "9.1.2",
    binary: "valkey-server",
    image: "storebench/valkey",
    client_port: 6379,
    peer_port: None,
    metrics_path: None,
    install: "peers/fetch valkey",
    version_probe: VersionProbe { argument: "--version", marker: " v=" },
    durability_setting,
    reserved_flags: RESERVED,
    members: valkey_members,
};

const RESERVED: &[&str] = &[
    "--port",
    "--bind",
    "--dir",
    "--save",
    "--appendonly",
    "--appendfsync",
    // A file that could hold any of the others.
    "--include",
    "--no-appendfsync-on-rewrite",
    "--daemonize",
    "--supervised",
    "--unixsocket",
    "--replicaof",
    "--cluster-enabled",
];

fn durability_setting(durability: Durability) -> Option<&'static str> {
    Some(match durability {
        Durability::Fsync => "appendonly yes, appendfsync always",
        Durability::Interval => "appendonly yes, appendfsync everysec",
        Durability::None => "appendonly no, save off",
    })
}

fn redis_members(service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    members(REDIS.binary, service, placement)
}

fn valkey_members(service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    members(VALKEY.binary, service, placement)
}

fn members(binary: &'static str, service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    let log: &[&str] = match service.durability {
        Durability::Fsync => &["--appendonly", "yes", "--appendfsync", "always"],
        Durability::Interval => &["--appendonly", "yes", "--appendfsync", "everysec"],
        Durability::None => &["--appendonly", "no"],
    };
    placement
        .members
        .iter()
        .map(|member| {
            let port = member.client_port.to_string();
            let fixed = ["--port", &port, "--bind", &member.bind, "--dir", &member.data_directory, "--save", ""];
            let quiet = ["--daemonize", "no", "--protected-mode", "no", "--loglevel", "warning"];
            let arguments = fixed.iter().chain(log).chain(&quiet).map(ToString::to_string);
            ProcessPlan {
                name: member.name.clone(),
                binary,
                arguments: arguments.chain(service.args.iter().cloned()).collect(),
                environment: service.env.clone(),
                client_address: format!("{}:{}", member.host, member.client_port),
            }
        })
        .collect()
}
