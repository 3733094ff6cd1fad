//! Does what [`super::step`] decided. Every function can be repeated: what exists already is left as it is.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::durability::hold_against_the_disk;
use storebench_core::engine;
use storebench_core::ledger::number;
use storebench_core::placement;
use storebench_core::record::{FailureCause, RunRecord, TrialFailure};
use storebench_core::trial::{Loaded, job, needs_fault_proxy, strikes};
use storebench_core::validate::{ExternalStore, ValidatedService};
use storebench_crds::BenchmarkRun;
use storebench_crds::engine::object_store;
use storebench_crds::external::{External, NAMESPACE_NAME as NAME};
use storebench_crds::storage_service::VolumeRetention;

use super::references::References;
use super::step::{Existing, Trial};
use crate::apply::{apply, create, delete_selected};
use crate::context::Context;
use crate::deploy;
use crate::error::Error;
use crate::events;
use crate::meter;
use crate::objects::control_plane::{self, ControlPlaneRequest};
use crate::objects::load::{self, LoadObjects, LoadRequest};
use crate::objects::store::{self, METER_PORT, StoreRequest};
use crate::objects::{self, COMPANION, CONTROL_PLANE, INSTANCE_LABEL, LOAD, Labels, Owner, Place, STORE, names};

/// A trial of a run, and all that is looked at when something is done for it.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The trial.
    pub trial: &'a Trial,
    /// The run, as its objects name it.
    pub owner: &'a Owner,
    /// What the run refers to.
    pub references: &'a References,
    /// What there is of the run.
    pub existing: &'a Existing,
    /// What it has measured.
    pub record: &'a RunRecord,
    /// What the operator has.
    pub context: &'a Context,
}

