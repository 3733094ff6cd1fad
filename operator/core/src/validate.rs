//! From objects that fit the schema to a run that can be planned: `Validated…` types, so that nothing after this step can
//! fail on what a user wrote.
//!
//! What one object can say about itself is in the schema (crate `storebench-crds`); here is what takes several objects, or
//! knowledge of engines. [`for_embedded`] adds what an embedded run cannot honour, [`for_cluster`] what one in a cluster cannot.

use std::time::Duration;

use storebench_crds::benchmark_run::{BenchmarkRun, BenchmarkRunSpec, Bound, Gate, Isolation};
use storebench_crds::document::sense_of_run;
use storebench_crds::engine::DurabilityClass;
use storebench_crds::storage_service::{Durability, StorageService, StorageServiceSpec};
use storebench_crds::workload::{Api, Parameters};
use storebench_crds::{Arm, DurationText, Load, Workload};

use crate::control_plane::ValidatedControlPlane;
use crate::engine::{self, Engine, Protocol};
use crate::equality::{Terms, differences};

/// A run that can be planned.
#[derive(Clone, Debug)]
pub struct ValidatedRun {
    /// The run's name.
    pub name: String,
    /// What was asked.
    pub spec: BenchmarkRunSpec,
    /// The arms, in the spec's order.
    pub arms: Vec<ValidatedArm>,
}

/// An arm whose service exists and fits the workloads.
#[derive(Clone, Debug)]
pub struct ValidatedArm {
    /// The arm's name.
    pub name: String,
    /// Whether the others are compared with it.
    pub baseline: bool,
    /// What is loaded.
    pub target: Target,
}

/// What an arm loads.
#[derive(Clone, Debug)]
pub enum Target {
    /// A store.
    Service(ValidatedService),
    /// Kubernetes on a store.
    ControlPlane(ValidatedControlPlane),
    /// A cluster that is there already: the name of the Secret that says how it is reached.
    Cluster(String),
}

impl ValidatedArm {
    /// The store that is loaded, or that holds the cluster that is loaded; `None` where nobody here knows it.
    pub fn service(&self) -> Option<&ValidatedService> {
        match &self.target {
            Target::Service(service) => Some(service),
            Target::ControlPlane(plane) => Some(&plane.service),
            Target::Cluster(_) => None,
        }
    }

    /// The control plane that is loaded, where it is one of ours.
    pub fn control_plane(&self) -> Option<&ValidatedControlPlane> {
        match &self.target {
            Target::ControlPlane(plane) => Some(plane),
            Target::Service(_) | Target::Cluster(_) => None,
        }
    }

    /// The name of the Secret of a cluster that is there already.
    pub fn cluster(&self) -> Option<&str> {
        match &self.target {
            Target::Cluster(secret) => Some(secret),
            Target::Service(_) | Target::ControlPlane(_) => None,
        }
    }

    /// What it can be loaded through; `None` where there is no family of workloads yet that speaks as it does.
    pub fn api(&self) -> Option<Api> {
        match &self.target {
            Target::ControlPlane(_) | Target::Cluster(_) => Some(Api::Kubernetes),
            Target::Service(service) => match service.engine.protocol {
                Protocol::Etcd => Some(Api::Etcd),
                Protocol::DEngine => Some(Api::DEngine),
                Protocol::Redis => Some(Api::Redis),
                Protocol::BlockStream => Some(Api::BlockStream),
                Protocol::S3 => None,
                Protocol::Sqlite => Some(Api::Sqlite),
            },
        }
    }
}

