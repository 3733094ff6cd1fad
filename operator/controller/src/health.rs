//! What pods say of themselves, in one line: the difference between "still starting" and "will not start". Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use storebench_core::reason::{PodReason, Reason};
use storebench_crds::job::LINE_MARK;
use storebench_crds::line::one_line;

/// How long a pod may wait for a node or a volume before that counts as a failure. Autoscaled clusters take longer; there
/// the run must be started when the nodes are.
const SCHEDULING_PATIENCE: Duration = Duration::from_secs(45);
/// How long the kubelet may retry what looks like a passing trouble.
const CREATION_PATIENCE: Duration = Duration::from_secs(30);

/// How long an image may not be pulled for whatever reason.
const PULL_PATIENCE: Duration = Duration::from_secs(60);

/// As much of a dying container's last line as a message can hold.
const LAST_LINE_CHARACTERS_MAX: usize = 160;

/// The exit code of what SIGKILL has ended.
const KILLED: i32 = 137;

/// How a set of pods is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// All are ready.
    Ready,
    /// Some are not ready yet; why, in words.
    Starting(String),
    /// One will not become ready by itself.
    Failed(Trouble<PodReason>),
}

/// Why something cannot go on unless its user changes something; with a [`PodReason`], why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble<R = Reason> {
    /// In a word.
    pub reason: R,
    /// In one line, with the name of what is meant, and the remedy where there is one.
    pub message: String,
}

impl From<Trouble<PodReason>> for Trouble {
    fn from(Trouble { reason, message }: Trouble<PodReason>) -> Self {
        Self { reason: Reason::Pod(reason), message }
    }
}

/// How the members of a store are. `members` are the names of their pods.
pub fn of_members(members: &[String], pods: &[Pod], now: Timestamp) -> Health {
    let mut waiting = None;
    for name in members {
        let Some(pod) = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name)) else {
            waiting = waiting.or_else(|| Some(format!("{name} does not exist yet")));
            continue;
        };
        if let Some(trouble) = trouble(pod, now) {
            return Health::Failed(trouble);
        }
        if !is_ready(pod) {
            waiting = waiting.or_else(|| Some(format!("{name} does not answer yet")));
        }
    }
    waiting.map_or(Health::Ready, Health::Starting)
}

/// Whether the pod's Ready condition is true and nobody is deleting it.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// Every container's status, sidecars first.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let sidecars = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
    sidecars.chain(status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten())
}

/// Why this pod will not run by itself; `None` where it runs, may yet run, or has done its work.
pub fn trouble(pod: &Pod, now: Timestamp) -> Option<Trouble<PodReason>> {
    let name = pod.name_any();
    let status = pod.status.as_ref()?;
    let trouble = |reason, text: &str| Some(Trouble { reason, message: format!("{name}: {}", one_line(text)) });
    if status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted") {
        return trouble(PodReason::Evicted, status.message.as_deref().unwrap_or("evicted by its node"));
    }
    if let Some(scheduled) = condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "False") {
        let since = scheduled.last_transition_time.as_ref().map_or(now, |time| time.0);
        let message = scheduled.message.as_deref().unwrap_or("no node takes it");
        let reason = if message.contains("PersistentVolumeClaim") || message.contains("persistentvolumeclaim") {
            PodReason::VolumeUnbound
        } else {
            PodReason::Unschedulable
        };
        return has_passed(since, SCHEDULING_PATIENCE, now).then(|| trouble(reason, message)).flatten();
    }
    let since = status.start_time.as_ref().map_or(now, |time| time.0);
    containers(pod).find_map(|container| {
        let ContainerState { waiting, .. } = container.state.as_ref()?;
        let waiting = waiting.as_ref()?;
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or(reason);
        let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        match reason {
            // A registry that does not answer now may do so soon.
            "ImagePullBackOff" if !has_passed(since, PULL_PATIENCE, now) => None,
            "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
                trouble(PodReason::ImageUnavailable, &format!("image {}: {message}", container.image))
            }
            "CrashLoopBackOff" => {
                let (name, count) = (&container.name, container.restart_count);
                let end = last.map_or_else(|| "ended".into(), end);
                trouble(PodReason::CrashLoop, &format!("container {name} was restarted {count} times; it {end}"))
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError"
                if has_passed(since, CREATION_PATIENCE, now) =>
            {
                trouble(PodReason::ContainerNotCreated, message)
            }
            _ => None,
        }
    })
}

/// Why a pod is not what it was: whose doing that is decides whether the trial may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// The cluster took it away: it was deleted, drained, evicted or preempted.
    Taken(String),
    /// It ended by itself.
    Ended(String),
}

