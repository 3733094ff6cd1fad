//! NodeHeartbeats: what kubelets send all day. Each client renews the leases of its nodes, one after another, as a kubelet
//! does: by replacing the version that it knows.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;

use super::{Kubernetes, Plan, answered, aside, create_prepared, manifests, now};
use crate::failure::Failure;
use crate::load::session::Session;

/// Creates the client's leases.
pub async fn prepare(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<Lease>(session);
    for number in kubernetes.own_objects(session) {
        let name = Plan::prepared(number);
        let lease = manifests::lease(&plan.scope, &name, 0);
        create_prepared(session, &api, &lease).await?;
        plan.expected.set(&name, 0);
    }
    Ok(())
}

/// Renews them.
pub async fn load(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<Lease>(session);
    let mut leases = Vec::new();
    for number in kubernetes.own_objects(session) {
        let name = Plan::prepared(number);
        leases.push(aside(session, async { answered(api.get(&name).await, "get Lease", &name) }).await?);
    }
    let mut next = 0;
    while let Some(mut batch) = session.next().await {
        let lease = &mut leases[next];
        next = (next + 1) % kubernetes.own_objects(session).count();
        let name = lease.metadata.name.clone().unwrap_or_default();
        let renewals = plan.expected.version(&name).unwrap_or_default() + 1;
        lease.spec.get_or_insert_default().renew_time = manifests::renewal(renewals);
        let renewed = api.replace(&name, &PostParams::default(), lease).await;
        *lease = answered(renewed, "replace Lease", &name)?;
        session.answered(&mut batch, 1, now());
        plan.expected.set(&name, renewals);
    }
    Ok(())
}
