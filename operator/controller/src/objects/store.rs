//! A store: what a StorageService becomes, and what every trial with `isolation: Fresh` gets for itself.

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, Service,
    ServicePort, ServiceSpec, Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicySpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::engine::{self, Member, PEER, Placement, ProcessPlan};
use storebench_core::validate::ValidatedService;
use storebench_crds::storage_service::VolumeRetention;

use super::network::{label, namespace, pods, tcp};
use super::{CLIENT_LABEL, LOAD, Labels, Owner, STORE, instance, security, selector};
use crate::settings::Images;

/// The port of the sidecar that measures the store.
pub const METER_PORT: u16 = 9465;
/// The container that is the store.
pub const STORE_CONTAINER: &str = "store";
const METER_CONTAINER: &str = "meter";
const DATA_VOLUME: &str = "data";
const DATA_DIRECTORY: &str = "/data";
const METER_PORT_NAME: &str = "meter";

/// Every object of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreObjects {
    /// The members.
    pub stateful_set: StatefulSet,
    /// Their names among themselves.
    pub service: Service,
    /// Who may connect.
    pub network_policy: NetworkPolicy,
    /// Keeps a majority; only with several members.
    pub disruption_budget: Option<PodDisruptionBudget>,
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
    /// Where the operator runs, which may read the meters.
    pub operator_namespace: &'a str,
    /// The platform's own images.
    pub images: &'a Images,
}

/// Builds a store.
pub fn build(request: &StoreRequest) -> StoreObjects {
    let mut labels = instance(STORE, request.name);
    labels.extend(request.labels.clone());
    labels.insert("app.kubernetes.io/name".into(), request.service.engine.name.into());
    StoreObjects {
        stateful_set: stateful_set(request, &labels),
        service: headless_service(request, &labels),
        network_policy: network_policy(request, &labels),
        disruption_budget: (request.service.replicas > 1).then(|| disruption_budget(request, &labels)),
    }
}

/// The first member's command line, for the record.
pub fn command(service: &ValidatedService, name: &str, namespace: &str) -> Vec<String> {
    let process = process(service, name, namespace);
    std::iter::once(process.binary.to_owned()).chain(process.arguments).collect()
}

/// Names of the members' pods, in order.
pub fn members(service: &ValidatedService, name: &str) -> Vec<String> {
    (0..service.replicas).map(|ordinal| format!("{name}-{ordinal}")).collect()
}

/// One command line for all members: what a member is told of itself are references to its own pod.
fn process(service: &ValidatedService, name: &str, namespace: &str) -> ProcessPlan {
    let domain = format!("{name}.{namespace}.svc");
    let member = |member: String| Member {
        host: format!("{member}.{domain}"),
        name: member,
        own_name: "$(POD_NAME)".into(),
        own_host: format!("$(POD_NAME).{domain}"),
        bind: "0.0.0.0".into(),
        client_port: service.engine.client_port(),
        peer_port: service.engine.port(PEER).unwrap_or_default(),
        data_directory: DATA_DIRECTORY.into(),
    };
    let placement = Placement { members: members(service, name).into_iter().map(member).collect() };
    let plan = engine::plan(service, &placement);
    debug_assert!(plan.members.windows(2).all(|pair| pair[0].arguments == pair[1].arguments));
    plan.members.into_iter().next().unwrap_or_else(|| ProcessPlan {
        // Unreachable: a service has at least one replica.
        name: String::new(),
        binary: service.engine.binary(),
        arguments: Vec::new(),
        environment: Vec::new(),
        client_address: String::new(),
    })
}

