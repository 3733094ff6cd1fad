//! A store: what a StorageService becomes, and what every trial with `isolation: Fresh` gets for itself. Each role of its plan
//! that has pods of its own is a StatefulSet; a store that runs beside the load is built by [`beside_load`].

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, EnvVarSource, PodSpec, PodTemplateSpec, Secret, SecretKeySelector, Service,
    ServicePort, ServiceSpec, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_core::engine::{self, CLIENT, PEER, Role, RolePlan};
use storebench_core::placement;
use storebench_core::validate::ValidatedService;
use storebench_crds::storage_service::VolumeRetention;

use super::network::{dns, load, namespace, pods, tcp, users};
pub use super::role::{FAULT_PROXY, METER_PORT, SHARED_DIRECTORY, STORE_CONTAINER};
use super::{
    COMPANION, Labels, Owner, Place, ROLE_LABEL, STORE, instance, names, pinning, pod_metadata, pull_secrets, role,
    security, selector,
};
use crate::settings::Images;

/// Every object of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreObjects {
    /// What it needs beside itself, in the order of their start: they are ready before the store is applied.
    pub companions: Vec<RoleObjects>,
    /// The store itself. Absent: it runs beside the load.
    pub store: Option<RoleObjects>,
}

/// Every object of a role.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleObjects {
    /// The members.
    pub stateful_set: StatefulSet,
    /// Their names among themselves.
    pub service: Service,
    /// Who may connect.
    pub network_policy: NetworkPolicy,
    /// Keeps a majority; only with several members.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// What is written for the processes before they start; only where the plan has files.
    pub files: Option<ConfigMap>,
    /// What is shown to its meters to strike it; only where a run does that.
    pub strike: Option<Secret>,
}

/// What a store is built from.
#[derive(Clone, Debug)]
pub struct StoreRequest<'a> {
    /// What to deploy.
    pub service: &'a ValidatedService,
    /// The name of all its objects.
    pub name: &'a str,
    /// Who owns them.
    pub owner: &'a Owner,
    /// Further labels.
    pub labels: &'a Labels,
    /// Claims outlive the store.
    pub retention: VolumeRetention,
    /// It reaches its object store through the load beside it.
    pub has_fault_proxy: bool,
    /// What is shown to its meters to strike its members. Absent: nobody strikes them.
    pub strike_token: Option<&'a str>,
    /// Where the operator runs, which may read the meters.
    pub operator_namespace: &'a str,
    /// The platform's own images.
    pub images: &'a Images,
    /// Where its pods are to stay.
    pub place: &'a Place,
}

/// Builds a store.
pub fn build(request: &StoreRequest) -> StoreObjects {
    let plan = role::plan(request.service, request.name, &request.owner.namespace, request.has_fault_proxy);
    let mut objects = StoreObjects { companions: Vec::new(), store: None };
    for planned in plan.roles.iter().filter(|planned| !planned.role.is_beside_load) {
        let built = build_role(request, planned);
        match planned.role.is_store() {
            true => objects.store = Some(built),
            false => objects.companions.push(built),
        }
    }
    objects
}

fn build_role(request: &StoreRequest, planned: &RolePlan) -> RoleObjects {
    let name = role::objects(&planned.role, request.name);
    let labels = labels(request, &planned.role);
    let files = role::files(planned, request.owner.metadata(&files_name(&name), &labels));
    let service = planned.role.service;
    let token = request.strike_token.filter(|_| planned.role.is_store());
    RoleObjects {
        strike: token.map(|token| strike_secret(request, token, &labels)),
        stateful_set: stateful_set(request, planned, &name, &labels),
        service: headless_service(request, planned, &name, &labels),
        network_policy: network_policy(request, planned, &name, &labels),
        disruption_budget: (service.replicas > 1).then(|| disruption_budget(request, planned, &name, &labels)),
        files,
    }
}

/// The key of the token in the Secret that [`names::strike`] names.
const TOKEN_KEY: &str = "token";

/// Pods are given it as a variable. Users' own pods are not: it lacks the label by which they may name a Secret.
fn strike_secret(request: &StoreRequest, token: &str, labels: &Labels) -> Secret {
    Secret {
        metadata: request.owner.metadata(&names::strike(request.name), labels),
        data: Some([(TOKEN_KEY.to_owned(), ByteString(token.into()))].into()),
        ..Secret::default()
    }
}

