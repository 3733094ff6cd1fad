//! BenchmarkRun: dereference, validate, observe, decide, perform, status, in that order.
//!
//! [`observe`] reads, [`step`] decides, [`perform`] writes; [`outcome`] turns what was measured into a report and a status.

mod clusters;
mod collect;
mod held;
mod load_pods;
mod observe;
mod outcome;
mod perform;
mod references;
mod step;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use storebench_core::archive::{RUN_LABEL, TrialFile};
use storebench_core::conditions::{RunState, of_run};
use storebench_core::judgement::stop_half_widths;
use storebench_core::ledger::number;
use storebench_core::reason::{Cure, Reason};
use storebench_core::record::{FailureCause, TrialFailure};
use storebench_core::status::progress;
use storebench_crds::BenchmarkRun;
use storebench_crds::status::{BenchmarkRunStatus, TrialEntry, TrialState};

use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::Trouble;
use crate::kept;
use crate::kind::{self, Conditions, Kind, Named, Said};
use crate::objects::Owner;
use crate::objects::names;
pub use crate::queue::Guarded;
use crate::queue::{is_true, is_under_way};
pub use observe::whole_record;
use observe::{existing, observe};
use perform::Stage;
use references::{References, dereference};
use step::{LEFT_OVER_MAX, Step, View, decide};

/// Holds a run until everything that was made for it is gone, so that the next one has the machine for itself.
const FINALIZER: &str = "storebench.dev/clean-up";
/// Steps that one reconciliation takes at most; the rest comes with the next.
const STEPS_MAX: usize = 4;
/// While something is being deleted, a look is due this often, should an event be missed.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(3);

/// A run whose clusters cannot be reached looks for them this often.
const STALLED_INTERVAL: Duration = Duration::from_secs(30);

/// Whether a run whose time has come is still to be kept by a baseline is asked this often.
const AWAITED_INTERVAL: Duration = Duration::from_secs(10);

const CANNOT_BE_DELETED: &str = "what is left of it cannot be deleted: the next run begins all the same";
const SUSPENDED: &str = "suspended: set spec.suspend to false to go on";

impl Kind for BenchmarkRun {
    type State = RunState;
    const NAME: &'static str = "BenchmarkRun";
    const STALLED: fn(Reason) -> RunState = RunState::Stalled;
    const CONDITIONS: Conditions<RunState> = of_run;
    // The status of a run that can be read is fitted as a whole.
    const MESSAGE_BYTES_MAX: usize = 280;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        let uid = self.uid().unwrap_or_default();
        let result = end(self, error, context).await;
        if let Some(wait) = outlived_by(self, context).await {
            // What still runs would be measured with the next run.
            return result.map(|_| Action::requeue(wait));
        }
        // Whatever becomes of this run, the others go on.
        context.queue.leave(&uid);
        result
    }

    fn conditions(status: &BenchmarkRunStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut BenchmarkRunStatus) -> Said<'_> {
        let BenchmarkRunStatus { observed_generation, conditions, message, .. } = status;
        Said { observed_generation, conditions, message: Some(message) }
    }
}

impl Named for BenchmarkRun {
    const MISSING: Reason = Reason::RunMissing;
    const INVALID: Reason = Reason::InvalidRun;
}

/// Brings one run a step further.
async fn reconcile(run: &BenchmarkRun, context: &Context) -> Result<Action, Error> {
    let owner = Owner::of(run, RUN_LABEL).ok_or(Error::Incomplete("a BenchmarkRun without name, uid or namespace"))?;
    let uid = owner.reference.uid.clone();
    if run.meta().deletion_timestamp.is_some() {
        return clean_up(run, &owner, context).await;
    }
    let latest = context.statuses.latest(run);
    if is_true(&latest.conditions, "Complete") {
        if latest.report_ref.is_none() {
            let existing = existing(&context.client, &owner.namespace, &run.name_any(), &[]).await?;
            if perform::delete_others(&owner, None, &existing, context).await? {
                if is_held_up_too_long(run, &latest) {
                    context.queue.leave(&uid);
                }
                return Ok(Action::requeue(CLEAN_UP_INTERVAL));
            }
        }
        context.queue.leave(&uid);
        context.metrics.run_is_complete(&owner.namespace, &run.name_any(), &latest);
        let due = outcome::expiry(run.spec.ttl.as_ref(), &latest);
        // spec.suspend may still be changed; who waits for the new generation to be observed must not wait for ever.
        if let Some(verdict) = latest.verdict {
            outcome::patch(run, latest, RunState::Complete(verdict), context).await?;
        }
        return expire(run, due, context).await;
    }
    hold(run, context).await?;
    let references = match dereference(run, &owner.namespace, context).await? {
        Ok(references) => references,
        Err(trouble) => {
            // A run that has begun cannot go on with other services: it ends, with what it has.
            if let Some(action) = outcome::abandon(run, &owner, &trouble, context).await? {
                return Ok(action);
            }
            return stall(run, &uid, trouble, context).await;
        }
    };
    // What is deployed of it goes first: see Step::Hold.
    if run.spec.suspend && !is_under_way(&latest) {
        context.queue.leave(&uid);
        let status = progress(&run.spec, latest.trials, SUSPENDED.into());
        outcome::patch(run, status, RunState::Suspended, context).await?;
        return Ok(Action::await_change());
    }
    if let Err(position) = context.queue.take(&uid) {
        let mut status = progress(&run.spec, trials_so_far(run), queued(position));
        status.queue_position = Some(position);
        outcome::patch(run, status, RunState::Queued, context).await?;
        return Ok(Action::await_change());
    }
    advance(run, &owner, &references, context).await
}

