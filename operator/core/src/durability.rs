//! How the durability of an arm was established, for whoever reads its figures: by syncs that were counted, by what the store says when it is
//! asked, or by nothing but how it was started. Pure.
//!
//! An arm that is slower because it syncs, beside one of which nobody knows whether it does, must be told from it.

use storebench_crds::measure::FSYNCS;
use storebench_crds::workload::syncs::{fewest_syncs, fewest_writes, majority};
use storebench_crds::{Durability, Workload};

use crate::engine::states_settings;
use crate::record::{ArmRecord, FailureCause, TrialFailure, TrialRecord, WorkloadMeasurement};
use crate::trial::Loaded;
use crate::units;
use crate::validated::ValidatedArm;

/// What a class of durability stands on in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Its syncs were counted, and were enough for the writes that it acknowledged.
    Counted {
        /// Syncs of all members together, in thousandths of one for each write.
        syncs_per_thousand_writes: u64,
        /// Workloads that write and in which nobody counted, or a count proves nothing.
        but_not_in: Vec<String>,
    },
    /// It said so when it was asked, before it was loaded. It does not count.
    Asked,
    /// It said so when it was asked. Its count proves nothing, for a store of this class, or with these writes, may sync as little as it likes, or
    /// nobody heard it.
    AskedAlone,
    /// It was started so.
    Started,
}

impl Basis {
    /// What a class of durability of an arm stands on, by what these trials of it measured. `None`: nothing is promised that could be broken, or
    /// it is the owner who states it.
    pub(crate) fn of<'a>(
        arm: &ArmRecord,
        workloads: &[Workload],
        trials: impl Iterator<Item = &'a TrialRecord>,
    ) -> Option<Self> {
        let promises = matches!(arm.durability?, Durability::Fsync | Durability::Interval);
        if !promises || arm.is_external() {
            return None;
        }
        let engine = arm.engine?.engine();
        let uncounted = match (states_settings(engine), engine.counts_syncs()) {
            (true, false) => Self::Asked,
            (true, true) => Self::AskedAlone,
            (false, _) => Self::Started,
        };
        // Below Kubernetes requests are not the store's. Who syncs by the clock is held against nothing.
        if arm.control_plane.is_some() || arm.durability != Some(Durability::Fsync) {
            return Some(uncounted);
        }
        let measured: Vec<&WorkloadMeasurement> = trials.flat_map(|trial| &trial.workloads).collect();
        let (mut syncs, mut writes, mut but_not_in) = (0, 0, Vec::new());
        for workload in workloads.iter().filter(|workload| workload.parameters.writes_percent() > 0) {
            let of_workload = || measured.iter().filter(|one| one.summary.name == workload.name);
            let counted: Option<u64> = of_workload().map(|one| one.total(FSYNCS)).sum();
            let operations: u64 = of_workload().map(|one| one.summary.operations).sum();
            let certain = operations * u64::from(workload.parameters.certain_writes_percent()) / 100;
            match counted {
                Some(counted) if certain > 0 && counted > 0 => {
                    syncs += counted;
                    writes += certain;
                }
                _ => but_not_in.push(workload.name.clone()),
            }
        }
        let syncs_per_thousand_writes = (u128::from(syncs) * 1_000).checked_div(u128::from(writes));
        Some(match syncs_per_thousand_writes {
            Some(syncs) => Self::Counted { syncs_per_thousand_writes: syncs as u64, but_not_in },
            None => uncounted,
        })
    }

    /// In words, as the end of a sentence about its durability.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Counted { syncs_per_thousand_writes, but_not_in } => {
                let syncs = *syncs_per_thousand_writes as f64 / 1_000.0;
                let counted = format!("counted: {syncs:.3} syncs a write");
                match but_not_in.is_empty() {
                    true => counted,
                    false => format!("{counted}, but not in {}", but_not_in.join(", ")),
                }
            }
            Self::Asked => "as the store says when it is asked: its syncs cannot be counted here".to_owned(),
            Self::AskedAlone => {
                "as the store says when it is asked: its syncs were not held against its writes".to_owned()
            }
            Self::Started => "as it was started: its syncs were not held against its writes".to_owned(),
        }
    }

    /// Whether what the store does was looked at in each workload that writes.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Counted { but_not_in, .. } if but_not_in.is_empty())
    }
}

/// Less than this part of what must have reached the disk voids a trial. Values are pieces of one random block, which a store that compresses
/// several writes together may find.
const PART: u128 = 4;
/// Who measures may begin so much after the load: a few requests are answered by then, and on the disk.
const LATE_NANOS: u64 = 100_000_000;
/// A disk is written in sectors, and a sync that keeps a write takes at least one.
const SECTOR_BYTES: u64 = 512;

