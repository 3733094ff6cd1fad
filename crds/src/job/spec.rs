//! In: what a load process is to do. See [`crate::job`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::durability::Durability;
use crate::external::External;
use crate::rules::{Rule, Rules};
use crate::workload::{self, Workload};

/// What a job must be besides what is said of its workloads.
const RULES: &[Rule] = &[Rule {
    field: ".barrier",
    holds: "has(self.barrier) || self.parallelism == 1",
    otherwise: "several load processes need it: give host:port of the first",
}];

/// An address: a name or number, and a port.
const ADDRESS: &str = "^.{1,253}:[0-9]{1,5}$";

/// Where a member of a store counts the syncs of its disk.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncCounters {
    /// Where it serves metrics in Prometheus's format, `host:port`.
    #[schemars(regex(pattern = ADDRESS))]
    pub address: String,
    /// The path of its metrics.
    pub path: String,
    /// What counts syncs there, by its name, and how many syncs one of each is.
    pub counters: BTreeMap<String, u64>,
}

/// What a load process is to do: every workload, in order, against one arm. Read by [`crate::document::job`], which holds it to the
/// rules of a run.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = workload::add_run_rules, transform = Rules(RULES))]
pub struct JobSpec {
    /// The run's name, for messages.
    pub run: String,
    /// The arm's name, for messages.
    pub arm: String,
    /// The trial's index, for messages.
    pub trial: u32,
    /// Seeds keys and values.
    pub seed: u64,
    /// Client addresses of the store, `host:port`; connections are spread over them.
    #[schemars(length(min = 1), inner(regex(pattern = ADDRESS)))]
    pub endpoints: Vec<String>,
    /// Where and as whom the Kubernetes API is reached: the path of a kubeconfig. For `kubernetes` workloads, which take the
    /// address from it; `endpoints` then only names the arm in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// Addresses of the meters beside the members, `host:port` (program `store-meter`). Empty: whoever started the job
    /// measures the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = ADDRESS)))]
    pub meters: Vec<String>,
    /// Where the members count the syncs of their disks, if there are no meters to ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sync_counters: Vec<SyncCounters>,
    /// The address of the meter in the pod of the control plane that is loaded, `host:port` (program `control-plane-meter`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = ADDRESS))]
    pub control_plane_meter: Option<String>,
    /// The store is somebody's: nothing of it is overwritten or deleted but what this job wrote. Absent: it is this run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Whether keys are written below a name that no other job draws, and removed after each workload: where any arm is external, for all
    /// arms, so that their keys are equally long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_namespaced: bool,
    /// What the store was told to do before it acknowledges a write, which is held against what it does. Absent: nobody here told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Settings that the store must say it has before it is loaded, by their names, such as `appendfsync`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub store_settings: BTreeMap<String, String>,
    /// A directory that the store works on as well: its application's files, which the load writes. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_directory: Option<String>,
    /// Where the store's companions are reached, `host:port`, by their role, such as `object-store`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub companions: BTreeMap<String, String>,
    /// What restores a database from the object store. For `sqliteReplication` workloads that restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_tool: Option<RestoreTool>,
    /// Where the load listens for the store's requests to its object store, which it passes on or lets fail, `host:port`. Absent: the store
    /// reaches that directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = ADDRESS))]
    pub fault_proxy: Option<String>,
    /// Whether who started the job does what [`crate::job::JobLine::Strike`] asks for, and answers on standard input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strikes_members: bool,
    /// Whether the meters do it instead, for whoever shows their token: there is one for each of `endpoints`, in their order. A member that is
    /// killed is then started again by others, when they like.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub meters_strike: bool,
    /// Load processes of this trial, `parallelism` as in the run. The load is shared out among them: connections, clients, total, rate and key space.
    /// Which share is its own a process learns from its command line or `JOB_COMPLETION_INDEX`.
    #[serde(rename = "parallelism", default = "one_process")]
    #[schemars(range(min = 1, max = 64))]
    pub processes: u32,
    /// Where the first of several load processes lets the others wait for a common start, `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = ADDRESS))]
    pub barrier: Option<String>,
    /// What to do, in order.
    #[schemars(length(min = 1, max = 8))]
    pub workloads: Vec<Workload>,
}

/// A program that restores a database from the object store.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreTool {
    /// What it is, for messages, such as `litestream 0.5.17`.
    pub name: String,
    /// The executable: its path; or its file name, where a process of that executable runs beside the load.
    pub program: String,
    /// Its arguments. `{database}` stands for the name of a database, `{output}` for the path of the file to make.
    pub arguments: Vec<String>,
    /// Its environment, besides an empty one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

impl RestoreTool {
    /// Stands for the name of a database.
    pub const DATABASE: &str = "{database}";
    /// Stands for the path of the file to make.
    pub const OUTPUT: &str = "{output}";
}

fn one_process() -> u32 {
    1
}
