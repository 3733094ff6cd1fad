//! The rows. To add an engine, add a row and follow CONTRIBUTING.md; tests name what is missing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Allocator, CLIENT, Companion, Dialect, DurabilityClass, Engine, LinearizableReads, METRICS, Metrics, PEER, Port,
    Protocol, Readiness, Source, VersionProbe, object_store,
};
use crate::durability::Durability::{Fsync, Interval, None as Unsafe};

/// Makes the enumeration that users write and the table from the same rows.
macro_rules! engines {
    ($($(#[doc = $doc:literal])+ $kind:ident { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// The stores that storebench can deploy.
        #[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum EngineKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        /// Every engine, in the order of [`EngineKind`].
        pub static ENGINES: &[Engine] =
            &[$(Engine { kind: EngineKind::$kind, doc: concat!($($doc),+), $($field: $value),+ },)+];
    };
}

engines! {
    /// etcd: replicated key-value store with watches and leases; the store under Kubernetes.
    Etcd {
        name: "etcd",
        protocol: Protocol::Etcd,
        dialect: Dialect::Etcd,
        source: Source::Peer("etcd"),
        default_version: "3.7.3",
        executables: &["etcd"],
        image: "storebench/etcd",
        ports: ETCD_PORTS,
        readiness: Readiness::Protocol,
        metrics: Some(Metrics {
            port: CLIENT,
            path: "/metrics",
            // The log, and commits of the database behind it: bbolt syncs twice for each, the pages and then the page that makes them
            // valid (1.4, `tx.go`). Of 500 puts, strace and this sum agree to the last sync.
            syncs: &[
                ("etcd_disk_wal_fsync_duration_seconds_count", 1),
                ("etcd_disk_backend_commit_duration_seconds_count", 2),
            ],
        }),
        replicas: &[1, 3, 5],
        durability: ETCD_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: "etcd Version: " },
        reserved_flags: ETCD_RESERVED,
        environment_prefix: Some("ETCD_"),
        linearizable_reads: Some(LinearizableReads::ByRound),
        allocator: Allocator::Runtime,
        companions: &[],
        shares_directory: false,
    }

    /// rusd: storebench's own server of etcd's API, whose log is its database.
    Rusd {
        name: "rusd",
        protocol: Protocol::Etcd,
        dialect: Dialect::Etcd,
        source: Source::Crate("rusd"),
        default_version: env!("CARGO_PKG_VERSION"),
        executables: &["rusd"],
        image: "storebench/rusd",
        ports: ETCD_PORTS,
        readiness: Readiness::Protocol,
        metrics: Some(Metrics {
            port: CLIENT,
            path: "/metrics",
            // The log. It has the names of etcd's metrics, too, and no database behind it.
            syncs: &[("rusd_log_syncs_total", 1)],
        }),
        replicas: &[1, 3, 5],
        durability: ETCD_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: "rusd Version: " },
        reserved_flags: ETCD_RESERVED,
        // It reads etcd's variables.
        environment_prefix: Some("ETCD_"),
        linearizable_reads: Some(LinearizableReads::ByLeaseUnless { flag: "linearizable-reads", value: "round" }),
        allocator: Allocator::Libc,
        companions: &[],
        shares_directory: false,
    }

    /// d-engine: storebench's own replicated key-value store with three read levels.
    DEngine {
        name: "d-engine",
        protocol: Protocol::DEngine,
        dialect: Dialect::DEngine,
        source: Source::Crate("d-engine"),
        default_version: env!("CARGO_PKG_VERSION"),
        executables: &["d-engine"],
        image: "storebench/d-engine",
        ports: &[Port { name: CLIENT, number: 9081 }, Port { name: PEER, number: 9082 }],
        readiness: Readiness::Protocol,
        metrics: Some(Metrics {
            port: CLIENT,
            path: "/metrics",
            // The log.
            syncs: &[("dengine_log_sync_seconds_count", 1)],
        }),
        replicas: &[1, 3, 5],
        durability: &[
            DurabilityClass {
                class: Fsync,
                setting: "log synced by a majority before acknowledgement",
                flags: &["--durability", "fsync"],
            },
            DurabilityClass {
                class: Unsafe,
                setting: "log handed to the operating systems of a majority, not synced",
                flags: &["--durability", "none"],
            },
        ],
        version_probe: VersionProbe { argument: "--version", marker: "d-engine " },
        reserved_flags: &[
            "--node-id",
            "--member",
            "--listen-address",
            "--listen-peer-address",
            "--db-root-dir",
            "--data-dir",
            "--durability",
            // A file that could hold any of the others.
            "--config",
        ],
        environment_prefix: Some("D_ENGINE_"),
        linearizable_reads: Some(LinearizableReads::ByRound),
        allocator: Allocator::Libc,
        companions: &[],
        shares_directory: false,
    }

    /// d-engine-original: release 0.2.4 of the original d-engine with its file storage, which acknowledges from memory.
    DEngineOriginal {
        name: "d-engine-original",
        protocol: Protocol::DEngineOriginal,
        dialect: Dialect::DEngineOriginal,
        source: Source::PeerOnRequest("d-engine-original"),
        default_version: "0.2.4",
        executables: &["d-engine-original"],
        image: "storebench/d-engine-original",
        // Members come to the clients' port.
        ports: &[Port { name: CLIENT, number: 9081 }],
        readiness: Readiness::Tcp { port: CLIENT },
        metrics: None,
        replicas: &[1, 3, 5],
        // Release 0.2.4 has no other: its only strategy is MemFirst, and it counts what the operating system has as durable.
        durability: &[DurabilityClass {
            class: Unsafe,
            setting: "MemFirst: acknowledged from the memory of a majority",
            flags: &[],
        }],
        version_probe: VersionProbe { argument: "--version", marker: "d-engine-original " },
        reserved_flags: &["--node-id", "--member", "--listen-address", "--data-dir"],
        environment_prefix: Some("RAFT__"),
        // Its LinearizableRead takes the lease first, too.
        linearizable_reads: Some(LinearizableReads::ByLease),
        allocator: Allocator::Libc,
        companions: &[],
        shares_directory: false,
    }

    /// Redis: in-memory data structures with an append-only log.
    Redis {
        name: "redis",
        protocol: Protocol::Redis,
        dialect: Dialect::Redis,
        source: Source::Peer("redis"),
        default_version: "7.0.15",
        executables: &["redis-server", "redis-cli"],
        image: "storebench/redis",
        ports: REDIS_PORTS,
        readiness: Readiness::Protocol,
        metrics: None,
        replicas: &[1],
        durability: REDIS_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: " v=" },
        reserved_flags: REDIS_RESERVED,
        environment_prefix: None,
        linearizable_reads: None,
        allocator: Allocator::Jemalloc,
        companions: &[],
        shares_directory: false,
    }

    /// Valkey: the Linux Foundation's continuation of Redis.
    Valkey {
        name: "valkey",
        protocol: Protocol::Redis,
        dialect: Dialect::Redis,
        source: Source::Peer("valkey"),
        default_version: "9.1.2",
        executables: &["valkey-server"],
        image: "storebench/valkey",
        ports: REDIS_PORTS,
        readiness: Readiness::Protocol,
        metrics: None,
        replicas: &[1],
        durability: REDIS_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: " v=" },
        reserved_flags: REDIS_RESERVED,
        environment_prefix: None,
        linearizable_reads: None,
        allocator: Allocator::Libc,
        companions: &[],
        shares_directory: false,
    }

    /// rsedis: storebench's own server of Redis's protocol.
    Rsedis {
        name: "rsedis",
        protocol: Protocol::Redis,
        dialect: Dialect::Redis,
        source: Source::Crate("rsedis"),
        default_version: env!("CARGO_PKG_VERSION"),
        executables: &["rsedis"],
        image: "storebench/rsedis",
        ports: &[Port { name: CLIENT, number: 6379 }, Port { name: METRICS, number: 9121 }],
        readiness: Readiness::Protocol,
        metrics: Some(Metrics {
            port: METRICS,
            path: "/metrics",
            // The append-only file: under `always` one for all commands of a turn of the loop.
            syncs: &[("rsedis_aof_syncs_total", 1)],
        }),
        replicas: &[1],
        durability: REDIS_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: " v=" },
        reserved_flags: REDIS_RESERVED,
        environment_prefix: None,
        linearizable_reads: None,
        allocator: Allocator::Jemalloc,
        companions: &[],
        shares_directory: false,
    }

    /// versitygw: an S3 server whose objects are files in a directory; for stores that keep their data in S3.
    Versitygw {
        name: "versitygw",
        protocol: Protocol::S3,
        dialect: Dialect::Versitygw,
        source: Source::Peer("versitygw"),
        default_version: "1.8.0",
        executables: &["versitygw"],
        image: "storebench/versitygw",
        ports: &[Port { name: CLIENT, number: 7070 }],
        readiness: Readiness::Http { port: CLIENT, path: "/healthz" },
        metrics: None,
        replicas: &[1],
        // It never syncs a file (1.8.0: no call of fsync in its sources).
        durability: &[DurabilityClass { class: Unsafe, setting: "files are not synced", flags: &[] }],
        version_probe: VersionProbe { argument: "--version", marker: "Version  : v" },
        reserved_flags: &["--port", "-p", "--health", "--access", "-a", "--secret", "-s", "--region", "-r", "--cert", "--key"],
        environment_prefix: Some("VGW_"),
        linearizable_reads: None,
        allocator: Allocator::Runtime,
        companions: &[],
        shares_directory: false,
    }

    /// block-node: storebench's own Hiero block node, which verifies and syncs before it acknowledges.
    BlockNode {
        name: "block-node",
        protocol: Protocol::BlockStream,
        dialect: Dialect::BlockNode,
        source: Source::Crate("block-node"),
        default_version: env!("CARGO_PKG_VERSION"),
        executables: &["block-node"],
        image: "storebench/block-node",
        ports: &[Port { name: CLIENT, number: 40_840 }],
        readiness: Readiness::Protocol,
        metrics: Some(Metrics {
            port: CLIENT,
            path: "/metrics",
            // Groups of blocks.
            syncs: &[("block_node_batch_sync_seconds_count", 1)],
        }),
        replicas: &[1],
        durability: &[DurabilityClass {
            class: Fsync,
            setting: "blocks synced, a group at a time, before acknowledgement",
            flags: &[],
        }],
        version_probe: VersionProbe { argument: "--version", marker: "block-node " },
        reserved_flags: &["--files-recent-live-root-path", "--data-dir", "--server-host", "--server-port"],
        // Its variables are the Java node's, which have no prefix.
        environment_prefix: Some(""),
        linearizable_reads: None,
        allocator: Allocator::Libc,
        companions: &[],
        shares_directory: false,
    }

    /// hiero-block-node: the Java block node of the Hiero project.
    HieroBlockNode {
        name: "hiero-block-node",
        protocol: Protocol::BlockStream,
        dialect: Dialect::HieroBlockNode,
        source: Source::ByHand(
            "no registry of packages has it: put the jars of it and its plug-ins as lib/ and a JDK 25 or later as jdk/ into \
             the peers' folder hiero-block-node/0.38.1 (links will do; peers/README.md)",
        ),
        // The last that accepts blocks without a signature, which is what a load can make.
        default_version: "0.38.1",
        executables: &["jdk/bin/java", "jdk", "lib"],
        image: "storebench/hiero-block-node",
        ports: &[Port { name: CLIENT, number: 40_840 }, Port { name: METRICS, number: 16_007 }],
        readiness: Readiness::Protocol,
        metrics: Some(Metrics { port: METRICS, path: "/metrics", syncs: &[] }),
        replicas: &[1],
        // It acknowledges what it has verified and written, and syncs no file (0.38.1 and all before).
        durability: &[DurabilityClass { class: Unsafe, setting: "files are not synced", flags: &[] }],
        version_probe: VersionProbe { argument: "--version", marker: "hiero-block-node " },
        reserved_flags: &[
            "--server-port",
            "--prometheus-endpoint-port-number",
            "--files-recent-live-root-path",
            "--files-recent-unverified-root-path",
            "--files-historic-root-path",
            "--verification-all-blocks-hasher-file-path",
        ],
        environment_prefix: Some(""),
        linearizable_reads: None,
        allocator: Allocator::Runtime,
        companions: &[],
        shares_directory: false,
    }

    /// walsync: storebench's own replicator of SQLite databases into an object store, in Litestream's format.
    Walsync {
        name: "walsync",
        protocol: Protocol::Sqlite,
        dialect: Dialect::Walsync,
        source: Source::Crate("walsync"),
        default_version: env!("CARGO_PKG_VERSION"),
        executables: &["walsync"],
        image: "storebench/walsync",
        ports: &[Port { name: METRICS, number: 9091 }],
        readiness: Readiness::Http { port: METRICS, path: "/readyz" },
        metrics: Some(Metrics { port: METRICS, path: "/metrics", syncs: &[] }),
        replicas: &[1],
        durability: REPLICATOR_DURABILITY,
        version_probe: VersionProbe { argument: "--version", marker: "walsync " },
        reserved_flags: &["--to", "--endpoint", "--region", "--staging-folder", "--listen", "--config"],
        environment_prefix: None,
        linearizable_reads: None,
        allocator: Allocator::Libc,
        companions: REPLICATOR_COMPANIONS,
        shares_directory: true,
    }

    /// Litestream: continuous replication of SQLite databases into an object store.
    Litestream {
        name: "litestream",
        protocol: Protocol::Sqlite,
        dialect: Dialect::Litestream,
        source: Source::Peer("litestream"),
        default_version: "0.5.17",
        executables: &["litestream"],
        image: "storebench/litestream",
        ports: &[Port { name: METRICS, number: 9090 }],
        readiness: Readiness::Http { port: METRICS, path: "/metrics" },
        metrics: Some(Metrics { port: METRICS, path: "/metrics", syncs: &[] }),
        replicas: &[1],
        durability: REPLICATOR_DURABILITY,
        // It prints nothing but its version.
        version_probe: VersionProbe { argument: "version", marker: "" },
        reserved_flags: &["-config", "-no-expand-env", "-exec", "-once"],
        environment_prefix: Some("LITESTREAM_"),
        linearizable_reads: None,
        allocator: Allocator::Runtime,
        companions: REPLICATOR_COMPANIONS,
        shares_directory: true,
    }
}

