//! What a driver cannot honour of a run that is right in itself, and refuses rather than leave out silently.

use storebench_crds::workload::sqlite_replication::OutageKind;

use super::{Problem, external, faults, templates};
use crate::units;
use crate::validated::{Room, Target, ValidatedArm, ValidatedRun, ValidatedService};

const NO_TLS: &str = "is not available yet: stores that storebench starts are loaded in the clear; remove it (external.tls is for a store of your own)";

/// Refuses what the operator cannot honour yet, rather than leaving it out silently.
pub fn for_kubernetes(service: &ValidatedService) -> Result<(), Problem> {
    if service.spec.tls.is_some() {
        return Err(Problem {
            object: format!("StorageService/{}", service.name),
            field: "spec.tls".into(),
            text: NO_TLS.into(),
        });
    }
    if service.engine.protocol.needs_names_at_start() && service.replicas > 1 {
        return Err(Problem {
            object: format!("StorageService/{}", service.name),
            field: "spec.replicas".into(),
            text: "must be 1 in a cluster: its members resolve each other when they start; run a group embedded".into(),
        });
    }
    let external = service.spec.external.as_ref().map(|external| external::for_kubernetes(&service.name, external));
    first_of(external.unwrap_or_default())
}

fn first_of(problems: Vec<Problem>) -> Result<(), Problem> {
    problems.into_iter().next().map_or(Ok(()), Err)
}

/// Refuses what a run in a cluster cannot honour, rather than leaving it out silently: nothing is slowed or cut off there, and when a killed
/// container starts again is the kubelet's decision.
pub fn for_cluster(run: &ValidatedRun) -> Result<(), Problem> {
    first_of(all_for_cluster(run))
}

/// All of that, for whoever is about to mend it.
pub fn all_for_cluster(run: &ValidatedRun) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let external = run.arms.iter().filter_map(ValidatedArm::external);
    let external = external.flat_map(|store| external::for_kubernetes(&store.name, &store.external));
    let services = run.arms.iter().filter_map(ValidatedArm::service);
    for problem in external.chain(services.filter_map(|service| for_kubernetes(service).err())) {
        // Several arms may load one store.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    for (index, workload) in run.spec.workloads.iter().enumerate() {
        if workload.parameters.outage().is_some_and(|outage| outage.kind == OutageKind::Kill) {
            let text = "is Kill, but in a cluster the kubelet decides when a killed container starts again: choose BlackHole or \
                        ServiceUnavailable, or run it embedded";
            let field = format!("{}.outage.kind", workload.family().field());
            problems.push(of_workload(run, index, &field, text.into()));
        }
    }
    let fault = faults::in_cluster(&run.spec.workloads).err();
    problems.extend(fault.map(|(index, field, text)| of_workload(run, index, &field, text)));
    problems
}

/// A problem with a field of a run's workload, said of what the user wrote: the run, or a template.
pub fn of_workload(run: &ValidatedRun, index: usize, field: &str, text: String) -> Problem {
    let problem = Problem {
        object: format!("BenchmarkRun/{}", run.name),
        field: format!("spec.workloads[{index}].{field}"),
        text,
    };
    templates::as_written(&run.workload_refs, problem)
}

/// More values than a machine has room for: in memory, where a store keeps them there, or on its disk.
pub fn too_much_for(run: &ValidatedRun, room: &Room) -> Option<Problem> {
    let (index, bytes) = run.largest_key_space()?;
    let mut services = run.arms.iter().filter_map(ValidatedArm::service);
    let is_in_memory = services.any(|service| service.engine.protocol.keeps_values_in_memory());
    let memory = room.memory_bytes.filter(|_| is_in_memory).map(|free| (free, "memory to spare"));
    let disk = room.disk_bytes.map(|free| (free, "room on its disk"));
    let (free, of_what) = memory.into_iter().chain(disk).find(|(free, _)| *free < bytes)?;
    let family = run.spec.workloads[index].family().field();
    let (values, free) = (units::bytes(bytes), units::bytes(free));
    let text = format!(
        "× valueBytes are {values} of values in each store, and this machine has {free} of {of_what}: lower one of both"
    );
    Some(of_workload(run, index, &format!("{family}.keySpace"), text))
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
    // Of the noise floor nothing is written; its arm is the baseline's.
    for (index, arm) in run.arms.iter().enumerate().take(run.spec.arms.len()) {
        let service = match &arm.target {
            Target::Service(service) => service,
            Target::ControlPlane(plane) => &plane.service,
            Target::External(store) => {
                let label = format!("StorageService/{}", store.name);
                external::for_embedded(&store.external).iter().for_each(|(field, text)| problem(&label, field, text));
                continue;
            }
            Target::Cluster(_) => {
                let field = format!("spec.arms[{index}].kubeconfigSecretRef");
                let text = "is not available in an embedded run, which has no Secrets: give a controlPlaneRef, or apply the run";
                problem(&label, &field, text);
                continue;
            }
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
