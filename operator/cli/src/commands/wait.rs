//! `storebench wait RUN`: blocks until a BenchmarkRun in a cluster is complete; the exit code is its verdict.
//!
//! A run may take hours, and an API server restarts in the meantime: only what waiting cannot mend ends the waiting, such as
//! a spec that the operator cannot carry out.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::runtime::wait::{Error::ProbeFailed, await_condition};
use kube::runtime::watcher;
use service_kit::console;
use storebench_crds::line::one_line;
use storebench_crds::{BenchmarkRun, DurationText};

use super::cluster::{self, ClusterRun, Place};
use crate::exit::Exit;

/// Between two attempts to watch the run.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn wait(run: &str, place: &Place, timeout: &str) -> anyhow::Result<Exit> {
    let name = if run.contains('/') { cluster::run_name(run) } else { Some(run) };
    let name = name.with_context(|| format!("`{run}` cannot be waited for: write benchmarkrun/NAME"))?;
    let limit = DurationText::new(timeout).context("--timeout")?.duration();
    let known = RefCell::new("the API server did not answer".to_owned());
    let run = cluster::within(limit, until_complete(name, place, &known))?.with_context(|| {
        let known = known.borrow();
        format!(
            "benchmarkrun/{name} was not complete after {timeout} ({known}): raise --timeout, or see what holds it up"
        )
    })?;
    let status = run.status.unwrap_or_default();
    let verdict = status.verdict.with_context(|| {
        format!("benchmarkrun/{name} is complete but has no verdict: was its status written by the operator?")
    })?;
    console::print(format!("{verdict:?}: {}\n", one_line(&status.message)))?;
    Ok(Exit::of(verdict))
}

/// Waits for the end of the run. `known` is told what was last known of it.
async fn until_complete(name: &str, place: &Place, known: &RefCell<String>) -> anyhow::Result<BenchmarkRun> {
    let run = ClusterRun::find(name, place).await?;
    // A watch does not tell a run that never existed from one that was deleted, and is silent about its own troubles.
    run.object().await?;
    let is_over = |run: Option<&BenchmarkRun>| {
        if let Some(run) = run {
            known.replace(cluster::state(run));
        }
        run.is_none_or(|run| cluster::is_complete(run) || cluster::is_hopeless(run))
    };
    loop {
        match await_condition(run.api(), name, is_over).await {
            Ok(Some(object)) if !cluster::is_complete(&object) => {
                bail!("{run} cannot begin ({}): delete it, and create a corrected one", cluster::state(&object));
            }
            Ok(Some(object)) => return Ok(object),
            Ok(None) => bail!("{run} was deleted before it was complete: create it again and wait for that"),
            Err(ProbeFailed(error)) => {
                let error = cause(error)?;
                if stays(&error) {
                    return Err(run.failure(&error));
                }
                known.replace(run.failure(&error).to_string());
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// What the watch failed of.
fn cause(error: watcher::Error) -> anyhow::Result<kube::Error> {
    Ok(match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => kube::Error::Api(status),
        watcher::Error::NoResourceVersion => bail!("the server cannot watch: is it a Kubernetes API server?"),
    })
}

/// Whether the same question would get the same answer tomorrow: what is refused, unknown or not understood.
fn stays(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 401 | 403 | 404),
        kube::Error::SerdeError(_) => true,
        _ => false,
    }
}
