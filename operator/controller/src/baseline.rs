//! BenchmarkBaseline: keeps what a finished run measured, in a ConfigMap of its own, so that it outlives the run.
//!
//! The ConfigMap is made once, from the run's signed record, and signed for this baseline. Who was killed in between finds it; who finds
//! another one there, or none any more, keeps nothing: what runs are held against cannot be chosen afterwards.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use storebench_core::across::Figures;
use storebench_core::archive::{BASELINE_LABEL, COMPONENT_LABEL, FIGURES_KEY, RECORD_COMPONENT};
use storebench_core::conditions::{BaselineState, Stamp, of_baseline};
use storebench_core::judgement::judge;
use storebench_core::reason::{Cure, Reason};
use storebench_core::report::Report;
use storebench_core::status::fit_baseline;
use storebench_crds::benchmark_baseline::{BenchmarkBaseline, BenchmarkBaselineStatus};
use storebench_crds::line::short_line;
use storebench_crds::status::ReportRef;
use storebench_crds::{BenchmarkRun, Verdict};

use crate::apply::create;
use crate::context::Context;
use crate::error::Error;
use crate::events;
use crate::health::Trouble;
use crate::kept::kept;
use crate::kind::{self, Kind, Named};
use crate::objects::{Labels, Owner, names};
use crate::queue::is_true;
use crate::run;

/// What is kept is looked at this often: nobody tells that somebody has deleted or replaced it.
const KEPT_INTERVAL: Duration = Duration::from_secs(300);
/// While a run is waited for, a look is due this often, should an event be missed.
const WAITING_INTERVAL: Duration = Duration::from_secs(60);
/// A message is kept below this, bytes.
const MESSAGE_BYTES_MAX: usize = 280;

impl Kind for BenchmarkBaseline {
    const NAME: &'static str = "BenchmarkBaseline";

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        let status = self.status.clone().unwrap_or_default();
        report(self, status, BaselineState::Stalled(error.reason()), &error.for_user(), context).await?;
        // The run is over, so its figures do not become smaller.
        Ok(if error.is_too_large() { Action::await_change() } else { Action::requeue(kind::REFUSED_INTERVAL) })
    }

    fn unreadable(message: &str, stamp: &Stamp) -> Value {
        json!({ "message": message, "conditions": of_baseline(BaselineState::Stalled(Reason::Unreadable), message, stamp) })
    }
}

impl Named for BenchmarkBaseline {
    const MISSING: Reason = Reason::BaselineMissing;
    const INVALID: Reason = Reason::InvalidBaseline;
}

/// Keeps what the run measured, as soon as it is over.
async fn reconcile(seen: &BenchmarkBaseline, context: &Context) -> Result<Action, Error> {
    // What it keeps is owned by it and goes with it.
    let Some(baseline) = kind::latest(seen, context).await? else { return Ok(Action::await_change()) };
    let owner = Owner::of(&baseline, BASELINE_LABEL)
        .ok_or(Error::Incomplete("a BenchmarkBaseline without name, uid or namespace"))?;
    let before = baseline.status.clone().unwrap_or_default();
    let found = match kept(&owner, context).await? {
        Ok(None) if before.figures_ref.is_some() => Err(Trouble {
            reason: Reason::FiguresGone,
            message: format!(
                "ConfigMap {} with what was kept was deleted: create a new baseline under a new name",
                names::baseline(&owner.reference.name)
            ),
        }),
        found => found,
    };
    let figures = match found {
        Ok(Some(figures)) => Ok(figures),
        Ok(None) => keep(&baseline, &owner, context).await?,
        Err(Trouble { reason, message }) => Err((BaselineState::Stalled(reason), message)),
    };
    match figures {
        Ok(figures) => {
            let message = format!("keeps {} of {}", figures.record.name, figures.record.started_at);
            let is_new = before.figures_ref.is_none();
            report(&baseline, describe(&figures, &owner), BaselineState::Kept, &message, context).await?;
            if is_new {
                events::ready(context, &baseline, &message).await;
            }
            Ok(Action::requeue(KEPT_INTERVAL))
        }
        Err((state, message)) => {
            let is_news = report(&baseline, before, state, &message, context).await?;
            if let BaselineState::Stalled(reason) = state
                && is_news
            {
                events::stalled(context, &baseline, reason, &message).await;
            }
            Ok(next_look(state))
        }
    }
}

/// When to look again at a baseline that keeps nothing. What is wrong with a run that is over, or with what was kept, stays so: whoever
/// replaces the run is seen, and to read and judge its whole record each minute would find the same.
fn next_look(state: BaselineState) -> Action {
    let again = Action::requeue(WAITING_INTERVAL);
    match state {
        BaselineState::Waiting | BaselineState::Kept => again,
        BaselineState::Stalled(reason) => match reason.cure() {
            Cure::Never => Action::await_change(),
            Cure::Watched | Cure::Unwatched => again,
        },
    }
}

