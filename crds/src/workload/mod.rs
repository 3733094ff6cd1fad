//! Workloads: what a trial asks of a store, and how hard.
//!
//! A family of workloads is one row of the table below and one module beside this one: its parameters with their rules, and
//! its [`Facts`]. Everything else in this crate that knows families reads that table; the schema and its CEL rules are
//! generated from it. Crates that do something for a family match on [`Parameters`] or [`Family`] without a last arm for
//! the rest, so that a family that was forgotten somewhere does not compile.

pub mod block_stream;
pub mod etcd;
pub mod fault;
pub mod key_value;
mod keys;
pub mod kubernetes;
mod load;
pub mod redis;
pub mod sqlite_replication;
pub mod syncs;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

pub use fault::{Fault, FaultKind, FaultMember};
pub use keys::KeyOrder;
pub use load::{Arrivals, HighestRate, Load, LoadMode, Percentile};
use sqlite_replication::{Outage, OutageKind};

use crate::descriptor::Descriptor;
use crate::rules::{self, Rule};

/// The families. `field "fieldInYaml": Name(Parameters)`; the module of that name has the family's `FACTS`.
macro_rules! families {
    ($($(#[$doc:meta])+ $field:ident $name:literal: $Family:ident($Parameters:ty),)+) => {
        /// What a workload asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Family {
            $($(#[$doc])+ $Family,)+
        }

        /// What a workload asks for, and its parameters.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Parameters {
            $($(#[$doc])+ $Family($Parameters),)+
        }

        impl Family {
            /// Every family, in the order in which they are documented.
            pub const ALL: &'static [Self] = &[$(Self::$Family),+];

            /// The field of a workload that has the parameters.
            pub fn field(self) -> &'static str {
                match self {
                    $(Self::$Family => $name,)+
                }
            }

            /// What is known of it besides its parameters.
            pub fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$Family => &$field::FACTS,)+
                }
            }
        }

        impl Parameters {
            /// Whose parameters they are.
            pub fn family(&self) -> Family {
                match self {
                    $(Self::$Family(_) => Family::$Family,)+
                }
            }

            $(
                #[doc = concat!("`", $name, "`; `None`: it is another family.")]
                pub fn $field(&self) -> Option<&$Parameters> {
                    if let Self::$Family(parameters) = self { Some(parameters) } else { None }
                }
            )+
        }

        /// A workload as it is written.
        #[derive(JsonSchema, Clone, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[schemars(transform = add_rules)]
        struct Written {
            /// A name, unique in the run; results and gates refer to it.
            #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"), length(max = 40), extend("example" = "put-256-bytes"))]
            name: String,
            $(
                $(#[$doc])+
                #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")]
                $field: Option<$Parameters>,
            )+
            /// How much, for how long, how fast.
            load: Load,
        }

        impl TryFrom<Written> for Workload {
            type Error = String;

            fn try_from(written: Written) -> Result<Self, String> {
                let Written { name, $($field,)+ load } = written;
                let mut given: Vec<Parameters> = Vec::new();
                $(given.extend($field.map(Parameters::$Family));)+
                match (given.pop(), given.is_empty()) {
                    (Some(parameters), true) => Ok(Self { name, parameters, load }),
                    _ => Err(give_one_family()),
                }
            }
        }

        impl From<Workload> for Written {
            fn from(Workload { name, parameters, load }: Workload) -> Self {
                let mut written = Self { name, $($field: None,)+ load };
                match parameters {
                    $(Parameters::$Family(parameters) => written.$field = Some(parameters),)+
                }
                written
            }
        }
    };
}

families! {
    /// Load on the etcd v3 API.
    etcd "etcd": Etcd(etcd::EtcdWorkload),
    /// Load on any replicated key-value store, over its own protocol.
    key_value "keyValue": KeyValue(key_value::KeyValueWorkload),
    /// Load on the Redis protocol.
    redis "redis": Redis(redis::RedisWorkload),
    /// Load on a Kubernetes API server.
    kubernetes "kubernetes": Kubernetes(kubernetes::KubernetesWorkload),
    /// Load on a Hiero block node.
    block_stream "blockStream": BlockStream(block_stream::BlockStreamWorkload),
    /// Load on SQLite databases that are replicated into an object store.
    sqlite_replication "sqliteReplication": SqliteReplication(sqlite_replication::SqliteReplicationWorkload),
}

impl Parameters {
    /// Whether it reads what must not be stale, and if so whether it asks to trust clocks for it.
    pub fn linearizable_reads(&self) -> Option<ReadsBy> {
        match self {
            Self::Etcd(parameters) => parameters.reads_linearizably().then_some(ReadsBy::Engine),
            Self::KeyValue(parameters) => parameters.linearizable_reads(),
            Self::Kubernetes(_) => Some(ReadsBy::Engine),
            Self::Redis(_) | Self::SqliteReplication(_) | Self::BlockStream(_) => None,
        }
    }

    /// By which door stores that have several are asked; `None` in families whose stores have one.
    pub fn door(&self) -> Option<key_value::Door> {
        self.key_value().map(key_value::KeyValueWorkload::door)
    }

    /// How many bytes of values a store holds when the whole key space is written, keys and earlier values aside. 0 where there is no such
    /// bound, or no value.
    pub fn key_space_bytes(&self) -> u64 {
        match self {
            Self::Etcd(parameters) => u64::from(parameters.key_space) * u64::from(parameters.value_bytes),
            Self::KeyValue(parameters) => u64::from(parameters.key_space) * u64::from(parameters.value_bytes),
            Self::Redis(parameters) => parameters.key_space_bytes(),
            Self::SqliteReplication(_) | Self::Kubernetes(_) | Self::BlockStream(_) => 0,
        }
    }

    /// What fails meanwhile, and does not belong to the store's own members.
    pub fn outage(&self) -> Option<&Outage> {
        self.sqlite_replication()?.outage.as_ref()
    }

    /// How many of 100 requests are writes that the store itself acknowledges; 0 where a request is something else.
    pub fn writes_percent(&self) -> u32 {
        match self {
            Self::Etcd(parameters) => parameters.writes_percent(),
            Self::KeyValue(parameters) => parameters.writes_percent(),
            Self::Redis(parameters) => parameters.writes_percent(),
            // SQLite acknowledges them.
            Self::SqliteReplication(_) => 0,
            Self::Kubernetes(_) => 0,
            Self::BlockStream(parameters) => parameters.writes_percent(),
        }
    }

    /// How many of 100 requests change something in any case, so that none of them may be acknowledged before a sync: of
    /// [`Self::writes_percent`] those that no store may take for nothing new.
    pub fn certain_writes_percent(&self) -> u32 {
        match self {
            // A log has whatever was asked for, also where it changes nothing.
            Self::Etcd(_) | Self::KeyValue(_) | Self::BlockStream(_) => self.writes_percent(),
            Self::Redis(parameters) => parameters.certain_writes_percent(),
            Self::SqliteReplication(_) | Self::Kubernetes(_) => 0,
        }
    }

    /// How many requests of so many clients are on their way at a time, at most: one sync may make as many writes safe. At least 1.
    pub fn in_flight_max(&self, clients: u32) -> u32 {
        let requests = match self {
            // Each waits for its answer before it asks again. Of a transaction all operations are one request, and those who share a stream
            // wait nevertheless.
            Self::Etcd(_) | Self::KeyValue(_) | Self::SqliteReplication(_) | Self::Kubernetes(_) => clients,
            Self::Redis(parameters) => clients.saturating_mul(parameters.pipeline),
            Self::BlockStream(parameters) => parameters.in_flight_max(clients),
        };
        requests.max(1)
    }

    /// What a store must at least keep of one of its writes, bytes: values, which are random. 0 where a write has none, or where a store may make
    /// what it has shorter, as it may blocks.
    pub fn value_bytes_of_a_write(&self) -> u64 {
        match self {
            Self::Etcd(parameters) => parameters.value_bytes_of_a_write(),
            Self::KeyValue(parameters) => parameters.value_bytes_of_a_write(),
            Self::Redis(parameters) => parameters.value_bytes_of_a_write(),
            Self::SqliteReplication(_) | Self::Kubernetes(_) | Self::BlockStream(_) => 0,
        }
    }
}

/// One kind of load. Exactly one family must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Workload {
    /// A name, unique in the run; results and gates refer to it.
    pub name: String,
    /// What is asked for.
    pub parameters: Parameters,
    /// How much, for how long, how fast.
    pub load: Load,
}

