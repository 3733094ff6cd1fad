//! Load on a Kubernetes API server, in words.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_crds::workload::kubernetes::{KubernetesOperation, KubernetesWorkload, LatencyOf};

use super::super::lookup::api_word;
use super::super::units;

/// The request and its parameters, in parts.
pub(super) fn request(kubernetes: &KubernetesWorkload) -> Vec<String> {
    use KubernetesOperation::{
        CreateConfigMaps, CustomResourceChurn, DeleteNamespaces, DeployAndScale, ListAndWatch, MixedChurn,
        NodeHeartbeats, RollingUpdate,
    };
    let operation = kubernetes.operation;
    let mut parts = vec![format!("Kubernetes {}", api_word(&operation))];
    if matches!(operation, DeployAndScale | RollingUpdate) {
        parts.push(units::things(kubernetes.replicas(), "pod"));
    }
    if kubernetes.latency_of == LatencyOf::EachPod {
        parts.push("each pod's latency".to_owned());
    }
    for (what, limit) in [("surge", &kubernetes.max_surge), ("unavailable", &kubernetes.max_unavailable)] {
        if let Some(limit) = limit {
            let limit = match limit {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(percent) => percent.clone(),
            };
            parts.push(format!("at most {limit} {what}"));
        }
    }
    match operation {
        ListAndWatch => parts.push(units::things(kubernetes.watchers(), "watcher")),
        MixedChurn => parts.push(format!("{} % reads", kubernetes.read_percent.unwrap_or_default())),
        _ => {}
    }
    match operation {
        NodeHeartbeats => parts.push(units::things(kubernetes.objects(), "node")),
        ListAndWatch | MixedChurn => parts.push(units::things(kubernetes.objects(), "object")),
        DeleteNamespaces => parts.push(format!("{} in each", units::things(kubernetes.objects(), "ConfigMap"))),
        _ => {}
    }
    if matches!(operation, CreateConfigMaps | CustomResourceChurn | ListAndWatch | MixedChurn) {
        parts.push(format!("{} each", units::bytes(kubernetes.object_bytes.into())));
    }
    parts
}
