//! The file in TOML, and what the environment says in its place: `RAFT__CLUSTER__NODE_ID=2` is `node_id` of `[cluster]`. A word that nobody
//! knows is refused, by its line or by the variable's name.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

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
    /// Who has said all this, with a colon, for what is wrong with it.
    #[serde(skip)]
    pub(super) said_by: String,
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
    let mut table = toml::Table::new();
    if let Some((name, text)) = file {
        // For its line numbers.
        check(text).map_err(|said| Mistake(format!("{name}: {said}")))?;
        table = toml::from_str(text).map_err(|error| Mistake(format!("{name}: {}", one_line(&error))))?;
    }
    let mut of_environment = false;
    for (name, value) in environment {
        // What is not ours may be anything.
        let Some(name) = name.to_str() else { continue };
        let Some(words) = name.strip_prefix(PREFIX) else { continue };
        let Ok(value) = value.into_string() else { return mistake(format!("{name}: its value is not UTF-8")) };
        let words = words.to_lowercase();
        let words = words.split("__").collect::<Vec<_>>();
        let Some((last, before)) = words.split_last() else { continue };
        of_environment = true;
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
    let read: File = toml::Value::Table(table).try_into().map_err(|error| Mistake(one_line(&error)))?;
    let said_by = match (file, of_environment) {
        (Some((name, _)), false) => format!("{name}: "),
        (Some((name, _)), true) => format!("{name}, or the environment (RAFT__…): "),
        (None, _) => "the environment (RAFT__…): ".to_owned(),
    };
    Ok(File { said_by, ..read })
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

/// What is wrong with a file's text, by its lines: the first mistake; of words that nobody knows all, so that not each costs a start.
fn check(text: &str) -> Result<(), String> {
    let said = |error: &toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{line}{}", one_line(error))
    };
    let mut table = DeTable::parse(text).map_err(|error| said(&error))?;
    let mut unknown = Vec::new();
    while let Err(error) = File::deserialize(Deserializer::from(table.clone())) {
        let word = error.span().filter(|_| error.message().starts_with("unknown field"));
        let is_left_out = word.is_some_and(|word| leave_out(table.get_mut(), &word));
        if is_left_out {
            unknown.push((error.span().map(|word| word.start), said(&error)));
        } else if unknown.is_empty() {
            return Err(said(&error));
        } else {
            break;
        }
    }
    unknown.sort();
    let unknown: Vec<String> = unknown.into_iter().map(|(_, said)| said).collect();
    if unknown.is_empty() { Ok(()) } else { Err(unknown.join("; ")) }
}

/// Removes the word that stands there; whether there was one.
fn leave_out(table: &mut DeTable<'_>, word: &Range<usize>) -> bool {
    fn in_value(value: &mut DeValue<'_>, word: &Range<usize>) -> bool {
        match value {
            DeValue::Table(table) => leave_out(table, word),
            DeValue::Array(array) => array.iter_mut().any(|value| in_value(value.get_mut(), word)),
            _ => false,
        }
    }
    match table.keys().find(|key| key.span() == *word).cloned() {
        Some(key) => table.remove(&key).is_some(),
        None => table.iter_mut().any(|(_, value)| in_value(value.get_mut(), word)),
    }
}
