//! What a run must be in which members of a store are struck while they are loaded.

use storebench_crds::benchmark_run::{BenchmarkRunSpec, Isolation};
use storebench_crds::storage_service::Durability;
use storebench_crds::workload::{Fault, FaultMember};
use storebench_crds::{DurationText, Workload};

use super::{ValidatedArm, ValidatedService};

/// Where a workload says what is done: a Failover has words of its own.
fn place(workload: &Workload, field: &str) -> String {
    let own = match field {
        "kind" => "keyValue.operation",
        "duration" => "keyValue.restartAfter",
        _ => "keyValue.killAfter",
    };
    if workload.load.fault.is_some() { format!("load.fault.{field}") } else { own.to_owned() }
}

/// What of a run's faults takes more than one field to say. Errors: the field, and what is wrong with it.
pub(super) fn check(arms: &[ValidatedArm], spec: &BenchmarkRunSpec) -> Result<(), (String, String)> {
    for (index, workload) in spec.workloads.iter().enumerate() {
        let Some(Fault { after, duration, sync_delay, .. }) = workload.fault() else { continue };
        let field = |field| format!("spec.workloads[{index}].{}", place(workload, field));
        let length = workload.load.duration.as_ref().map(DurationText::duration).unwrap_or_default();
        if after.duration() + duration.duration() >= length {
            let text = format!(
                "is {}, from {} on, so that the load is over before it ends: make load.duration longer, so that there is load when the member \
                 is back",
                duration.as_str(),
                after.as_str()
            );
            return Err((field("duration"), text));
        }
        if let Some(arm) = arms.iter().find(|arm| arm.external().is_some()) {
            let text = format!(
                "strikes a member of the store, but that of arm {} is somebody's, and none of its processes is this run's: remove it",
                arm.name
            );
            return Err((field("kind"), text));
        }
        if let Some(delay) = &sync_delay {
            if delay.duration() >= duration.duration() {
                let text = format!(
                    "is {}, so that no sync would end before the fault does, after {}: make it shorter",
                    delay.as_str(),
                    duration.as_str()
                );
                return Err((field("syncDelay"), text));
            }
            let never_syncs =
                |arm: &&ValidatedArm| arm.service().is_some_and(|service| service.durability == Durability::None);
            if let Some(arm) = arms.iter().find(never_syncs) {
                let text = format!(
                    "is SlowDisk, but the store of arm {} has durability None and waits for no sync: give it another durability",
                    arm.name
                );
                return Err((field("kind"), text));
            }
        }
        if spec.isolation == Isolation::Shared {
            let text = format!("is Shared, but workload {} strikes a member of the store: use Fresh", workload.name);
            return Err(("spec.isolation".into(), text));
        }
    }
    Ok(())
}

/// Who loses its leader needs others to go on, and who has a follower has a leader.
pub(super) fn check_members(service: &ValidatedService, spec: &BenchmarkRunSpec) -> Result<(), String> {
    let needs_others = |workload: &&Workload| match &workload.load.fault {
        Some(fault) => fault.member == FaultMember::Follower,
        None => workload.fault().is_some(),
    };
    match spec.workloads.iter().find(needs_others) {
        Some(workload) if service.replicas < 3 => Err(format!(
            "workload {} strikes one of several members, but {} has no other: set its replicas to 3 or 5",
            workload.name, service.name
        )),
        _ => Ok(()),
    }
}

/// Why a run in a cluster cannot have it: the field of the workload, and what is wrong with it.
pub(super) fn in_cluster(workload: &Workload) -> Option<(String, &'static str)> {
    workload.fault()?;
    let text = match &workload.load.fault {
        Some(_) => {
            "is not available in a cluster, where a load may not strike a store's pods: the kubelet decides when a killed container starts again, \
             and whether a NetworkPolicy cuts anything off depends on the network plugin: run it with `storebench run`"
        }
        None => {
            "Failover is not available in a cluster, where a load may not kill a store's pods: run it with `storebench run`"
        }
    };
    Some((place(workload, "kind"), text))
}
