//! The containers of one role of a store: its process and the meter beside it, with their volumes. They are the same in a
//! pod of their own ([`super::store`]) and beside the load ([`super::load`]).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    EphemeralVolumeSource, HTTPGetAction, ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimTemplate, Probe, ResourceRequirements, Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use storebench_core::engine::{self, Engine, Member, Placement, ProcessPlan, Readiness, Role, RolePlan, ServicePlan};
use storebench_core::validate::ValidatedService;
use storebench_crds::meter::Syncs;
use storebench_crds::storage_service::Storage;

use super::{names, security, share};
use crate::settings::Images;

/// The port of the sidecar that measures the store.
pub const METER_PORT: u16 = 9465;
/// The container that is the store.
pub const STORE_CONTAINER: &str = "store";
/// Where store and load find the files that both work on.
pub const SHARED_DIRECTORY: &str = "/shared";
/// Where a store beside the load finds the load's fault proxy.
pub const FAULT_PROXY: &str = "127.0.0.1:9467";
const METER_CONTAINER: &str = "meter";
const METER_PORT_NAME: &str = "meter";
const DATA_VOLUME: &str = "data";
const DATA_DIRECTORY: &str = "/data";
const FILES_VOLUME: &str = "files";
const FILES_DIRECTORY: &str = "/files";
/// Where `kind/scratch-image` puts what an engine's row lists.
const PROGRAMS_DIRECTORY: &str = "/usr/local/bin";
const SHARED_VOLUME: &str = "shared";
/// How long the load may wait for a store beside it, seconds.
const START_SECONDS_MAX: i32 = 90;

/// The plan of a service whose objects have this name.
/// `has_fault_proxy`: it reaches its object store through the load beside it.
pub(super) fn plan<'a>(
    service: &'a ValidatedService,
    name: &str,
    namespace: &str,
    has_fault_proxy: bool,
) -> ServicePlan<'a> {
    let roles = engine::roles(service);
    let placement = Placement {
        roles: roles.iter().map(|role| (role.name, members(role, name, namespace))).collect(),
        shared_directory: service.engine.shares_directory.then(|| SHARED_DIRECTORY.into()),
        fault_proxy: has_fault_proxy.then(|| FAULT_PROXY.into()),
    };
    let plan = engine::plan(service, &placement);
    // One command line serves all members: what a member is told of itself are references to its own pod.
    for planned in &plan.roles {
        debug_assert!(planned.processes.windows(2).all(|pair| pair[0].arguments == pair[1].arguments));
    }
    plan
}

/// Names of the pods of a role, in order. None where it runs beside the load.
pub(super) fn pods(role: &Role, name: &str) -> Vec<String> {
    let name = objects(role, name);
    let count = if role.is_beside_load { 0 } else { role.service.replicas };
    (0..count).map(|ordinal| format!("{name}-{ordinal}")).collect()
}

/// The name of the objects of a role.
pub(super) fn objects(role: &Role, name: &str) -> String {
    if role.is_store() { name.into() } else { names::companion(name, role.name) }
}

fn members(role: &Role, name: &str, namespace: &str) -> Vec<Member> {
    let domain = format!("{}.{namespace}.svc", objects(role, name));
    let member = |name: String, host: String, own_host: String| Member {
        name,
        host,
        own_name: "$(POD_NAME)".into(),
        own_host,
        bind: "0.0.0.0".into(),
        ports: role.service.engine.ports.iter().map(|port| (port.name, port.number)).collect(),
        data_directory: DATA_DIRECTORY.into(),
        files_directory: FILES_DIRECTORY.into(),
        programs_directory: PROGRAMS_DIRECTORY.into(),
    };
    if role.is_beside_load {
        let local = || "127.0.0.1".to_owned();
        return vec![member(role.service.name.clone(), local(), local())];
    }
    let pods = pods(role, name).into_iter();
    pods.map(|pod| member(pod.clone(), format!("{pod}.{domain}"), format!("$(POD_NAME).{domain}"))).collect()
}

