//! Load on Deployments: DeployAndScale and RollingUpdate. Each until a watch shows that every pod is what was asked for.

use std::collections::HashSet;
use std::time::Instant;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use storebench_crds::workload::kubernetes::LatencyOf;

use super::follow::Interest;
use super::{Kubernetes, answered, aside, manifests, opened, outcome};
use crate::failure::Failure;
use crate::load::session::{Batch, Session};

/// Creates Deployments of one pod and scales them.
pub async fn deploy_and_scale(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, replicas) = (&kubernetes.plan, kubernetes.plan.parameters.replicas());
    let api = kubernetes.api::<Deployment>(session);
    while let Some(mut batch) = session.next().await {
        let name = plan.next_name(session.phase());
        match plan.parameters.latency_of {
            LatencyOf::Whole => {
                let mut interest = opened(&kubernetes.deployments)?.follow(&name);
                create(kubernetes, &api, &name).await?;
                let mut ready = interest.until(|seen| outcome::is_rolled_out(&seen.object, 1, 0)).await?;
                if replicas > 1 {
                    scale(&api, &name, replicas).await?;
                    ready = interest.until(|seen| outcome::is_rolled_out(&seen.object, replicas, 0)).await?;
                }
                session.answered(&mut batch, 1, ready);
            }
            LatencyOf::EachPod => {
                let pods = opened(&kubernetes.pods)?.follow(&name);
                each_pod(kubernetes, session, &api, &name, pods, &batch).await?;
                session.answered_uncounted(&mut batch, 1);
            }
        }
        plan.expected.set(&name, 0);
    }
    Ok(())
}

/// Records each pod's way to Ready, from the request that asked for it.
async fn each_pod(
    kubernetes: &Kubernetes,
    session: &Session,
    api: &Api<Deployment>,
    name: &str,
    mut pods: Interest<Pod>,
    batch: &Batch,
) -> Result<(), Failure> {
    let replicas = kubernetes.plan.parameters.replicas();
    let mut ready = HashSet::new();
    let due = session.due(batch);
    create(kubernetes, api, name).await?;
    let mut asked = batch.sent();
    while ready.len() < replicas as usize {
        let seen = pods.next().await?;
        if seen.is_gone || !outcome::is_ready(&seen.object) {
            continue;
        }
        if !ready.insert(seen.object.metadata.uid.clone()) {
            continue;
        }
        // Only the first pod's request was on the timetable.
        session.delivered(due.map(|due| if ready.len() == 1 { due } else { asked }), asked, seen.at);
        if ready.len() == 1 && replicas > 1 {
            asked = Instant::now();
            scale(api, name, replicas).await?;
        }
    }
    Ok(())
}

async fn create(kubernetes: &Kubernetes, api: &Api<Deployment>, name: &str) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let deployment = manifests::deployment(&plan.scope, name, 1, &plan.parameters);
    answered(api.create(&PostParams::default(), &deployment).await, "create Deployment", name).map(drop)
}

async fn scale(api: &Api<Deployment>, name: &str, replicas: u32) -> Result<(), Failure> {
    let patch = Patch::Merge(manifests::scale(replicas));
    answered(api.patch_scale(name, &PatchParams::default(), &patch).await, "scale Deployment", name).map(drop)
}

fn name_of(session: &Session) -> String {
    format!("of-client-{}", session.client())
}

/// A Deployment for each client, all of whose pods are Ready.
pub async fn prepare(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, name) = (&kubernetes.plan, name_of(session));
    let replicas = plan.parameters.replicas();
    let api = kubernetes.api::<Deployment>(session);
    // Another client of this thread opens the watch; asking until the pods are Ready needs none.
    let deployment = manifests::deployment(&plan.scope, &name, replicas, &plan.parameters);
    aside(session, async {
        answered(api.create(&PostParams::default(), &deployment).await, "create Deployment", &name)?;
        while !outcome::is_rolled_out(&answered(api.get(&name).await, "get Deployment", &name)?, replicas, 0) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    })
    .await?;
    kubernetes.revisions.borrow_mut().insert(session.client(), 0);
    plan.expected.set(&name, 0);
    Ok(())
}

/// Replaces all pods of the client's Deployment, again and again.
pub async fn update(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, name) = (&kubernetes.plan, name_of(session));
    let replicas = plan.parameters.replicas();
    let api = kubernetes.api::<Deployment>(session);
    let mut interest = opened(&kubernetes.deployments)?.follow(&name);
    let mut revision = kubernetes.revisions.borrow().get(&session.client()).copied().unwrap_or_default();
    while let Some(mut batch) = session.next().await {
        revision += 1;
        let patch = Patch::Merge(manifests::new_revision(revision));
        answered(api.patch(&name, &PatchParams::default(), &patch).await, "patch Deployment", &name)?;
        let done = interest.until(|seen| outcome::is_rolled_out(&seen.object, replicas, revision)).await?;
        session.answered(&mut batch, 1, done);
        plan.expected.set(&name, revision);
        kubernetes.revisions.borrow_mut().insert(session.client(), revision);
    }
    Ok(())
}
