//! The objects that are created: pure functions of a scope and the workload's parameters.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, PodSpec, PodTemplateSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use storebench_crds::workload::kubernetes::KubernetesWorkload;

use super::scope::Scope;

/// The annotation of a pod template with its revision.
pub const REVISION: &str = "storebench.dev/revision";
/// The label of a pod with the name of its Deployment.
pub const DEPLOYMENT: &str = "storebench.dev/deployment";
/// The key of a ConfigMap's data, and the field of a custom resource's spec.
pub const DATA: &str = "data";
/// On simulated nodes nothing is pulled; on real ones it is the image that every node has.
const IMAGE: &str = "registry.k8s.io/pause:3.10.1";
/// Kinds of custom resources.
const KIND: &str = "Churn";
const PLURAL: &str = "churns";
/// What a lease that was never renewed says, seconds since 1970; each renewal adds the 10 s after which a kubelet renews.
const LEASE_START_SECONDS: i64 = 1_700_000_000;
const LEASE_RENEWAL_SECONDS: i64 = 10;

/// A namespace.
pub fn namespace(scope: &Scope, name: &str) -> Namespace {
    Namespace { metadata: scope.metadata(name), ..Namespace::default() }
}

/// A ConfigMap with this data.
pub fn config_map(scope: &Scope, name: &str, data: String) -> ConfigMap {
    ConfigMap {
        metadata: scope.metadata(name),
        data: Some(BTreeMap::from([(DATA.into(), data)])),
        ..ConfigMap::default()
    }
}

/// What changes a ConfigMap's data: a merge patch.
pub fn config_map_change(data: &str) -> serde_json::Value {
    json!({ "data": { DATA: data } })
}

/// A ConfigMap's data.
pub fn data_of(config_map: &ConfigMap) -> Option<&str> {
    Some(config_map.data.as_ref()?.get(DATA)?.as_str())
}

/// A Deployment of `replicas` pods of the first revision, 0.
pub fn deployment(scope: &Scope, name: &str, replicas: u32, parameters: &KubernetesWorkload) -> Deployment {
    let pods = BTreeMap::from([(DEPLOYMENT.to_owned(), name.to_owned())]);
    let mut template = pod_template(scope, "Always");
    if let Some(metadata) = &mut template.metadata {
        metadata.labels.get_or_insert_default().extend(pods.clone());
        metadata.annotations = Some(BTreeMap::from([(REVISION.into(), "0".into())]));
    }
    Deployment {
        metadata: scope.metadata(name),
        spec: Some(DeploymentSpec {
            replicas: i32::try_from(replicas).ok(),
            selector: LabelSelector { match_labels: Some(pods), ..LabelSelector::default() },
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: parameters.max_surge.clone(),
                    max_unavailable: parameters.max_unavailable.clone(),
                }),
            }),
            template,
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// What changes a Deployment's template, so that every pod is replaced: a merge patch.
pub fn new_revision(revision: u64) -> serde_json::Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { REVISION: revision.to_string() } } } } })
}

/// What scales a Deployment: a merge patch of its subresource.
pub fn scale(replicas: u32) -> serde_json::Value {
    json!({ "spec": { "replicas": replicas } })
}

/// A Job of one pod.
pub fn job(scope: &Scope, name: &str) -> Job {
    let spec = JobSpec { backoff_limit: Some(0), template: pod_template(scope, "Never"), ..JobSpec::default() };
    Job { metadata: scope.metadata(name), spec: Some(spec), ..Job::default() }
}

fn pod_template(scope: &Scope, restart_policy: &str) -> PodTemplateSpec {
    let labels = scope.metadata("").labels;
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            containers: vec![Container { name: "pause".into(), image: Some(IMAGE.into()), ..Container::default() }],
            restart_policy: Some(restart_policy.into()),
            automount_service_account_token: Some(false),
            ..PodSpec::default()
        }),
    }
}

/// A node's lease that was renewed so many times.
pub fn lease(scope: &Scope, name: &str, renewals: u64) -> Lease {
    Lease {
        metadata: scope.metadata(name),
        spec: Some(LeaseSpec {
            holder_identity: Some(name.into()),
            lease_duration_seconds: Some(40),
            renew_time: renewal(renewals),
            ..LeaseSpec::default()
        }),
    }
}

