//! BenchmarkSuite: plan, observe its runs, decide, make the next, status, in that order.
//!
//! One run is made at a time, under a name that follows from the suite, so that an operator which was killed in between finds what it had
//! made. The status is the ledger of runs that are over, and may be gone: none of them is made again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use std::time::Duration;
use storebench_core::conditions::{RunState, of_run};
use storebench_core::reason::Reason;
use storebench_core::suite::{self as core, Next, Planned, SUITE_LABEL, counts, leave_out, line, next};
use storebench_core::validate::Problem;
use storebench_crds::benchmark_suite::{BenchmarkSuite, BenchmarkSuiteStatus, SuiteRunState};
use storebench_crds::{BenchmarkRun, Verdict};

use crate::apply::create;
use crate::context::Context;
use crate::error::Error;
use crate::events;
use crate::health::Trouble;
use crate::kind::{self, Conditions, Kind, Said, report, stall};
use crate::made::{self, Made, give_to};
use crate::objects::Owner;
use crate::queue::is_true;

/// A suite that may be one this version cannot read.
pub type Guarded = kind::Guarded<BenchmarkSuite>;

/// While a run goes on, a look is due this often, should an event be missed.
const RUNNING_INTERVAL: Duration = Duration::from_secs(60);

impl Kind for BenchmarkSuite {
    type State = RunState;
    const NAME: &'static str = "BenchmarkSuite";
    const STALLED: fn(Reason) -> RunState = RunState::Stalled;
    const CONDITIONS: Conditions<RunState> = of_run;
    // Its status has a line for each run, too.
    const MESSAGE_BYTES_MAX: usize = 150;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        let lines = self.status.clone().unwrap_or_default();
        stall(self, lines, &error.trouble(), context).await?;
        Ok(Action::requeue(kind::REFUSED_INTERVAL))
    }

    fn conditions(status: &BenchmarkSuiteStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut BenchmarkSuiteStatus) -> Said<'_> {
        let BenchmarkSuiteStatus { observed_generation, conditions, message, .. } = status;
        Said { observed_generation, conditions, message: Some(message) }
    }
}

