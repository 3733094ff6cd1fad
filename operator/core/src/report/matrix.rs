//! A suite in one table: what each combination of parameters measured, and how the arms compare in it.

use storebench_crds::Metric;
use storebench_crds::benchmark_suite::SuiteRunState;
use storebench_crds::status::Verdict;

use super::Report;
use super::document::{Document, Section};
use super::lookup;
use super::table::{Cell, Column, Table, Tone};
use super::{units, wording};

/// The runs of a suite, as far as there are any.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// The suite's name.
    pub suite: &'a str,
    /// The names of the parameters, in the suite's order.
    pub parameters: Vec<String>,
    /// Its runs, in order.
    pub rows: Vec<MatrixRow<'a>>,
}

/// A run of a suite.
#[derive(Clone, Debug)]
pub struct MatrixRow<'a> {
    /// The values of the parameters.
    pub values: Vec<String>,
    /// What came of it; `None`: it was not measured.
    pub report: Option<&'a Report>,
    /// What became of it, as far as is known without its report, which goes with the run once that is deleted.
    pub state: SuiteRunState,
}

impl MatrixRow<'_> {
    /// `None`: it was left out, as `onFailure` asks for it.
    fn verdict(&self) -> Option<Verdict> {
        match (self.report, self.state) {
            (Some(report), _) => Some(report.judgement.verdict),
            (None, SuiteRunState::Skipped) => None,
            // Nobody knows what one that is not over would have said.
            (None, state) => Some(state.verdict().unwrap_or(Verdict::Invalid)),
        }
    }

    /// What the status of its suite says of one whose record is gone.
    fn kept(&self) -> Option<Verdict> {
        self.state.verdict().filter(|_| self.report.is_none() && self.state != SuiteRunState::Deleted)
    }
}

impl<'a> Matrix<'a> {
    fn reports(&self) -> impl Iterator<Item = &'a Report> {
        self.rows.iter().filter_map(|row| row.report)
    }

    /// The gravest verdict of its runs. A run that is missing although nobody left it out makes it [`Verdict::Invalid`]: nobody knows what it
    /// would have said.
    pub fn verdict(&self) -> Verdict {
        crate::suite::gravest(self.rows.iter().filter_map(MatrixRow::verdict))
    }
}

/// Everything that is said of a suite, for every medium: a table of each workload, one run to a row.
pub fn matrix(matrix: &Matrix<'_>) -> Document {
    let mut workloads: Vec<&str> = Vec::new();
    for report in matrix.reports() {
        for workload in &report.record.spec.workloads {
            if !workloads.contains(&workload.name.as_str()) {
                workloads.push(&workload.name);
            }
        }
    }
    let mut sections = vec![Section { table: Some(verdicts(matrix)), ..Section::new("Runs") }];
    sections.extend(
        workloads.iter().map(|workload| Section { table: Some(table(matrix, workload)), ..Section::new(workload) }),
    );
    if let Some(last) = sections.last_mut() {
        last.notes = notes(matrix);
    }
    let (sign, word, _) = wording::verdict(matrix.verdict());
    let measured = matrix.reports().count();
    let gone = matrix.rows.iter().filter(|row| row.kept().is_some()).count();
    let passed = matrix.rows.iter().filter(|row| row.verdict() == Some(Verdict::Passed)).count();
    let names = matrix.parameters.join(" × ");
    Document {
        title: format!(
            "{sign} {word}: {}, {} of {names}",
            matrix.suite,
            units::things(matrix.rows.len() as u32, "run")
        ),
        summary: format!("{} of {} measured, {passed} passed", measured + gone, matrix.rows.len()),
        sections,
    }
}