/// Takes the figures of the run and writes them down. Errors: the state and what is said of it.
async fn keep(
    baseline: &BenchmarkBaseline,
    owner: &Owner,
    context: &Context,
) -> Result<Result<Figures, (BaselineState, String)>, Error> {
    let stalled = |reason, message| Ok(Err((BaselineState::Stalled(reason), message)));
    let (name, namespace) = (&baseline.spec.run_ref.name, &owner.namespace);
    let run = match kind::find::<BenchmarkRun>(name, namespace, context).await? {
        Ok(run) => run,
        Err(Trouble { reason, message }) => return stalled(reason, message),
    };
    if let Err((state, message)) = is_worth_keeping(&run) {
        return Ok(Err((state, message)));
    }
    let record = match run::whole_record(&run, context).await? {
        Ok(record) => record,
        Err(Trouble { reason, message }) => return stalled(reason, format!("BenchmarkRun/{name}: {message}")),
    };
    let judgement = judge(&record);
    let figures = Figures::of(&Report { record, judgement });
    if figures.verdict == Verdict::Invalid || figures.series.is_empty() {
        let why = run.status.map(|status| status.message).unwrap_or_default();
        let message = format!("BenchmarkRun/{name} has no trial that counts, so make another run and baseline: {why}");
        return stalled(Reason::RunInvalid, message);
    }
    let labels = Labels::from([(COMPONENT_LABEL.to_owned(), RECORD_COMPONENT.to_owned())]);
    let mut map = ConfigMap {
        metadata: owner.metadata(&names::baseline(&owner.reference.name), &labels),
        data: Some([(FIGURES_KEY.to_owned(), serde_json::to_string(&figures)?)].into()),
        immutable: Some(true),
        ..ConfigMap::default()
    };
    context.signer.sign(&owner.reference.uid, &mut map);
    create(&context.client, &map).await?;
    // As it is there: somebody may have been quicker.
    Ok(match kept(owner, context).await? {
        Ok(Some(figures)) => Ok(figures),
        Ok(None) => Err((BaselineState::Waiting, "what was kept is being written".into())),
        Err(Trouble { reason, message }) => Err((BaselineState::Stalled(reason), message)),
    })
}

/// Whether a run has come to an end that can be kept.
fn is_worth_keeping(run: &BenchmarkRun) -> Result<(), (BaselineState, String)> {
    let name = run.name_any();
    let status = run.status.clone().unwrap_or_default();
    if !is_true(&status.conditions, "Complete") {
        return Err((BaselineState::Waiting, format!("waits for BenchmarkRun/{name}: {}", status.message)));
    }
    if status.verdict.is_none_or(|verdict| verdict == Verdict::Invalid) {
        let why = &status.message;
        let message = format!("BenchmarkRun/{name} is Invalid, so make another run and baseline: {why}");
        return Err((BaselineState::Stalled(Reason::RunInvalid), message));
    }
    Ok(())
}

/// What a status says of what is kept.
fn describe(figures: &Figures, owner: &Owner) -> BenchmarkBaselineStatus {
    let record = &figures.record;
    let arms: Vec<&str> = record.arms.iter().map(|arm| arm.name.as_str()).collect();
    BenchmarkBaselineStatus {
        measured_at: record.started_at.parse().ok().map(Time),
        storebench_version: Some(record.storebench_version.clone()),
        verdict: Some(figures.verdict),
        arms: arms.join(" / "),
        fingerprint: Some(record.fingerprint.clone()),
        figures_ref: Some(ReportRef { name: names::baseline(&owner.reference.name) }),
        ..BenchmarkBaselineStatus::default()
    }
}

/// Writes the status if it says anything new. Returns whether it did.
async fn report(
    baseline: &BenchmarkBaseline,
    status: BenchmarkBaselineStatus,
    state: BaselineState,
    message: &str,
    context: &Context,
) -> Result<bool, Error> {
    let message = short_line(message, MESSAGE_BYTES_MAX);
    let generation = baseline.meta().generation;
    let previous = baseline.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let stamp = Stamp { now: Time(Timestamp::now()), generation, previous };
    let status = fit_baseline(BenchmarkBaselineStatus {
        observed_generation: generation.unwrap_or(-1),
        conditions: of_baseline(state, &message, &stamp),
        message,
        ..status
    });
    if baseline.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let namespace = baseline.namespace().unwrap_or_default();
    kind::write_status::<BenchmarkBaseline>(&baseline.name_any(), &namespace, status, context).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_heal_is_not_judged_again_each_minute() {
        for reason in [Reason::InvalidRecord, Reason::RunInvalid] {
            assert_eq!(next_look(BaselineState::Stalled(reason)), Action::await_change(), "{reason:?}");
        }
        let again = Action::requeue(WAITING_INTERVAL);
        for reason in [Reason::RunMissing, Reason::InvalidRun, Reason::NameTaken, Reason::FiguresGone] {
            assert_eq!(next_look(BaselineState::Stalled(reason)), again, "{reason:?}");
        }
        assert_eq!(next_look(BaselineState::Waiting), again);
    }
}
