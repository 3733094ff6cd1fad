//! Applies what [`crate::objects::store`] builds, the StatefulSet last: it is by that one that a role is known to be there.

use kube::Client;

use crate::apply::apply;
use crate::error::Error;
use crate::objects::store::RoleObjects;

/// Applies a role of a store.
pub async fn role(client: &Client, objects: RoleObjects) -> Result<(), Error> {
    // Without `..`: an object that is forgotten here does not compile.
    let RoleObjects { stateful_set, service, network_policy, disruption_budget, files, strike } = objects;
    apply(client, &network_policy).await?;
    apply(client, &service).await?;
    if let Some(files) = files {
        apply(client, &files).await?;
    }
    if let Some(secret) = strike {
        apply(client, &secret).await?;
    }
    if let Some(budget) = disruption_budget {
        apply(client, &budget).await?;
    }
    apply(client, &stateful_set).await
}
