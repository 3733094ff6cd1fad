//! Load on a Kubernetes API server: what users of a cluster do, and what its own parts do all day.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Api, Facts};
use crate::rules::{Rule, Rules};

/// What is known of the family.
pub static FACTS: Facts = Facts {
    loads: &[Api::Kubernetes],
    workload_rules: &[
        Rule {
            field: ".load.clients",
            holds: "!has(self.load.clients) || self.load.clients == self.load.connections",
            otherwise: "load.clients must equal load.connections for kubernetes, where each client has a connection of its own; \
                set connections",
        },
        Rule {
            field: ".load.total",
            holds: "self.kubernetes.operation != 'DeleteNamespaces' || has(self.load.total)",
            otherwise: "operation: DeleteNamespaces needs load.total: they are created before the measurement",
        },
        Rule {
            field: ".load.threads",
            holds: "self.kubernetes.operation != 'ListAndWatch' || self.load.threads == 1",
            otherwise: "load.threads must be 1 for operation: ListAndWatch, whose watchers share a thread with those who write",
        },
        Rule {
            field: ".kubernetes.objects",
            holds: "!(self.kubernetes.operation in ['ListAndWatch', 'NodeHeartbeats', 'MixedChurn']) || \
                (has(self.kubernetes.objects) ? self.kubernetes.objects : 100) >= self.load.connections",
            otherwise: "kubernetes.objects must be at least load.connections: each client writes objects of its own",
        },
    ],
    metrics: &[],
    run_rules: &[Rule {
        field: ".parallelism",
        holds: "self.parallelism == 1",
        otherwise: "parallelism must be 1 for kubernetes workloads: use load.connections and load.threads for a stronger \
            loader",
    }],
    loads_what_is_somebodys: false,
    answers_one_by_one: |_| false,
    highest_rate: None,
    fault: None,
};

/// Which parameters belong together.
const RULES: &[Rule] = &[
    Rule {
        field: ".replicas",
        holds: "!has(self.replicas) || self.operation in ['DeployAndScale', 'RollingUpdate']",
        otherwise: "replicas needs operation: DeployAndScale or RollingUpdate; remove replicas",
    },
    Rule {
        field: "",
        holds: "!has(self.maxSurge) && !has(self.maxUnavailable) || self.operation == 'RollingUpdate'",
        otherwise: "maxSurge and maxUnavailable need operation: RollingUpdate; remove them",
    },
    Rule {
        field: "",
        holds: "!has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%'] && \
            string(self.maxUnavailable) in ['0', '0%'])",
        otherwise: "maxSurge and maxUnavailable must not both be 0: no pod could ever be replaced",
    },
    Rule {
        field: ".latencyOf",
        holds: "self.latencyOf == 'Whole' || self.operation == 'DeployAndScale'",
        otherwise: "latencyOf: EachPod needs operation: DeployAndScale; remove latencyOf",
    },
    Rule {
        field: ".watchers",
        holds: "!has(self.watchers) || self.operation == 'ListAndWatch'",
        otherwise: "watchers needs operation: ListAndWatch; remove watchers",
    },
    Rule {
        field: ".objects",
        holds: "!has(self.objects) || self.operation in ['DeleteNamespaces', 'ListAndWatch', 'NodeHeartbeats', \
            'MixedChurn']",
        otherwise: "objects needs operation: DeleteNamespaces, ListAndWatch, NodeHeartbeats or MixedChurn; use load.total \
            for how many to create",
    },
    Rule {
        field: ".readPercent",
        holds: "has(self.readPercent) == (self.operation == 'MixedChurn')",
        otherwise: "readPercent and operation: MixedChurn belong together: say how many of 100 requests read, or remove \
            readPercent",
    },
];

