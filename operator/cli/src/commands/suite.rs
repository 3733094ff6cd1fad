//! Suites in an embedded run: which of their runs are left out, and what all of them say together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use storebench_core::input::{Input, SuiteOfRuns};
use storebench_core::report::{self, Document, Matrix, MatrixRow, Report};
use storebench_core::suite::stops;
use storebench_crds::document::InputError;

use super::report::show_beside;
use crate::Output;
use crate::{console, saved};

/// The suites of an invocation, and what came of their runs so far.
pub(crate) struct Suites<'a> {
    suites: &'a [SuiteOfRuns],
    /// By the run's name.
    reports: BTreeMap<String, Report>,
}

impl<'a> Suites<'a> {
    pub(crate) fn new(input: &'a Input) -> Self {
        Self { suites: &input.suites, reports: BTreeMap::new() }
    }

    /// What an embedded run refuses rather than leave out silently.
    pub(crate) fn refused(&self, files: &str) -> Vec<InputError> {
        let suspended = self.suites.iter().filter(|suite| suite.suspend);
        let refused = suspended.map(|suite| InputError {
            file: files.into(),
            field: format!("BenchmarkSuite/{} spec.suspend", suite.name),
            problem: "is true, so there is nothing to run: set it to false".into(),
        });
        refused.collect()
    }

    /// The earlier run for which this one is left out.
    pub(crate) fn left_out_for(&self, run: &str) -> Option<&str> {
        let is_in = |suite: &&SuiteOfRuns| suite.runs.iter().any(|(name, _)| name == run);
        let suite = self.suites.iter().find(is_in)?;
        let stops_here = |name: &str| {
            let verdict = self.reports.get(name).map(|report| report.judgement.verdict);
            verdict.is_some_and(|verdict| stops(suite.on_failure, verdict))
        };
        suite.runs.iter().map(|(name, _)| name.as_str()).find(|name| stops_here(name))
    }

    /// A run has ended.
    pub(crate) fn ended(&mut self, report: &Report) {
        if self.suites.iter().any(|suite| suite.runs.iter().any(|(name, _)| *name == report.record.name)) {
            self.reports.insert(report.record.name.clone(), report.clone());
        }
    }

    fn matrix<'b>(&'b self, suite: &'b SuiteOfRuns) -> Matrix<'b> {
        let rows = suite.runs.iter().map(|(name, values)| {
            let (report, values) = (self.reports.get(name), values.clone());
            // One that was being measured when all was interrupted has a report of what was done.
            MatrixRow { values, report, is_left_out: report.is_none() && self.left_out_for(name).is_some() }
        });
        Matrix { suite: &suite.name, parameters: suite.parameters.clone(), rows: rows.collect() }
    }

    /// Of which anything was measured.
    fn measured(&self) -> impl Iterator<Item = &'a SuiteOfRuns> {
        self.suites.iter().filter(|suite| suite.runs.iter().any(|(name, _)| self.reports.contains_key(name)))
    }

    /// What stands above the runs on a page of one suite and nothing else.
    pub(crate) fn page(&self, runs: usize) -> Option<Document> {
        match self.suites {
            [suite] if suite.runs.len() == runs && !self.reports.is_empty() => {
                Some(report::matrix(&self.matrix(suite)))
            }
            _ => None,
        }
    }

    /// Shows what each suite says, where reports for people go.
    pub(crate) fn show(&self, output: Output) -> anyhow::Result<()> {
        for suite in self.measured() {
            show_beside(report::matrix(&self.matrix(suite)), output)?;
        }
        Ok(())
    }

    /// Keeps what each suite says beside its runs, in `DIRECTORY/SUITE/TIME-VERDICT/`. Returns where.
    pub(crate) fn save(&self, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut pages = Vec::new();
        for suite in self.measured() {
            let matrix = self.matrix(suite);
            let reports: Vec<Report> = matrix.rows.iter().filter_map(|row| row.report.cloned()).collect();
            let started_at = reports.iter().map(|report| report.record.started_at.as_str()).min().unwrap_or_default();
            let document = report::matrix(&matrix);
            let texts = [
                ("suite.md", report::document_markdown(document.clone())),
                ("suite.html", report::suite_html(document, &reports)?),
            ];
            let folder = saved::keep_suite(directory, &suite.name, started_at, matrix.verdict(), &texts)?;
            pages.push(folder.join("suite.html"));
        }
        Ok(pages)
    }
}

/// What a reader must know who wrote a schedule: nothing here keeps the time.
pub(crate) fn tell_schedules(input: &Input) {
    for name in &input.schedules {
        console::tell(format_args!(
            "BenchmarkSchedule/{name}: what it makes is run once, now; by the clock runs the operator"
        ));
    }
}
