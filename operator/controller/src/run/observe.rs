//! Reads what exists of a run from the API server, never from a cache: what is decided on it must not happen twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use storebench_core::across::Baseline;
use storebench_core::archive::{
    BASELINE_KEY, COMPONENT_LABEL, HEAD_KEY, RECORD_COMPONENT, RUN_LABEL, TRIAL_KEY, TrialFile, assemble, check_sealed,
    hash, read_head, read_trial,
};
use storebench_core::reason::Reason;
use storebench_core::record::RunRecord;
use storebench_crds::BenchmarkRun;

use super::step::{Deployed, Existing, Refusal};
use crate::apply::check_owner;
use crate::context::{Context, Filed};
use crate::error::{Error, Tried as _};
use crate::health::Trouble;
use crate::objects::{self, ARM_LABEL, COMPANION, CONTROL_PLANE, INSTANCE_LABEL, Labels, Owner, TRIAL_LABEL, names};

/// The key of the identities of services and control planes beside the record's head.
pub const SERVICES_KEY: &str = "services.json";

/// The beginning of a run, as it was written when it began.
#[derive(Clone, Debug)]
pub struct Head {
    /// The record without trials.
    pub record: RunRecord,
    /// The services, control planes and templates of workloads as they were; see [`super::references::References::identities`].
    pub services: BTreeMap<String, Identity>,
    /// What the run is held against, as it was when the run began.
    pub baseline: Option<Baseline>,
}

/// What a run refers to at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The object.
    pub uid: String,
    /// Its spec.
    pub generation: i64,
    /// Of a Secret, which has no generation, what tells whether it was changed; see [`crate::secrets::content`]. Of a template of a workload
    /// the hash of that workload, which one that is written in a run has, too; see [`storebench_core::fingerprint::of_workload`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// Everything there is of a run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Absent: it has not begun.
    pub head: Option<Head>,
    /// What was measured.
    pub files: Vec<Arc<TrialFile>>,
    /// The hashes of their ConfigMaps, by name.
    pub hashes: BTreeMap<String, String>,
    /// ConfigMaps that look like trials of this run and are none.
    pub strangers: Vec<String>,
    /// What exists besides.
    pub existing: Existing,
}

/// Reads everything of a run. `shared` selects the pods that are loaded directly.
pub async fn observe(context: &Context, owner: &Owner, shared: &[String]) -> Result<Observed, Error> {
    let (namespace, run) = (owner.namespace.as_str(), owner.reference.name.as_str());
    let (head, (filed, strangers), existing) = futures::try_join!(
        head(context, owner),
        files(context, owner),
        existing(&context.client, namespace, run, shared),
    )?;
    let hashes = filed.iter().map(|(name, filed)| (name.clone(), filed.hash.clone())).collect();
    let files = filed.into_iter().map(|(_, filed)| filed.file).collect();
    Ok(Observed { head, files, hashes, strangers, existing })
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
    let jobs = jobs.items;
    let uids = |all: Vec<&ObjectMeta>| -> Vec<(String, String)> {
        all.into_iter().filter_map(|one| Some((one.name.clone()?, one.uid.clone()?))).collect()
    };
    let known = Known {
        jobs: uids(jobs.iter().map(|job| &job.metadata).collect()),
        sets: uids(sets.items.iter().map(|set| &set.metadata).collect()),
    };
    let pods = pods.into_iter().filter(|pod| known.have_made(pod)).collect();
    let mut existing = Existing { jobs, pods, ..Existing::default() };
    let mut podless = Vec::new();
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
        if existing.pods.iter().all(|pod| !belongs_to(pod, "StatefulSet", &set.name_any())) {
            podless.push(("StatefulSet", set.name_any()));
        }
    }
    let without_pods = |job: &&Job| existing.pods.iter().all(|pod| !belongs_to(pod, "Job", &job.name_any()));
    podless.extend(existing.jobs.iter().filter(without_pods).map(|job| ("Job", job.name_any())));
    existing.refusals = refusals(client, namespace, podless).await?;
    Ok(existing)
}

