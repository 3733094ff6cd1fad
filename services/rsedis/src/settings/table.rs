//! The parameters that redis.conf, the command line and CONFIG know, in Redis's words.
//!
//! One that the server cannot honour otherwise than at one value is [`Kind::Fixed`]: asking for another is refused.

/// What a parameter may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Boolean,
    /// A number between two.
    Integer(i64, i64),
    /// Bytes, with `kb`, `mb` and `gb`; at least and at most.
    Memory(i64, i64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// Anything that is one word.
    Text,
    /// Any number of words.
    List,
    /// `notify-keyspace-events`.
    Events,
    /// `client-output-buffer-limit`.
    OutputLimits,
    /// Only this value is honoured.
    Fixed(&'static [&'static str]),
}

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
}

const fn changeable(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, alias: "", kind, default, can_change: true }
}

const fn at_start(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, alias: "", kind, default, can_change: false }
}

const fn packing(name: &'static str, alias: &'static str, default: &'static str) -> Parameter {
    Parameter { name, alias, kind: Kind::Integer(0, i64::MAX), default, can_change: true }
}

const NO: Kind = Kind::Fixed(&["no"]);
const EMPTY: Kind = Kind::Fixed(&[""]);

/// All of them.
pub static PARAMETERS: &[Parameter] = &[
    at_start("port", Kind::Integer(0, 65_535), "6379"),
    at_start("bind", Kind::List, "* -::*"),
    at_start("tcp-backlog", Kind::Integer(0, i32::MAX as i64), "511"),
    changeable("protected-mode", Kind::Boolean, "yes"),
    changeable("timeout", Kind::Integer(0, i32::MAX as i64), "0"),
    changeable("tcp-keepalive", Kind::Integer(0, i32::MAX as i64), "300"),
    changeable("maxclients", Kind::Integer(1, u32::MAX as i64), "10000"),
    at_start("databases", Kind::Integer(1, 1024), "16"),
    at_start("dir", Kind::Text, "."),
    at_start("appendonly", Kind::Boolean, "no"),
    at_start("appendfilename", Kind::Text, "appendonly.aof"),
    at_start("appenddirname", Kind::Text, "appendonlydir"),
    changeable("appendfsync", Kind::Words(&["always", "everysec", "no"]), "everysec"),
    changeable("aof-load-truncated", Kind::Boolean, "yes"),
    at_start("aof-use-rdb-preamble", Kind::Boolean, "yes"),
    changeable("aof-timestamp-enabled", NO, "no"),
    changeable("no-appendfsync-on-rewrite", NO, "no"),
    changeable("auto-aof-rewrite-percentage", Kind::Integer(0, i32::MAX as i64), "100"),
    changeable("auto-aof-rewrite-min-size", Kind::Memory(0, i64::MAX), "67108864"),
    changeable("save", EMPTY, ""),
    at_start("dbfilename", Kind::Text, "dump.rdb"),
    changeable("loglevel", Kind::Words(&["debug", "verbose", "notice", "warning"]), "notice"),
    at_start("logfile", EMPTY, ""),
    at_start("daemonize", NO, "no"),
    at_start("supervised", NO, "no"),
    at_start("pidfile", EMPTY, ""),
    at_start("unixsocket", EMPTY, ""),
    at_start("cluster-enabled", NO, "no"),
    at_start("tls-port", Kind::Fixed(&["0"]), "0"),
    at_start("io-threads", Kind::Fixed(&["1"]), "1"),
    at_start("io-threads-do-reads", NO, "no"),
    at_start("always-show-logo", Kind::Boolean, "no"),
    at_start("set-proc-title", NO, "no"),
    changeable("replicaof", EMPTY, ""),
    changeable("aclfile", EMPTY, ""),
    changeable("requirepass", Kind::Text, ""),
    changeable("maxmemory", Kind::Memory(0, i64::MAX), "0"),
    changeable("maxmemory-policy", Kind::Fixed(&["noeviction"]), "noeviction"),
    changeable("maxmemory-clients", Kind::Fixed(&["0"]), "0"),
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
        kind: Kind::Integer(-5, i32::MAX as i64),
        default: "-2",
        can_change: true,
    },
    at_start("enable-debug-command", Kind::Words(&["no", "yes", "local"]), "no"),
    at_start("enable-protected-configs", Kind::Words(&["no", "yes", "local"]), "no"),
    changeable("list-compress-depth", Kind::Fixed(&["0"]), "0"),
    changeable("hz", Kind::Integer(1, 500), "10"),
    changeable("dynamic-hz", Kind::Boolean, "yes"),
    changeable("activerehashing", Kind::Fixed(&["yes"]), "yes"),
    changeable("active-expire-effort", Kind::Integer(1, 10), "1"),
    changeable("lazyfree-lazy-eviction", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-expire", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-server-del", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-user-del", Kind::Boolean, "no"),
    changeable("lazyfree-lazy-user-flush", Kind::Boolean, "no"),
    changeable("notify-keyspace-events", Kind::Events, ""),
    changeable("slowlog-log-slower-than", Kind::Integer(-1, i64::MAX), "10000"),
    changeable("slowlog-max-len", Kind::Integer(0, i64::MAX), "128"),
    changeable("latency-monitor-threshold", Kind::Fixed(&["0"]), "0"),
    changeable("latency-tracking", Kind::Boolean, "yes"),
    changeable("stop-writes-on-bgsave-error", Kind::Boolean, "yes"),
    changeable("rdbcompression", Kind::Boolean, "yes"),
    at_start("rdbchecksum", Kind::Boolean, "yes"),
];

/// Where a parameter of this name stands.
pub fn find(name: &[u8]) -> Option<usize> {
    let is_it = |candidate: &str| !candidate.is_empty() && candidate.as_bytes().eq_ignore_ascii_case(name);
    PARAMETERS.iter().position(|parameter| is_it(parameter.name) || is_it(parameter.alias))
}