/// A store that was told to sync and acknowledged more than reached its disk has failed, whatever it counts and says: a sync of something else
/// counts, too. That explains what else was wrong with a trial, but for a wrong answer.
pub fn hold_against_the_disk(loaded: &mut Loaded, arm: &ValidatedArm, workloads: &[Workload]) {
    let Some(service) = arm.service().filter(|service| service.durability == Durability::Fsync) else { return };
    let of_workload = |measured: &WorkloadMeasurement| {
        let workload = workloads.iter().find(|workload| workload.name == measured.summary.name)?;
        Some(format!("{}: {}", workload.name, unwritten(service.replicas, workload, measured)?))
    };
    let cause = FailureCause::StoreFailed;
    let is_graver = loaded.failure.as_ref().is_none_or(|known| cause.rank() < known.cause.rank());
    if let Some(detail) = loaded.workloads.iter().find_map(of_workload).filter(|_| is_graver) {
        loaded.failure = Some(TrialFailure { cause, detail });
    }
}

/// What is wrong, if less was written to the disks under the members' data, by whomever, than what they acknowledged takes. `None`: nothing, or
/// nobody knows.
fn unwritten(members: u32, workload: &Workload, measured: &WorkloadMeasurement) -> Option<String> {
    let (usage, summary) = (measured.usage.as_ref()?, &measured.summary);
    let written = usage.written_bytes?;
    let part = |percent: u32| summary.operations * u64::from(percent) / 100;
    let values = part(workload.parameters.writes_percent()) * workload.parameters.value_bytes_of_a_write();
    // All that are on their way at a time may share a sync. What changes nothing, such as a pop that finds nothing, may take none.
    let certain = fewest_writes(summary.operations, workload.parameters.certain_writes_percent());
    let in_flight = workload.in_flight_max();
    let syncs = measured.total(FSYNCS).map_or(0, |_| fewest_syncs(certain, in_flight));
    let majority = majority(u64::from(members));
    let least = u128::from(values.max(syncs * SECTOR_BYTES)) * u128::from(majority);
    // Who measures may also end before the load does, which is answered later than it is sent.
    let seen = usage.elapsed_nanos.min(summary.elapsed_nanos).saturating_sub(LATE_NANOS);
    let all = summary.elapsed_nanos.max(1);
    if u128::from(written) * PART * u128::from(all) >= least * u128::from(seen) {
        return None;
    }
    let acknowledged = match values >= syncs * SECTOR_BYTES {
        true => format!("{} of values were acknowledged", units::bytes(values)),
        false => format!(
            "{certain} writes were acknowledged, of which at most {in_flight} were on their way at a time: that takes at least {syncs} syncs, each \
             of a sector"
        ),
    };
    let kept =
        if members > 1 { format!(", each to be kept by {majority} of {members} members") } else { String::new() };
    let written = units::bytes(written);
    Some(format!(
        "durability Fsync is not kept: {acknowledged}{kept}, and {written} reached the disk, whoever wrote them"
    ))
}

