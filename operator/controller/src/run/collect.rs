//! Reads what a trial's load pods measured: the summary from the termination message, everything else from the log.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt as _};
use storebench_core::archive::{COMPONENT_LABEL, RECORD_COMPONENT, TRIAL_KEY, TrialFile};
use storebench_core::record::{FailureCause, TrialFailure, TrialRecord};
use storebench_core::trial::{Gathering, Loaded, merge};
use storebench_crds::job::{JobSummary, SUMMARY_BYTES_MAX};
use storebench_crds::status::TrialState;

use super::step::{Existing, Members, Trial, began, is_load_pod};
use crate::error::{Error, Tried as _};
use crate::health;
use crate::objects::load::{LOAD_CONTAINER, STARTED_ANNOTATION};
use crate::objects::{self, Owner};

/// No load pod writes a longer log; more is cut off, and what is then missing is said.
const LOG_BYTES_MAX: i64 = 8 << 20;
const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";

/// Reads what the load pods of a finished Job measured. `members` are the pods that were loaded.
pub async fn collect(
    client: &Client,
    namespace: &str,
    trial: &Trial,
    existing: &Existing,
    members: &Members,
) -> Result<Loaded, Error> {
    let mut pods: Vec<&Pod> = existing.pods.iter().filter(|pod| is_load_pod(pod, &trial.name)).collect();
    pods.sort_by_key(|pod| pod.annotations().get(INDEX_ANNOTATION).and_then(|index| index.parse::<u32>().ok()));
    if pods.is_empty() {
        return Ok(Loaded::failed(FailureCause::Disturbed, "the load pod was deleted before its log was read".into()));
    }
    let mut processes = Vec::with_capacity(pods.len());
    for pod in pods {
        processes.push(of_pod(client, namespace, pod).await?);
    }
    let mut loaded = merge(processes)
        .unwrap_or_else(|error| Loaded::failed(FailureCause::Platform, format!("the load pods' logs: {error}")));
    let job = existing.jobs.iter().find(|job| job.name_any() == trial.name);
    if let Some(detail) = job.and_then(|job| members.death(&existing.pods, began(job), &trial.name)) {
        loaded.failure = Some(TrialFailure { cause: FailureCause::StoreFailed, detail });
    }
    Ok(loaded)
}

async fn of_pod(client: &Client, namespace: &str, pod: &Pod) -> Result<Loaded, Error> {
    let name = pod.name_any();
    let summary = match summary(pod) {
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
            return Ok(Loaded::failed(FailureCause::Disturbed, detail));
        }
        Err(error) => return Err(error).tried(|| format!("read the log of Pod {name}")),
    };
    Ok(gather(&name, &log, summary))
}

/// From a log and a summary to what was measured.
fn gather(pod: &str, log: &str, summary: JobSummary) -> Loaded {
    let mut gathering = Gathering::default();
    for line in log.lines() {
        if let Err(error) = gathering.line(line) {
            return Loaded::failed(FailureCause::Platform, format!("the log of the load pod {pod}: {error}"));
        }
    }
    let loaded = gathering.finish(summary);
    let cut = loaded.workloads.iter().find(|workload| workload.histograms.is_empty());
    if let (Some(cut), None) = (cut, &loaded.failure) {
        let detail = format!("the log of the load pod {pod} lacks the histogram of {}: it was cut", cut.summary.name);
        return Loaded::failed(FailureCause::Platform, detail);
    }
    loaded
}

/// The summary in the termination message of a pod's load container.
fn summary(pod: &Pod) -> Result<JobSummary, String> {
    let load = health::containers(pod).find(|status| status.name == LOAD_CONTAINER);
    let ended = load.and_then(|load| load.state.as_ref()?.terminated.as_ref()).ok_or("has not ended")?;
    if ended.exit_code != 0 {
        return Err(health::ended(ended.exit_code, ended.reason.as_deref()));
    }
    let message = ended.message.as_deref().ok_or("left no summary in its termination message")?;
    serde_json::from_str(message).map_err(|error| {
        if message.len() >= SUMMARY_BYTES_MAX {
            format!("left a summary that was truncated at {SUMMARY_BYTES_MAX} bytes: use fewer workloads in one run")
        } else {
            format!("left a summary that cannot be read: {error}")
        }
    })
}

/// The trial's file. `begun_millis` is when the run began, milliseconds since 1970.
pub fn file(
    trial: &Trial,
    loaded: Loaded,
    existing: &Existing,
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
    TrialFile {
        version: store.version.clone(),
        command,
        facts: store.facts.clone(),
        trial: TrialRecord {
            index: trial.index,
            arm: trial.arm.clone(),
            state: if loaded.failure.is_some() { TrialState::Invalid } else { TrialState::Valid },
            failure: loaded.failure,
            started_millis: millis(begun, started),
            duration_millis: millis(started, now),
            waited_millis: None,
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

    fn pod(message: &str, exit_code: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "load-0" },
            "status": { "containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": exit_code, "message": message } },
            }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_truncated_summary_is_called_that() {
        let text = format!("{{\"outcome\":{{\"kind\":\"completed\"}},\"workloads\":[{}", "x".repeat(5_000));
        let problem = summary(&pod(&text[..SUMMARY_BYTES_MAX], 0)).unwrap_err();
        assert!(problem.contains("truncated at 4096 bytes"), "{problem}");
    }

    #[test]
    fn a_good_summary_is_read() {
        let text = r#"{"outcome":{"kind":"completed"},"workloads":[]}"#;
        assert!(summary(&pod(text, 0)).unwrap().workloads.is_empty());
    }

    #[test]
    fn a_log_without_its_histograms_does_not_count() {
        let text = json!({ "outcome": { "kind": "completed" }, "workloads": [{
            "name": "put", "operations": 1, "errors": 0, "elapsedNanos": 1, "verified": 0,
            "service": { "p50Nanos": 1, "p99Nanos": 1, "maxNanos": 1 },
        }] });
        let summary: JobSummary = serde_json::from_value(text).unwrap();
        let failure = gather("load-0", "a line for people\n", summary).failure.unwrap();
        assert_eq!(failure.cause, FailureCause::Platform);
        assert!(failure.detail.contains("lacks the histogram of put"), "{}", failure.detail);
    }
}
