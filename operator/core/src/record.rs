//! The raw record of a run: what was asked, what ran, what each trial measured. Drivers fill it; nothing here is judged.
//!
//! A record is all that [`crate::judgement`] needs, so that a saved record can be judged again, anywhere, with the same
//! result.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storebench_crds::benchmark_run::{ArmField, BenchmarkRunSpec};
pub use storebench_crds::job::{ControlPlaneUsage, Usage};
pub use storebench_crds::measurement::{EncodedHistogram, WorkloadMeasurement};
use storebench_crds::status::{Fingerprint, TrialState};
use storebench_crds::storage_service::{Durability, EngineKind, Footprint};

use crate::engine::Protocol;
use crate::equality::{self, Terms};
use crate::validated::{STATED_BY_USER, ValidatedArm};

/// Everything that one run asked and measured.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Version of this format; readers refuse a newer one.
    pub record_version: u32,
    /// The run's name.
    pub name: String,
    /// The version of storebench that ran it.
    pub storebench_version: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// How long it took, milliseconds.
    pub duration_millis: u64,
    /// Where it ran: `Embedded` or `Kubernetes`.
    pub driver: Driver,
    /// What was asked.
    pub spec: BenchmarkRunSpec,
    /// The arms as they were realised, in the spec's order.
    pub arms: Vec<ArmRecord>,
    /// Every trial of every arm, in the order they ran.
    pub trials: Vec<TrialRecord>,
    /// Where it ran.
    pub fingerprint: Fingerprint,
    /// What a reader must know before believing a number, found by the driver.
    pub caveats: Vec<String>,
    /// Why the run ended before its schedule did, such as `interrupted`. Absent: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// What loads of an embedded run could not remove from stores that were there already. In a cluster it stands in the reason of the
    /// trial's failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
}

/// Keys in a store that was there already which a load had written and could not remove. Nobody else will.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftBehind {
    /// The arm's name.
    pub arm: String,
    /// The workload's name.
    pub workload: String,
    /// What the names of all of them begin with.
    pub prefix: String,
    /// The command that removes them.
    pub removal: String,
}

impl LeftBehind {
    /// Without the command.
    pub fn in_words(&self) -> String {
        let Self { workload, prefix, .. } = self;
        format!("{workload}: what the load wrote could not be removed: keys that begin with {prefix} stay in the store")
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}; to remove them: {}", self.in_words(), self.removal)
    }
}

/// The current [`RunRecord::record_version`].
pub const RECORD_VERSION: u32 = 1;

/// What realised the plans.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Driver {
    /// Child processes on loopback.
    Embedded,
    /// Pods.
    Kubernetes,
}

/// One arm as it was realised.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArmRecord {
    /// The arm's name.
    pub name: String,
    /// Whether the others are compared with it.
    pub baseline: bool,
    /// The StorageService's name; of a cluster that was there already, the name of its Secret.
    pub service: String,
    /// The store. Absent: it is under a cluster that was there already, and not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineKind>,
    /// The version as the server reported it; absent until it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version that the folder of its executable names, where the executable says another. Absent: they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_version: Option<String>,
    /// What an acknowledged write survives. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// The engine's own settings that give this durability, such as `appendonly yes, appendfsync always`.
    pub durability_setting: String,
    /// Members; 0 where it is not known.
    pub replicas: u32,
    /// What else bears on its performance, by field, in words; see [`crate::equality`]. Absent: not known, as in records from before
    /// it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<BTreeMap<ArmField, String>>,
    /// The control plane that is loaded. Absent: the store itself is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneRecord>,
    /// The first member's command line, with directories and ports as they were in the last trial.
    pub command: Vec<String>,
    /// Why the arm could not be started here. Absent: it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
}

impl RunRecord {
    /// How many trials have run, and of which arms: `11 trials (redis 6, valkey 5)`.
    pub fn trials_in_words(&self) -> String {
        let count = self.trials.len();
        let trials = if count == 1 { "1 trial".into() } else { format!("{count} trials") };
        let of = |arm: &ArmRecord| {
            let own = self.trials.iter().filter(|trial| trial.arm == arm.name).count();
            (own > 0).then(|| format!("{} {own}", arm.name))
        };
        let arms: Vec<String> = self.arms.iter().filter_map(of).collect();
        if self.arms.len() > 1 && count > 0 { format!("{trials} ({})", arms.join(", ")) } else { trials }
    }
}

