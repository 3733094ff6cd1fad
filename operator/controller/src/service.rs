//! StorageService: validate, build, apply, observe, status, in that order.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::conditions::{ServiceState, of_service};
use storebench_core::reason::Reason;
use storebench_core::validate::{self, ExternalStore, Target, ValidatedService};
use storebench_crds::StorageService;
use storebench_crds::storage_service::{StorageServiceStatus, VolumeRetention};

use crate::apply::check_owner;
use crate::context::Context;
use crate::deploy;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::{self, Health, Trouble};
use crate::kind::{self, Conditions, Kind, Named, Said, report};
use crate::meter::{self, Reading};
use crate::objects::store::{self, METER_PORT, StoreObjects, StoreRequest};
use crate::objects::{self, COMPANION, Labels, Owner, Place, SERVICE_LABEL, STORE, names};
use crate::secrets;

/// A service that may be one this version cannot read.
pub type Guarded = kind::Guarded<StorageService>;

/// While a service starts, a look is due this often, should an event be missed.
const STARTING_INTERVAL: Duration = Duration::from_secs(15);
/// A service that may yet recover by itself is looked at again after this.
const STALLED_INTERVAL: Duration = Duration::from_secs(60);

impl Kind for StorageService {
    type State = ServiceState;
    const NAME: &'static str = "StorageService";
    const STALLED: fn(Reason) -> ServiceState = ServiceState::Stalled;
    const CONDITIONS: Conditions<ServiceState> = of_service;
    const MESSAGE_BYTES_MAX: usize = 1_024;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        kind::stall(self, StorageServiceStatus::default(), &error.trouble(), context).await?;
        Ok(Action::requeue(kind::REFUSED_INTERVAL))
    }

    fn conditions(status: &StorageServiceStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut StorageServiceStatus) -> Said<'_> {
        let StorageServiceStatus { observed_generation, conditions, .. } = status;
        Said { observed_generation, conditions, message: None }
    }

    fn count(&self, state: ServiceState, context: &Context) {
        context.metrics.service_is(&self.namespace().unwrap_or_default(), &self.name_any(), state);
    }
}

impl Named for StorageService {
    const MISSING: Reason = Reason::ServiceMissing;
    // A service's spec can be corrected, a run's cannot: who waits for a run is told by the reason.
    const INVALID: Reason = Reason::InvalidService;
}

/// Brings one service to what its spec says.
async fn reconcile(service: &StorageService, context: &Context) -> Result<Action, Error> {
    // Everything is owned by the service and goes with it; there is nothing to wait for.
    if service.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let owner = Owner::of(service, SERVICE_LABEL)
        .ok_or(Error::Incomplete("a StorageService without name, uid or namespace"))?;
    let validated = validate::service(service).and_then(|valid| validate::for_kubernetes(&valid).map(|()| valid));
    let valid = match validated {
        Ok(valid) => valid,
        Err(problem) => {
            let trouble = Trouble { reason: Reason::InvalidSpec, message: problem.to_string() };
            kind::stall(service, StorageServiceStatus::default(), &trouble, context).await?;
            return Ok(Action::await_change());
        }
    };
    if let Err(trouble) = secrets::of_service(&valid, &owner.namespace, context).await? {
        return stalled(service, StorageServiceStatus::default(), &trouble, context).await;
    }
    if let Target::External(store) = Target::of(valid.clone()) {
        return is_there_already(service, &store, context).await;
    }
    let name = names::store(&service.name_any());
    let retention = valid.spec.storage.as_ref().map(|storage| storage.retention).unwrap_or(VolumeRetention::Delete);
    let request = StoreRequest {
        service: &valid,
        name: &name,
        owner: &owner,
        labels: &Labels::new(),
        retention,
        // No load is beside it.
        has_fault_proxy: false,
        strike_token: None,
        operator_namespace: &context.settings.operator_namespace,
        images: &context.settings.images,
        place: &Place::default(),
    };
    let StoreObjects { companions, store } = store::build(&request);
    for companion in companions {
        deploy::role(&context.client, companion).await?;
    }
    let pods = pods(service, &owner.namespace, context).await?;
    if let Some(action) = until_companions_answer(service, &valid, &name, &pods, context).await? {
        return Ok(action);
    }
    let Some(store) = store else {
        let message = "its companions answer; it runs beside the load of each trial";
        let state = ServiceState::Ready { protocol: None };
        report(service, StorageServiceStatus::default(), state, message, context).await?;
        return Ok(Action::await_change());
    };
    if store.disruption_budget.is_none() && valid.engine.replicates() {
        remove_budget(&owner, &name, context).await?;
    }
    deploy::role(&context.client, store).await?;
    observe(service, &valid, &owner, &name, context).await
}

/// Nothing is deployed, and nobody is asked: the operator dials no store that it has not deployed. Whether the store answers shows where it is loaded.
async fn is_there_already(service: &StorageService, store: &ExternalStore, context: &Context) -> Result<Action, Error> {
    let endpoints = BTreeMap::from([("client".to_owned(), store.external.endpoints.join(","))]);
    let message = format!("it is there already, at {}; whoever loads it finds out whether it answers", store.place());
    let found = StorageServiceStatus { endpoints, ..StorageServiceStatus::default() };
    if report(service, found, ServiceState::External, &message, context).await? {
        events::ready(context, service, &message).await;
    }
    Ok(Action::await_change())
}

