//! A control plane: what a ControlPlane becomes, and what every trial with `isolation: Fresh` gets for itself.
//!
//! One pod, whose containers are the same for every arm but for the store's address. The API server is a native sidecar with
//! a start-up probe, so that controller manager, scheduler and kwok begin when it serves. Beside them stands the meter, which
//! creates the simulated nodes; the pod is ready when all nodes take pods.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector, PodSpec,
    PodTemplateSpec, Probe, ResourceRequirements, Secret, SecretVolumeSource, Service, ServicePort, ServiceSpec,
    Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rcgen::KeyPair;
use storebench_core::control_plane::{
    ControlPlanePlan, Placement, Process, ValidatedControlPlane, Validity, files, plan,
};

use storebench_core::placement;

use super::network::{dns, label, load, namespace, pods, tcp};
use super::store::METER_PORT;
use super::{
    CLIENT_LABEL, CONTROL_PLANE, Labels, Owner, Place, SERVICE_LABEL, STORE, instance, names, pinning, pod_metadata,
    pull_secrets, security, selector, share, store,
};
use crate::settings::Images;

/// The port of the API server.
pub const PORT: u16 = 6443;
/// The key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// The container that is the API server: a process of the plan, by its executable.
pub const API_SERVER_CONTAINER: &str = "kube-apiserver";
const METER_CONTAINER: &str = "meter";
const FILES_VOLUME: &str = "files";
const FILES_DIRECTORY: &str = "/control-plane";
const SCRATCH_VOLUME: &str = "scratch";
const SCRATCH_DIRECTORY: &str = "/scratch";
/// Nothing rotates the certificates, and no cluster of this kind lives so long.
const VALID_FOR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Clocks of nodes may differ by so much.
const VALID_BEFORE: Duration = Duration::from_secs(3600);

/// Every object of a control plane but its two Secrets; see [`secret`] and [`kubeconfig`].
#[derive(Clone, Debug, PartialEq)]
pub struct ControlPlaneObjects {
    /// The pod.
    pub stateful_set: StatefulSet,
    /// Its name.
    pub service: Service,
    /// Who may connect, and to what it may.
    pub network_policy: NetworkPolicy,
}

/// What a control plane is built from.
#[derive(Clone, Debug)]
pub struct ControlPlaneRequest<'a> {
    /// What to deploy.
    pub control_plane: &'a ValidatedControlPlane,
    /// The name of all its objects; see [`names::control_plane`].
    pub name: &'a str,
    /// The name of the objects of its store.
    pub store: &'a str,
    /// The value of the instance label: what store and load of the same trial have.
    pub instance: &'a str,
    /// Who owns the objects.
    pub owner: &'a Owner,
    /// Further labels.
    pub labels: &'a Labels,
    /// Where the operator runs, which may ask the meter.
    pub operator_namespace: &'a str,
    /// Where images are.
    pub images: &'a Images,
    /// Where its pod is to stay.
    pub place: &'a Place,
}

/// The address of a control plane of this name, `host:port`.
pub fn address(name: &str, namespace: &str) -> String {
    format!("{name}.{namespace}.svc:{PORT}")
}

/// The name of the pod of a control plane of this name.
pub fn member(name: &str) -> String {
    format!("{name}-0")
}

/// Builds a control plane.
pub fn build(request: &ControlPlaneRequest) -> ControlPlaneObjects {
    let labels = labels(request);
    ControlPlaneObjects {
        stateful_set: stateful_set(request, &labels),
        service: service(request, &labels),
        network_policy: network_policy(request, &labels),
    }
}

/// New keys, certificates and kubeconfigs for the processes. To be created once: they do not fit those of another time.
pub fn secret(request: &ControlPlaneRequest, now: SystemTime) -> Result<Secret, rcgen::Error> {
    let validity = Validity { from: now - VALID_BEFORE, until: now + VALID_FOR };
    let made = files(&planned(request), validity, KeyPair::generate)?;
    let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Secret {
        metadata: request.owner.metadata(request.name, &labels(request)),
        string_data: Some(made.into_iter().map(|(path, text)| (name(path), text)).collect()),
        immutable: Some(true),
        ..Secret::default()
    })
}

