//! The file in TOML, and what the environment says in its place: `RAFT__CLUSTER__NODE_ID=2` is `node_id` of `[cluster]`. A word that nobody
//! knows is refused, by its line or by the variable's name.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Mistake, mistake};

/// Begins the environment's words.
const PREFIX: &str = "RAFT__";

/// A file as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) cluster: Cluster,
    pub(super) raft: Raft,
    pub(super) tls: Tls,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cluster {
    pub(super) node_id: Option<u64>,
    pub(super) listen_address: Option<String>,
    pub(super) initial_cluster: Vec<Node>,
    pub(super) db_root_dir: Option<PathBuf>,
    /// Our own.
    pub(super) group: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) address: String,
    /// Our own.
    pub(super) peer_address: Option<String>,
    #[serde(default, rename = "name")]
    _name: Option<String>,
    /// Without effect: members elect, and all that are named vote.
    pub(super) role: Option<i64>,
    pub(super) status: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raft {
    pub(super) general_raft_timeout_duration_in_ms: Option<u64>,
    /// Our own.
    pub(super) forward_dialect_writes: Option<bool>,
    pub(super) election: Election,
    pub(super) replication: Replication,
    pub(super) persistence: Persistence,
    pub(super) read_consistency: ReadConsistency,
    pub(super) state_machine: StateMachine,
    /// Our own.
    pub(super) clock_drift_ppm: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Election {
    pub(super) election_timeout_min: Option<u64>,
    /// Must be about twice the other: that is what it is.
    pub(super) election_timeout_max: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Replication {
    pub(super) rpc_append_entries_clock_in_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Persistence {
    pub(super) strategy: Option<String>,
    /// When the original's memory goes to disk; without effect.
    pub(super) flush_policy: Option<toml::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StateMachine {
    /// Our own.
    pub(super) storage: Option<String>,
    /// Our own.
    pub(super) cache_mib: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReadConsistency {
    pub(super) default_policy: Option<String>,
    /// Without effect: the lease follows from the election timeout and the drift.
    pub(super) lease_duration_ms: Option<u64>,
    pub(super) allow_client_override: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_authority: Option<PathBuf>,
    pub(super) peer_certificate: Option<PathBuf>,
    pub(super) peer_key: Option<PathBuf>,
    pub(super) peer_authority: Option<PathBuf>,
}

/// The file, a name and its text, with what the environment says.
pub(super) fn read(
    file: Option<(&str, &str)>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<File, Mistake> {
    let one_line = |error: &toml::de::Error| error.message().replace('\n', " ");
    let mut table = toml::Table::new();
    if let Some((name, text)) = file {
        let said = |error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            Mistake(format!("{name}: {line}{}", one_line(&error)))
        };
        // For its line numbers.
        toml::from_str::<File>(text).map_err(said)?;
        table = toml::from_str(text).map_err(said)?;
    }
    for (name, value) in environment {
        // What is not ours may be anything.
        let Some(name) = name.to_str() else { continue };
        let Some(words) = name.strip_prefix(PREFIX) else { continue };
        let Ok(value) = value.into_string() else { return mistake(format!("{name}: its value is not UTF-8")) };
        let words = words.to_lowercase();
        let words = words.split("__").collect::<Vec<_>>();
        let Some((last, before)) = words.split_last() else { continue };
        let mut here = &mut table;
        for word in before {
            let inner = here.entry(*word).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            let Some(inner) = inner.as_table_mut() else { return mistake(format!("{name}: there is no such word")) };
            here = inner;
        }
        // What is no value of TOML is text.
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| toml::Value::String(value.clone()));
        here.insert((*last).to_owned(), parsed);
        // At once: later it is not known whose mistake it is.
        let checked = toml::Value::Table(table.clone()).try_into::<File>();
        checked.map_err(|error| Mistake(format!("{name}={value}: {}", one_line(&error))))?;
    }
    toml::Value::Table(table).try_into().map_err(|error| Mistake(one_line(&error)))
}
