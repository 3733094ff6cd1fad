//! DeleteNamespaces: from the request to delete a namespace to the event that it is gone, with everything in it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::DeleteParams;
use storebench_crds::job::Phase;

use super::{Kubernetes, Plan, answered, create_prepared, manifests, opened};
use crate::failure::Failure;
use crate::load::session::Session;

/// Creates what the measured phase deletes; the clients share out the work.
pub async fn prepare(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let context = &kubernetes.seat.context;
    // The schema has seen to it that there is a total.
    let total = context.own_total().unwrap_or_default();
    for number in (u64::from(session.client())..total).step_by(context.clients as usize) {
        create(kubernetes, session, &kubernetes.plan.scope.created_namespace(Phase::Measure, number)).await?;
    }
    Ok(())
}

/// Creates a namespace with what belongs into it.
async fn create(kubernetes: &Kubernetes, session: &Session, name: &str) -> Result<(), Failure> {
    let (plan, client) = (&kubernetes.plan, kubernetes.client(session));
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = manifests::namespace(&plan.scope, name);
    create_prepared(session, &namespaces, &namespace).await?;
    let config_maps = Api::<ConfigMap>::namespaced(client, name);
    for number in 0..plan.parameters.objects() {
        let inside = Plan::prepared(number);
        let object = manifests::config_map(&plan.scope, &inside, kubernetes.content(&inside, 0));
        create_prepared(session, &config_maps, &object).await?;
    }
    Ok(())
}

/// Deletes them. The warm-up has none prepared, since nobody knows how many it takes: it creates its own in between.
pub async fn load(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, phase) = (&kubernetes.plan, session.phase());
    let namespaces = Api::<Namespace>::all(kubernetes.client(session));
    let hub = opened(&kubernetes.namespaces)?;
    while let Some(mut batch) = session.next().await {
        let name = plan.scope.created_namespace(phase, plan.next_number(phase));
        if phase == Phase::WarmUp {
            create(kubernetes, session, &name).await?;
        }
        let mut interest = hub.follow(&name);
        answered(namespaces.delete(&name, &DeleteParams::default()).await, "delete Namespace", &name)?;
        let gone = interest.until(|seen| seen.is_gone).await?;
        session.answered(&mut batch, 1, gone);
    }
    Ok(())
}