impl ArmRecord {
    /// An arm as it is planned: without what shows where it is realised, such as the version.
    pub fn of(arm: &ValidatedArm) -> Self {
        let service = arm.service();
        let external = arm.external();
        let cluster = arm.cluster();
        let stated = external.map(|store| store.durability).or(cluster.and_then(|cluster| cluster.durability));
        let name = service.map(|service| &service.name).or(external.map(|store| &store.name));
        Self {
            name: arm.name.clone(),
            baseline: arm.baseline,
            service: name.or(cluster.map(|cluster| &cluster.secret)).cloned().unwrap_or_default(),
            engine: service.map(|service| service.engine.kind).or(external.map(|store| store.engine.kind)),
            version: None,
            folder_version: None,
            durability: service.map(|service| service.durability).or(stated),
            durability_setting: match (service, stated) {
                (Some(service), _) => service.durability_class.setting.to_owned(),
                (None, Some(_)) => STATED_BY_USER.into(),
                (None, None) => String::new(),
            },
            replicas: service.map(|service| service.replicas).or(external.map(|_| 1)).unwrap_or_default(),
            fields: Some(equality::fields(arm)),
            control_plane: arm.control_plane().map(|plane| ControlPlaneRecord {
                name: plane.name.clone(),
                kubernetes_version: plane.kubernetes_version.clone(),
                nodes: plane.nodes,
            }),
            command: Vec::new(),
            unavailable: None,
        }
    }

    /// What it promised and stood on.
    pub fn terms(&self) -> Terms {
        let protocol = self.engine.map(|engine| engine.engine().protocol);
        Terms {
            durability: self.durability,
            replicas: self.replicas,
            has_lease_level: protocol.is_some_and(Protocol::has_lease_level),
            has_streaming_door: protocol.is_some_and(Protocol::has_streaming_door),
            fields: self.fields.clone(),
        }
    }

    /// Whether its store could be started.
    pub fn is_available(&self) -> bool {
        self.unavailable.is_none()
    }

    /// Whether its store was there already, so that all that is known of it is what it says and what its owner states.
    pub fn is_external(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.contains_key(&ArmField::External))
    }

    /// On which nodes it may run, in words.
    pub fn pod(&self) -> Option<&String> {
        self.fields.as_ref()?.get(&ArmField::Pod)
    }
}

/// A control plane as it was realised.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneRecord {
    /// The ControlPlane's name.
    pub name: String,
    /// The version of Kubernetes.
    pub kubernetes_version: String,
    /// Simulated nodes.
    pub nodes: u32,
}

/// Why an arm could not be started here.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unavailable {
    /// What is missing.
    pub reason: String,
    /// The exact command that would install it.
    pub install: String,
}

/// One trial of one arm.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialRecord {
    /// Counts from 0; every arm runs once in each.
    pub index: u32,
    /// The arm's name.
    pub arm: String,
    /// What became of it.
    pub state: TrialState,
    /// Why it is not valid, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<TrialFailure>,
    /// When it began, milliseconds after the run did.
    pub started_millis: u64,
    /// How long it took, start-up included, milliseconds.
    pub duration_millis: u64,
    /// How long the driver had to wait after this trial until other processes had become quiet, milliseconds. Absent: it did
    /// not have to, or they did not become quiet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_millis: Option<u64>,
    /// On which nodes of a cluster its parts ran: `load-0`, `store-1`, `control-plane-0`, companions by their role; see
    /// [`crate::placement`]. Empty: not known, or embedded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, String>,
    /// What was measured, for each workload that ran to its end.
    pub workloads: Vec<WorkloadMeasurement>,
    /// What the idle store cost. Absent where it never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<Footprint>,
    /// What the store used between its first answer and the first workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Usage>,
    /// Space taken on disk after the last workload, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// Why a trial is not valid.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialFailure {
    /// Whose doing it was, which decides whether the trial may be repeated.
    pub cause: FailureCause,
    /// What happened, in one line.
    pub detail: String,
}

/// Whose doing a failure was.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureCause {
    /// The store answered wrongly.
    WrongAnswer,
    /// The store failed, or never became ready.
    StoreFailed,
    /// What was asked cannot be done here, such as a rate out of reach.
    OutOfReach,
    /// Something outside the store disturbed the measurement; a repetition may fare better.
    Disturbed,
    /// The platform itself failed, or was interrupted.
    Platform,
}

impl FailureCause {
    /// The place of a cause among all, of which the gravest has 0.
    pub fn rank(self) -> usize {
        match self {
            Self::WrongAnswer => 0,
            Self::StoreFailed => 1,
            Self::OutOfReach => 2,
            Self::Platform => 3,
            Self::Disturbed => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_causes_are_as_grave_as_each_other() {
        // The schema knows all of them.
        let schema = serde_json::to_value(schemars::schema_for!(FailureCause)).unwrap();
        let names = schema["oneOf"].as_array().unwrap().iter().map(|one| one["const"].clone());
        let mut causes: Vec<FailureCause> = names.map(|name| serde_json::from_value(name).unwrap()).collect();
        causes.sort_by_key(|cause| cause.rank());
        let ranks: Vec<usize> = causes.iter().map(|cause| cause.rank()).collect();
        assert_eq!(ranks, (0..causes.len()).collect::<Vec<_>>(), "{causes:?}");
        assert_eq!(causes.first(), Some(&FailureCause::WrongAnswer));
        assert_eq!(causes.last(), Some(&FailureCause::Disturbed));
    }
}