/// A service that its engine can deploy.
#[derive(Clone, Debug)]
pub struct ValidatedService {
    /// The service's name.
    pub name: String,
    /// Its engine.
    pub engine: &'static Engine,
    /// The version to deploy.
    pub version: String,
    /// The container image, pinned.
    pub image: String,
    /// Whether the user named that version, so that no other will do.
    pub version_is_pinned: bool,
    /// Members.
    pub replicas: u32,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How the engine honours it.
    pub durability_class: &'static DurabilityClass,
    /// Further arguments.
    pub args: Vec<String>,
    /// Further environment variables with literal values.
    pub env: Vec<(String, String)>,
    /// What it needs beside itself, by role.
    pub companions: Vec<(&'static str, ValidatedService)>,
    /// What was asked.
    pub spec: StorageServiceSpec,
}

impl ValidatedService {
    /// What a reader must know of its companions: their use of the machine is not the store's.
    pub fn companions_caveat(&self) -> Option<String> {
        let names = self.companions.iter().map(|(role, one)| format!("{role} ({} {})", one.engine.name, one.version));
        let names = names.collect::<Vec<_>>().join(", ");
        (!names.is_empty())
            .then(|| format!("beside {} runs its {names}, which is not measured as the store", self.name))
    }
}

/// A problem with an object that fits its schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} {field}: {text}")]
pub struct Problem {
    /// The object, as `Kind/name`.
    pub object: String,
    /// The field, as `spec.arms[0].serviceRef.name`.
    pub field: String,
    /// What is wrong, and the remedy, in one line.
    pub text: String,
}

/// Validates a service.
///
/// # Errors
/// The first of [`service_problems`].
pub fn service(service: &StorageService) -> Result<ValidatedService, Problem> {
    service_problems(service).map_err(|problems| problems.0)
}

/// Validates a service.
///
/// # Errors
/// All that is wrong with it: the first problem, and the others.
pub fn service_problems(service: &StorageService) -> Result<ValidatedService, (Problem, Vec<Problem>)> {
    let name = service.metadata.name.clone().unwrap_or_default();
    let problem =
        |field: &str, text: String| Problem { object: format!("StorageService/{name}"), field: field.into(), text };
    let spec = &service.spec;
    let engine = spec.engine.engine();
    let mut problems = Vec::new();
    // The schema has seen to it; a service may also come from an API server with an older schema.
    let durability_class = engine.honours(spec.durability);
    if durability_class.is_none() {
        let text = format!("{:?} cannot be honoured by {}: choose another class", spec.durability, engine.name);
        problems.push(problem("spec.durability", text));
    }
    if !engine.replicas.contains(&spec.replicas) {
        let text = format!("must be one of {:?} for {}", engine.replicas, engine.name);
        problems.push(problem("spec.replicas", text));
    }
    problems.extend(reserved(engine, spec).into_iter().map(|(field, text)| problem(&field, text)));
    let mut problems = problems.into_iter();
    let durability_class = match (problems.next(), durability_class) {
        (Some(first), _) => return Err((first, problems.collect())),
        (None, Some(class)) => class,
        (None, None) => {
            return Err((problem("spec.durability", "is not known: choose another class".into()), Vec::new()));
        }
    };
    let env = spec.env.iter().map(|variable| (variable.name.clone(), variable.value.clone().unwrap_or_default()));
    let version = spec.version.clone().unwrap_or_else(|| engine.default_version.into());
    Ok(ValidatedService {
        name: name.clone(),
        engine,
        image: spec.image.clone().unwrap_or_else(|| format!("{}:{version}", engine.image)),
        version,
        version_is_pinned: spec.version.is_some(),
        // The schema allows 1, 3 and 5.
        replicas: spec.replicas.unsigned_abs(),
        durability: spec.durability,
        durability_class,
        args: spec.args.clone(),
        env: env.collect(),
        companions: companions(engine, &name),
        spec: spec.clone(),
    })
}

/// The companions of an engine, by role: stores of their own with what their engines have by default, in the strictest
/// durability class that they honour.
pub fn companions(engine: &Engine, service: &str) -> Vec<(&'static str, ValidatedService)> {
    let validated = |role: &str, engine: &'static Engine| {
        let durability_class = &engine.durability[0];
        ValidatedService {
            name: format!("{service}-{role}"),
            engine,
            version: engine.default_version.into(),
            image: format!("{}:{}", engine.image, engine.default_version),
            version_is_pinned: false,
            replicas: 1,
            durability: durability_class.class,
            durability_class,
            args: Vec::new(),
            env: Vec::new(),
            companions: Vec::new(),
            spec: StorageServiceSpec {
                engine: engine.kind,
                version: None,
                image: None,
                replicas: 1,
                durability: durability_class.class,
                storage: None,
                resources: None,
                tls: None,
                args: Vec::new(),
                env: Vec::new(),
                pod: None,
            },
        }
    };
    let all = engine.companions.iter();
    all.map(|companion| (companion.role, validated(companion.role, companion.engine.engine()))).collect()
}

