//! On which nodes of a cluster the parts of a trial ran, and where those of the next are to run. Pure: the driver brings the nodes.
//!
//! A pair of trials is one only where both ran on the same nodes: two machines of one kind differ by more than many stores do. So the
//! trials of a run stay where its first ones ran ([`pins`]), and arms of which a trial ran elsewhere are not ranked ([`apart`]).
//!
//! A part is called by its group and a number, such as `store-1` and `load-0`; groups are [`LOAD`], [`STORE`], [`CONTROL_PLANE`], and
//! the companions' roles.

use std::collections::{BTreeMap, BTreeSet};

use storebench_crds::status::TrialState;

use crate::ledger::{complete_indexes, number};
use crate::record::{Driver, RunRecord, TrialRecord};

/// The group of the load's pods.
pub const LOAD: &str = "load";
/// The group of a store's members.
pub const STORE: &str = "store";
/// The group of a control plane's pod.
pub const CONTROL_PLANE: &str = "control-plane";

/// The nodes that each group of parts is to stay on. A group that is absent may go anywhere.
pub type Pins = BTreeMap<String, BTreeSet<String>>;

/// What a part is called.
pub fn part(group: &str, number: usize) -> String {
    format!("{group}-{number}")
}

fn group(part: &str) -> &str {
    part.rsplit_once('-').map_or(part, |(group, _)| group)
}

/// The nodes of a trial by group, sorted; one of several parts counts as often.
fn by_group(trial: &TrialRecord) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (part, node) in &trial.nodes {
        groups.entry(group(part)).or_default().push(node);
    }
    groups.values_mut().for_each(|nodes| nodes.sort_unstable());
    groups
}

/// On which nodes all these trials ran, by group, as a fact of where a run ran. `None`: not known, or embedded.
pub fn fact<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Option<String> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, nodes) in trials.flat_map(by_group) {
        groups.entry(group).or_default().extend(nodes);
    }
    let words = groups.into_iter().map(|(group, nodes)| {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        format!("{group} on {}", nodes.join(", "))
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Where the parts of the next trial of an arm are to run: each group where it ran in the run's first trial, of whichever arm.
///
/// Trials that are to be repeated do not count, so that a node that is gone since the first of them holds up nobody. Nor do, but for
/// the load, those of arms that may not run on the same nodes or have another number of members.
pub fn pins(record: &RunRecord, arm: &str) -> Pins {
    let is_repeated =
        |index: u32| record.trials.iter().any(|trial| trial.index == index && trial.state == TrialState::Invalid);
    let alike = |other: &str| match (of(record, arm), of(record, other)) {
        (Some(one), Some(other)) => one.replicas == other.replicas && one.pod() == other.pod(),
        _ => false,
    };
    let mut trials: Vec<&TrialRecord> = record.trials.iter().filter(|trial| !is_repeated(trial.index)).collect();
    trials.sort_by_key(|trial| trial.started_millis);
    let mut pins = Pins::new();
    for trial in trials {
        for (group, nodes) in by_group(trial) {
            if (group == LOAD || alike(&trial.arm)) && !pins.contains_key(group) {
                pins.insert(group.to_owned(), nodes.into_iter().map(str::to_owned).collect());
            }
        }
    }
    pins
}

fn of<'a>(record: &'a RunRecord, arm: &str) -> Option<&'a crate::record::ArmRecord> {
    record.arms.iter().find(|one| one.name == arm)
}

