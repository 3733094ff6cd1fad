//! Load on the Redis protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Facts, KeyOrder, Subset};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Redis],
    workload_rules: &[
        Rule {
            field: ".load.clients",
            holds: "!has(self.load.clients) || self.load.clients == self.load.connections",
            otherwise: "load.clients must equal load.connections for redis, where a connection serves one client; use \
                redis.pipeline for requests in flight",
        },
        Rule {
            field: ".redis.keySpace",
            holds: "!has(self.load.fault) || self.redis.keySpace >= self.load.connections",
            otherwise: "keySpace must be at least load.connections where there is a fault: each client writes keys of its own, so that it knows \
                which write was acknowledged last",
        },
    ],
    metrics: &[],
    run_rules: &[Rule {
        field: ".parallelism",
        holds: "w.redis.keySpace >= self.parallelism",
        otherwise: "parallelism must not exceed load.total or keySpace of any workload: each load pod takes its share of \
            both",
    }],
    loads_what_is_somebodys: true,
    answers_one_by_one: |_| true,
    highest_rate: Some(Subset {
        holds: "self.redis.command in ['PingInline', 'Ping', 'Set', 'Get', 'Mixed', 'Incr', 'Sadd', 'Hset', 'Zadd', \
            'Lrange100', 'Lrange300', 'Lrange500', 'Lrange600', 'Mset']",
        words: "commands that make nothing longer or shorter",
    }),
    fault: Some(Subset {
        holds: "self.redis.command in ['Set', 'Mixed'] && !(has(self.redis.readPercent) && self.redis.readPercent == 100)",
        words: "Set, and Mixed that writes",
    }),
};

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".readPercent",
        holds: "!has(self.readPercent) || self.command == 'Mixed'",
        otherwise: "readPercent needs command: Mixed; remove readPercent",
    },
    Rule {
        field: ".readPercent",
        holds: "self.command != 'Mixed' || has(self.readPercent)",
        otherwise: "command: Mixed needs readPercent; say how many of 100 commands read",
    },
];

/// Load on the Redis protocol. Parameters follow redis-benchmark.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct RedisWorkload {
    /// The command to repeat; the names are the tests of redis-benchmark.
    pub command: RedisCommand,
    /// Commands sent on a connection before their answers are read.
    #[serde(default = "RedisWorkload::default_pipeline")]
    #[schemars(range(min = 1, max = 1000))]
    pub pipeline: u32,
    /// Length of a value, bytes.
    #[serde(default = "RedisWorkload::default_value_bytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub value_bytes: u32,
    /// How many distinct keys the commands are spread over. redis-benchmark uses one key unless told otherwise.
    #[serde(default = "super::keys::default_key_space")]
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
    fn default_pipeline() -> u32 {
        1
    }
    fn default_value_bytes() -> u32 {
        100
    }
}

impl RedisWorkload {
    /// See [`super::Parameters::writes_percent`].
    pub(super) fn writes_percent(&self) -> u32 {
        use RedisCommand as Command;
        match self.command {
            Command::PingInline | Command::Ping | Command::Get => 0,
            Command::Lrange100 | Command::Lrange300 | Command::Lrange500 | Command::Lrange600 => 0,
            Command::Mixed => 100 - self.read_percent.unwrap_or(100).min(100),
            Command::Set | Command::Incr | Command::Lpush | Command::Rpush | Command::Lpop | Command::Rpop => 100,
            Command::Sadd | Command::Hset | Command::Spop | Command::Zadd | Command::Zpopmin => 100,
            Command::Mset | Command::Xadd => 100,
        }
    }

    /// See [`super::Parameters::certain_writes_percent`].
    pub(super) fn certain_writes_percent(&self) -> u32 {
        use RedisCommand as Command;
        match self.command {
            // What is there already is no change, and from what is empty nothing can be taken.
            Command::Sadd | Command::Zadd => 0,
            Command::Lpop | Command::Rpop | Command::Spop | Command::Zpopmin => 0,
            Command::Set | Command::Mixed | Command::Incr | Command::Lpush | Command::Rpush => self.writes_percent(),
            // Whoever sets a field again gives it another value.
            Command::Hset | Command::Mset | Command::Xadd => self.writes_percent(),
            Command::PingInline | Command::Ping | Command::Get => self.writes_percent(),
            Command::Lrange100 | Command::Lrange300 | Command::Lrange500 | Command::Lrange600 => self.writes_percent(),
        }
    }

    /// See [`super::Parameters::key_space_bytes`].
    pub(super) fn key_space_bytes(&self) -> u64 {
        use RedisCommand as Command;
        match self.command {
            Command::Set | Command::Get | Command::Mixed | Command::Mset | Command::Hset => {
                u64::from(self.key_space) * u64::from(self.value_bytes)
            }
            // Lists and streams grow by what is pushed; members of sets are their numbers.
            Command::Lpush | Command::Rpush | Command::Lpop | Command::Rpop | Command::Xadd => 0,
            Command::Lrange100 | Command::Lrange300 | Command::Lrange500 | Command::Lrange600 => 0,
            Command::Incr | Command::Sadd | Command::Spop | Command::Zadd | Command::Zpopmin => 0,
            Command::PingInline | Command::Ping => 0,
        }
    }

    /// See [`super::Parameters::value_bytes_of_a_write`].
    pub(super) fn value_bytes_of_a_write(&self) -> u64 {
        use RedisCommand as Command;
        match self.command {
            Command::Set | Command::Mixed | Command::Lpush | Command::Rpush => u64::from(self.value_bytes),
            // One of its values at least.
            Command::Hset | Command::Mset | Command::Xadd => u64::from(self.value_bytes),
            Command::Incr | Command::Sadd | Command::Zadd => 0,
            Command::Lpop | Command::Rpop | Command::Spop | Command::Zpopmin => 0,
            Command::PingInline | Command::Ping | Command::Get => 0,
            Command::Lrange100 | Command::Lrange300 | Command::Lrange500 | Command::Lrange600 => 0,
        }
    }
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
