//! A run's decisions against a small simulated cluster: killed operators, lost pods, leftovers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use storebench_core::archive::{COMPONENT_LABEL, RUN_LABEL};
use storebench_crds::status::{NOISE_FLOOR, TrialState};

use super::*;
use crate::objects::{COMPANION, CONTROL_PLANE, INSTANCE_LABEL, LOAD, STORE};

#[path = "step_wrong_answer_tests.rs"]
mod wrong_answer;

const START: i64 = 1_000_000;

fn spec(trials: u32) -> BenchmarkRunSpec {
    serde_json::from_value(json!({
        "arms": [
            { "name": "a", "baseline": true, "serviceRef": { "name": "a" } },
            { "name": "b", "serviceRef": { "name": "b" } },
        ],
        "workloads": [],
        "trials": { "min": trials, "max": trials, "retries": 1 },
    }))
    .unwrap()
}

fn pod(name: &str, component: &str, instance: &str, status: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": {
            RUN_LABEL: "run", COMPONENT_LABEL: component, INSTANCE_LABEL: instance,
        } },
        "status": status,
    }))
    .unwrap()
}

/// The status of a pod whose store runs and does not answer.
fn silent(since: Timestamp) -> serde_json::Value {
    json!({
        "conditions": [{ "type": "Ready", "status": "False" }],
        "containerStatuses": [{
            "name": "store", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "running": { "startedAt": since.to_string() } },
        }],
    })
}

fn job(name: &str, condition: Option<(&str, &str)>) -> Job {
    let conditions: Vec<_> = condition
        .into_iter()
        .map(|(type_, reason)| json!({ "type": type_, "status": "True", "reason": reason }))
        .collect();
    serde_json::from_value(json!({ "metadata": { "name": name }, "status": { "conditions": conditions } })).unwrap()
}

fn record(trial: &Trial, failure: Option<TrialFailure>) -> TrialRecord {
    TrialRecord {
        index: trial.index,
        arm: trial.arm.clone(),
        state: if failure.is_some() { TrialState::Invalid } else { TrialState::Valid },
        failure,
        started_millis: 0,
        duration_millis: 0,
        waited_millis: None,
        nodes: Default::default(),
        workloads: Vec::new(),
        footprint: None,
        idle: None,
        disk_bytes: None,
    }
}

/// A cluster in which everything that is asked for happens at once, and the run that lives in it.
struct World {
    spec: BenchmarkRunSpec,
    trials: Vec<TrialRecord>,
    existing: Existing,
    seconds: i64,
    jobs_created: Vec<String>,
    has_control_planes: bool,
    has_companions: bool,
    /// The store runs beside the load, in its pod.
    is_beside_load: bool,
    /// How often the load has its store killed.
    kills: u32,
}