impl Stage<'_> {
    /// Applies what the store of a trial needs beside itself.
    pub async fn deploy_companions(&self) -> Result<(), Error> {
        let Self { trial, references, context, .. } = *self;
        let Some(service) = references.service(&trial.arm) else { return Ok(()) };
        let (labels, place) = (self.labels(), self.place());
        // Nobody strikes these.
        for companion in store::build(&self.request(service, &labels, &place)).companions {
            deploy::role(&context.client, companion).await?;
        }
        Ok(())
    }

    /// Applies the store of a trial, whose companions answer.
    pub async fn deploy(&self) -> Result<(), Error> {
        let Self { trial, owner, references, context, .. } = *self;
        let Some(service) = references.service(&trial.arm) else { return Ok(()) };
        let (labels, place) = (self.labels(), self.place());
        let request = self.request(service, &labels, &place);
        let token = strikes(&references.run).then(|| context.signer.strike_token(&owner.reference.uid, &trial.name));
        match store::build(&StoreRequest { strike_token: token.as_deref(), ..request }).store {
            Some(store) => deploy::role(&context.client, store).await,
            None => Ok(()),
        }
    }

    /// Applies the control plane of a trial, whose store answers. Returns why not, where the store cannot carry it: asked before
    /// anything is started, since an API server would only say that it is not ready.
    pub async fn deploy_control_plane(&self) -> Result<Option<TrialFailure>, Error> {
        let Self { trial, owner, references, existing, context, .. } = *self;
        let Some(plane) = references.control_plane(&trial.arm) else { return Ok(None) };
        for address in addresses(&references.members(&trial.arm, &trial.name).store, existing, METER_PORT) {
            if let Some(lacking) = meter::protocol_failure(&address).await {
                let detail = format!("the store cannot hold a Kubernetes cluster: {lacking}");
                return Ok(Some(TrialFailure { cause: FailureCause::StoreFailed, detail }));
            }
        }
        let request = ControlPlaneRequest {
            control_plane: plane,
            name: &names::control_plane(&trial.name),
            store: &trial.name,
            instance: &trial.name,
            owner,
            labels: &self.labels(),
            operator_namespace: &context.settings.operator_namespace,
            images: &context.settings.images,
            place: &self.place(),
        };
        crate::control_plane::deploy(&request, context).await?;
        Ok(None)
    }

    /// Creates the load of a trial. The Job comes last and only once.
    pub async fn load(&self) -> Result<(), Error> {
        let Self { trial, owner, references, existing, context, .. } = *self;
        let members = references.members(&trial.arm, &trial.name);
        let plane = references.control_plane_name(&trial.arm, &trial.name);
        let cluster = references.clusters.get(&trial.arm);
        let external = references.external(&trial.arm);
        let endpoints = match (&plane, cluster, external, references.service(&trial.arm)) {
            (_, Some(cluster), ..) => vec![format!("{}:{}", cluster.host, cluster.port)],
            (Some(plane), ..) => vec![control_plane::address(plane, &owner.namespace)],
            (None, None, Some(store), _) => store.external.endpoints.clone(),
            (None, None, None, Some(service)) if service.engine.shares_directory => {
                vec![format!("127.0.0.1:{}", service.engine.client_port())]
            }
            (None, None, None, Some(service)) => addresses(&members.store, existing, service.engine.client_port()),
            (None, None, None, None) => return Ok(()),
        };
        let outside_ports = match (cluster, external) {
            (Some(cluster), _) => vec![cluster.port],
            (None, Some(store)) => ports(&store.external),
            (None, None) => Vec::new(),
        };
        let service = references.service(&trial.arm);
        let (labels, place) = (self.labels(), self.place());
        let beside = service.and_then(|service| store::beside_load(&self.request(service, &labels, &place)));
        let mut spec = job(&references.run, &trial.arm, trial.index, endpoints);
        spec.meters = match &beside {
            Some(_) => vec![format!("127.0.0.1:{METER_PORT}")],
            None => addresses(&members.store, existing, METER_PORT),
        };
        spec.companions = service
            .map(|service| {
                store::companion_addresses(service, &references.store_name(service, &trial.name), &owner.namespace)
            })
            .unwrap_or_default();
        if let (Some(service), Some(object_store)) = (service, spec.companions.get(object_store::ROLE)) {
            // The load finds the executable where it runs, beside it.
            let program = service.engine.binary().to_owned();
            spec.restore_tool = engine::restore_tool(service.engine, &service.version, program, object_store);
            spec.fault_proxy = has_fault_proxy(service, references).then(|| store::FAULT_PROXY.into());
        }
        spec.control_plane_meter = addresses(members.control_plane.as_slice(), existing, METER_PORT).pop();
        let timeout = references.run.spec.trials.timeout.duration().as_secs();
        let request = LoadRequest {
            spec,
            name: &trial.name,
            owner,
            labels: &labels,
            beside,
            kubeconfig: cluster.map(|cluster| cluster.secret.clone()).or(plane.as_deref().map(names::kubeconfig)),
            shared: references.shared(&trial.arm),
            is_struck: strikes(&references.run),
            outside_ports,
            shows_certificate: external.is_some_and(|store| references.certificates.contains(&store.name)),
            deadline_seconds: timeout.max(1).cast_signed(),
            started_at: &Timestamp::now().to_string(),
            settings: &context.settings,
            place: &place,
        };
        let LoadObjects { job, service, network_policy, files } = load::build(request)?;
        apply(&context.client, &network_policy).await?;
        if let Some(files) = files {
            apply(&context.client, &files).await?;
        }
        if let Some(service) = service {
            apply(&context.client, &service).await?;
        }
        create(&context.client, &job).await
    }

    /// Files what the load of a trial measured.
    pub async fn collect(&self) -> Result<(), Error> {
        let Self { trial, owner, references, existing, context, .. } = *self;
        let members = references.members(&trial.arm, &trial.name);
        let mut loaded = super::collect::collect(&context.client, &owner.namespace, trial, existing, &members).await?;
        if references.external(&trial.arm).is_some() {
            // It may run on a node of the load, and cannot be told from others there.
            loaded.workloads.iter_mut().for_each(|workload| workload.machines.clear());
        }
        if let Some(arm) = references.arm(&trial.arm) {
            hold_against_the_disk(&mut loaded, arm, &references.run.spec.workloads);
        }
        self.file(loaded).await
    }

    /// Files a trial that failed without a measurement.
    pub async fn fail(&self, run: &BenchmarkRun, failure: TrialFailure) -> Result<(), Error> {
        let Self { trial, references, existing, record, context, .. } = *self;
        // The load, which would have cleaned up and said what it could not, did not come to its end.
        let left = references.external(&trial.arm).map(|store| left_behind(store, existing, &trial.name));
        let failure = TrialFailure { detail: failure.detail + &left.unwrap_or_default(), ..failure };
        events::trial_failed(context, run, &trial.arm, number(&record.trials, trial.index), &failure.detail).await;
        let loaded = Loaded::failed(failure.cause, failure.detail);
        self.file(loaded).await
    }

    async fn file(&self, loaded: Loaded) -> Result<(), Error> {
        let Self { trial, owner, references, existing, context, .. } = *self;
        let command = references.service(&trial.arm).map(|service| {
            let name = references.store_name(service, &trial.name);
            store::command(service, &name, &owner.namespace, has_fault_proxy(service, references))
        });
        let now = Timestamp::now();
        let begun = begun(&self.record.started_at)?;
        let members = references.members(&trial.arm, &trial.name);
        let file = super::collect::file(trial, loaded, existing, &members, command.unwrap_or_default(), begun, now);
        let mut map = super::collect::config_map(owner, trial, &file)?;
        context.signer.sign(&owner.reference.uid, &mut map);
        create(&context.client, &map).await?;
        context.metrics.trial_ended(file.trial.state, file.trial.duration_millis);
        Ok(())
    }

    /// What the store of a trial is built from.
    fn request<'b>(&'b self, service: &'b ValidatedService, labels: &'b Labels, place: &'b Place) -> StoreRequest<'b> {
        let Self { trial, owner, references, context, .. } = *self;
        StoreRequest {
            service,
            name: &trial.name,
            owner,
            labels,
            // A trial's own data are of no use to anybody.
            retention: VolumeRetention::Delete,
            has_fault_proxy: has_fault_proxy(service, references),
            strike_token: None,
            operator_namespace: &context.settings.operator_namespace,
            images: &context.settings.images,
            place,
        }
    }

    fn labels(&self) -> Labels {
        objects::trial(self.trial.index, &self.trial.arm)
    }

    fn place(&self) -> Place {
        let pool = self.record.spec.node_pool.clone();
        Place { pool, pins: placement::pins(self.record, &self.trial.arm) }
    }
}

