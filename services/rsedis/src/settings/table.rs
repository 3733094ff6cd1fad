//! The parameters that redis.conf, the command line and CONFIG know, in Redis's words.
//!
//! One that the server cannot honour otherwise than at one value is [`Kind::Fixed`]: asking for another is refused.

use super::policy::POLICY_NAMES;

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Boolean,
    /// A number between two.
    Integer(i64, i64),
    /// A number that is not negative, and is brought between two.
    Clamped(i64, i64),
    /// Bytes, with `kb`, `mb` and `gb`; at least and at most.
    Memory(i64, i64),
    /// Bytes, or so many percent of `maxmemory`.
    MemoryOrPercent,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Anything that is one word.
    Text,
    /// A file's name, or a directory's, and no path.
    FileName,
    /// Any number of words.
    List,
    /// `oom-score-adj-values`: three numbers.
    OomScores,
    /// Any number of percentages.
    Percentiles,
    /// Pairs of seconds and changes.
    SavePoints,
    /// `notify-keyspace-events`.
    Events,
    /// `client-output-buffer-limit`.
    OutputLimits,
    /// An address and a port, or nothing.
    Address,
    /// How to end: words of [`SHUTDOWN_WORDS`].
    Shutdown,
    /// `replicaof`: a host and a port, or `no one`.
    Master,
    /// Only this value is honoured.
    Fixed(&'static [&'static str]),
}

/// What an end may be asked to do, in the order in which CONFIG GET shows it.
pub const SHUTDOWN_WORDS: [&str; 5] = ["default", "save", "nosave", "now", "force"];

/// Parameters that say where clients connect, and may be changed.
pub const LISTENING: [&str; 3] = ["port", "tls-port", "bind"];

/// A parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its older name.
    pub alias: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is unless told otherwise.
    pub default: &'static str,
    /// Whether CONFIG SET may change it.
    pub can_change: bool,
    /// Whether it changes anything: else it is read, kept and shown only, since what it is about is not there, or needs no setting.
    pub has_effect: bool,
}

/// What would let a client write any file: changed only where `enable-protected-configs` allows it.
const PROTECTED: &[&str] = &["dir", "dbfilename"];

/// For Redis's own tests, and what nobody should use: shown to those alone who ask by name.
const HIDDEN: &[&str] = &[
    "rdb-key-save-delay",
    "key-load-delay",
    "use-exit-on-panic",
    "loading-process-events-interval-bytes",
    "watchdog-period",
    "lua-enable-deprecated-api",
];

/// Ours, and not Redis's: shown to those alone who ask by name. Redis's tests, as other tools, go through all parameters that there are.
const OWN: &[&str] = &["metrics-listen"];

/// What cannot change while data are read.
const NOT_WHILE_LOADING: &[&str] = &["dir", "appendonly", "repl-diskless-load"];

impl Parameter {
    /// Whether CONFIG SET may change it while data are read.
    pub fn waits_for_data(&self) -> bool {
        NOT_WHILE_LOADING.contains(&self.name)
    }

    /// Whether `enable-protected-configs` says who may change it.
    pub fn is_protected(&self) -> bool {
        PROTECTED.contains(&self.name)
    }

    /// Whether it is for tests, and CONFIG REWRITE does not add it.
    pub fn is_hidden(&self) -> bool {
        HIDDEN.contains(&self.name)
    }

    /// Whether it is shown only to those who ask for it by name.
    pub fn is_shown_by_name_only(&self) -> bool {
        self.is_hidden() || OWN.contains(&self.name)
    }

    const fn without_effect(self) -> Self {
        Self { has_effect: false, ..self }
    }
}

const fn changeable(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, alias: "", kind, default, can_change: true, has_effect: true }
}

const fn at_start(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, alias: "", kind, default, can_change: false, has_effect: true }
}

const fn packing(name: &'static str, alias: &'static str, default: &'static str) -> Parameter {
    Parameter { name, alias, kind: Kind::Integer(0, i64::MAX), default, can_change: true, has_effect: true }
}

const NO: Kind = Kind::Fixed(&["no"]);