impl World {
    fn new(trials: u32) -> Self {
        Self {
            spec: spec(trials),
            trials: Vec::new(),
            existing: Existing::default(),
            seconds: START,
            jobs_created: Vec::new(),
            has_control_planes: false,
            has_companions: false,
            is_beside_load: false,
            kills: 0,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap()
    }

    fn decide(&self) -> Step {
        let view = View { spec: &self.spec, trials: &self.trials, existing: &self.existing, now: self.now() };
        let name = |index: u32, arm: &str| format!("run-{index}-{arm}");
        decide(
            &view,
            || vec![f64::INFINITY],
            name,
            |_, name| Members {
                companions: self.has_companions.then(|| format!("{name}-object-store-0")).into_iter().collect(),
                store: (!self.is_beside_load).then(|| format!("{name}-0")).into_iter().collect(),
                control_plane: self.has_control_planes.then(|| format!("{name}-k8s-0")),
                is_shared: false,
                kills: self.kills,
            },
        )
    }

    /// Does what a step asks for, as the operator and the cluster would.
    fn perform(&mut self, step: Step) {
        self.seconds += 1;
        let created = self.now();
        let deployed = |trial: &Trial| Deployed { name: trial.name.clone(), created, is_stopping: false };
        let ready = |trial: &Trial, name: &str, component: &str| {
            let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
            pod(&format!("{}{name}", trial.name), component, &trial.name, ready)
        };
        match step {
            Step::Deploy(trial) => {
                self.existing.stores.push(deployed(&trial));
                self.existing.pods.push(ready(&trial, "-0", STORE));
            }
            Step::DeployCompanions(trial) => {
                self.existing.companions.push(deployed(&trial));
                self.existing.pods.push(ready(&trial, "-object-store-0", COMPANION));
            }
            Step::DeployControlPlane(trial) => {
                self.existing.control_planes.push(deployed(&trial));
                self.existing.pods.push(ready(&trial, "-k8s-0", CONTROL_PLANE));
            }
            Step::Load(trial) => {
                assert!(!self.jobs_created.contains(&trial.name), "{} runs twice", trial.name);
                self.jobs_created.push(trial.name.clone());
                self.existing.jobs.push(job(&trial.name, Some(("Complete", "CompletionsReached"))));
                self.existing.pods.push(pod(&format!("{}-load", trial.name), LOAD, &trial.name, json!({})));
            }
            Step::Collect(trial) => self.trials.push(record(&trial, None)),
            Step::Fail(trial, failure) => self.trials.push(record(&trial, Some(failure))),
            Step::CleanUp { keep } => {
                let kept = |name: &str| keep.as_deref() == Some(name);
                self.existing.jobs.retain(|job| kept(&job.name_any()));
                self.existing.stores.retain(|store| kept(&store.name));
                self.existing.companions.retain(|companion| kept(&companion.name));
                self.existing.control_planes.retain(|plane| kept(&plane.name));
                self.existing.pods.retain(|pod| pod.labels().get(INSTANCE_LABEL).is_some_and(|name| kept(name)));
            }
            Step::Wait { at_most, .. } => self.seconds += at_most.as_secs() as i64,
            Step::Hold | Step::Finish => {}
        }
    }

    /// Runs to the end and returns the steps taken.
    fn run(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let step = self.decide();
            let over = matches!(step, Step::Finish | Step::Hold);
            steps.push(step.clone());
            self.perform(step);
            if over {
                return steps;
            }
            assert!(steps.len() < 1_000, "the run does not end: {steps:?}");
        }
    }
}

#[test]
fn every_arm_is_measured_as_often_as_asked_and_nothing_is_left() {
    let mut world = World::new(4);
    world.run();
    assert_eq!(world.trials.len(), 8);
    assert_eq!(world.jobs_created.len(), 8);
    let Existing { jobs, stores, companions, control_planes, pods, refusals: _ } = world.existing;
    assert!(jobs.is_empty() && stores.is_empty() && control_planes.is_empty() && pods.is_empty());
    assert!(companions.is_empty());
}

#[test]
fn the_noise_floor_is_measured_as_often_as_the_arms_that_were_asked_for() {
    let mut world = World::new(4);
    world.spec.noise_floor = true;
    world.run();
    let floors = world.trials.iter().filter(|trial| trial.arm == NOISE_FLOOR).count();
    assert_eq!((world.trials.len(), floors), (12, 4));
    assert!(world.existing.stores.is_empty() && world.existing.pods.is_empty());
}

#[test]
fn companions_come_before_the_store_and_go_with_it() {
    let mut world = World { has_companions: true, ..World::new(3) };
    let steps = world.run();
    let first: Vec<&Step> = steps.iter().take(4).collect();
    assert!(
        matches!(first[..], [Step::DeployCompanions(_), Step::Deploy(_), Step::Load(_), Step::Collect(_)]),
        "{first:?}"
    );
    assert_eq!(world.jobs_created.len(), 6);
    assert!(world.existing.companions.is_empty() && world.existing.pods.is_empty());
}

#[test]
fn a_store_beside_the_load_comes_with_the_load() {
    let mut world = World { has_companions: true, is_beside_load: true, ..World::new(3) };
    let steps = world.run();
    let first: Vec<&Step> = steps.iter().take(3).collect();
    assert!(matches!(first[..], [Step::DeployCompanions(_), Step::Load(_), Step::Collect(_)]), "{first:?}");
    assert_eq!(world.jobs_created.len(), 6);
    assert!(world.existing.companions.is_empty() && world.existing.pods.is_empty());
}

