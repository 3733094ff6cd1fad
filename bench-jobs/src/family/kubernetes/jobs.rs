//! CreateJobs: from the request to create a Job of one pod to the event that it is Complete.

use k8s_openapi::api::batch::v1::Job;
use kube::api::PostParams;

use super::{Kubernetes, answered, manifests, opened, outcome};
use crate::failure::Failure;
use crate::load::session::Session;

/// Creates Jobs.
pub async fn load(kubernetes: &Kubernetes, session: &Session) -> Result<(), Failure> {
    let plan = &kubernetes.plan;
    let api = kubernetes.api::<Job>(session);
    let hub = opened(&kubernetes.jobs)?;
    while let Some(mut batch) = session.next().await {
        let name = plan.next_name(session.phase());
        let mut interest = hub.follow(&name);
        answered(api.create(&PostParams::default(), &manifests::job(&plan.scope, &name)).await, "create Job", &name)?;
        let ended = interest.until(|seen| outcome::completion(&seen.object).is_some()).await?;
        session.answered(&mut batch, 1, ended);
        plan.expected.set(&name, 0);
    }
    Ok(())
}
