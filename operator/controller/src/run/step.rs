//! What to do next for a run, from what has been measured and what exists. Pure: the whole logic of a run without a cluster.
//!
//! The order is fixed: companions if the store has any, store, control plane if the arm has one, Job, ConfigMap of the trial, delete Job, delete the others. [`decide`] finds where a run is by
//! looking for the last of these that exists, so that an operator killed between any two goes on where the other stopped.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use storebench_core::ledger::{Next, next};
use storebench_core::reason::PodReason;
use storebench_core::record::{FailureCause, TrialFailure, TrialRecord};
use storebench_core::trial::timed_out;
use storebench_crds::benchmark_run::{BenchmarkRunSpec, Isolation};
use storebench_crds::line::{one_line, short_line};

use super::load_pods::{self, is_load_pod};
use crate::health::{self, Death, Health, Trouble};
use crate::objects::control_plane::API_SERVER_CONTAINER;
use crate::objects::load::LOAD_CONTAINER;
use crate::objects::store::STORE_CONTAINER;

/// How long a store that runs may take to answer. `trials.timeout` begins with the load, after that.
const READY_PATIENCE: Duration = Duration::from_secs(90);
/// How long a control plane may take: four programs that start one after the other, and their nodes.
const CONTROL_PLANE_PATIENCE: Duration = Duration::from_secs(240);

/// How long the cluster may take to start a process, besides what is looked at pod by pod: pulling an image may take minutes.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(300);
/// Why no other node will do.
const STAYS: &str = "; the trials of a run stay on the nodes of its first, so that pairs are pairs";
/// How long pods may be refused that something else made room for: those of the trial before may still count.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(15);

/// How long others wait for what is left of a run that ended, was deleted or suspended, before it is taken for what cannot be deleted.
pub const LEFT_OVER_MAX: SignedDuration = SignedDuration::from_mins(10);

/// One trial of one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The trial's index.
    pub index: u32,
    /// The arm's name.
    pub arm: String,
    /// The name of its objects.
    pub name: String,
}

/// What exists of a run in the cluster, besides what it has measured.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    /// Its Jobs.
    pub jobs: Vec<Job>,
    /// Its own stores.
    pub stores: Vec<Deployed>,
    /// What its own stores need beside themselves.
    pub companions: Vec<Deployed>,
    /// Its own control planes.
    pub control_planes: Vec<Deployed>,
    /// The pods of its Jobs and stores; with `isolation: Shared` those of the services, too.
    pub pods: Vec<Pod>,
    /// Why Jobs and StatefulSets without pods have none.
    pub refusals: Vec<Refusal>,
}

impl Existing {
    /// Whether nothing of the run's own is left. Pods count: a store that is stopping still uses the machine.
    pub fn is_empty(&self) -> bool {
        let Self { jobs, stores, companions, control_planes, pods: _, refusals: _ } = self;
        jobs.is_empty()
            && stores.is_empty()
            && companions.is_empty()
            && control_planes.is_empty()
            && self.own_pods().next().is_none()
    }

    /// Its own pods: not those of services.
    pub fn own_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.labels().contains_key(storebench_core::archive::RUN_LABEL))
    }

    /// Since when the first of it should have been gone.
    fn stopping_since(&self) -> Option<Timestamp> {
        let pods = self.own_pods().map(|pod| &pod.metadata);
        let all = pods.chain(self.jobs.iter().map(|job| &job.metadata));
        all.filter_map(|metadata| metadata.deletion_timestamp.as_ref()).map(|deleted| deleted.0).min()
    }
}

/// Why the pods of a Job or StatefulSet cannot be created: a quota, a policy, or an admission webhook says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `Job` or `StatefulSet`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// What its controller was told.
    pub message: String,
}

/// The StatefulSet of a store or control plane that a trial has for itself.
#[derive(Clone, Debug)]
pub struct Deployed {
    /// The trial's name.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub is_stopping: bool,
}

