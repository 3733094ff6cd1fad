//! What all threads of a redis workload share: parameters, names, values, totals.
//!
//! Names are those of redis-benchmark, so that the bytes on the wire are the same: `key:000000000042`,
//! `counter:000000000042`, `element:000000000042`, `mylist`, `myset`, `myhash`, `myzset`, `mystream`. Of several load
//! processes each has structures of its own, `mylist:0`, `mylist:1`, …: what is in one is known to the process that fills
//! it, and to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storebench_crds::workload::redis::{RedisCommand, RedisWorkload};

use crate::content::expect::SharedVersions;
use crate::content::keys::{KeyNames, KeySpace};
use crate::content::values::Values;
use crate::load::fault::Course;
use crate::load::{Context, outside};

/// Digits of a key's number, as redis-benchmark writes it.
const DIGITS: usize = 12;
/// Elements of the list that LRANGE reads from: as many as the longest LRANGE asks for.
pub const LRANGE_ELEMENTS: u32 = 600;
/// The most elements that are written for commands that take elements away.
pub const FILL_MAX: u64 = 10_000_000;
/// Keys of an MSET.
pub const MSET_KEYS: u32 = 10;

/// See the module's description.
#[derive(Debug)]
pub struct Plan {
    /// The workload's parameters.
    pub parameters: RedisWorkload,
    /// How keys are shared by clients.
    pub space: KeySpace,
    /// Versions of a shared key space.
    pub shared_versions: Arc<SharedVersions>,
    /// Values of the workload's length.
    pub values: Values,
    /// Names of keys, counters or elements, whichever the command has.
    pub names: KeyNames,
    /// Elements written for commands that take elements away; 0 for others.
    pub fill: u32,
    /// Which of these were taken away in the measured phase.
    pub taken: Taken,
    /// Requests, over all clients and both load phases, whose effect [`crate::family::redis::verify`] adds up.
    pub totals: Totals,
    /// The seed of keys.
    pub seed: u64,
    /// A fault of the store that the load outlives.
    pub course: Option<Arc<Course>>,
    /// The one key that all requests of the command touch, and its twin for the warm-up.
    structure: Option<(String, String)>,
}

/// Sums over all clients.
#[derive(Debug, Default)]
pub struct Totals {
    /// Pushes, adds to a stream.
    pub added: AtomicU64,
    /// Members, fields or elements that the store said were new.
    pub new: AtomicU64,
    /// Measured requests that took an element away.
    pub taken: AtomicU64,
    /// Measured requests that found nothing to take away.
    pub found_nothing: AtomicU64,
}

/// A set of elements, filled by all threads. Each element can be taken once.
#[derive(Debug)]
pub struct Taken(Vec<AtomicU64>);