/// Why a store's member is not what it was at that time: it has restarted or ended since, or is gone.
pub fn death(member: &str, pods: &[Pod], container: &str, since: Timestamp) -> Option<Death> {
    let Some(pod) = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(member)) else {
        return Some(Death::Taken(format!("{member} was deleted")));
    };
    let store = containers(pod).find(|status| status.name == container);
    let states = store.into_iter().flat_map(|store| [store.state.as_ref(), store.last_state.as_ref()]).flatten();
    let ended = states.filter_map(|state| state.terminated.as_ref()).find(|ended| is_since(ended, since));
    if let Some(ended) = ended.filter(|ended| !is_taken_before(pod, ended)) {
        return Some(Death::Ended(format!("{member} {}", end(ended))));
    }
    taken(pod).map(Death::Taken)
}

/// How often a container of these members was killed (SIGKILL), so far; `None`: one has ended in another way, as far as that is still known.
pub fn kills(members: &[String], pods: &[Pod], container: &str) -> Option<u32> {
    let mut kills = 0;
    let is_member = |pod: &&Pod| pod.metadata.name.as_ref().is_some_and(|name| members.contains(name));
    for status in pods.iter().filter(is_member).flat_map(containers).filter(|status| status.name == container) {
        let ended = |state: &Option<ContainerState>| state.as_ref().and_then(|state| state.terminated.clone());
        let (now, before) = (ended(&status.state), ended(&status.last_state));
        // One that the kernel killed for its memory has this exit code, too.
        let is_kill = |ended: &ContainerStateTerminated| {
            ended.exit_code == KILLED && ended.reason.as_deref() != Some("OOMKilled")
        };
        if ![&now, &before].into_iter().flatten().all(is_kill) {
            return None;
        }
        kills += status.restart_count.unsigned_abs() + u32::from(now.is_some());
    }
    Some(kills)
}

/// Why a member is no longer the cluster's to run, if that is so: whatever became of its containers.
pub fn taken_away(member: &str, pods: &[Pod]) -> Option<Death> {
    match pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(member)) {
        None => Some(Death::Taken(format!("{member} was deleted"))),
        Some(pod) => taken(pod).map(Death::Taken),
    }
}

/// Whether a container has ended since that time. The API's times are whole seconds.
fn is_since(ended: &ContainerStateTerminated, since: Timestamp) -> bool {
    ended.finished_at.as_ref().is_none_or(|time| time.0.as_second() >= since.as_second())
}

/// Whether a container ended because the cluster took its pod away.
fn is_taken_before(pod: &Pod, ended: &ContainerStateTerminated) -> bool {
    let Some(deleted) = pod.metadata.deletion_timestamp.as_ref() else { return taken(pod).is_some() };
    let asked = deleted.0.as_second() - pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    ended.finished_at.as_ref().is_none_or(|finished| finished.0.as_second() >= asked)
}

/// That the cluster takes a pod away, or has taken it, and why.
fn taken(pod: &Pod) -> Option<String> {
    let name = pod.name_any();
    let status = pod.status.as_ref();
    let disruption = condition(pod, "DisruptionTarget").filter(|disruption| disruption.status == "True");
    if let Some(disruption) = disruption {
        let (reason, why) = (disruption.reason.as_deref(), disruption.message.as_deref());
        return Some(format!(
            "{name} was taken away: {}: {}",
            reason.unwrap_or_default(),
            one_line(why.unwrap_or_default())
        ));
    }
    if status.and_then(|status| status.reason.as_deref()) == Some("Evicted") {
        let why = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        return Some(format!("{name} was evicted: {}", one_line(why)));
    }
    pod.metadata.deletion_timestamp.as_ref().map(|_| format!("{name} is being deleted"))
}

/// Since when the process runs for which a member is there; `None`: the cluster has not started it yet. From then on it is
/// the process that is waited for.
pub fn running_since(member: &str, pods: &[Pod], container: &str) -> Option<Timestamp> {
    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(member))?;
    let store = containers(pod).find(|status| status.name == container)?;
    let running = store.state.as_ref()?.running.as_ref();
    let ended = || store.state.as_ref()?.terminated.as_ref()?.started_at.clone();
    running.and_then(|running| running.started_at.clone()).or_else(ended).map(|time| time.0)
}

/// What a member that was not started waits for.
pub fn waits_for(member: &str, pods: &[Pod], container: &str) -> Option<String> {
    let pod = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(member))?;
    let store = containers(pod).find(|status| status.name == container)?;
    let waiting = store.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    Some(format!("{member}: {reason}, image {}", store.image))
}