/// The Jobs and StatefulSets of a run: names and uids.
struct Known {
    jobs: Vec<(String, String)>,
    sets: Vec<(String, String)>,
}

impl Known {
    /// Whether a pod with the run's labels is its own: one that its controller says is its. Anybody who may create pods could give one
    /// these labels. What made it may be gone already, as long as nothing else has its name.
    fn have_made(&self, pod: &Pod) -> bool {
        let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
            return false;
        };
        let known = match owner.kind.as_str() {
            "Job" => &self.jobs,
            "StatefulSet" => &self.sets,
            _ => return false,
        };
        known.iter().find(|(name, _)| *name == owner.name).is_none_or(|(_, uid)| *uid == owner.uid)
    }
}

fn belongs_to(pod: &Pod, kind: &str, name: &str) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == kind && owner.name == name)
}

/// Why these have no pods, where their controller has said so. Only an event says that a pod was refused.
async fn refusals(
    client: &Client,
    namespace: &str,
    podless: Vec<(&'static str, String)>,
) -> Result<Vec<Refusal>, Error> {
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let mut refusals = Vec::new();
    for (kind, name) in podless {
        let of_object = format!("involvedObject.kind={kind},involvedObject.name={name},reason=FailedCreate");
        let listed = events.list(&ListParams::default().fields(&of_object)).await.tried(|| "list Events".into())?;
        let message = listed.items.into_iter().filter_map(|event| event.message).next_back();
        refusals.extend(message.map(|message| Refusal { kind: kind.into(), name, message }));
    }
    Ok(refusals)
}

/// Reads the beginning of a run; `None`: it has not begun.
pub async fn head(context: &Context, owner: &Owner) -> Result<Option<Head>, Error> {
    let name = names::report(&owner.reference.name);
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), &owner.namespace);
    let Some(map) = maps.get_opt(&name).await.tried(|| format!("get ConfigMap {name}"))? else { return Ok(None) };
    check_owner::<ConfigMap>(&map.metadata, &owner.metadata(&name, &Labels::new()))?;
    check_signature(&map, owner, context)?;
    let data = map.data.unwrap_or_default();
    let text = |key: &str| data.get(key).map(String::as_str).unwrap_or_default();
    Ok(Some(Head {
        record: read_head(&name, text(HEAD_KEY))?,
        services: serde_json::from_str(text(SERVICES_KEY))?,
        baseline: data.get(BASELINE_KEY).map(|text| serde_json::from_str(text)).transpose()?,
    }))
}

/// The record of a run that is complete: all the trials that its verdict was found from, as this operator signed them. The inner error says
/// why it cannot be believed.
///
/// # Errors
/// [`Error`], if the API server cannot be asked.
pub async fn whole_record(run: &BenchmarkRun, context: &Context) -> Result<Result<RunRecord, Trouble>, Error> {
    let owner = Owner::of(run, RUN_LABEL).ok_or(Error::Incomplete("a BenchmarkRun without name, uid or namespace"))?;
    let uid = owner.reference.uid.as_str();
    let unbelievable = |message: String| Ok(Err(Trouble { reason: Reason::InvalidRecord, message }));
    let read = async { futures::try_join!(head(context, &owner), files(context, &owner)) }.await;
    // A run that is over is not read again.
    context.archive.forget(uid);
    let (head, filed) = match read {
        Ok((head, (filed, _))) => (head, filed),
        Err(error @ (Error::Tampered(_) | Error::Archive(_) | Error::Json(_) | Error::NameTaken { .. })) => {
            return unbelievable(error.for_user());
        }
        Err(error) => return Err(error),
    };
    let sealed = run.status.as_ref().and_then(|status| status.sealed_trials.as_ref());
    let (Some(head), Some(sealed)) = (head, sealed) else {
        return unbelievable("it has no record that is whole and signed: run it again under a new name".into());
    };
    let hashes = filed.iter().map(|(name, filed)| (name.clone(), filed.hash.clone())).collect();
    if let Err(refused) = check_sealed(sealed, &context.signer.public_key(), uid, &hashes) {
        return unbelievable(refused.to_string());
    }
    let files = filed.iter().map(|(_, filed)| TrialFile::clone(&filed.file)).collect();
    Ok(Ok(assemble(head.record, files, true)))
}

