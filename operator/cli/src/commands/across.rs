//! `storebench compare BEFORE AFTER` and `storebench history DIRECTORY`: what saved runs say together. Nothing is measured.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;
use service_kit::console;
use storebench_core::across::{Trend, TwoRuns, check_comparable, tell_both};
use storebench_core::record::RunRecord;
use storebench_core::report::{self, Document, Report};
use storebench_core::validate::ValidatedRun;
use storebench_crds::{RatioText, Verdict};

use crate::exit::{Exit, NothingToCompare};
use crate::find::{self, Which};
use crate::output::{Output, colours, show_beside, width};

/// What to hold runs of different days to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Terms {
    /// How much worse throughput or waiting may be, such as 5% or 0.05. A run is Regressed if it is worse by more than this beyond noise
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub(crate) tolerance: String,
    /// Compare runs of unlike machines, too; reports say so
    #[arg(long)]
    pub(crate) allow_different_machine: bool,
}

impl Terms {
    /// The tolerance in basis points.
    pub(crate) fn tolerance_basis_points(&self) -> anyhow::Result<u32> {
        let share = RatioText::new(self.tolerance.as_str()).context("--tolerance")?.basis_points();
        match share < 10_000 {
            true => Ok(share),
            false => bail!("--tolerance: {} would tolerate anything: give a share of 1, such as 5%", self.tolerance),
        }
    }
}

/// Forms of what several runs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For a terminal
    Text,
    /// For a pull request
    Markdown,
    /// One self-contained page
    Html,
    /// Every figure
    Json,
}

pub(crate) fn compare(before: &Path, after: &Path, terms: &Terms, form: Form) -> anyhow::Result<Exit> {
    let tolerance = terms.tolerance_basis_points()?;
    let of = |source: &Path, which| Ok::<_, anyhow::Error>(find::reports(source, which)?.reports);
    let (first, second) = (of(before, Which::Baseline)?, of(after, Which::Newest)?);
    let pairs = pairs(&first, &second);
    if pairs.is_empty() {
        bail!(NothingToCompare(format!(
            "{} has {}, and {} has {}: compare runs of one name, or one report with another",
            before.display(),
            names(&first),
            after.display(),
            names(&second)
        )));
    }
    let only = |reports: &[Report], side: usize| {
        let is_compared = |report: &&Report| pairs.iter().any(|pair| pair[side].record.name == report.record.name);
        names(reports.iter().filter(|report| !is_compared(report)))
    };
    let (lost, new) = (only(&first, 0), only(&second, 1));
    let (mut compared, mut refused) = (Vec::new(), Vec::new());
    for [one, other] in &pairs {
        match TwoRuns::of(one, other, tolerance, terms.allow_different_machine) {
            Ok(pair) => compared.push(pair),
            Err(error) => refused.push(error.to_string()),
        }
    }
    if compared.is_empty() {
        bail!(NothingToCompare(refused.join("; ")));
    }
    let mut exit = compared.iter().map(|pair| Exit::of(pair.verdict)).max().unwrap_or(Exit::Usage);
    if !refused.is_empty() {
        // Nor does it hide what another pair shows.
        exit = exit.max(Exit::Inconclusive);
    }
    let mut lines: Vec<String> =
        refused.iter().map(|why| format!("not compared, so that all together has not passed: {why}")).collect();
    if !lost.is_empty() {
        // As of an arm or a workload: what was lost may be what became slower.
        exit = exit.max(Exit::Inconclusive);
        lines.push(format!("in {} only, so that all together has not passed: {lost}", before.display()));
    }
    if !new.is_empty() {
        lines.push(format!("in {} only: {new}", after.display()));
    }
    if form == Form::Json {
        lines.iter().for_each(|line| console::tell(format_args!("storebench: {line}")));
    }
    let document = |found: &[TwoRuns]| lines.iter().rev().fold(report::two_runs(found), |all, line| all.saying(line));
    show(form, &compared, document)?;
    Ok(exit)
}

/// Saved runs that a run is held against when it has ended.
pub(crate) struct Baseline {
    reports: Vec<Report>,
    tolerance_basis_points: u32,
    allow_different_machine: bool,
}

