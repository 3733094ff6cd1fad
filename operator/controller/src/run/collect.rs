//! Reads what a trial's load pods measured: the summary from the termination message, everything else from the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt as _};
use storebench_core::archive::{COMPONENT_LABEL, RECORD_COMPONENT, TRIAL_KEY, TrialFile};
use storebench_core::ledger::number;
use storebench_core::placement;
use storebench_core::record::{FailureCause, TrialFailure, TrialRecord};
use storebench_core::trial::{Gathering, Loaded, merge};
use storebench_crds::job::JobSummary;
use storebench_crds::status::TrialState;

use super::load_pods::{self, is_load_pod};
use super::step::{Existing, Members, Trial, began};
use crate::error::{Error, Tried as _};
use crate::health;
use crate::objects::load::{LOAD_CONTAINER, STARTED_ANNOTATION};
use crate::objects::store::STORE_CONTAINER;
use crate::objects::{self, COMPANION, Owner, ROLE_LABEL};

/// Begins the names of facts about images.
const IMAGE_FACT: &str = "image of ";
/// No load pod writes a longer log; more is cut off, and what is then missing is said.
const LOG_BYTES_MAX: i64 = 8 << 20;

/// Reads what the load pods of a finished Job measured. `members` are the pods that were loaded.
pub async fn collect(
    client: &Client,
    namespace: &str,
    trial: &Trial,
    existing: &Existing,
    members: &Members,
) -> Result<Loaded, Error> {
    let pods = load_pods::of_trial(&existing.pods, &trial.name);
    if pods.is_empty() {
        return Ok(Loaded::failed(FailureCause::Disturbed, "the load pod was deleted before its log was read".into()));
    }
    let job = existing.jobs.iter().find(|job| job.name_any() == trial.name);
    if let Some(failure) = load_pods::too_many(&pods, job) {
        return Ok(failure.into());
    }
    let mut processes = Vec::with_capacity(pods.len());
    for pod in pods {
        processes.push(of_pod(client, namespace, &trial.arm, pod).await?);
    }
    let mut loaded = merge(processes)
        .unwrap_or_else(|error| Loaded::failed(FailureCause::Platform, format!("the load pods' logs: {error}")));
    if let Some(failure) = job.and_then(|job| members.death(&existing.pods, began(job), &trial.name)) {
        loaded.ended_by(failure);
    }
    Ok(loaded)
}

async fn of_pod(client: &Client, namespace: &str, arm: &str, pod: &Pod) -> Result<Loaded, Error> {
    let name = pod.name_any();
    let summary = match load_pods::summary(pod) {
        Ok(summary) => summary,
        Err(detail) => return Ok(Loaded::failed(FailureCause::Platform, format!("the load pod {name} {detail}"))),
    };
    let parameters =
        LogParams { container: Some(LOAD_CONTAINER.into()), limit_bytes: Some(LOG_BYTES_MAX), ..LogParams::default() };
    let log = match Api::<Pod>::namespaced(client.clone(), namespace).logs(&name, &parameters).await {
        Ok(log) => log,
        // A pod that was deleted in the meantime will not come back with the next attempt.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let detail = format!("the load pod {name} was deleted before its log was read");
            return Ok(without_log(summary, TrialFailure { cause: FailureCause::Disturbed, detail }));
        }
        Err(error) => return Err(error).tried(|| format!("read the log of Pod {name}")),
    };
    Ok(gather(&name, arm, &log, summary))
}

/// Of a pod whose log cannot be read nothing counts as measured, for this reason. A wrong answer that its summary tells of stays: who deletes the
/// pod afterwards would have it repeated.
fn without_log(summary: JobSummary, failure: TrialFailure) -> Loaded {
    let mut loaded = Loaded { failure: Gathering::default().finish(summary).failure, ..Loaded::default() };
    loaded.ended_by(failure);
    loaded
}

/// From a log and a summary to what was measured.
fn gather(pod: &str, arm: &str, log: &str, summary: JobSummary) -> Loaded {
    let mut gathering = Gathering::default();
    for line in log.lines() {
        if let Err(error) = gathering.line(line) {
            let detail = format!("the log of the load pod {pod}: {error}");
            return without_log(summary, TrialFailure { cause: FailureCause::Platform, detail });
        }
    }
    let left = gathering.left_behind(arm).map(|words| format!("; {words}"));
    let mut loaded = gathering.finish(summary);
    if let (Some(failure), Some(left)) = (&mut loaded.failure, left) {
        failure.detail.push_str(&left);
    }
    let cut = loaded.workloads.iter().find(|workload| workload.histograms.is_empty());
    if let (Some(cut), None) = (cut, &loaded.failure) {
        let detail = format!("the log of the load pod {pod} lacks the histogram of {}: it was cut", cut.summary.name);
        return Loaded::failed(FailureCause::Platform, detail);
    }
    loaded
}

