//! Engines: the one place that knows what each store is. A row of [`ENGINES`] is an engine; the schema and its CEL rules
//! ([`rules`]), the documentation of its fields, `storebench engines`, the images of `kind/` and the peers of `peers/`
//! ([`listing`]) are fed from it. How a store is started is its plan, in `storebench-core`.

pub mod listing;
pub mod object_store;
pub mod rules;
mod table;

use std::fmt;
use std::str::FromStr;

pub use table::{ENGINES, EngineKind};

use crate::durability::Durability;
use crate::workload::Api;

/// The port for clients.
pub const CLIENT: &str = "client";
/// The role of what is measured.
pub const STORE: &str = "store";
/// The port for metrics, of a store that does not serve them at the clients'.
pub const METRICS: &str = "metrics";
/// The port for other members, where they do not come to the clients'.
pub const PEER: &str = "peer";

/// What storebench knows about a store.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// The kind that users write.
    pub kind: EngineKind,
    /// What it is, for users.
    pub doc: &'static str,
    /// The name in paths and messages: lower case.
    pub name: &'static str,
    /// What clients speak to it.
    pub protocol: Protocol,
    /// In whose words it is configured, which is the plan that starts it.
    pub dialect: Dialect,
    /// Where its executables come from.
    pub source: Source,
    /// The version deployed where the user names none: the one this release was tested with.
    pub default_version: &'static str,
    /// What its image holds, by path below the folder that it is installed in; the first is the server. A folder goes along whole.
    pub executables: &'static [&'static str],
    /// The container image without its tag, which is the version.
    pub image: &'static str,
    /// What it listens on in a pod.
    pub ports: &'static [Port],
    /// How a driver finds out that it serves.
    pub readiness: Readiness,
    /// Where it serves metrics in Prometheus's format; `None` where it has none.
    pub metrics: Option<Metrics>,
    /// How many members there may be.
    pub replicas: &'static [i32],
    /// The durability classes that it can honour.
    pub durability: &'static [DurabilityClass],
    /// How an executable prints its version.
    pub version_probe: VersionProbe,
    /// Flags that storebench sets itself; users may not repeat them in `args`.
    pub reserved_flags: &'static [&'static str],
    /// What its environment variables begin with, where it reads its flags from there, too.
    pub environment_prefix: Option<&'static str>,
    /// How a group keeps linearizable reads from being stale; `None` where it has no such reads.
    pub linearizable_reads: Option<LinearizableReads>,
    /// What allocates its memory, in the executables that its source brings.
    pub allocator: Allocator,
    /// What is started before it and runs beside it, without being measured as the store.
    pub companions: &'static [Companion],
    /// Whether it works on the files of the application, which is the load: then both have a directory in common, and it
    /// runs in the load's pod.
    pub shares_directory: bool,
}

/// What allocates a store's memory. Of a program in C, C++ or Rust it is a choice of whoever built it, and none of the store's merit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// The C library's: glibc's, or of an image of another libc that one's.
    Libc,
    /// jemalloc.
    Jemalloc,
    /// The runtime of its language, such as Go's: a part of what the store is.
    Runtime,
}

impl Allocator {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Libc => "libc's malloc",
            Self::Jemalloc => "jemalloc",
            Self::Runtime => "its language's runtime",
        }
    }

    /// Whether it was chosen when the store was built.
    pub fn is_choice(self) -> bool {
        match self {
            Self::Libc | Self::Jemalloc => true,
            Self::Runtime => false,
        }
    }
}

/// How a group of members keeps linearizable reads from being stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearizableReads {
    /// By a round among members.
    ByRound,
    /// By the leader's lease, which trusts clocks.
    ByLease,
    /// By the leader's lease, which trusts clocks, unless a flag has this value.
    ByLeaseUnless {
        /// The flag, without dashes.
        flag: &'static str,
        /// Its value.
        value: &'static str,
    },
}

/// A store that another one needs: an engine with its defaults, deployed for that one alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Companion {
    /// Its role, such as `object-store`: unique in the row, and not [`STORE`].
    pub role: &'static str,
    /// What plays it.
    pub engine: EngineKind,
}

