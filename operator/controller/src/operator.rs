//! Puts everything together: waits for the CRDs, then for the Lease, then runs the controllers until told to stop.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::error_boundary::DeserializeGuard;
use kube::runtime::controller::{self, Action};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, Predicate as _, WatchStreamExt as _, predicates, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use storebench_core::archive::RUN_LABEL;
use storebench_core::fingerprint;
use storebench_core::recurrence::SCHEDULE_LABEL;
use storebench_core::suite::SUITE_LABEL;
use storebench_crds::{
    Arm, BenchmarkBaseline, BenchmarkRun, BenchmarkRunSpec, BenchmarkSchedule, BenchmarkSuite, ControlPlane,
    StorageService, WorkloadTemplate,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::context::{Archive, Context, Failures, Statuses};
use crate::error::{self, Error};
use crate::kind::{Guarded, Kind};
use crate::lease::LeaderElection;
use crate::lock::lock;
use crate::objects::{CONTROL_PLANE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL};
use crate::queue::{Queue, is_true};
use crate::settings::Settings;
use crate::signature::Signer;
use crate::telemetry::Metrics;
use crate::telemetry::server::{Shown, serve};
use crate::{control_plane, kept, kind, made, run, schedule, service, suite};

/// Several changes of one object within this time are looked at once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Between two looks for the CRDs while they are missing.
const CRD_INTERVAL: Duration = Duration::from_secs(5);
/// Reconciliations of one kind at a time.
const CONCURRENCY: u16 = 4;

/// Runs until a signal, or until the Lease is lost.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("no cluster can be reached: run in a pod or set KUBECONFIG")?;
    let metrics = Arc::new(Metrics::default());
    let shown = Arc::new(Shown::new(Arc::clone(&metrics), settings.metrics_access, client.clone()));
    let server = tokio::spawn(serve(settings.listen, Arc::clone(&shown)));
    let mut election = LeaderElection::new(client.clone(), &settings.operator_namespace, &settings.operator_name);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        () = until_installed(&client, &settings, &shown) => {}
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        ended = server => bail!("{}: cannot be served: {ended:?}", settings.listen),
    }
    *lock(&shown.waits_for) = "the leader's Lease".into();
    tokio::select! {
        () = election.acquire() => {}
        _ = terminate.recv() => return release(election).await,
        _ = interrupt.recv() => return release(election).await,
    }
    lock(&shown.waits_for).clear();
    metrics.leads(true);
    tracing::info!(name = settings.operator_name, "leading");
    let signer = Signer::load(&client, &settings.operator_namespace).await?;
    let lost = tokio::select! {
        () = controllers(client, settings, signer, metrics) => bail!("the watches ended"),
        () = election.keep() => true,
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
    };
    if lost {
        bail!("the leader's Lease was lost: another replica may be acting");
    }
    // Stopped between two steps; whoever leads next finds where the runs are.
    release(election).await
}

async fn release(mut election: LeaderElection) -> anyhow::Result<()> {
    election.release().await.context("the leader's Lease cannot be released")
}

/// Waits until the CRDs can be listed.
async fn until_installed(client: &Client, settings: &Settings, shown: &Shown) {
    loop {
        let Err(missing) = all_listable(client, settings).await else { return };
        tracing::warn!("waiting for {missing}");
        *lock(&shown.waits_for) = missing;
        tokio::time::sleep(CRD_INTERVAL).await;
    }
}

/// Whether every kind can be listed. Errors: what is waited for.
async fn all_listable(client: &Client, settings: &Settings) -> Result<(), String> {
    listable::<StorageService>(client, settings).await?;
    listable::<ControlPlane>(client, settings).await?;
    listable::<WorkloadTemplate>(client, settings).await?;
    listable::<BenchmarkRun>(client, settings).await?;
    listable::<BenchmarkBaseline>(client, settings).await?;
    listable::<BenchmarkSuite>(client, settings).await?;
    listable::<BenchmarkSchedule>(client, settings).await
}

async fn listable<K>(client: &Client, settings: &Settings) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let listed = scoped::<DeserializeGuard<K>>(client, settings).list(&ListParams::default().limit(1)).await;
    listed.map(drop).map_err(|error| format!("{}s to be listable: {error}", K::kind(&())))
}