/// Arguments and variables that would take back what storebench sets, in every spelling that the servers take: one
/// dash or two, a value after `=` or a space, capitals, and the variables of those that read their flags from there. By field.
fn reserved(engine: &Engine, spec: &StorageServiceSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (index, argument) in spec.args.iter().enumerate() {
        let field = format!("spec.args[{index}]");
        if argument.contains(['\n', '\r']) {
            found.push((field, "has a line break, after which Redis would read another setting: remove it".into()));
            continue;
        }
        let flag = match engine::flag_of(engine.dialect, argument, index == 0) {
            Ok(Some(flag)) => flag,
            Ok(None) => continue,
            Err(text) => {
                found.push((field, text));
                continue;
            }
        };
        let same = |reserved: &&&str| bare(reserved).eq_ignore_ascii_case(flag);
        if let Some(reserved) = engine.reserved_flags.iter().find(same) {
            found.push((field, format!("{reserved} is set by storebench, from durability and placement: remove it")));
        }
    }
    let Some(prefix) = engine.environment_prefix else { return found };
    for (index, variable) in spec.env.iter().enumerate() {
        let same = |reserved: &&&str| {
            let name = format!("{prefix}{}", bare(reserved).replace('-', "_"));
            variable.name.eq_ignore_ascii_case(&name)
        };
        if let Some(reserved) = engine.reserved_flags.iter().find(same) {
            let text = format!("means {reserved}, which storebench sets from durability and placement: remove it");
            found.push((format!("spec.env[{index}].name"), text));
        }
    }
    found
}

fn bare(flag: &str) -> &str {
    flag.trim_start_matches('-')
}

/// The object of this name. Errors: there is none, and which there are, as many as fit a line; whoever has more knows them.
pub(crate) fn named<'a, T>(all: &'a [T], wanted: &str, kind: &str, name: fn(&T) -> &String) -> Result<&'a T, String> {
    all.iter().find(|candidate| name(candidate) == wanted).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|candidate| name(candidate).as_str()).take(5).collect();
        let known = if known.is_empty() { String::new() } else { format!(", or name one of {}", known.join(", ")) };
        format!("no {kind} is named `{wanted}`: add it{known}")
    })
}

/// What a run may refer to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Referable<'a> {
    /// The services.
    pub services: &'a [ValidatedService],
    /// The control planes.
    pub control_planes: &'a [ValidatedControlPlane],
    /// Kind and name of objects that are there, but wrong in themselves: whoever refers to one is not wrong in that.
    pub refused: &'a [(&'static str, String)],
}

impl Referable<'_> {
    /// Whether an object is there, but wrong in itself.
    pub fn is_refused(&self, kind: &str, name: &str) -> bool {
        self.refused.iter().any(|(refused, of)| *refused == kind && of == name)
    }
}

/// Validates a run against the services and control planes it may refer to.
///
/// # Errors
/// The first of [`all_problems`].
pub fn run(
    run: &BenchmarkRun,
    services: &[ValidatedService],
    control_planes: &[ValidatedControlPlane],
) -> Result<ValidatedRun, Problem> {
    let (validated, problems) = all_problems(run, &Referable { services, control_planes, refused: &[] });
    match (validated, problems.into_iter().next()) {
        (_, Some(problem)) => Err(problem),
        (Some(validated), None) => Ok(validated),
        (None, None) => Err(Problem {
            object: format!("BenchmarkRun/{}", run.metadata.name.clone().unwrap_or_default()),
            field: "spec.arms".into(),
            text: "refers to what is wrong in itself: correct that".into(),
        }),
    }
}