/// A replicator acknowledges nothing: SQLite does, and how durably the workload says. What it has copied follows later.
const REPLICATOR_DURABILITY: &[DurabilityClass] = &[DurabilityClass {
    class: Unsafe,
    setting: "replication is asynchronous: SQLite alone acknowledges, and the object store beside it (versitygw) does not sync",
    flags: &[],
}];

const REPLICATOR_COMPANIONS: &[Companion] = &[Companion { role: object_store::ROLE, engine: EngineKind::Versitygw }];

const ETCD_PORTS: &[Port] = &[Port { name: CLIENT, number: 2379 }, Port { name: PEER, number: 2380 }];

const ETCD_FSYNC: DurabilityClass =
    DurabilityClass { class: Fsync, setting: "WAL synced before acknowledgement", flags: &[] };

/// Of etcd 3.7 and rusd, which takes its flags.
/// The log is synced before anything is acknowledged, or never; there is nothing in between.
const ETCD_DURABILITY: &[DurabilityClass] =
    &[ETCD_FSYNC, DurabilityClass { class: Unsafe, setting: "--unsafe-no-fsync", flags: &["--unsafe-no-fsync"] }];

const ETCD_RESERVED: &[&str] = &[
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

const REDIS_PORTS: &[Port] = &[Port { name: CLIENT, number: 6379 }];

/// Snapshots (`save`) are off in all classes: see the plan.
const REDIS_DURABILITY: &[DurabilityClass] = &[
    DurabilityClass {
        class: Fsync,
        setting: "appendonly yes, appendfsync always",
        flags: &["--appendonly", "yes", "--appendfsync", "always"],
    },
    DurabilityClass {
        class: Interval,
        setting: "appendonly yes, appendfsync everysec",
        flags: &["--appendonly", "yes", "--appendfsync", "everysec"],
    },
    DurabilityClass { class: Unsafe, setting: "appendonly no, save off", flags: &["--appendonly", "no"] },
];

/// Of redis.conf and valkey.conf; `metrics-listen` is rsedis's alone.
const REDIS_RESERVED: &[&str] = &[
    "--port",
    "--bind",
    "--metrics-listen",
    "--dir",
    "--save",
    "--appendonly",
    "--appendfsync",
    // A file that could hold any of the others, code that could set them, and another name for what is asked about them.
    "--include",
    "--loadmodule",
    "--rename-command",
    "--no-appendfsync-on-rewrite",
    "--daemonize",
    "--supervised",
    "--unixsocket",
    "--replicaof",
    "--cluster-enabled",
];