fn scoped<K>(client: &Client, settings: &Settings) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match &settings.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn controllers(client: Client, settings: Settings, signer: Signer, metrics: Arc<Metrics>) {
    let reporter = Reporter { controller: "storebench".into(), instance: Some(settings.operator_name.clone()) };
    let (runs, run_changes) = primary::<run::Guarded>(&client, &settings);
    let (services, service_changes) = primary::<service::Guarded>(&client, &settings);
    let (planes, plane_changes) = primary::<control_plane::Guarded>(&client, &settings);
    let (baselines, baseline_changes) = primary::<kept::Guarded>(&client, &settings);
    let (suites, suite_changes) = primary::<suite::Guarded>(&client, &settings);
    let (schedules, schedule_changes) = primary::<schedule::Guarded>(&client, &settings);
    let (queue, woken) = Queue::new(runs.clone());
    let woken = stream::unfold(woken, async |mut woken| Some((woken.recv().await?, woken)));
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), reporter),
        metrics: Arc::clone(&metrics),
        build: build(),
        signer,
        queue,
        statuses: Statuses::default(),
        archive: Archive::default(),
        failures: Failures::default(),
        settings: settings.clone(),
        client: client.clone(),
    });
    let config = controller::Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY);
    let of_run = Controller::for_stream(run_changes, runs.clone())
        .with_config(config.clone())
        .watches_stream(children::<Pod>(&client, &settings), labelled::<Pod, run::Guarded>(RUN_LABEL))
        .watches_stream(children::<Job>(&client, &settings), labelled::<Job, run::Guarded>(RUN_LABEL))
        .watches_stream(children::<StatefulSet>(&client, &settings), labelled::<StatefulSet, run::Guarded>(RUN_LABEL))
        .watches_stream(events_of::<service::Guarded>(&client, &settings), naming(runs.clone(), planes.clone()))
        .watches_stream(events_of::<control_plane::Guarded>(&client, &settings), referring(runs.clone()))
        .watches_stream(events_of::<Guarded<WorkloadTemplate>>(&client, &settings), loading(runs.clone()))
        .watches_stream(events_of::<kept::Guarded>(&client, &settings), held_against(runs.clone()))
        .reconcile_on(woken)
        .run(kind::reconcile::<BenchmarkRun>, failed::<BenchmarkRun>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let of_service = Controller::for_stream(service_changes, services.clone())
        .with_config(config.clone())
        .watches_stream(children::<Pod>(&client, &settings), labelled::<Pod, service::Guarded>(SERVICE_LABEL))
        .watches_stream(
            children::<StatefulSet>(&client, &settings),
            labelled::<StatefulSet, service::Guarded>(SERVICE_LABEL),
        )
        .run(kind::reconcile::<StorageService>, failed::<StorageService>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let of_control_plane = Controller::for_stream(plane_changes, planes.clone())
        .with_config(config.clone())
        .watches_stream(
            children::<Pod>(&client, &settings),
            labelled::<Pod, control_plane::Guarded>(CONTROL_PLANE_LABEL),
        )
        .watches_stream(
            children::<StatefulSet>(&client, &settings),
            labelled::<StatefulSet, control_plane::Guarded>(CONTROL_PLANE_LABEL),
        )
        .watches_stream(events_of::<service::Guarded>(&client, &settings), carrying(planes))
        .run(kind::reconcile::<ControlPlane>, failed::<ControlPlane>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let of_baseline = Controller::for_stream(baseline_changes, baselines.clone())
        .with_config(config.clone())
        .watches_stream(
            events_of::<run::Guarded>(&client, &settings).predicate_filter(milestone_of_run, Default::default()),
            keeping(baselines),
        )
        .run(kind::reconcile::<BenchmarkBaseline>, failed::<BenchmarkBaseline>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let of_suite = Controller::for_stream(suite_changes, suites)
        .with_config(config.clone())
        .watches_stream(made_runs(&client, &settings), labelled::<run::Guarded, suite::Guarded>(SUITE_LABEL))
        .run(kind::reconcile::<BenchmarkSuite>, failed::<BenchmarkSuite>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let of_schedule = Controller::for_stream(schedule_changes, schedules)
        .with_config(config)
        .watches_stream(made_runs(&client, &settings), labelled::<run::Guarded, schedule::Guarded>(SCHEDULE_LABEL))
        .watches_stream(made_suites(&client, &settings), labelled::<suite::Guarded, schedule::Guarded>(SCHEDULE_LABEL))
        .run(kind::reconcile::<BenchmarkSchedule>, failed::<BenchmarkSchedule>, Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    let counting = count(runs, services, metrics);
    tokio::join!(of_run, of_service, of_control_plane, of_baseline, of_suite, of_schedule, counting);
}

/// Tells this build from every other: a version may have several. Without /proc there is only the version.
fn build() -> String {
    File::open("/proc/self/exe").and_then(fingerprint::of_content).unwrap_or_else(|error| {
        tracing::warn!(%error, "the operator's own executable cannot be read");
        fingerprint::shortened(Sha256::digest(env!("CARGO_PKG_VERSION")).as_ref())
    })
}

/// Objects of a kind that users write, and the changes worth a look: a status that the operator wrote itself is none.
fn primary<K>(
    client: &Client,
    settings: &Settings,
) -> (Store<K>, impl Stream<Item = Result<K, watcher::Error>> + use<K>)
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Clone + Eq + std::hash::Hash,
{
    let (reader, writer) = reflector::store();
    let changes = watcher(scoped::<K>(client, settings), watcher::Config::default())
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::generation.combine(predicates::finalizers), Default::default());
    (reader, changes)
}

/// Objects that the operator made: that they changed is all that matters, what they are is asked when it is needed.
fn children<K>(client: &Client, settings: &Settings) -> impl Stream<Item = Result<K, watcher::Error>> + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let selected = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY}"));
    watcher(scoped::<K>(client, settings), selected).default_backoff().touched_objects()
}

/// Runs that a suite or schedule made, whenever they have come to something.
fn made_runs(client: &Client, settings: &Settings) -> impl Stream<Item = Result<run::Guarded, watcher::Error>> + use<> {
    children::<run::Guarded>(client, settings).predicate_filter(milestone_of_run, Default::default())
}

fn milestone_of_run(run: &run::Guarded) -> Option<u64> {
    let status = run.0.as_ref().ok().and_then(|run| run.status.as_ref());
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    made::milestone(run.meta().deletion_timestamp.is_some(), conditions)
}

/// The same of suites.
fn made_suites(
    client: &Client,
    settings: &Settings,
) -> impl Stream<Item = Result<suite::Guarded, watcher::Error>> + use<> {
    let milestone = |suite: &suite::Guarded| {
        let status = suite.0.as_ref().ok().and_then(|suite| suite.status.as_ref());
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        made::milestone(suite.meta().deletion_timestamp.is_some(), conditions)
    };
    children::<suite::Guarded>(client, settings).predicate_filter(milestone, Default::default())
}

/// Every change of a kind that users write, statuses included.
fn events_of<K>(client: &Client, settings: &Settings) -> impl Stream<Item = Result<K, watcher::Error>> + use<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    watcher(scoped::<K>(client, settings), watcher::Config::default()).default_backoff().touched_objects()
}

/// The object that a label names.
fn labelled<K, P>(label: &'static str) -> impl Fn(K) -> Option<ObjectRef<P>>
where
    K: Resource,
    P: Resource,
    P::DynamicType: Default,
{
    move |child| {
        let name = child.labels().get(label)?;
        Some(ObjectRef::new(name).within(child.namespace()?.as_str()))
    }
}

/// The unfinished runs of which the spec is as asked.
fn unfinished(
    runs: &Store<run::Guarded>,
    namespace: Option<String>,
    is_asked: impl Fn(&BenchmarkRunSpec) -> bool,
) -> Vec<ObjectRef<run::Guarded>> {
    let refers = |run: &BenchmarkRun| {
        let status = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        run.namespace() == namespace && !is_true(status, "Complete") && is_asked(&run.spec)
    };
    let all = runs.state();
    all.iter().filter(|run| run.0.as_ref().is_ok_and(refers)).map(|run| ObjectRef::from_obj(&**run)).collect()
}

/// The unfinished runs that refer to a service, by its name or through a control plane in it.
fn naming(
    runs: Store<run::Guarded>,
    planes: Store<control_plane::Guarded>,
) -> impl Fn(service::Guarded) -> Vec<ObjectRef<run::Guarded>> {
    move |service| {
        let name = service.name_any();
        let in_service = |plane: &str| {
            let all = planes.state();
            let mut planes = all.iter().filter_map(|plane| plane.0.as_ref().ok());
            planes.any(|other| other.name_any() == plane && other.spec.service_ref.name == name)
        };
        let refers = |arm: &Arm| {
            arm.service_ref.as_ref().is_some_and(|named| named.name == name)
                || arm.control_plane_ref.as_ref().is_some_and(|named| in_service(&named.name))
        };
        unfinished(&runs, service.namespace(), |spec| spec.arms.iter().any(refers))
    }
}

/// The unfinished runs that refer to a control plane.
fn referring(runs: Store<run::Guarded>) -> impl Fn(control_plane::Guarded) -> Vec<ObjectRef<run::Guarded>> {
    move |plane| {
        let name = plane.name_any();
        let refers = |arm: &Arm| arm.control_plane_ref.as_ref().is_some_and(|named| named.name == name);
        unfinished(&runs, plane.namespace(), |spec| spec.arms.iter().any(refers))
    }
}

/// The unfinished runs that take a workload from a template.
fn loading(runs: Store<run::Guarded>) -> impl Fn(Guarded<WorkloadTemplate>) -> Vec<ObjectRef<run::Guarded>> {
    move |template| {
        let name = template.name_any();
        unfinished(&runs, template.namespace(), |spec| spec.workload_refs.iter().any(|named| named.name == name))
    }
}

/// The unfinished runs that are held against a baseline.
fn held_against(runs: Store<run::Guarded>) -> impl Fn(kept::Guarded) -> Vec<ObjectRef<run::Guarded>> {
    move |baseline| {
        let name = baseline.name_any();
        unfinished(&runs, baseline.namespace(), |spec| {
            spec.baseline_ref.as_ref().is_some_and(|named| named.name == name)
        })
    }
}

/// The baselines that keep a run.
fn keeping(baselines: Store<kept::Guarded>) -> impl Fn(run::Guarded) -> Vec<ObjectRef<kept::Guarded>> {
    move |run| {
        let is_of = |baseline: &BenchmarkBaseline| {
            baseline.namespace() == run.namespace() && baseline.spec.run_ref.name == run.name_any()
        };
        let all = baselines.state();
        let kept = all.iter().filter(|baseline| baseline.0.as_ref().is_ok_and(is_of));
        kept.map(|baseline| ObjectRef::from_obj(&**baseline)).collect()
    }
}

/// The control planes in a service.
fn carrying(
    planes: Store<control_plane::Guarded>,
) -> impl Fn(service::Guarded) -> Vec<ObjectRef<control_plane::Guarded>> {
    move |service| {
        let is_in = |plane: &ControlPlane| {
            plane.namespace() == service.namespace() && plane.spec.service_ref.name == service.name_any()
        };
        let all = planes.state();
        all.iter()
            .filter(|plane| plane.0.as_ref().is_ok_and(is_in))
            .map(|plane| ObjectRef::from_obj(&**plane))
            .collect()
    }
}

/// What is done about an error: one policy for each class.
fn failed<K: Kind>(object: Arc<Guarded<K>>, error: &Error, context: Arc<Context>) -> Action {
    let (key, class) = (kind::key::<K>(&object), error.class());
    let failures = context.failures.add(&key);
    let wait = error::wait(class, failures);
    tracing::warn!(kind = K::NAME, object = key, ?class, failures, ?wait, "{error}");
    Action::requeue(wait)
}

/// Keeps the gauges of what exists, which changes rarely, up to date.
async fn count(runs: Store<run::Guarded>, services: Store<service::Guarded>, metrics: Arc<Metrics>) {
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut counts: HashMap<String, i64> = HashMap::new();
        for run in runs.state() {
            let Ok(run) = &run.0 else { continue };
            let conditions = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let succeeded = conditions.iter().find(|condition| condition.type_ == "Succeeded");
            let state = succeeded.map_or_else(|| "Queued".to_owned(), |condition| condition.reason.clone());
            *counts.entry(state).or_default() += 1;
        }
        metrics.runs_are(&counts);
        let names: Vec<String> = services
            .state()
            .iter()
            .map(|service| format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
            .collect();
        metrics.services_are(|name| names.iter().any(|existing| existing == name));
    }
}