/// Why a store that runs beside the load is not what it was when the load began: it has ended while the load had not. When the
/// load has ended, the kubelet ends what is beside it.
pub fn death_beside(pod: &Pod, store: &str, load: &str) -> Option<String> {
    let of = |name: &str| containers(pod).find(|status| status.name == name);
    let status = of(store)?;
    let ended = |status: &ContainerStatus| status.state.as_ref().and_then(|state| state.terminated.clone());
    let before = status.last_state.as_ref().and_then(|state| state.terminated.clone());
    let with_load = of(load).is_some_and(|load| ended(load).is_some());
    let ended = before.or_else(|| ended(status).filter(|_| !with_load))?;
    Some(format!("{}: {store} {}", pod.name_any(), end(&ended)))
}

/// Why a pod is not what it was at that time: one of its containers has ended since, or the pod is gone.
pub fn death_since(member: &str, pods: &[Pod], since: Timestamp) -> Option<Death> {
    let Some(pod) = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(member)) else {
        return Some(Death::Taken(format!("{member} was deleted")));
    };
    for container in containers(pod) {
        let states = [container.state.as_ref(), container.last_state.as_ref()];
        let ended = states.into_iter().flatten().find_map(|state| state.terminated.as_ref());
        if let Some(ended) = ended.filter(|ended| is_since(ended, since) && !is_taken_before(pod, ended)) {
            return Some(Death::Ended(format!("{member}: {} {}", container.name, end(ended))));
        }
    }
    taken(pod).map(Death::Taken)
}

/// How a container ended, and its last line, which the kubelet takes from the log.
pub fn end(terminated: &ContainerStateTerminated) -> String {
    let how = ended(terminated.exit_code, terminated.reason.as_deref());
    let mut lines = terminated.message.as_deref().unwrap_or_default().lines().map(str::trim);
    let last = lines.rfind(|line| !line.is_empty() && !line.starts_with(LINE_MARK));
    match last {
        Some(line) => {
            format!("{how}; its last line: {}", line.chars().take(LAST_LINE_CHARACTERS_MAX).collect::<String>())
        }
        None => how,
    }
}

/// How a container ended, such as `was killed by signal 9 (OOMKilled)`.
pub fn ended(exit_code: i32, reason: Option<&str>) -> String {
    let how = match exit_code {
        code @ 129..=192 => format!("was killed by signal {}", code - 128),
        code => format!("exited with status {code}"),
    };
    // Error and Completed say no more than the status does.
    match reason.filter(|reason| !matches!(*reason, "Error" | "Completed" | "")) {
        Some(reason) => format!("{how} ({reason})"),
        None => how,
    }
}

fn has_passed(since: Timestamp, patience: Duration, now: Timestamp) -> bool {
    now.duration_since(since).unsigned_abs() >= patience && now >= since
}