/// The pods that an arm's load meets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Of what the store needs beside itself.
    pub companions: Vec<String>,
    /// Of the store. Empty: it runs beside the load, or a cluster is loaded that was there already.
    pub store: Vec<String>,
    /// Of the control plane, where there is one.
    pub control_plane: Option<String>,
    /// They were there before the trial, and what became of them before its load is none of its business.
    pub is_shared: bool,
    /// How often the load has one of the store killed. The kubelet starts it again, which is no failure of the store.
    pub kills: u32,
}

impl Members {
    /// Why one of them is not what it was when the load of this trial began.
    pub fn death(&self, pods: &[Pod], load_began: Timestamp, trial: &str) -> Option<TrialFailure> {
        // A StatefulSet replaces a pod that was deleted, under the same name.
        let is_newer = |pod: &&Pod| pod.creation_timestamp().is_some_and(|created| created.0 > load_began);
        let mut members = self.store.iter().chain(&self.companions).chain(&self.control_plane);
        let replaced = members.find(|member| pods.iter().filter(is_newer).any(|pod| pod.name_any() == **member));
        // A store of the trial's own may not have restarted at all.
        let since = if self.is_shared { load_began } else { Timestamp::UNIX_EPOCH };
        let kills = health::kills(&self.store, pods, STORE_CONTAINER).filter(|kills| (1..=self.kills).contains(kills));
        let of_members = |members: &[String], kills: Option<u32>| {
            members.iter().find_map(|member| match kills {
                Some(_) => health::taken_away(member, pods),
                None => health::death(member, pods, STORE_CONTAINER, since),
            })
        };
        let of_store = || of_members(&self.store, kills).or_else(|| of_members(&self.companions, None));
        let load = || pods.iter().filter(|pod| is_load_pod(pod, trial));
        let beside_load = || load().find_map(|pod| health::death_beside(pod, STORE_CONTAINER, LOAD_CONTAINER));
        let of_control_plane = || health::death_since(self.control_plane.as_ref()?, pods, load_began);
        let replaced = replaced.map(|member| Death::Taken(format!("{member} was deleted, and replaced by another")));
        let beside_load = || beside_load().map(Death::Ended);
        let death = replaced.or_else(of_store).or_else(beside_load).or_else(of_control_plane)?;
        Some(match death {
            Death::Taken(detail) => TrialFailure { cause: FailureCause::Disturbed, detail },
            Death::Ended(detail) => TrialFailure { cause: FailureCause::StoreFailed, detail },
        })
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Delete what is left of other trials; these names are kept.
    CleanUp {
        /// The trial whose objects are kept.
        keep: Option<String>,
    },
    /// Apply what the store of this trial needs beside itself.
    DeployCompanions(Trial),
    /// Apply the store of this trial, whose companions answer.
    Deploy(Trial),
    /// Apply the control plane of this trial, whose store answers.
    DeployControlPlane(Trial),
    /// Create the Job of this trial.
    Load(Trial),
    /// The load is over: read what it measured, and file it.
    Collect(Trial),
    /// The trial has failed without a measurement: file that.
    Fail(Trial, TrialFailure),
    /// Nothing to do until something changes, or until this much time has passed.
    Wait {
        /// What it waits for, in words.
        message: String,
        /// When a look is due although nothing changed.
        at_most: Duration,
    },
    /// `spec.suspend` holds the run between two trials. What is still there cannot be deleted.
    Hold,
    /// Every trial that was to run has run, and nothing is left.
    Finish,
}

/// How a run looks.
#[derive(Debug)]
pub struct View<'a> {
    /// What was asked.
    pub spec: &'a BenchmarkRunSpec,
    /// What has been measured.
    pub trials: &'a [TrialRecord],
    /// What exists.
    pub existing: &'a Existing,
    /// Now.
    pub now: Timestamp,
}

/// Decides. `name_of` gives the name of a trial's objects, `members_of` the pods of the store that an arm's load meets.
pub fn decide(
    view: &View,
    half_widths: impl FnOnce() -> Vec<f64>,
    name_of: impl Fn(u32, &str) -> String,
    members_of: impl Fn(&str, &str) -> Members,
) -> Step {
    let arms: Vec<&str> = view.spec.arm_names().collect();
    let Next::Run { index, arm } = next(view.spec, &arms, view.trials, half_widths) else {
        return if view.exists_besides(None) { view.cleaning_up() } else { Step::Finish };
    };
    let trial = Trial { name: name_of(index, &arm), index, arm };
    if view.exists_besides(Some(&trial.name)) {
        return Step::CleanUp { keep: Some(trial.name) };
    }
    let job = view.existing.jobs.iter().find(|job| job.name_any() == trial.name);
    let members = members_of(&trial.arm, &trial.name);
    match job {
        Some(job) => view.loading(job, trial, &members),
        None => view.deploying(trial, &members),
    }
}