/// Only its user can help the run on.
async fn stall(run: &BenchmarkRun, uid: &str, trouble: Trouble, context: &Context) -> Result<Action, Error> {
    context.queue.leave(uid);
    let Trouble { reason, message } = trouble;
    events::stalled(context, run, reason, &message).await;
    let status = progress(&run.spec, trials_so_far(run), message);
    outcome::patch(run, status, RunState::Stalled(reason), context).await?;
    let is_unwatched = match reason.cure() {
        Cure::Unwatched => true,
        // Services and control planes are watched; Secrets with kubeconfigs and the clusters there are not.
        Cure::Watched | Cure::Never => run.spec.arms.iter().any(|arm| arm.kubeconfig_secret_ref.is_some()),
    };
    Ok(if is_unwatched { Action::requeue(STALLED_INTERVAL) } else { Action::await_change() })
}

/// The API server refuses for good what this run needs: it ends, or, where it has not begun, says so and waits for somebody to
/// change that.
async fn end(run: &BenchmarkRun, error: &Error, context: &Context) -> Result<Action, Error> {
    let again = Action::requeue(kind::REFUSED_INTERVAL);
    let owner = Owner::of(run, RUN_LABEL).ok_or(Error::Incomplete("a BenchmarkRun without name, uid or namespace"))?;
    let is_complete = is_true(&context.statuses.latest(run).conditions, "Complete");
    if is_complete || run.meta().deletion_timestamp.is_some() {
        // Only what is left of it is still there.
        return Ok(again);
    }
    let has_begun = match observe::head(context, &owner).await {
        Ok(head) => head.is_some(),
        Err(Error::NameTaken { .. } | Error::StillThere(_)) => false,
        // What is no record any more was one when it began.
        Err(Error::Archive(_) | Error::Json(_) | Error::Tampered(_)) => true,
        Err(error) => return Err(error),
    };
    if has_begun {
        outcome::close(run, error.for_user(), context).await?;
        return Ok(Action::requeue(Duration::ZERO));
    }
    stall(run, &owner.reference.uid, error.trouble(), context).await?;
    Ok(again)
}

/// How long to wait for what is left of a run that ended early; `None`: nothing is left, or it was waited for long enough.
///
/// What cannot be deleted, as where a policy forbids it or a node is lost, must not hold up every run in every namespace.
async fn outlived_by(run: &BenchmarkRun, context: &Context) -> Option<Duration> {
    let owner = Owner::of(run, RUN_LABEL)?;
    let latest = context.statuses.latest(run);
    if !context.queue.is_held_by(&owner.reference.uid) && !is_under_way(&latest) {
        return None;
    }
    if is_held_up_too_long(run, &latest) {
        tracing::warn!(run = run.name_any(), "{CANNOT_BE_DELETED}");
        return None;
    }
    let existing = existing(&context.client, &owner.namespace, &run.name_any(), &[]).await.ok()?;
    // A deletion that is refused is told by the next look; what counts here is whether anything is left.
    let left = perform::delete_others(&owner, None, &existing, context).await;
    left.unwrap_or(!existing.is_empty()).then_some(CLEAN_UP_INTERVAL)
}

/// Whether a run ended, or was deleted, so long ago that others need not wait any longer for what is left of it.
fn is_held_up_too_long(run: &BenchmarkRun, status: &BenchmarkRunStatus) -> bool {
    let is_end = |one: &&Condition| matches!(one.type_.as_str(), "Complete" | "Stalled") && one.status == "True";
    let ended = status.conditions.iter().filter(is_end).map(|one| one.last_transition_time.0).min();
    let ended = ended.or(run.meta().deletion_timestamp.as_ref().map(|deleted| deleted.0));
    ended.is_some_and(|ended| Timestamp::now().duration_since(ended) > LEFT_OVER_MAX)
}

