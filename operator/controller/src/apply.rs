//! Writing to the API server: server-side apply with one field manager, and deletion by label.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Tried as _};
use crate::objects::FIELD_MANAGER;

/// Applies an object: what it says becomes true, what it leaves out and others have set stays.
pub async fn apply<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api::<K>(client, object)
        .patch(&name, &parameters, &Patch::Apply(object))
        .await
        .tried(|| format!("apply {} {name}", K::kind(&())))?;
    Ok(())
}

/// Creates an object unless it is there already: for what must not happen twice.
pub async fn create<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match api::<K>(client, object).create(&parameters, object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        result => result.map(|_| ()).tried(|| format!("create {} {}", K::kind(&()), object.name_any())),
    }
}

/// Deletes every object of a kind that these labels select, dependents after it.
pub async fn delete_selected<K>(client: &Client, namespace: &str, labels: &str) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    Api::<K>::namespaced(client.clone(), namespace)
        .delete_collection(&DeleteParams::background(), &ListParams::default().labels(labels))
        .await
        .tried(|| format!("delete {} with {labels}", K::plural(&())))?;
    Ok(())
}

fn api<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let namespace = object.meta().namespace.as_deref().unwrap_or("default");
    Api::namespaced(client.clone(), namespace)
}