#[test]
fn a_companion_that_never_answers_ends_the_trial_before_the_store_is_there() {
    let mut world = World { has_companions: true, ..World::new(3) };
    let step = world.decide();
    world.perform(step);
    world.existing.pods[0].status = serde_json::from_value(silent(world.now())).unwrap();
    assert!(matches!(world.decide(), Step::Wait { .. }), "{:?}", world.decide());
    world.seconds += READY_PATIENCE.as_secs() as i64;
    assert!(failure(&world).detail.starts_with("the companion never became ready"), "{:?}", world.decide());
    assert!(world.existing.stores.is_empty());
}

#[test]
fn a_companion_that_died_under_the_load_ends_the_trial() {
    let mut world = World { has_companions: true, ..World::new(3) };
    for _ in 0..3 {
        let step = world.decide();
        world.perform(step);
    }
    let gone = world.existing.pods.iter().position(|pod| pod.name_any().ends_with("object-store-0")).unwrap();
    world.existing.jobs[0].status = None;
    world.existing.pods.remove(gone);
    assert!(failure(&world).detail.ends_with("object-store-0 was deleted"), "{:?}", world.decide());
}

#[test]
fn a_control_plane_comes_after_its_store_and_goes_with_it() {
    let mut world = World { has_control_planes: true, ..World::new(3) };
    let steps = world.run();
    let first: Vec<&Step> = steps.iter().take(4).collect();
    assert!(
        matches!(first[..], [Step::Deploy(_), Step::DeployControlPlane(_), Step::Load(_), Step::Collect(_)]),
        "{first:?}"
    );
    assert_eq!(world.jobs_created.len(), 6);
    assert!(world.existing.control_planes.is_empty() && world.existing.pods.is_empty());
}

#[test]
fn a_store_that_misses_a_probe_while_its_control_plane_starts_is_waited_for() {
    let mut world = World { has_control_planes: true, ..World::new(3) };
    for _ in 0..2 {
        let step = world.decide();
        world.perform(step);
    }
    for pod in &mut world.existing.pods {
        pod.status = serde_json::from_value(silent(Timestamp::from_second(START).unwrap())).unwrap();
    }
    world.seconds += READY_PATIENCE.as_secs() as i64;
    assert!(matches!(world.decide(), Step::Wait { .. }), "{:?}", world.decide());
    world.seconds += CONTROL_PLANE_PATIENCE.as_secs() as i64;
    assert!(failure(&world).detail.starts_with("the store never became ready"), "{:?}", world.decide());
}

#[test]
fn a_store_that_was_replaced_under_the_load_ends_the_trial_at_once() {
    let (mut world, name) = loading();
    world.existing.jobs[0].metadata.creation_timestamp = Some(Time(world.now()));
    let mut replacement = world.existing.pods[0].clone();
    replacement.metadata.creation_timestamp = Some(Time(Timestamp::from_second(world.seconds + 5).unwrap()));
    world.existing.pods[0] = replacement;
    assert_eq!(failure(&world).detail, format!("{name}-0 was deleted, and replaced by another"));
}

/// What a store's container says that was killed so often and is there again, or is not yet.
fn restarted(restarts: i32, is_dead: bool, exit_code: i32, reason: &str) -> serde_json::Value {
    let ended = json!({ "terminated": { "exitCode": exit_code, "reason": reason } });
    let (running, none) = (json!({ "running": {} }), json!({}));
    json!({ "containerStatuses": [{
        "name": "store", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
        "state": if is_dead { &ended } else { &running },
        "lastState": if restarts > 0 { &ended } else { &none },
    }] })
}

