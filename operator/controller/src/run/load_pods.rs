//! The load pods of a trial: which they are, and what each said at its end in its termination message. Pure.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::record::{FailureCause, TrialFailure};
use storebench_core::trial::Gathering;
use storebench_crds::job::{JobSummary, SUMMARY_BYTES_MAX};

use crate::health;
use crate::objects::load::LOAD_CONTAINER;
use crate::objects::{INSTANCE_LABEL, LOAD};

/// Which of its Job's pods one is, as Kubernetes numbers them.
pub const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";

/// Whether this pod is one of the trial's load.
pub fn is_load_pod(pod: &Pod, trial: &str) -> bool {
    let label = |name: &str| pod.labels().get(name).map(String::as_str);
    label(COMPONENT_LABEL) == Some(LOAD) && label(INSTANCE_LABEL) == Some(trial)
}

/// A load pod's number.
pub fn index(pod: &Pod) -> Option<usize> {
    pod.annotations().get(INDEX_ANNOTATION)?.parse().ok()
}

/// The trial's load pods, by their numbers.
pub fn of_trial<'a>(pods: &'a [Pod], trial: &str) -> Vec<&'a Pod> {
    let mut found: Vec<&Pod> = pods.iter().filter(|pod| is_load_pod(pod, trial)).collect();
    found.sort_by_key(|pod| index(pod));
    found
}

/// That somebody added pods to a Job, which has one for each of its numbers: which of them are its own cannot be told.
pub fn too_many(pods: &[&Pod], job: Option<&Job>) -> Option<TrialFailure> {
    let wanted = usize::try_from(job?.spec.as_ref()?.completions?).unwrap_or_default();
    (pods.len() > wanted).then(|| TrialFailure {
        cause: FailureCause::Platform,
        detail: format!(
            "{} pods say that they are of the load, which has {wanted}: somebody added one; apply manifests/policies",
            pods.len()
        ),
    })
}

/// The summary in the termination message of a pod's load container.
pub fn summary(pod: &Pod) -> Result<JobSummary, String> {
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

/// A wrong answer that one of a trial's load pods has told of, whatever became of the others. Where somebody added pods, it may be theirs: then
/// that is told, which ends the run as well.
pub fn wrong_answer(pods: &[Pod], job: &Job, trial: &str) -> Option<TrialFailure> {
    let pods = of_trial(pods, trial);
    let told = |pod: &&Pod| Gathering::default().finish(summary(pod).ok()?).failure;
    let found = pods.iter().filter_map(told).find(|failure| failure.cause == FailureCause::WrongAnswer)?;
    Some(too_many(&pods, Some(job)).unwrap_or(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(message: &str, exit_code: i32) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "load-0", "labels": { COMPONENT_LABEL: LOAD, INSTANCE_LABEL: "t" } },
            "status": { "containerStatuses": [{
                "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": exit_code, "message": message } },
            }] },
        }))
        .unwrap()
    }

    fn job(pods: u32) -> Job {
        serde_json::from_value(json!({
            "metadata": { "name": "t" }, "spec": { "completions": pods, "template": {} },
        }))
        .unwrap()
    }

    const COMPLETED: &str = r#"{"outcome":{"kind":"completed"},"workloads":[]}"#;
    const WRONG: &str =
        r#"{"outcome":{"kind":"wrongAnswer","workload":"put","count":1,"key":"k","detail":"d"},"workloads":[]}"#;

    #[test]
    fn a_pod_that_somebody_added_to_the_load_voids_the_trial() {
        let one = pod("", 0);
        assert_eq!(too_many(&[&one], Some(&job(1))), None);
        let failure = too_many(&[&one, &one], Some(&job(1))).unwrap();
        assert!(failure.detail.starts_with("2 pods say that they are of the load, which has 1"), "{}", failure.detail);
    }

    #[test]
    fn a_truncated_summary_is_called_that() {
        let text = format!("{{\"outcome\":{{\"kind\":\"completed\"}},\"workloads\":[{}", "x".repeat(5_000));
        let problem = summary(&pod(&text[..SUMMARY_BYTES_MAX], 0)).unwrap_err();
        assert!(problem.contains("truncated at 4096 bytes"), "{problem}");
    }

    #[test]
    fn a_good_summary_is_read() {
        assert!(summary(&pod(COMPLETED, 0)).unwrap().workloads.is_empty());
    }

    #[test]
    fn a_wrong_answer_is_found_beside_pods_that_told_nothing() {
        let of = |pods: &[Pod]| wrong_answer(pods, &job(3), "t").map(|failure| failure.detail);
        let said = "put: 1 wrong answers, the first for key k: d".to_owned();
        assert_eq!(of(&[pod("", 137), pod(COMPLETED, 0), pod(WRONG, 0)]), Some(said));
        assert_eq!(of(&[pod("", 137), pod(COMPLETED, 0)]), None);
        assert_eq!(wrong_answer(&[pod(WRONG, 0)], &job(1), "another"), None);
    }

    /// Who may create pods could accuse a store.
    #[test]
    fn a_wrong_answer_of_a_load_that_somebody_added_to_is_not_believed() {
        let failure = wrong_answer(&[pod(COMPLETED, 0), pod(WRONG, 0)], &job(1), "t").unwrap();
        assert_eq!(failure.cause, FailureCause::Platform);
        assert!(failure.detail.contains("somebody added one"), "{}", failure.detail);
    }
}