/// The variable by which a container of a trial has the token that is shown to strike its store.
pub(super) fn strike_variable(variable: &str, trial: &str) -> EnvVar {
    let key = SecretKeySelector { name: names::strike(trial), key: TOKEN_KEY.into(), ..SecretKeySelector::default() };
    EnvVar {
        name: variable.into(),
        value_from: Some(EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

/// The meter beside a role.
fn meter(request: &StoreRequest, planned: &RolePlan) -> Container {
    let mut meter = role::meter(planned, request.images);
    if request.strike_token.is_some() && planned.role.is_store() {
        meter.env = Some(vec![strike_variable("STORE_METER_STRIKE_TOKEN", request.name)]);
    }
    meter
}

fn files_name(name: &str) -> String {
    format!("{name}-files")
}

/// The first member's command line, for the record.
pub fn command(service: &ValidatedService, name: &str, namespace: &str, has_fault_proxy: bool) -> Vec<String> {
    let plan = role::plan(service, name, namespace, has_fault_proxy);
    let store = plan.roles.iter().find(|planned| planned.role.is_store());
    let process = store.and_then(|planned| planned.processes.first());
    let words = |process: &engine::ProcessPlan| {
        std::iter::once(process.binary.to_owned()).chain(process.arguments.iter().cloned()).collect()
    };
    process.map(words).unwrap_or_default()
}

/// Names of the store's pods, in order; none where it runs beside the load.
pub fn members(service: &ValidatedService, name: &str) -> Vec<String> {
    let roles = engine::roles(service);
    roles.iter().filter(|role| role.is_store()).flat_map(|role| role::pods(role, name)).collect()
}

/// Names of the companions' pods.
pub fn companions(service: &ValidatedService, name: &str) -> Vec<String> {
    let roles = engine::roles(service);
    roles.iter().filter(|role| !role.is_store()).flat_map(|role| role::pods(role, name)).collect()
}

/// Where the companions are reached, by role.
pub fn companion_addresses(
    service: &ValidatedService,
    name: &str,
    namespace: &str,
) -> std::collections::BTreeMap<String, String> {
    // Where it is does not depend on who passes requests on.
    let plan = role::plan(service, name, namespace, false);
    let companions = plan.roles.iter().filter(|planned| !planned.role.is_store());
    companions
        .filter_map(|planned| Some((planned.role.name.to_owned(), planned.processes.first()?.address(CLIENT)?)))
        .collect()
}

/// What a store becomes that runs beside the load: sidecars of the load's pod, in the order of their start.
#[derive(Clone, Debug, PartialEq)]
pub struct BesideLoad {
    /// The meter and the store.
    pub sidecars: Vec<Container>,
    /// Their volumes.
    pub volumes: Vec<Volume>,
    /// What the load mounts of these.
    pub mount: VolumeMount,
    /// What is written for the store before it starts; only where the plan has files.
    pub files: Option<ConfigMap>,
}

/// Builds a store that runs beside the load; `None` for one with pods of its own.
pub fn beside_load(request: &StoreRequest) -> Option<BesideLoad> {
    let plan = role::plan(request.service, request.name, &request.owner.namespace, request.has_fault_proxy);
    let planned = plan.roles.iter().find(|planned| planned.role.is_beside_load)?;
    let files =
        role::files(planned, request.owner.metadata(&files_name(request.name), &labels(request, &planned.role)));
    let store = role::process(planned, planned.processes.first()?, request.images);
    Some(BesideLoad {
        sidecars: vec![role::meter(planned, request.images), role::beside_load(store)],
        volumes: role::volumes_beside_load(planned, files.as_ref().and_then(|files| files.metadata.name.as_deref())),
        mount: role::shared_mount(),
        files,
    })
}

fn labels(request: &StoreRequest, role: &Role) -> Labels {
    let mut labels = selecting(request, role);
    labels.extend(request.labels.clone());
    labels.insert("app.kubernetes.io/name".into(), role.service.engine.name.into());
    labels
}

/// By what the StatefulSet of a role selects its pods. It cannot be changed.
fn selecting(request: &StoreRequest, role: &Role) -> Labels {
    if role.is_store() {
        return instance(STORE, request.name);
    }
    let mut labels = instance(COMPANION, request.name);
    labels.insert(ROLE_LABEL.into(), role.name.into());
    labels
}

/// By what all else selects the pods of a role; see [`Owner::labels`].
fn own(request: &StoreRequest, role: &Role) -> Labels {
    request.owner.labels(&selecting(request, role))
}

fn stateful_set(request: &StoreRequest, planned: &RolePlan, name: &str, labels: &Labels) -> StatefulSet {
    let StoreRequest { owner, .. } = request;
    let service = planned.role.service;
    let metadata = ObjectMeta { labels: Some(owner.labels(labels)), ..ObjectMeta::default() };
    let claims = role::claim(service, metadata);
    let retention = match request.retention {
        VolumeRetention::Delete => "Delete",
        VolumeRetention::Retain => "Retain",
    };
    StatefulSet {
        metadata: owner.metadata(name, labels),
        spec: Some(StatefulSetSpec {
            replicas: Some(service.replicas.cast_signed()),
            service_name: Some(name.into()),
            selector: selector(&selecting(request, &planned.role)),
            // Members find one another only when all are there.
            pod_management_policy: Some("Parallel".into()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("RollingUpdate".into()),
                ..StatefulSetUpdateStrategy::default()
            }),
            persistent_volume_claim_retention_policy: claims.is_some().then(|| {
                StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_deleted: Some(retention.into()),
                    when_scaled: Some("Retain".into()),
                }
            }),
            volume_claim_templates: claims.map(|claim| vec![claim]),
            template: pod_template(request, planned, name, labels),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

fn pod_template(request: &StoreRequest, planned: &RolePlan, name: &str, labels: &Labels) -> PodTemplateSpec {
    let nodes = request.place.nodes(if planned.role.is_store() { placement::STORE } else { COMPANION });
    let replicas = planned.role.service.replicas as usize;
    // Companions run where the store may.
    let pod = request.service.spec.pod.clone().unwrap_or_default();
    let has_files = planned.processes.first().is_some_and(|process| !process.files.is_empty());
    let volumes = role::volumes(planned, has_files.then(|| files_name(name)).as_deref());
    PodTemplateSpec {
        metadata: Some(pod_metadata(request.owner.labels(labels))),
        spec: Some(PodSpec {
            image_pull_secrets: pull_secrets(request.images),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // The meter reads the store's /proc.
            share_process_namespace: Some(true),
            security_context: Some(security::pod()),
            termination_grace_period_seconds: Some(10),
            init_containers: Some(vec![meter(request, planned)]),
            containers: planned
                .processes
                .first()
                .map(|process| role::process(planned, process, request.images))
                .into_iter()
                .collect(),
            volumes: (!volumes.is_empty()).then_some(volumes),
            node_selector: request.place.node_selector(pod.node_selector),
            tolerations: request.place.tolerations(pod.tolerations),
            affinity: pinning::affinity(pod.affinity, nodes),
            topology_spread_constraints: pinning::spread(nodes, replicas, &own(request, &planned.role)),
            ..PodSpec::default()
        }),
    }
}

fn headless_service(request: &StoreRequest, planned: &RolePlan, name: &str, labels: &Labels) -> Service {
    let ports = planned.role.service.engine.ports.iter().map(|port| ServicePort {
        name: Some(port.name.into()),
        port: i32::from(port.number),
        ..ServicePort::default()
    });
    Service {
        metadata: request.owner.metadata(name, labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some(own(request, &planned.role)),
            // Members must find one another before any of them is ready.
            publish_not_ready_addresses: Some(true),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn network_policy(request: &StoreRequest, planned: &RolePlan, name: &str, labels: &Labels) -> NetworkPolicy {
    let engine = planned.role.service.engine;
    let operator = namespace(request.operator_namespace);
    let load = load(request.owner, request.name);
    let members = pods(&own(request, &planned.role));
    let of_store = |component| pods(&request.owner.labels(&instance(component, request.name)));
    let mut from = vec![load.clone(), users(request.owner, request.name)];
    if !planned.role.is_store() {
        from.push(of_store(STORE));
    }
    let offered = engine.ports.iter().filter(|port| port.name != PEER).map(|port| tcp(port.number));
    let clients = NetworkPolicyIngressRule { from: Some(from), ports: Some(offered.collect()) };
    let meters = NetworkPolicyIngressRule { from: Some(vec![load, operator]), ports: Some(vec![tcp(METER_PORT)]) };
    let peers = (engine.replicas.len() > 1).then(|| NetworkPolicyIngressRule {
        from: Some(vec![members.clone()]),
        ports: Some(engine.port(PEER).into_iter().chain([engine.client_port()]).map(tcp).collect()),
    });
    NetworkPolicy {
        metadata: request.owner.metadata(name, labels),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(&own(request, &planned.role))),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some([Some(clients), Some(meters), peers].into_iter().flatten().collect()),
            // An image that a user names reaches its own members and companions, and nothing else.
            egress: Some(vec![
                NetworkPolicyEgressRule { to: Some(vec![members, of_store(COMPANION)]), ports: None },
                dns(),
            ]),
        }),
    }
}

fn disruption_budget(request: &StoreRequest, planned: &RolePlan, name: &str, labels: &Labels) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: request.owner.metadata(name, labels),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(&own(request, &planned.role))),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