/// Validates a run: what can be planned, where nothing is wrong with it or with what it refers to; and everything that is.
pub fn all_problems(run: &BenchmarkRun, referable: &Referable<'_>) -> (Option<ValidatedRun>, Vec<Problem>) {
    let name = run.metadata.name.clone().unwrap_or_default();
    let spec = &run.spec;
    let mut problems = Vec::new();
    let mut problem = |field: String, text: String| {
        problems.push(Problem { object: format!("BenchmarkRun/{name}"), field, text });
    };
    for (field, text) in sense_of_run(spec) {
        problem(field, text);
    }
    let mut arms: Vec<ValidatedArm> = Vec::with_capacity(spec.arms.len());
    for (index, arm) in spec.arms.iter().enumerate() {
        let resolved = match resolve(arm, referable) {
            Ok(Some(resolved)) => resolved,
            Ok(None) => continue,
            Err((field, text)) => {
                problem(format!("spec.arms[{index}].{field}"), text);
                continue;
            }
        };
        let fits = check_arm(&resolved, spec);
        let fits = fits.and_then(|()| arms.first().map_or(Ok(()), |first| check_alike(&resolved, first)));
        if let Err((field, text)) = fits {
            problem(format!("spec.arms[{index}].{field}"), text);
        }
        arms.push(resolved);
    }
    for (index, gate) in spec.gates.iter().enumerate() {
        if let Err(text) = check_gate_metric(spec, gate) {
            problem(format!("spec.gates[{index}].metric"), text);
        }
        if let Err(text) = check_gate(&arms, spec, gate) {
            problem(format!("spec.gates[{index}]"), text);
        }
    }
    if let Err((field, text)) = arms.iter().try_for_each(|arm| check_shared_directory(arm, spec)) {
        problem(field.into(), text);
    }
    if let Err((index, text)) = check_outages(spec) {
        problem(format!("spec.workloads[{index}].sqliteReplication.outage"), text);
    }
    if let Err((field, text)) = check_failover(spec) {
        problem(field, text);
    }
    if let Err(text) = check_timeout(spec) {
        problem("spec.trials.timeout".into(), text);
    }
    let is_complete = arms.len() == spec.arms.len() && problems.is_empty();
    (is_complete.then(|| ValidatedRun { name, spec: spec.clone(), arms }), problems)
}

const SERVICE: &str = "serviceRef.name";
const CONTROL_PLANE: &str = "controlPlaneRef.name";
const CLUSTER: &str = "kubeconfigSecretRef.name";

/// What an arm refers to; `None` where that is wrong in itself. Errors: the field, and what is wrong with it.
fn resolve(arm: &Arm, referable: &Referable<'_>) -> Result<Option<ValidatedArm>, (&'static str, String)> {
    let Referable { services, control_planes, .. } = *referable;
    let target = if let Some(wanted) = &arm.kubeconfig_secret_ref {
        Target::Cluster(wanted.name.clone())
    } else if let Some(wanted) = &arm.control_plane_ref {
        if referable.is_refused("ControlPlane", &wanted.name) {
            return Ok(None);
        }
        let plane = named(control_planes, &wanted.name, "ControlPlane", |plane| &plane.name);
        Target::ControlPlane(plane.map_err(|text| (CONTROL_PLANE, text))?.clone())
    } else {
        // The schema allows no arm that refers to nothing.
        let wanted = arm.service_ref.as_ref().map(|wanted| wanted.name.as_str()).unwrap_or_default();
        if referable.is_refused("StorageService", wanted) {
            return Ok(None);
        }
        let service = named(services, wanted, "StorageService", |service| &service.name);
        Target::Service(service.map_err(|text| (SERVICE, text))?.clone())
    };
    Ok(Some(ValidatedArm { name: arm.name.clone(), baseline: arm.baseline, target }))
}

