//! Many runs of one name, in words and tables.

use storebench_crds::benchmark_run::TRIALS_MAX;
use storebench_crds::ratio::percent;
use storebench_crds::status::GateOutcome;

use super::document::{Document, Section};
use super::table::{Cell, Column, Table, Tone};
use super::{units, wording};
use crate::across::{Change, GateCourse, Needed, RECENT_RUNS, Series, Trend};

/// As many of the last runs are drawn.
const DRAWN_MAX: usize = 40;
/// From low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// As many differences are told of a change; a report has them all.
const DIFFERENCES_MAX: usize = 6;

/// Everything that is said of histories, for every medium.
pub fn trends(trends: &[Trend]) -> Document {
    let mut sections = Vec::new();
    for trend in trends {
        let of = |title: &str| if trends.len() > 1 { format!("{}: {title}", trend.run) } else { title.to_owned() };
        let mut statements: Vec<String> = trend.series.iter().flat_map(changes).collect();
        if statements.is_empty() {
            statements.push(format!("no level changed in {}", units::things(trend.runs.len() as u32, "run")));
        }
        sections.push(Section { statements, ..Section::new(&of("Where a level changed")) });
        let table = (!trend.series.is_empty()).then(|| table(trend));
        sections.push(Section { table, notes: notes(trend), ..Section::new(&of("Course")) });
        if !trend.gates.is_empty() {
            let statements = trend.gates.iter().filter(|gate| gate.is_flaky).map(flaky).collect();
            sections.push(Section { statements, table: Some(gates(trend)), ..Section::new(&of("Gates")) });
        }
    }
    match trends {
        [trend] => {
            let (sign, word, _) = wording::verdict(trend.verdict);
            let runs = units::things(trend.runs.len() as u32, "run");
            Document {
                title: format!("{sign} {word}: {} over {runs}", trend.run),
                summary: trend.message.clone(),
                sections,
            }
        }
        _ => {
            let lines = trends.iter().map(|trend| {
                let (sign, word, _) = wording::verdict(trend.verdict);
                format!("{sign} {word}: {}: {}", trend.run, trend.message)
            });
            let summary = lines.collect::<Vec<_>>().join(" · ");
            Document { title: format!("History of {} comparisons", trends.len()), summary, sections }
        }
    }
}

/// One statement for each change, the oldest first, and what else changed then.
fn changes(series: &Series) -> Vec<String> {
    let Series { metric, arm, workload, .. } = series;
    let of_change = |change: &Change| {
        let (larger, smaller) = metric.direction.words();
        let word = if change.ratio_basis_points > 10_000 { larger } else { smaller };
        let told = change.differences.0.iter().take(DIFFERENCES_MAX);
        let told: Vec<String> = told.map(|one| format!("{}: {}, then {}", one.what, one.before, one.after)).collect();
        let with = match (told.is_empty(), change.differences.0.len().saturating_sub(told.len())) {
            (true, _) => "with nothing else that is known to have changed".to_owned(),
            (false, 0) => format!("with {}", told.join("; ")),
            (false, more) => format!("with {}; and {more} more", told.join("; ")),
        };
        format!(
            "{} of {arm} in {workload}: {} {word} since {}, {with}",
            metric.words,
            units::times(change.ratio_basis_points),
            change.started_at
        )
    };
    series.changes.iter().map(of_change).collect()
}

fn table(trend: &Trend) -> Table {
    let columns = vec![
        Column::words("arm"),
        Column::words("workload"),
        Column::words("metric"),
        Column::numbers("now"),
        Column::words("changes"),
        Column::words("trials to see").dispensable(2),
        Column::words("course").dispensable(1),
    ];
    let rows = trend.series.iter().map(|series| {
        let newest = series.points.last().filter(|point| trend.runs.last() == Some(&point.started_at));
        let now = newest.map(|point| point.value).map(|value| match &series.control {
            Some(control) => format!("{value:.2} of {control}"),
            None => units::of_metric(series.metric.unit, value),
        });
        let is_alarm = series.changes.iter().any(|change| change.is_worse && change.is_recent);
        let changes = match series.changes.len() {
            0 => Cell::toned("none", Tone::Dim),
            count => {
                Cell::toned(units::things(count as u32, "level change"), if is_alarm { Tone::Bad } else { Tone::Plain })
            }
        };
        vec![
            Cell::toned(&series.arm, Tone::Strong),
            Cell::plain(&series.workload),
            Cell::plain(series.metric.words),
            Cell::or_absent(now),
            changes,
            Cell::or_absent(needed(series)),
            Cell::plain(course(series)),
        ]
    });
    Table { rows: rows.collect(), columns }
}