/// Load on a Kubernetes API server. Needs arms with `controlPlaneRef`. Everything is created in namespaces of this trial's
/// own, under names that nobody else has, and is removed afterwards.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(RULES))]
pub struct KubernetesWorkload {
    /// What to repeat.
    pub operation: KubernetesOperation,
    /// Length of the data in each ConfigMap or custom resource, bytes.
    #[serde(default = "KubernetesWorkload::default_object_bytes")]
    #[schemars(range(min = 8, max = 500_000))]
    pub object_bytes: u32,
    /// DeployAndScale: pods to scale to; RollingUpdate: pods that are replaced. Absent: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5000))]
    pub replicas: Option<u32>,
    /// RollingUpdate: pods above `replicas` while it goes on, a number or a share such as `25%`. Absent: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// RollingUpdate: pods below `replicas` while it goes on, a number or a share such as `25%`. Absent: 25%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// DeployAndScale: what one latency is of.
    #[serde(default)]
    pub latency_of: LatencyOf,
    /// ListAndWatch: how many list and watch, each on a connection of its own. Absent: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub watchers: Option<u32>,
    /// ListAndWatch, MixedChurn: ConfigMaps. NodeHeartbeats: nodes, each with a lease. Absent: 100. DeleteNamespaces:
    /// ConfigMaps in each namespace. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub objects: Option<u32>,
    /// MixedChurn: how many of 100 requests read; the others create, change and delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub read_percent: Option<u32>,
}

impl KubernetesWorkload {
    fn default_object_bytes() -> u32 {
        256
    }

    /// Pods of a Deployment: as given, or 5.
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(5)
    }

    /// Watchers: as given, or 10.
    pub fn watchers(&self) -> u32 {
        self.watchers.unwrap_or(10)
    }

    /// Objects that are there before the load: as given, or 100; in each namespace to delete 0.
    pub fn objects(&self) -> u32 {
        self.objects.unwrap_or(if self.operation == KubernetesOperation::DeleteNamespaces { 0 } else { 100 })
    }
}

/// Pods as a Deployment's strategy takes them.
fn number_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^(100|[1-9]?[0-9])%$",
        "minimum": 0,
        "maximum": 5000,
        "example": "25%",
    })
}

/// What users and parts of Kubernetes do. All times are this client's own: from the send of a request to the arrival of
/// its answer, or of the watch event that shows the outcome.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KubernetesOperation {
    /// Create a namespace; until it is acknowledged.
    CreateNamespaces,
    /// Create a ConfigMap of `objectBytes`; until it is acknowledged.
    CreateConfigMaps,
    /// Create a Deployment of one pod, wait until that is Ready, scale it to `replicas`; until all are Ready. Raise
    /// `load.timeout` for many replicas.
    DeployAndScale,
    /// Change the pod template of a Deployment of `replicas` Ready pods, one Deployment for each client; until every pod
    /// is a new one and Ready.
    RollingUpdate,
    /// Delete a namespace with `objects` ConfigMaps in it; until it is gone. Needs `load.total`. Kubernetes itself waits 5 s
    /// before it begins.
    DeleteNamespaces,
    /// `watchers` list and watch `objects` ConfigMaps, of which clients change one after another; from the send of the
    /// change to its arrival at each watcher. A client makes its next change when every watcher has seen its last.
    ListAndWatch,
    /// Create a Job of one pod; until it is Complete. Kubernetes itself looks at the pods of a Job once a second.
    CreateJobs,
    /// Create, change and delete a custom resource of a kind of this workload's own; each request until it is
    /// acknowledged.
    CustomResourceChurn,
    /// Renew the lease of a node, as each kubelet does every 10 s; until it is acknowledged.
    NodeHeartbeats,
    /// Read, change, delete and create ConfigMaps, by `readPercent`; each request until it is answered. Give it a `rate`
    /// to see latencies under a load that is the same for every arm.
    MixedChurn,
}

/// What one latency of DeployAndScale is of.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LatencyOf {
    /// Of the Deployment as a whole, from its creation until all pods are Ready.
    #[default]
    Whole,
    /// Of each pod, from the request that asked for it, creation or scaling, until it is Ready. Throughput then counts
    /// pods.
    EachPod,
}
