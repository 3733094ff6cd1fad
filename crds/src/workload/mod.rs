//! Workloads: what a trial asks of a store, and how hard.

pub mod kubernetes;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::kubernetes::KubernetesWorkload;
use crate::duration::DurationText;

/// One kind of load. Exactly one family (`etcd`, `redis` or `kubernetes`) must be given.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("[has(self.etcd), has(self.redis), has(self.kubernetes)].filter(given, given).size() == 1", "give exactly one workload family: etcd, redis or kubernetes"))]
#[x_kube(validation = Rule::new("!has(self.redis) || !has(self.load.clients) || self.load.clients == self.load.connections").message("load.clients must equal load.connections for redis, where a connection serves one client; use redis.pipeline for requests in flight").field_path(".load.clients"))]
#[x_kube(validation = Rule::new("!has(self.etcd) || !has(self.load.clients) || self.load.clients >= self.load.connections").message("load.clients must be at least load.connections: a connection without a client would stay idle").field_path(".load.clients"))]
#[x_kube(validation = Rule::new("!has(self.kubernetes) || !has(self.load.clients) || self.load.clients == self.load.connections").message("load.clients must equal load.connections for kubernetes, where each client has a connection of its own; set connections").field_path(".load.clients"))]
#[x_kube(validation = Rule::new("!has(self.kubernetes) || self.kubernetes.operation != 'DeleteNamespaces' || has(self.load.total)").message("operation: DeleteNamespaces needs load.total: they are created before the measurement").field_path(".load.total"))]
#[x_kube(validation = Rule::new("!has(self.kubernetes) || self.kubernetes.operation != 'ListAndWatch' || self.load.threads == 1").message("load.threads must be 1 for operation: ListAndWatch, whose watchers share a thread with those who write").field_path(".load.threads"))]
#[x_kube(validation = Rule::new("!has(self.kubernetes) || !(self.kubernetes.operation in ['ListAndWatch', 'NodeHeartbeats', 'MixedChurn']) || (has(self.kubernetes.objects) ? self.kubernetes.objects : 100) >= self.load.connections").message("kubernetes.objects must be at least load.connections: each client writes objects of its own").field_path(".kubernetes.objects"))]
pub struct Workload {
    /// A name, unique in the run; results and gates refer to it.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"), length(max = 40), extend("example" = "put-256-bytes"))]
    pub name: String,
    /// Load on the etcd v3 API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdWorkload>,
    /// Load on the Redis protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisWorkload>,
    /// Load on a Kubernetes API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesWorkload>,
    /// How much, for how long, how fast.
    pub load: Load,
}

/// What a workload speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The etcd v3 API.
    Etcd,
    /// The Redis protocol.
    Redis,
    /// The Kubernetes API.
    Kubernetes,
}

impl Workload {
    /// The family that is given. The schema has seen to it that there is one.
    pub fn family(&self) -> Family {
        match (&self.etcd, &self.redis) {
            (Some(_), _) => Family::Etcd,
            (None, Some(_)) => Family::Redis,
            (None, None) => Family::Kubernetes,
        }
    }
}

