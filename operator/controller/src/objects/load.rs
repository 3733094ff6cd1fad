//! The load of one trial of an arm: an Indexed Job whose pods may reach the store and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, ResourceRequirements, SecretVolumeSource,
    Service, ServicePort, ServiceSpec, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use storebench_core::placement;
use storebench_crds::job::JobSpec as LoadSpec;

use super::control_plane::KUBECONFIG_KEY;
use super::network::{dns, pods, tcp};
use super::store::{BesideLoad, SHARED_DIRECTORY, strike_variable};
use super::{
    COMPANION, CONTROL_PLANE, LOAD, Labels, Owner, Place, STORE, credentials, instance, pinning, pod_metadata,
    pull_secrets, security, selector, share,
};
use crate::settings::Settings;

/// The container that makes load.
pub const LOAD_CONTAINER: &str = "load";
/// When the operator made the Job, RFC 3339 with milliseconds, which the API's own timestamps lack.
pub const STARTED_ANNOTATION: &str = "storebench.dev/started-at";
/// Where a load shows its live figures (`manifests/monitoring`).
pub(super) const METRICS_PORT: u16 = 9464;
/// Its name, by which it is found: a store beside the load may have a port that is called `metrics`.
const METRICS_PORT_NAME: &str = "load-metrics";
/// Where load pods agree on a common start.
const BARRIER_PORT: u16 = 9466;
const KUBECONFIG_DIRECTORY: &str = "/kubeconfig";

/// Every object of a trial's load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadObjects {
    /// The load pods.
    pub job: Job,
    /// Names of the load pods among themselves; only with several.
    pub service: Option<Service>,
    /// What they may reach.
    pub network_policy: NetworkPolicy,
    /// What is written for a store beside the load before it starts.
    pub files: Option<ConfigMap>,
}

/// What a trial's load is built from.
#[derive(Debug)]
pub struct LoadRequest<'a> {
    /// What to do.
    pub spec: LoadSpec,
    /// The trial's name.
    pub name: &'a str,
    /// Who owns the objects.
    pub owner: &'a Owner,
    /// Further labels.
    pub labels: &'a Labels,
    /// The Secret that says where and as whom the Kubernetes API is reached, which is loaded. Absent: a store is.
    pub kubeconfig: Option<String>,
    /// The labels of the service and the control plane that are themselves loaded. None: the trial has its own.
    pub shared: Vec<Labels>,
    /// Whether it has members of its store struck by their meters, to which it shows the trial's token.
    pub is_struck: bool,
    /// The ports of a cluster or store that was there already, which may be anywhere.
    pub outside_ports: Vec<u16>,
    /// Whether the Secret for TLS to a store that was there already has a certificate to show.
    pub shows_certificate: bool,
    /// The store, where it runs beside the load.
    pub beside: Option<BesideLoad>,
    /// How long the load may take, seconds.
    pub deadline_seconds: i64,
    /// Now, RFC 3339.
    pub started_at: &'a str,
    /// Images and limits.
    pub settings: &'a Settings,
    /// Where its pods are to stay.
    pub place: &'a Place,
}

/// Builds a trial's load. Fails only where the job cannot be written as JSON, which no validated run causes.
pub fn build(request: LoadRequest) -> Result<LoadObjects, serde_json::Error> {
    let mut labels = instance(LOAD, request.name);
    labels.extend(request.labels.clone());
    let mut spec = request.spec.clone();
    if request.beside.is_some() {
        spec.shared_directory = Some(SHARED_DIRECTORY.into());
    }
    spec.meters_strike = request.is_struck;
    spec.kubeconfig = request.kubeconfig.as_ref().map(|_| format!("{KUBECONFIG_DIRECTORY}/{KUBECONFIG_KEY}"));
    if spec.processes > 1 {
        let LoadRequest { name, owner, .. } = &request;
        spec.barrier = Some(format!("{name}-0.{name}-load.{}.svc:{BARRIER_PORT}", owner.namespace));
    }
    let credentials =
        spec.external.as_mut().and_then(|external| credentials::mount(external, request.shows_certificate));
    Ok(LoadObjects {
        service: (spec.processes > 1).then(|| service(&request, &labels)),
        network_policy: network_policy(&request, &labels),
        job: job(&request, &labels, &serde_json::to_string(&spec)?, spec.processes.cast_signed(), credentials),
        files: request.beside.and_then(|beside| beside.files),
    })
}