impl View<'_> {
    /// Whether anything exists that is not of this trial. Pods count: a store that is stopping still uses the machine.
    fn exists_besides(&self, trial: Option<&str>) -> bool {
        let other = |name: &str| trial != Some(name);
        let Existing { jobs, stores, companions, control_planes, pods: _, refusals: _ } = self.existing;
        let instance = |pod: &Pod| pod.labels().get(crate::objects::INSTANCE_LABEL).cloned().unwrap_or_default();
        jobs.iter().any(|job| other(&job.name_any()))
            || stores.iter().chain(companions).chain(control_planes).any(|one| one.is_stopping || other(&one.name))
            || self.existing.own_pods().any(|pod| other(&instance(pod)))
    }

    /// Everything goes. A run that is suspended does not hold up the others for what cannot be deleted.
    fn cleaning_up(&self) -> Step {
        let stopping = self.existing.stopping_since().map(|since| self.now.duration_since(since));
        let is_stuck = stopping.is_some_and(|stopping| stopping > LEFT_OVER_MAX);
        if self.spec.suspend && is_stuck { Step::Hold } else { Step::CleanUp { keep: None } }
    }

    fn deploying(&self, trial: Trial, members: &Members) -> Step {
        let store = self.existing.stores.iter().find(|store| store.name == trial.name);
        let is_fresh = self.spec.isolation == Isolation::Fresh;
        // Arms of one trial run back to back: a run that was held between them would have half a pair to repeat.
        let is_between = !self.trials.iter().any(|measured| measured.index == trial.index);
        if self.spec.suspend && is_between {
            // Between two trials nothing runs; a store that was just started is taken back.
            return if self.existing.is_empty() { Step::Hold } else { self.cleaning_up() };
        }
        let companions: Vec<&Deployed> =
            self.existing.companions.iter().filter(|companion| companion.name == trial.name).collect();
        if companions.len() < members.companions.len() && is_fresh {
            return Step::DeployCompanions(trial);
        }
        // As below, what others stand on was ready when they were made.
        let since = companions.into_iter().chain(store).map(|one| one.created).max().unwrap_or(self.now);
        if let Some(step) = self.until_ready(&trial, "companion", &members.companions, since, READY_PATIENCE) {
            return step;
        }
        if members.store.is_empty() {
            // It runs beside the load, or a cluster is there already.
            return Step::Load(trial);
        }
        let since = match store {
            None if is_fresh => return Step::Deploy(trial),
            None => self.now,
            Some(store) => store.created,
        };
        let plane = self.existing.control_planes.iter().find(|plane| plane.name == trial.name);
        // A store on which a control plane starts was ready. On a busy machine it may miss a probe meanwhile.
        let (since_ready, patience) =
            plane.map_or((since, READY_PATIENCE), |plane| (plane.created, CONTROL_PLANE_PATIENCE));
        if let Some(step) = self.until_ready(&trial, "store", &members.store, since_ready, patience) {
            return step;
        }
        let Some(member) = &members.control_plane else { return Step::Load(trial) };
        let since = match plane {
            None if is_fresh => return Step::DeployControlPlane(trial),
            None => self.now,
            Some(plane) => plane.created,
        };
        let members = std::slice::from_ref(member);
        let step = self.until_ready(&trial, "control plane", members, since, CONTROL_PLANE_PATIENCE);
        step.unwrap_or(Step::Load(trial))
    }

    /// What is to be done until these pods are ready; `None`: they are.
    fn until_ready(
        &self,
        trial: &Trial,
        what: &str,
        members: &[String],
        since: Timestamp,
        patience: Duration,
    ) -> Option<Step> {
        let fail = |cause, detail| Some(Step::Fail(trial.clone(), TrialFailure { cause, detail }));
        match health::of_members(members, &self.existing.pods, self.now) {
            Health::Ready => None,
            Health::Failed(Trouble { reason, message }) => {
                let stays =
                    reason == PodReason::Unschedulable && self.trials.iter().any(|trial| !trial.nodes.is_empty());
                let why = if stays { STAYS } else { "" };
                let detail = format!("the {what} never became ready: {}: {message}{why}", reason.as_str());
                fail(never_ready(reason), detail)
            }
            Health::Starting(message) => {
                let waited = self.since(since);
                let refusal = members.iter().find_map(|member| self.refusal("StatefulSet", member.rsplit_once('-')?.0));
                if let Some(refusal) = refusal.filter(|_| waited >= REFUSAL_PATIENCE) {
                    return fail(FailureCause::Platform, format!("the pods of the {what} are refused: {refusal}"));
                }
                let container = if what == "control plane" { API_SERVER_CONTAINER } else { STORE_CONTAINER };
                let pods = &self.existing.pods;
                let started = members.iter().map(|member| health::running_since(member, pods, container));
                let Some(started) =
                    started.collect::<Option<Vec<_>>>().map(|all| all.into_iter().fold(since, Ord::max))
                else {
                    // What is not running yet cannot answer: the cluster is waited for, not the store.
                    let waits = || members.iter().find_map(|member| health::waits_for(member, pods, container));
                    let message = waits().unwrap_or(message);
                    if waited >= CLUSTER_PATIENCE {
                        let detail =
                            format!("the cluster did not start the {what} in {} s: {message}", waited.as_secs());
                        return fail(FailureCause::Disturbed, detail);
                    }
                    let at_most = if is_missing(members, pods) { REFUSAL_PATIENCE } else { health::patience() };
                    return Some(Step::Wait { message, at_most: (CLUSTER_PATIENCE - waited).min(at_most) });
                };
                let waited = self.since(started);
                if waited >= patience {
                    let detail = format!("the {what} never became ready: {message} after {} s", waited.as_secs());
                    return fail(FailureCause::StoreFailed, detail);
                }
                Some(Step::Wait { message, at_most: (patience - waited).min(health::patience()) })
            }
        }
    }

    /// As for [`storebench_core::trial::Loaded::ended_by`], what ends a load explains no wrong answer that one of its pods has told of already, or
    /// who takes away the store or another load pod would have it repeated.
    fn loading(&self, job: &Job, trial: Trial, members: &Members) -> Step {
        match self.under_load(job, trial, members) {
            Step::Fail(trial, failure) => {
                let wrong_answer = load_pods::wrong_answer(&self.existing.pods, job, &trial.name);
                Step::Fail(trial, wrong_answer.unwrap_or(failure))
            }
            step => step,
        }
    }

    fn under_load(&self, job: &Job, trial: Trial, members: &Members) -> Step {
        let fail = |trial, cause, detail| Step::Fail(trial, TrialFailure { cause, detail });
        let died = || members.death(&self.existing.pods, began(job), &trial.name);
        match ending(job) {
            Ending::Complete => Step::Collect(trial),
            Ending::Failed(reason, message) => {
                if let Some(failure) = died() {
                    return Step::Fail(trial, failure);
                }
                let failure = self.why_failed(&trial, &reason, &message);
                Step::Fail(trial, failure)
            }
            Ending::None => {
                // The loader may go on for long: an API server tries again what its store does not answer.
                if let Some(failure) = died() {
                    return Step::Fail(trial, failure);
                }
                let pods = self.existing.pods.iter().filter(|pod| is_load_pod(pod, &trial.name));
                let trouble = pods.filter_map(|pod| health::trouble(pod, self.now)).next();
                let refusal = self.refusal("Job", &trial.name).filter(|_| self.since(began(job)) >= REFUSAL_PATIENCE);
                if let Some(refusal) = refusal {
                    return fail(trial, FailureCause::Platform, format!("the load pod is refused: {refusal}"));
                }
                match trouble {
                    Some(trouble) => {
                        let (cause, detail) = load_failed(trouble);
                        fail(trial, cause, detail)
                    }
                    None if !self.existing.pods.iter().any(|pod| is_load_pod(pod, &trial.name)) => {
                        Step::Wait { message: "the load pod is created".into(), at_most: REFUSAL_PATIENCE }
                    }
                    None => Step::Wait { message: "the load runs".into(), at_most: health::patience() },
                }
            }
        }
    }

    /// Why a Job failed, from its pods; whose doing it was decides whether the trial may be repeated.
    fn why_failed(&self, trial: &Trial, reason: &str, message: &str) -> TrialFailure {
        let failed = |cause, detail| TrialFailure { cause, detail };
        if reason == "DeadlineExceeded" {
            return timed_out();
        }
        let pods = load_pods::of_trial(&self.existing.pods, &trial.name);
        for pod in &pods {
            let name = pod.name_any();
            let status = pod.status.as_ref();
            if status.and_then(|status| status.reason.as_deref()) == Some("Evicted") {
                let why = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
                return failed(FailureCause::Disturbed, format!("the load pod {name} was evicted: {}", one_line(why)));
            }
            if pod.metadata.deletion_timestamp.is_some() {
                return failed(FailureCause::Disturbed, format!("the load pod {name} was deleted"));
            }
            let end = health::containers(pod).filter_map(|container| container.state.as_ref()?.terminated.as_ref());
            if let Some(end) = end.into_iter().find(|end| end.exit_code != 0) {
                return failed(FailureCause::Platform, format!("the load pod {name} {}", health::end(end)));
            }
        }
        if pods.is_empty() {
            return failed(FailureCause::Disturbed, "the load pod was deleted".into());
        }
        failed(FailureCause::Platform, format!("the load failed: {reason}: {}", one_line(message)))
    }

    /// Why an object has no pods, with the remedy.
    fn refusal(&self, kind: &str, name: &str) -> Option<String> {
        let refusal = self.existing.refusals.iter().find(|one| one.kind == kind && one.name == name)?;
        Some(format!("{}; raise the quota or change the policy that says so", short_line(&refusal.message, 180)))
    }

    fn since(&self, instant: Timestamp) -> Duration {
        if instant > self.now { Duration::ZERO } else { self.now.duration_since(instant).unsigned_abs() }
    }
}