/// What the files of a role are kept in; `None` where it has none.
pub(super) fn files(planned: &RolePlan, metadata: ObjectMeta) -> Option<ConfigMap> {
    let files = &planned.processes.first()?.files;
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let data: BTreeMap<String, String> = files.iter().map(|(path, text)| (name(path), text.clone())).collect();
    debug_assert!(files.iter().all(|(path, _)| *path == format!("{FILES_DIRECTORY}/{}", name(path))));
    (!data.is_empty()).then(|| ConfigMap { metadata, data: Some(data), ..ConfigMap::default() })
}

/// The claim for a member's data; `None`: the data are gone with the pod.
pub(super) fn claim(service: &ValidatedService, metadata: ObjectMeta) -> Option<PersistentVolumeClaim> {
    let storage = service.spec.storage.as_ref()?;
    let metadata = ObjectMeta { name: Some(DATA_VOLUME.into()), ..metadata };
    Some(PersistentVolumeClaim { metadata, spec: Some(claim_spec(storage)), ..PersistentVolumeClaim::default() })
}

fn claim_spec(storage: &Storage) -> PersistentVolumeClaimSpec {
    PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".into()]),
        storage_class_name: storage.storage_class_name.clone(),
        resources: Some(VolumeResourceRequirements {
            requests: Some([("storage".to_owned(), Quantity(storage.size.clone()))].into()),
            ..VolumeResourceRequirements::default()
        }),
        ..PersistentVolumeClaimSpec::default()
    }
}

/// The volumes of a pod of its own, besides the claim. `files` is the name of what [`files`] made.
pub(super) fn volumes(planned: &RolePlan, files: Option<&str>) -> Vec<Volume> {
    let data = planned.role.service.spec.storage.is_none().then(|| empty(DATA_VOLUME));
    data.into_iter().chain(files.map(files_volume)).collect()
}

/// The volumes of a store that runs beside the load.
pub(super) fn volumes_beside_load(planned: &RolePlan, files: Option<&str>) -> Vec<Volume> {
    let data = match &planned.role.service.spec.storage {
        None => empty(DATA_VOLUME),
        Some(storage) => Volume {
            name: DATA_VOLUME.into(),
            ephemeral: Some(EphemeralVolumeSource {
                volume_claim_template: Some(PersistentVolumeClaimTemplate {
                    metadata: None,
                    spec: claim_spec(storage),
                }),
            }),
            ..Volume::default()
        },
    };
    [data, empty(SHARED_VOLUME)].into_iter().chain(files.map(files_volume)).collect()
}

