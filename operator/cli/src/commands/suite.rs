//! Suites: which of their runs an embedded run leaves out, and what all of them say together, here or in a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use kube::ResourceExt as _;
use storebench_core::input::{Input, SuiteOfRuns};
use storebench_core::report::{self, Document, Matrix, MatrixRow, Report};
use storebench_core::suite::{Next, leave_out, next, plan};
use storebench_crds::benchmark_suite::{BenchmarkSuite, SuiteRunState};
use storebench_crds::document::InputError;

use super::cluster::{self, InCluster, Place};
use super::cluster_record::{OfSuite, of_owned};
use crate::exit::Exit;
use crate::output::{Output, Printer, colours, show_beside, width};
use crate::{console, saved};

/// How long a cluster may take to hand over the records of all runs of a suite.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(600);

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
        match next(&self.states(suite), suite.on_failure) {
            Next::Make(_) | Next::Wait(_) => None,
            Next::End { stopped_by, .. } => Some(suite.runs.get(stopped_by?)?.0.as_str()),
        }
    }

    /// What became of each run of a suite, in its order. One that was being measured when all was interrupted has a report of what was done.
    fn states(&self, suite: &SuiteOfRuns) -> Vec<SuiteRunState> {
        let reports = suite.runs.iter().map(|(name, _)| self.reports.get(name));
        let state = |report: &Report| SuiteRunState::of(report.judgement.verdict);
        reports.map(|report| report.map_or(SuiteRunState::Waiting, state)).collect()
    }

    /// A run has ended.
    pub(crate) fn ended(&mut self, report: &Report) {
        if self.suites.iter().any(|suite| suite.runs.iter().any(|(name, _)| *name == report.record.name)) {
            self.reports.insert(report.record.name.clone(), report.clone());
        }
    }

    fn matrix<'b>(&'b self, suite: &'b SuiteOfRuns) -> Matrix<'b> {
        let mut states = self.states(suite);
        if matches!(next(&states, suite.on_failure), Next::End { .. }) {
            leave_out(&mut states);
        }
        let rows = suite.runs.iter().zip(states).map(|((name, values), state)| MatrixRow {
            values: values.clone(),
            report: self.reports.get(name),
            state,
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

/// `storebench report benchmarksuite/NAME`: what the runs of a suite in a cluster came to, each judged anew, in one table; a page has the
/// runs themselves below it, and formats for machines have them alone. The exit code is that of the gravest verdict.
pub(crate) fn of_cluster(name: &str, place: &Place, output: Output) -> anyhow::Result<Exit> {
    let fetched = cluster::within(CLUSTER_TIMEOUT, fetch(name, place))?;
    let seconds = CLUSTER_TIMEOUT.as_secs();
    let (suite, reports) =
        fetched.with_context(|| format!("benchmarksuite/{name} could not be read within {seconds} s: try again"))?;
    let state = |run: &str| {
        let mut runs = suite.status.iter().flat_map(|status| &status.runs);
        runs.find(|one| one.name == run).map_or(SuiteRunState::Waiting, |one| one.state)
    };
    let rows = reports.iter().map(|(run, values, found)| {
        let (report, state) = match found {
            OfSuite::Ended(report) => (Some(&**report), state(run)),
            OfSuite::Gone => (None, state(run)),
            // What the suite once found of its own says nothing of what is there instead.
            OfSuite::LeftOut => (None, SuiteRunState::Waiting),
        };
        MatrixRow { values: values.clone(), report, state }
    });
    let parameters = suite.spec.parameters.iter().map(|parameter| parameter.name.clone()).collect();
    let matrix = Matrix { suite: name, parameters, rows: rows.collect() };
    let exit = Exit::of(matrix.verdict());
    let document = report::matrix(&matrix);
    match output {
        Output::Text => console::print(report::document_text(document, width(), colours()))?,
        Output::Markdown => console::print(report::document_markdown(document))?,
        Output::Html | Output::Json | Output::Yaml | Output::Junit => {
            let mut printer = Printer::new(output, true);
            for (_, _, found) in reports {
                if let OfSuite::Ended(report) = found {
                    printer.add(*report)?;
                }
            }
            printer.finish(Some(document))?;
        }
    }
    Ok(exit)
}

/// A run of a suite: its name, the values of its parameters, and what came of it.
type Row = (String, Vec<String>, OfSuite);

/// A suite in a cluster, and its runs in its order.
async fn fetch(name: &str, place: &Place) -> anyhow::Result<(BenchmarkSuite, Vec<Row>)> {
    let found = InCluster::<BenchmarkSuite>::find(name, place).await?;
    let suite = found.understood(found.object().await?)?;
    let planned = plan(&suite).map_err(|problems| {
        let problems = problems.iter().map(|problem| format!("{} {}", problem.field, problem.text));
        anyhow!("{found} makes no runs: {}", problems.collect::<Vec<_>>().join("; "))
    })?;
    let owner = suite.uid().unwrap_or_default();
    let mut rows = Vec::new();
    for run in planned {
        let report = of_owned(&found.beside(&run.name), &owner).await?;
        let values = run.values.iter().map(|(_, value)| value.to_string()).collect();
        rows.push((run.name, values, report));
    }
    Ok((suite, rows))
}

/// What a reader must know who wrote a schedule: nothing here keeps the time.
pub(crate) fn tell_schedules(input: &Input) {
    for name in &input.schedules {
        console::tell(format_args!(
            "BenchmarkSchedule/{name}: what it makes is run once, now; by the clock runs the operator"
        ));
    }
}
