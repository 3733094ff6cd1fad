//! A run's record as a cluster keeps it: a head that is written when the run begins, and one file for each trial of an arm,
//! written once when it ends. Together they are the record that everything else is derived from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fingerprint;
use crate::record::{RunRecord, TrialRecord};

/// The key of the head in the ConfigMap that `status.reportRef` names.
pub const HEAD_KEY: &str = "record.json";
/// The key of a trial's file in the ConfigMap of the trial.
pub const TRIAL_KEY: &str = "trial.json";
/// The label by which all ConfigMaps of a run are found; its value is the run's name.
pub const RUN_LABEL: &str = "storebench.dev/run";
/// The label that tells the ConfigMaps of trials and report from everything else of a run; its value is [`RECORD_COMPONENT`].
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// See [`COMPONENT_LABEL`].
pub const RECORD_COMPONENT: &str = "record";

/// One trial of one arm, with what was learned about the arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialFile {
    /// What was measured.
    pub trial: TrialRecord,
    /// The version as the server reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The first member's command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Facts about the machines of the store, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {key} is not what storebench {} writes: {source}", env!("CARGO_PKG_VERSION"))]
pub struct ArchiveError {
    name: String,
    key: &'static str,
    source: serde_json::Error,
}

/// Reads a head. `name` is that of the ConfigMap, for messages.
pub fn read_head(name: &str, text: &str) -> Result<RunRecord, ArchiveError> {
    read(name, HEAD_KEY, text)
}

/// Reads a trial's file. `name` is that of the ConfigMap, for messages.
pub fn read_trial(name: &str, text: &str) -> Result<TrialFile, ArchiveError> {
    read(name, TRIAL_KEY, text)
}

fn read<T: serde::de::DeserializeOwned>(name: &str, key: &'static str, text: &str) -> Result<T, ArchiveError> {
    serde_json::from_str(text).map_err(|source| ArchiveError { name: name.into(), key, source })
}

/// The whole record: trials in the order they ran, and what they taught about arms and machines.
pub fn assemble(mut head: RunRecord, mut files: Vec<TrialFile>) -> RunRecord {
    files.sort_by_key(|file| (file.trial.started_millis, file.trial.index, file.trial.arm.clone()));
    let mut end_millis = 0;
    for file in files {
        end_millis = end_millis.max(file.trial.started_millis + file.trial.duration_millis);
        if let Some(arm) = head.arms.iter_mut().find(|arm| arm.name == file.trial.arm) {
            arm.version = file.version.or(arm.version.take());
            if !file.command.is_empty() {
                arm.command = file.command;
            }
        }
        head.fingerprint.facts.extend(file.facts);
        head.trials.push(file.trial);
    }
    head.fingerprint = fingerprint::of(std::mem::take(&mut head.fingerprint.facts));
    head.duration_millis = head.duration_millis.max(end_millis);
    head
}