fn empty(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn files_volume(name: &str) -> Volume {
    Volume {
        name: FILES_VOLUME.into(),
        config_map: Some(ConfigMapVolumeSource { name: name.into(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    }
}

/// Where the load finds the files that it shares with the store.
pub(super) fn shared_mount() -> VolumeMount {
    VolumeMount { name: SHARED_VOLUME.into(), mount_path: SHARED_DIRECTORY.into(), ..VolumeMount::default() }
}

/// The container of a role's process.
pub(super) fn process(planned: &RolePlan, process: &ProcessPlan, images: &Images) -> Container {
    let service = planned.role.service;
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
    // What the user wrote may refer to Secrets, of which the plan knows nothing.
    let of_user = |name: &String| service.spec.env.iter().any(|variable| variable.name == *name);
    let planned_env = process.environment.iter().filter(|(name, _)| !of_user(name));
    env.extend(planned_env.map(|(name, value)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        ..EnvVar::default()
    }));
    env.extend(service.spec.env.iter().cloned());
    let port = |(name, port): (&&str, &u16)| ContainerPort {
        name: Some((*name).into()),
        container_port: i32::from(*port),
        ..ContainerPort::default()
    };
    Container {
        name: STORE_CONTAINER.into(),
        image: Some(images.of_store(service)),
        command: Some(vec![command(process.binary)]),
        args: Some(process.arguments.clone()),
        env: Some(env),
        ports: Some(process.ports.iter().map(port).collect()),
        resources: Some(share::of_store(service.spec.resources.clone())),
        security_context: Some(security::container()),
        // The last words of a store that dies explain more than its exit code.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        working_dir: Some(DATA_DIRECTORY.into()),
        volume_mounts: Some(mounts(planned, process)),
        ..Container::default()
    }
}

/// An executable is found by its name; one in a folder of its own by its path.
fn command(binary: &str) -> String {
    if binary.contains('/') { format!("{PROGRAMS_DIRECTORY}/{binary}") } else { binary.into() }
}

fn mounts(planned: &RolePlan, process: &ProcessPlan) -> Vec<VolumeMount> {
    let mut mounts = vec![data_mount(false)];
    // The kubelet makes what it mounts, which is how a directory comes to be in a volume without anybody's shell.
    let directories = process.directories.iter().filter_map(|path| path.strip_prefix(DATA_DIRECTORY));
    mounts.extend(directories.map(|below| VolumeMount {
        mount_path: format!("{DATA_DIRECTORY}{below}"),
        sub_path: Some(below.trim_start_matches('/').into()),
        ..data_mount(false)
    }));
    if !process.files.is_empty() {
        mounts.push(VolumeMount {
            name: FILES_VOLUME.into(),
            mount_path: FILES_DIRECTORY.into(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
    if planned.role.is_beside_load {
        mounts.push(shared_mount());
    }
    mounts
}

fn data_mount(read_only: bool) -> VolumeMount {
    VolumeMount {
        name: DATA_VOLUME.into(),
        mount_path: DATA_DIRECTORY.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A store as a sidecar of the load: it starts after its meter and answers before the load starts.
pub(super) fn beside_load(store: Container) -> Container {
    Container {
        restart_policy: Some("Always".into()),
        startup_probe: Some(Probe { failure_threshold: Some(START_SECONDS_MAX), ..readiness_probe() }),
        ..store
    }
}

/// The sidecar that measures: it starts before the store, so that it sees the store start.
pub(super) fn meter(planned: &RolePlan, images: &Images) -> Container {
    let engine = planned.role.service.engine;
    let mut arguments = vec![
        format!("--protocol={}", engine.protocol),
        format!("--ready={}", question(engine)),
        format!("--store=127.0.0.1:{}", engine.client_port()),
        format!("--data={DATA_DIRECTORY}"),
        format!("--listen=0.0.0.0:{METER_PORT}"),
    ];
    arguments.extend(syncs(engine).map(|syncs| format!("--syncs={syncs}")));
    if planned.role.is_beside_load {
        // The load is in the same pod.
        let name = engine.binary().rsplit('/').next().unwrap_or_default();
        arguments.push(format!("--executable={name}"));
    }
    Container {
        name: METER_CONTAINER.into(),
        image: Some(images.bench_job.clone()),
        command: Some(vec!["store-meter".into()]),
        args: Some(arguments),
        // What makes an init container a sidecar.
        restart_policy: Some("Always".into()),
        ports: Some(vec![ContainerPort {
            name: Some(METER_PORT_NAME.into()),
            container_port: i32::from(METER_PORT),
            ..ContainerPort::default()
        }]),
        // A store is ready when it answers its own protocol, which the meter asks.
        readiness_probe: Some(readiness_probe()),
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu", share::METER_CPU), ("memory", "8Mi")]
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

fn readiness_probe() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/readyz".into()),
            port: IntOrString::Int(i32::from(METER_PORT)),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(1),
        timeout_seconds: Some(2),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// How the syncs of a member's disk are counted, where they are.
fn syncs(engine: &Engine) -> Option<Syncs> {
    let metrics = engine.metrics?;
    Syncs::of(&metrics, engine.port(metrics.port)?)
}

/// What the meter asks, in the words of its `--ready`.
fn question(engine: &Engine) -> String {
    let number = |port: &str| match engine.port(port) {
        Some(number) => number,
        None => unreachable!("{} has no port {port}, by which it is asked whether it is ready", engine.name),
    };
    match engine.readiness {
        Readiness::Protocol => "protocol".into(),
        Readiness::Http { port, path } => format!("http:{}{path}", number(port)),
        Readiness::Tcp { port } => format!("tcp:{}", number(port)),
        Readiness::Running => "running".into(),
    }
}
