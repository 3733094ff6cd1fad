//! The server's parameters: from the command line, from redis.conf, and by CONFIG SET. Unknown words are refused.

mod parse;
mod policy;
mod rewrite;
mod table;
mod value;

pub use parse::{CheckUser, Outside, Start, list_files, read_command_line};
pub(crate) use policy::Choice;
pub use policy::{ClockKind, FrequencySettings, Policy};
pub use rewrite::{Extent, rewrite};
pub use table::{Kind, LISTENING, PARAMETERS, Parameter, find};

use std::time::Duration;

use crate::events::{self, Classes};
use crate::value::{NodeLimits, Packing};

/// When the append-only file is synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before what was written is acknowledged.
    Always,
    /// Once a second, on a thread of its own.
    #[default]
    EverySecond,
    /// When the operating system likes.
    No,
}

/// How many replies may wait for a kind of client, in bytes. Zero: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// More than this, and the client is cut off.
    pub hard: u64,
    /// More than this for [`OutputLimit::seconds`], and the client is cut off.
    pub soft: u64,
    /// See [`OutputLimit::soft`].
    pub seconds: i64,
}

/// A user of redis.conf: its name and its rules. Patterns of keys are any bytes.
pub type ConfiguredUser = (Vec<u8>, Vec<Vec<u8>>);

/// What is freed on another thread where it is large, though no command asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lazily {
    /// Keys that DEL removes.
    pub deletes: bool,
    /// Keys that expire.
    pub expires: bool,
    /// What FLUSHALL and FLUSHDB remove.
    pub flushes: bool,
    /// What goes since the master's keys come.
    pub follows: bool,
}

/// All parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As text, in the order of [`PARAMETERS`].
    values: Vec<String>,
    /// Limits of packed values.
    pub packing: Packing,
    /// When the append-only file is synced.
    pub fsync: Fsync,
    /// Bytes of memory before keys go, or writes are refused; 0: no limit.
    pub memory_max: u64,
    /// Bytes that all clients together may take; 0: no limit.
    pub clients_max: u64,
    /// Which keys go.
    pub policy: Policy,
    /// Keys that are drawn for each that goes.
    pub eviction_samples: usize,
    /// How uses of keys are counted.
    pub frequency: FrequencySettings,
    /// Bytes of an argument.
    pub bulk_max: i64,
    /// Bytes of a client's unfinished command.
    pub query_max: usize,
    /// The default user's password.
    pub password: String,
    /// Users, by name, with their rules: lines of the file.
    pub users: Vec<ConfiguredUser>,
    /// `rename-command`: commands by their names, and what they are called instead.
    pub renames: Vec<(String, String)>,
    /// The file that they come from; empty: none.
    pub file: String,
    /// For clients that listen to nothing.
    pub normal_limit: OutputLimit,
    /// For clients that listen to channels.
    pub pubsub_limit: OutputLimit,
    /// For replicas: never below what the backlog holds.
    pub replica_limit: OutputLimit,
    /// Microseconds from which on a command counts as slow; negative: never.
    pub slow_micros: i64,
    /// Milliseconds from which on an event is a spike; 0: none is.
    pub latency_threshold_millis: u64,
    /// How often a command took which time is kept.
    pub tracks_latency: bool,
    /// Also commands are timed that are quick by their nature: spikes are looked for, or what takes less than a millisecond is slow.
    pub times_all: bool,
    /// Replicas without which nothing is written.
    pub replicas_min: usize,
    /// Seconds within which such a replica must have been heard.
    pub replica_lag_max: i64,
    /// Bytes of the replication stream that are kept.
    pub backlog_bytes: usize,
    /// For tests of what happens while keys are taken, or read: so long a key.
    pub save_delay: Duration,
    /// See [`Settings::save_delay`].
    pub load_delay: Duration,
    /// A replica takes no writes of clients.
    pub is_read_only: bool,
    /// A replica without its master answers.
    pub serves_stale: bool,
    /// Which keyspace events are told.
    pub events: Classes,
    /// What is freed later.
    pub lazily: Lazily,
    /// Keys whose readers are remembered; 0: any number.
    pub tracked_max: usize,
    /// How long keys are evicted at once, as Redis counts it.
    pub eviction_tenacity: i64,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self {
            values: PARAMETERS.iter().map(|parameter| parameter.default.to_owned()).collect(),
            packing: Packing::default(),
            fsync: Fsync::default(),
            memory_max: 0,
            clients_max: 0,
            policy: Policy::default(),
            eviction_samples: 0,
            frequency: FrequencySettings::default(),
            bulk_max: 0,
            query_max: 0,
            password: String::new(),
            users: Vec::new(),
            renames: Vec::new(),
            file: String::new(),
            normal_limit: OutputLimit::default(),
            pubsub_limit: OutputLimit::default(),
            replica_limit: OutputLimit::default(),
            slow_micros: 0,
            latency_threshold_millis: 0,
            tracks_latency: true,
            times_all: false,
            replicas_min: 0,
            replica_lag_max: 0,
            backlog_bytes: 0,
            save_delay: Duration::ZERO,
            load_delay: Duration::ZERO,
            is_read_only: true,
            serves_stale: true,
            events: 0,
            lazily: Lazily::default(),
            tracked_max: 0,
            eviction_tenacity: 0,
        };
        settings.derive();
        settings
    }
}

