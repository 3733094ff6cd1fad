//! How the durability of an arm was established, for whoever reads its figures: by syncs that were counted, by what the store says when it is
//! asked, or by nothing but how it was started. Pure.
//!
//! An arm that is slower because it syncs, beside one of which nobody knows whether it does, must be told from it.

use storebench_crds::measure::FSYNCS;
use storebench_crds::{Durability, Workload};

use crate::engine::states_settings;
use crate::record::{ArmRecord, TrialRecord, WorkloadMeasurement};

/// What a class of durability stands on in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Its syncs were counted, and were enough for the writes that it acknowledged.
    Counted {
        /// Syncs of all members together, in thousandths of one for each write.
        syncs_per_thousand_writes: u64,
        /// Workloads that write and in which nobody counted.
        but_not_in: Vec<String>,
    },
    /// It said so when it was asked, before it was loaded.
    Asked,
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
        let uncounted = if states_settings(arm.engine?.engine()) { Self::Asked } else { Self::Started };
        // Below Kubernetes requests are not the store's.
        if arm.control_plane.is_some() {
            return Some(uncounted);
        }
        let measured: Vec<&WorkloadMeasurement> = trials.flat_map(|trial| &trial.workloads).collect();
        let (mut syncs, mut writes, mut but_not_in) = (0, 0, Vec::new());
        for workload in workloads.iter().filter(|workload| workload.parameters.writes_percent() > 0) {
            let of_workload = || measured.iter().filter(|one| one.summary.name == workload.name);
            let counted: Option<u64> = of_workload().map(|one| one.total(FSYNCS)).sum();
            let operations: u64 = of_workload().map(|one| one.summary.operations).sum();
            match counted {
                Some(counted) if operations > 0 => {
                    syncs += counted;
                    writes += operations * u64::from(workload.parameters.writes_percent()) / 100;
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
            Self::Started => "as it was started: its syncs were not held against its writes".to_owned(),
        }
    }

    /// Whether what the store does was looked at in each workload that writes.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Counted { but_not_in, .. } if but_not_in.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
