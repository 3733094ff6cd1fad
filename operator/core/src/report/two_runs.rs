//! A run and a later one, in words and tables.

use storebench_crds::Verdict;

use super::document::{Document, Section};
use super::table::{Cell, Column, Table, Tone};
use super::wording;
use crate::across::{Against, Outcome, Part, Row, TwoRuns};
use crate::judgement::Standing;

/// Everything that is said of pairs of runs, for every medium.
pub fn two_runs(pairs: &[TwoRuns]) -> Document {
    let mut sections = Vec::new();
    for pair in pairs {
        let of = |title: &str| if pairs.len() > 1 { format!("{}: {title}", pair.run) } else { title.to_owned() };
        sections.push(Section { statements: differences(pair), ..Section::new(&of("What differs between both")) });
        let mut workloads: Vec<&str> = pair.rows.iter().map(|row| row.workload.as_str()).collect();
        workloads.dedup();
        for workload in workloads {
            let table = Some(table(pair, workload));
            sections.push(Section { table, ..Section::new(&of(workload)) });
        }
        sections.push(Section { notes: notes(pair), ..Section::new(&of("Before you believe a number")) });
    }
    match pairs {
        [pair] => {
            let (sign, word, _) = wording::verdict(pair.verdict);
            let title =
                format!("{sign} {word}: {}, {} against {}", pair.run, pair.after.started_at, pair.before.started_at);
            Document { title, summary: pair.message.clone(), sections }
        }
        _ => {
            let lines = pairs.iter().map(|pair| {
                let (sign, word, _) = wording::verdict(pair.verdict);
                format!("{sign} {word}: {}: {}", pair.run, pair.message)
            });
            let summary = lines.collect::<Vec<_>>().join(" · ");
            Document { title: format!("{} runs against earlier ones", pairs.len()), summary, sections }
        }
    }
}

fn differences(pair: &TwoRuns) -> Vec<String> {
    if pair.differences.0.is_empty() {
        return vec!["nothing that is known: same machine, storebench, executables, settings and spec".into()];
    }
    let mut statements = Vec::new();
    if pair.differences.of_part(Part::Machine).next().is_some() {
        statements.push("UNLIKE MACHINES: how far the stores are the reason of what follows cannot be told".into());
    }
    statements.extend(
        pair.differences
            .0
            .iter()
            .map(|one| format!("{}: {}: {}, then {}", one.part.word(), one.what, one.before, one.after)),
    );
    statements
}

fn table(pair: &TwoRuns, workload: &str) -> Table {
    let columns = vec![
        Column::words("arm"),
        Column::words("metric"),
        Column::words("now / before"),
        Column::words("in words"),
        Column::words("compared").dispensable(2),
        Column::numbers("trials").dispensable(1),
    ];
    let is_shown = |row: &&Row| row.workload == workload && row.metric.is_headline;
    let rows = pair.rows.iter().filter(is_shown).map(|row| {
        let ratio = [row.ratio_basis_points, row.low_basis_points, row.high_basis_points];
        let standing = match pair.verdict {
            Verdict::Invalid => Standing::NotRanked,
            _ => Standing::of_ratio(ratio),
        };
        let finding = wording::of_ratio(row.metric, ratio, standing);
        let tone = match row.outcome {
            Outcome::Worse => Tone::Bad,
            // Worse by less than is tolerated, or of what decides nothing.
            _ if finding.tone == Tone::Bad => Tone::Warning,
            _ => finding.tone,
        };
        let against = match &row.against {
            Against::Nothing => "as measured".to_owned(),
            Against::Control(control) => format!("as ratio to {control}"),
        };
        vec![
            Cell::toned(&row.arm, Tone::Strong),
            Cell::plain(row.metric.words),
            Cell::plain(finding.ratio),
            Cell::toned(finding.conclusion, tone),
            Cell::plain(against),
            Cell::plain(format!("{}, {}", row.trials[0], row.trials[1])),
        ]
    });
    Table { rows: rows.collect(), columns }
}

fn notes(pair: &TwoRuns) -> Vec<String> {
    let mut notes = Vec::new();
    for (which, side) in [("before", &pair.before), ("now", &pair.after)] {
        let (_, word, _) = wording::verdict(side.verdict);
        notes.push(format!("{which}: {}, by itself {word}, storebench {}", side.started_at, side.storebench_version));
    }
    notes.extend(pair.left_out.iter().map(|what| format!("not compared: {what}")));
    if pair.rows.iter().any(|row| row.against != Against::Nothing) {
        notes.push(
            "ratios to an arm that did not change are compared: what moved on the machine between both runs cancels in them, and what that arm \
             itself did shows it"
                .into(),
        );
    }
    if pair.rows.iter().any(|row| row.against == Against::Nothing && row.outcome != Outcome::Shown) {
        notes.push(
            "the runs were not interleaved, and no unchanged baseline was measured in both: whatever moved on the machine between them is in \
             these ratios, and in no interval"
                .into(),
        );
    }
    notes.push(format!(
        "intervals are Welch's, of unpaired trials; those of throughput and waiting decide, and hold together in 95 of 100 comparisons ({:.2} % each)",
        f64::from(pair.confidence_basis_points) / 100.0
    ));
    notes
}