impl Settings {
    /// A parameter's value as CONFIG GET shows it.
    pub fn text(&self, name: &str) -> &str {
        let found = find(name.as_bytes());
        debug_assert!(found.is_some(), "{name} is no parameter");
        found.map_or("", |index| self.values[index].as_str())
    }

    /// A parameter's value by its place in [`PARAMETERS`].
    pub fn value(&self, index: usize) -> &str {
        &self.values[index]
    }

    /// A number.
    pub fn integer(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Seconds as milliseconds.
    pub fn millis(&self, name: &str) -> i64 {
        self.integer(name).saturating_mul(1000)
    }

    /// Whether a parameter says `yes`.
    pub fn is_yes(&self, name: &str) -> bool {
        self.text(name) == "yes"
    }

    /// Parameters that somebody has set, and that change nothing.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let all = PARAMETERS.iter().zip(&self.values);
        let set = all.filter(|(parameter, value)| !parameter.has_effect && parameter.default != value.as_str());
        set.map(|(parameter, _)| parameter.name).collect()
    }

    /// The percentiles that INFO tells of, as they are shown and as numbers.
    pub fn latency_percents(&self) -> Vec<(&str, f64)> {
        let words = self.text("latency-tracking-info-percentiles").split_whitespace();
        words.filter_map(|word| Some((word, word.parse().ok()?))).collect()
    }

    /// Number of databases.
    pub fn databases(&self) -> usize {
        self.integer("databases").max(1) as usize
    }

    /// Keeps who is followed (`replicaof`): REPLICAOF changes it, CONFIG shows it.
    pub fn set_master(&mut self, master: Option<(&str, u16)>) {
        if let Some(index) = find(b"replicaof") {
            self.values[index] = master.map(|(host, port)| format!("{host} {port}")).unwrap_or_default();
        }
    }

    /// Sets a parameter by its place. Errors: why the value is not one.
    pub fn set(&mut self, index: usize, words: &[String]) -> Result<(), String> {
        let parameter = &PARAMETERS[index];
        self.values[index] = value::normalise(parameter, words, &self.values[index])?;
        self.derive();
        Ok(())
    }

    /// Values of before, by their places.
    pub fn put_back(&mut self, values: Vec<(usize, String)>) {
        for (index, text) in values {
            self.values[index] = text;
        }
        self.derive();
    }