impl Workload {
    /// What is asked for, parameters aside.
    pub fn family(&self) -> Family {
        self.parameters.family()
    }

    /// How many requests of all load processes are on their way at a time, at most.
    pub fn in_flight_max(&self) -> u32 {
        self.parameters.in_flight_max(self.load.clients())
    }

    /// What is done to a member of the store meanwhile, which only a driver can do that owns its process.
    pub fn fault(&self) -> Option<Fault> {
        match &self.parameters {
            Parameters::KeyValue(parameters) => parameters.failover().or_else(|| self.load.fault.clone()),
            Parameters::Etcd(_)
            | Parameters::Kubernetes(_)
            | Parameters::Redis(_)
            | Parameters::SqliteReplication(_)
            | Parameters::BlockStream(_) => self.load.fault.clone(),
        }
    }

    /// What is done to a member of the store meanwhile because the load asks for it, by whichever field that is said.
    pub fn strike(&self) -> Option<FaultKind> {
        let is_kill = |outage: &&Outage| outage.kind == OutageKind::Kill;
        let of_outage = self.parameters.outage().filter(is_kill).map(|_| FaultKind::Kill);
        of_outage.or_else(|| self.fault().map(|fault| fault.kind))
    }
}

/// Who decides how a linearizable read is kept from being stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsBy {
    /// The engine.
    Engine,
    /// The workload, which asks for a lease.
    Lease,
}