/// Whether nobody knows what these trials of an arm wrote that was to be held against it.
pub(crate) fn is_unweighed<'a>(
    arm: &ArmRecord,
    workloads: &[Workload],
    mut trials: impl Iterator<Item = &'a TrialRecord>,
) -> bool {
    let is_ours = arm.engine.is_some() && !arm.is_external() && arm.control_plane.is_none();
    let is_held = is_ours && arm.durability == Some(Durability::Fsync);
    let writes = |name: &str| workloads.iter().any(|one| one.name == name && one.parameters.writes_percent() > 0);
    let is_unknown = |one: &WorkloadMeasurement| one.usage.and_then(|usage| usage.written_bytes).is_none();
    is_held && trials.any(|trial| trial.workloads.iter().any(|one| writes(&one.summary.name) && is_unknown(one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use storebench_crds::job::Usage;

    fn arm(engine: &str, durability: &str) -> ArmRecord {
        let arm = json!({
            "name": "a", "baseline": true, "service": "a", "engine": engine, "durability": durability, "durabilitySetting": "",
            "replicas": 1, "command": [], "fields": {},
        });
        serde_json::from_value(arm).unwrap()
    }

    fn workloads() -> Vec<Workload> {
        let load = json!({ "duration": "1s" });
        let workload =
            |name: &str, operation: serde_json::Value| json!({ "name": name, "etcd": operation, "load": load });
        let all = json!([
            workload("put", json!({ "operation": "Put" })),
            workload("mixed", json!({ "operation": "Mixed", "readPercent": 75 })),
            workload("range", json!({ "operation": "Range" })),
        ]);
        serde_json::from_value(all).unwrap()
    }

    /// A trial whose workloads measured so many operations and syncs.
    fn trial(measured: &[(&str, u64, Option<u64>)]) -> TrialRecord {
        let latency = json!(storebench_crds::status::LatencySummary::default());
        let workloads = measured.iter().map(|(name, operations, syncs)| {
            let measures = syncs.map_or(json!({}), |syncs| json!({ "fsyncs": { "total": syncs } }));
            json!({
                "summary": { "name": name, "operations": operations, "errors": 0, "elapsedNanos": 1, "verified": 0, "service": latency },
                "measures": measures, "histograms": [],
            })
        });
        let trial = json!({
            "index": 0, "arm": "a", "state": "Valid", "startedMillis": 0, "durationMillis": 1, "workloads": workloads.collect::<Vec<_>>(),
        });
        serde_json::from_value(trial).unwrap()
    }

    fn words(arm: &ArmRecord, trial: &TrialRecord) -> Option<String> {
        Basis::of(arm, &workloads(), std::iter::once(trial)).map(|basis| basis.words())
    }

    #[test]
    fn syncs_that_were_counted_are_told_for_each_write_and_where_nobody_counted_is_told_too() {
        let all = trial(&[("put", 1_000, Some(500)), ("mixed", 4_000, Some(1_000)), ("range", 9_000, Some(3))]);
        assert_eq!(words(&arm("Etcd", "Fsync"), &all).unwrap(), "counted: 0.750 syncs a write");
        let partly = trial(&[("put", 1_000, Some(500)), ("mixed", 4_000, None), ("range", 9_000, None)]);
        let said = words(&arm("Etcd", "Fsync"), &partly).unwrap();
        assert_eq!(said, "counted: 0.500 syncs a write, but not in mixed");
    }

    #[test]
    fn a_store_whose_syncs_nobody_can_count_is_not_said_to_sync() {
        let none = trial(&[("put", 1_000, None), ("mixed", 4_000, None)]);
        for durability in ["Fsync", "Interval"] {
            let said = words(&arm("Redis", durability), &none).unwrap();
            assert_eq!(said, "as the store says when it is asked: its syncs cannot be counted here");
        }
        assert_eq!(
            words(&arm("Rusd", "Fsync"), &none).unwrap(),
            "as it was started: its syncs were not held against its writes"
        );
        assert_eq!(words(&arm("Redis", "None"), &none), None, "nothing is promised");
        let mut external = arm("Etcd", "Fsync");
        external.fields = serde_json::from_value(json!({ "external": "a:1" })).unwrap();
        assert_eq!(words(&external, &none), None, "its owner states it");
    }

    /// So many puts or blocks of ten clients in a second, of which the meter saw so many milliseconds.
    fn measured(
        operations: u64,
        syncs: Option<u64>,
        seen_millis: u64,
        written_bytes: Option<u64>,
    ) -> WorkloadMeasurement {
        let mut measured = trial(&[("w", operations, syncs)]).workloads.remove(0);
        measured.summary.elapsed_nanos = 1_000_000_000;
        let elapsed_nanos = seen_millis * 1_000_000;
        measured.usage = Some(Usage { elapsed_nanos, written_bytes, ..Usage::default() });
        measured
    }

    fn workload(family: &str, parameters: serde_json::Value) -> Workload {
        let load = json!({ "duration": "1s", "connections": 10 });
        serde_json::from_value(json!({ "name": "w", family: parameters, "load": load })).unwrap()
    }

    #[test]
    fn values_that_were_acknowledged_have_reached_the_disk_or_the_word_is_broken() {
        let put = workload("etcd", json!({ "operation": "Put", "valueBytes": 1024 }));
        let said =
            |members, seen_millis, written| unwritten(members, &put, &measured(4_096, Some(410), seen_millis, written));
        let broken = "durability Fsync is not kept: 4.00 MiB of values were acknowledged, and 1.00 KiB reached the disk, whoever wrote them";
        assert_eq!(said(1, 1_000, Some(1 << 10)).unwrap(), broken);
        // Of what was acknowledged in 900 milliseconds.
        assert!(said(1, 1_000, Some(943_718)).is_some());
        assert_eq!(said(1, 1_000, Some(943_719)), None, "a quarter");
        assert_eq!(said(1, 400, Some(315_000)), None, "what was not seen may have been written");
        assert_eq!(said(1, 9_000, Some(1 << 20)), None, "the meter ended late");
        assert_eq!(said(1, 1_000, None), None, "nobody knows");
        let kept =
            "4.00 MiB of values were acknowledged, each to be kept by 2 of 3 members, and 1.00 MiB reached the disk";
        assert!(said(3, 1_000, Some(1 << 20)).unwrap().contains(kept));
        assert_eq!(said(3, 1_000, Some(2 << 20)), None);
        let mixed = workload("etcd", json!({ "operation": "Mixed", "valueBytes": 1024, "readPercent": 75 }));
        assert_eq!(unwritten(1, &mixed, &measured(4_096, None, 1_000, Some(256 << 10))), None, "reads take nothing");
    }

    #[test]
    fn what_can_be_made_shorter_takes_a_sector_a_sync() {
        let publish = workload("blockStream", json!({ "operation": "Publish", "window": 10 }));
        let said = |syncs, written| unwritten(1, &publish, &measured(4_000, syncs, 1_000, Some(written)));
        assert!(said(Some(400), 90 * 512 - 1).unwrap().contains("at least 400 syncs, each of a sector, and 45.0 KiB"));
        assert_eq!(said(Some(400), 90 * 512), None);
        assert_eq!(said(None, 0), None, "nobody says that it syncs");
        let delete = workload("redis", json!({ "command": "Lpop" }));
        for syncs in [None, Some(0)] {
            assert_eq!(
                unwritten(1, &delete, &measured(4_000, syncs, 1_000, Some(0))),
                None,
                "it may have found nothing"
            );
        }
    }

    /// Ten clients have sixteen increments each on their way, and fifty syncs keep eight thousand of them.
    #[test]
    fn a_store_that_keeps_all_pipelines_with_one_sync_is_not_accused_by_the_disk() {
        let increment = workload("redis", json!({ "command": "Incr", "pipeline": 16 }));
        let said = |written| unwritten(1, &increment, &measured(8_000, Some(50), 1_000, Some(written)));
        assert_eq!(said(50 * 512), None);
        let broken = said(0).unwrap();
        assert!(
            broken.contains("8000 writes were acknowledged, of which at most 160 were on their way at a time"),
            "{broken}"
        );
        assert!(broken.contains("at least 50 syncs, each of a sector, and 0 B reached the disk"), "{broken}");
    }

    /// It has a count of its syncs, which was taken for a promise kept.
    #[test]
    fn a_count_that_proves_nothing_is_not_shown_as_proof() {
        let named = |command: &str, name: &str| {
            let load = json!({ "duration": "1s" });
            json!({ "name": name, "redis": { "command": command }, "load": load })
        };
        let words = |durability, commands: Value| {
            let workloads: Vec<Workload> = serde_json::from_value(commands).unwrap();
            let trial = trial(&[("set", 1_000, Some(20)), ("sadd", 1_000, Some(1)), ("incr", 2, Some(0))]);
            Basis::of(&arm("Rsedis", durability), &workloads, std::iter::once(&trial)).unwrap().words()
        };
        let (set, sadd) = (named("Set", "set"), named("Sadd", "sadd"));
        assert_eq!(words("Fsync", json!([set, sadd])), "counted: 0.020 syncs a write, but not in sadd");
        let asked = "as the store says when it is asked: its syncs were not held against its writes";
        assert_eq!(words("Fsync", json!([sadd])), asked);
        assert_eq!(words("Fsync", json!([named("Incr", "incr")])), asked, "two may be on their way to the next sync");
        assert_eq!(words("Interval", json!([set])), asked, "by the clock");
    }

    /// Ten requests were answered before the meter had begun to look, and the store was said to have lost them.
    #[test]
    fn a_load_that_is_over_before_the_meter_begins_breaks_no_word() {
        let put = workload("etcd", json!({ "operation": "Put", "valueBytes": 500 }));
        let mut short = measured(10, None, 8, Some(0));
        short.summary.elapsed_nanos = 8_000_000;
        assert_eq!(unwritten(1, &put, &short), None);
    }

    #[test]
    fn where_nobody_knows_what_reached_the_disk_the_reader_is_told() {
        let weighed = |durability, name: &str, written: Option<u64>| {
            let mut trial = trial(&[(name, 4_000, Some(400))]);
            trial.workloads[0].usage = Some(Usage { written_bytes: written, ..Usage::default() });
            !is_unweighed(&arm("Etcd", durability), &workloads(), std::iter::once(&trial))
        };
        assert!(!weighed("Fsync", "put", None));
        assert!(weighed("Fsync", "put", Some(1)));
        let unmeasured = trial(&[("put", 4_000, Some(400))]);
        assert!(unmeasured.workloads[0].usage.is_none());
        let unmeasured = std::iter::once(&unmeasured);
        assert!(is_unweighed(&arm("Etcd", "Fsync"), &workloads(), unmeasured), "nobody could ask the meter");
        assert!(weighed("None", "put", None) && weighed("Fsync", "range", None), "nothing is promised, or written");
    }
}
