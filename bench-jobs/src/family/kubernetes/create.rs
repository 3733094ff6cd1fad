//! Load that creates: CreateNamespaces, CreateConfigMaps. Each until it is acknowledged.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::PostParams;

use super::{Kubernetes, answered, manifests, now};
use crate::failure::Failure;
use crate::load::session::Session;

/// Creates namespaces.
pub async fn namespaces(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let (plan, phase) = (&kubernetes.plan, session.phase());
    let api = Api::<Namespace>::all(kubernetes.client(session));
    while let Some(mut batch) = session.next().await {
        let name = plan.scope.created_namespace(phase, plan.next_number(phase));
        let created = api.create(&PostParams::default(), &manifests::namespace(&plan.scope, &name)).await;
        answered(created, "create Namespace", &name)?;
        session.answered(&mut batch, 1, now());
        plan.expected.set(&name, 0);
    }
    Ok(())
}

/// Creates ConfigMaps.
pub async fn config_maps(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<ConfigMap>(session);
    while let Some(mut batch) = session.next().await {
        let name = plan.next_name(session.phase());
        let object = manifests::config_map(&plan.scope, &name, kubernetes.content(&name, 0));
        answered(api.create(&PostParams::default(), &object).await, "create ConfigMap", &name)?;
        session.answered(&mut batch, 1, now());
        plan.expected.set(&name, 0);
    }
    Ok(())
}
