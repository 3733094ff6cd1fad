//! In what the circumstances of two runs differ, by what it is that differs.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::fingerprint::of_workload;
use crate::record::{ArmRecord, RunRecord};

/// What a difference is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// Where it ran: the machine, its kernel, its disk's file system.
    Machine,
    /// What made the load: storebench itself.
    Loader,
    /// What was loaded: executables and settings of the arms.
    Services,
    /// What was asked.
    Spec,
}

impl Part {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Loader => "loader",
            Self::Services => "services",
            Self::Spec => "spec",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What it is one of.
    pub part: Part,
    /// What differs.
    pub what: String,
    /// What it was in the first run.
    pub before: String,
    /// What it was in the second.
    pub after: String,
}

/// All differences, in the order of [`Part`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Differences(pub Vec<Difference>);

impl Differences {
    /// In what two runs differ.
    pub fn of(before: &RunRecord, after: &RunRecord) -> Self {
        let mut found = Vec::new();
        let mut add = |part, what: &str, before: String, after: String| {
            if before != after {
                found.push(Difference { part, what: what.into(), before, after });
            }
        };
        add(Part::Machine, "driver", format!("{:?}", before.driver), format!("{:?}", after.driver));
        let facts = [&before.fingerprint.facts, &after.fingerprint.facts];
        let names: BTreeSet<&String> = facts.iter().flat_map(|facts| facts.keys()).collect();
        for name in names {
            let [one, other] = facts.map(|facts| facts.get(name).cloned().unwrap_or_else(|| "not known".into()));
            add(part_of(name), name, one, other);
        }
        for arm in &before.arms {
            if let Some(other) = after.arms.iter().find(|other| other.name == arm.name) {
                found.extend(of_arms(arm, other));
            }
        }
        let mut add = |what: &str, before: String, after: String| {
            if before != after {
                found.push(Difference { part: Part::Spec, what: what.into(), before, after });
            }
        };
        let (one, other) = (&before.spec, &after.spec);
        add("isolation", format!("{:?}", one.isolation), format!("{:?}", other.isolation));
        add("parallelism", one.parallelism.to_string(), other.parallelism.to_string());
        for workload in &one.workloads {
            if let Some(other) = other.workloads.iter().find(|other| other.name == workload.name) {
                add(&format!("workload {}", workload.name), of_workload(workload), of_workload(other));
            }
        }
        found.sort_by_key(|difference| difference.part);
        Self(found)
    }

    /// Those of one part.
    pub fn of_part(&self, part: Part) -> impl Iterator<Item = &Difference> {
        self.0.iter().filter(move |difference| difference.part == part)
    }
}

/// What a fact of a fingerprint is one of. Both drivers name the facts of stores after them.
fn part_of(fact: &str) -> Part {
    let is_of_services = ["service ", "control plane ", "image of "].iter().any(|start| fact.starts_with(start))
        || fact.contains(" of ");
    match fact {
        "storebench" | "operator build" | "load image" | "image of the load" => Part::Loader,
        "processor requests" | "kubernetes images" => Part::Services,
        _ if is_of_services => Part::Services,
        _ => Part::Machine,
    }
}

/// The executables of an arm, where the fingerprint has them: embedded the file with its digest, and what runs beside it, such as the store of a
/// replicator; in a cluster the names of the images of all of these, and the digests that the names meant on the nodes.
pub(super) fn executables<'a>(record: &'a RunRecord, arm: &ArmRecord) -> Vec<(&'a String, &'a String)> {
    let store = format!("service {}", arm.service);
    let [of_arm, of_service] = [&arm.name, &arm.service].map(|name| format!(" of {name}"));
    // Digests of images have the names of arms, of which one may be called like another's service.
    let whose = |fact: &str| if fact.starts_with("image of ") { of_arm.as_str() } else { of_service.as_str() };
    let is_of_arm = |fact: &str| fact == store || fact.ends_with(whose(fact));
    record.fingerprint.facts.iter().filter(|(fact, _)| is_of_arm(fact.as_str())).collect()
}

/// In what two arms of a name differ besides their executables.
pub(super) fn of_arms(before: &ArmRecord, after: &ArmRecord) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |what: &str, one: String, other: String| {
        if one != other {
            let what = format!("{what} of arm {}", before.name);
            found.push(Difference { part: Part::Services, what, before: one, after: other });
        }
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known".into());
    add(
        "engine",
        known(before.engine.map(|one| format!("{one:?}"))),
        known(after.engine.map(|one| format!("{one:?}"))),
    );
    add("version", known(before.version.clone()), known(after.version.clone()));
    add(
        "durability",
        known(before.durability.map(|one| format!("{one:?}"))),
        known(after.durability.map(|one| format!("{one:?}"))),
    );
    add("durability's setting", before.durability_setting.clone(), after.durability_setting.clone());
    add("members", before.replicas.to_string(), after.replicas.to_string());
    let plane = |arm: &ArmRecord| {
        arm.control_plane
            .as_ref()
            .map(|plane| format!("Kubernetes {}, {} nodes", plane.kubernetes_version, plane.nodes))
    };
    add("control plane", known(plane(before)), known(plane(after)));
    let fields: BTreeSet<_> =
        [before, after].into_iter().filter_map(|arm| arm.fields.as_ref()).flat_map(|all| all.keys()).collect();
    for field in fields {
        let of = |arm: &ArmRecord| match &arm.fields {
            Some(fields) => fields.get(field).cloned().unwrap_or_else(|| "none".into()),
            None => known(None),
        };
        add(field.name(), of(before), of(after));
    }
    found
}