/// The Secret for whoever uses the control plane, from the one for its processes as the API server has it. `None`: that one
/// is not what [`secret`] made.
pub fn kubeconfig(request: &ControlPlaneRequest, files: &Secret) -> Option<Secret> {
    let administrator = planned(request).administrator;
    let administrator = files.data.as_ref()?.get(administrator.rsplit('/').next()?)?;
    Some(Secret {
        metadata: request.owner.metadata(&names::kubeconfig(request.name), &labels(request)),
        data: Some([(KUBECONFIG_KEY.to_owned(), administrator.clone())].into()),
        ..Secret::default()
    })
}

fn labels(request: &ControlPlaneRequest) -> Labels {
    let mut labels = instance(CONTROL_PLANE, request.instance);
    labels.extend(request.labels.clone());
    labels.insert("app.kubernetes.io/name".into(), "kubernetes".into());
    if !request.owner.is_run() {
        // The store of a StorageService lets it in. A trial's own knows it by the trial.
        labels.insert(CLIENT_LABEL.into(), "true".into());
    }
    labels
}

fn planned(request: &ControlPlaneRequest) -> ControlPlanePlan {
    let ControlPlaneRequest { control_plane, owner, .. } = request;
    let service = &control_plane.service;
    let member =
        |member: String| format!("{member}.{}.{}.svc:{}", request.store, owner.namespace, service.engine.client_port());
    plan(&Placement {
        bind: "0.0.0.0".into(),
        advertise: "$(POD_IP)".into(),
        host: format!("{}.{}.svc", request.name, owner.namespace),
        port: PORT,
        directory: FILES_DIRECTORY.into(),
        scratch: SCRATCH_DIRECTORY.into(),
        store: store::members(service, request.store).into_iter().map(member).collect(),
    })
}

fn stateful_set(request: &ControlPlaneRequest, labels: &Labels) -> StatefulSet {
    StatefulSet {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some(request.name.into()),
            selector: selector(&instance(CONTROL_PLANE, request.instance)),
            template: pod_template(request, labels),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

fn pod_template(request: &ControlPlaneRequest, labels: &Labels) -> PodTemplateSpec {
    let owner = request.owner;
    let pod = request.control_plane.service.spec.pod.clone().unwrap_or_default();
    let plan = planned(request);
    PodTemplateSpec {
        metadata: Some(pod_metadata(owner.labels(labels))),
        spec: Some(PodSpec {
            image_pull_secrets: pull_secrets(request.images),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // The meter reads the others' /proc.
            share_process_namespace: Some(true),
            security_context: Some(security::pod()),
            termination_grace_period_seconds: Some(5),
            init_containers: Some(vec![meter(request, &plan), api_server(request, &plan.api_server)]),
            containers: plan.others.iter().map(|process| container(request, process)).collect(),
            volumes: Some(vec![
                Volume {
                    name: FILES_VOLUME.into(),
                    secret: Some(SecretVolumeSource {
                        secret_name: Some(request.name.into()),
                        default_mode: Some(0o440),
                        ..SecretVolumeSource::default()
                    }),
                    ..Volume::default()
                },
                Volume {
                    name: SCRATCH_VOLUME.into(),
                    empty_dir: Some(EmptyDirVolumeSource::default()),
                    ..Volume::default()
                },
            ]),
            // Where the store may be, so may what is measured with it.
            node_selector: request.place.node_selector(pod.node_selector),
            tolerations: request.place.tolerations(pod.tolerations),
            affinity: pinning::affinity(pod.affinity, request.place.nodes(placement::CONTROL_PLANE)),
            ..PodSpec::default()
        }),
    }
}

/// A process of the plan. No limits: a throttled API server would measure itself.
fn container(request: &ControlPlaneRequest, process: &Process) -> Container {
    let literal = |(name, value): &(String, String)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        ..EnvVar::default()
    };
    Container {
        name: process.binary.into(),
        image: Some(request.control_plane.image(&request.images.kubernetes_registry, process.binary)),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(vec![process.binary.into()]),
        args: Some(process.arguments.clone()),
        env: Some(process.environment.iter().map(literal).collect()),
        resources: requests(share::OTHER_PROCESS_CPU, "32Mi"),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(security::container()),
        volume_mounts: Some(vec![mount(FILES_VOLUME, FILES_DIRECTORY), mount(SCRATCH_VOLUME, SCRATCH_DIRECTORY)]),
        ..Container::default()
    }
}

/// The API server: a sidecar, since the others would give up without it.
fn api_server(request: &ControlPlaneRequest, process: &Process) -> Container {
    let mut container = container(request, process);
    container.env.get_or_insert_default().push(EnvVar {
        name: "POD_IP".into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "status.podIP".into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
    Container {
        restart_policy: Some("Always".into()),
        resources: requests(share::API_SERVER_CPU, "128Mi"),
        ports: Some(vec![port("api", PORT)]),
        startup_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".into()),
                port: IntOrString::Int(i32::from(PORT)),
                scheme: Some("HTTPS".into()),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            timeout_seconds: Some(5),
            failure_threshold: Some(120),
            ..Probe::default()
        }),
        ..container
    }
}

/// The sidecar that creates nodes and measures.
fn meter(request: &ControlPlaneRequest, plan: &ControlPlanePlan) -> Container {
    // Its own kubeconfig would be the administrator's but for the address: on loopback, it is that of kwok.
    let kubeconfig = plan.kubeconfigs.iter().find(|kubeconfig| kubeconfig.user == "kwok");
    let kubeconfig = kubeconfig.map_or(&plan.administrator, |kubeconfig| &kubeconfig.path);
    Container {
        name: METER_CONTAINER.into(),
        image: Some(request.images.bench_job.clone()),
        command: Some(vec!["control-plane-meter".into()]),
        args: Some(vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--nodes={}", request.control_plane.nodes),
            format!("--listen=0.0.0.0:{METER_PORT}"),
        ]),
        // What makes an init container a sidecar.
        restart_policy: Some("Always".into()),
        ports: Some(vec![port("meter", METER_PORT)]),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".into()),
                port: IntOrString::Int(i32::from(METER_PORT)),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            timeout_seconds: Some(6),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
        resources: requests(share::METER_CPU, "16Mi"),
        security_context: Some(security::container()),
        volume_mounts: Some(vec![mount(FILES_VOLUME, FILES_DIRECTORY)]),
        ..Container::default()
    }
}

