//! `ControlPlane`: Kubernetes on a storage service, long-running.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::storage_service::ServiceRef;

/// A Kubernetes control plane on a storage service: API server, controller manager, scheduler, and simulated nodes.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "storebench.dev",
    version = "v1alpha1",
    kind = "ControlPlane",
    namespaced,
    status = "ControlPlaneStatus",
    derive = "PartialEq",
    category = "storebench",
    doc = "A Kubernetes control plane on a storage service that speaks the etcd API: API server, controller manager, scheduler, and nodes that are simulated. A BenchmarkRun measures it by naming it in an arm.",
    validation = crate::rules::of_names(),
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.serviceRef.name"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".spec.nodes"),
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
#[x_kube(validation = ("self.serviceRef == oldSelf.serviceRef", "serviceRef cannot be changed: the cluster is in that store; create a new ControlPlane"))]
pub struct ControlPlaneSpec {
    /// The StorageService that holds the cluster, in the same namespace (embedded: in the same files). It must speak the etcd
    /// API.
    pub service_ref: ServiceRef,

    /// The version of Kubernetes, such as `1.34.4`. Absent: the version this release of storebench was tested with. Every
    /// arm of a run must have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$"), extend("example" = "1.34.4"))]
    pub kubernetes_version: Option<String>,

    /// Simulated nodes. They run no containers: a pod on them becomes Ready at once, so that what is measured is the
    /// control plane and its store. Every arm of a run must have the same.
    #[serde(default = "ControlPlaneSpec::default_nodes")]
    #[schemars(range(min = 1, max = 5000))]
    pub nodes: u32,
}

impl ControlPlaneSpec {
    fn default_nodes() -> u32 {
        10
    }
}

/// What runs, and how it is reached.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    /// The generation of the spec that this status describes; −1 until it was looked at.
    #[serde(default = "crate::object_status::never_observed")]
    pub observed_generation: i64,
    /// Ready, Reconciling, Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::object_status::conditions")]
    pub conditions: Vec<Condition>,
    /// The version as the API server itself reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where the API server is reached from within the cluster: `api`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, String>,
    /// The Secret whose key `kubeconfig` says where and as whom the API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretRef>,
}

/// A reference to a ControlPlane.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneRef {
    /// The ControlPlane's name.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), length(max = 63), extend("example" = "on-etcd"))]
    pub name: String,
}

/// A Secret in the same namespace.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(regex(pattern = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"), length(max = 253), extend("example" = "pair-etcd"))]
    pub name: String,
}