fn parameter_columns(matrix: &Matrix<'_>) -> Vec<Column> {
    let is_number = |index: usize| {
        let mut values = matrix.rows.iter().filter_map(|row| row.values.get(index));
        values.all(|value| value.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let column = |(index, name): (usize, &String)| match is_number(index) {
        true => Column::numbers(name),
        false => Column::words(name),
    };
    matrix.parameters.iter().enumerate().map(column).collect()
}

fn parameter_cells(row: &MatrixRow<'_>) -> Vec<Cell> {
    row.values.iter().map(|value| Cell::toned(value, Tone::Strong)).collect()
}

/// What came of each run.
fn verdicts(matrix: &Matrix<'_>) -> Table {
    let mut columns = parameter_columns(matrix);
    columns.extend([
        Column::words("verdict"),
        Column::words("run").dispensable(2),
        Column::words("why").dispensable(1),
    ]);
    let rows = matrix.rows.iter().map(|row| {
        let mut cells = parameter_cells(row);
        match row.report {
            Some(report) => {
                let (sign, word, tone) = wording::verdict(report.judgement.verdict);
                cells.push(Cell::toned(format!("{sign} {word}"), tone));
                cells.push(Cell::plain(&report.record.name));
                cells.push(Cell::plain(&report.judgement.message));
            }
            None => {
                let why = match row.state {
                    SuiteRunState::Skipped => Cell::plain("left out: an earlier run has not passed"),
                    SuiteRunState::Deleted => Cell::plain("deleted before it was over"),
                    _ => Cell::absent(),
                };
                let came_to = row.kept().map(wording::verdict);
                let came_to =
                    came_to.map(|(sign, word, tone)| Cell::toned(format!("{sign} {word}; its record is gone"), tone));
                cells.extend([came_to.unwrap_or_else(|| Cell::toned("not measured", Tone::Dim)), Cell::absent(), why]);
            }
        }
        cells
    });
    Table { rows: rows.collect(), columns }
}

/// Arms of any run, in the order in which they first come.
fn arms<'a>(matrix: &Matrix<'a>) -> Vec<&'a str> {
    let mut arms: Vec<&str> = Vec::new();
    for report in matrix.reports() {
        for (_, arm) in lookup::started_arms(report) {
            if !arms.contains(&arm.name.as_str()) {
                arms.push(&arm.name);
            }
        }
    }
    arms
}

/// What each run measured in a workload: throughput and tail of every arm, then how arms compare with the baseline.
fn table(matrix: &Matrix<'_>, workload: &str) -> Table {
    let arms = arms(matrix);
    let compared: Vec<&str> = arms
        .iter()
        .copied()
        .filter(|arm| {
            let is_compared = |report: &Report| {
                lookup::comparison(report, workload, arm, Metric::THROUGHPUT).is_some()
                    || lookup::comparison(report, workload, arm, Metric::LATENCY_P99).is_some()
            };
            matrix.reports().any(is_compared)
        })
        .collect();
    let mut columns = parameter_columns(matrix);
    columns.extend(arms.iter().map(|arm| Column::numbers(format!("{arm} throughput")).dispensable(2)));
    columns.extend(arms.iter().map(|arm| Column::numbers(format!("{arm} p99")).dispensable(3)));
    columns.extend(compared.iter().map(|arm| Column::words(format!("{arm}: throughput"))));
    columns.extend(compared.iter().map(|arm| Column::words(format!("{arm}: p99")).dispensable(1)));
    let rows = matrix.rows.iter().map(|row| {
        let mut cells = parameter_cells(row);
        let result = |arm: &str| lookup::result(row.report?, workload, arm);
        cells.extend(
            arms.iter()
                .map(|arm| Cell::or_absent(result(arm).map(|result| units::rate_milli(result.throughput_milli)))),
        );
        cells.extend(arms.iter().map(|arm| {
            let latency = result(arm).map(|result| result.intended_latency.as_ref().unwrap_or(&result.service_latency));
            Cell::or_absent(latency.map(|latency| units::duration_nanos(latency.p99_nanos)))
        }));
        let found = |arm: &str, metric: Metric| {
            let report = row.report?;
            let finding = wording::finding(report, lookup::comparison(report, workload, arm, metric)?);
            Some(Cell::toned(finding.sentence, finding.tone))
        };
        for metric in [Metric::THROUGHPUT, Metric::LATENCY_P99] {
            cells.extend(compared.iter().map(|arm| found(arm, metric).unwrap_or_else(Cell::absent)));
        }
        cells
    });
    Table { rows: rows.collect(), columns }
}