fn stateful_set(request: &StoreRequest, labels: &Labels) -> StatefulSet {
    let StoreRequest { service, name, owner, .. } = request;
    let claims = service.spec.storage.as_ref().map(|storage| PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(DATA_VOLUME.into()),
            labels: Some(owner.labels(labels)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(storage.size.clone()))].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    });
    let retention = match request.retention {
        VolumeRetention::Delete => "Delete",
        VolumeRetention::Retain => "Retain",
    };
    StatefulSet {
        metadata: owner.metadata(name, labels),
        spec: Some(StatefulSetSpec {
            replicas: Some(service.replicas.cast_signed()),
            service_name: Some((*name).into()),
            selector: selector(&instance(STORE, name)),
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
            template: pod_template(request, labels),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

fn pod_template(request: &StoreRequest, labels: &Labels) -> PodTemplateSpec {
    let StoreRequest { service, owner, .. } = request;
    let pod = service.spec.pod.clone().unwrap_or_default();
    let empty = service.spec.storage.is_none().then(|| Volume {
        name: DATA_VOLUME.into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(owner.labels(labels)), ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // The meter reads the store's /proc.
            share_process_namespace: Some(true),
            security_context: Some(security::pod()),
            termination_grace_period_seconds: Some(10),
            init_containers: Some(vec![meter(request)]),
            containers: vec![store(request)],
            volumes: empty.map(|volume| vec![volume]),
            node_selector: (!pod.node_selector.is_empty()).then_some(pod.node_selector),
            tolerations: (!pod.tolerations.is_empty()).then_some(pod.tolerations),
            affinity: pod.affinity,
            ..PodSpec::default()
        }),
    }
}

fn store(request: &StoreRequest) -> Container {
    let service = request.service;
    let engine = service.engine;
    let process = process(service, request.name, &request.owner.namespace);
    let mut env = vec![EnvVar {
        name: "POD_NAME".into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "metadata.name".into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }];
    env.extend(service.spec.env.iter().cloned());
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.into()),
        container_port: i32::from(port),
        ..ContainerPort::default()
    };
    let ports: Vec<_> = engine.ports.iter().map(|one| port(one.name, one.number)).collect();
    Container {
        name: STORE_CONTAINER.into(),
        image: Some(service.image.clone()),
        command: Some(vec![process.binary.into()]),
        args: Some(process.arguments),
        env: Some(env),
        ports: Some(ports),
        resources: service.spec.resources.clone(),
        security_context: Some(security::container()),
        // The last words of a store that dies explain more than its exit code.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        working_dir: Some(DATA_DIRECTORY.into()),
        volume_mounts: Some(vec![data_mount(false)]),
        ..Container::default()
    }
}

/// The sidecar that measures: it starts before the store, so that it sees the store start.
fn meter(request: &StoreRequest) -> Container {
    let engine = request.service.engine;
    let arguments = [
        format!("--protocol={}", engine.protocol),
        format!("--store=127.0.0.1:{}", engine.client_port()),
        format!("--data={DATA_DIRECTORY}"),
        format!("--listen=0.0.0.0:{METER_PORT}"),
    ];
    Container {
        name: METER_CONTAINER.into(),
        image: Some(request.images.bench_job.clone()),
        command: Some(vec!["store-meter".into()]),
        args: Some(arguments.into()),
        // What makes an init container a sidecar.
        restart_policy: Some("Always".into()),
        ports: Some(vec![ContainerPort {
            name: Some(METER_PORT_NAME.into()),
            container_port: i32::from(METER_PORT),
            ..ContainerPort::default()
        }]),
        // A store is ready when it answers its own protocol, which the meter asks.
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".into()),
                port: IntOrString::Int(i32::from(METER_PORT)),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            timeout_seconds: Some(2),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu", "5m"), ("memory", "8Mi")]
                    .map(|(name, value)| (name.to_owned(), Quantity(value.into())))
                    .into(),
            ),
            limits: Some([("memory".to_owned(), Quantity("64Mi".into()))].into()),
            ..ResourceRequirements::default()
        }),
        security_context: Some(security::container()),
        volume_mounts: Some(vec![data_mount(true)]),
        ..Container::default()
    }
}

fn data_mount(read_only: bool) -> VolumeMount {
    VolumeMount {
        name: DATA_VOLUME.into(),
        mount_path: DATA_DIRECTORY.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn headless_service(request: &StoreRequest, labels: &Labels) -> Service {
    let engine = request.service.engine;
    let port = |name: &str, port: u16| ServicePort {
        name: Some(name.into()),
        port: i32::from(port),
        ..ServicePort::default()
    };
    let ports: Vec<_> = engine.ports.iter().map(|one| port(one.name, one.number)).collect();
    Service {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some(instance(STORE, request.name)),
            // Members must find one another before any of them is ready.
            publish_not_ready_addresses: Some(true),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn network_policy(request: &StoreRequest, labels: &Labels) -> NetworkPolicy {
    let engine = request.service.engine;
    let operator = namespace(request.operator_namespace);
    let load = pods(&label(COMPONENT_LABEL, LOAD));
    let clients = NetworkPolicyIngressRule {
        from: Some(vec![load.clone(), pods(&label(CLIENT_LABEL, "true"))]),
        ports: Some(vec![tcp(engine.client_port())]),
    };
    let meters = NetworkPolicyIngressRule { from: Some(vec![load, operator]), ports: Some(vec![tcp(METER_PORT)]) };
    let peers = engine.port(PEER).map(|peer| NetworkPolicyIngressRule {
        from: Some(vec![pods(&instance(STORE, request.name))]),
        ports: Some(vec![tcp(peer), tcp(engine.client_port())]),
    });
    NetworkPolicy {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(&instance(STORE, request.name))),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some([Some(clients), Some(meters), peers].into_iter().flatten().collect()),
            ..NetworkPolicySpec::default()
        }),
    }
}

fn disruption_budget(request: &StoreRequest, labels: &Labels) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(&instance(STORE, request.name))),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