/// What clients speak to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// The etcd v3 API: gRPC and, on the same port, HTTP for health and version.
    Etcd,
    /// The protocol of d-engine 0.2.4: gRPC and, on the same port, HTTP for health and metrics.
    DEngine,
    /// The protocol of d-engine 0.2.4 and nothing beside it: no HTTP, no streaming RPC, no leases.
    DEngineOriginal,
    /// The Redis protocol.
    Redis,
    /// Amazon's S3: objects over HTTP.
    S3,
    /// `org.hiero.block.api` of block node 0.25 and later, over gRPC.
    BlockStream,
    /// None: it follows the files of SQLite databases, which its clients write without asking it.
    Sqlite,
}

/// In whose words a store is configured: flags, files, environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// etcd's flags.
    Etcd,
    /// The flags of our own d-engine.
    DEngine,
    /// The flags of the program in `peers/d-engine-original`, which writes the original d-engine's configuration.
    DEngineOriginal,
    /// The directives of redis.conf, as flags.
    Redis,
    /// versitygw's flags and variables.
    Versitygw,
    /// The flags of our own block-node.
    BlockNode,
    /// The variables of the Java block node.
    HieroBlockNode,
    /// Our own walsync's flags.
    Walsync,
    /// litestream.yml.
    Litestream,
}

/// Where executables come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The crate of this name in this project.
    Crate(&'static str),
    /// `peers/fetch` by this name, which every call without names fetches; clusters have its image by default, too.
    Peer(&'static str),
    /// `peers/fetch` by this name, on request: it takes many minutes to build.
    PeerOnRequest(&'static str),
    /// Nowhere that it could be fetched from: the user puts it into the peers' folder, as this says.
    ByHand(&'static str),
}

/// A port of a store in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is for, such as [`CLIENT`].
    pub name: &'static str,
    /// Its number.
    pub number: u16,
}

/// How a driver finds out that a store serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It answers its own protocol on the port for clients.
    Protocol,
    /// `GET` is answered with 200.
    Http {
        /// The port's name.
        port: &'static str,
        /// The path.
        path: &'static str,
    },
    /// Something listens.
    Tcp {
        /// The port's name.
        port: &'static str,
    },
    /// Nothing can be asked: it is ready when it runs.
    Running,
}

/// Where a store serves metrics, in Prometheus's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The port's name.
    pub port: &'static str,
    /// The path.
    pub path: &'static str,
    /// What counts syncs of the disk there, and how many syncs one of each is. Empty: it does not count them.
    pub syncs: &'static [(&'static str, u64)],
}

/// A durability class that an engine honours, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityClass {
    /// The class.
    pub class: Durability,
    /// The engine's own setting, for readers.
    pub setting: &'static str,
    /// What the executable is given for it.
    pub flags: &'static [&'static str],
}

/// How an executable prints its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionProbe {
    /// The argument that makes it print.
    pub argument: &'static str,
    /// The text before the version on the first line that has it.
    pub marker: &'static str,
}

impl EngineKind {
    /// What is known about it.
    pub fn engine(self) -> &'static Engine {
        // The macro that makes both gives them the same order.
        &ENGINES[self as usize]
    }
}