/// All of them.
pub static PARAMETERS: &[Parameter] = &[
    changeable("port", Kind::Integer(0, 65_535), "6379"),
    changeable("bind", Kind::List, "* -::*"),
    at_start("metrics-listen", Kind::Address, ""),
    at_start("tcp-backlog", Kind::Integer(0, i32::MAX as i64), "511"),
    changeable("protected-mode", Kind::Boolean, "yes"),
    changeable("timeout", Kind::Integer(0, i32::MAX as i64), "0"),
    changeable("tcp-keepalive", Kind::Integer(0, i32::MAX as i64), "300"),
    changeable("maxclients", Kind::Integer(1, u32::MAX as i64), "10000"),
    at_start("databases", Kind::Integer(1, 1024), "16"),
    changeable("dir", Kind::Text, "."),
    changeable("appendonly", Kind::Boolean, "no"),
    at_start("appendfilename", Kind::FileName, "appendonly.aof"),
    at_start("appenddirname", Kind::FileName, "appendonlydir"),
    changeable("appendfsync", Kind::Words(&["everysec", "always", "no"]), "everysec"),
    changeable("aof-load-truncated", Kind::Boolean, "yes"),
    changeable("aof-use-rdb-preamble", Kind::Boolean, "yes"),
    changeable("aof-timestamp-enabled", Kind::Boolean, "no"),
    changeable("no-appendfsync-on-rewrite", NO, "no"),
    changeable("auto-aof-rewrite-percentage", Kind::Integer(0, i32::MAX as i64), "100"),
    changeable("auto-aof-rewrite-min-size", Kind::Memory(0, i64::MAX), "67108864"),
    changeable("save", Kind::SavePoints, "3600 1 300 100 60 10000"),
    changeable("dbfilename", Kind::FileName, "dump.rdb"),
    changeable("loglevel", Kind::Words(crate::log::LEVELS), "notice"),
    at_start("logfile", Kind::Text, ""),
    at_start("daemonize", NO, "no"),
    at_start("supervised", NO, "no"),
    at_start("pidfile", Kind::Text, ""),
    at_start("unixsocket", Kind::Text, ""),
    at_start("cluster-enabled", NO, "no"),
    changeable("tls-port", Kind::Integer(0, 65_535), "0"),
    at_start("io-threads", Kind::Fixed(&["1"]), "1"),
    at_start("io-threads-do-reads", NO, "no"),
    at_start("always-show-logo", Kind::Boolean, "no").without_effect(),
    at_start("set-proc-title", Kind::Boolean, "yes").without_effect(),
    Parameter {
        name: "replicaof",
        alias: "slaveof",
        kind: Kind::Master,
        default: "",
        can_change: false,
        has_effect: true,
    },
    at_start("aclfile", Kind::Text, ""),
    changeable("acllog-max-len", Kind::Integer(0, i64::MAX), "128"),
    changeable("acl-pubsub-default", Kind::Words(&["allchannels", "resetchannels"]), "resetchannels"),
    changeable("requirepass", Kind::Text, ""),
    changeable("maxmemory", Kind::Memory(0, i64::MAX), "0"),
    changeable("maxmemory-policy", Kind::Words(POLICY_NAMES), "noeviction"),
    changeable("maxmemory-samples", Kind::Integer(1, 64), "5"),
    changeable("maxmemory-eviction-tenacity", Kind::Integer(0, 100), "10"),
    changeable("lfu-log-factor", Kind::Integer(0, 2_147_483_647), "10"),
    changeable("lfu-decay-time", Kind::Integer(0, i32::MAX as i64), "1"),
    changeable("maxmemory-clients", Kind::MemoryOrPercent, "0"),
    changeable(
        "client-output-buffer-limit",
        Kind::OutputLimits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    changeable("client-query-buffer-limit", Kind::Memory(1 << 20, u32::MAX as i64), "1073741824"),
    changeable("proto-max-bulk-len", Kind::Memory(1 << 20, 2 << 30), "536870912"),
    packing("hash-max-listpack-entries", "hash-max-ziplist-entries", "512"),
    packing("hash-max-listpack-value", "hash-max-ziplist-value", "64"),
    packing("zset-max-listpack-entries", "zset-max-ziplist-entries", "128"),
    packing("zset-max-listpack-value", "zset-max-ziplist-value", "64"),
    packing("set-max-intset-entries", "", "512"),
    packing("stream-node-max-entries", "", "100"),
    changeable("stream-node-max-bytes", Kind::Memory(0, i64::MAX), "4096"),
    Parameter {
        name: "list-max-listpack-size",
        alias: "list-max-ziplist-size",
        kind: Kind::Integer(i32::MIN as i64, i32::MAX as i64),
        default: "-2",
        can_change: true,
        has_effect: true,
    },
    at_start("lua-enable-deprecated-api", Kind::Boolean, "no"),
    at_start("enable-debug-command", Kind::Words(&["no", "yes", "local"]), "no"),
    at_start("enable-protected-configs", Kind::Words(&["no", "yes", "local"]), "no"),
    changeable("list-compress-depth", Kind::Integer(0, i32::MAX as i64), "0").without_effect(),
    changeable("hz", Kind::Clamped(1, 500), "10").without_effect(),
    changeable("dynamic-hz", Kind::Boolean, "yes").without_effect(),
    changeable("activerehashing", Kind::Fixed(&["yes"]), "yes"),
    changeable("active-expire-effort", Kind::Integer(1, 10), "1").without_effect(),
    changeable("lazyfree-lazy-eviction", Kind::Boolean, "no").without_effect(),
    changeable("lazyfree-lazy-expire", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-server-del", Kind::Boolean, "no").without_effect(),
    changeable("lazyfree-lazy-user-del", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-user-flush", Kind::Boolean, "no"),
    changeable("notify-keyspace-events", Kind::Events, ""),
    changeable("slowlog-log-slower-than", Kind::Integer(-1, i64::MAX), "10000"),
    changeable("slowlog-max-len", Kind::Integer(0, i64::MAX), "128"),
    changeable("latency-monitor-threshold", Kind::Integer(0, i64::MAX), "0"),
    changeable("latency-tracking", Kind::Boolean, "yes"),
    changeable("stop-writes-on-bgsave-error", Kind::Boolean, "yes"),
    changeable("rdbcompression", Kind::Boolean, "yes"),
    at_start("rdbchecksum", Kind::Boolean, "yes").without_effect(),
    changeable("rdb-key-save-delay", Kind::Integer(i32::MIN as i64, i32::MAX as i64), "0"),
    changeable("key-load-delay", Kind::Integer(i32::MIN as i64, i32::MAX as i64), "0"),
    changeable("loading-process-events-interval-bytes", Kind::Memory(1024, i64::MAX), "2097152").without_effect(),
    changeable("watchdog-period", Kind::Integer(0, i32::MAX as i64), "0").without_effect(),
    changeable("rdb-del-sync-files", Kind::Boolean, "no").without_effect(),
    changeable("cluster-announce-bus-port", Kind::Integer(0, 65_535), "0").without_effect(),
    changeable("tls-client-key-file", Kind::Text, ""),
    changeable("active-defrag-ignore-bytes", Kind::Memory(0, i64::MAX), "104857600").without_effect(),
    changeable("crash-memcheck-enabled", Kind::Boolean, "yes").without_effect(),
    changeable("use-exit-on-panic", Kind::Boolean, "no").without_effect(),
    changeable("hll-sparse-max-bytes", Kind::Memory(0, i64::MAX), "3000"),
    changeable("tls-key-file", Kind::Text, ""),
    changeable("cluster-link-sendbuf-limit", Kind::Memory(0, i64::MAX), "0").without_effect(),
    changeable("cluster-allow-replica-migration", Kind::Boolean, "yes").without_effect(),
    at_start("aof_rewrite_cpulist", Kind::Text, "").without_effect(),
    changeable("tls-client-cert-file", Kind::Text, ""),
    changeable("repl-timeout", Kind::Integer(1, i32::MAX as i64), "60"),
    changeable("tls-replication", Kind::Boolean, "no"),
    at_start("syslog-ident", Kind::Text, "redis").without_effect(),
    changeable("tls-ciphers", Kind::Fixed(&[""]), ""),
    changeable("tls-ciphersuites", Kind::Fixed(&[""]), ""),
    changeable("jemalloc-bg-thread", Kind::Boolean, "yes").without_effect(),
    changeable("oom-score-adj", Kind::Words(&["no", "yes", "relative", "absolute"]), "no").without_effect(),
    at_start(
        "syslog-facility",
        Kind::Words(&["local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]),
        "local0",
    )
    .without_effect(),
    changeable("tls-protocols", Kind::Text, ""),
    changeable("tls-cert-file", Kind::Text, ""),
    changeable("repl-disable-tcp-nodelay", Kind::Boolean, "no").without_effect(),
    changeable("cluster-announce-tls-port", Kind::Integer(0, 65_535), "0").without_effect(),
    changeable("tracking-table-max-keys", Kind::Integer(0, i64::MAX), "1000000"),
    Parameter {
        name: "replica-read-only",
        alias: "slave-read-only",
        kind: Kind::Boolean,
        default: "yes",
        can_change: true,
        has_effect: true,
    },
    changeable("cluster-require-full-coverage", Kind::Boolean, "yes").without_effect(),
    changeable("repl-diskless-load", Kind::Words(&["disabled", "on-empty-db", "swapdb"]), "disabled"),
    changeable("crash-log-enabled", Kind::Boolean, "yes").without_effect(),
    changeable("active-defrag-threshold-upper", Kind::Integer(0, 1000), "100").without_effect(),
    changeable("tls-session-cache-timeout", Kind::Fixed(&["300"]), "300"),
    at_start("disable-thp", Kind::Boolean, "yes").without_effect(),
    at_start("bio_cpulist", Kind::Text, "").without_effect(),
    changeable("repl-backlog-ttl", Kind::Integer(0, i64::MAX), "3600"),
    changeable("active-defrag-max-scan-fields", Kind::Integer(1, i64::MAX), "1000").without_effect(),
    changeable("cluster-migration-barrier", Kind::Integer(0, i32::MAX as i64), "1").without_effect(),
    changeable("tls-session-caching", Kind::Fixed(&["yes"]), "yes"),
    Parameter {
        name: "replica-announce-ip",
        alias: "slave-announce-ip",
        kind: Kind::Text,
        default: "",
        can_change: true,
        has_effect: true,
    },
    changeable("tls-dh-params-file", Kind::Fixed(&[""]), ""),
    Parameter {
        name: "min-replicas-max-lag",
        alias: "min-slaves-max-lag",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "10",
        can_change: true,
        has_effect: true,
    },
    changeable("masterauth", Kind::Text, ""),
    changeable("repl-diskless-sync", Kind::Boolean, "yes"),
    at_start("enable-module-command", Kind::Words(&["no", "yes", "local"]), "no").without_effect(),
    changeable("repl-diskless-sync-delay", Kind::Integer(0, i32::MAX as i64), "5"),
    at_start("syslog-enabled", Kind::Boolean, "no").without_effect(),
    changeable("bind-source-addr", Kind::Text, ""),
    changeable("cluster-allow-pubsubshard-when-down", Kind::Boolean, "yes").without_effect(),
    at_start("bgsave_cpulist", Kind::Text, "").without_effect(),
    changeable("latency-tracking-info-percentiles", Kind::Percentiles, "50 99 99.9"),
    changeable("cluster-announce-ip", Kind::Text, "").without_effect(),
    changeable("cluster-allow-reads-when-down", Kind::Boolean, "no").without_effect(),
    changeable("proc-title-template", Kind::Text, "{title} {listen-addr} {server-mode}").without_effect(),
    changeable("activedefrag", Kind::Boolean, "no").without_effect(),
    changeable("shutdown-timeout", Kind::Integer(0, 2_147_483_647), "10"),
    changeable("tls-session-cache-size", Kind::Fixed(&["20480"]), "20480"),
    Parameter {
        name: "cluster-replica-validity-factor",
        alias: "cluster-slave-validity-factor",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "10",
        can_change: true,
        has_effect: true,
    }
    .without_effect(),
    at_start("cluster-config-file", Kind::Text, "nodes.conf").without_effect(),
    changeable("cluster-preferred-endpoint-type", Kind::Words(&["ip", "hostname", "unknown-endpoint"]), "ip")
        .without_effect(),
    changeable("repl-diskless-sync-max-replicas", Kind::Integer(0, i32::MAX as i64), "0"),
    changeable("active-defrag-threshold-lower", Kind::Integer(0, 1000), "10").without_effect(),
    changeable("shutdown-on-sigterm", Kind::Shutdown, "default"),
    changeable("tls-client-key-file-pass", Kind::Fixed(&[""]), ""),
    changeable("shutdown-on-sigint", Kind::Shutdown, "default"),
    Parameter {
        name: "replica-announce-port",
        alias: "slave-announce-port",
        kind: Kind::Integer(0, 65_535),
        default: "0",
        can_change: true,
        has_effect: true,
    },
    changeable("tls-ca-cert-dir", Kind::Fixed(&[""]), ""),
    at_start("cluster-port", Kind::Integer(0, i64::MAX), "0").without_effect(),
    changeable("sanitize-dump-payload", Kind::Words(&["no", "yes", "clients"]), "no").without_effect(),
    changeable("aof-rewrite-incremental-fsync", Kind::Boolean, "yes").without_effect(),
    changeable("cluster-node-timeout", Kind::Integer(0, i64::MAX), "15000").without_effect(),
    changeable("tls-cluster", Kind::Fixed(&["no"]), "no"),
    changeable("tls-key-file-pass", Kind::Fixed(&[""]), ""),
    changeable("rdb-save-incremental-fsync", Kind::Boolean, "yes").without_effect(),
    changeable("repl-backlog-size", Kind::Memory(1, i64::MAX), "1048576"),
    Parameter {
        name: "cluster-replica-no-failover",
        alias: "cluster-slave-no-failover",
        kind: Kind::Boolean,
        default: "no",
        can_change: true,
        has_effect: true,
    }
    .without_effect(),
    Parameter {
        name: "repl-ping-replica-period",
        alias: "repl-ping-slave-period",
        kind: Kind::Integer(1, i32::MAX as i64),
        default: "10",
        can_change: true,
        has_effect: true,
    },
    Parameter {
        name: "replica-serve-stale-data",
        alias: "slave-serve-stale-data",
        kind: Kind::Boolean,
        default: "yes",
        can_change: true,
        has_effect: true,
    },
    changeable("replica-ignore-disk-write-errors", Kind::Boolean, "no").without_effect(),
    changeable("oom-score-adj-values", Kind::OomScores, "0 200 800").without_effect(),
    changeable("tls-auth-clients", Kind::Words(&["no", "yes", "optional"]), "yes"),
    changeable("socket-mark-id", Kind::Integer(0, i64::MAX), "0").without_effect(),
    Parameter {
        name: "min-replicas-to-write",
        alias: "min-slaves-to-write",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "0",
        can_change: true,
        has_effect: true,
    },
    changeable("tls-ca-cert-file", Kind::Text, ""),
    changeable("cluster-announce-port", Kind::Integer(0, 65_535), "0").without_effect(),
    at_start("unixsocketperm", Kind::Integer(0, 7777), "0"),
    changeable("tls-prefer-server-ciphers", Kind::Fixed(&["no"]), "no"),
    Parameter {
        name: "replica-priority",
        alias: "slave-priority",
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "100",
        can_change: true,
        has_effect: true,
    },
    changeable("ignore-warnings", Kind::Text, "").without_effect(),
    changeable("replica-announced", Kind::Boolean, "yes"),
    Parameter {
        name: "replica-ignore-maxmemory",
        alias: "slave-ignore-maxmemory",
        kind: Kind::Boolean,
        default: "yes",
        can_change: true,
        has_effect: true,
    },
    changeable("cluster-announce-hostname", Kind::Text, "").without_effect(),
    changeable("propagation-error-behavior", Kind::Words(&["ignore", "panic", "panic-on-replicas"]), "ignore")
        .without_effect(),
    at_start("server_cpulist", Kind::Text, "").without_effect(),
    changeable("active-defrag-cycle-min", Kind::Integer(1, 99), "1").without_effect(),
    changeable("masteruser", Kind::Text, ""),
    Parameter {
        name: "busy-reply-threshold",
        alias: "lua-time-limit",
        kind: Kind::Integer(0, i64::MAX),
        default: "5000",
        can_change: true,
        has_effect: true,
    },
    changeable("aof-disable-auto-gc", Kind::Boolean, "no").without_effect(),
    Parameter {
        name: "replica-lazy-flush",
        alias: "slave-lazy-flush",
        kind: Kind::Boolean,
        default: "no",
        can_change: true,
        has_effect: true,
    },
    changeable("active-defrag-cycle-max", Kind::Integer(1, 99), "25").without_effect(),
];

/// Where a parameter of this name stands.
pub fn find(name: &[u8]) -> Option<usize> {
    let is_it = |candidate: &str| !candidate.is_empty() && candidate.as_bytes().eq_ignore_ascii_case(name);
    PARAMETERS.iter().position(|parameter| is_it(parameter.name) || is_it(parameter.alias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The text of all sources but this one and INFO, which only shows.
    fn sources(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.ends_with("settings/table.rs")
                && !path.ends_with("command/info.rs")
            {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Whoever honours a parameter says so here, and nobody says so without.
    #[test]
    fn a_parameter_has_an_effect_if_and_only_if_it_is_looked_at() {
        let mut text = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        for parameter in PARAMETERS.iter().filter(|parameter| !matches!(parameter.kind, Kind::Fixed(_))) {
            let is_looked_at = text.contains(&format!("\"{}\"", parameter.name));
            assert_eq!(parameter.has_effect, is_looked_at, "{}", parameter.name);
        }
    }

    #[test]
    fn the_readme_counts_parameters_without_effect() {
        let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
        let count = PARAMETERS.iter().filter(|parameter| !parameter.has_effect).count();
        let sentence = format!("{count} parameters of redis.conf are read, kept and shown without effect");
        assert!(readme.contains(&sentence), "README.md: {sentence}");
    }
}
