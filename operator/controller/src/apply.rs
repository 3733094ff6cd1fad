//! Writing to the API server: server-side apply with one field manager, and deletion by label. What belongs to somebody else is
//! neither changed nor taken over, and so not deleted with what the operator made.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
    let api = api::<K>(client, object);
    let found = api.get_metadata_opt(&name).await.tried(|| format!("get {} {name}", K::kind(&())))?;
    let mut object = object.clone();
    let parameters = PatchParams::apply(FIELD_MANAGER);
    let parameters = match found {
        // Who makes one of this name in this very moment owns its fields, which is a conflict.
        None => parameters,
        Some(found) => {
            check_owner::<K>(&found.metadata, object.meta())?;
            // That one, should it be replaced in this very moment.
            object.meta_mut().uid = found.metadata.uid;
            parameters.force()
        }
    };
    api.patch(&name, &parameters, &Patch::Apply(&object)).await.tried(|| format!("apply {} {name}", K::kind(&())))?;
    Ok(())
}

/// Creates an object unless it is there already: for what must not happen twice.
pub async fn create<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let api = api::<K>(client, object);
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match api.create(&parameters, object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let found = api.get_metadata_opt(&name).await.tried(|| format!("get {} {name}", K::kind(&())))?;
            // One that is gone again is created with the next look.
            let found = found.ok_or_else(|| Error::StillThere(format!("{} {name}", K::kind(&()))))?;
            check_owner::<K>(&found.metadata, object.meta())
        }
        result => result.map(|_| ()).tried(|| format!("create {} {name}", K::kind(&()))),
    }
}

/// Whether an object that was found has the owner that the operator would give it.
pub fn check_owner<K: Resource<DynamicType = ()>>(found: &ObjectMeta, wanted: &ObjectMeta) -> Result<(), Error> {
    let Some(wanted) = wanted.owner_references.iter().flatten().next() else { return Ok(()) };
    let owners = || found.owner_references.iter().flatten();
    if owners().any(|owner| owner.uid == wanted.uid) {
        return Ok(());
    }
    let object = format!("{} {}", K::kind(&()), found.name.as_deref().unwrap_or_default());
    if owners().any(|owner| owner.kind == wanted.kind && owner.name == wanted.name) {
        return Err(Error::StillThere(object));
    }
    let owner = owners().next().map_or_else(|| "somebody else".into(), |one| format!("{}/{}", one.kind, one.name));
    Err(Error::NameTaken { object, owner })
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    fn owned(kind: &str, name: &str, uid: &str) -> ObjectMeta {
        let owner = json!({ "apiVersion": "storebench.dev/v1alpha1", "kind": kind, "name": name, "uid": uid });
        serde_json::from_value(json!({ "name": "a-k8s", "ownerReferences": [owner] })).unwrap()
    }

    #[test]
    fn what_belongs_to_somebody_else_is_not_taken_over() {
        let wanted = owned("ControlPlane", "a", "1");
        assert!(check_owner::<Service>(&wanted, &wanted).is_ok());
        let said = |found: &ObjectMeta| check_owner::<Service>(found, &wanted).unwrap_err();
        let other = said(&owned("StorageService", "a-k8s", "2"));
        let message = other.to_string();
        assert!(
            message.starts_with("Service a-k8s is there already and belongs to StorageService/a-k8s: "),
            "{message}"
        );
        assert!(other.is_final(0));
        let nobody = ObjectMeta { name: Some("a-k8s".into()), ..ObjectMeta::default() };
        assert!(said(&nobody).to_string().contains("belongs to somebody else"));
    }

    #[test]
    fn what_an_object_of_the_same_name_left_is_waited_for() {
        let (wanted, earlier) = (owned("ControlPlane", "a", "2"), owned("ControlPlane", "a", "1"));
        assert!(!check_owner::<Service>(&earlier, &wanted).unwrap_err().is_final(1_000));
    }
}
