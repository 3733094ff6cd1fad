//! The record of a run in a cluster: fetched from what its operator wrote, verified and put together, and judged anew, for `report`, `export`
//! and suites.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::DynamicObject;
use service_kit::console;
use storebench_core::across::{Baseline, TwoRuns};
use storebench_core::archive::{
    ArchiveError, BASELINE_KEY, COMPONENT_LABEL, HEAD_KEY, RECORD_COMPONENT, RUN_LABEL, SIGNATURE_ANNOTATION,
    TRIAL_KEY, assemble, check_sealed, hash, is_signed, read_head, read_trial, signed,
};
use storebench_core::judgement::judge;
use storebench_core::record::{RECORD_VERSION, RunRecord};
use storebench_core::report::{JsonError, Report};
use storebench_crds::line::one_line;
use storebench_crds::{BenchmarkRun, Verdict};

use super::cluster::{self, ClusterRun, Place};
use crate::find::tell_change;
use crate::output::Output;

/// How long a cluster may take to hand over the record of a run.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(60);

/// The report of a run in a cluster that has come to its end, judged anew.
pub(super) fn of_complete(name: &str, place: &Place) -> anyhow::Result<Report> {
    let (_, run, recorded) = fetched(name, place, Output::Json)?;
    match recorded.filter(|_| verdict(&run).is_some()) {
        // What is exported is the run by itself.
        Some(recorded) => Ok(judged(&run, recorded).alone),
        None => {
            let state = one_line(&cluster::state(&run));
            bail!(
                "benchmarkrun/{name} is not complete ({state}): wait for it with: storebench wait benchmarkrun/{name}"
            );
        }
    }
}

/// The verdict of a run that has come to its end.
pub(super) fn verdict(run: &BenchmarkRun) -> Option<Verdict> {
    run.status.as_ref().and_then(|status| status.verdict).filter(|_| cluster::is_complete(run))
}

/// A run as far as it has come, judged anew.
pub(super) struct Judged {
    /// By itself.
    pub(super) alone: Report,
    /// Together with what it was held against, as its verdict in the cluster is; by itself until it is complete.
    pub(super) held: Report,
    /// What it was held against, beside it.
    pub(super) pair: Option<TwoRuns>,
}

/// Judges anew what a run has measured. A verdict that is another one now is told.
pub(super) fn judged(run: &BenchmarkRun, (mut record, baseline): Recorded) -> Judged {
    let is_complete = cluster::is_complete(run);
    if !is_complete {
        // Part of the record, so that nobody can save a run that goes on and have it judged as one that ended.
        record.aborted = Some(format!("not complete: read after {}", record.trials_in_words()));
    }
    let alone = Report { judgement: judge(&record), record };
    let mut held = alone.clone();
    let terms = run.spec.baseline_ref.as_ref().filter(|_| is_complete);
    let pair = baseline.zip(terms).and_then(|(baseline, terms)| baseline.hold(&mut held, terms).pair);
    if let Some(verdict) = verdict(run) {
        tell_change(&format!("benchmarkrun/{}", run.name_any()), verdict, &held.judgement);
    }
    Judged { alone, held, pair }
}

/// What there is of a run of a suite.
pub(super) enum OfSuite {
    /// It came to its end, and is judged anew.
    Ended(Box<Report>),
    /// There is none of its name any more, or not yet.
    Gone,
    /// It has not come to its end, or is somebody else's, which is told.
    LeftOut,
}

/// What there is of a run that was made by `owner`.
pub(super) async fn of_owned(found: &ClusterRun, owner: &str) -> anyhow::Result<OfSuite> {
    let Some(object) = found.object_if_any().await? else { return Ok(OfSuite::Gone) };
    let run = found.understood(object)?;
    if !run.owner_references().iter().any(|reference| reference.uid == owner) {
        console::tell(format_args!("storebench: {found} is somebody else's: it is left out"));
        return Ok(OfSuite::LeftOut);
    }
    if !cluster::is_complete(&run) {
        let state = one_line(&cluster::state(&run));
        console::tell(format_args!("storebench: {found} is not complete ({state}): it is left out"));
        return Ok(OfSuite::LeftOut);
    }
    if run.status.as_ref().is_none_or(|status| status.report_ref.is_none()) {
        let state = one_line(&cluster::state(&run));
        console::tell(format_args!("storebench: {found} ended without a report ({state}): it is left out"));
        return Ok(OfSuite::LeftOut);
    }
    let recorded = record(found, &run).await?;
    Ok(verdict(&run).map_or(OfSuite::LeftOut, |_| OfSuite::Ended(Box::new(judged(&run, recorded).held))))
}

/// The record of a run, and what it was held against when it began.
pub(super) type Recorded = (RunRecord, Option<Baseline>);

/// The run as it is in the cluster, without who wrote which field; what storebench understands of it; and its record, where
/// the output needs one.
pub(super) type Fetched = (DynamicObject, BenchmarkRun, Option<Recorded>);

/// Asks the cluster for a run.
pub(super) fn fetched(name: &str, place: &Place, output: Output) -> anyhow::Result<Fetched> {
    cluster::within(CLUSTER_TIMEOUT, fetch(name, place, output))?.with_context(|| {
        format!("benchmarkrun/{name} could not be read within {} s: try again", CLUSTER_TIMEOUT.as_secs())
    })
}

