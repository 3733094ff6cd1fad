//! `storebench run FILE…`: the embedded run, from files to report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use storebench_core::input::InputErrors;
use storebench_core::judgement::{available, judge, worth_measuring};
use storebench_core::record::FailureCause;
use storebench_core::report::Report;
use storebench_core::validate::{ValidatedRun, for_embedded};
use storebench_crds::DurationText;
use storebench_crds::document::InputError;
use storebench_crds::status::Verdict;

use super::across::Baseline;
use super::report::Printer;
use crate::RunArguments;
use crate::embedded::turn::{IfTaken, Turn};
use crate::embedded::{self, Options, Prepared, interrupt, progress::Progress};
use crate::exit::Exit;
use crate::saved::{Asked, Begun, Folder, Objects};

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<Exit> {
    let input = super::read_input(&arguments.files)?;
    if input.runs.is_empty() {
        anyhow::bail!("the files hold no BenchmarkRun: write one, or pass the file that has it");
    }
    let mut refused = input.runs.iter().flat_map(for_embedded).map(|problem| InputError {
        file: file_names(&arguments.files),
        field: format!("{} {}", problem.object, problem.field),
        problem: problem.text,
    });
    if let Some(first) = refused.next() {
        return Err(InputErrors { first, others: refused.collect() }.into());
    }
    let wait_for_quiet = DurationText::new(&arguments.wait_for_quiet).map(|text| text.duration());
    let wait_for_quiet = wait_for_quiet.context("--wait-for-quiet")?;
    let baseline = arguments.baseline.as_ref().map(|path| Baseline::read(path, &arguments.terms)).transpose()?;
    interrupt::listen()?;
    let options = Options { data_directory: embedded::data_directory(arguments.data_dir.as_deref())?, wait_for_quiet };
    let mut printer = Printer::new(arguments.output, input.runs.len() > 1);
    let ended = run_all(arguments, &input.runs, &options, baseline.as_ref(), &mut printer);
    // What came to its end before an error is printed; of nothing there is no document.
    let printed = printer.finish();
    let exit = ended?;
    printed?;
    Ok(exit)
}

