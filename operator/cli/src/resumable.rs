//! Whether a run that was begun can go on as the one that is asked for now: by the same storebench, with the same spec and services, on the same
//! machine. Errors name what differs.

use std::collections::BTreeMap;

use anyhow::bail;
use serde::Deserialize;
use storebench_core::record::{RECORD_VERSION, RunRecord};
use storebench_crds::Isolation;

/// Of a record, what can be read whatever wrote it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    record_version: u32,
    storebench_version: String,
}

/// What to do where it cannot.
pub(crate) const REMEDY: &str = "start anew with --save";

/// Whether it was begun by this storebench.
pub(crate) fn check_version(name: &str, head: &Head) -> anyhow::Result<()> {
    match head.record_version == RECORD_VERSION && head.storebench_version == env!("CARGO_PKG_VERSION") {
        true => Ok(()),
        false => bail!("--resume: {name} was begun by storebench {}: {REMEDY}", head.storebench_version),
    }
}

/// Whether further trials can follow those of a record. Where trials share stores, they cannot: those stores ended with their run.
pub(crate) fn check_stores_are_there(kept: &RunRecord) -> anyhow::Result<()> {
    if kept.spec.isolation == Isolation::Shared && !kept.trials.is_empty() {
        bail!("--resume: {} has isolation Shared, and what its trials left in its stores is gone: {REMEDY}", kept.name);
    }
    Ok(())
}

/// Whether a record is of the run that is asked for now, on the same machine. Errors name what differs.
pub(crate) fn check_same(kept: &RunRecord, now: &RunRecord, services_are_same: bool) -> anyhow::Result<()> {
    let (name, remedy) = (&now.name, REMEDY);
    if kept.spec != now.spec {
        bail!("--resume: {name} was begun with another spec than the file has now: restore it, or {remedy}");
    }
    let settings = |record: &RunRecord| {
        let arms = record.arms.iter().map(|arm| {
            let setting = (arm.durability_setting.clone(), arm.replicas, arm.control_plane.clone());
            (arm.name.clone(), arm.engine, arm.version.clone(), setting)
        });
        arms.collect::<Vec<_>>()
    };
    if settings(kept) != settings(now) || !services_are_same {
        bail!(
            "--resume: {name} was begun with other services or versions than there are now: restore them, or {remedy}"
        );
    }
    let (before, after) = (&kept.fingerprint.facts, &now.fingerprint.facts);
    let differs = |fact: &&String| before.get(*fact) != after.get(*fact);
    if let Some(fact) = before.keys().chain(after.keys()).find(differs) {
        let of = |facts: &BTreeMap<String, String>| facts.get(fact).cloned().unwrap_or("unknown".into());
        bail!("--resume: {name} was begun where {fact} was {}, and here it is {}: {remedy}", of(before), of(after));
    }
    Ok(())
}
