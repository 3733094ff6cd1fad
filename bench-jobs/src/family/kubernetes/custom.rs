//! CustomResourceChurn: each client creates a custom resource, changes it, deletes it, and begins anew. Each request counts.

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;

use super::{Kubernetes, answered, manifests, now};
use crate::failure::Failure;
use crate::load::session::Session;

/// What is done to an object next.
enum Step {
    Create,
    Change,
    Delete,
}

/// The load.
pub async fn load(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let kind = manifests::custom_kind(&plan.scope);
    let api: Api<DynamicObject> = Api::namespaced_with(kubernetes.client(session), &plan.scope.namespace(), &kind);
    let mut name = String::new();
    let mut step = Step::Create;
    while let Some(mut batch) = session.next().await {
        step = match step {
            Step::Create => {
                name = plan.next_name(session.phase());
                let object = manifests::custom_resource(&plan.scope, &name, &kubernetes.content(&name, 0));
                answered(api.create(&PostParams::default(), &object).await, "create", &name)?;
                session.answered(&mut batch, 1, now());
                plan.expected.set(&name, 0);
                Step::Change
            }
            Step::Change => {
                let patch = Patch::Merge(manifests::custom_resource_change(&kubernetes.content(&name, 1)));
                answered(api.patch(&name, &PatchParams::default(), &patch).await, "patch", &name)?;
                session.answered(&mut batch, 1, now());
                plan.expected.set(&name, 1);
                Step::Delete
            }
            Step::Delete => {
                answered(api.delete(&name, &DeleteParams::default()).await, "delete", &name)?;
                session.answered(&mut batch, 1, now());
                plan.expected.remove(&name);
                Step::Create
            }
        };
    }
    Ok(())
}
