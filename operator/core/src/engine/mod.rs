//! Plans: how each store is started. One file for each [`Dialect`]; what a store is stands in the table of
//! [`storebench_crds::engine`].
//!
//! A plan is a pure function from a validated service and a [`Placement`] to a [`ServicePlan`]. Drivers realise plans:
//! the operator with StatefulSets (where a member's own name and host are Kubernetes' `$(VARIABLE)` references), the
//! embedded run with child processes on loopback.

mod d_engine;
mod etcd;
mod redis;

pub use storebench_crds::engine::{CLIENT, Dialect, ENGINES, Engine, PEER, Protocol};

use crate::validate::ValidatedService;

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

/// How to run a service in a placement. The placement has one member for each replica.
pub fn plan(service: &ValidatedService, placement: &Placement) -> ServicePlan {
    debug_assert_eq!(placement.members.len(), service.replicas as usize);
    let members = match service.engine.dialect {
        Dialect::Etcd => etcd::members(service, placement),
        Dialect::DEngine => d_engine::members(service, placement),
        Dialect::Redis => redis::members(service, placement),
    };
    ServicePlan { protocol: service.engine.protocol, members }
}