/// Load on the etcd v3 API. Parameters follow etcd's own benchmark tool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.limit) || (self.operation == 'Range' && self.scope == 'Prefix')").message("limit needs operation: Range and scope: Prefix; remove limit").field_path(".limit"))]
#[x_kube(validation = Rule::new("!has(self.readPercent) || self.operation == 'Mixed'").message("readPercent needs operation: Mixed; remove readPercent").field_path(".readPercent"))]
#[x_kube(validation = Rule::new("self.operation != 'Mixed' || has(self.readPercent)").message("operation: Mixed needs readPercent; say how many of 100 requests read").field_path(".readPercent"))]
#[x_kube(validation = Rule::new("!has(self.operationsPerTransaction) || self.operation == 'TxnPut'").message("operationsPerTransaction needs operation: TxnPut; remove it").field_path(".operationsPerTransaction"))]
#[x_kube(validation = Rule::new("!has(self.watchers) || self.operation in ['WatchLatency', 'WatchThroughput']").message("watchers needs operation: WatchLatency or WatchThroughput; remove watchers").field_path(".watchers"))]
#[x_kube(validation = Rule::new("!self.previousValue || self.operation in ['WatchLatency', 'WatchThroughput']").message("previousValue needs operation: WatchLatency or WatchThroughput; remove previousValue").field_path(".previousValue"))]
#[x_kube(validation = Rule::new("!has(self.streams) || self.operation in ['WatchLatency', 'WatchThroughput']").message("streams needs operation: WatchLatency or WatchThroughput; remove streams").field_path(".streams"))]
#[x_kube(validation = Rule::new("!has(self.watchers) || !has(self.streams) || self.watchers >= self.streams").message("watchers must be at least streams: a stream without a watcher would stay idle").field_path(".watchers"))]
#[x_kube(validation = Rule::new("self.scope == 'Key' || self.operation == 'Range'").message("scope: Prefix needs operation: Range; remove scope").field_path(".scope"))]
#[x_kube(validation = ("!self.countOnly && !self.keysOnly || self.operation == 'Range'", "countOnly and keysOnly need operation: Range; remove them"))]
#[x_kube(validation = Rule::new("self.consistency == 'Linearizable' || self.operation in ['Range', 'Mixed']").message("consistency: Serializable needs operation: Range or Mixed; remove consistency").field_path(".consistency"))]
#[x_kube(validation = Rule::new("self.operation != 'TxnPut' || !has(self.operationsPerTransaction) || self.operationsPerTransaction <= self.keySpace").message("operationsPerTransaction must not exceed keySpace: a transaction may not touch a key twice").field_path(".operationsPerTransaction"))]
pub struct EtcdWorkload {
    /// The request to repeat.
    pub operation: EtcdOperation,
    /// Length of a key, bytes. Keys share the prefix `storebench/`.
    #[serde(default = "EtcdWorkload::default_key_bytes")]
    #[schemars(range(min = 24, max = 1024))]
    pub key_bytes: u32,
    /// Length of a value, bytes.
    #[serde(default = "EtcdWorkload::default_value_bytes")]
    #[schemars(range(min = 8, max = 1_048_576))]
    pub value_bytes: u32,
    /// How many distinct keys the requests are spread over.
    #[serde(default = "default_key_space")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub key_space: u32,
    /// In which order keys are visited.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// Whether reads see every write acknowledged before them. For Range and Mixed.
    #[serde(default)]
    pub consistency: Consistency,
    /// Range: one key, or everything under the prefix.
    #[serde(default)]
    pub scope: RangeScope,
    /// Range over a prefix: the most keys to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub limit: Option<u32>,
    /// Range: return the number of keys only.
    #[serde(default)]
    pub count_only: bool,
    /// Range: return keys without values.
    #[serde(default)]
    pub keys_only: bool,
    /// Mixed: how many of 100 requests read; the others put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
    /// TxnPut: puts in each transaction. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub operations_per_transaction: Option<u32>,
    /// WatchLatency, WatchThroughput: gRPC streams that carry the watchers. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub streams: Option<u32>,
    /// WatchLatency, WatchThroughput: watchers in all, each of the whole key space, spread over the streams. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub watchers: Option<u32>,
    /// WatchLatency, WatchThroughput: also deliver the value before the change.
    #[serde(default)]
    pub previous_value: bool,
    /// While writing, compact the history this often, as `compact-interval` of etcd's benchmark tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^0+[a-z]')", "must be longer than 0"))]
    pub compact_interval: Option<DurationText>,
    /// How many revisions a compaction leaves. Needs `compactInterval`.
    #[serde(default = "EtcdWorkload::default_compact_keep")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub compact_keep_revisions: u32,
}

impl EtcdWorkload {
    fn default_key_bytes() -> u32 {
        32
    }
    fn default_value_bytes() -> u32 {
        256
    }
    fn default_compact_keep() -> u32 {
        1000
    }
}

fn default_key_space() -> u32 {
    10_000
}

/// Requests of the etcd v3 API.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EtcdOperation {
    /// Write one key.
    Put,
    /// Read one key or a prefix. The key space is written before the measurement.
    Range,
    /// Delete one key. Keys are written before the measurement; with `total` above `keySpace` later deletes find nothing.
    Delete,
    /// Write keys in a transaction.
    TxnPut,
    /// Reads and writes of single keys, by `readPercent`.
    Mixed,
    /// Time from the send of a put to the arrival of its event at each watcher.
    WatchLatency,
    /// Events delivered to watchers per second while clients put.
    WatchThroughput,
    /// Keep a lease alive; one lease per client.
    LeaseKeepAlive,
}

/// Order in which keys are visited.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyOrder {
    /// Drawn uniformly from the key space, from the trial's seed.
    #[default]
    Random,
    /// First to last, then again.
    Sequential,
}

/// Consistency of etcd reads.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Consistency {
    /// Sees every write acknowledged before the read began.
    #[default]
    Linearizable,
    /// Answered by the member itself; may be stale.
    Serializable,
}

/// What an etcd Range asks for.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RangeScope {
    /// One key.
    #[default]
    Key,
    /// All keys under the common prefix, up to `limit`.
    Prefix,
}