async fn fetch(name: &str, place: &Place, output: Output) -> anyhow::Result<Fetched> {
    let found = ClusterRun::find(name, place).await?;
    let mut object = found.object().await?;
    object.metadata.managed_fields = None;
    let run = found.understood(object.clone())?;
    let record = if output == Output::Yaml { None } else { Some(record(&found, &run).await?) };
    Ok((object, run, record))
}

/// The record of a run, from what its operator wrote.
async fn record(found: &ClusterRun, run: &BenchmarkRun) -> anyhow::Result<Recorded> {
    let Some(reference) = run.status.as_ref().and_then(|status| status.report_ref.as_ref()) else {
        let state = cluster::state(run);
        if cluster::is_complete(run) {
            bail!("{found} ended without a report ({state}): make a new run");
        }
        bail!("{found} has no report yet ({state}): wait for it with: storebench wait benchmarkrun/{}", run.name_any());
    };
    let files = found.api::<ConfigMap>();
    let head = files.get_opt(&reference.name).await.map_err(|error| found.failure(&error))?;
    let head =
        head.with_context(|| format!("{found}: its report, configmap/{}, was deleted: run it again", reference.name))?;
    if !is_signed_by_operator(&head, run) {
        bail!("{} is not what the operator wrote: run again under a new name", file_name(&head));
    }
    let baseline = baseline_of(&head)?;
    let head = read_head(&file_name(&head), text(&head, HEAD_KEY)?).map_err(as_line)?;
    if head.record_version > RECORD_VERSION {
        bail!(JsonError::Newer { found: head.record_version, written_by: head.storebench_version });
    }
    let labels = format!("{RUN_LABEL}={},{COMPONENT_LABEL}={RECORD_COMPONENT}", run.name_any());
    let listed = files.list(&ListParams::default().labels(&labels)).await.map_err(|error| found.failure(&error))?;
    let is_trial = |file: &&ConfigMap| file.name_any() != reference.name && !is_of_another(file, run);
    let read = |file: &ConfigMap| read_trial(&file_name(file), text(file, TRIAL_KEY)?).map_err(as_line);
    let (trials, others): (Vec<_>, Vec<_>) =
        listed.items.iter().filter(is_trial).partition(|file| is_signed_by_operator(file, run));
    for other in others {
        console::tell(format_args!(
            "storebench: {} is no trial that the operator wrote: it is left out",
            file_name(other)
        ));
    }
    check_whole(found, run, &trials)?;
    Ok((assemble(head, trials.into_iter().map(read).collect::<anyhow::Result<_>>()?, true), baseline))
}

/// What the run was held against, as it stands beside its head.
fn baseline_of(head: &ConfigMap) -> anyhow::Result<Option<Baseline>> {
    let text = head.data.as_ref().and_then(|data| data.get(BASELINE_KEY));
    let read = text.map(|text| serde_json::from_str(text)).transpose();
    read.map_err(|error| {
        let version = env!("CARGO_PKG_VERSION");
        anyhow!("{}: {BASELINE_KEY} is not what storebench {version} writes: {error}", file_name(head))
    })
}

/// Whether these are all the trials that the verdict of a run that is complete was found from.
fn check_whole(found: &ClusterRun, run: &BenchmarkRun, trials: &[&ConfigMap]) -> anyhow::Result<()> {
    let status = run.status.as_ref().filter(|_| cluster::is_complete(run));
    let Some((status, key)) = status.and_then(|status| Some((status, status.signing_key.as_ref()?))) else {
        return Ok(());
    };
    let Some(sealed) = &status.sealed_trials else {
        console::tell(format_args!(
            "storebench: {found}: its operator did not say which trials there were: one that was deleted is not missed"
        ));
        return Ok(());
    };
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let hashed = |file: &&ConfigMap| {
        let data = file.data.clone().unwrap_or_default();
        (file.name_any(), hash(uid, &file.name_any(), &data))
    };
    check_sealed(sealed, key, uid, &trials.iter().map(hashed).collect())
        .map_err(|refused| anyhow!("{found}: {refused}"))
}

/// Whether the operator that wrote the run's status also wrote this. An operator that signs nothing gave no key.
fn is_signed_by_operator(file: &ConfigMap, run: &BenchmarkRun) -> bool {
    let Some(key) = run.status.as_ref().and_then(|status| status.signing_key.as_ref()) else { return true };
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let data = file.data.clone().unwrap_or_default();
    let signature = file.annotations().get(SIGNATURE_ANNOTATION).map(String::as_str).unwrap_or_default();
    is_signed(key, &signed(uid, &file.name_any(), &data), signature)
}

/// Without its cause, which its words already tell.
fn as_line(error: ArchiveError) -> anyhow::Error {
    anyhow!("{error}")
}

/// A run that was deleted and made anew under its name may have left files that the cluster is about to remove.
fn is_of_another(file: &ConfigMap, run: &BenchmarkRun) -> bool {
    let mut owners = file.owner_references().iter().filter(|owner| owner.kind == "BenchmarkRun");
    owners.any(|owner| Some(&owner.uid) != run.metadata.uid.as_ref())
}

fn file_name(file: &ConfigMap) -> String {
    format!("configmap/{}", file.name_any())
}

fn text<'a>(file: &'a ConfigMap, key: &str) -> anyhow::Result<&'a str> {
    let text = file.data.as_ref().and_then(|data| data.get(key));
    text.map(String::as_str).with_context(|| {
        format!(
            "{} has no {key}: something other than the operator changed it; run again under a new name",
            file_name(file)
        )
    })
}