/// When a run began, as its record says. Times of trials count from there.
fn begun(started_at: &str) -> Result<Timestamp, Error> {
    let damaged =
        |error| Error::Damaged(format!("the record of the run says that it began at {started_at:?}: {error}"));
    started_at.parse().map_err(damaged)
}

/// Whether the load lets a store's requests to its object store fail.
fn has_fault_proxy(service: &ValidatedService, references: &References) -> bool {
    service.engine.shares_directory && needs_fault_proxy(&references.run)
}

/// The ports of a store that was there already, each once.
fn ports(external: &External) -> Vec<u16> {
    let ports = external.endpoints.iter().filter_map(|endpoint| endpoint.rsplit_once(':')?.1.parse().ok());
    ports.collect::<BTreeSet<u16>>().into_iter().collect()
}

/// What may stay in somebody's store after a load that was made and did not end, as the end of a message.
fn left_behind(store: &ExternalStore, existing: &Existing, trial: &str) -> String {
    if !existing.jobs.iter().any(|job| job.name_any() == trial) {
        return String::new();
    }
    format!("; keys that begin with {NAME} may stay in {}: remove them", store.external.endpoints.join(", "))
}

/// Where these pods answer on a port.
fn addresses(members: &[String], existing: &Existing, port: u16) -> Vec<String> {
    let address = |member: &String| {
        let pod = existing.pods.iter().find(|pod: &&Pod| pod.name_any() == *member)?;
        Some(objects::socket_address(pod.status.as_ref()?.pod_ip.as_ref()?, port))
    };
    members.iter().filter_map(address).collect()
}

/// Deletes the stores, control planes and loads of a run but those of the trial that is kept. Returns whether any is still there.
pub async fn delete_others(
    owner: &Owner,
    keep: Option<&str>,
    existing: &Existing,
    context: &Context,
) -> Result<bool, Error> {
    let other = |name: &str| keep != Some(name);
    let jobs = existing.jobs.iter().filter(|job| other(&job.name_any()));
    let deployed = existing.stores.iter().chain(&existing.companions).chain(&existing.control_planes);
    let stores = deployed.filter(|one| other(&one.name));
    let is_deleting = |job: &&Job| job.metadata.deletion_timestamp.is_some();
    let fresh = jobs.clone().any(|job| !is_deleting(&job)) || stores.clone().any(|store| !store.is_stopping);
    let pods = existing.own_pods().any(|pod| pod.labels().get(INSTANCE_LABEL).is_none_or(|name| other(name)));
    let remains = pods || jobs.count() + stores.count() > 0;
    if fresh || keep.is_none() {
        let mut labels = format!(
            "{},{COMPONENT_LABEL} in ({STORE},{COMPANION},{CONTROL_PLANE},{LOAD})",
            objects::query(&owner.labels)
        );
        if let Some(keep) = keep {
            labels = format!("{labels},{INSTANCE_LABEL}!={keep}");
        }
        let (client, namespace) = (&context.client, owner.namespace.as_str());
        // Stores and Jobs last: as long as one of them exists, an operator that takes over comes here again.
        delete_selected::<Service>(client, namespace, &labels).await?;
        delete_selected::<NetworkPolicy>(client, namespace, &labels).await?;
        delete_selected::<PodDisruptionBudget>(client, namespace, &labels).await?;
        delete_selected::<Secret>(client, namespace, &labels).await?;
        delete_selected::<ConfigMap>(client, namespace, &labels).await?;
        delete_selected::<PersistentVolumeClaim>(client, namespace, &labels).await?;
        delete_selected::<StatefulSet>(client, namespace, &labels).await?;
        delete_selected::<Job>(client, namespace, &labels).await?;
    }
    Ok(remains)
}

/// Deletes the record of a run that is being deleted.
pub async fn delete_records(owner: &Owner, context: &Context) -> Result<(), Error> {
    delete_selected::<ConfigMap>(&context.client, &owner.namespace, &objects::query(&owner.labels)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_core::reason::Reason;

    #[test]
    fn a_run_of_which_nobody_can_read_when_it_began_did_not_begin_now() {
        assert_eq!(begun("2026-11-22T00:00:00Z").unwrap().to_string(), "2026-11-22T00:00:00Z");
        let said = begun("yesterday").unwrap_err();
        assert_eq!((said.reason(), said.is_final(0)), (Reason::InvalidRecord, true));
        let said = said.for_user();
        assert!(said.contains("\"yesterday\"") && said.ends_with("make a new run"), "{said}");
    }
}