/// What to do about a gate that nobody can rely on.
fn flaky(gate: &GateCourse) -> String {
    format!(
        "{} is flaky: it turned {} times between met and missed in the last {RECENT_RUNS} runs, which no single change explains. Its bound lies \
         within the noise: take more trials (the course says how many show what), or move the bound",
        gate.gate, gate.turns
    )
}

fn gates(trend: &Trend) -> Table {
    let columns = vec![
        Column::words("gate"),
        Column::numbers("met"),
        Column::numbers("missed"),
        Column::numbers("undecided"),
        Column::numbers("turns"),
        Column::words("course").dispensable(1),
    ];
    let rows = trend.gates.iter().map(|gate| {
        let count = |outcomes: &[GateOutcome]| {
            let count: usize = outcomes.iter().map(|outcome| gate.count(*outcome)).sum();
            Cell::plain(count.to_string())
        };
        let skipped = gate.outcomes.len().saturating_sub(DRAWN_MAX);
        let course = gate.outcomes[skipped..].iter().map(|outcome| wording::gate_outcome(*outcome).0);
        vec![
            Cell::toned(&gate.gate, Tone::Strong),
            count(&[GateOutcome::Met]),
            count(&[GateOutcome::Missed]),
            count(&[GateOutcome::Undecided, GateOutcome::NotJudged]),
            Cell::toned(gate.turns.to_string(), if gate.is_flaky { Tone::Bad } else { Tone::Plain }),
            Cell::plain(course.collect::<String>()),
        ]
    });
    Table { rows: rows.collect(), columns }
}

/// As in `2 %: 28, 5 %: 7, 10 %: 4`.
fn needed(series: &Series) -> Option<String> {
    let words = |needed: &Needed| {
        let trials = needed.trials.map_or_else(|| format!("> {TRIALS_MAX}"), |trials| trials.to_string());
        format!("{}: {trials}", percent(needed.change_basis_points.into()))
    };
    let words: Vec<String> = series.needed.iter().map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The last values, between their lowest and their highest.
fn course(series: &Series) -> String {
    let skipped = series.points.len().saturating_sub(DRAWN_MAX);
    let values: Vec<f64> = series.points[skipped..].iter().map(|point| point.value).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bar = |value: &f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        BARS[((share * BARS.len() as f64) as usize).min(BARS.len() - 1)]
    };
    values.iter().map(bar).collect()
}

/// In which runs the loader was the limit; `None`: in none.
fn limits(series: &Series) -> Option<String> {
    let (newest, why) = series.limited.last()?;
    let (limited, all) = (series.limited.len(), units::things(series.points.len() as u32, "run"));
    Some(format!(
        "{} in {}: in {limited} of {all} the loader was the limit, so that a store that became slower may not show; the last of them is {newest}: {why}",
        series.arm, series.workload
    ))
}

fn notes(trend: &Trend) -> Vec<String> {
    let mut notes: Vec<String> =
        trend.set_aside.iter().map(|(run, why)| format!("{run} does not count: {why}")).collect();
    notes.extend(trend.never_measured.iter().map(|arm| {
        let runs = units::things(trend.runs.len() as u32, "run");
        format!("{arm} was never measured in {runs}: storebench report says why")
    }));
    let mut limited: Vec<String> = trend.series.iter().filter_map(limits).collect();
    limited.dedup();
    notes.extend(limited);
    if trend.series.iter().any(|series| series.control.is_some()) {
        notes.push("ratios to an arm that never changed are followed: drift of the machine cancels in them".into());
    }
    if trend.series.iter().any(|series| !series.needed.is_empty()) {
        notes.push(format!(
            "trials to see: so many trials of each arm would find such a change against the baseline of the same run four times in five, by how \
             the ratio moved from trial to trial in the last {RECENT_RUNS} runs"
        ));
    }
    if !trend.gates.is_empty() {
        notes.push(format!(
            "turns of a gate: how often it changed between met and missed in the last {RECENT_RUNS} runs; from the third on it is called flaky"
        ));
    }
    notes.push(format!(
        "levels by E-divisive and Student's t-test; a level has three runs at least. A change for the \
         worse is an alarm for {RECENT_RUNS} runs, unless the level before it is reached again; then it is the new level"
    ));
    notes
}