impl Engine {
    /// What it is, for users: its documentation without its name.
    pub fn description(&self) -> &'static str {
        let doc = self.doc.trim();
        doc.split_once(": ").map_or(doc, |(_, description)| description)
    }

    /// The server's executable.
    pub fn binary(&self) -> &'static str {
        self.executables[0]
    }

    /// The port of this name in a pod, if it has one.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|port| port.name == name).map(|port| port.number)
    }

    /// The port in a pod at which it is asked: that for clients, or, of a store that has none, its first.
    pub fn client_port(&self) -> u16 {
        match self.port(CLIENT).or(self.ports.first().map(|port| port.number)) {
            Some(port) => port,
            None => unreachable!("{} has no port: a test sees to it that every row has one", self.name),
        }
    }

    /// Port and path of the metrics in a pod, where it has any.
    pub fn metrics_address(&self) -> Option<(u16, &'static str)> {
        let Metrics { port, path, .. } = self.metrics?;
        Some((self.port(port)?, path))
    }

    /// Whether it counts the syncs of its disk in its metrics.
    pub fn counts_syncs(&self) -> bool {
        self.metrics.is_some_and(|metrics| !metrics.syncs.is_empty())
    }

    /// Whether it can have several members.
    pub fn replicates(&self) -> bool {
        self.replicas.iter().any(|replicas| *replicas > 1)
    }

    /// How it honours a durability class; `None` where it cannot.
    pub fn honours(&self, class: Durability) -> Option<&'static DurabilityClass> {
        self.durability.iter().find(|honoured| honoured.class == class)
    }

    /// The command that installs the executable for embedded runs.
    pub fn install(&self) -> String {
        match self.source {
            Source::Crate(name) => format!("cargo build --release -p {name}"),
            Source::Peer(name) | Source::PeerOnRequest(name) => format!("peers/fetch {name}"),
            Source::ByHand(how) => how.into(),
        }
    }
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 7] =
        [Self::Etcd, Self::DEngine, Self::DEngineOriginal, Self::Redis, Self::S3, Self::BlockStream, Self::Sqlite];

    /// The name in arguments: lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::DEngine => "d-engine",
            Self::DEngineOriginal => "d-engine-original",
            Self::Redis => "redis",
            Self::S3 => "s3",
            Self::BlockStream => "block-stream",
            Self::Sqlite => "sqlite",
        }
    }

    /// What is loaded through it; `None` where there is no family of workloads yet that speaks so.
    pub fn api(self) -> Option<Api> {
        match self {
            Self::Etcd => Some(Api::Etcd),
            Self::DEngine | Self::DEngineOriginal => Some(Api::DEngine),
            Self::Redis => Some(Api::Redis),
            Self::BlockStream => Some(Api::BlockStream),
            Self::S3 => None,
            Self::Sqlite => Some(Api::Sqlite),
        }
    }

    /// Whether clients may ask for reads by a lease.
    pub fn has_lease_level(self) -> bool {
        match self {
            Self::DEngine | Self::DEngineOriginal => true,
            Self::Etcd | Self::Redis | Self::S3 | Self::BlockStream | Self::Sqlite => false,
        }
    }

    /// Whether its stores have all their values in memory, so that it is there that these need room.
    pub fn keeps_values_in_memory(self) -> bool {
        match self {
            Self::Redis => true,
            Self::Etcd | Self::DEngine | Self::DEngineOriginal | Self::S3 | Self::BlockStream | Self::Sqlite => false,
        }
    }

    /// Whether members must resolve one another's names when they start, which pods that are not ready do not let them.
    pub fn needs_names_at_start(self) -> bool {
        match self {
            Self::DEngineOriginal => true,
            Self::Etcd | Self::DEngine | Self::Redis | Self::S3 | Self::BlockStream | Self::Sqlite => false,
        }
    }

    /// Whether there is a streaming RPC beside the unary one, which alone has locks and reads of bounded age.
    pub fn has_streaming_door(self) -> bool {
        match self {
            Self::DEngine => true,
            Self::Etcd | Self::DEngineOriginal | Self::Redis | Self::S3 | Self::BlockStream | Self::Sqlite => false,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A text that names no protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no protocol is called that: use one of {}", Protocol::ALL.map(Protocol::name).join(", "))]
pub struct UnknownProtocol;

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == text).ok_or(UnknownProtocol)
    }
}