#[test]
fn a_store_that_the_load_has_killed_is_no_failed_store_and_one_that_ends_in_another_way_is() {
    let (mut world, name) = loading();
    let mut after = |kills: u32, status: serde_json::Value| {
        world.kills = kills;
        world.existing.pods[0].status = serde_json::from_value(status).unwrap();
        world.decide()
    };
    for (kills, status) in [
        (1, restarted(0, false, 0, "")),
        (1, restarted(0, true, 137, "Error")),
        (1, restarted(1, false, 137, "Error")),
        (2, restarted(1, true, 137, "Error")),
        (2, restarted(2, false, 137, "Error")),
    ] {
        let said = format!("{status}");
        assert!(matches!(after(kills, status), Step::Wait { .. }), "{kills}: {said}");
    }
    for (kills, status) in [
        (0, restarted(1, false, 137, "Error")),
        (1, restarted(1, false, 139, "Error")),
        (1, restarted(1, false, 137, "OOMKilled")),
        (1, restarted(2, false, 137, "Error")),
        (1, restarted(1, true, 137, "Error")),
    ] {
        let said = format!("{status}");
        let Step::Fail(_, failure) = after(kills, status) else { panic!("{kills}: {said}") };
        assert_eq!(failure.cause, FailureCause::StoreFailed, "{}", failure.detail);
        assert!(failure.detail.starts_with(&format!("{name}-0 was killed by signal")), "{}", failure.detail);
    }
}

