//! A run's record as a cluster keeps it: a head that is written when the run begins, and one file for each trial of an arm,
//! written once when it ends. Together they are the record that everything else is derived from.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use storebench_crds::status::SealedTrials;

use crate::fingerprint;
use crate::ledger::repeat_what_lies_apart;
use crate::placement;
use crate::record::{RunRecord, TrialRecord};

/// The key of the head in the ConfigMap that `status.reportRef` names.
pub const HEAD_KEY: &str = "record.json";
/// The key of what a BenchmarkBaseline keeps in its ConfigMap: [`crate::across::Figures`].
pub const FIGURES_KEY: &str = "figures.json";
/// The key of what a run is held against beside its head: [`crate::across::Baseline`].
pub const BASELINE_KEY: &str = "baseline.json";
/// The key of a trial's file in the ConfigMap of the trial.
pub const TRIAL_KEY: &str = "trial.json";
/// The label by which all ConfigMaps of a run are found; its value is the run's name.
pub const RUN_LABEL: &str = "storebench.dev/run";
/// The label of what a BenchmarkBaseline keeps; its value is the baseline's name.
pub const BASELINE_LABEL: &str = "storebench.dev/baseline";
/// The label that tells the ConfigMaps of trials and report from everything else of a run; its value is [`RECORD_COMPONENT`].
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// See [`COMPONENT_LABEL`].
pub const RECORD_COMPONENT: &str = "record";

/// The annotation of head and trials with their signature, Base64.
pub const SIGNATURE_ANNOTATION: &str = "storebench.dev/signature";

/// What the operator signs of a ConfigMap: its data, whose it is, and its name. A file of another run or another trial is none
/// of this one.
pub fn signed(run_uid: &str, name: &str, data: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = b"storebench record 1".to_vec();
    let parts = [run_uid, name].into_iter().chain(data.iter().flat_map(|(key, text)| [key.as_str(), text.as_str()]));
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

/// Whether a signature was made over these bytes with the key that this public key belongs to; both Base64, Ed25519.
pub fn is_signed(public_key: &str, bytes: &[u8], signature: &str) -> bool {
    let (Ok(key), Ok(signature)) = (STANDARD.decode(public_key), STANDARD.decode(signature)) else { return false };
    UnparsedPublicKey::new(&ED25519, key).verify(bytes, &signature).is_ok()
}

/// The hash of a run's ConfigMap: SHA-256 over what is signed of it, 64 hexadecimal digits.
pub fn hash(run_uid: &str, name: &str, data: &BTreeMap<String, String>) -> String {
    hexadecimal(&signed(run_uid, name, data))
}

/// The digest of a list of trials, given the hashes of their ConfigMaps by name: 64 hexadecimal digits.
pub fn digest(hashes: &BTreeMap<String, String>) -> String {
    hexadecimal(hashes.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect::<String>().as_bytes())
}

/// What the operator signs of a complete run's list of trials.
pub fn signed_digest(run_uid: &str, digest: &str) -> Vec<u8> {
    // No ConfigMap has such a name.
    signed(run_uid, "all trials", &BTreeMap::from([("digest".to_owned(), digest.to_owned())]))
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether these are the trials that a verdict was found from, given the hashes of their ConfigMaps by name.
///
/// # Errors
/// [`NotSealed`]: the list is another, or nobody who has this key's other half signed it.
pub fn check_sealed(
    sealed: &SealedTrials,
    public_key: &str,
    run_uid: &str,
    hashes: &BTreeMap<String, String>,
) -> Result<(), NotSealed> {
    if !is_signed(public_key, &signed_digest(run_uid, &sealed.digest), &sealed.signature) {
        return Err(NotSealed::Forged);
    }
    if digest(hashes) != sealed.digest {
        return Err(NotSealed::Other { found: hashes.len(), sealed: sealed.count });
    }
    Ok(())
}

/// A list of trials that is not the one that was judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSealed {
    /// Trials were deleted or replaced.
    #[error(
        "{found} of its trials are here, and its verdict was found from {sealed}: what is left is no whole record, so run it again"
    )]
    Other {
        /// How many there are.
        found: usize,
        /// How many there were.
        sealed: u32,
    },
    /// The list was signed by somebody else.
    #[error("the operator did not sign the list of trials in its status: run it again")]
    Forged,
}

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

/// The whole record: trials in the order they ran, and what they taught about arms and machines. A trial whose arms lie too far apart is one to
/// be repeated: files are signed when they are written, and nobody knows then when the next arm will run. `has_ended`: nobody will.
pub fn assemble(mut head: RunRecord, mut files: Vec<TrialFile>, has_ended: bool) -> RunRecord {
    files.sort_by_key(|file| (file.trial.started_millis, file.trial.index, file.trial.arm.clone()));
    let mut end_millis = 0;
    head.fingerprint.facts.extend(facts(&files));
    let nodes = placement::fact(files.iter().map(|file| &file.trial));
    head.fingerprint.facts.extend(nodes.map(|nodes| ("nodes".to_owned(), nodes)));
    for file in files {
        end_millis = end_millis.max(file.trial.started_millis + file.trial.duration_millis);
        if let Some(arm) = head.arms.iter_mut().find(|arm| arm.name == file.trial.arm) {
            arm.version = file.version.or(arm.version.take());
            if !file.command.is_empty() {
                arm.command = file.command;
            }
        }
        head.trials.push(file.trial);
    }
    head.fingerprint = fingerprint::of(std::mem::take(&mut head.fingerprint.facts));
    head.duration_millis = head.duration_millis.max(end_millis);
    repeat_what_lies_apart(&mut head, has_ended);
    head
}

