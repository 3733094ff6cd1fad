//! The books of a run: gates and their outcomes, the arms as they were realised, which trials counted and which did not.

use storebench_crds::benchmark_run::Isolation;
use storebench_crds::job::MachineUse;
use storebench_crds::status::TrialState;

use super::Report;
use super::lookup::{self, api_word};
use super::table::{Cell, Column, Table, Tone};
use super::units;
use super::wording;
use crate::durability::Basis;
use crate::ledger::number;
use crate::placement;
use crate::record::{ArmRecord, TrialRecord};

/// Gates and their outcomes. `None`: there were none.
pub(super) fn gates(report: &Report) -> Option<Table> {
    if report.judgement.gates.is_empty() {
        return None;
    }
    let columns = vec![Column::words("outcome"), Column::words("gate"), Column::words("found")];
    let rows = report.judgement.gates.iter().map(|gate| {
        let (sign, word, tone) = wording::gate_outcome(gate.outcome);
        vec![Cell::toned(format!("{sign} {word}"), tone), Cell::plain(&gate.gate), Cell::plain(&gate.found)]
    });
    Some(Table { rows: rows.collect(), columns })
}

/// What an arm is: version, role, members, durability with the engine's own setting and how it was established; in parts.
pub(super) fn arm_facts(report: &Report, arm: &ArmRecord) -> Vec<String> {
    let mut facts = match &arm.version {
        Some(version) if arm.is_external() => vec![engine(arm), format!("says that it is {version}")],
        Some(version) => vec![format!("{} {version}", engine(arm))],
        None => vec![engine(arm)],
    };
    if arm.baseline {
        facts.push("baseline".to_owned());
    }
    match arm.replicas {
        0 => facts.push("its store is not known".to_owned()),
        1 => facts.push("1 member".to_owned()),
        replicas => facts.push(format!("{replicas} members")),
    }
    facts.extend(arm.durability.map(|_| durability(arm)));
    facts.extend(established(report, arm));
    facts
}

/// What an arm is: a store, a cluster of which the store is not known, or a store of which no more is known than its protocol.
fn engine(arm: &ArmRecord) -> String {
    match arm.engine.as_ref().map(api_word) {
        Some(engine) if arm.is_external() => format!("speaks {engine}"),
        Some(engine) => engine,
        None => "cluster".to_owned(),
    }
}

/// An arm's durability with the engine's own setting, as `Fsync (appendonly yes, appendfsync always)`.
pub(super) fn durability(arm: &ArmRecord) -> String {
    let class = arm.durability.as_ref().map_or_else(|| "not known".to_owned(), api_word);
    if arm.durability_setting.is_empty() { class } else { format!("{class} ({})", arm.durability_setting) }
}

/// How an arm's durability was established; `None`: there was nothing to establish, or nothing was measured.
fn established(report: &Report, arm: &ArmRecord) -> Option<String> {
    let mut trials = lookup::valid_trials(report, &arm.name).peekable();
    trials.peek()?;
    Basis::of(arm, &report.record.spec.workloads, trials).map(|basis| basis.words())
}