/// The time that the *number*-th renewal writes: no clock's, so that it says which renewal it is.
pub fn renewal(number: u64) -> Option<MicroTime> {
    let seconds = LEASE_START_SECONDS + i64::try_from(number).ok()? * LEASE_RENEWAL_SECONDS;
    Timestamp::from_second(seconds).ok().map(MicroTime)
}

/// The kind of the scope's custom resources.
pub fn definition(scope: &Scope) -> CustomResourceDefinition {
    let name = format!("{PLURAL}.{}", scope.group());
    let data = JSONSchemaProps { type_: Some("string".into()), ..JSONSchemaProps::default() };
    let object = |property: &str, schema: JSONSchemaProps| JSONSchemaProps {
        type_: Some("object".into()),
        properties: Some(BTreeMap::from([(property.into(), schema)])),
        ..JSONSchemaProps::default()
    };
    CustomResourceDefinition {
        metadata: scope.metadata(&name),
        spec: CustomResourceDefinitionSpec {
            group: scope.group(),
            names: CustomResourceDefinitionNames {
                kind: KIND.into(),
                plural: PLURAL.into(),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Namespaced".into(),
            versions: vec![CustomResourceDefinitionVersion {
                name: "v1".into(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation { open_api_v3_schema: Some(object("spec", object(DATA, data))) }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

/// How the API server is asked for custom resources.
pub fn custom_kind(scope: &Scope) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&scope.group(), "v1", KIND), PLURAL)
}

/// A custom resource with this data.
pub fn custom_resource(scope: &Scope, name: &str, data: &str) -> DynamicObject {
    let mut object = DynamicObject::new(name, &custom_kind(scope)).data(custom_resource_change(data));
    object.metadata = scope.metadata(name);
    object
}

/// What changes a custom resource's data: a merge patch.
pub fn custom_resource_change(data: &str) -> serde_json::Value {
    json!({ "spec": { DATA: data } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        let job = json!({
            "run": "r", "arm": "a", "trial": 0, "seed": 7, "endpoints": ["127.0.0.1:6443"], "kubeconfig": "config",
            "workloads": [{ "name": "w", "kubernetes": { "operation": "CreateJobs" }, "load": { "total": 1 } }],
        });
        Scope::new(&crate::job::specification::parse(&job.to_string()).unwrap(), "w")
    }

    #[test]
    fn everything_is_found_by_its_scope() {
        let scope = scope();
        let parameters: KubernetesWorkload = serde_json::from_value(json!({ "operation": "RollingUpdate" })).unwrap();
        let deployment = deployment(&scope, "d", 5, &parameters);
        let template = deployment.spec.as_ref().unwrap().template.metadata.clone().unwrap();
        let job = job(&scope, "j");
        for metadata in [
            &namespace(&scope, "n").metadata,
            &config_map(&scope, "c", String::new()).metadata,
            &deployment.metadata,
            &template,
            &job.metadata,
            job.spec.as_ref().unwrap().template.metadata.as_ref().unwrap(),
            &lease(&scope, "l", 0).metadata,
            &definition(&scope).metadata,
            &custom_resource(&scope, "c", "").metadata,
        ] {
            let (label, value) = scope.selector().split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            assert_eq!(metadata.labels.as_ref().unwrap()[&label], value, "{metadata:?}");
        }
    }

    #[test]
    fn a_deployments_selector_finds_its_pods_and_no_others() {
        let parameters: KubernetesWorkload = serde_json::from_value(json!({ "operation": "RollingUpdate" })).unwrap();
        let spec = deployment(&scope(), "d", 5, &parameters).spec.unwrap();
        let pods = spec.template.metadata.unwrap().labels.unwrap();
        assert_eq!(spec.selector.match_labels.unwrap(), BTreeMap::from([(DEPLOYMENT.into(), "d".into())]));
        assert_eq!(pods[DEPLOYMENT], "d");
    }

    #[test]
    fn renewals_can_be_told_apart() {
        assert_ne!(renewal(1), renewal(2));
        assert_eq!(lease(&scope(), "l", 2).spec.unwrap().renew_time, renewal(2));
    }
}