/// Whose fault it is that a pod of a store or control plane, which this reason keeps from running, never became ready.
fn never_ready(reason: PodReason) -> FailureCause {
    match reason {
        PodReason::CrashLoop => FailureCause::StoreFailed,
        PodReason::Evicted => FailureCause::Disturbed,
        PodReason::Unschedulable
        | PodReason::VolumeUnbound
        | PodReason::ImageUnavailable
        | PodReason::ContainerNotCreated => FailureCause::Platform,
    }
}

/// Whose fault it is that a load pod does not run, and what is said of it.
fn load_failed(Trouble { reason, message }: Trouble<PodReason>) -> (FailureCause, String) {
    match reason {
        PodReason::Evicted => (FailureCause::Disturbed, format!("the load pod was evicted: {message}")),
        PodReason::Unschedulable
        | PodReason::VolumeUnbound
        | PodReason::ImageUnavailable
        | PodReason::CrashLoop
        | PodReason::ContainerNotCreated => {
            (FailureCause::Platform, format!("the load pod did not start: {}: {message}", reason.as_str()))
        }
    }
}

fn is_missing(members: &[String], pods: &[Pod]) -> bool {
    members.iter().any(|member| pods.iter().all(|pod| pod.metadata.name.as_ref() != Some(member)))
}

/// When a Job was created.
pub fn began(job: &Job) -> Timestamp {
    job.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// How a Job ended.
enum Ending {
    None,
    Complete,
    /// Reason and message of its Failed condition.
    Failed(String, String),
}

fn ending(job: &Job) -> Ending {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions.filter(|condition| condition.status == "True") {
        match condition.type_.as_str() {
            "Complete" => return Ending::Complete,
            "Failed" => {
                let reason = condition.reason.clone().unwrap_or_default();
                return Ending::Failed(reason, condition.message.clone().unwrap_or_default());
            }
            _ => {}
        }
    }
    Ending::None
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
