//! A wrong answer that a load pod has told of stays one, whatever becomes of the store and of the other load pods.

use super::*;

/// A cluster with the first trial's Job as it is, whose first of two load pods has ended and said this; the second runs.
fn loading_in_two(outcome: &serde_json::Value, condition: Option<(&str, &str)>) -> World {
    let (mut world, name) = loading();
    world.existing.jobs = vec![job(&name, condition)];
    world.existing.pods.retain(|pod| !is_load_pod(pod, &name));
    let load = |state: serde_json::Value| {
        json!({ "containerStatuses": [{
            "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }] })
    };
    let message = json!({ "outcome": outcome, "workloads": [] }).to_string();
    let ended = load(json!({ "terminated": { "exitCode": 0, "reason": "Completed", "message": message } }));
    // As they may be listed.
    world.existing.pods.push(pod("load-1", LOAD, &name, load(json!({ "running": {} }))));
    world.existing.pods.push(pod("load-0", LOAD, &name, ended));
    world
}

fn wrong_answer() -> serde_json::Value {
    json!({ "kind": "wrongAnswer", "workload": "put", "count": 1, "key": "k", "detail": "it is old" })
}

fn store_failed() -> serde_json::Value {
    json!({ "kind": "storeFailed", "workload": "put", "detail": "connection refused" })
}

const FAILED: Option<(&str, &str)> = Some(("Failed", "BackoffLimitExceeded"));

/// Lets this happen, which explains with this cause a load that told of anything but a wrong answer, and no wrong answer.
fn excuses_no_wrong_answer(condition: Option<(&str, &str)>, cause: FailureCause, happens: impl Fn(&mut World)) {
    let after = |outcome| {
        let mut world = loading_in_two(&outcome, condition);
        happens(&mut world);
        failure(&world)
    };
    let explained = after(store_failed());
    assert_eq!(explained.cause, cause, "only a wrong answer outranks it: {}", explained.detail);
    let failure = after(wrong_answer());
    assert_eq!(failure.cause, FailureCause::WrongAnswer, "{}", failure.detail);
    assert_eq!(failure.detail, "put: 1 wrong answers, the first for key k: it is old");
}

fn change(world: &mut World, name: &str, change: impl FnOnce(&mut Pod)) {
    let found = world.existing.pods.iter_mut().find(|pod| pod.name_any().ends_with(name));
    change(found.unwrap());
}

#[test]
fn a_wrong_answer_is_not_repeated_because_the_store_was_taken_away() {
    for condition in [None, FAILED] {
        excuses_no_wrong_answer(condition, FailureCause::Disturbed, |world| {
            world.existing.pods.retain(|pod| !pod.name_any().ends_with("-0") || pod.name_any() == "load-0");
        });
    }
}

#[test]
fn a_wrong_answer_is_not_repeated_because_another_load_pod_was_evicted() {
    for condition in [None, FAILED] {
        excuses_no_wrong_answer(condition, FailureCause::Disturbed, |world| {
            change(world, "load-1", |pod| {
                let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "low on memory" });
                pod.status = serde_json::from_value(evicted).unwrap();
            });
        });
    }
}

#[test]
fn a_wrong_answer_is_not_repeated_because_another_load_pod_was_deleted() {
    excuses_no_wrong_answer(FAILED, FailureCause::Disturbed, |world| {
        let now = world.now();
        change(world, "load-1", |pod| pod.metadata.deletion_timestamp = Some(Time(now)));
    });
}

#[test]
fn a_wrong_answer_is_told_rather_than_that_another_load_pod_did_not_end_in_time() {
    excuses_no_wrong_answer(Some(("Failed", "DeadlineExceeded")), FailureCause::StoreFailed, |_| {});
}

#[test]
fn the_other_load_pods_are_waited_for_after_a_wrong_answer() {
    let world = loading_in_two(&wrong_answer(), None);
    assert!(matches!(world.decide(), Step::Wait { .. }), "{:?}", world.decide());
}