fn notes(matrix: &Matrix<'_>) -> Vec<String> {
    let baselines: Vec<&str> =
        matrix.reports().filter_map(|report| Some(lookup::baseline(report)?.name.as_str())).collect();
    let mut notes = Vec::new();
    if let Some(first) = baselines.first() {
        notes.push(match baselines.iter().all(|name| name == first) {
            true => {
                format!("`throughput` and `p99` behind a colon are ratios to {first} in the same run, 95 % intervals")
            }
            false => {
                "`throughput` and `p99` behind a colon are ratios to the run's own baseline, 95 % intervals".into()
            }
        });
    }
    notes.push(
        "arms of one run were interleaved, runs were not: compare ratios down a column, and figures only as far as the machine was the same"
            .into(),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::super::{document_html, document_markdown, document_text, fixture};
    use super::*;

    #[test]
    fn every_run_has_its_row_and_what_was_not_measured_says_so() {
        let report = fixture::two_arms();
        let row = |values: [&str; 2], report| MatrixRow {
            values: values.map(String::from).to_vec(),
            report,
            state: SuiteRunState::Waiting,
        };
        let rows = vec![row(["64", "fsync"], Some(&report)), row(["1024", "fsync"], None)];
        let parameters = vec!["valueBytes".into(), "durability".into()];
        let all = Matrix { suite: "sizes", parameters, rows };
        let text = document_text(matrix(&all), 160, false);
        let line = |begin: &str| text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap_or_default();
        assert!(text.contains("1 of 2 measured"), "{text}");
        assert!(line("1024").contains("not measured"), "{text}");
        let compared = &report.judgement.comparisons;
        let first = compared.iter().find(|one| one.metric == Metric::THROUGHPUT).unwrap();
        assert!(text.contains(&wording::finding(&report, first).ratio), "{text}");
        for other in [document_markdown(matrix(&all)), document_html(matrix(&all))] {
            assert!(other.contains("not measured") && other.contains("valueBytes"), "{other}");
        }
    }

    #[test]
    fn the_verdict_is_the_gravest() {
        let (good, mut bad) = (fixture::two_arms(), fixture::two_arms());
        bad.judgement.verdict = Verdict::Regressed;
        let row = |report| MatrixRow { values: vec!["1".into()], report: Some(report), state: SuiteRunState::Waiting };
        let all = Matrix { suite: "s", parameters: vec!["a".into()], rows: vec![row(&bad), row(&good)] };
        assert_eq!(all.verdict(), Verdict::Regressed);
        assert!(document_text(matrix(&all), 100, false).contains("✗ Regressed: s, 2 runs of a"));
    }
    #[test]
    fn a_suite_that_was_interrupted_has_not_passed() {
        let report = fixture::two_arms();
        assert_eq!(report.judgement.verdict, Verdict::Passed);
        let all = |state| {
            let row = |report, state| MatrixRow { values: vec!["1".into()], report, state };
            let rows = vec![row(Some(&report), SuiteRunState::Passed), row(None, state)];
            Matrix { suite: "s", parameters: vec!["a".into()], rows }
        };
        assert_eq!(all(SuiteRunState::Waiting).verdict(), Verdict::Invalid);
        assert_eq!(all(SuiteRunState::Deleted).verdict(), Verdict::Invalid);
        assert_eq!(all(SuiteRunState::Skipped).verdict(), Verdict::Passed);
    }

    /// With the run's ttl the suite became Invalid.
    #[test]
    fn a_run_that_passed_and_is_gone_has_passed() {
        let of = |state| {
            let row = MatrixRow { values: vec!["1".into()], report: None, state };
            Matrix { suite: "s", parameters: vec!["a".into()], rows: vec![row] }
        };
        assert_eq!(of(SuiteRunState::Passed).verdict(), Verdict::Passed);
        assert_eq!(of(SuiteRunState::Regressed).verdict(), Verdict::Regressed);
        let text = document_text(matrix(&of(SuiteRunState::Passed)), 120, false);
        assert!(text.contains("Passed; its record is gone") && text.contains("1 of 1 measured, 1 passed"), "{text}");
    }
}
