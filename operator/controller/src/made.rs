//! What suites and schedules make, as the API server has it: whose it is, and what became of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Resource, ResourceExt as _};
use serde::Deserialize;
use storebench_core::recurrence::SCHEDULED_ANNOTATION;
use storebench_crds::status::Verdict;

use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::objects::{MANAGED_BY, MANAGED_BY_LABEL, Owner};
use crate::queue::is_true;

/// A run or suite that somebody made for an owner.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// Its kind, in which it is deleted.
    pub kind: ApiResource,
    /// The time that it was made for, or else when it was made.
    pub time: Timestamp,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// The verdict, once it is complete. One that this version does not know cannot be trusted.
    pub verdict: Option<Verdict>,
    /// Why it waits for its user, where it does.
    pub stalled: Option<String>,
    /// What its column of throughput says.
    pub throughput_ratio: Option<String>,
}

/// Of a status, what runs and suites have in common.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Said {
    conditions: Vec<Condition>,
    verdict: Option<String>,
    columns: Columns,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Columns {
    throughput_ratio: Option<String>,
}

impl Made {
    fn of(kind: &ApiResource, object: &DynamicObject) -> Self {
        let said: Said = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        let is_complete = is_true(&said.conditions, "Complete");
        let verdict = said.verdict.and_then(|verdict| serde_json::from_value(verdict.into()).ok());
        let stalled = said.conditions.iter().find(|one| one.type_ == "Stalled" && one.status == "True");
        let annotated = object.annotations().get(SCHEDULED_ANNOTATION).and_then(|time| time.parse().ok());
        let created = object.creation_timestamp().map(|time| time.0);
        Self {
            name: object.name_any(),
            kind: kind.clone(),
            time: annotated.or(created).unwrap_or(Timestamp::MIN),
            is_deleted: object.metadata.deletion_timestamp.is_some(),
            verdict: is_complete.then(|| verdict.unwrap_or(Verdict::Invalid)),
            stalled: stalled.filter(|_| !is_complete).map(|one| one.message.clone()),
            throughput_ratio: said.columns.throughput_ratio,
        }
    }
}

/// The objects of a kind as they are, also those that this version cannot read.
pub fn api(context: &Context, namespace: &str, kind: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(context.client.clone(), namespace, kind)
}

/// What of a kind was made for an owner, by the label that its objects have.
pub async fn all<K>(owner: &Owner, label: &str, context: &Context) -> Result<Vec<Made>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let labels = format!("{MANAGED_BY_LABEL}={MANAGED_BY},{label}={}", owner.reference.name);
    let kind = ApiResource::erase::<K>(&());
    let api = api(context, &owner.namespace, &kind);
    let listed = api.list(&ListParams::default().labels(&labels)).await.tried(|| format!("list {}s", kind.kind))?;
    let is_own = |object: &&DynamicObject| object.owner_references().iter().any(|one| one.uid == owner.reference.uid);
    Ok(listed.items.iter().filter(is_own).map(|object| Made::of(&kind, object)).collect())
}

/// Makes an object the owner's: with it, it goes.
pub fn give_to<K: Resource<DynamicType = ()>>(object: &mut K, owner: &Owner) {
    let metadata = object.meta_mut();
    metadata.namespace = Some(owner.namespace.clone());
    metadata.owner_references = Some(vec![owner.reference.clone()]);
    metadata.labels.get_or_insert_default().insert(MANAGED_BY_LABEL.into(), MANAGED_BY.into());
}

/// What of a run or suite its maker cares about: trials come and go, and are none of its business.
pub fn milestone(deleted: bool, conditions: &[Condition]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    (deleted, is_true(conditions, "Complete"), is_true(conditions, "Stalled")).hash(&mut hasher);
    Some(hasher.finish())
}