fn requests(cpu: &str, memory: &str) -> Option<ResourceRequirements> {
    let requests = [("cpu", cpu), ("memory", memory)].map(|(name, value)| (name.to_owned(), Quantity(value.into())));
    Some(ResourceRequirements { requests: Some(requests.into()), ..ResourceRequirements::default() })
}

fn port(name: &str, port: u16) -> ContainerPort {
    ContainerPort { name: Some(name.into()), container_port: i32::from(port), ..ContainerPort::default() }
}

fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        read_only: (volume == FILES_VOLUME).then_some(true),
        ..VolumeMount::default()
    }
}

fn service(request: &ControlPlaneRequest, labels: &Labels) -> Service {
    Service {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(ServiceSpec {
            // The pod itself: what forwards to it would be measured, too.
            cluster_ip: Some("None".into()),
            selector: Some(own(request)),
            publish_not_ready_addresses: Some(true),
            ports: Some(vec![ServicePort {
                name: Some("api".into()),
                port: i32::from(PORT),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// By what all but the StatefulSet selects the pod; see [`Owner::labels`].
fn own(request: &ControlPlaneRequest) -> Labels {
    request.owner.labels(&instance(CONTROL_PLANE, request.instance))
}

/// Load may reach the API server and the meter, the operator the meter, and clients the API server of one that stands by itself; the control plane
/// reaches its store and DNS.
fn network_policy(request: &ControlPlaneRequest, labels: &Labels) -> NetworkPolicy {
    let ControlPlaneRequest { control_plane, owner, .. } = request;
    let load = load(owner, request.instance);
    let clients = (!owner.is_run()).then(|| pods(&label(CLIENT_LABEL, "true")));
    let store = instance(STORE, request.store);
    let store = match owner.is_run() {
        true => owner.labels(&store),
        false => label(SERVICE_LABEL, &control_plane.service.name).into_iter().chain(store).collect(),
    };
    NetworkPolicy {
        metadata: request.owner.metadata(request.name, labels),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(&own(request))),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![
                NetworkPolicyIngressRule {
                    from: Some([load.clone()].into_iter().chain(clients).collect()),
                    ports: Some(vec![tcp(PORT)]),
                },
                NetworkPolicyIngressRule {
                    from: Some(vec![load, namespace(request.operator_namespace)]),
                    ports: Some(vec![tcp(METER_PORT)]),
                },
            ]),
            egress: Some(vec![
                NetworkPolicyEgressRule {
                    to: Some(vec![pods(&store)]),
                    ports: Some(vec![tcp(control_plane.service.engine.client_port())]),
                },
                dns(),
            ]),
        }),
    }
}
