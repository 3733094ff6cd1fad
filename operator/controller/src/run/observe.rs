//! Reads what exists of a run from the API server, never from a cache: what is decided on it must not happen twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use storebench_core::archive::{
    COMPONENT_LABEL, HEAD_KEY, RECORD_COMPONENT, TRIAL_KEY, TrialFile, read_head, read_trial,
};
use storebench_core::record::RunRecord;

use super::step::{Deployed, Existing};
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::objects::{self, COMPANION, CONTROL_PLANE, INSTANCE_LABEL, TRIAL_LABEL, names};

/// The key of the identities of services and control planes beside the record's head.
pub const SERVICES_KEY: &str = "services.json";

/// The beginning of a run, as it was written when it began.
#[derive(Clone, Debug)]
pub struct Head {
    /// The record without trials.
    pub record: RunRecord,
    /// The services and control planes as they were; see [`super::references::References::identities`].
    pub services: BTreeMap<String, Identity>,
}

/// A service or control plane at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The object.
    pub uid: String,
    /// Its spec.
    pub generation: i64,
}

/// Everything there is of a run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Absent: it has not begun.
    pub head: Option<Head>,
    /// What was measured.
    pub files: Vec<Arc<TrialFile>>,
    /// What exists besides.
    pub existing: Existing,
}

/// Reads everything of a run. `shared` selects the pods that are loaded directly.
pub async fn observe(
    context: &Context,
    namespace: &str,
    run: &str,
    uid: &str,
    shared: &[String],
) -> Result<Observed, Error> {
    let (head, files, existing) = futures::try_join!(
        head(&context.client, namespace, run),
        files(context, namespace, run, uid),
        existing(&context.client, namespace, run, shared),
    )?;
    Ok(Observed { head, files, existing })
}

/// Reads what exists of a run besides its record.
pub async fn existing(client: &Client, namespace: &str, run: &str, shared: &[String]) -> Result<Existing, Error> {
    let selected = ListParams::default().labels(&objects::of_run(run));
    let jobs = Api::<Job>::namespaced(client.clone(), namespace);
    let stores = Api::<StatefulSet>::namespaced(client.clone(), namespace);
    let (jobs, sets, pods) = futures::try_join!(
        async { jobs.list(&selected).await.tried(|| "list Jobs".into()) },
        async { stores.list_metadata(&selected).await.tried(|| "list StatefulSets".into()) },
        pods(client, namespace, run, shared),
    )?;
    let mut existing = Existing { jobs: jobs.items, pods, ..Existing::default() };
    for set in sets.items {
        let Some(created) = set.metadata.creation_timestamp.as_ref() else { continue };
        let deployed = Deployed {
            name: set.labels().get(INSTANCE_LABEL).cloned().unwrap_or_default(),
            created: created.0,
            is_stopping: set.metadata.deletion_timestamp.is_some(),
        };
        match set.labels().get(COMPONENT_LABEL).map(String::as_str) {
            Some(CONTROL_PLANE) => existing.control_planes.push(deployed),
            Some(COMPANION) => existing.companions.push(deployed),
            _ => existing.stores.push(deployed),
        }
    }
    Ok(existing)
}

async fn head(client: &Client, namespace: &str, run: &str) -> Result<Option<Head>, Error> {
    let name = names::report(run);
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get_opt(&name)
        .await
        .tried(|| format!("get ConfigMap {name}"))?;
    let Some(data) = map.and_then(|map| map.data) else { return Ok(None) };
    let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
    Ok(Some(Head { record: read_head(&name, text(HEAD_KEY))?, services: serde_json::from_str(text(SERVICES_KEY))? }))
}

/// The trials' files. They never change, so each is fetched once and remembered; which there are is asked every time.
async fn files(context: &Context, namespace: &str, run: &str, uid: &str) -> Result<Vec<Arc<TrialFile>>, Error> {
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), namespace);
    let labels = format!("{},{COMPONENT_LABEL}={RECORD_COMPONENT},{TRIAL_LABEL}", objects::of_run(run));
    let listed = maps.list_metadata(&ListParams::default().labels(&labels)).await.tried(|| "list ConfigMaps".into())?;
    let mut files = Vec::with_capacity(listed.items.len());
    for name in listed.items.iter().map(|map| map.name_any()) {
        if let Some(file) = context.archive.get(uid, &name) {
            files.push(file);
            continue;
        }
        let map = maps.get(&name).await.tried(|| format!("get ConfigMap {name}"))?;
        let data = map.data.unwrap_or_default();
        let file = Arc::new(read_trial(&name, data.get(TRIAL_KEY).map(String::as_str).unwrap_or_default())?);
        context.archive.put(uid, &name, Arc::clone(&file));
        files.push(file);
    }
    Ok(files)
}

async fn pods(client: &Client, namespace: &str, run: &str, shared: &[String]) -> Result<Vec<Pod>, Error> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let mut labels = vec![objects::of_run(run)];
    labels.extend(shared.iter().cloned());
    let mut pods = Vec::new();
    for labels in labels {
        pods.extend(api.list(&ListParams::default().labels(&labels)).await.tried(|| "list Pods".into())?.items);
    }
    Ok(pods)
}