/// Brings one suite a run further.
async fn reconcile(seen: &BenchmarkSuite, context: &Context) -> Result<Action, Error> {
    // Its runs are owned by it and go with it; each cleans up after itself.
    let Some(suite) = kind::latest(seen, context).await? else { return Ok(Action::await_change()) };
    let owner =
        Owner::of(&suite, SUITE_LABEL).ok_or(Error::Incomplete("a BenchmarkSuite without name, uid or namespace"))?;
    let before = suite.status.clone().unwrap_or_default();
    if is_true(&before.conditions, "Complete") {
        // spec.suspend may still be changed; who waits for the new generation to be observed must not wait for ever.
        let state = before.verdict.map_or(RunState::Running, RunState::Complete);
        let message = before.message.clone();
        report(&suite, before, state, &message, context).await?;
        return Ok(Action::await_change());
    }
    let planned = match checked(&suite, &before) {
        Ok(planned) => planned,
        Err(trouble) => {
            stall(&suite, before, &trouble, context).await?;
            return Ok(Action::await_change());
        }
    };
    let runs = made::all::<BenchmarkRun>(&owner, SUITE_LABEL, context).await?;
    let mut states = states(&planned, &runs, &before);
    let mut status = BenchmarkSuiteStatus { template_hash: Some(core::template_hash(&suite)), ..before.clone() };
    match next(&states, suite.spec.on_failure) {
        Next::Make(_) if suite.spec.suspend => {
            fill(&mut status, &planned, &runs, &states);
            report(&suite, status, RunState::Suspended, "suspended: set spec.suspend to false to go on", context)
                .await?;
            Ok(Action::await_change())
        }
        Next::Make(index) => {
            let mut run = match planned[index].run() {
                Ok(run) => run,
                Err(problems) => {
                    let message = problems.first().map(|(field, text)| format!("{field}: {text}")).unwrap_or_default();
                    stall(&suite, before, &Trouble { reason: Reason::InvalidSpec, message }, context).await?;
                    return Ok(Action::await_change());
                }
            };
            give_to(&mut run, &owner);
            if before.template_hash.is_none() {
                // Before the first one is there: what is made of another template afterwards must not count beside it.
                let status = BenchmarkSuiteStatus { template_hash: status.template_hash.clone(), ..before };
                report(&suite, status, RunState::Running, &under_way(&planned, index), context).await?;
            }
            create(&context.client, &run).await?;
            tracing::info!(suite = suite.name_any(), run = run.name_any(), "made");
            states[index] = SuiteRunState::Running;
            fill(&mut status, &planned, &runs, &states);
            report(&suite, status, RunState::Running, &under_way(&planned, index), context).await?;
            Ok(Action::requeue(RUNNING_INTERVAL))
        }
        Next::Wait(index) => {
            fill(&mut status, &planned, &runs, &states);
            let stalled = runs.iter().find(|run| run.name == planned[index].name).and_then(|run| run.stalled.clone());
            match stalled {
                Some(why) => {
                    let message = format!("{}: {why}", planned[index].name);
                    stall(&suite, status, &Trouble { reason: Reason::RunStalled, message }, context).await?;
                }
                None => {
                    report(&suite, status, RunState::Running, &under_way(&planned, index), context).await?;
                }
            }
            Ok(Action::requeue(RUNNING_INTERVAL))
        }
        Next::End { verdict, .. } => {
            leave_out(&mut states);
            fill(&mut status, &planned, &runs, &states);
            status.verdict = Some(verdict);
            let message = outcome(&states, verdict);
            if report(&suite, status, RunState::Complete(verdict), &message, context).await? {
                events::suite_completed(context, &suite, verdict, &message).await;
            }
            Ok(Action::await_change())
        }
    }
}

/// The runs of a suite, if they may be made.
fn checked(suite: &BenchmarkSuite, before: &BenchmarkSuiteStatus) -> Result<Vec<Planned>, Trouble> {
    let invalid =
        |problems: Vec<Problem>| Trouble { reason: Reason::InvalidSpec, message: Problem::first_of(&problems) };
    let Some(hash) = &before.template_hash else {
        // Before the first one is made, all are checked: nothing is found wrong after hours.
        return core::expand(suite).map(|runs| runs.into_iter().map(|(planned, _)| planned).collect()).map_err(invalid);
    };
    if *hash != core::template_hash(suite) {
        let message = "the template was changed while the suite was under way: restore it, or create a new suite";
        return Err(Trouble { reason: Reason::TemplateChanged, message: message.into() });
    }
    core::plan(suite).map_err(invalid)
}

/// What became of each run: as the API server has it, or, of those that are gone, as it was written down.
fn states(planned: &[Planned], runs: &[Made], before: &BenchmarkSuiteStatus) -> Vec<SuiteRunState> {
    let found = |planned: &Planned| runs.iter().find(|run| run.name == planned.name);
    // Runs are made in order: before one that was made, all were.
    let last_made = planned.iter().enumerate().rev().find_map(|(index, one)| {
        let written = before.runs.get(index).is_some_and(|line| line.state != SuiteRunState::Waiting);
        (written || found(one).is_some()).then_some(index)
    });
    let state = |(index, one): (usize, &Planned)| match (found(one), before.runs.get(index).map(|line| line.state)) {
        (Some(Made { verdict: Some(verdict), .. }), _) => SuiteRunState::of(*verdict),
        (_, Some(state)) if state.verdict().is_some() || state == SuiteRunState::Skipped => state,
        (Some(run), _) if run.is_deleted => SuiteRunState::Deleted,
        (Some(_), _) => SuiteRunState::Running,
        (None, _) if last_made.is_some_and(|last| index <= last) => SuiteRunState::Deleted,
        (None, _) => SuiteRunState::Waiting,
    };
    planned.iter().enumerate().map(state).collect()
}