impl Taken {
    fn new(elements: u32) -> Self {
        Self((0..elements.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks an element as taken; false if it already was.
    #[inline]
    pub fn take(&self, element: u32) -> bool {
        let bit = 1 << (element % 64);
        self.0.get(element as usize / 64).is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

/// What every key of a load begins with that has a namespace.
pub fn namespace_prefix(namespace: &str) -> String {
    format!("{}:{namespace}:", outside::NAME)
}

impl Plan {
    /// For one workload.
    pub fn new(context: &Context, parameters: &RedisWorkload) -> Self {
        let command = parameters.command;
        let space = KeySpace::slice(context.share.slice(parameters.key_space), context.clients, 1);
        let seed = context.share.seed(context.seed);
        let namespace = context.namespace.as_deref().map(namespace_prefix).unwrap_or_default();
        let prefix = match command {
            RedisCommand::Incr => "counter:",
            RedisCommand::Sadd
            | RedisCommand::Hset
            | RedisCommand::Spop
            | RedisCommand::Zadd
            | RedisCommand::Zpopmin => "element:",
            _ => "key:",
        };
        // Elements are within a key, and need no name of their own.
        let prefix = if prefix == "element:" { prefix.to_owned() } else { format!("{namespace}{prefix}") };
        let fill = match command {
            RedisCommand::Lpop | RedisCommand::Rpop | RedisCommand::Spop | RedisCommand::Zpopmin => {
                let wanted = context.own_total().unwrap_or_default().max(u64::from(space.keys()));
                wanted.min(FILL_MAX) as u32
            }
            _ => 0,
        };
        Self {
            parameters: parameters.clone(),
            space,
            shared_versions: SharedVersions::new(space),
            values: Values::new(seed, parameters.value_bytes),
            names: KeyNames::new(&prefix, prefix.len() + DIGITS),
            fill,
            taken: Taken::new(fill),
            totals: Totals::default(),
            seed,
            course: None,
            structure: structure(command).map(|name| {
                let suffix = match context.share.is_whole() {
                    true => String::new(),
                    false => format!(":{}", context.share.process()),
                };
                // As long as the name itself, so that the bytes on the wire are as many.
                let twin = format!("{}_{suffix}", &name[..name.len() - 1]);
                (format!("{namespace}{name}{suffix}"), format!("{namespace}{twin}"))
            }),
        }
    }

    /// The one key that all requests of the command touch, if there is one.
    pub fn structure(&self) -> Option<&str> {
        self.structure.as_ref().map(|(name, _)| name.as_str())
    }

    /// The twin of the structure that a command that takes elements away empties during the warm-up.
    pub fn warm_up_structure(&self) -> Option<&str> {
        self.structure.as_ref().filter(|_| self.fill > 0).map(|(_, twin)| twin.as_str())
    }

    /// The command's name, for messages.
    pub fn command_name(&self) -> &'static str {
        match self.parameters.command {
            RedisCommand::PingInline | RedisCommand::Ping => "PING",
            RedisCommand::Set => "SET",
            RedisCommand::Get => "GET",
            RedisCommand::Mixed => "GET or SET",
            RedisCommand::Incr => "INCR",
            RedisCommand::Lpush => "LPUSH",
            RedisCommand::Rpush => "RPUSH",
            RedisCommand::Lpop => "LPOP",
            RedisCommand::Rpop => "RPOP",
            RedisCommand::Sadd => "SADD",
            RedisCommand::Hset => "HSET",
            RedisCommand::Spop => "SPOP",
            RedisCommand::Zadd => "ZADD",
            RedisCommand::Zpopmin => "ZPOPMIN",
            RedisCommand::Lrange100 | RedisCommand::Lrange300 | RedisCommand::Lrange500 | RedisCommand::Lrange600 => {
                "LRANGE"
            }
            RedisCommand::Mset => "MSET",
            RedisCommand::Xadd => "XADD",
        }
    }

    /// Elements that one LRANGE asks for; 0 for other commands.
    pub fn lrange_count(&self) -> u32 {
        match self.parameters.command {
            RedisCommand::Lrange100 => 100,
            RedisCommand::Lrange300 => 300,
            RedisCommand::Lrange500 => 500,
            RedisCommand::Lrange600 => 600,
            _ => 0,
        }
    }
}

/// The name that redis-benchmark has for the one key that all requests of a command touch, if there is one.
fn structure(command: RedisCommand) -> Option<&'static str> {
    match command {
        RedisCommand::PingInline
        | RedisCommand::Ping
        | RedisCommand::Set
        | RedisCommand::Get
        | RedisCommand::Mixed
        | RedisCommand::Incr
        | RedisCommand::Mset => None,
        RedisCommand::Lpush
        | RedisCommand::Rpush
        | RedisCommand::Lpop
        | RedisCommand::Rpop
        | RedisCommand::Lrange100
        | RedisCommand::Lrange300
        | RedisCommand::Lrange500
        | RedisCommand::Lrange600 => Some("mylist"),
        RedisCommand::Sadd | RedisCommand::Spop => Some("myset"),
        RedisCommand::Hset => Some("myhash"),
        RedisCommand::Zadd | RedisCommand::Zpopmin => Some("myzset"),
        RedisCommand::Xadd => Some("mystream"),
    }
}