/// A service that was scaled down to one member has no majority to keep.
async fn remove_budget(owner: &Owner, name: &str, context: &Context) -> Result<(), Error> {
    let api = Api::<PodDisruptionBudget>::namespaced(context.client.clone(), &owner.namespace);
    let found = api.get_metadata_opt(name).await.tried(|| format!("get PodDisruptionBudget {name}"))?;
    let wanted = owner.metadata(name, &Labels::new());
    let Some(found) = found.filter(|found| check_owner::<PodDisruptionBudget>(&found.metadata, &wanted).is_ok()) else {
        return Ok(());
    };
    // That one, should it be replaced in this very moment.
    let that = Preconditions { uid: found.metadata.uid, ..Preconditions::default() };
    match api.delete(name, &DeleteParams::background().preconditions(that)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(|_| ()).tried(|| format!("delete PodDisruptionBudget {name}")),
    }
}

/// The pods of a service: those of the store and of its companions.
async fn pods(service: &StorageService, namespace: &str, context: &Context) -> Result<Vec<Pod>, Error> {
    let labels = format!("{},{COMPONENT_LABEL} in ({STORE},{COMPANION})", objects::of_service(&service.name_any()));
    let pods = Api::<Pod>::namespaced(context.client.clone(), namespace);
    Ok(pods.list(&ListParams::default().labels(&labels)).await.tried(|| "list Pods".into())?.items)
}

/// A store is started when what it needs beside itself answers. `None`: it does, or there is nothing.
async fn until_companions_answer(
    service: &StorageService,
    valid: &ValidatedService,
    name: &str,
    pods: &[Pod],
    context: &Context,
) -> Result<Option<Action>, Error> {
    let companions = store::companions(valid, name);
    match health::of_members(&companions, pods, Timestamp::now()) {
        Health::Ready => Ok(None),
        Health::Starting(message) => {
            report(service, StorageServiceStatus::default(), ServiceState::Starting, &message, context).await?;
            Ok(Some(Action::requeue(STARTING_INTERVAL)))
        }
        Health::Failed(trouble) => {
            stalled(service, StorageServiceStatus::default(), &trouble.into(), context).await.map(Some)
        }
    }
}

/// Says why a pod will not become ready by itself.
async fn stalled(
    service: &StorageService,
    found: StorageServiceStatus,
    trouble: &Trouble,
    context: &Context,
) -> Result<Action, Error> {
    kind::stall(service, found, trouble, context).await?;
    Ok(Action::requeue(STALLED_INTERVAL))
}

async fn observe(
    service: &StorageService,
    valid: &ValidatedService,
    owner: &Owner,
    name: &str,
    context: &Context,
) -> Result<Action, Error> {
    let members = store::members(valid, name);
    let pods = pods(service, &owner.namespace, context).await?;
    let pods: Vec<Pod> = pods.into_iter().filter(|pod| members.contains(&pod.name_any())).collect();
    let engine = valid.engine;
    let host = format!("{name}.{}.svc", owner.namespace);
    let mut endpoints = BTreeMap::from([("client".to_owned(), format!("{host}:{}", engine.client_port()))]);
    if let Some((port, path)) = engine.metrics_address() {
        endpoints.insert("metrics".into(), format!("http://{host}:{port}{path}"));
    }
    let mut found = StorageServiceStatus {
        ready_replicas: pods.iter().filter(|pod| health::is_ready(pod)).count() as i32,
        endpoints,
        ..StorageServiceStatus::default()
    };
    match health::of_members(&members, &pods, Timestamp::now()) {
        Health::Ready => {
            let previous = service.status.as_ref();
            let was_ready = previous.is_some_and(|status| {
                crate::queue::is_true(&status.conditions, "Ready")
                    && status.observed_generation == service.meta().generation.unwrap_or(-1)
                    && status.footprint.is_some()
            });
            let reading = if was_ready {
                previous.and_then(Reading::of_status)
            } else {
                let first = pods.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone());
                meter::read(&objects::socket_address(&first.unwrap_or_default(), METER_PORT)).await
            };
            let Some(Reading { version, footprint, protocol_failure }) = reading else {
                report(service, found, ServiceState::Starting, "answers; its meter does not yet", context).await?;
                return Ok(Action::requeue(STARTING_INTERVAL));
            };
            (found.version, found.footprint) = (version, Some(footprint));
            let state = ServiceState::Ready { protocol: Some(protocol_failure.is_none()) };
            let message = protocol_failure.unwrap_or_else(|| "every member answers".into());
            if report(service, found, state, &message, context).await? {
                events::ready(context, service, &message).await;
            }
            Ok(Action::await_change())
        }
        Health::Starting(message) => {
            report(service, found, ServiceState::Starting, &message, context).await?;
            Ok(Action::requeue(STARTING_INTERVAL))
        }
        Health::Failed(trouble) => stalled(service, found, &trouble.into(), context).await,
    }
}