/// In which of the pairs of two arms their parts ran on different nodes, in words. `None`: in none, or embedded. That it is not known
/// is told as well: a cluster may have several.
pub fn apart(record: &RunRecord, arm: &str, baseline: &str) -> Option<String> {
    if record.driver == Driver::Embedded {
        return None;
    }
    let trial = |index: u32, arm: &str| record.trials.iter().find(|one| one.index == index && one.arm == arm);
    for index in complete_indexes(&[arm, baseline], &record.trials) {
        let (Some(one), Some(other)) = (trial(index, arm), trial(index, baseline)) else { continue };
        if one.nodes.is_empty() || other.nodes.is_empty() {
            return Some("on which nodes they ran is not known: run again".into());
        }
        let (ones, others) = (by_group(one), by_group(other));
        for (group, nodes) in ones {
            let Some(theirs) = others.get(group).filter(|theirs| theirs.len() == nodes.len()) else { continue };
            if nodes != *theirs {
                return Some(format!(
                    "in trial {} the {group} of {arm} ran on {}, and that of {baseline} on {}",
                    number(&record.trials, index),
                    nodes.join(", "),
                    theirs.join(", ")
                ));
            }
        }
    }
    None
}

/// That an arm's trials did not all run on the same nodes, in words: whoever compares its numbers over time compares nodes, too.
pub fn moved(record: &RunRecord, arm: &str) -> Option<String> {
    let indexes = complete_indexes(&[arm], &record.trials);
    let counted = record.trials.iter().filter(|trial| trial.arm == arm && indexes.contains(&trial.index));
    let mut known: Option<BTreeMap<&str, Vec<&str>>> = None;
    for trial in counted.filter(|trial| !trial.nodes.is_empty()) {
        let groups = by_group(trial);
        let Some(first) = &known else {
            known = Some(groups);
            continue;
        };
        if let Some((group, nodes)) = groups.iter().find(|(group, nodes)| first.get(*group) != Some(*nodes)) {
            let before = first.get(group).map(|nodes| nodes.join(", ")).unwrap_or_default();
            let (number, now) = (number(&record.trials, trial.index), nodes.join(", "));
            return Some(format!("the {group} of {arm} ran on {now} in trial {number}, and on {before} before"));
        }
    }
    None
}

