//! BenchmarkSchedule: what is due is decided in `storebench-core` from what was made before; here it is made, and what is old is deleted.
//!
//! The name of what is made follows from the schedule and the time, so that an operator which was killed in between finds it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use std::time::Duration;
use storebench_core::conditions::{ScheduleState, of_schedule};
use storebench_core::reason::Reason;
use storebench_core::recurrence::{
    self as core, Due, Made as Object, Past, Recurrence, SCHEDULE_LABEL, SCHEDULED_ANNOTATION,
};
use storebench_core::validate::Problem;
use storebench_crds::benchmark_schedule::{BenchmarkSchedule, BenchmarkScheduleStatus};
use storebench_crds::{BenchmarkRun, BenchmarkSuite, Verdict};

use crate::apply::create;
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::Trouble;
use crate::kind::{self, Conditions, Kind, Said};
use crate::made::{self, Made, give_to};
use crate::objects::Owner;

/// A schedule that may be one this version cannot read.
pub type Guarded = kind::Guarded<BenchmarkSchedule>;

/// While an earlier one is waited for, a look is due this often, should an event be missed.
const HELD_INTERVAL: Duration = Duration::from_secs(60);
/// Names of what is under way that a status has at most.
const ACTIVE_MAX: usize = 16;

impl Kind for BenchmarkSchedule {
    type State = ScheduleState;
    const NAME: &'static str = "BenchmarkSchedule";
    const STALLED: fn(Reason) -> ScheduleState = ScheduleState::Stalled;
    const CONDITIONS: Conditions<ScheduleState> = of_schedule;
    const MESSAGE_BYTES_MAX: usize = 280;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        let status = self.status.clone().unwrap_or_default();
        stall(self, status, &error.trouble(), context).await?;
        Ok(Action::requeue(kind::REFUSED_INTERVAL))
    }

    fn conditions(status: &BenchmarkScheduleStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut BenchmarkScheduleStatus) -> Said<'_> {
        let BenchmarkScheduleStatus { observed_generation, conditions, message, .. } = status;
        Said { observed_generation, conditions, message: Some(message) }
    }
}

/// Makes what is due, and deletes what is no longer kept.
async fn reconcile(seen: &BenchmarkSchedule, context: &Context) -> Result<Action, Error> {
    // What it made is owned by it and goes with it.
    let Some(schedule) = &kind::latest(seen, context).await? else { return Ok(Action::await_change()) };
    let owner = Owner::of(schedule, SCHEDULE_LABEL)
        .ok_or(Error::Incomplete("a BenchmarkSchedule without name, uid or namespace"))?;
    let before = schedule.status.clone().unwrap_or_default();
    let recurrence = match readable(schedule, &before) {
        Ok(recurrence) => recurrence,
        Err(message) => {
            stall(schedule, before, &Trouble { reason: Reason::InvalidSpec, message }, context).await?;
            return Ok(Action::await_change());
        }
    };
    let mut made = made::all::<BenchmarkRun>(&owner, SCHEDULE_LABEL, context).await?;
    made.extend(made::all::<BenchmarkSuite>(&owner, SCHEDULE_LABEL, context).await?);
    made.sort_by(|one, other| (one.time, &one.name).cmp(&(other.time, &other.name)));
    forget_old(schedule, &owner, &made, context).await?;
    let active = |made: &[Made]| made.iter().filter(|one| one.verdict.is_none()).map(|one| one.name.clone()).collect();
    let mut active: Vec<String> = active(&made);
    let written = before.last_schedule_time.as_ref().map(|time| time.0);
    let mut last = made.iter().map(|one| one.time).chain(written).max();
    let now = Timestamp::now();
    let created = schedule.creation_timestamp().map_or(now, |time| time.0);
    let mut due = core::due(&recurrence, &schedule.spec, Past { created, last, active: active.len() }, now);
    if let Due::Make(time) | Due::Replace(time) = due {
        if matches!(due, Due::Replace(_)) {
            for one in made.iter().filter(|one| one.verdict.is_none() && !one.is_deleted) {
                delete(one, &owner, context).await?;
            }
            active.clear();
        }
        match make(schedule, &owner, time, context).await? {
            Ok(name) => active.push(name),
            Err(message) => {
                stall(schedule, before, &Trouble { reason: Reason::InvalidSpec, message }, context).await?;
                return Ok(Action::await_change());
            }
        }
        last = Some(time);
        due = Due::Nothing(recurrence.next_after(now));
    }
    let newest = made.iter().rev().find_map(|one| Some((one.name.clone(), one.verdict?)));
    active.truncate(ACTIVE_MAX);
    let (state, message, next) = words(schedule, due, &active);
    let status = BenchmarkScheduleStatus {
        active,
        last_schedule_time: last.map(Time),
        next_schedule_time: next.map(Time),
        last_verdict: newest.as_ref().map(|(_, verdict)| *verdict).or(before.last_verdict),
        last_completed: newest.map(|(name, _)| name).or(before.last_completed.clone()),
        ..before
    };
    kind::report(schedule, status, state, &message, context).await?;
    Ok(match (due, next) {
        (Due::Held, _) => Action::requeue(HELD_INTERVAL),
        (_, Some(next)) => Action::requeue(core::until(next, now)),
        (_, None) => Action::await_change(),
    })
}