fn queued(position: u32) -> String {
    match position {
        0 => "next in the queue".into(),
        1 => "1 run goes first".into(),
        count => format!("{count} runs go first"),
    }
}

fn trials_so_far(run: &BenchmarkRun) -> Vec<TrialEntry> {
    run.status.as_ref().map(|status| status.trials.clone()).unwrap_or_default()
}

/// It is this run's turn: as many steps as can be taken without waiting.
async fn advance(
    run: &BenchmarkRun,
    owner: &Owner,
    references: &References,
    context: &Context,
) -> Result<Action, Error> {
    let (name, uid) = (run.name_any(), owner.reference.uid.clone());
    for _ in 0..STEPS_MAX {
        let observed = observe(context, owner, &references.shared_pods()).await?;
        let Some(head) = &observed.head else {
            match outcome::begin(run, owner, references, context).await? {
                Ok(()) => continue,
                Err(trouble) => return stall(run, &uid, trouble, context).await,
            }
        };
        let record = outcome::record(head, &observed);
        if let Some(lost) = lost(&context.statuses.latest(run).trials, &observed.files) {
            let (number, arm) = (number(&record.trials, lost.index), lost.arm);
            return Err(Error::Tampered(format!("trial {number} of {arm} was measured, but its ConfigMap is gone")));
        }
        // Another operator may know a Secret again by something else: that is said first.
        let changed = outcome::changed(head, &record, &observed, context);
        let changed = changed.or_else(|| references.changed_since(&head.services));
        if let Some(trouble) = changed {
            return match outcome::abandon(run, owner, &trouble, context).await? {
                Some(action) => Ok(action),
                None => Ok(Action::requeue(CLEAN_UP_INTERVAL)),
            };
        }
        if let Some(trouble) = outcome::too_long(&record, &observed.existing, Timestamp::now(), context) {
            return match outcome::abandon(run, owner, &trouble, context).await? {
                Some(action) => Ok(action),
                None => Ok(Action::requeue(CLEAN_UP_INTERVAL)),
            };
        }
        let now = Timestamp::now();
        let view = View { spec: &run.spec, trials: &record.trials, existing: &observed.existing, now };
        let step = match outcome::is_worth_measuring(&head.record, head.baseline.as_ref()) {
            true => decide(
                &view,
                || stop_half_widths(&record),
                |index, arm| names::trial(&name, &uid, index, arm),
                |arm, trial| references.members(arm, trial),
            ),
            // Nothing was made for it.
            false => Step::Finish,
        };
        tracing::debug!(run = name, ?step, "decided");
        let state = if step == Step::Hold { RunState::Suspended } else { RunState::Running };
        let of_trial =
            |trial| Stage { trial, owner, references, existing: &observed.existing, record: &record, context };
        match step {
            Step::Finish => {
                outcome::finish(run, owner, record, head, &observed.hashes, context).await?;
                context.queue.leave(&uid);
                context.archive.forget(&uid);
                return Ok(Action::requeue(Duration::ZERO));
            }
            Step::Hold => {
                if !observed.existing.is_empty() {
                    tracing::warn!(run = name, "{CANNOT_BE_DELETED}");
                }
                let entries = outcome::entries(&record, &observed.existing);
                let status = progress(&run.spec, entries, SUSPENDED.into());
                outcome::patch(run, status, state, context).await?;
                context.queue.leave(&uid);
                return Ok(Action::await_change());
            }
            Step::Wait { at_most, .. } => {
                let status = outcome::running(run, &record, &observed.existing);
                outcome::patch(run, status, state, context).await?;
                return Ok(Action::requeue(at_most));
            }
            Step::CleanUp { keep } => {
                perform::delete_others(owner, keep.as_deref(), &observed.existing, context).await?;
                let mut status = outcome::running(run, &record, &observed.existing);
                if keep.is_none() {
                    status.message = "what is left of its trials is removed".into();
                }
                outcome::patch(run, status, state, context).await?;
                return Ok(Action::requeue(CLEAN_UP_INTERVAL));
            }
            Step::Fail(trial, failure) => {
                of_trial(&trial).fail(run, failure).await?;
            }
            Step::DeployCompanions(ref trial)
            | Step::Deploy(ref trial)
            | Step::DeployControlPlane(ref trial)
            | Step::Load(ref trial)
            | Step::Collect(ref trial) => {
                // First said, then made: by its status goes who takes over from an operator that was killed in between.
                if !is_under_way(&context.statuses.latest(run)) {
                    let status = outcome::running(run, &record, &observed.existing);
                    outcome::patch(run, status, state, context).await?;
                }
                let stage = of_trial(trial);
                let failure = match carry_out(&step, &stage).await {
                    Err(error) if error.is_final(context.failures.count(&kind::key_of::<BenchmarkRun>(run))) => {
                        Some(TrialFailure { cause: FailureCause::Platform, detail: error.for_user() })
                    }
                    done => done?,
                };
                if let Some(failure) = failure {
                    stage.fail(run, failure).await?;
                }
            }
        }
    }
    Ok(Action::requeue(Duration::ZERO))
}

