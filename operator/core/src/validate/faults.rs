//! What a run must be in which members of a store are struck while they are loaded.

use std::time::Duration;

use storebench_crds::benchmark_run::{BenchmarkRunSpec, Isolation};
use storebench_crds::meter::STOP_MAX;
use storebench_crds::storage_service::Durability;
use storebench_crds::workload::{Fault, FaultKind, FaultMember};
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

/// How long the kubelet waits before it starts a container again that was killed so often before, at least: not at all, then ten seconds, and
/// twice as long each time.
fn back_off(kills_before: u32) -> Duration {
    match kills_before {
        0 => Duration::ZERO,
        // More than that is longer than any load.
        again => Duration::from_secs(10 << (again - 1).min(5)),
    }
}

/// What a run in a cluster cannot have: the index of the workload, its field, and what is wrong with it.
pub(super) fn in_cluster(workloads: &[Workload]) -> Result<(), (usize, String, String)> {
    let mut kills = 0;
    for (index, workload) in workloads.iter().enumerate() {
        let Some(Fault { kind, after, duration, .. }) = workload.fault() else { continue };
        match kind {
            FaultKind::Stop if duration.duration() > STOP_MAX => {
                let text = format!(
                    "is {}, but in a cluster a member stands still for {} s at most: make it shorter, or run it with `storebench run`",
                    duration.as_str(),
                    STOP_MAX.as_secs()
                );
                return Err((index, place(workload, "duration"), text));
            }
            FaultKind::Stop => {}
            FaultKind::Partition | FaultKind::SlowDisk => {
                let why = match kind {
                    FaultKind::Partition => "whether a NetworkPolicy cuts anything off depends on the network plugin",
                    _ => "a store's pods have no right to be traced, by which its syncs are delayed",
                };
                let text = format!(
                    "is {kind:?}, which is not available in a cluster, where {why}: choose Kill or Stop, or run it with `storebench run`"
                );
                return Err((index, place(workload, "kind"), text));
            }
            FaultKind::Kill => {
                let waits = back_off(kills);
                let length = workload.load.duration.as_ref().map(DurationText::duration).unwrap_or_default();
                if after.duration() + waits >= length {
                    let text = format!(
                        "is kill {} of a trial, before which the kubelet waits for {} s until it starts the store again, so that the load \
                         is over first: make load.duration longer, or give it a run of its own",
                        kills + 1,
                        waits.as_secs()
                    );
                    return Err((index, place(workload, "kind"), text));
                }
                kills += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workload(fault: Option<Value>, seconds: u32) -> Workload {
        let mut load = json!({ "connections": 3, "duration": format!("{seconds}s") });
        if let Some(fault) = fault {
            load["fault"] = fault;
        }
        serde_json::from_value(json!({ "name": "w", "redis": { "command": "Set" }, "load": load })).unwrap()
    }

    fn fault(kind: &str) -> Option<Value> {
        Some(json!({ "kind": kind, "after": "2s", "duration": "1s" }))
    }

    #[test]
    fn a_cluster_kills_and_stops_members_and_does_nothing_else_to_them() {
        for kind in ["Kill", "Stop"] {
            assert_eq!(in_cluster(&[workload(None, 8), workload(fault(kind), 8)]), Ok(()), "{kind}");
        }
        for (kind, why) in [("Partition", "network plugin"), ("SlowDisk", "no right to be traced")] {
            let (index, field, text) = in_cluster(&[workload(None, 8), workload(fault(kind), 8)]).unwrap_err();
            assert_eq!((index, field.as_str()), (1, "load.fault.kind"));
            assert!(text.contains(why) && text.contains("choose Kill or Stop"), "{text}");
        }
    }

    #[test]
    fn a_stop_that_a_cluster_s_meter_would_refuse_in_the_trial_is_refused_before() {
        let stop =
            |duration: &str| workload(Some(json!({ "kind": "Stop", "after": "2s", "duration": duration })), 10_000);
        assert_eq!(in_cluster(&[stop("3600s")]), Ok(()));
        let (index, field, text) = in_cluster(&[workload(None, 8), stop("3601s")]).unwrap_err();
        assert_eq!((index, field.as_str()), (1, "load.fault.duration"));
        assert!(text.starts_with("is 3601s, but in a cluster a member stands still for 3600 s at most"), "{text}");
    }

    #[test]
    fn a_member_that_the_kubelet_starts_late_finds_load_when_it_is_back() {
        let kills = |seconds: u32| workload(fault("Kill"), seconds);
        assert_eq!(in_cluster(&[kills(8), workload(fault("Stop"), 8)]), Ok(()), "who stands still is not started");
        let (index, _, text) = in_cluster(&[kills(8), kills(12)]).unwrap_err();
        assert_eq!(index, 1);
        assert!(text.starts_with("is kill 2 of a trial, before which the kubelet waits for 10 s"), "{text}");
        assert_eq!(in_cluster(&[kills(8), kills(13)]), Ok(()));
        assert!(in_cluster(&[kills(8), kills(13), kills(22)]).unwrap_err().2.contains("kill 3 of a trial"));
        assert_eq!(in_cluster(&[kills(8), kills(13), kills(23)]), Ok(()));
        assert_eq!(back_off(7), Duration::from_secs(320), "and no longer");
    }

    #[test]
    fn a_failover_is_a_kill() {
        let failover = json!({
            "name": "w", "keyValue": { "operation": "Failover", "keySpace": 100, "killAfter": "2s", "restartAfter": "1s" },
            "load": { "connections": 3, "duration": "8s" },
        });
        let failover: Workload = serde_json::from_value(failover).unwrap();
        assert_eq!(in_cluster(std::slice::from_ref(&failover)), Ok(()));
        let (index, field, _) = in_cluster(&[failover.clone(), failover]).unwrap_err();
        assert_eq!((index, field.as_str()), (1, "keyValue.operation"));
    }
}