/// An API that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// The etcd v3 API.
    Etcd,
    /// The protocol of d-engine 0.2.4.
    DEngine,
    /// The Redis protocol.
    Redis,
    /// The Kubernetes API.
    Kubernetes,
    /// The API of Hiero block nodes.
    BlockStream,
    /// SQLite databases, of which whoever writes them shares a directory with who replicates them.
    Sqlite,
}

impl Api {
    /// Every API.
    pub const ALL: &'static [Self] =
        &[Self::Etcd, Self::DEngine, Self::Redis, Self::Kubernetes, Self::BlockStream, Self::Sqlite];
}

/// What is known of a family besides its parameters. Each module has its own as `FACTS`.
#[derive(Debug)]
pub struct Facts {
    /// What it can load.
    pub loads: &'static [Api],
    /// Rules for workloads of this family, of which each is `self`. What concerns the parameters alone is a rule of theirs.
    pub workload_rules: &'static [Rule],
    /// Rules for each such workload `w` in a run, of whose spec they are rules: `self` is the spec.
    pub run_rules: &'static [Rule],
    /// Whether it may load a store that is somebody's: its keys lie in a namespace of the run, and only they are removed.
    pub loads_what_is_somebodys: bool,
    /// Whether what a workload of the family measures is requests of which each has one answer, so that there are as many latencies as were
    /// asked for. Of what is delivered, such as events, one request may cause many. Parameters of another family have none.
    pub answers_one_by_one: fn(&Parameters) -> bool,
    /// The workloads whose load may be made again and again at another rate: they use nothing up, and single requests have single
    /// answers. `None`: none.
    pub highest_rate: Option<Subset>,
    /// The workloads that outlive a fault: clients connect anew, and every write that was acknowledged is known and read back. `None`: none.
    pub fault: Option<Subset>,
    /// What its load measures beyond requests and latencies.
    pub metrics: &'static [&'static Descriptor],
}

/// Some of a family's workloads.
#[derive(Debug)]
pub struct Subset {
    /// In CEL, where `self` is the workload.
    pub holds: &'static str,
    /// In words, behind the family's name.
    pub words: &'static str,
}

