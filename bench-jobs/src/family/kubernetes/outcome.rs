//! Which state of an object ends an operation: pure, on what a watch delivers.
//!
//! A state counts only if it is about what was asked: a Deployment's status may still be that of its last rollout when its
//! new one has been acknowledged.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::manifests::REVISION;

/// Whether a Deployment has exactly `replicas` pods, all of this revision of its template and Ready: what
/// `kubectl rollout status` waits for, and that the old ones are gone.
pub fn is_rolled_out(deployment: &Deployment, replicas: u32, revision: u64) -> bool {
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else { return false };
    let all = i32::try_from(replicas).ok();
    let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
    spec.replicas == all
        && revision_of(spec.template.metadata.as_ref()) == Some(revision)
        && status.observed_generation.is_some_and(|seen| Some(seen) >= deployment.metadata.generation)
        && counts.into_iter().all(|count| count == all)
}

/// The revision of the template that a Deployment or a pod is of.
pub fn revision_of(metadata: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>) -> Option<u64> {
    metadata?.annotations.as_ref()?.get(REVISION)?.parse().ok()
}

/// Whether a pod is Ready and nobody has asked for its end.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a Job has ended, and how: `Err` says why it failed.
pub fn completion(job: &Job) -> Option<Result<(), String>> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().filter(|condition| condition.status == "True").find_map(|condition| {
        match condition.type_.as_str() {
            "Complete" => Some(Ok(())),
            "Failed" => Some(Err(condition.message.clone().unwrap_or_default())),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(status: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "d", "generation": 4 },
            "spec": {
                "replicas": 5,
                "selector": {},
                "template": { "metadata": { "annotations": { "storebench.dev/revision": "3" } } },
            },
            "status": status,
        }))
        .unwrap()
    }

    fn complete() -> Value {
        json!({
            "observedGeneration": 4, "replicas": 5, "updatedReplicas": 5, "readyReplicas": 5, "availableReplicas": 5,
        })
    }

    #[test]
    fn a_rollout_ends_when_every_pod_is_new_and_ready_and_no_old_one_is_left() {
        assert!(is_rolled_out(&deployment(complete()), 5, 3));
        assert!(!is_rolled_out(&deployment(complete()), 5, 4), "the status is of a revision that was replaced");
        assert!(!is_rolled_out(&deployment(complete()), 1, 3), "it was scaled meanwhile");
        for (field, value) in [
            ("observedGeneration", 3),
            ("replicas", 6),
            ("updatedReplicas", 4),
            ("readyReplicas", 4),
            ("availableReplicas", 4),
        ] {
            let mut status = complete();
            status[field] = value.into();
            assert!(!is_rolled_out(&deployment(status), 5, 3), "{field} {value}");
        }
        assert!(!is_rolled_out(&deployment(json!({})), 5, 3));
        assert!(!is_rolled_out(&Deployment::default(), 5, 3));
    }

    #[test]
    fn a_pod_that_is_to_end_is_not_ready() {
        let pod = |deleted: Value, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "deletionTimestamp": deleted },
                "status": { "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .unwrap()
        };
        assert!(is_ready(&pod(Value::Null, "True")));
        assert!(!is_ready(&pod(Value::Null, "False")));
        assert!(!is_ready(&pod(json!("2026-01-01T00:00:00Z"), "True")));
        assert!(!is_ready(&Pod::default()));
    }

    #[test]
    fn a_job_ends_by_its_condition_and_not_before() {
        let job = |kind: &str, status: &str| -> Job {
            let condition = json!({ "type": kind, "status": status, "message": "deadline" });
            serde_json::from_value(json!({ "metadata": {}, "status": { "conditions": [condition] } })).unwrap()
        };
        assert_eq!(completion(&job("Complete", "True")), Some(Ok(())));
        assert_eq!(completion(&job("Failed", "True")), Some(Err("deadline".into())));
        assert_eq!(completion(&job("SuccessCriteriaMet", "True")), None);
        assert_eq!(completion(&job("Complete", "False")), None);
        assert_eq!(completion(&Job::default()), None);
    }
}