/// What a tag meant in this trial: the digests of the images that ran, as the nodes tell them.
fn images(pods: &[Pod], trial: &Trial, members: &Members) -> BTreeMap<String, String> {
    let digest = |pod: &Pod, container: &str| {
        let status = health::containers(pod).find(|status| status.name == container)?;
        (!status.image_id.is_empty()).then(|| status.image_id.clone())
    };
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |of: String, digest: Option<String>| {
        found.entry(format!("{IMAGE_FACT}{of}")).or_default().extend(digest);
    };
    for pod in pods {
        let is_load = is_load_pod(pod, &trial.name);
        if is_load {
            add("the load".into(), digest(pod, LOAD_CONTAINER));
        }
        // A store may run beside the load.
        if is_load || members.store.contains(&pod.name_any()) {
            add(trial.arm.clone(), digest(pod, STORE_CONTAINER));
        }
        if members.companions.contains(&pod.name_any())
            && let Some(role) = pod.labels().get(ROLE_LABEL)
        {
            add(format!("{role} of {}", trial.arm), digest(pod, STORE_CONTAINER));
        }
    }
    let facts = found.into_iter().map(|(fact, digests)| (fact, digests.into_iter().collect::<Vec<_>>().join(" ")));
    facts.filter(|(_, digests)| !digests.is_empty()).collect()
}

/// On which nodes the parts of a trial ran.
fn nodes(pods: &[Pod], trial: &Trial, members: &Members) -> BTreeMap<String, String> {
    let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    let of_member = |name: &String| node(pods.iter().find(|pod| pod.name_any() == *name)?);
    let numbered = |group: &'static str, names: &[String]| -> Vec<_> {
        let nodes = names.iter().enumerate();
        nodes.filter_map(|(number, name)| Some((placement::part(group, number), of_member(name)?))).collect()
    };
    let mut nodes = numbered(placement::STORE, &members.store);
    nodes.extend(numbered(placement::CONTROL_PLANE, members.control_plane.as_slice()));
    nodes.extend(numbered(COMPANION, &members.companions));
    let load = pods.iter().filter(|pod| is_load_pod(pod, &trial.name));
    nodes.extend(load.filter_map(|pod| {
        let number = load_pods::index(pod).unwrap_or_default();
        Some((placement::part(placement::LOAD, number), node(pod)?))
    }));
    nodes.into_iter().collect()
}

/// Why trials cannot be compared with one another: a tag came to mean another image in mid-run.
pub fn changed_image(trials: &[TrialRecord], files: &[Arc<TrialFile>]) -> Option<String> {
    // They come as they are listed, and `before` is meant.
    let mut files: Vec<&TrialFile> = files.iter().map(Arc::as_ref).collect();
    files.sort_by_key(|file| file.trial.started_millis);
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        for (fact, digest) in file.facts.iter().filter(|(fact, _)| fact.starts_with(IMAGE_FACT)) {
            let first = *known.entry(fact).or_insert(digest);
            if first != digest {
                let number = number(trials, file.trial.index);
                return Some(format!("the {fact} was another in trial {number}: {digest}, and {first} before"));
            }
        }
    }
    None
}

/// The trial's file. `begun_millis` is when the run began, milliseconds since 1970.
pub fn file(
    trial: &Trial,
    loaded: Loaded,
    existing: &Existing,
    members: &Members,
    command: Vec<String>,
    begun: Timestamp,
    now: Timestamp,
) -> TrialFile {
    let job = existing.jobs.iter().find(|job| job.name_any() == trial.name);
    let annotated = job.and_then(|job| job.annotations().get(STARTED_ANNOTATION)?.parse::<Timestamp>().ok());
    let created = || existing.stores.iter().find(|store| store.name == trial.name).map(|store| store.created);
    let started = annotated.or_else(created).unwrap_or(now);
    let millis = |from: Timestamp, to: Timestamp| (to.as_millisecond() - from.as_millisecond()).max(0).unsigned_abs();
    let store = loaded.store.unwrap_or_default();
    let mut facts = store.facts.clone();
    facts.extend(images(&existing.pods, trial, members));
    TrialFile {
        version: store.version.clone(),
        command,
        facts,
        trial: TrialRecord {
            index: trial.index,
            arm: trial.arm.clone(),
            state: if loaded.failure.is_some() { TrialState::Invalid } else { TrialState::Valid },
            failure: loaded.failure,
            started_millis: millis(begun, started),
            duration_millis: millis(started, now),
            waited_millis: None,
            nodes: nodes(&existing.pods, trial, members),
            workloads: loaded.workloads,
            footprint: (store.footprint.binary_bytes > 0).then_some(store.footprint),
            idle: (store.idle.elapsed_nanos > 0).then_some(store.idle),
            disk_bytes: store.disk_bytes,
        },
    }
}

