//! Kubernetes on a store: what is deployed for a ControlPlane, the same for every arm but for the store's address.
//!
//! Pure, like an engine: [`validate`] turns what a user wrote into a [`ValidatedControlPlane`], [`plan`] turns a [`Placement`]
//! into certificates, kubeconfigs and processes, [`files`] makes what the processes are given. A driver realises them.

mod certificates;
mod plan;

pub use certificates::{Validity, files};
pub use plan::{Certificate, ControlPlanePlan, Kubeconfig, Placement, Process, Purpose, plan};

use storebench_crds::ControlPlane;

use crate::engine::Protocol;
use crate::validate::{Problem, named};
pub use crate::validated::ValidatedControlPlane;
use crate::validated::ValidatedService;

/// The version of Kubernetes deployed where the user names none: the one this release was tested with.
pub const DEFAULT_VERSION: &str = "1.34.4";
/// The executables of a control plane, the API server first. kwok simulates the nodes.
pub const BINARIES: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"];
/// The version of kwok that is deployed with every version of Kubernetes. Pinned in `kind/versions`.
const KWOK_VERSION: &str = "0.7.0";
/// The folder of the executables below the peers directory, before the version.
pub const FOLDER: &str = "kubernetes";
/// The command that installs the executables for embedded runs.
pub const INSTALL: &str = "peers/fetch kubernetes";

impl ValidatedControlPlane {
    /// The container image of an executable, such as `<registry>/kube-apiserver:v1.34.4`: the names that Kubernetes
    /// publishes, and that a Kind node has already.
    pub fn image(&self, registry: &str, binary: &str) -> String {
        match binary {
            "kwok" => format!("{registry}/kwok/kwok:v{KWOK_VERSION}"),
            binary => format!("{registry}/{binary}:v{}", self.kubernetes_version),
        }
    }
}

/// Validates a control plane against the services it may refer to.
pub fn validate(control_plane: &ControlPlane, services: &[ValidatedService]) -> Result<ValidatedControlPlane, Problem> {
    let name = control_plane.metadata.name.clone().unwrap_or_default();
    let problem =
        |text: String| Problem { object: format!("ControlPlane/{name}"), field: "spec.serviceRef.name".into(), text };
    let spec = &control_plane.spec;
    let service =
        named(services, &spec.service_ref.name, "StorageService", |service| &service.name).map_err(problem)?;
    if service.engine.protocol != Protocol::Etcd {
        let (engine, spoken) = (service.engine.name, service.engine.protocol);
        return Err(problem(format!(
            "{engine} speaks {spoken:?}, but Kubernetes needs the etcd API: name a service of another engine"
        )));
    }
    if service.spec.external.is_some() {
        let text = format!(
            "{} is external, and Kubernetes would write among its keys: name a service that is deployed",
            service.name
        );
        return Err(problem(text));
    }
    Ok(ValidatedControlPlane {
        service: service.clone(),
        kubernetes_version: spec.kubernetes_version.clone().unwrap_or_else(|| DEFAULT_VERSION.into()),
        version_is_pinned: spec.kubernetes_version.is_some(),
        nodes: spec.nodes,
        spec: spec.clone(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_kind_node() {
        let pinned = include_str!("../../../../kind/versions");
        let version = |name: &str| {
            let line = pinned.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
            line.split_whitespace().nth(1).unwrap()
        };
        assert_eq!(version("kubernetes"), DEFAULT_VERSION);
        assert_eq!(version("kwok"), KWOK_VERSION);
    }
}