/// A trial that had ended and of which there is no file any more.
fn lost(ledger: &[TrialEntry], files: &[Arc<TrialFile>]) -> Option<TrialEntry> {
    let has_ended = |entry: &&TrialEntry| matches!(entry.state, TrialState::Valid | TrialState::Invalid);
    let is_filed =
        |entry: &TrialEntry| files.iter().any(|file| (file.trial.index, &file.trial.arm) == (entry.index, &entry.arm));
    ledger.iter().filter(has_ended).find(|entry| !is_filed(entry)).cloned()
}

/// Does what a step asks for its trial. Returns why the trial has failed, if it has.
async fn carry_out(step: &Step, stage: &Stage<'_>) -> Result<Option<TrialFailure>, Error> {
    match step {
        Step::DeployCompanions(_) => stage.deploy_companions().await?,
        Step::Deploy(_) => stage.deploy().await?,
        Step::DeployControlPlane(_) => return stage.deploy_control_plane().await,
        Step::Load(_) => stage.load().await?,
        Step::Collect(_) => stage.collect().await?,
        Step::CleanUp { .. } | Step::Fail(..) | Step::Wait { .. } | Step::Hold | Step::Finish => {}
    }
    Ok(None)
}

/// Puts the finalizer on a run that lacks it.
async fn hold(run: &BenchmarkRun, context: &Context) -> Result<(), Error> {
    if run.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    let mut finalizers = run.finalizers().to_vec();
    finalizers.push(FINALIZER.into());
    set_finalizers(run, &finalizers, context).await
}

async fn set_finalizers(run: &BenchmarkRun, finalizers: &[String], context: &Context) -> Result<(), Error> {
    let name = run.name_any();
    // With the version that was read, so that a finalizer which somebody else has set meanwhile is not lost.
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": run.resource_version() } });
    let api = Api::<BenchmarkRun>::namespaced(context.client.clone(), &run.namespace().unwrap_or_default());
    match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(|_| ()).tried(|| format!("set the finalizers of BenchmarkRun {name}")),
    }
}

/// The run is being deleted: everything of it goes, then the finalizer, then the turn.
async fn clean_up(run: &BenchmarkRun, owner: &Owner, context: &Context) -> Result<Action, Error> {
    let uid = owner.reference.uid.as_str();
    if run.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        let existing = existing(&context.client, &owner.namespace, &run.name_any(), &[]).await?;
        if perform::delete_others(owner, None, &existing, context).await? {
            if is_held_up_too_long(run, &context.statuses.latest(run)) {
                context.queue.leave(uid);
            }
            return Ok(Action::requeue(CLEAN_UP_INTERVAL));
        }
        perform::delete_records(owner, context).await?;
        let rest: Vec<String> = run.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        set_finalizers(run, &rest, context).await?;
    }
    context.metrics.forget_run(&owner.namespace, &run.name_any());
    context.statuses.forget(uid);
    context.archive.forget(uid);
    context.queue.leave(uid);
    Ok(Action::await_change())
}

/// Deletes a finished run when its time has come, and no baseline is about to keep it.
async fn expire(run: &BenchmarkRun, due: Option<Timestamp>, context: &Context) -> Result<Action, Error> {
    let Some(due) = due else { return Ok(Action::await_change()) };
    let now = Timestamp::now();
    if now < due {
        return Ok(Action::requeue(due.duration_since(now).unsigned_abs()));
    }
    let name = run.name_any();
    if kept::awaits(&name, &run.namespace().unwrap_or_default(), context).await? {
        return Ok(Action::requeue(AWAITED_INTERVAL));
    }
    let api = Api::<BenchmarkRun>::namespaced(context.client.clone(), &run.namespace().unwrap_or_default());
    match api.delete(&name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => drop(result.tried(|| format!("delete BenchmarkRun {name}, whose time to live is over"))?),
    }
    Ok(Action::await_change())
}