/// The ConfigMap that a trial's file is kept in. It can be written once.
pub fn config_map(owner: &Owner, trial: &Trial, file: &TrialFile) -> Result<ConfigMap, Error> {
    let mut labels = objects::trial(trial.index, &trial.arm);
    labels.insert(COMPONENT_LABEL.into(), RECORD_COMPONENT.into());
    Ok(ConfigMap {
        metadata: owner.metadata(&trial.name, &labels),
        data: Some([(TRIAL_KEY.to_owned(), serde_json::to_string(file)?)].into()),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use storebench_crds::job::JobLine;

    fn file(index: u32, arm: &str, digest: &str) -> Arc<TrialFile> {
        let pods: Vec<Pod> = [("run-0-a-0", "store"), ("load-0", "load")]
            .map(|(pod, container)| {
                serde_json::from_value(json!({
                    "metadata": { "name": pod, "labels": {
                        COMPONENT_LABEL: objects::LOAD, objects::INSTANCE_LABEL: format!("of {container}"),
                    } },
                    "status": { "containerStatuses": [{
                        "name": container, "image": "etcd:3", "imageID": digest, "ready": true, "restartCount": 0,
                    }] },
                }))
                .unwrap()
            })
            .into();
        let trial = Trial { index, arm: arm.into(), name: "of load".into() };
        let existing = Existing { pods, ..Existing::default() };
        let members = Members { store: vec!["run-0-a-0".into()], ..Members::default() };
        let now = Timestamp::UNIX_EPOCH;
        let mut file = super::file(&trial, Loaded::default(), &existing, &members, Vec::new(), now, now);
        file.trial.started_millis = u64::from(index) * 1_000;
        Arc::new(file)
    }

    #[test]
    fn a_tag_that_came_to_mean_another_image_is_noticed() {
        let facts = file(0, "a", "sha256:1").facts.clone();
        assert_eq!(facts["image of a"], "sha256:1");
        assert_eq!(facts["image of the load"], "sha256:1");
        assert_eq!(
            changed_image(&[], &[file(0, "a", "sha256:1"), file(0, "b", "sha256:1"), file(1, "a", "sha256:1")]),
            None
        );
        let said = changed_image(&[], &[file(0, "a", "sha256:1"), file(1, "a", "sha256:2")]).unwrap();
        assert_eq!(said, "the image of a was another in trial 2: sha256:2, and sha256:1 before");
        assert_eq!(changed_image(&[], &[file(0, "a", ""), file(1, "a", "")]), None, "no node told");
    }

    #[test]
    fn an_image_that_changed_is_told_by_time_however_the_trials_are_listed() {
        let said = changed_image(&[], &[file(1, "a", "sha256:2"), file(0, "a", "sha256:1")]).unwrap();
        assert_eq!(said, "the image of a was another in trial 2: sha256:2, and sha256:1 before");
    }

    /// A baseline was taken for unchanged whose object store was another.
    #[test]
    fn what_the_tag_of_a_companion_meant_is_on_record() {
        let members = Members { companions: vec!["t-object-store-0".into()], ..Members::default() };
        let trial = Trial { index: 0, arm: "a".into(), name: "t".into() };
        let of = |name: &str, digest: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": name, "labels": { ROLE_LABEL: "object-store" } },
                "status": { "containerStatuses": [{
                    "name": "store", "image": "versitygw:1", "imageID": digest, "ready": true, "restartCount": 0,
                }] },
            }))
            .unwrap();
            images(&[pod], &trial, &members)
        };
        let expected = ("image of object-store of a".to_owned(), "sha256:1".to_owned());
        assert_eq!(of("t-object-store-0", "sha256:1"), BTreeMap::from([expected]));
        assert_eq!(of("t-object-store-0", ""), BTreeMap::new(), "no node told");
        assert_eq!(of("somebody", "sha256:1"), BTreeMap::new(), "it is no companion of this trial");
    }

    #[test]
    fn every_part_of_a_trial_is_on_record_with_its_node() {
        let pod = |name: &str, labels: serde_json::Value, index: &str, node: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "name": name, "labels": labels, "annotations": { load_pods::INDEX_ANNOTATION: index } },
                "spec": { "nodeName": node, "containers": [] },
            }))
            .unwrap()
        };
        let load = json!({ COMPONENT_LABEL: objects::LOAD, objects::INSTANCE_LABEL: "t" });
        let pods = [
            pod("t-1", json!({}), "", "n2"),
            pod("t-0", json!({}), "", "n1"),
            pod("t-k8s-0", json!({}), "", "n3"),
            pod("t-object-store-0", json!({}), "", "n1"),
            pod("t-1-xyz", load.clone(), "1", "n3"),
            pod("t-0-abc", load, "0", "n2"),
            pod("somebody", json!({}), "", "n4"),
        ];
        let members = Members {
            store: vec!["t-0".into(), "t-1".into()],
            companions: vec!["t-object-store-0".into()],
            control_plane: Some("t-k8s-0".into()),
            ..Members::default()
        };
        let trial = Trial { index: 0, arm: "a".into(), name: "t".into() };
        let found: Vec<_> = nodes(&pods, &trial, &members).into_iter().collect();
        let expected = [
            ("companion-0", "n1"),
            ("control-plane-0", "n3"),
            ("load-0", "n2"),
            ("load-1", "n3"),
            ("store-0", "n1"),
            ("store-1", "n2"),
        ];
        assert_eq!(found, expected.map(|(part, node)| (part.to_owned(), node.to_owned())));
    }

    #[test]
    fn what_a_load_could_not_remove_from_somebody_s_store_is_told_with_why_it_failed() {
        let failed =
            json!({ "outcome": { "kind": "storeFailed", "workload": "set", "detail": "gone" }, "workloads": [] });
        let failed: JobSummary = serde_json::from_value(failed).unwrap();
        let namespace = JobLine::Namespace {
            workload: "set".into(),
            prefix: "storebench:1a2b3c4d:".into(),
            removal: "redis-cli unlink".into(),
        };
        let removed = JobLine::NamespaceRemoved { workload: "set".into() };
        let said = |lines: &[&JobLine]| {
            let log: String = lines.iter().map(|line| format!("{}\n", line.encode())).collect();
            gather("load-0", "mine", &log, failed.clone()).failure.unwrap().detail
        };
        let detail = said(&[&namespace]);
        assert!(
            detail.contains("gone") && detail.contains("storebench:1a2b3c4d:") && detail.ends_with("redis-cli unlink"),
            "{detail}"
        );
        assert!(!said(&[&namespace, &removed]).contains("storebench:"));
    }

    /// A pod that was deleted before its log was read had its wrong answer repeated.
    #[test]
    fn a_wrong_answer_outlives_its_log() {
        let summary = |outcome: serde_json::Value| -> JobSummary {
            serde_json::from_value(json!({ "outcome": outcome, "workloads": [{
                "name": "put", "operations": 1, "errors": 0, "elapsedNanos": 1, "verified": 0,
                "service": { "p50Nanos": 1, "p99Nanos": 1, "maxNanos": 1 },
            }] }))
            .unwrap()
        };
        let wrong = || {
            summary(json!({ "kind": "wrongAnswer", "workload": "put", "count": 1, "key": "k", "detail": "it is old" }))
        };
        let deleted = || TrialFailure { cause: FailureCause::Disturbed, detail: "deleted".into() };
        let told = without_log(wrong(), deleted());
        assert!(told.workloads.is_empty(), "what has no histograms was not measured");
        let failure = told.failure.unwrap();
        assert_eq!(failure.cause, FailureCause::WrongAnswer);
        assert!(failure.detail.ends_with("it is old"), "{}", failure.detail);
        let damaged = JobLine::Histogram {
            workload: "put".into(),
            latency: storebench_crds::job::LatencyKind::Service,
            data: "no histogram".into(),
        };
        let of_damaged = |summary| gather("load-0", "mine", &damaged.encode(), summary).failure.unwrap().cause;
        assert_eq!(of_damaged(wrong()), FailureCause::WrongAnswer);
        let completed = || summary(json!({ "kind": "completed" }));
        assert_eq!(of_damaged(completed()), FailureCause::Platform);
        assert_eq!(without_log(completed(), deleted()).failure, Some(deleted()));
    }

    #[test]
    fn a_log_without_its_histograms_does_not_count() {
        let text = json!({ "outcome": { "kind": "completed" }, "workloads": [{
            "name": "put", "operations": 1, "errors": 0, "elapsedNanos": 1, "verified": 0,
            "service": { "p50Nanos": 1, "p99Nanos": 1, "maxNanos": 1 },
        }] });
        let summary: JobSummary = serde_json::from_value(text).unwrap();
        let failure = gather("load-0", "mine", "a line for people\n", summary).failure.unwrap();
        assert_eq!(failure.cause, FailureCause::Platform);
        assert!(failure.detail.contains("lacks the histogram of put"), "{}", failure.detail);
    }
}