/// An arm must speak what the workloads do.
fn check_arm(arm: &ValidatedArm, spec: &BenchmarkRunSpec) -> Result<(), (&'static str, String)> {
    let fits = |workload: &&Workload| {
        let loads = workload.family().facts().loads;
        arm.api().is_some_and(|api| loads.contains(&api))
    };
    let Some(workload) = spec.workloads.iter().find(|workload| !fits(workload)) else {
        return check_members(arm, spec).map_err(|text| (SERVICE, text));
    };
    let (name, family) = (&workload.name, workload.family());
    let needs_cluster = family.facts().loads == [Api::Kubernetes];
    Err(match (&arm.target, needs_cluster) {
        (Target::Cluster(_), _) => (
            CLUSTER,
            format!(
                "workload {name} speaks {family:?}, but this is a cluster: use kubernetes workloads, or a serviceRef"
            ),
        ),
        (Target::ControlPlane(control_plane), _) => (
            CONTROL_PLANE,
            format!(
                "workload {name} speaks {family:?}, but ControlPlane {} speaks Kubernetes: use kubernetes workloads, or a serviceRef",
                control_plane.name
            ),
        ),
        (Target::Service(service), true) => (
            SERVICE,
            format!(
                "workload {name} speaks Kubernetes, but {} is a store: name a ControlPlane on it in controlPlaneRef",
                service.name
            ),
        ),
        (Target::Service(service), false) => (
            SERVICE,
            format!(
                "workload {name} speaks {family:?}, but {} speaks {:?}: choose another workload or another service",
                service.engine.name, service.engine.protocol
            ),
        ),
    })
}

/// Who loses its leader needs others to go on.
fn check_members(arm: &ValidatedArm, spec: &BenchmarkRunSpec) -> Result<(), String> {
    let Target::Service(service) = &arm.target else { return Ok(()) };
    match spec.workloads.iter().find(|workload| workload.parameters.kills_members()) {
        Some(workload) if service.replicas < 3 => Err(format!(
            "workload {} kills the leader, but {} has no other member: set its replicas to 3 or 5",
            workload.name, service.name
        )),
        _ => Ok(()),
    }
}

/// What of a failover takes more than its parameters to say. Errors: the field, and what is wrong with it.
fn check_failover(spec: &BenchmarkRunSpec) -> Result<(), (String, String)> {
    for (index, workload) in spec.workloads.iter().enumerate() {
        let Parameters::KeyValue(parameters) = &workload.parameters else { continue };
        let length = |text: &Option<DurationText>| text.as_ref().map(DurationText::duration).unwrap_or_default();
        let (Some(kill), Some(restart)) = (&parameters.kill_after, &parameters.restart_after) else { continue };
        if kill.duration() + restart.duration() >= length(&workload.load.duration) {
            let text = format!(
                "is {} after killAfter {}, when the load is over: make load.duration longer, so that there is load when the member is back",
                restart.as_str(),
                kill.as_str()
            );
            return Err((format!("spec.workloads[{index}].keyValue.restartAfter"), text));
        }
        if spec.isolation == Isolation::Shared {
            let text = format!("is Shared, but workload {} kills a member of the store: use Fresh", workload.name);
            return Err(("spec.isolation".into(), text));
        }
    }
    Ok(())
}

