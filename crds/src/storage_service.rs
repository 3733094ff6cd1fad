//! `StorageService`: one deployed store, long-running. What its fields say of single engines, and the rules about those, are
//! added from [`crate::engine`] where the schema is made.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::external::{self, External};
use crate::rules::Rules;

pub use crate::durability::Durability;
pub use crate::engine::EngineKind;

/// A storage service to deploy: which store, how many replicas, how durable.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "StorageService",
    namespaced,
    status = "StorageServiceStatus",
    derive = "PartialEq",
    shortname = "store",
    category = "storebench",
    doc = "A storage service to deploy: which store, how many replicas, how durable. A BenchmarkRun measures it by naming it in an arm.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.readyReplicas"
    ),
    validation = crate::rules::of_names(),
    printcolumn(name = "Engine", type_ = "string", json_path = ".spec.engine"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Durability", type_ = "string", json_path = ".spec.durability"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = Rules(external::SERVICE_RULES))]
pub struct StorageServiceSpec {
    /// The store to deploy.
    pub engine: EngineKind,

    /// Do not deploy a store, but load one that is there already. `engine` then says whose protocol it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,

    /// The version to deploy, such as `3.7.3`. Absent: the version this release of storebench was tested with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,62}$"), extend("example" = "3.7.3"))]
    pub version: Option<String>,

    /// The container image, pinned by tag or digest; `latest` is refused. Absent: the engine's own image at `version`.
    /// Ignored by embedded runs, which use binaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = ("self.contains('@sha256:') || (self.matches('^.+:[^:/]+$') && !self.endsWith(':latest'))", "image must be pinned by a tag other than latest, or by digest"))]
    pub image: Option<String>,

    /// How many members. It cannot be changed: a group grows by calls of its own, and where the data are in an emptyDir, starting its
    /// members anew would lose them.
    #[serde(default = "one")]
    #[x_kube(validation = ("self == oldSelf", "replicas cannot be changed: the group would start anew, without what it holds; create a new StorageService"))]
    #[x_kube(validation = ("self in [1, 3, 5]", "replicas must be 1, 3 or 5: an even number adds cost and no fault tolerance"))]
    pub replicas: i32,

    /// What an acknowledged write survives. Arms are only ranked against each other at equal durability.
    #[serde(default)]
    pub durability: Durability,

    /// The volume for the data. Absent: an emptyDir, gone with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,

    /// CPU and memory of each member. Not enforced by embedded runs, which say so in the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,

    /// Serve clients over TLS with the certificate in this Secret. Not available yet: stores that storebench starts are loaded in the clear.
    /// TLS to a store of your own is `external.tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// Further arguments, appended to those that storebench sets. Arguments that contradict `durability` are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args: Vec<String>,

    /// Further environment variables. A Secret that one refers to must be labelled `storebench.dev/allowed=true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env: Vec<EnvVar>,

    /// Where the pods may run. Ignored by embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodOverrides>,
}

fn one() -> i32 {
    1
}

impl StorageServiceSpec {
    /// One member of an engine, of which nothing else is asked.
    pub fn of(engine: EngineKind, durability: Durability) -> Self {
        Self {
            engine,
            external: None,
            version: None,
            image: None,
            replicas: one(),
            durability,
            storage: None,
            resources: None,
            tls: None,
            args: Vec::new(),
            env: Vec::new(),
            pod: None,
        }
    }
}

/// CPU and memory as in a container, by the pattern of Kubernetes' own generator. (The generated schema takes any text
/// and no number, and has claims on devices, which no store here uses.)
fn resources(_: &mut SchemaGenerator) -> Schema {
    let quantities = |description: &str| {
        json!({
            "description": description,
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {
                "x-kubernetes-int-or-string": true,
                "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
                "example": "512Mi",
            },
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "limits": quantities("The most that a member may use, such as cpu: 2 and memory: 512Mi."),
            "requests": quantities("What a member is guaranteed, such as cpu: 500m and memory: 256Mi."),
        },
    })
}

/// A volume claim for each member.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// The size to claim, such as `10Gi`.
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,8}(Ki|Mi|Gi|Ti|k|M|G|T)?$"), extend("example" = "10Gi"))]
    pub size: String,
    /// The storage class. Absent: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// What becomes of the claims when the service is deleted. Claims of a trial's own store are always deleted.
    #[serde(default)]
    pub retention: VolumeRetention,
}

/// What becomes of volume claims when their service is deleted.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VolumeRetention {
    /// They are deleted with it.
    #[default]
    Delete,
    /// They stay, with their data; a service of the same name finds them again.
    Retain,
}

/// Where the certificate is.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret of type `kubernetes.io/tls` in the same namespace; its `ca.crt`, where present, is required of clients.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// Scheduling constraints, as in a pod.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOverrides {
    /// Labels a node must carry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Affinities, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
}

/// A reference to a StorageService.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRef {
    /// The StorageService's name.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), length(max = 63), extend("example" = "etcd"))]
    pub name: String,
}

/// What was deployed, and whether it answers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageServiceStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Ready, Reconciling, Stalled, ProtocolReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// Members that answer.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Addresses by purpose: `client`, `metrics`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, String>,
    /// The version as the server itself reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the idle service costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
}

/// What the idle service costs.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Footprint {
    /// Size of the server's executable, bytes.
    pub binary_bytes: u64,
    /// From process start to the first answered request, microseconds.
    pub startup_micros: u64,
    /// Resident memory before any load, bytes.
    pub idle_rss_bytes: u64,
}
