//! After the load everything that was acknowledged is read back and compared, by one client for all.

use std::collections::HashMap;
use std::fmt::Debug;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use storebench_crds::workload::kubernetes::KubernetesOperation;

use super::manifests::{self, DATA, DEPLOYMENT};
use super::{Kubernetes, aside, follow, outcome};
use crate::failure::Failure;
use crate::load::session::Session;

/// Reads back and compares.
pub async fn run(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let client = kubernetes.client(session);
    match kubernetes.plan.operation() {
        KubernetesOperation::CreateNamespaces | KubernetesOperation::DeleteNamespaces => {
            let own = kubernetes.plan.scope.namespace();
            let mut namespaces = found(kubernetes, session, &Api::<Namespace>::all(client)).await?;
            namespaces.retain(|(name, _)| *name != own);
            compare(kubernetes, session, namespaces, |_, _, namespace| {
                let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
                (phase != Some("Active")).then(|| format!("expected an active namespace, found phase {phase:?}"))
            });
        }
        KubernetesOperation::CreateConfigMaps | KubernetesOperation::ListAndWatch | KubernetesOperation::MixedChurn => {
            let objects = found(kubernetes, session, &kubernetes.api::<ConfigMap>(session)).await?;
            compare(kubernetes, session, objects, |name, version, object| {
                kubernetes.mismatch(name, version, manifests::data_of(object))
            });
        }
        KubernetesOperation::DeployAndScale | KubernetesOperation::RollingUpdate => {
            deployments(kubernetes, session).await?;
        }
        KubernetesOperation::CreateJobs => {
            let jobs = found(kubernetes, session, &kubernetes.api::<Job>(session)).await?;
            compare(kubernetes, session, jobs, |_, _, job| match outcome::completion(job) {
                Some(Ok(())) => None,
                Some(Err(why)) => Some(format!("expected a Job that is Complete, found one that failed: {why}")),
                None => Some("expected a Job that is Complete, found one that has not ended".into()),
            });
        }
        KubernetesOperation::CustomResourceChurn => {
            let kind = manifests::custom_kind(&kubernetes.plan.scope);
            let api: Api<DynamicObject> = Api::namespaced_with(client, &kubernetes.plan.scope.namespace(), &kind);
            let objects = found(kubernetes, session, &api).await?;
            compare(kubernetes, session, objects, |name, version, object| {
                kubernetes.mismatch(name, version, object.data["spec"][DATA].as_str())
            });
        }
        KubernetesOperation::NodeHeartbeats => {
            let leases = found(kubernetes, session, &kubernetes.api::<Lease>(session)).await?;
            compare(kubernetes, session, leases, |_, renewals, lease| {
                let found = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
                (found != manifests::renewal(renewals).as_ref())
                    .then(|| format!("expected renewal {renewals}, found one at {found:?}"))
            });
        }
    }
    Ok(())
}

/// Each Deployment must have as many Ready pods of its last revision as it was scaled to, and no others.
async fn deployments(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let replicas = kubernetes.plan.parameters.replicas() as usize;
    let deployments = found(kubernetes, session, &kubernetes.api::<Deployment>(session)).await?;
    let pods = found(kubernetes, session, &kubernetes.api::<Pod>(session)).await?;
    let mut revisions: HashMap<String, Vec<Option<u64>>> = HashMap::new();
    for (_, pod) in pods.iter().filter(|(_, pod)| outcome::is_ready(pod)) {
        let deployment = pod.labels().get(DEPLOYMENT).cloned().unwrap_or_default();
        revisions.entry(deployment).or_default().push(outcome::revision_of(Some(&pod.metadata)));
    }
    compare(kubernetes, session, deployments, |name, revision, _| {
        let found = revisions.get(name).map(Vec::as_slice).unwrap_or_default();
        let right = found.len() == replicas && found.iter().all(|found| *found == Some(revision));
        (!right).then(|| format!("expected {replicas} Ready pods of revision {revision}, found those of {found:?}"))
    });
    Ok(())
}

/// What is there of this kind, by name.
async fn found<K>(kubernetes: &Kubernetes, session: &Session, api: &Api<K>) -> Result<Vec<(String, K)>, Failure>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let (objects, _) = aside(session, follow::list(api, &kubernetes.plan.scope.selector())).await?;
    Ok(objects.into_iter().map(|object| (object.name_any(), object)).collect())
}

fn compare<K>(
    kubernetes: &Kubernetes,
    session: &Session,
    found: Vec<(String, K)>,
    judge: impl Fn(&str, u64, &K) -> Option<String>,
) {
    let (right, wrong) = kubernetes.plan.expected.compare(found, judge);
    session.verified(right);
    for (name, detail) in wrong {
        session.wrong(name, detail);
    }
}