fn job(
    request: &LoadRequest,
    labels: &Labels,
    spec: &str,
    pods: i32,
    credentials: Option<(Volume, VolumeMount)>,
) -> Job {
    let mut metadata = request.owner.metadata(request.name, labels);
    metadata.annotations = Some([(STARTED_ANNOTATION.to_owned(), request.started_at.to_owned())].into());
    Job {
        metadata,
        spec: Some(JobSpec {
            // A repeated load would be measured on what the first one left.
            backoff_limit: Some(0),
            completion_mode: Some("Indexed".into()),
            completions: Some(pods),
            parallelism: Some(pods),
            active_deadline_seconds: Some(request.deadline_seconds),
            template: pod_template(request, labels, spec, pods, credentials),
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn pod_template(
    request: &LoadRequest,
    labels: &Labels,
    spec: &str,
    pods: i32,
    credentials: Option<(Volume, VolumeMount)>,
) -> PodTemplateSpec {
    let LoadRequest { name, owner, settings, .. } = request;
    let variable = |name: &str, value: String| EnvVar { name: name.into(), value: Some(value), ..EnvVar::default() };
    let quantity = |value: &str| Quantity(value.to_owned());
    let kubeconfig_mount = request.kubeconfig.as_ref().map(|_| VolumeMount {
        name: KUBECONFIG_KEY.into(),
        mount_path: KUBECONFIG_DIRECTORY.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    let beside = request.beside.as_ref();
    let (credentials, credentials_mount) = credentials.unzip();
    let mounts = kubeconfig_mount.into_iter().chain(beside.map(|beside| beside.mount.clone()));
    let mounts: Vec<_> = mounts.chain(credentials_mount).collect();
    let container = Container {
        name: LOAD_CONTAINER.into(),
        image: Some(settings.images.bench_job.clone()),
        command: Some(vec!["bench-job".into()]),
        env: Some(
            [
                Some(variable("BENCH_JOB_JSON", spec.into())),
                Some(variable("BENCH_JOB_METRICS_LISTEN", format!("0.0.0.0:{METRICS_PORT}"))),
                request.is_struck.then(|| strike_variable("BENCH_JOB_STRIKE_TOKEN", name)),
            ]
            .into_iter()
            .flatten()
            .collect(),
        ),
        ports: Some(vec![ContainerPort {
            name: Some(METRICS_PORT_NAME.into()),
            container_port: i32::from(METRICS_PORT),
            ..ContainerPort::default()
        }]),
        // No limit on processor time: a throttled loader measures itself.
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu".to_owned(), quantity(share::POD_CPU)), ("memory".to_owned(), quantity("32Mi"))].into(),
            ),
            limits: Some([("memory".to_owned(), quantity(&settings.load_memory_limit))].into()),
            ..ResourceRequirements::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(security::container()),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..Container::default()
    };
    let kubeconfig = request.kubeconfig.as_ref().map(|name| Volume {
        name: KUBECONFIG_KEY.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name.clone()),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    let volumes = kubeconfig.into_iter().chain(beside.into_iter().flat_map(|beside| beside.volumes.clone()));
    let volumes: Vec<_> = volumes.chain(credentials).collect();
    PodTemplateSpec {
        metadata: Some(pod_metadata(owner.labels(labels))),
        spec: Some(PodSpec {
            image_pull_secrets: pull_secrets(&settings.images),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some("Never".into()),
            security_context: Some(security::pod()),
            subdomain: (pods > 1).then(|| format!("{name}-load")),
            topology_spread_constraints: (pods > 1).then(|| {
                vec![TopologySpreadConstraint {
                    max_skew: 1,
                    topology_key: "kubernetes.io/hostname".into(),
                    when_unsatisfiable: "ScheduleAnyway".into(),
                    label_selector: Some(selector(&owner.labels(&instance(LOAD, name)))),
                    ..TopologySpreadConstraint::default()
                }]
            }),
            node_selector: request.place.node_selector(BTreeMap::new()),
            tolerations: request.place.tolerations(Vec::new()),
            affinity: pinning::affinity(None, request.place.nodes(placement::LOAD)),
            // The meter of a store beside the load reads its /proc.
            share_process_namespace: beside.map(|_| true),
            init_containers: beside.map(|beside| beside.sidecars.clone()),
            containers: vec![container],
            volumes: (!volumes.is_empty()).then_some(volumes),
            ..PodSpec::default()
        }),
    }
}

fn service(request: &LoadRequest, labels: &Labels) -> Service {
    Service {
        metadata: request.owner.metadata(&format!("{}-load", request.name), labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            selector: Some(request.owner.labels(&instance(LOAD, request.name))),
            publish_not_ready_addresses: Some(true),
            ports: Some(vec![ServicePort {
                name: Some("barrier".into()),
                port: i32::from(BARRIER_PORT),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The load may reach its store and the companions of that, its hosted control plane, its own pods and DNS: not the API server, not the rest of
/// the cluster, but for the ports of what was there already.
fn network_policy(request: &LoadRequest, labels: &Labels) -> NetworkPolicy {
    let of_trial = |component| request.owner.labels(&instance(component, request.name));
    let own = pods(&of_trial(LOAD));
    let met = match request.shared.as_slice() {
        [] => [STORE, COMPANION, CONTROL_PLANE].map(|component| pods(&of_trial(component))).into(),
        shared => shared.iter().map(pods).collect::<Vec<_>>(),
    };
    NetworkPolicy {
        metadata: request.owner.metadata(&format!("{}-load", request.name), labels),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(&of_trial(LOAD))),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![
                NetworkPolicyIngressRule { from: Some(vec![own.clone()]), ports: Some(vec![tcp(BARRIER_PORT)]) },
                NetworkPolicyIngressRule { from: None, ports: Some(vec![tcp(METRICS_PORT)]) },
            ]),
            egress: Some(
                [
                    Some(NetworkPolicyEgressRule { to: Some(met.into_iter().chain([own]).collect()), ports: None }),
                    (!request.outside_ports.is_empty()).then(|| NetworkPolicyEgressRule {
                        to: None,
                        ports: Some(request.outside_ports.iter().copied().map(tcp).collect()),
                    }),
                    Some(dns()),
                ]
                .into_iter()
                .flatten()
                .collect(),
            ),
        }),
    }
}