    /// Reads the texts into what commands look at.
    fn derive(&mut self) {
        let size = |name: &str| usize::try_from(self.integer(name)).unwrap_or(usize::MAX);
        let packing = Packing {
            hash_entries: size("hash-max-listpack-entries"),
            hash_bytes: size("hash-max-listpack-value"),
            zset_entries: size("zset-max-listpack-entries"),
            zset_bytes: size("zset-max-listpack-value"),
            intset_entries: size("set-max-intset-entries"),
            list_size: self.integer("list-max-listpack-size"),
            stream: NodeLimits { entries: size("stream-node-max-entries"), bytes: size("stream-node-max-bytes") },
        };
        let query_max = size("client-query-buffer-limit");
        let tracked_max = size("tracking-table-max-keys");
        let backlog_bytes = size("repl-backlog-size").max(16 << 10);
        let replica_lag_max = self.integer("min-replicas-max-lag");
        // Either of both at zero: any number of replicas is enough.
        let replicas_min = if replica_lag_max == 0 { 0 } else { size("min-replicas-to-write") };
        self.backlog_bytes = backlog_bytes;
        self.replica_lag_max = replica_lag_max;
        let micros = |text: &str| Duration::from_micros(text.parse().unwrap_or(0));
        self.save_delay = micros(self.text("rdb-key-save-delay"));
        self.load_delay = micros(self.text("key-load-delay"));
        self.is_read_only = self.is_yes("replica-read-only");
        self.serves_stale = self.is_yes("replica-serve-stale-data");
        self.packing = packing;
        self.query_max = query_max;
        self.tracked_max = tracked_max;
        self.replicas_min = replicas_min;
        self.fsync = match self.text("appendfsync") {
            "always" => Fsync::Always,
            "no" => Fsync::No,
            _ => Fsync::EverySecond,
        };
        self.memory_max = self.integer("maxmemory").max(0) as u64;
        self.clients_max = match self.text("maxmemory-clients").strip_suffix('%') {
            Some(percent) => self.memory_max / 100 * percent.parse().unwrap_or(0),
            None => self.integer("maxmemory-clients").max(0) as u64,
        };
        self.policy = Policy::of(self.text("maxmemory-policy"));
        self.eviction_samples = self.integer("maxmemory-samples").max(1) as usize;
        self.frequency = FrequencySettings {
            log_factor: self.integer("lfu-log-factor"),
            decay_minutes: self.integer("lfu-decay-time"),
        };
        self.bulk_max = self.integer("proto-max-bulk-len");
        self.password = self.text("requirepass").to_owned();
        self.events = events::parse(self.text("notify-keyspace-events")).unwrap_or_default();
        self.lazily = Lazily {
            deletes: self.is_yes("lazyfree-lazy-user-del"),
            expires: self.is_yes("lazyfree-lazy-expire"),
            flushes: self.is_yes("lazyfree-lazy-user-flush"),
            follows: self.is_yes("replica-lazy-flush"),
        };
        self.eviction_tenacity = self.integer("maxmemory-eviction-tenacity");
        self.slow_micros = self.integer("slowlog-log-slower-than");
        self.latency_threshold_millis = self.integer("latency-monitor-threshold") as u64;
        self.tracks_latency = self.is_yes("latency-tracking");
        self.times_all = self.latency_threshold_millis > 0 || (0..1000).contains(&self.slow_micros);
        let limits: Vec<&str> = self.text("client-output-buffer-limit").split(' ').collect();
        let limit = |class: &str| {
            let at = limits.iter().position(|word| *word == class)?;
            let number = |offset: usize| limits.get(at + offset)?.parse::<i64>().ok();
            Some(OutputLimit { hard: number(1)? as u64, soft: number(2)? as u64, seconds: number(3)? })
        };
        let (normal, pubsub, replica) = (limit("normal"), limit("pubsub"), limit("slave"));
        let mut replica = replica.unwrap_or_default();
        if replica.hard > 0 {
            replica.hard = replica.hard.max(self.backlog_bytes as u64);
        }
        self.replica_limit = replica;
        self.normal_limit = normal.unwrap_or_default();
        self.pubsub_limit = pubsub.unwrap_or_default();
    }
}