/// The facts of all trials. One that was not the same in all has every value that it had, each with the nodes on which it was read.
fn facts(files: &[TrialFile]) -> BTreeMap<String, String> {
    let mut values: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for file in files {
        let of_store = |part: &str| part.starts_with(placement::STORE);
        let nodes = file.trial.nodes.iter().filter(|(part, _)| of_store(part)).map(|(_, node)| node.as_str());
        let nodes: Vec<&str> = nodes.collect();
        for (name, value) in &file.facts {
            values.entry(name).or_default().entry(value).or_default().extend(&nodes);
        }
    }
    let in_words = |value: &str, nodes: BTreeSet<&str>| match nodes.is_empty() {
        true => value.to_owned(),
        false => format!("{value} ({})", nodes.into_iter().collect::<Vec<_>>().join(", ")),
    };
    let joined = |values: BTreeMap<&str, BTreeSet<&str>>| match values.len() {
        1 => values.into_keys().collect(),
        _ => values.into_iter().map(|(value, nodes)| in_words(value, nodes)).collect::<Vec<_>>().join("; "),
    };
    values.into_iter().map(|(name, values)| (name.to_owned(), joined(values))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    fn head() -> RunRecord {
        let text = r#"{ "recordVersion": 1, "name": "r", "storebenchVersion": "0", "startedAt": "2026-01-01T00:00:00Z",
            "durationMillis": 0, "driver": "Kubernetes", "spec": { "arms": [], "workloads": [] }, "arms": [], "trials": [],
            "fingerprint": { "hash": "", "facts": { "storebench": "0" } }, "caveats": [] }"#;
        read_head("head", text).unwrap()
    }

    fn file(index: u32, node: &str, kernel: &str) -> TrialFile {
        let text = format!(
            r#"{{ "trial": {{ "index": {index}, "arm": "a", "state": "Valid", "startedMillis": {index}, "durationMillis": 1,
                "workloads": [], "nodes": {{ "store-0": "{node}", "load-0": "n9" }} }},
                "facts": {{ "kernel": "{kernel}", "memory": "8 GiB" }} }}"#
        );
        read_trial("file", &text).unwrap()
    }

    #[test]
    fn the_last_nodes_facts_do_not_hide_the_others() {
        let record = assemble(head(), vec![file(0, "n1", "6.1"), file(1, "n2", "6.2"), file(2, "n1", "6.1")], false);
        let facts = &record.fingerprint.facts;
        assert_eq!(facts["kernel"], "6.1 (n1); 6.2 (n2)");
        assert_eq!((facts["memory"].as_str(), facts["storebench"].as_str()), ("8 GiB", "0"));
        assert_eq!(facts["nodes"], "load on n9; store on n1, n2", "another machine of the same kind is another");
        let again = assemble(
            RunRecord { trials: Vec::new(), ..record.clone() },
            vec![file(0, "n1", "6.1"), file(1, "n2", "6.2")],
            false,
        );
        assert_eq!(again.fingerprint, record.fingerprint, "what was put together once is put together alike");
    }

    #[test]
    fn a_list_of_which_a_trial_was_deleted_or_replaced_is_not_what_was_judged() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = STANDARD.encode(pair.public_key());
        let data = |text: &str| BTreeMap::from([(TRIAL_KEY.to_owned(), text.to_owned())]);
        let of = |name: &str, text: &str| (name.to_owned(), hash("uid", name, &data(text)));
        let all = BTreeMap::from([of("r-0-a", "1"), of("r-0-b", "2"), of("r-1-a", "3")]);
        let digest = digest(&all);
        let signature = STANDARD.encode(pair.sign(&signed_digest("uid", &digest)));
        let sealed = SealedTrials { count: 3, digest, signature };
        assert_eq!(check_sealed(&sealed, &key, "uid", &all), Ok(()));
        let mut shorter = all.clone();
        shorter.remove("r-1-a");
        let refused = check_sealed(&sealed, &key, "uid", &shorter).unwrap_err();
        assert_eq!(refused, NotSealed::Other { found: 2, sealed: 3 });
        let replaced = all.clone().into_iter().chain([of("r-1-a", "4")]).collect();
        assert!(check_sealed(&sealed, &key, "uid", &replaced).is_err());
        let fitting = SealedTrials { digest: super::digest(&shorter), ..sealed.clone() };
        assert_eq!(check_sealed(&fitting, &key, "uid", &shorter), Err(NotSealed::Forged));
        assert_eq!(check_sealed(&sealed, &key, "another", &all), Err(NotSealed::Forged));
    }

    #[test]
    fn a_signature_holds_for_one_file_of_one_run_and_no_other() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = STANDARD.encode(pair.public_key());
        let data = |text: &str| BTreeMap::from([(TRIAL_KEY.to_owned(), text.to_owned())]);
        let bytes = signed("uid", "run-0-a", &data("{}"));
        let signature = STANDARD.encode(pair.sign(&bytes));
        assert!(is_signed(&key, &bytes, &signature));
        for other in [
            signed("uid", "run-0-a", &data("{ }")),
            signed("uid", "run-1-a", &data("{}")),
            signed("uid-2", "run-0-a", &data("{}")),
            signed("ui", "drun-0-a", &data("{}")),
        ] {
            assert!(!is_signed(&key, &other, &signature));
        }
        assert!(!is_signed(&key, &bytes, "") && !is_signed("no key", &bytes, &signature));
    }
}
