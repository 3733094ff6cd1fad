//! `storebench wait RUN`: blocks until a BenchmarkRun in a cluster is complete; the exit code is its verdict.

use std::time::Duration;

use anyhow::Context as _;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};
use storebench_crds::{BenchmarkRun, DurationText};

use crate::exit::Exit;

pub(crate) fn wait(run: &str, namespace: Option<&str>, timeout: &str) -> anyhow::Result<Exit> {
    let name = match run.split_once('/') {
        None => run,
        Some(("benchmarkrun" | "benchmarkruns" | "benchrun", name)) => name,
        Some((kind, _)) => anyhow::bail!("`{kind}` cannot be waited for: write benchmarkrun/NAME"),
    };
    let timeout = DurationText::new(timeout)?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::try_default().await.context("no cluster can be reached: check your kubeconfig")?;
        let runs: Api<BenchmarkRun> = match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        until_complete(runs, name, timeout).await
    })
}

/// Waits, prints verdict and message, and returns the verdict's exit code.
async fn until_complete(runs: Api<BenchmarkRun>, name: &str, timeout: Duration) -> anyhow::Result<Exit> {
    runs.get(name).await.with_context(|| format!("benchmarkrun/{name} cannot be read"))?;
    let waiting = await_condition(runs, name, is_complete());
    let run = tokio::time::timeout(timeout, waiting)
        .await
        .map_err(|_| {
            anyhow::anyhow!("benchmarkrun/{name} was not complete after {} s: raise --timeout", timeout.as_secs())
        })?
        .with_context(|| format!("benchmarkrun/{name} cannot be watched"))?
        .with_context(|| format!("benchmarkrun/{name} was deleted"))?;
    let status = run.status.unwrap_or_default();
    let verdict = status.verdict.with_context(|| format!("benchmarkrun/{name} is complete but has no verdict"))?;
    super::print(&format!("{verdict:?}: {}\n", status.message))?;
    Ok(Exit::of(verdict))
}

/// Complete, or gone.
fn is_complete() -> impl Condition<BenchmarkRun> {
    |run: Option<&BenchmarkRun>| {
        run.is_none_or(|run| {
            run.status.iter().flat_map(|status| &status.conditions).any(|condition| {
                condition.type_ == "Complete"
                    && condition.status == "True"
                    && condition.observed_generation == run.metadata.generation
            })
        })
    }
}
