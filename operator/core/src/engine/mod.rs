//! Engines: how each store is deployed. One file and one line in [`ENGINES`] per engine.
//!
//! An engine is a pure function from a validated service and a [`Placement`] to a [`ServicePlan`]. Drivers realise plans:
//! the operator with StatefulSets (where a member's own name and host are Kubernetes' `$(VARIABLE)` references), the
//! embedded run with child processes on loopback.

mod etcd;
mod redis;

use serde::{Deserialize, Serialize};
use storebench_crds::storage_service::{Durability, EngineKind};

use crate::validate::ValidatedService;

/// Every engine.
pub static ENGINES: [&Engine; 4] = [&etcd::ETCD, &etcd::RUSD, &redis::REDIS, &redis::VALKEY];

/// What a store is, and how it is deployed.
#[derive(Debug)]
pub struct Engine {
    /// The kind that users write.
    pub kind: EngineKind,
    /// The name in paths and messages: lower case.
    pub name: &'static str,
    /// What clients speak to it.
    pub protocol: Protocol,
    /// The version deployed where the user names none: the one this release was tested with.
    pub default_version: &'static str,
    /// The server's executable.
    pub binary: &'static str,
    /// The container image without its tag, which is the version.
    pub image: &'static str,
    /// The port for clients in a pod.
    pub client_port: u16,
    /// The port for other members in a pod; `None` where the engine does not replicate.
    pub peer_port: Option<u16>,
    /// The path of the metrics on the port for clients; `None` where the store has none.
    pub metrics_path: Option<&'static str>,
    /// The command that installs the executable for embedded runs.
    pub install: &'static str,
    /// How an executable prints its version, and the text before it.
    pub version_probe: VersionProbe,
    /// The engine's own setting for a durability class; `None` where it cannot be honoured.
    pub durability_setting: fn(Durability) -> Option<&'static str>,
    /// Flags that storebench sets itself; users may not repeat them in `args`.
    pub reserved_flags: &'static [&'static str],
    members: fn(&ValidatedService, &Placement) -> Vec<ProcessPlan>,
}

/// How an executable prints its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionProbe {
    /// The argument that makes it print.
    pub argument: &'static str,
    /// The text before the version on the first line that has it.
    pub marker: &'static str,
}

impl VersionProbe {
    /// The version in what the executable printed.
    pub fn read<'a>(&self, output: &'a str) -> Option<&'a str> {
        let (_, after) = output.split_once(self.marker)?;
        after.split_whitespace().next()
    }
}

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// The etcd v3 API: gRPC and, on the same port, HTTP for health and version.
    Etcd,
    /// The Redis protocol.
    Redis,
}

/// Where a driver puts the members: it decides names, addresses, ports and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One for each replica.
    pub members: Vec<Member>,
}

/// Where one member runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Unique in the service.
    pub name: String,
    /// The host that clients and peers use.
    pub host: String,
    /// The name and the host as the member itself is told them: the same, or references such as `$(POD_NAME)` where one
    /// command line must serve all members.
    pub own_name: String,
    /// See [`Self::own_name`].
    pub own_host: String,
    /// The address the server binds.
    pub bind: String,
    /// The port for clients.
    pub client_port: u16,
    /// The port for other members.
    pub peer_port: u16,
    /// Where data may be written; exists and is empty at first start.
    pub data_directory: String,
}

/// How to run a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// The store's protocol, which also says how readiness is probed.
    pub protocol: Protocol,
    /// One process for each member.
    pub members: Vec<ProcessPlan>,
}

/// How to run one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPlan {
    /// The member's name.
    pub name: String,
    /// The executable's file name.
    pub binary: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, besides an empty one.
    pub environment: Vec<(String, String)>,
    /// Where clients reach it, `host:port`.
    pub client_address: String,
}

impl Engine {
    /// The engine of a kind.
    pub fn of(kind: EngineKind) -> &'static Self {
        match kind {
            EngineKind::Etcd => &etcd::ETCD,
            EngineKind::Rusd => &etcd::RUSD,
            EngineKind::Redis => &redis::REDIS,
            EngineKind::Valkey => &redis::VALKEY,
        }
    }

    /// How to run a service in a placement. The placement has one member for each replica.
    pub fn plan(&self, service: &ValidatedService, placement: &Placement) -> ServicePlan {
        debug_assert_eq!(placement.members.len(), service.replicas as usize);
        ServicePlan { protocol: self.protocol, members: (self.members)(service, placement) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_engine() {
        for engine in ENGINES {
            assert_eq!(Engine::of(engine.kind).name, engine.name);
        }
    }

    #[test]
    fn fsync_is_honoured_by_every_engine() {
        for engine in ENGINES {
            assert!((engine.durability_setting)(Durability::Fsync).is_some(), "{}", engine.name);
        }
    }

    #[test]
    fn versions_are_read_from_what_executables_print() {
        let etcd = "etcd Version: 3.7.3\nGit SHA: Not provided\n";
        assert_eq!(Engine::of(EngineKind::Etcd).version_probe.read(etcd), Some("3.7.3"));
        let rusd = "etcd Version: 3.7.3\nrusd Version: 0.1.0\n";
        assert_eq!(Engine::of(EngineKind::Rusd).version_probe.read(rusd), Some("0.1.0"));
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1\n";
        assert_eq!(Engine::of(EngineKind::Redis).version_probe.read(redis), Some("7.0.15"));
    }
}