/// Two control planes are compared for their stores, so all else must be the same. Of clusters that are there already, the
/// driver finds out.
fn check_alike(arm: &ValidatedArm, first: &ValidatedArm) -> Result<(), (&'static str, String)> {
    if arm.cluster().is_some() != first.cluster().is_some() {
        let text = "compares a cluster that is there already with one that is made for each trial: give all arms a \
                    kubeconfigSecretRef, or none";
        return Err((if arm.cluster().is_some() { CLUSTER } else { CONTROL_PLANE }, text.into()));
    }
    let (Some(one), Some(other)) = (arm.control_plane(), first.control_plane()) else { return Ok(()) };
    let unlike = |what: &str, one: &str, other: &str| {
        let text = format!(
            "has {what} {one}, but arm {} has {other}: make them alike, so that stores are compared",
            first.name
        );
        Err((CONTROL_PLANE, text))
    };
    if one.kubernetes_version != other.kubernetes_version {
        return unlike("kubernetesVersion", &one.kubernetes_version, &other.kubernetes_version);
    }
    if one.nodes != other.nodes {
        return unlike("nodes", &one.nodes.to_string(), &other.nodes.to_string());
    }
    Ok(())
}

/// A store that works on the load's files runs where the load does, and ends with it.
fn check_shared_directory(arm: &ValidatedArm, spec: &BenchmarkRunSpec) -> Result<(), (&'static str, String)> {
    let Some(service) = arm.service().filter(|service| service.engine.shares_directory) else { return Ok(()) };
    let name = service.engine.name;
    if spec.isolation == Isolation::Shared {
        let text = format!("is Shared, but {name} of arm {} runs beside the load of one trial: use Fresh", arm.name);
        return Err(("spec.isolation", text));
    }
    if spec.parallelism != 1 {
        let text = format!("must be 1 for {name} of arm {}, which shares a directory with one load pod", arm.name);
        return Err(("spec.parallelism", text));
    }
    Ok(())
}

/// An outage begins and ends while commits are measured.
fn check_outages(spec: &BenchmarkRunSpec) -> Result<(), (usize, String)> {
    for (index, workload) in spec.workloads.iter().enumerate() {
        let Parameters::SqliteReplication(replication) = &workload.parameters else { continue };
        let (Some(outage), Some(duration)) = (&replication.outage, &workload.load.duration) else { continue };
        if outage.after.duration() + outage.duration.duration() > duration.duration() {
            let (after, lasting, measured) = (outage.after.as_str(), outage.duration.as_str(), duration.as_str());
            let text = format!(
                "begins after {after}, lasts {lasting} and so outlasts load.duration, {measured}: set that higher"
            );
            return Err((index, text));
        }
    }
    Ok(())
}

/// A trial that cannot end in time would only show after the first one.
fn check_timeout(spec: &BenchmarkRunSpec) -> Result<(), String> {
    let length = DurationText::duration;
    let measured = |load: &Load| length(&load.warm_up) + load.duration.as_ref().map(length).unwrap_or_default();
    let needed: Duration = spec.workloads.iter().map(|workload| measured(&workload.load)).sum();
    if length(&spec.trials.timeout) > needed {
        return Ok(());
    }
    let (timeout, seconds) = (spec.trials.timeout.as_str(), needed.as_secs());
    Err(format!("is {timeout}, but the workloads alone take {seconds} s: set it above that, with room for start-up"))
}

/// What only one family measures cannot be asked of another.
fn check_gate_metric(spec: &BenchmarkRunSpec, gate: &Gate) -> Result<(), String> {
    let Some(family) = gate.metric.family() else { return Ok(()) };
    let is_judged = |workload: &&Workload| gate.workload.as_ref().is_none_or(|wanted| *wanted == workload.name);
    match spec.workloads.iter().filter(is_judged).find(|workload| workload.family() != family) {
        Some(workload) => Err(format!(
            "{:?} is measured by {} workloads only, which {} is not: name another workload or another metric",
            gate.metric,
            family.field(),
            workload.name
        )),
        None => Ok(()),
    }
}

