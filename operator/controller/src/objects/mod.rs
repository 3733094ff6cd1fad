//! The objects that the operator makes, built from validated input alone: no client, no clock, no failure.
//!
//! [`store`] builds what a store and its companions need, be it a StorageService or the store of one trial; [`control_plane`] what Kubernetes on
//! that store needs; [`load`] what a trial's load needs.
//! [`names`] and the labels here are how they are found again.

pub mod control_plane;
mod credentials;
pub mod load;
pub mod names;
mod network;
mod pinning;
mod role;
mod security;
pub mod share;
pub mod store;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use storebench_core::archive::{COMPONENT_LABEL, RUN_LABEL};

pub use self::pinning::Place;
use crate::settings::Images;

/// Names the one who applies; fields of other managers are left alone.
pub const FIELD_MANAGER: &str = "storebench-operator";
/// Marks everything that the operator made.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// See [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "storebench";
/// The StorageService that an object belongs to.
pub const SERVICE_LABEL: &str = "storebench.dev/service";
/// The ControlPlane that an object belongs to.
pub const CONTROL_PLANE_LABEL: &str = "storebench.dev/control-plane";
/// The trial name of the store or load that an object belongs to; see [`names::trial`].
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
/// The trial's index.
pub const TRIAL_LABEL: &str = "storebench.dev/trial";
/// The arm's name.
pub const ARM_LABEL: &str = "storebench.dev/arm";
/// [`COMPONENT_LABEL`] of stores.
pub const STORE: &str = "store";
/// [`COMPONENT_LABEL`] of what a store needs beside itself.
pub const COMPANION: &str = "companion";
/// Tells the companions of one store apart.
pub const ROLE_LABEL: &str = "storebench.dev/role";
/// [`COMPONENT_LABEL`] of control planes.
pub const CONTROL_PLANE: &str = "control-plane";
/// [`COMPONENT_LABEL`] of load.
pub const LOAD: &str = "load";
/// Pods with this label, set to `"true"`, may connect to stores although they are not load pods.
pub const CLIENT_LABEL: &str = "storebench.dev/client";

/// The pool that a node belongs to; the key of the taint, too, that keeps away what belongs to none.
pub const NODE_POOL_LABEL: &str = "storebench.dev/node-pool";

/// A set of labels.
pub type Labels = BTreeMap<String, String>;

/// Who owns an object, and what it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// The namespace of owner and object.
    pub namespace: String,
    /// Deleted with this.
    pub reference: OwnerReference,
    /// Finds everything of this owner.
    pub labels: Labels,
}

impl Owner {
    /// A StorageService or BenchmarkRun as the API server knows it; `None` before it has a name and a uid.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K, label: &str) -> Option<Self> {
        let reference = object.controller_owner_ref(&())?;
        let labels = [(MANAGED_BY_LABEL, MANAGED_BY), (label, reference.name.as_str())];
        Some(Self {
            namespace: object.meta().namespace.clone()?,
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            reference,
        })
    }

    /// The labels of an object of this owner, or of its pods. What Services and policies select by has them, too: the owner's own label is one
    /// that nobody but the operator gives a pod (`manifests/policies/pods.yaml`), as others may [`COMPONENT_LABEL`] and [`INSTANCE_LABEL`].
    pub fn labels(&self, labels: &Labels) -> Labels {
        self.labels.iter().chain(labels).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Whether its objects are those of a run's trials. Others stand by themselves, for whoever uses them.
    pub fn is_run(&self) -> bool {
        self.labels.contains_key(RUN_LABEL)
    }

    /// Metadata of an object of this owner.
    pub fn metadata(&self, name: &str, labels: &Labels) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels(labels)),
            owner_references: Some(vec![self.reference.clone()]),
            ..ObjectMeta::default()
        }
    }
}

/// Metadata of a pod. Meshes are told to put nothing beside what is measured: a proxy would be counted as the store, and stand
/// between it and the load.
pub(crate) fn pod_metadata(labels: Labels) -> ObjectMeta {
    let text = |pairs: [(&str, &str); 3]| pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let no_mesh = [
        ("sidecar.istio.io/inject", "false"),
        ("istio.io/dataplane-mode", "none"),
        ("kuma.io/sidecar-injection", "disabled"),
    ];
    let annotations = [
        ("sidecar.istio.io/inject", "false"),
        ("linkerd.io/inject", "disabled"),
        ("consul.hashicorp.com/connect-inject", "false"),
    ];
    ObjectMeta {
        labels: Some(labels.into_iter().chain(text(no_mesh)).collect()),
        annotations: Some(text(annotations).into()),
        ..ObjectMeta::default()
    }
}

/// With what the images of a pod are pulled.
pub(crate) fn pull_secrets(images: &Images) -> Option<Vec<LocalObjectReference>> {
    let names = images.image_pull_secrets.iter().filter(|name| !name.is_empty());
    let references: Vec<_> = names.map(|name| LocalObjectReference { name: name.clone() }).collect();
    (!references.is_empty()).then_some(references)
}

/// An address and a port, as both families write them.
pub fn socket_address(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// The labels of one store or load. StatefulSets select by them, which can never be changed; all else by the owner's as well ([`Owner::labels`]).
pub fn instance(component: &str, instance: &str) -> Labels {
    [(COMPONENT_LABEL, component), (INSTANCE_LABEL, instance)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The labels of one trial of an arm.
pub fn trial(index: u32, arm: &str) -> Labels {
    [(TRIAL_LABEL, index.to_string()), (ARM_LABEL, arm.to_owned())].map(|(name, value)| (name.to_owned(), value)).into()
}

/// A selector in the API's query syntax.
pub fn query(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Everything that belongs to this run.
pub fn of_run(run: &str) -> String {
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{RUN_LABEL}={run}")
}

/// Everything that belongs to this service.
pub fn of_service(service: &str) -> String {
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{SERVICE_LABEL}={service}")
}

/// Everything that belongs to this control plane.
pub fn of_control_plane(control_plane: &str) -> String {
    format!("{MANAGED_BY_LABEL}={MANAGED_BY},{CONTROL_PLANE_LABEL}={control_plane}")
}

fn selector(labels: &Labels) -> LabelSelector {
    LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod reach_tests;
#[cfg(test)]
mod scraped_tests;