/// The files that were read together: which of them has an object is not told.
fn file_names(files: &[PathBuf]) -> String {
    let name =
        |file: &PathBuf| if file.as_os_str() == "-" { "standard input".into() } else { file.display().to_string() };
    files.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn run_all(
    arguments: &RunArguments,
    runs: &[ValidatedRun],
    options: &Options,
    baseline: Option<&Baseline>,
    printer: &mut Printer,
) -> anyhow::Result<Exit> {
    let mut worst = Exit::Passed;
    let mut to_do = Vec::new();
    for run in runs {
        let objects = Objects::of(run);
        let prepared = Prepared::new(run, options);
        if let Some(baseline) = baseline {
            baseline.check(&prepared.record)?;
        }
        let progress = Progress::new(run, arguments.quiet);
        // Nothing to measure, nobody to wait for.
        let is_measured = !worth_measuring(&prepared.record).is_empty();
        let mut turn = None;
        if is_measured && arguments.no_wait {
            // Whoever is refused leaves no folder behind.
            turn = Turn::take(&run.name, IfTaken::Refuse, &progress)?;
        }
        // Found before the first trial, not after the last.
        let (mut prepared, folder) = match keep(arguments, prepared, &objects)? {
            Kept::Runs(prepared, folder) => (prepared, folder),
            Kept::Finished(path, report) => {
                eprintln!("{}: came to its end before: {}", run.name, path.join("report.html").display());
                worst = worst.max(Exit::of(report.judgement.verdict));
                printer.add(*report)?;
                continue;
            }
        };
        if is_measured && turn.is_none() {
            let begun = Instant::now();
            turn = Turn::take(&run.name, IfTaken::Wait, &progress)?;
            prepared.waited(begun.elapsed());
            if turn.is_none() {
                return Ok(Exit::Interrupted);
            }
        }
        let mut lost = None;
        let record = embedded::run(*prepared, options, &progress, |record| {
            let kept = folder.as_ref().map_or(Ok(()), |folder| folder.keep(record));
            // A disk that is full is no reason to throw away what can still be printed.
            lost = lost.take().or(kept.err());
        })?;
        drop(turn);
        progress.finish();
        let interrupted = interrupt::requested();
        let report = Report { judgement: judge(&record), record };
        worst = worst.max(Exit::of(report.judgement.verdict));
        to_do.extend(what_to_do(&report));
        printer.add(report.clone())?;
        if let Some(baseline) = baseline.filter(|_| !interrupted) {
            worst = worst.max(baseline.compare(&report, arguments.output)?);
        }
        if let Some(folder) = folder {
            tell_where(arguments, &folder.finish(&report, &objects, interrupted)?, interrupted);
        }
        if let Some(error) = lost {
            return Err(error);
        }
        if interrupted {
            return Ok(Exit::Interrupted);
        }
    }
    // After the last report, where it is seen.
    for line in to_do.iter().filter(|_| !arguments.quiet) {
        eprintln!("{line}");
    }
    Ok(worst)
}

/// What the user can do about a run whose numbers cannot be trusted, in one line; `None` where they can.
fn what_to_do(report: &Report) -> Option<String> {
    let record = &report.record;
    let lacking = record.arms.iter().filter_map(|arm| arm.unavailable.as_ref());
    let lacking: Vec<&str> = lacking.map(|missing| missing.install.as_str()).collect();
    if report.judgement.verdict == Verdict::NoBaseline && !lacking.is_empty() {
        return Some(format!(
            "{} had nothing to compare; to do: install what it lacks: {}",
            record.name,
            lacking.join("; ")
        ));
    }
    if report.judgement.verdict != Verdict::Invalid {
        return None;
    }
    let cause = record.trials.iter().filter_map(|trial| trial.failure.as_ref()).map(|failure| failure.cause);
    let install = record.arms.iter().find_map(|arm| arm.unavailable.as_ref()).map(|missing| &missing.install);
    let remedy = match (cause.min_by_key(|cause| cause.rank()), install) {
        (Some(FailureCause::Disturbed), _) => {
            "other programs kept this machine too busy: stop those that the report names, or let more trials be repeated \
             (spec.trials.retries), or wait longer for quiet (--wait-for-quiet 30m); then run it again with --save"
                .into()
        }
        (None, Some(install)) if available(record).is_empty() => format!("install what it lacks: {install}"),
        _ => "the report says why: nothing can be said of speed until that is mended".into(),
    };
    Some(format!("{} is Invalid; to do: {remedy}", record.name))
}

/// What becomes of a run.
enum Kept<'a> {
    /// It begins, or goes on; in this folder, if it is to be kept.
    Runs(Box<Prepared<'a>>, Option<Folder>),
    /// Nothing: it came to its end before it was to go on.
    Finished(PathBuf, Box<Report>),
}

fn keep<'a>(arguments: &RunArguments, prepared: Prepared<'a>, objects: &Objects) -> anyhow::Result<Kept<'a>> {
    let asked = Asked { record: &prepared.record, services: serde_json::to_value(objects)? };
    let begun = match &arguments.resume {
        Some(directory) => Folder::find(directory, &asked)?,
        None => None,
    };
    Ok(match (begun, arguments.save.as_ref().or(arguments.resume.as_ref())) {
        (Some(Begun::Finished(path, report)), _) => Kept::Finished(path, report),
        (Some(Begun::Unfinished(folder, record)), _) => Kept::Runs(Box::new(prepared.resumed(*record)), Some(folder)),
        (None, Some(directory)) => {
            let folder = Folder::create(directory, &asked)?;
            Kept::Runs(Box::new(prepared), Some(folder))
        }
        (None, None) => Kept::Runs(Box::new(prepared), None),
    })
}

fn tell_where(arguments: &RunArguments, path: &Path, is_interrupted: bool) {
    eprintln!("saved to {}", path.join("report.html").display());
    if let (true, Some(directory)) = (is_interrupted, arguments.save.as_ref().or(arguments.resume.as_ref())) {
        let files: Vec<_> = arguments.files.iter().map(|file| file.display().to_string()).collect();
        eprintln!("to go on: storebench run {} --resume {}", files.join(" "), directory.display());
    }
}
