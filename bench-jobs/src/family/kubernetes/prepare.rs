//! What a workload needs before its load: its namespace, what it changes or deletes, and the watches that show outcomes.

use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use storebench_crds::workload::kubernetes::{KubernetesOperation, LatencyOf};

use super::manifests::{self, DEPLOYMENT};
use super::{Kubernetes, answered, aside, delete, fan_out, follow, heartbeats, mixed, rollout};
use crate::failure::Failure;
use crate::load::session::Session;

/// Between two looks at whether something has come to be.
const PAUSE: Duration = Duration::from_millis(20);

/// Prepares what a client needs; the first what all need.
pub async fn run(kubernetes: &Rc<Kubernetes>, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    if session.client() == 0 {
        aside(session, shared(kubernetes, session)).await?;
        plan.is_ready.send_replace(true);
    } else {
        // The sender lives in the plan, so waiting ends; if the first client fails, this is dropped.
        let _ = plan.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }
    if session.place() == 0 {
        aside(session, watches(kubernetes, session)).await?;
    }
    match plan.operation() {
        KubernetesOperation::RollingUpdate => rollout::prepare(kubernetes, session).await,
        KubernetesOperation::DeleteNamespaces => delete::prepare(kubernetes, session).await,
        KubernetesOperation::ListAndWatch => fan_out::prepare(kubernetes, session).await,
        KubernetesOperation::NodeHeartbeats => heartbeats::prepare(kubernetes, session).await,
        KubernetesOperation::MixedChurn => mixed::prepare(kubernetes, session).await,
        KubernetesOperation::CreateNamespaces
        | KubernetesOperation::CreateConfigMaps
        | KubernetesOperation::DeployAndScale
        | KubernetesOperation::CreateJobs
        | KubernetesOperation::CustomResourceChurn => Ok(()),
    }
}

/// The namespace, and a kind of one's own.
async fn shared(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, client) = (&kubernetes.plan, kubernetes.client(session));
    let name = plan.scope.namespace();
    let namespaces = Api::<Namespace>::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &manifests::namespace(&plan.scope, &name)).await;
    answered(created, "create Namespace", &name)?;
    // Pods are refused until the controller manager has given the namespace its account.
    let accounts = kubernetes.api::<ServiceAccount>(session);
    while answered(accounts.get_opt("default").await, "get ServiceAccount", "default")?.is_none() {
        tokio::time::sleep(PAUSE).await;
    }
    if plan.operation() == KubernetesOperation::CustomResourceChurn {
        custom_kind(kubernetes, session).await?;
    }
    Ok(())
}

/// Defines the custom resources, and waits until they are served.
async fn custom_kind(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, client) = (&kubernetes.plan, kubernetes.client(session));
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definition = manifests::definition(&plan.scope);
    let name = definition.name_any();
    answered(definitions.create(&PostParams::default(), &definition).await, "create CustomResourceDefinition", &name)?;
    let kind = manifests::custom_kind(&plan.scope);
    let objects: Api<DynamicObject> = Api::namespaced_with(client, &plan.scope.namespace(), &kind);
    loop {
        match objects.list(&ListParams::default()).await {
            Ok(_) => return Ok(()),
            // 404 until the kind is known (in plain text, so `is_not_found` does not see it), 429 until its storage is.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429) => tokio::time::sleep(PAUSE).await,
            Err(error) => return answered(Err(error), "list", &name),
        }
    }
}

fn own_name<K: kube::Resource>(object: &K) -> Option<String> {
    object.meta().name.clone()
}

/// The watches of one thread.
async fn watches(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let selector = kubernetes.plan.scope.selector();
    let operation = kubernetes.plan.operation();
    match operation {
        KubernetesOperation::DeployAndScale | KubernetesOperation::RollingUpdate => {
            let hub = follow::watch(kubernetes.api(session), &selector, own_name).await?;
            let _ = kubernetes.deployments.set(hub);
        }
        KubernetesOperation::CreateJobs => {
            let hub = follow::watch(kubernetes.api(session), &selector, own_name).await?;
            let _ = kubernetes.jobs.set(hub);
        }
        KubernetesOperation::DeleteNamespaces => {
            let namespaces = Api::all(kubernetes.client(session));
            let hub = follow::watch(namespaces, &selector, own_name).await?;
            let _ = kubernetes.namespaces.set(hub);
        }
        KubernetesOperation::CreateNamespaces
        | KubernetesOperation::CreateConfigMaps
        | KubernetesOperation::ListAndWatch
        | KubernetesOperation::CustomResourceChurn
        | KubernetesOperation::NodeHeartbeats
        | KubernetesOperation::MixedChurn => {}
    }
    if kubernetes.plan.parameters.latency_of == LatencyOf::EachPod {
        let deployment_of = |pod: &Pod| pod.metadata.labels.as_ref()?.get(DEPLOYMENT).cloned();
        let hub = follow::watch(kubernetes.api(session), &selector, deployment_of).await?;
        let _ = kubernetes.pods.set(hub);
    }
    Ok(())
}
