//! From objects that fit the schema to a run that can be planned: `Validated…` types, so that nothing after this step can
//! fail on what a user wrote.
//!
//! What one object can say about itself is in the schema (crate `storebench-crds`); here is what takes several objects, or
//! knowledge of engines. [`for_embedded`] adds what an embedded run cannot honour, [`for_cluster`] what one in a cluster cannot.

mod arguments;
mod doubts;
mod drivers;
mod external;
mod faults;
mod gates;
mod templates;

use std::time::Duration;

use storebench_crds::benchmark_run::{BenchmarkRun, BenchmarkRunSpec, Isolation};
use storebench_crds::document::sense_of_run;
use storebench_crds::status::NOISE_FLOOR;
use storebench_crds::storage_service::{StorageService, StorageServiceSpec};
use storebench_crds::workload::Api;
use storebench_crds::workload::key_value::{Door, KeyValueOperation, ReadLevel};
use storebench_crds::{Arm, DurationText, Load, Workload};

use crate::engine::Engine;
pub use crate::validated::{
    ExternalStore, ForeignCluster, Room, STATED_BY_USER, Target, ValidatedArm, ValidatedControlPlane, ValidatedRun,
    ValidatedService,
};
pub use doubts::doubtful_gates;
pub use drivers::{all_for_cluster, for_cluster, for_embedded, for_kubernetes, of_workload, too_much_for};
pub use gates::foregone_gates;

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

impl Problem {
    /// The first of several that one object has, and how many more there are, where there is room for a line only.
    pub fn first_of(problems: &[Problem]) -> String {
        let Some((first, others)) = problems.split_first() else { return String::new() };
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        format!("{} {}{more}", first.field, first.text)
    }
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
    problems.extend(arguments::reserved(engine, spec).into_iter().map(|(field, text)| problem(&field, text)));
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
            spec: StorageServiceSpec::of(engine.kind, durability_class.class),
        }
    };
    let all = engine.companions.iter();
    all.map(|companion| (companion.role, validated(companion.role, companion.engine.engine()))).collect()
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
    /// The workloads of templates, under the names of these.
    pub workloads: &'a [Workload],
    /// Kind and name of objects that are there, but wrong in themselves: whoever refers to one is not wrong in that.
    pub refused: &'a [(&'static str, String)],
}

impl Referable<'_> {
    /// Whether an object is there, but wrong in itself.
    pub fn is_refused(&self, kind: &str, name: &str) -> bool {
        self.refused.iter().any(|(refused, of)| *refused == kind && of == name)
    }
}

/// Validates a run against what it may refer to.
///
/// # Errors
/// The first of [`all_problems`].
pub fn run(run: &BenchmarkRun, referable: &Referable<'_>) -> Result<ValidatedRun, Problem> {
    let (validated, problems) = all_problems(run, referable);
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
    let (validated, problems) = match templates::resolved(run, referable) {
        Ok(resolved) => problems_of_whole(&resolved, referable),
        Err(problems) => (None, problems),
    };
    let workload_refs = run.spec.workload_refs.clone();
    let validated = validated.map(|validated| ValidatedRun { workload_refs, ..validated });
    (validated, problems.into_iter().map(|problem| templates::as_written(&run.spec.workload_refs, problem)).collect())
}

/// The same of a run that has its workloads in itself.
fn problems_of_whole(run: &BenchmarkRun, referable: &Referable<'_>) -> (Option<ValidatedRun>, Vec<Problem>) {
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
        if let Err(text) = gates::check_metric(spec, gate) {
            problem(format!("spec.gates[{index}].metric"), text);
        }
        if let Err(text) = gates::check(&arms, spec, gate) {
            problem(format!("spec.gates[{index}]"), text);
        }
    }
    if let Err((field, text)) = arms.iter().try_for_each(|arm| check_shared_directory(arm, spec)) {
        problem(field.into(), text);
    }
    if let Err((index, text)) = check_doors(&arms, spec) {
        problem(format!("spec.workloads[{index}].keyValue.door"), text);
    }
    if let Err((index, text)) = check_outages(spec) {
        let family = spec.workloads[index].family().field();
        problem(format!("spec.workloads[{index}].{family}.outage"), text);
    }
    for (field, text) in external::problems(&arms, spec) {
        problem(field, text);
    }
    if let Err((field, text)) = faults::check(&arms, spec) {
        problem(field, text);
    }
    if let Err(text) = check_timeout(spec) {
        problem("spec.trials.timeout".into(), text);
    }
    let is_complete = arms.len() == spec.arms.len() && problems.is_empty();
    if spec.noise_floor
        && let Some(baseline) = arms.iter().find(|arm| arm.baseline).cloned()
    {
        // The last one, so that what is told of the first arm that is not the baseline is told of one that was asked for.
        arms.push(ValidatedArm { name: NOISE_FLOOR.into(), baseline: false, ..baseline });
    }
    (is_complete.then(|| ValidatedRun { name, spec: spec.clone(), arms, workload_refs: Vec::new() }), problems)
}

const SERVICE: &str = "serviceRef.name";
const CONTROL_PLANE: &str = "controlPlaneRef.name";
const CLUSTER: &str = "kubeconfigSecretRef.name";