/// Writes down what became of the runs.
fn fill(status: &mut BenchmarkSuiteStatus, planned: &[Planned], runs: &[Made], states: &[SuiteRunState]) {
    let ratio = |index: usize, one: &Planned| match runs.iter().find(|run| run.name == one.name) {
        Some(run) => run.throughput_ratio.clone(),
        None => status.runs.get(index).and_then(|line| line.throughput_ratio.clone()),
    };
    let lines = planned.iter().zip(states).enumerate();
    let lines = lines.map(|(index, (one, state))| line(one, *state, ratio(index, one))).collect();
    status.runs = lines;
    let counts = counts(states);
    status.progress = format!("{}/{}", counts.passed + counts.failed, counts.total);
    status.counts = Some(counts);
}

fn under_way(planned: &[Planned], index: usize) -> String {
    format!("run {} of {}: {}", index + 1, planned.len(), planned[index].name)
}

fn outcome(states: &[SuiteRunState], verdict: Verdict) -> String {
    let counts = counts(states);
    let mut parts = vec![format!("{} of {} runs passed", counts.passed, counts.total)];
    if counts.failed > 0 {
        parts.push(format!("{} did not", counts.failed));
    }
    if counts.skipped > 0 {
        let were = if counts.skipped == 1 { "was" } else { "were" };
        parts.push(format!("{} {were} left out", counts.skipped));
    }
    format!("{verdict:?}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kube::core::ApiResource;
    use serde_json::json;

    use super::*;

    fn suite() -> Vec<Planned> {
        let suite = serde_json::from_value(json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSuite", "metadata": { "name": "s" },
            "spec": { "parameters": [{ "name": "a", "values": [1, 2, 3] }], "template": { "spec": { "a": "$(a)" } } },
        }));
        core::plan(&suite.unwrap()).unwrap()
    }

    fn made(name: &str, verdict: Option<Verdict>, is_deleted: bool) -> Made {
        let name = name.to_owned();
        let time = Timestamp::MIN;
        let kind = ApiResource::erase::<BenchmarkRun>(&());
        Made { name, kind, time, is_deleted, verdict, stalled: None, throughput_ratio: None }
    }

    fn written(states: &[SuiteRunState]) -> BenchmarkSuiteStatus {
        let planned = suite();
        let runs = planned.iter().zip(states).map(|(one, state)| line(one, *state, None)).collect();
        BenchmarkSuiteStatus { runs, ..BenchmarkSuiteStatus::default() }
    }

    use SuiteRunState::{Deleted, Passed, Regressed, Running, Waiting};

    #[test]
    fn a_run_that_is_over_and_gone_is_not_made_again() {
        let found = states(&suite(), &[], &written(&[Passed, Regressed, Waiting]));
        assert_eq!(found, [Passed, Regressed, Waiting], "their time to live was over");
    }

    #[test]
    fn a_run_that_somebody_deleted_is_not_made_again() {
        assert_eq!(states(&suite(), &[], &written(&[Passed, Running, Waiting])), [Passed, Deleted, Waiting]);
        let deleted = [made("s-1", None, true)];
        assert_eq!(states(&suite(), &deleted, &written(&[Running, Waiting, Waiting])), [Deleted, Waiting, Waiting]);
        // Its maker was killed before it had written anything down, and so was the next one.
        let found = states(&suite(), &[made("s-2", None, false)], &written(&[]));
        assert_eq!(found, [Deleted, Running, Waiting]);
    }

    #[test]
    fn what_was_made_by_an_operator_that_was_killed_is_found() {
        let runs = [made("s-1", Some(Verdict::Passed), false), made("s-2", None, false)];
        assert_eq!(states(&suite(), &runs, &written(&[])), [Passed, Running, Waiting]);
    }
}