/// What the operator wrote bears its signature: everybody who may write ConfigMaps could have written it otherwise.
fn check_signature(map: &ConfigMap, owner: &Owner, context: &Context) -> Result<(), Error> {
    if context.signer.has_signed(&owner.reference.uid, map) {
        return Ok(());
    }
    Err(Error::Tampered(format!("ConfigMap {} is not what this operator wrote", map.name_any())))
}

/// The trials' files, and ConfigMaps that look like some and are none. Files never change, so each is fetched once and
/// remembered; which there are is asked every time.
///
/// What has another name than the operator's trials is left out: it hides nothing, and whoever may write ConfigMaps
/// could otherwise void every run. What is in the place of a trial voids the run: what was measured is not there any more.
async fn files(context: &Context, owner: &Owner) -> Result<(Vec<(String, Filed)>, Vec<String>), Error> {
    let (run, uid) = (owner.reference.name.as_str(), owner.reference.uid.as_str());
    let maps = Api::<ConfigMap>::namespaced(context.client.clone(), &owner.namespace);
    let labels = format!("{},{COMPONENT_LABEL}={RECORD_COMPONENT},{TRIAL_LABEL}", objects::of_run(run));
    let listed = maps.list_metadata(&ListParams::default().labels(&labels)).await.tried(|| "list ConfigMaps".into())?;
    let is_trial = |map: &PartialObjectMeta<ConfigMap>| {
        let label = |name: &str| map.labels().get(name);
        let index = label(TRIAL_LABEL).and_then(|index| index.parse().ok());
        let name = index.zip(label(ARM_LABEL)).map(|(index, arm)| names::trial(run, uid, index, arm));
        name.is_some_and(|name| name == map.name_any())
    };
    let (trials, strangers): (Vec<_>, Vec<_>) = listed.items.into_iter().partition(is_trial);
    let [trials, strangers] = [trials, strangers].map(|maps| maps.iter().map(|map| map.name_any()).collect::<Vec<_>>());
    if let Some(missing) = context.archive.missing(uid, &trials) {
        return Err(Error::Tampered(format!("ConfigMap {missing} with what was measured is gone")));
    }
    let mut files = Vec::with_capacity(trials.len());
    for name in trials {
        if let Some(filed) = context.archive.get(uid, &name) {
            files.push((name, filed));
            continue;
        }
        let map = maps.get(&name).await.tried(|| format!("get ConfigMap {name}"))?;
        check_signature(&map, owner, context)?;
        let data = map.data.unwrap_or_default();
        let file = read_trial(&name, data.get(TRIAL_KEY).map(String::as_str).unwrap_or_default())?;
        let filed = Filed { file: Arc::new(file), hash: hash(uid, &name, &data) };
        context.archive.put(uid, &name, filed.clone());
        files.push((name, filed));
    }
    Ok((files, strangers))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_the_runs_own_by_who_made_it_and_not_by_its_labels() {
        let pod = |owner: serde_json::Value| -> Pod {
            serde_json::from_value(json!({ "metadata": { "name": "p", "ownerReferences": owner } })).unwrap()
        };
        let owner = |kind: &str, name: &str, uid: &str, is_controller: bool| json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": is_controller }]);
        let pairs = |name: &str, uid: &str| vec![(name.to_owned(), uid.to_owned())];
        let known = Known { jobs: pairs("r-0-a", "j1"), sets: pairs("r-0-a", "s1") };
        for (is_own, owner) in [
            (true, owner("Job", "r-0-a", "j1", true)),
            (true, owner("StatefulSet", "r-0-a", "s1", true)),
            (true, owner("StatefulSet", "r-9-a", "gone", true)),
            (false, owner("Job", "r-0-a", "another", true)),
            (false, owner("Job", "r-0-a", "j1", false)),
            (false, owner("ReplicaSet", "r-0-a", "j1", true)),
            (false, json!([])),
        ] {
            assert_eq!(known.have_made(&pod(owner.clone())), is_own, "{owner}");
        }
    }
}