/// The times of a schedule, if it can be read; what it makes is held to all rules when it was changed, and again before it is made.
fn readable(schedule: &BenchmarkSchedule, before: &BenchmarkScheduleStatus) -> Result<Recurrence, String> {
    let recurrence = Recurrence::new(&schedule.spec).map_err(|(field, text)| format!("{field} {text}"))?;
    if schedule.meta().generation != Some(before.observed_generation) {
        check(schedule, &schedule.name_any())?;
    }
    Ok(recurrence)
}

fn check(schedule: &BenchmarkSchedule, name: &str) -> Result<Object, String> {
    core::made(schedule, name).map_err(|problems| Problem::first_of(&problems))
}

/// Makes one for a time, unless it is there already. Returns its name, or what is wrong with the template.
async fn make(
    schedule: &BenchmarkSchedule,
    owner: &Owner,
    time: Timestamp,
    context: &Context,
) -> Result<Result<String, String>, Error> {
    let name = core::name_at(&schedule.name_any(), time);
    let annotate = |annotations: &mut Option<_>| {
        annotations
            .get_or_insert_with(std::collections::BTreeMap::new)
            .insert(SCHEDULED_ANNOTATION.to_owned(), time.to_string());
    };
    match check(schedule, &name) {
        Err(message) => return Ok(Err(message)),
        Ok(Object::Run(mut run)) => {
            give_to(&mut run, owner);
            annotate(&mut run.metadata.annotations);
            create(&context.client, &run).await?;
        }
        Ok(Object::Suite(mut suite)) => {
            give_to(&mut suite, owner);
            annotate(&mut suite.metadata.annotations);
            create(&context.client, &suite).await?;
        }
    }
    tracing::info!(schedule = schedule.name_any(), name, "made");
    events::made(context, schedule, &name).await;
    Ok(Ok(name))
}

/// Deletes what is over and beyond the limits.
async fn forget_old(
    schedule: &BenchmarkSchedule,
    owner: &Owner,
    made: &[Made],
    context: &Context,
) -> Result<(), Error> {
    let kept = made.iter().filter(|one| !one.is_deleted);
    let over: Vec<(&str, Timestamp, bool)> =
        kept.filter_map(|one| Some((one.name.as_str(), one.time, one.verdict? == Verdict::Passed))).collect();
    let old = core::beyond_limits(&over, &schedule.spec);
    for one in made.iter().filter(|one| old.contains(&one.name.as_str()) && one.verdict.is_some() && !one.is_deleted) {
        delete(one, owner, context).await?;
    }
    Ok(())
}

async fn delete(one: &Made, owner: &Owner, context: &Context) -> Result<(), Error> {
    let api = made::api(context, &owner.namespace, &one.kind);
    match api.delete(&one.name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop).tried(|| format!("delete {}s {}", one.kind.kind, one.name)),
    }
}

/// State, message, and the time of the next one.
fn words(schedule: &BenchmarkSchedule, due: Due, active: &[String]) -> (ScheduleState, String, Option<Timestamp>) {
    if schedule.spec.suspend {
        return (ScheduleState::Suspended, "suspended: set spec.suspend to false to go on".into(), None);
    }
    match due {
        Due::Held => {
            let message = format!("due, and waits for {}", active.join(", "));
            (ScheduleState::Scheduled, message, None)
        }
        Due::Nothing(None) => (ScheduleState::Scheduled, "no time fits spec.schedule any more".into(), None),
        Due::Nothing(Some(next)) => (ScheduleState::Scheduled, format!("next at {next}"), Some(next)),
        // Done before anything is said.
        Due::Make(time) | Due::Replace(time) => (ScheduleState::Scheduled, format!("due at {time}"), Some(time)),
    }
}

/// Only its user can help the schedule on: until then it makes nothing.
async fn stall(
    schedule: &BenchmarkSchedule,
    status: BenchmarkScheduleStatus,
    trouble: &Trouble,
    context: &Context,
) -> Result<(), Error> {
    let status = BenchmarkScheduleStatus { next_schedule_time: None, ..status };
    kind::stall(schedule, status, trouble, context).await
}