impl JsonSchema for Workload {
    fn schema_name() -> Cow<'static, str> {
        "Workload".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Written::json_schema(generator);
        let description = format!("One kind of load. Exactly one family ({}) must be given.", names());
        schema.insert("description".into(), description.into());
        schema
    }
}

/// Names of all families, as `etcd, redis or kubernetes`.
fn names() -> String {
    let names: Vec<&str> = Family::ALL.iter().map(|family| family.field()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn give_one_family() -> String {
    format!("give exactly one workload family: {}", names())
}

/// `has(OBJECT.etcd)`, `has(OBJECT.redis)`, …
fn given(object: &str, families: impl Iterator<Item = Family>) -> Vec<String> {
    families.map(|family| format!("has({object}.{})", family.field())).collect()
}

fn all() -> impl Iterator<Item = Family> {
    Family::ALL.iter().copied()
}

/// A rule by which a field of the load is for those workloads alone that families name.
fn add_subset(schema: &mut Schema, field: &str, of: impl Fn(&Facts) -> Option<&Subset>) {
    let named = || all().filter_map(|family| Some((family.field(), of(family.facts())?)));
    let holds: String = named().map(|(family, some)| format!(" || (has(self.{family}) && {})", some.holds)).collect();
    let words: Vec<String> = named().map(|(family, some)| format!("{family} ({})", some.words)).collect();
    let otherwise = format!("{field} is available for {}: choose one of these, or remove it", words.join(" and "));
    rules::add(schema, &format!(".load.{field}"), &format!("!has(self.load.{field}){holds}"), &otherwise);
}

/// Rules about one workload.
fn add_rules(schema: &mut Schema) {
    add_subset(schema, "highestRate", |facts| facts.highest_rate.as_ref());
    add_subset(schema, "fault", |facts| facts.fault.as_ref());
    let one_family = format!("[{}].filter(given, given).size() == 1", given("self", all()).join(", "));
    rules::add(schema, "", &one_family, &give_one_family());
    for family in all() {
        for rule in family.facts().workload_rules {
            let holds = format!("!has(self.{}) || ({})", family.field(), rule.holds);
            rules::add(schema, rule.field, &holds, rule.otherwise);
        }
    }
}

/// What the workloads of a run must be, whatever their families.
const RUN_RULES: &[Rule] = &[
    Rule {
        field: ".workloads",
        holds: "self.workloads.all(w, self.workloads.exists_one(v, v.name == w.name))",
        otherwise: "workloads must have distinct names",
    },
    Rule {
        field: ".parallelism",
        holds: "self.workloads.all(w, w.load.connections >= self.parallelism)",
        otherwise: "parallelism must not exceed load.connections of any workload: a load pod without a connection would stay \
            idle",
    },
    Rule {
        field: ".parallelism",
        holds: "self.parallelism == 1 || self.workloads.all(w, !has(w.load.highestRate))",
        otherwise: "parallelism must be 1 where load.highestRate is looked for: load pods cannot tell each other yet what held",
    },
    Rule {
        field: ".parallelism",
        holds: "self.parallelism == 1 || self.workloads.all(w, !has(w.load.fault))",
        otherwise: "parallelism must be 1 where there is a load.fault: one load process has the member struck and times every write",
    },
    Rule {
        field: ".parallelism",
        holds: "self.workloads.all(w, !has(w.load.total) || w.load.total >= self.parallelism)",
        otherwise: "parallelism must not exceed load.total or keySpace of any workload: each load pod takes its share of \
            both",
    },
];

/// Rules about the workloads of a run, for the schema of its spec, and of a job, which has the same `workloads` and `parallelism`.
pub(crate) fn add_run_rules(schema: &mut Schema) {
    // Of workloads that a run names the same is asked when they are known.
    let mut add = |field: &str, holds: &str, otherwise: &str| {
        rules::add(schema, field, &format!("!has(self.workloads) || {holds}"), otherwise);
    };
    RUN_RULES.iter().for_each(|rule| add(rule.field, &format!("({})", rule.holds), rule.otherwise));
    // For some API, every workload loads it, or is refused anyway because it has no family.
    let of_one_api = |api: &Api| {
        let able = given("w", all().filter(|family| family.facts().loads.contains(api))).join(" || ");
        let some = given("w", all()).join(" || ");
        format!("self.workloads.all(w, {able} || !({some}))")
    };
    let one_api: Vec<String> = Api::ALL.iter().map(of_one_api).collect();
    add(".workloads", &one_api.join(" || "), "workloads of one run must speak one protocol: split the run");
    for family in all() {
        for rule in family.facts().run_rules {
            let holds = format!("self.workloads.all(w, !has(w.{}) || ({}))", family.field(), rule.holds);
            add(rule.field, &holds, rule.otherwise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workload(families: Value) -> Result<Workload, serde_json::Error> {
        let mut workload = json!({ "name": "w", "load": { "duration": "1s" } });
        workload.as_object_mut().unwrap().extend(families.as_object().unwrap().clone());
        serde_json::from_value(workload)
    }

    #[test]
    fn a_workload_has_one_family_or_is_none() {
        let put = workload(json!({ "etcd": { "operation": "Put" } })).unwrap();
        assert_eq!(put.family(), Family::Etcd);
        let back = serde_json::to_value(&put).unwrap();
        assert_eq!((back["etcd"]["operation"].as_str(), back.get("redis")), (Some("Put"), None));
        for families in [json!({}), json!({ "etcd": { "operation": "Put" }, "redis": { "command": "Get" } })] {
            let said = workload(families).unwrap_err().to_string();
            assert_eq!(said, give_one_family());
        }
    }

    /// Clients were taken for all that one sync can serve, and a store that syncs once for all pipelines for one that does not sync.
    #[test]
    fn one_sync_may_serve_all_requests_that_are_on_their_way() {
        let of = |families: Value| workload(families).unwrap().parameters.in_flight_max(50);
        assert_eq!(of(json!({ "redis": { "command": "Set" } })), 50);
        assert_eq!(of(json!({ "redis": { "command": "Set", "pipeline": 16 } })), 800);
        assert_eq!(of(json!({ "etcd": { "operation": "TxnPut", "operationsPerTransaction": 8 } })), 50);
        assert_eq!(of(json!({ "keyValue": { "operation": "Put", "door": "Streaming" } })), 50);
        // All publishers have the same blocks.
        assert_eq!(of(json!({ "blockStream": { "operation": "Publish", "window": 200 } })), 200);
        assert_eq!(of(json!({ "blockStream": { "operation": "GetBlock" } })), 50);
        let none = workload(json!({ "redis": { "command": "Set" } })).unwrap().parameters.in_flight_max(0);
        assert_eq!(none, 1);
    }

    /// A store logs what has changed: it would have been accused of each SADD of what was there.
    #[test]
    fn what_may_change_nothing_takes_no_sync_for_certain() {
        let of = |families: Value| {
            let parameters = workload(families).unwrap().parameters;
            (parameters.writes_percent(), parameters.certain_writes_percent())
        };
        for command in ["Sadd", "Zadd", "Lpop", "Rpop", "Spop", "Zpopmin"] {
            assert_eq!(of(json!({ "redis": { "command": command } })), (100, 0), "{command}");
        }
        for command in ["Set", "Incr", "Lpush", "Rpush", "Hset", "Mset", "Xadd"] {
            assert_eq!(of(json!({ "redis": { "command": command } })), (100, 100), "{command}");
        }
        assert_eq!(of(json!({ "redis": { "command": "Mixed", "readPercent": 75 } })), (25, 25));
        assert_eq!(of(json!({ "etcd": { "operation": "Delete" } })), (100, 100));
        assert_eq!(of(json!({ "blockStream": { "operation": "Publish", "window": 200 } })), (100, 100));
    }

    #[test]
    fn every_family_loads_something_and_every_api_can_be_loaded() {
        for family in all() {
            assert!(!family.facts().loads.is_empty(), "{family:?}");
        }
        for api in Api::ALL {
            assert!(all().any(|family| family.facts().loads.contains(api)), "{api:?}");
        }
    }
}