impl Baseline {
    /// Reads them. Errors: there is none for one of these runs, or none that can be trusted; the others would be measured until it was its turn.
    pub(crate) fn read(path: &Path, terms: &Terms, runs: &[ValidatedRun]) -> anyhow::Result<Self> {
        let baseline = Self {
            reports: find::reports(path, Which::Baseline)?.reports,
            tolerance_basis_points: terms.tolerance_basis_points()?,
            allow_different_machine: terms.allow_different_machine,
        };
        for run in runs {
            let judgement = &baseline.of(&run.name)?.judgement;
            if judgement.verdict == Verdict::Invalid {
                let (run, why) = (&run.name, &judgement.message);
                let text = format!("--baseline: the run {run} is Invalid ({why}): name one that is not");
                return Err(NothingToCompare(text).into());
            }
        }
        Ok(baseline)
    }

    fn of(&self, run: &str) -> anyhow::Result<&Report> {
        let mut of_name = self.reports.iter().filter(|report| report.record.name == run);
        of_name.next().ok_or_else(|| {
            let there = names(&self.reports);
            let text = format!("--baseline: has no run {run}, but {there}: name a directory that has it");
            NothingToCompare(text).into()
        })
    }

    /// Refuses, before anything is measured, a run of which it is known already that it could not be compared.
    pub(crate) fn check(&self, record: &RunRecord) -> anyhow::Result<()> {
        Ok(check_comparable(&self.of(&record.name)?.record, record, self.allow_different_machine)?)
    }

    /// Holds a run that has ended against its baseline, before anything shows it or goes by its verdict, which becomes that of both together.
    /// Returns what stands beside its report; `None`: there was nothing to compare, which is told and part of the verdict.
    pub(crate) fn hold(&self, report: &mut Report) -> Option<TwoRuns> {
        // There is one: `read` has seen to it.
        let before = self.of(&report.record.name).ok()?;
        if report.judgement.verdict == Verdict::Invalid {
            // Said already.
            return None;
        }
        let run = &report.record.name;
        let compared = match before.record.started_at == report.record.started_at {
            true => Err(format!("{run}: the baseline is this run itself: name an earlier one with --baseline")),
            false => TwoRuns::of(before, report, self.tolerance_basis_points, self.allow_different_machine)
                .map_err(|error| error.to_string()),
        };
        let (verdict, message) = match &compared {
            Ok(pair) => (pair.verdict, &pair.message),
            Err(why) => {
                console::tell(why);
                (Verdict::NoBaseline, why)
            }
        };
        tell_both(&mut report.judgement, "--baseline", &before.record, verdict, message);
        compared.ok()
    }
}

/// Shows what a run was held against beside its report, where reports for people go.
pub(crate) fn show_held(pair: TwoRuns, output: Output) -> anyhow::Result<()> {
    show_beside(report::two_runs(&[pair]), output)
}

fn names<'a>(reports: impl IntoIterator<Item = &'a Report>) -> String {
    reports.into_iter().map(|report| report.record.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Runs of one name; two that are alone, whatever their names.
fn pairs<'a>(before: &'a [Report], after: &'a [Report]) -> Vec<[&'a Report; 2]> {
    if let ([one], [other]) = (before, after) {
        return vec![[one, other]];
    }
    let of_name = |report: &Report| before.iter().find(|earlier| earlier.record.name == report.record.name);
    after.iter().filter_map(|report| Some([of_name(report)?, report])).collect()
}

pub(crate) fn history(directory: &Path, allow_different_machine: bool, form: Form) -> anyhow::Result<Exit> {
    let mut by_name: BTreeMap<String, Vec<Report>> = BTreeMap::new();
    for report in find::reports(directory, Which::All)?.reports {
        by_name.entry(report.record.name.clone()).or_default().push(report);
    }
    let trends: Vec<Trend> =
        by_name.values().filter_map(|reports| Trend::of(reports, allow_different_machine)).collect();
    if trends.is_empty() {
        bail!("{}: none of the runs there measured anything: look at them with storebench report", directory.display());
    }
    show(form, &trends, report::trends)?;
    Ok(trends.iter().map(|trend| Exit::of(trend.verdict)).max().unwrap_or(Exit::Usage))
}

fn show<T: Serialize>(form: Form, found: &[T], document: impl Fn(&[T]) -> Document) -> anyhow::Result<()> {
    let text = match form {
        Form::Text => report::document_text(document(found), width(), colours()),
        Form::Markdown => report::document_markdown(document(found)),
        Form::Html => report::document_html(document(found)),
        Form::Json => serde_json::to_string_pretty(found)? + "\n",
    };
    Ok(console::print(text)?)
}