impl VersionProbe {
    /// The version in what the executable printed.
    pub fn read<'a>(&self, output: &'a str) -> Option<&'a str> {
        let (_, after) = output.split_once(self.marker)?;
        after.split_whitespace().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_row() {
        for engine in ENGINES {
            assert_eq!(engine.kind.engine().name, engine.name);
            assert_eq!(engine.name, engine.name.to_lowercase());
            assert_ne!(engine.description(), engine.doc.trim(), "{}: write `Name: what it is.`", engine.name);
        }
    }

    #[test]
    fn no_two_rows_share_a_name_an_image_or_a_server() {
        for (index, one) in ENGINES.iter().enumerate() {
            for other in &ENGINES[..index] {
                assert!(one.name != other.name && one.image != other.image, "{} and {}", one.name, other.name);
                assert!(one.binary() != other.binary(), "{} and {}", one.name, other.name);
            }
        }
    }

    #[test]
    fn what_a_row_refers_to_is_in_the_row() {
        for Engine { name, ports, readiness, metrics, replicas, durability, executables, .. } in ENGINES {
            assert!(!executables.is_empty() && !durability.is_empty() && !ports.is_empty(), "{name}");
            assert_eq!(replicas[0], 1, "{name}: the schema's default");
            let strict: Vec<usize> = durability.iter().map(|honoured| honoured.class as usize).collect();
            assert!(strict.is_sorted(), "{name}: the strictest class comes first, which companions are given");
            let has = |wanted: &str| ports.iter().any(|port| port.name == wanted);
            assert!(metrics.is_none_or(|metrics| has(metrics.port)), "{name}: its metrics' port");
            assert!(replicas.len() > 1 || !has(PEER), "{name}: a port for members that it cannot have");
            match readiness {
                Readiness::Protocol => assert!(has(CLIENT), "{name}: its clients' port"),
                Readiness::Http { port, .. } | Readiness::Tcp { port } => assert!(has(port), "{name}: {port}"),
                Readiness::Running => {}
            }
        }
    }

    /// Deeper than one level, a driver would have to order more than "before the store".
    #[test]
    fn a_companion_is_one_store_that_needs_no_other() {
        for engine in ENGINES {
            let roles: Vec<&str> = engine.companions.iter().map(|companion| companion.role).collect();
            for (index, role) in roles.iter().enumerate() {
                assert!(*role != STORE && !roles[..index].contains(role), "{}: {role}", engine.name);
            }
            for companion in engine.companions.iter().map(|companion| companion.engine.engine()) {
                assert!(companion.companions.is_empty() && !companion.shares_directory, "{}", companion.name);
            }
            assert!(!engine.shares_directory || !engine.replicates(), "{}: each would need its load", engine.name);
        }
    }

    /// The durability of a store is held against its syncs only where they are counted.
    #[test]
    fn stores_that_promise_syncs_and_have_metrics_count_them() {
        let counts_none = |engine: &&Engine| {
            engine.honours(Durability::Fsync).is_some()
                && engine.metrics.is_some_and(|metrics| metrics.syncs.is_empty())
        };
        let without: Vec<&str> = ENGINES.iter().filter(counts_none).map(|engine| engine.name).collect();
        assert_eq!(without, Vec::<&str>::new());
    }

    /// What we build can say how often it syncs: rsedis did, and nobody asked.
    #[test]
    fn a_store_of_our_own_that_promises_syncs_counts_them() {
        let is_silent = |engine: &&Engine| {
            matches!(engine.source, Source::Crate(_))
                && engine.honours(Durability::Fsync).is_some()
                && !engine.counts_syncs()
        };
        let silent: Vec<&str> = ENGINES.iter().filter(is_silent).map(|engine| engine.name).collect();
        assert_eq!(silent, Vec::<&str>::new());
    }

    #[test]
    fn the_flags_of_durability_are_storebenchs_alone() {
        for engine in ENGINES {
            let flags = engine.durability.iter().flat_map(|class| class.flags).filter(|flag| flag.starts_with('-'));
            for flag in flags {
                assert!(engine.reserved_flags.contains(flag), "{}: {flag} is not reserved", engine.name);
            }
        }
    }

    #[test]
    fn protocols_are_read_as_they_are_written() {
        // A meter in a cluster is told its store's by name.
        for protocol in ENGINES.iter().map(|engine| engine.protocol).chain(Protocol::ALL) {
            assert_eq!(protocol.to_string().parse(), Ok(protocol), "Protocol::ALL");
            assert!(protocol.api().is_none_or(|api| Api::ALL.contains(&api)), "Api::ALL");
        }
        let error = "Etcd".parse::<Protocol>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no protocol is called that: use one of etcd, d-engine, d-engine-original, redis, s3, block-stream, sqlite"
        );
    }

    #[test]
    fn versions_are_read_from_what_executables_print() {
        let read = |kind: EngineKind, text| kind.engine().version_probe.read(text);
        assert_eq!(read(EngineKind::Etcd, "etcd Version: 3.7.3\nGit SHA: Not provided\n"), Some("3.7.3"));
        assert_eq!(read(EngineKind::Rusd, "etcd Version: 3.7.3\nrusd Version: 0.1.0\n"), Some("0.1.0"));
        assert_eq!(read(EngineKind::Litestream, "0.5.17\n"), Some("0.5.17"));
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1\n";
        assert_eq!(read(EngineKind::Redis, redis), Some("7.0.15"));
    }
}