/// Load on the Redis protocol. Parameters follow redis-benchmark.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.readPercent) || self.command == 'Mixed'").message("readPercent needs command: Mixed; remove readPercent").field_path(".readPercent"))]
#[x_kube(validation = Rule::new("self.command != 'Mixed' || has(self.readPercent)").message("command: Mixed needs readPercent; say how many of 100 commands read").field_path(".readPercent"))]
pub struct RedisWorkload {
    /// The command to repeat; the names are the tests of redis-benchmark.
    pub command: RedisCommand,
    /// Commands sent on a connection before their answers are read.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub pipeline: u32,
    /// Length of a value, bytes.
    #[serde(default = "RedisWorkload::default_value_bytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub value_bytes: u32,
    /// How many distinct keys the commands are spread over. redis-benchmark uses one key unless told otherwise.
    #[serde(default = "default_key_space")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub key_space: u32,
    /// In which order keys are visited.
    #[serde(default)]
    pub key_order: KeyOrder,
    /// Protocol version.
    #[serde(default)]
    pub protocol: RedisProtocol,
    /// Mixed: how many of 100 commands are GET; the others are SET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
}

impl RedisWorkload {
    fn default_value_bytes() -> u32 {
        100
    }
}

fn one() -> u32 {
    1
}

/// Commands of the Redis protocol: the tests of redis-benchmark, and a mix.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RedisCommand {
    /// `PING` as an inline command.
    PingInline,
    /// `PING` as an array.
    Ping,
    /// `SET key value`.
    Set,
    /// `GET key`; the key space is written before the measurement.
    Get,
    /// `GET` and `SET`, by `readPercent`.
    Mixed,
    /// `INCR counter:key`.
    Incr,
    /// `LPUSH list value`.
    Lpush,
    /// `RPUSH list value`.
    Rpush,
    /// `LPOP list`; the list is filled before the measurement.
    Lpop,
    /// `RPOP list`; the list is filled before the measurement.
    Rpop,
    /// `SADD set element`.
    Sadd,
    /// `HSET hash element value`.
    Hset,
    /// `SPOP set`; the set is filled before the measurement.
    Spop,
    /// `ZADD zset score element`.
    Zadd,
    /// `ZPOPMIN zset`; the set is filled before the measurement.
    Zpopmin,
    /// `LRANGE list 0 99`.
    Lrange100,
    /// `LRANGE list 0 299`.
    Lrange300,
    /// `LRANGE list 0 499`.
    Lrange500,
    /// `LRANGE list 0 599`.
    Lrange600,
    /// `MSET` of ten keys.
    Mset,
    /// `XADD stream * field value`.
    Xadd,
}

/// Versions of the Redis protocol.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RedisProtocol {
    /// RESP2, what a connection speaks by default.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// How much, for how long, how fast.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.total) != has(self.duration)", "give exactly one of total or duration"))]
#[x_kube(validation = Rule::new("has(self.rate) == (self.mode == 'OpenLoop')").message("rate and mode: OpenLoop belong together: set both, or neither for a closed loop").field_path(".rate"))]
#[x_kube(validation = Rule::new("self.threads <= self.connections").message("threads must not exceed connections: each thread owns at least one").field_path(".threads"))]
pub struct Load {
    /// Network connections.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10_000))]
    pub connections: u32,
    /// Clients, each with one request in flight, spread over the connections. Absent: one per connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub clients: Option<u32>,
    /// Operating-system threads that the loader uses.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: u32,
    /// Stop after so many measured requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub total: Option<u64>,
    /// Stop after so much measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("!self.matches('^0+[a-z]')", "must be longer than 0"))]
    pub duration: Option<DurationText>,
    /// Load before the measurement, not counted.
    #[serde(default = "Load::default_warm_up")]
    pub warm_up: DurationText,
    /// Whether a client waits for an answer before its next request, or requests follow a timetable.
    #[serde(default)]
    pub mode: LoadMode,
    /// OpenLoop: requests per second in all. Latency is then also measured from the instant a request was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub rate: Option<u64>,
    /// A request without an answer after this long counts as an error.
    #[serde(default = "Load::default_timeout")]
    #[x_kube(validation = ("!self.matches('^0+[a-z]')", "must be longer than 0"))]
    pub timeout: DurationText,
}

impl Load {
    fn default_warm_up() -> DurationText {
        text("1s")
    }
    fn default_timeout() -> DurationText {
        text("10s")
    }

    /// Clients in all: as given, or one per connection.
    pub fn clients(&self) -> u32 {
        self.clients.unwrap_or(self.connections)
    }
}

pub(crate) fn text(literal: &'static str) -> DurationText {
    // Only called with literals of this crate; a wrong one is caught by the schema's default test.
    #[allow(clippy::expect_used)]
    DurationText::new(literal).expect("a literal duration")
}

/// Closed or open loop.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LoadMode {
    /// Each client sends its next request when the last was answered: measures capacity. Stalls hide queueing.
    #[default]
    ClosedLoop,
    /// Requests are due on a timetable at `rate`, whether or not the store keeps up: measures what users would feel.
    OpenLoop,
}