/// On which nodes the parts of all counted trials ran, one line for each way, such as `load-0 on n1, store-0 on n2`.
pub fn in_words(record: &RunRecord) -> Vec<String> {
    let mut ways: BTreeMap<String, usize> = BTreeMap::new();
    for trial in record.trials.iter().filter(|trial| trial.state == TrialState::Valid && !trial.nodes.is_empty()) {
        let parts: Vec<String> = trial.nodes.iter().map(|(part, node)| format!("{part} on {node}")).collect();
        *ways.entry(parts.join(", ")).or_default() += 1;
    }
    ways.into_iter().map(|(way, trials)| format!("{trials} trials: {way}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Index, arm, state, and the nodes of the parts.
    type Ran<'a> = (u32, &'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn record(trials: &[Ran]) -> RunRecord {
        let trials: Vec<_> = trials
            .iter()
            .enumerate()
            .map(|(order, (index, arm, state, nodes))| {
                json!({
                    "index": index, "arm": arm, "state": state, "startedMillis": order, "durationMillis": 1, "workloads": [],
                    "nodes": nodes.iter().copied().collect::<BTreeMap<_, _>>(),
                })
            })
            .collect();
        let arm = |name: &str, replicas: u32, fields: serde_json::Value| {
            json!({ "name": name, "baseline": name == "a", "service": name, "engine": "Etcd", "durability": "Fsync",
                "durabilitySetting": "", "replicas": replicas, "fields": fields, "command": [] })
        };
        serde_json::from_value(json!({
            "recordVersion": 1, "name": "r", "storebenchVersion": "0", "startedAt": "2026-01-01T00:00:00Z",
            "durationMillis": 0, "driver": "Kubernetes", "spec": { "arms": [], "workloads": [] },
            "arms": [arm("a", 1, json!({})), arm("b", 1, json!({})), arm("three", 3, json!({})),
                arm("elsewhere", 1, json!({ "pod": "on fast disks" }))],
            "trials": trials, "fingerprint": { "hash": "", "facts": {} }, "caveats": [],
        }))
        .unwrap()
    }

    fn nodes(pins: &Pins, group: &str) -> Vec<String> {
        pins.get(group).into_iter().flatten().cloned().collect()
    }

    #[test]
    fn on_three_nodes_both_arms_and_their_loads_stay_where_the_first_trial_ran() {
        let mut record = record(&[]);
        assert_eq!(pins(&record, "a"), Pins::new(), "the first may go anywhere");
        record = self::record(&[(0, "a", "Valid", &[("store-0", "n2"), ("load-0", "n3")])]);
        for arm in ["a", "b"] {
            let pins = pins(&record, arm);
            assert_eq!(
                (nodes(&pins, STORE), nodes(&pins, LOAD)),
                (vec!["n2".to_owned()], vec!["n3".to_owned()]),
                "{arm}"
            );
        }
        // Arms that cannot be on those nodes, or are more, choose their own; the load is the same.
        for arm in ["three", "elsewhere"] {
            let pins = pins(&record, arm);
            assert_eq!((nodes(&pins, STORE), nodes(&pins, LOAD)), (Vec::new(), vec!["n3".to_owned()]), "{arm}");
        }
    }

    #[test]
    fn a_group_of_three_members_stays_on_its_three_nodes() {
        let three: &[(&str, &str)] = &[("store-0", "n3"), ("store-1", "n1"), ("store-2", "n2"), ("load-0", "n1")];
        let record = record(&[(0, "three", "Valid", three)]);
        assert_eq!(nodes(&pins(&record, "three"), STORE), ["n1", "n2", "n3"]);
        assert_eq!(nodes(&pins(&record, "a"), STORE), Vec::<String>::new());
    }

    #[test]
    fn a_trial_that_is_to_be_repeated_pins_nobody_to_its_nodes() {
        let record = record(&[
            (0, "a", "Valid", &[("store-0", "n1"), ("load-0", "n1")]),
            (0, "b", "Invalid", &[("store-0", "n1")]),
            (1, "a", "Valid", &[("store-0", "n2"), ("load-0", "n3")]),
        ]);
        assert_eq!(nodes(&pins(&record, "b"), STORE), ["n2"]);
    }

    #[test]
    fn a_pair_on_different_nodes_is_named_and_members_may_change_places() {
        let pair = |other: &'static str| {
            record(&[
                (0, "a", "Valid", &[("store-0", "n1"), ("load-0", "n2")]),
                (
                    0,
                    "b",
                    "Valid",
                    if other == "n1" {
                        &[("store-0", "n1"), ("load-0", "n2")]
                    } else {
                        &[("store-0", "n3"), ("load-0", "n2")]
                    },
                ),
            ])
        };
        assert_eq!(apart(&pair("n1"), "b", "a"), None);
        let said = apart(&pair("n3"), "b", "a").unwrap();
        assert_eq!(said, "in trial 1 the store of b ran on n3, and that of a on n1");
        let permuted = record(&[
            (0, "a", "Valid", &[("store-0", "n1"), ("store-1", "n2")]),
            (0, "b", "Valid", &[("store-0", "n2"), ("store-1", "n1")]),
        ]);
        assert_eq!(apart(&permuted, "b", "a"), None);
        let unknown = record(&[(0, "a", "Valid", &[]), (0, "b", "Valid", &[])]);
        assert_eq!(apart(&unknown, "b", "a").unwrap(), "on which nodes they ran is not known: run again");
        let embedded = RunRecord { driver: Driver::Embedded, ..unknown };
        assert_eq!(apart(&embedded, "b", "a"), None);
    }

    #[test]
    fn who_moved_in_mid_run_is_named() {
        let record = record(&[
            (0, "a", "Valid", &[("store-0", "n1"), ("load-0", "n2")]),
            (1, "a", "Valid", &[("store-0", "n1"), ("load-0", "n2")]),
            (2, "a", "Valid", &[("store-0", "n1"), ("load-0", "n3")]),
        ]);
        assert_eq!(moved(&record, "a").unwrap(), "the load of a ran on n3 in trial 3, and on n2 before");
        assert_eq!(
            in_words(&record),
            ["2 trials: load-0 on n2, store-0 on n1", "1 trials: load-0 on n3, store-0 on n1"]
        );
        assert_eq!(moved(&record, "b"), None);
    }
}
