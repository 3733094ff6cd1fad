//! etcd, and rusd, which takes its flags. Flags: `etcd --help` of 3.7. Durability: both sync their write-ahead log before they
//! acknowledge, unless `--unsafe-no-fsync`; there is nothing in between, so `Interval` is refused.

use storebench_crds::storage_service::{Durability, EngineKind};

use super::{Engine, Placement, ProcessPlan, Protocol, VersionProbe};
use crate::validate::ValidatedService;

pub(super) static ETCD: Engine = Engine {
    kind: EngineKind::Etcd,
    name: "etcd",
    protocol: Protocol::Etcd,
    default_version: "3.7.3",
    binary: "etcd",
    image: "storebench/etcd",
    client_port: 2379,
    peer_port: Some(2380),
    metrics_path: Some("/metrics"),
    install: "peers/fetch etcd",
    version_probe: VersionProbe { argument: "--version", marker: "etcd Version: " },
    durability_setting,
    reserved_flags: RESERVED_FLAGS,
    members: |service, placement| members(&ETCD, service, placement),
};

pub(super) static RUSD: Engine = Engine {
    kind: EngineKind::Rusd,
    name: "rusd",
    protocol: Protocol::Etcd,
    default_version: env!("CARGO_PKG_VERSION"),
    binary: "rusd",
    image: "storebench/rusd",
    client_port: 2379,
    peer_port: Some(2380),
    metrics_path: Some("/metrics"),
    install: "cargo build --release -p rusd",
    version_probe: VersionProbe { argument: "--version", marker: "rusd Version: " },
    durability_setting,
    reserved_flags: RESERVED_FLAGS,
    members: |service, placement| members(&RUSD, service, placement),
};

const RESERVED_FLAGS: &[&str] = &[
    "--name",
    "--data-dir",
    "--wal-dir",
    "--listen-client-urls",
    "--advertise-client-urls",
    "--listen-peer-urls",
    "--initial-advertise-peer-urls",
    "--initial-cluster",
    "--initial-cluster-state",
    "--unsafe-no-fsync",
    // Makes etcd ignore every other flag, durability included.
    "--config-file",
];

fn durability_setting(durability: Durability) -> Option<&'static str> {
    match durability {
        Durability::Fsync => Some("WAL synced before acknowledgement"),
        Durability::Interval => None,
        Durability::None => Some("--unsafe-no-fsync"),
    }
}

fn members(engine: &Engine, service: &ValidatedService, placement: &Placement) -> Vec<ProcessPlan> {
    let cluster: Vec<String> = placement
        .members
        .iter()
        .map(|member| format!("{}=http://{}:{}", member.name, member.host, member.peer_port))
        .collect();
    let cluster = cluster.join(",");
    placement
        .members
        .iter()
        .map(|member| {
            let mut arguments: Vec<String> = vec![
                format!("--name={}", member.own_name),
                format!("--data-dir={}", member.data_directory),
                format!("--listen-client-urls=http://{}:{}", member.bind, member.client_port),
                format!("--advertise-client-urls=http://{}:{}", member.own_host, member.client_port),
                format!("--listen-peer-urls=http://{}:{}", member.bind, member.peer_port),
                format!("--initial-advertise-peer-urls=http://{}:{}", member.own_host, member.peer_port),
                format!("--initial-cluster={cluster}"),
                "--initial-cluster-state=new".into(),
                "--log-level=warn".into(),
            ];
            if service.durability == Durability::None {
                arguments.push("--unsafe-no-fsync".into());
            }
            arguments.extend(service.args.iter().cloned());
            ProcessPlan {
                name: member.name.clone(),
                binary: engine.binary,
                arguments,
                environment: service.env.clone(),
                client_address: format!("{}:{}", member.host, member.client_port),
            }
        })
        .collect()
}