/// An arm's command line as a shell takes it.
pub(super) fn command_line(arm: &ArmRecord) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./:=@%+,".contains(character);
    let words = arm.command.iter().map(|word| {
        let quoted = || format!("'{}'", word.replace('\'', r"'\''"));
        if !word.is_empty() && word.chars().all(is_plain) { word.clone() } else { quoted() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The arms as they were realised.
pub(super) fn arms(report: &Report) -> Table {
    let columns = [
        "arm",
        "service",
        "engine",
        "version",
        "members",
        "durability",
        "engine's setting",
        "how durability was established",
        "valid trials",
    ];
    let columns = columns.into_iter().map(Column::words).collect();
    let rows = report.record.arms.iter().enumerate().map(|(position, arm)| {
        let name = if arm.baseline { format!("{} (baseline)", arm.name) } else { arm.name.clone() };
        let trials = match &arm.unavailable {
            Some(_) => Cell::toned("not measured", Tone::Warning),
            None => Cell::plain(lookup::valid_trials(report, &arm.name).count().to_string()),
        };
        vec![
            Cell::arm(&name, position),
            Cell::plain(&arm.service),
            Cell::plain(engine(arm)),
            Cell::or_absent(arm.version.clone()),
            Cell::or_absent((arm.replicas > 0).then(|| arm.replicas.to_string())),
            Cell::or_absent(arm.durability.as_ref().map(api_word)),
            Cell::plain(&arm.durability_setting),
            Cell::or_absent(established(report, arm)),
            trials,
        ]
    });
    Table { rows: rows.collect(), columns }
}

/// How many trials counted, and by what plan they ran, one statement each.
pub(super) fn trials_summary(report: &Report) -> Vec<String> {
    let record = &report.record;
    let ran: Vec<&TrialRecord> = record.trials.iter().filter(|trial| trial.state != TrialState::Unavailable).collect();
    let valid = ran.iter().filter(|trial| trial.state == TrialState::Valid).count();
    let per_arm: Vec<String> = lookup::started_arms(report)
        .map(|(_, arm)| format!("{} {}", arm.name, lookup::valid_trials(report, &arm.name).count()))
        .collect();
    let mut statements = vec![format!("{valid} of {} trials valid ({})", ran.len(), per_arm.join(", "))];
    // Were one arm's trials discarded and the other's not, what is left would be a choice.
    let discarded = |arm: &ArmRecord| {
        ran.iter().filter(|trial| trial.arm == arm.name && trial.state == TrialState::Invalid).count()
    };
    let discarded: Vec<_> = lookup::started_arms(report).map(|(_, arm)| (&arm.name, discarded(arm))).collect();
    if discarded.iter().any(|(_, count)| *count > 0) {
        let per_arm: Vec<String> = discarded.iter().map(|(arm, count)| format!("{arm} {count}")).collect();
        statements.push(format!("discarded: {}", per_arm.join(", ")));
    }
    let plan = &record.spec.trials;
    let isolation = match record.spec.isolation {
        Isolation::Fresh => "a new, empty store for every trial",
        Isolation::Shared => "one store per arm for the whole run",
    };
    let number = if plan.min == plan.max { plan.max.to_string() } else { format!("{} to {}", plan.min, plan.max) };
    statements.push(format!("asked: {number} trials of every arm, interleaved from seed {}, {isolation}", plan.seed));
    statements.extend(placement::in_words(record));
    statements.extend(machines(report));
    if let Some(reason) = &record.aborted {
        statements.push(format!("the run ended before its schedule did: {reason}"));
    }
    statements
}

/// What the machines went through at worst, in one statement. `None`: not known.
fn machines(report: &Report) -> Option<String> {
    let trials = report.record.trials.iter().filter(|trial| trial.state == TrialState::Valid);
    let machines: Vec<&MachineUse> =
        trials.flat_map(|trial| &trial.workloads).flat_map(|workload| &workload.machines).collect();
    let cores = |millicores: u64| format!("{:.2} cores", millicores as f64 / 1e3);
    let stolen = machines.iter().map(|machine| machine.stolen_millicores()).max()?;
    let percent = |machine: &&MachineUse| Some(machine.pressure_nanos? * 100 / machine.elapsed_nanos.max(1));
    let waited = machines.iter().filter_map(percent).max();
    let waited = waited.map(|percent| format!(", and for {percent} % of the time something that could run (a store, the loader or others) waited for a processor"));
    Some(format!("machines at worst: {} stolen by the hypervisor{}", cores(stolen), waited.unwrap_or_default()))
}

/// Every trial that did not count, and why. Numbers are those that are shown while a run goes on: one that is repeated keeps its number.
pub(super) fn lost_trials(report: &Report) -> Vec<(String, String)> {
    report
        .record
        .trials
        .iter()
        .filter(|trial| matches!(trial.state, TrialState::Invalid | TrialState::Running))
        .map(|trial| {
            let why = match (&trial.failure, trial.state) {
                (Some(failure), _) => format!("{}: {}", wording::failure_cause(failure.cause), failure.detail),
                (None, TrialState::Running) => "still under way when the record was written".to_owned(),
                (None, _) => "no reason was recorded".to_owned(),
            };
            (format!("trial {}, {}", number(&report.record.trials, trial.index), trial.arm), why)
        })
        .collect()
}

/// Every trial in the order they ran, numbered as in [`lost_trials`].
pub(super) fn trials(report: &Report) -> Table {
    let columns = vec![
        Column::numbers("trial"),
        Column::words("arm"),
        Column::words("state"),
        Column::numbers("began after"),
        Column::numbers("took"),
        Column::words("reason"),
    ];
    let position = |name: &str| report.record.arms.iter().position(|arm| arm.name == name);
    let rows = report.record.trials.iter().map(|trial| {
        let (state, tone) = match trial.state {
            TrialState::Valid => ("valid", Tone::Plain),
            TrialState::Invalid => ("invalid", Tone::Bad),
            TrialState::Running => ("running", Tone::Warning),
            TrialState::Unavailable => ("unavailable", Tone::Warning),
        };
        let reason = trial.failure.as_ref();
        vec![
            Cell::plain(number(&report.record.trials, trial.index).to_string()),
            Cell { arm_mark: position(&trial.arm), ..Cell::toned(&trial.arm, Tone::Strong) },
            Cell::toned(state, tone),
            Cell::plain(units::run_duration(trial.started_millis)),
            Cell::plain(units::run_duration(trial.duration_millis)),
            Cell::plain(reason.map_or_else(String::new, |reason| {
                format!("{}: {}", wording::failure_cause(reason.cause), reason.detail)
            })),
        ]
    });
    Table { rows: rows.collect(), columns }
}