/// When something that is passing trouble now would count as failure, at the latest.
pub fn patience() -> Duration {
    SCHEDULING_PATIENCE.max(CREATION_PATIENCE).max(PULL_PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_000_000;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "etcd-0" }, "status": status })).unwrap()
    }

    fn at(seconds: i64) -> String {
        Timestamp::from_second(seconds).unwrap().to_string()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    fn waiting(reason: &str, message: &str) -> serde_json::Value {
        json!({
            "startTime": at(NOW - 40),
            "containerStatuses": [{
                "name": "store", "image": "storebench/etcd:9", "imageID": "", "ready": false, "restartCount": 3,
                "state": { "waiting": { "reason": reason, "message": message } },
                "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } },
            }],
        })
    }

    #[test]
    fn a_missing_image_is_named() {
        let mut unavailable = waiting("ImagePullBackOff", "Back-off pulling");
        unavailable["startTime"] = at(NOW - 10).into();
        assert_eq!(trouble(&pod(unavailable.clone()), now()), None, "the registry may answer yet");
        unavailable["startTime"] = at(NOW - 60).into();
        let trouble = trouble(&pod(unavailable), now()).unwrap();
        assert_eq!(trouble.reason, PodReason::ImageUnavailable);
        assert_eq!(trouble.message, "etcd-0: image storebench/etcd:9: Back-off pulling");
    }

    #[test]
    fn a_crash_loop_tells_how_it_ended() {
        let trouble = trouble(&pod(waiting("CrashLoopBackOff", "back-off 5m0s")), now()).unwrap();
        assert_eq!(
            trouble.message,
            "etcd-0: container store was restarted 3 times; it was killed by signal 9 (OOMKilled)"
        );
    }

    #[test]
    fn what_may_yet_pass_is_no_trouble() {
        for reason in ["ContainerCreating", "PodInitializing", "ErrImagePull"] {
            assert_eq!(trouble(&pod(waiting(reason, "")), now()), None, "{reason}");
        }
    }

    #[test]
    fn a_pod_without_a_node_is_trouble_after_a_while() {
        let unschedulable = |since: i64| {
            pod(json!({ "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available", "lastTransitionTime": at(since),
            }] }))
        };
        assert_eq!(trouble(&unschedulable(NOW - 10), now()), None);
        assert_eq!(trouble(&unschedulable(NOW - 50), now()).unwrap().reason, PodReason::Unschedulable);
    }

    #[test]
    fn a_store_that_restarted_is_not_the_one_that_was_loaded() {
        let running = pod(json!({ "containerStatuses": [{
            "name": "store", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": {} },
            "lastState": { "terminated": { "exitCode": 2, "reason": "Error" } },
        }] }));
        let pods = [running];
        let death = |member| death(member, &pods, "store", now());
        assert_eq!(death("etcd-0"), Some(Death::Ended("etcd-0 exited with status 2".into())));
        assert_eq!(death("etcd-1"), Some(Death::Taken("etcd-1 was deleted".into())));
    }

    #[test]
    fn a_restart_long_past_is_none_of_this_load() {
        let restarted = pod(json!({ "containerStatuses": [{
            "name": "store", "image": "", "imageID": "", "ready": true, "restartCount": 1, "state": { "running": {} },
            "lastState": { "terminated": { "exitCode": 2, "finishedAt": at(NOW - 3_600) } },
        }] }));
        let pods = [restarted];
        assert_eq!(death("etcd-0", &pods, "store", now()), None);
        let before = Timestamp::from_second(NOW - 4_000).unwrap();
        assert!(matches!(death("etcd-0", &pods, "store", before), Some(Death::Ended(_))));
    }

    #[test]
    fn what_a_drain_or_eviction_ends_is_not_charged_to_the_store() {
        let ended = |finished: i64| {
            json!({ "containerStatuses": [{
                "name": "store", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": 137, "finishedAt": at(finished) } },
            }] })
        };
        let mut drained = pod(ended(NOW));
        drained.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(NOW + 10).unwrap()));
        drained.metadata.deletion_grace_period_seconds = Some(10);
        let of = |pod: &Pod| death("etcd-0", std::slice::from_ref(pod), "store", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(of(&drained), Death::Taken("etcd-0 is being deleted".into()));
        // One that had died before anybody deleted it has died by itself.
        drained.status = pod(ended(NOW - 1)).status;
        assert_eq!(of(&drained), Death::Ended("etcd-0 was killed by signal 9".into()));
        let mut evicted = ended(NOW);
        evicted["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "low on memory",
        }]);
        let said = "etcd-0 was taken away: TerminationByKubelet: low on memory";
        assert_eq!(of(&pod(evicted)), Death::Taken(said.into()));
    }

    #[test]
    fn a_store_beside_the_load_may_end_with_it_and_not_before() {
        let running = json!({ "running": {} });
        let ended = json!({ "terminated": { "exitCode": 137 } });
        let pod = |store: &serde_json::Value, last: &serde_json::Value, load: &serde_json::Value| {
            let status = |name: &str, state: &serde_json::Value, last: &serde_json::Value| {
                json!({
                    "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": state, "lastState": last,
                })
            };
            pod(json!({
                "initContainerStatuses": [status("store", store, last)],
                "containerStatuses": [status("load", load, &json!({}))],
            }))
        };
        let death = |store, last, load| death_beside(&pod(store, last, load), "store", "load");
        let none = json!({});
        assert_eq!(death(&running, &none, &running), None);
        assert_eq!(death(&ended, &none, &ended), None);
        let said = "etcd-0: store was killed by signal 9";
        assert_eq!(death(&ended, &none, &running).as_deref(), Some(said));
        assert_eq!(death(&running, &ended, &running).as_deref(), Some(said), "the kubelet has started it again");
        assert_eq!(death(&ended, &ended, &ended).as_deref(), Some(said));
    }

    #[test]
    fn a_part_of_a_control_plane_that_ended_before_the_load_is_forgiven() {
        let pods = [pod(json!({ "initContainerStatuses": [{
            "name": "kube-apiserver", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": {} },
            "lastState": { "terminated": { "exitCode": 137, "finishedAt": at(NOW - 10) } },
        }] }))];
        let since = |seconds: i64| death_since("etcd-0", &pods, Timestamp::from_second(seconds).unwrap());
        assert_eq!(since(NOW - 9), None);
        let ended = Death::Ended("etcd-0: kube-apiserver was killed by signal 9".into());
        assert_eq!(since(NOW - 11), Some(ended));
        assert_eq!(death_since("etcd-1", &pods, now()), Some(Death::Taken("etcd-1 was deleted".into())));
    }

    #[test]
    fn members_are_ready_only_all_together() {
        let ready = pod(json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
        let members = ["etcd-0".to_owned(), "etcd-1".to_owned()];
        assert_eq!(of_members(&members[..1], std::slice::from_ref(&ready), now()), Health::Ready);
        assert_eq!(of_members(&members, &[ready], now()), Health::Starting("etcd-1 does not exist yet".into()));
    }
}