/// What an arm refers to; `None` where that is wrong in itself. Errors: the field, and what is wrong with it.
fn resolve(arm: &Arm, referable: &Referable<'_>) -> Result<Option<ValidatedArm>, (&'static str, String)> {
    let Referable { services, control_planes, .. } = *referable;
    let target = if let Some(wanted) = &arm.kubeconfig_secret_ref {
        Target::Cluster(ForeignCluster { secret: wanted.name.clone(), durability: arm.durability })
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
        Target::of(service.map_err(|text| (SERVICE, text))?.clone())
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
        let members = arm.service().map_or(Ok(()), |service| faults::check_members(service, spec));
        return members.and_then(|()| check_read_levels(arm, spec)).map_err(|text| (SERVICE, text));
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
        (Target::Service(ValidatedService { name: store, .. }), true) => (
            SERVICE,
            format!(
                "workload {name} speaks Kubernetes, but {store} is a store: name a ControlPlane on it in controlPlaneRef"
            ),
        ),
        (Target::External(ExternalStore { name: store, .. }), true) => (
            SERVICE,
            format!(
                "workload {name} speaks Kubernetes, but {store} is an external store, which holds no cluster: use etcd or redis workloads"
            ),
        ),
        (Target::Service(ValidatedService { engine, .. }) | Target::External(ExternalStore { engine, .. }), false) => (
            SERVICE,
            format!(
                "workload {name} speaks {family:?}, but {} speaks {:?}: choose another workload or another service",
                engine.name, engine.protocol
            ),
        ),
    })
}

/// Reads of bounded age and locks are asked for in words that not every store knows.
fn check_read_levels(arm: &ValidatedArm, spec: &BenchmarkRunSpec) -> Result<(), String> {
    let Target::Service(service) = &arm.target else { return Ok(()) };
    let is_bounded = |workload: &&Workload| {
        workload.parameters.key_value().is_some_and(|parameters| parameters.read_level == ReadLevel::Bounded)
    };
    let is_lock = |workload: &&Workload| {
        workload.parameters.key_value().is_some_and(|parameters| parameters.operation == KeyValueOperation::Lock)
    };
    let has_leases = arm.api() != Some(Api::DEngine) || arm.has_streaming_door();
    if let Some(workload) = spec.workloads.iter().find(is_lock).filter(|_| !has_leases) {
        let (name, engine) = (&workload.name, service.engine.name);
        return Err(format!(
            "workload {name} locks, for which {engine} has no leases: use another operation, or DEngine"
        ));
    }
    match spec.workloads.iter().find(is_bounded) {
        Some(workload) if !arm.has_streaming_door() => Err(format!(
            "workload {} reads at level Bounded, which {} does not have: use Linearizable or Eventual for it",
            workload.name, service.engine.name
        )),
        _ => Ok(()),
    }
}

/// A door that no arm has would be asked for in vain.
fn check_doors(arms: &[ValidatedArm], spec: &BenchmarkRunSpec) -> Result<(), (usize, String)> {
    // Said to be so: locks and reads of bounded age are refused for stores without them, one by one.
    let streams = |workload: &Workload| {
        workload.parameters.key_value().is_some_and(|parameters| parameters.door == Some(Door::Streaming))
    };
    // Of an arm that is wrong in itself nothing is known.
    let Some(index) = spec.workloads.iter().position(streams).filter(|_| arms.len() == spec.arms.len()) else {
        return Ok(());
    };
    // Its dialect is d-engine's, and the loader would ask it by the same door.
    let lacks = |arm: &&ValidatedArm| arm.api() == Some(Api::DEngine) && !arm.has_streaming_door();
    if let Some(arm) = arms.iter().find(lacks) {
        return Err((index, format!("is Streaming, which arm {} does not have: remove door", arm.name)));
    }
    match arms.iter().any(ValidatedArm::has_streaming_door) {
        true => Ok(()),
        false => Err((index, "is Streaming, which d-engine alone has, and no arm is one: remove door".into())),
    }
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
        let (Some(outage), Some(duration)) = (workload.parameters.outage(), &workload.load.duration) else { continue };
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

/// About so many rates are tried until the highest that holds is found: see the table in docs/accuracy.md, whose mean with slow moments is
/// 18 to 21.
const SEARCH_STEPS: u32 = 20;

/// A trial that cannot end in time would only show after the first one.
fn check_timeout(spec: &BenchmarkRunSpec) -> Result<(), String> {
    let length = DurationText::duration;
    let searched =
        |load: &Load| load.highest_rate.as_ref().map(|found| length(&found.step_duration) + length(&load.warm_up));
    let measured = |load: &Load| {
        length(&load.warm_up)
            + load.duration.as_ref().map(length).unwrap_or_default()
            + searched(load).unwrap_or_default() * SEARCH_STEPS
    };
    let needed: Duration = spec.workloads.iter().map(|workload| measured(&workload.load)).sum();
    if length(&spec.trials.timeout) > needed {
        return Ok(());
    }
    let (timeout, seconds) = (spec.trials.timeout.as_str(), needed.as_secs());
    Err(format!("is {timeout}, but the workloads alone take {seconds} s: set it above that, with room for start-up"))
}