#[test]
fn a_store_that_the_load_has_killed_may_yet_be_taken_away() {
    let (mut world, name) = loading();
    world.kills = 1;
    let mut status = restarted(1, false, 137, "Error");
    status["conditions"] = json!([{ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" }]);
    world.existing.pods[0].status = serde_json::from_value(status).unwrap();
    let said = failure(&world);
    assert_eq!(said.cause, FailureCause::Disturbed);
    assert!(said.detail.starts_with(&format!("{name}-0 was taken away: EvictionByEvictionAPI")), "{}", said.detail);
    world.existing.pods.remove(0);
    assert_eq!(failure(&world).detail, format!("{name}-0 was deleted"));
}

#[test]
fn a_control_plane_that_died_explains_the_load_that_failed() {
    let mut world = World { has_control_planes: true, ..World::new(3) };
    for _ in 0..3 {
        let step = world.decide();
        world.perform(step);
    }
    let name = world.jobs_created[0].clone();
    world.existing.jobs = vec![job(&name, Some(("Failed", "BackoffLimitExceeded")))];
    world.existing.pods[1] = pod(
        &format!("{name}-k8s-0"),
        CONTROL_PLANE,
        &name,
        json!({ "initContainerStatuses": [{
            "name": "kube-apiserver", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": {} }, "lastState": { "terminated": { "exitCode": 137 } },
        }] }),
    );
    assert_eq!(failure(&world).detail, format!("{name}-k8s-0: kube-apiserver was killed by signal 9"));
}

/// A decision remembers nothing: an operator that is killed before it acts decides the same again.
#[test]
fn an_operator_killed_at_any_step_measures_nothing_twice() {
    let mut undisturbed = World::new(3);
    undisturbed.run();
    let mut world = World::new(3);
    while world.decide() != Step::Finish {
        let step = world.decide();
        assert_eq!(step, world.decide());
        world.perform(step);
        assert!(world.seconds < START + 1_000, "the run does not end");
    }
    assert_eq!(world.trials, undisturbed.trials);
    assert_eq!(world.jobs_created, undisturbed.jobs_created);
}

#[test]
fn a_record_that_was_filed_before_the_operator_died_is_not_measured_again() {
    let mut world = World::new(3);
    // Deploy, Load, Collect: the record is filed, Job and store are still there.
    for _ in 0..3 {
        let step = world.decide();
        world.perform(step);
    }
    assert_eq!(world.trials.len(), 1);
    let step = world.decide();
    assert!(matches!(&step, Step::CleanUp { keep: Some(keep) } if *keep != world.jobs_created[0]), "{step:?}");
    world.run();
    assert_eq!(world.jobs_created.len(), 6);
}

#[test]
fn the_next_store_waits_until_the_last_pods_are_gone() {
    let mut world = World::new(3);
    for _ in 0..3 {
        let step = world.decide();
        world.perform(step);
    }
    world.existing.jobs.clear();
    world.existing.stores.clear();
    assert!(matches!(world.decide(), Step::CleanUp { .. }), "pods are still stopping");
}

#[test]
fn a_store_that_never_answers_ends_the_run() {
    let mut world = World::new(3);
    let step = world.decide();
    world.perform(step);
    world.existing.pods[0].status = serde_json::from_value(silent(world.now())).unwrap();
    let steps = world.run();
    let failed = steps.iter().find_map(|step| match step {
        Step::Fail(_, failure) => Some(failure.clone()),
        _ => None,
    });
    let failure = failed.unwrap();
    assert_eq!(failure.cause, FailureCause::StoreFailed);
    assert!(failure.detail.contains("does not answer yet after"), "{}", failure.detail);
    assert!(world.seconds - START < 120, "took {} s", world.seconds - START);
}

#[test]
fn an_image_that_is_pulled_slowly_is_waited_for_and_not_charged_to_the_store() {
    let mut world = World::new(3);
    let step = world.decide();
    world.perform(step);
    world.existing.pods[0].status = serde_json::from_value(json!({ "containerStatuses": [{
        "name": "store", "image": "etcd:3", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ContainerCreating" } },
    }] }))
    .unwrap();
    let store = world.existing.stores[0].created;
    world.seconds += READY_PATIENCE.as_secs() as i64 + 60;
    assert!(matches!(world.decide(), Step::Wait { .. }), "{:?}", world.decide());
    // It is there at last, and has all the time that a store has.
    let waiting = world.existing.pods[0].clone();
    world.existing.pods[0].status = serde_json::from_value(silent(world.now())).unwrap();
    assert!(matches!(world.decide(), Step::Wait { .. }), "{:?}", world.decide());
    world.existing.pods[0] = waiting;
    world.seconds = store.as_second() + CLUSTER_PATIENCE.as_secs() as i64;
    let failure = failure(&world);
    assert_eq!(failure.cause, FailureCause::Disturbed, "it may be repeated, as often as the run allows");
    assert!(failure.detail.contains("did not start the store in 300 s: run-0-"), "{}", failure.detail);
    assert!(failure.detail.contains("ContainerCreating, image etcd:3"), "{}", failure.detail);
    assert!(!world.run().is_empty());
}

#[test]
fn a_store_that_was_drained_under_the_load_is_measured_again() {
    let (mut world, name) = loading();
    let store = world.existing.pods.iter().position(|pod| pod.name_any() == format!("{name}-0")).unwrap();
    world.existing.pods.remove(store);
    let failure = failure(&world);
    assert_eq!((failure.cause, failure.detail), (FailureCause::Disturbed, format!("{name}-0 was deleted")));
    world.run();
    assert_eq!(world.trials.iter().filter(|trial| trial.state == TrialState::Valid).count(), 6);
}

#[test]
fn pods_that_a_quota_refuses_are_not_charged_to_the_store() {
    let mut world = World::new(3);
    let step = world.decide();
    world.perform(step);
    world.existing.pods.clear();
    let name = world.existing.stores[0].name.clone();
    let message = "create Pod failed: exceeded quota: small".to_owned();
    world.existing.refusals.push(Refusal { kind: "StatefulSet".into(), name, message });
    assert!(
        matches!(world.decide(), Step::Wait { at_most, .. } if at_most <= REFUSAL_PATIENCE),
        "{:?}",
        world.decide()
    );
    world.seconds += REFUSAL_PATIENCE.as_secs() as i64;
    let failure = failure(&world);
    assert_eq!(failure.cause, FailureCause::Platform);
    assert!(failure.detail.contains("exceeded quota: small; raise the quota"), "{}", failure.detail);
}

#[test]
fn a_load_pod_that_a_policy_refuses_ends_the_run_long_before_its_timeout() {
    let (mut world, name) = loading();
    world.existing.jobs[0].metadata.creation_timestamp = Some(Time(world.now()));
    world.existing.pods.retain(|pod| !is_load_pod(pod, &name));
    world.existing.refusals.push(Refusal { kind: "Job".into(), name, message: "denied by policy".into() });
    world.seconds += REFUSAL_PATIENCE.as_secs() as i64;
    assert!(failure(&world).detail.starts_with("the load pod is refused: denied by policy"), "{:?}", world.decide());
}

/// A cluster with the first trial's Job under way.
fn loading() -> (World, String) {
    let mut world = World::new(3);
    for _ in 0..2 {
        let step = world.decide();
        world.perform(step);
    }
    let name = world.jobs_created[0].clone();
    world.existing.jobs = vec![job(&name, None)];
    (world, name)
}

fn failure(world: &World) -> TrialFailure {
    match world.decide() {
        Step::Fail(_, failure) => failure,
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_load_pod_that_was_deleted_may_be_repeated() {
    let (mut world, name) = loading();
    world.existing.jobs = vec![job(&name, Some(("Failed", "BackoffLimitExceeded")))];
    world.existing.pods.retain(|pod| !is_load_pod(pod, &name));
    assert_eq!(failure(&world).cause, FailureCause::Disturbed);
    world.run();
    assert_eq!(world.trials.iter().filter(|trial| trial.state == TrialState::Valid).count(), 6);
}

#[test]
fn a_load_pod_that_ran_out_of_memory_ends_the_run_and_says_so() {
    let (mut world, name) = loading();
    world.existing.jobs = vec![job(&name, Some(("Failed", "BackoffLimitExceeded")))];
    world.existing.pods.retain(|pod| !is_load_pod(pod, &name));
    let killed = json!({ "containerStatuses": [{
        "name": "load", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } },
    }] });
    world.existing.pods.push(pod("load-0", LOAD, &name, killed));
    let failure = failure(&world);
    assert_eq!(failure.cause, FailureCause::Platform);
    assert_eq!(failure.detail, "the load pod load-0 was killed by signal 9 (OOMKilled)");
}

#[test]
fn a_store_that_died_explains_the_load_that_failed() {
    let (mut world, name) = loading();
    world.existing.jobs = vec![job(&name, Some(("Failed", "BackoffLimitExceeded")))];
    world.existing.pods[0] = pod(
        &format!("{name}-0"),
        STORE,
        &name,
        json!({ "containerStatuses": [{
            "name": "store", "image": "", "imageID": "", "ready": false, "restartCount": 1, "state": { "running": {} },
            "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } },
        }] }),
    );
    assert_eq!(failure(&world).detail, format!("{name}-0 was killed by signal 9 (OOMKilled)"));
}

#[test]
fn a_suspended_run_gives_its_turn_back_only_when_its_last_pod_is_gone() {
    let mut world = World::new(3);
    let step = world.decide();
    world.perform(step);
    world.spec.suspend = true;
    // The StatefulSet is gone; its pod is still stopping.
    world.existing.stores.clear();
    world.existing.pods[0].metadata.deletion_timestamp = Some(Time(world.now()));
    assert_eq!(world.decide(), Step::CleanUp { keep: None });
    // Of a node that is lost nothing goes: others wait for a while.
    for (seconds, step) in [(600, Step::CleanUp { keep: None }), (1, Step::Hold)] {
        world.seconds += seconds;
        assert_eq!(world.decide(), step);
    }
    world.existing.pods.clear();
    assert_eq!(world.decide(), Step::Hold);
}

#[test]
fn suspension_lets_every_arm_of_the_running_trial_end_and_then_holds() {
    let (mut world, name) = loading();
    world.spec.suspend = true;
    assert!(matches!(world.decide(), Step::Wait { .. }));
    world.existing.jobs = vec![job(&name, Some(("Complete", "")))];
    let steps = world.run();
    assert_eq!(steps.last(), Some(&Step::Hold));
    assert_eq!(world.trials.iter().map(|trial| trial.index).collect::<Vec<_>>(), [0, 0], "not half a pair");
    assert!(world.existing.stores.is_empty(), "nothing runs while suspended");
}

#[test]
fn every_reason_why_a_pod_does_not_run_says_whose_fault_that_is() {
    use FailureCause::{Disturbed, Platform, StoreFailed};
    use PodReason::{ContainerNotCreated, CrashLoop, Evicted, ImageUnavailable, Unschedulable, VolumeUnbound};
    let load = |reason| load_failed(Trouble { reason, message: "why".into() }).0;
    assert_eq!([CrashLoop, Evicted].map(never_ready), [StoreFailed, Disturbed]);
    assert_eq!([CrashLoop, Evicted].map(load), [Platform, Disturbed]);
    for reason in [Unschedulable, VolumeUnbound, ImageUnavailable, ContainerNotCreated] {
        assert_eq!((never_ready(reason), load(reason)), (Platform, Platform), "{reason:?}");
    }
}
