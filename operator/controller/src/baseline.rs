//! BenchmarkBaseline: keeps what a finished run measured, in a ConfigMap of its own, so that it outlives the run.
//!
//! The ConfigMap is made once, from the run's signed record, and signed for this baseline. Who was killed in between finds it; who finds
//! another one there, or none any more, keeps nothing: what runs are held against cannot be chosen afterwards.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use storebench_core::across::Figures;
use storebench_core::archive::{BASELINE_LABEL, COMPONENT_LABEL, FIGURES_KEY, RECORD_COMPONENT};
use storebench_core::conditions::{BaselineState, of_baseline};
use storebench_core::judgement::judge;
use storebench_core::reason::{Cure, Reason};
use storebench_core::report::Report;
use storebench_core::status::fit_baseline;
use storebench_crds::benchmark_baseline::{BenchmarkBaseline, BenchmarkBaselineStatus};
use storebench_crds::status::ReportRef;
use storebench_crds::{BenchmarkRun, Verdict};

use crate::apply::create;
use crate::context::Context;
use crate::error::Error;
use crate::events;
use crate::health::Trouble;
use crate::kept::kept;
use crate::kind::{self, Conditions, Kind, Named, Said, Waits, report};
use crate::objects::{Labels, Owner, names};
use crate::queue::is_true;
use crate::run;

/// What is kept is looked at this often: nobody tells that somebody has deleted or replaced it.
const KEPT_INTERVAL: Duration = Duration::from_secs(300);
/// While a run is waited for, a look is due this often, should an event be missed.
const WAITING_INTERVAL: Duration = Duration::from_secs(60);

impl Kind for BenchmarkBaseline {
    type State = BaselineState;
    const NAME: &'static str = "BenchmarkBaseline";
    const STALLED: fn(Reason) -> BaselineState = BaselineState::Stalled;
    const CONDITIONS: Conditions<BaselineState> = of_baseline;
    const MESSAGE_BYTES_MAX: usize = 280;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        let status = self.status.clone().unwrap_or_default();
        kind::stall(self, status, &error.trouble(), context).await?;
        // The run is over, so its figures do not become smaller.
        Ok(if error.is_too_large() { Action::await_change() } else { Action::requeue(kind::REFUSED_INTERVAL) })
    }

    fn conditions(status: &BenchmarkBaselineStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut BenchmarkBaselineStatus) -> Said<'_> {
        let BenchmarkBaselineStatus { observed_generation, conditions, message, .. } = status;
        Said { observed_generation, conditions, message: Some(message) }
    }

    fn fit(status: BenchmarkBaselineStatus) -> BenchmarkBaselineStatus {
        fit_baseline(status)
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
        Err(trouble) => Err(Waits::ForUser(trouble)),
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
        Err(Waits::ForAnother(message)) => {
            report(&baseline, before, BaselineState::Waiting, &message, context).await?;
            Ok(Action::requeue(WAITING_INTERVAL))
        }
        Err(Waits::ForUser(trouble)) => {
            kind::stall(&baseline, before, &trouble, context).await?;
            Ok(next_look(trouble.reason))
        }
    }
}

/// When to look again at a baseline that keeps nothing. What is wrong with a run that is over, or with what was kept, stays so: whoever
/// replaces the run is seen, and to read and judge its whole record each minute would find the same.
fn next_look(reason: Reason) -> Action {
    match reason.cure() {
        Cure::Never => Action::await_change(),
        Cure::Watched | Cure::Unwatched => Action::requeue(WAITING_INTERVAL),
    }
}

/// Takes the figures of the run and writes them down. The inner error: what keeps it from that.
async fn keep(baseline: &BenchmarkBaseline, owner: &Owner, context: &Context) -> Result<Result<Figures, Waits>, Error> {
    let stalled = |reason, message| Ok(Err(Waits::ForUser(Trouble { reason, message })));
    let (name, namespace) = (&baseline.spec.run_ref.name, &owner.namespace);
    let run = match kind::find::<BenchmarkRun>(name, namespace, context).await? {
        Ok(run) => run,
        Err(trouble) => return Ok(Err(Waits::ForUser(trouble))),
    };
    if let Err(waits) = is_worth_keeping(&run) {
        return Ok(Err(waits));
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
        Ok(None) => Err(Waits::ForAnother("what was kept is being written".into())),
        Err(trouble) => Err(Waits::ForUser(trouble)),
    })
}

/// Whether a run has come to an end that can be kept.
fn is_worth_keeping(run: &BenchmarkRun) -> Result<(), Waits> {
    let name = run.name_any();
    let status = run.status.clone().unwrap_or_default();
    if !is_true(&status.conditions, "Complete") {
        return Err(Waits::ForAnother(format!("waits for BenchmarkRun/{name}: {}", status.message)));
    }
    if status.verdict.is_none_or(|verdict| verdict == Verdict::Invalid) {
        let why = &status.message;
        let message = format!("BenchmarkRun/{name} is Invalid, so make another run and baseline: {why}");
        return Err(Waits::ForUser(Trouble { reason: Reason::RunInvalid, message }));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_heal_is_not_judged_again_each_minute() {
        for reason in [Reason::InvalidRecord, Reason::RunInvalid] {
            assert_eq!(next_look(reason), Action::await_change(), "{reason:?}");
        }
        for reason in [Reason::RunMissing, Reason::InvalidRun, Reason::NameTaken, Reason::FiguresGone] {
            assert_eq!(next_look(reason), Action::requeue(WAITING_INTERVAL), "{reason:?}");
        }
    }
}