fn check_gate(arms: &[ValidatedArm], spec: &BenchmarkRunSpec, gate: &Gate) -> Result<(), String> {
    let is_ratio = gate.bound().is_some_and(Bound::is_ratio);
    let (Some(arm), Some(baseline)) =
        (arms.iter().find(|arm| arm.name == gate.arm), arms.iter().find(|arm| arm.baseline))
    else {
        return Ok(());
    };
    let (Some(arm), Some(baseline)) = (arm.service(), baseline.service()) else { return Ok(()) };
    let (arm, baseline) = (Terms::of_service(arm), Terms::of_service(baseline));
    let is_judged = |workload: &&Workload| gate.workload.as_ref().is_none_or(|wanted| *wanted == workload.name);
    let forbidden = |workload| differences(&arm, &baseline, workload, &spec.allow_unequal).forbidden;
    match spec.workloads.iter().filter(|_| is_ratio).filter(is_judged).find_map(forbidden) {
        Some(reason) => Err(format!(
            "compares unlike with unlike ({reason}): make the two services alike, or gate on atLeast or atMost, or name the field in \
             spec.allowUnequal, which durability cannot be"
        )),
        None => Ok(()),
    }
}

const NO_TLS: &str = "is not available yet: the loaders speak plain TCP; remove it";

/// Refuses what the operator cannot honour yet, rather than leaving it out silently.
pub fn for_kubernetes(service: &ValidatedService) -> Result<(), Problem> {
    if service.spec.tls.is_some() {
        return Err(Problem {
            object: format!("StorageService/{}", service.name),
            field: "spec.tls".into(),
            text: NO_TLS.into(),
        });
    }
    Ok(())
}

/// Refuses what a run in a cluster cannot honour, rather than leaving it out silently: a load has no right to kill pods there, and when
/// a killed container starts again is the kubelet's decision.
pub fn for_cluster(run: &ValidatedRun) -> Result<(), Problem> {
    for (index, workload) in run.spec.workloads.iter().enumerate() {
        let (field, text) = match &workload.parameters {
            Parameters::SqliteReplication(replication) if replication.outage_of_replicator().is_some() => (
                "sqliteReplication.outage.kind",
                "is Kill, but in a cluster the kubelet decides when a killed container starts again: choose BlackHole or \
                 ServiceUnavailable, or run it embedded",
            ),
            parameters if parameters.kills_members() => (
                "keyValue.operation",
                "Failover is not available in a cluster, where a load may not kill a store's pods: run it with `storebench run`",
            ),
            _ => continue,
        };
        return Err(Problem {
            object: format!("BenchmarkRun/{}", run.name),
            field: format!("spec.workloads[{index}].{field}"),
            text: text.into(),
        });
    }
    Ok(())
}

/// What an embedded run cannot honour, and refuses rather than leave out silently.
pub fn for_embedded(run: &ValidatedRun) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |object: &str, field: &str, text: &str| {
        let found = Problem { object: object.into(), field: field.into(), text: text.into() };
        // Several arms may refer to one service.
        if !problems.contains(&found) {
            problems.push(found);
        }
    };
    let label = format!("BenchmarkRun/{}", run.name);
    if run.spec.suspend {
        problem(&label, "spec.suspend", "is true, so there is nothing to run: set it to false");
    }
    if run.spec.parallelism != 1 {
        let text = "must be 1 in an embedded run: use load.threads for a stronger loader";
        problem(&label, "spec.parallelism", text);
    }
    for (index, arm) in run.arms.iter().enumerate() {
        let Some(service) = arm.service() else {
            let field = format!("spec.arms[{index}].kubeconfigSecretRef");
            let text =
                "is not available in an embedded run, which has no Secrets: give a controlPlaneRef, or apply the run";
            problem(&label, &field, text);
            continue;
        };
        let label = format!("StorageService/{}", service.name);
        if service.spec.image.is_some() {
            let text = "has no effect in an embedded run, which starts executables: give a version, or apply the run in a cluster";
            problem(&label, "spec.image", text);
        }
        if service.spec.tls.is_some() {
            problem(&label, "spec.tls", NO_TLS);
        }
        if service.spec.env.iter().any(|variable| variable.value_from.is_some()) {
            problem(&label, "spec.env", "valueFrom is not available in an embedded run: give a value");
        }
    }
    problems
}
