//! `storebench run FILE…`: the embedded run, from files to report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use service_kit::console;
use storebench_core::across::judged_again;
use storebench_core::input::{Input, InputErrors};
use storebench_core::judgement::{available, judge, worth_measuring};
use storebench_core::record::{FailureCause, RunRecord};
use storebench_core::report::Report;
use storebench_core::validate::{ValidatedRun, too_much_for};
use storebench_crds::DurationText;
use storebench_crds::benchmark_run::{BenchmarkRunSpec, Isolation, RETRIES_MAX};
use storebench_crds::document::InputError;
use storebench_crds::status::Verdict;

use super::across::{Baseline, show_held};
use super::suite::{Suites, tell_schedules};
use crate::RunArguments;
use crate::embedded::turn::{IfTaken, Turn};
use crate::embedded::{self, Options, Prepared, interrupt, progress::Progress};
use crate::exit::Exit;
use crate::output::Printer;
use crate::saved::{Asked, Begun, Folder, Objects};

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<Exit> {
    let input = super::read_input(&arguments.files)?;
    if input.runs.is_empty() {
        anyhow::bail!("the files hold no BenchmarkRun: write one, or pass the file that has it");
    }
    let mut suites = Suites::new(&input);
    let problems = input.runs.iter().flat_map(embedded::refused);
    let problems = problems.chain(kept_by_clusters(&input).filter(|_| arguments.baseline.is_none()));
    let problems = problems.map(|(field, problem)| InputError { file: file_names(&arguments.files), field, problem });
    let mut refused = suites.refused(&file_names(&arguments.files)).into_iter().chain(problems);
    if let Some(first) = refused.next() {
        return Err(InputErrors { first, others: refused.collect() }.into());
    }
    let wait_for_quiet = DurationText::new(&arguments.wait_for_quiet).map(|text| text.duration());
    let wait_for_quiet = wait_for_quiet.context("--wait-for-quiet")?;
    arguments.terms.tolerance_basis_points()?;
    let baseline = arguments.baseline.as_ref().map(|path| Baseline::read(path, &arguments.terms, &input.runs));
    let baseline = baseline.transpose()?;
    interrupt::listen()?;
    let options = Options { data_directory: embedded::data_directory(arguments.data_dir.as_deref())?, wait_for_quiet };
    let mut printer = Printer::new(arguments.output, input.runs.len() > 1);
    if !arguments.quiet {
        tell_schedules(&input);
    }
    let ended = run_all(arguments, &input.runs, &options, baseline.as_ref(), &mut suites, &mut printer);
    // What came to its end before an error is printed; of nothing there is no document.
    let printed = printer.finish(suites.page(input.runs.len())).and_then(|()| suites.show(arguments.output));
    let directory = arguments.save.as_ref().or(arguments.resume.as_ref());
    let saved = directory.map_or(Ok(Vec::new()), |directory| suites.save(directory));
    let saved =
        saved.map(|pages| pages.iter().for_each(|page| console::tell(format_args!("saved to {}", page.display()))));
    // None hides another: the first, which is what ended the runs where anything did, is told last, as every error is.
    let (exit, ended) = ended.map_or_else(|error| (Exit::Usage, Some(error)), |exit| (exit, None));
    let mut errors = [ended, printed.err(), saved.err()].into_iter().flatten();
    let first = errors.next();
    errors.for_each(|error| console::tell(format_args!("{error:#}")));
    first.map_or(Ok(exit), Err)
}

/// What only a cluster keeps: field and problem. Of several runs the first is named, for a suite's have one template.
fn kept_by_clusters(input: &Input) -> impl Iterator<Item = (String, String)> {
    let instead = "a cluster keeps baselines: name a saved run here with --baseline PATH, or remove this";
    let baselines = input.baselines.iter().map(|(name, _)| format!("BenchmarkBaseline/{name}"));
    let mut held = input.runs.iter().filter(|run| run.spec.baseline_ref.is_some());
    let held = held.next().map(|run| format!("BenchmarkRun/{} spec.baselineRef", run.name));
    baselines.chain(held).map(move |field| (field, instead.to_owned()))
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
    suites: &mut Suites<'_>,
    printer: &mut Printer,
) -> anyhow::Result<Exit> {
    let mut worst = Exit::Passed;
    let mut to_do = Vec::new();
    let mut is_first = true;
    let mut first_checked = None;
    if let Some(baseline) = baseline {
        // All of them before the first: else hours are measured for a refusal.
        for run in runs {
            let prepared = Prepared::new(run, options);
            baseline.check(&prepared.record)?;
            if interrupt::requested() {
                return Ok(Exit::Interrupted);
            }
            first_checked = first_checked.or(Some(prepared));
        }
    }
    for (position, run) in runs.iter().enumerate() {
        let checked = first_checked.take();
        if let Some(failed) = suites.left_out_for(&run.name) {
            console::tell(format_args!("{}: left out, for {failed} has not passed", run.name));
            continue;
        }
        let objects = Objects::of(run);
        // What was checked is good for the first, which begins now. Later runs begin hours after the check: a store's program may be another by
        // then, and the record says which was measured.
        let prepared = checked.map_or_else(|| Prepared::new(run, options), Prepared::begins);
        let progress = Progress::new(run, arguments.quiet);
        // Whoever did not mean it need not wait for the report.
        let too_much = too_much_for(run, &embedded::room(Some(&options.data_directory)));
        let too_much = too_much.map(embedded::place_and_text).map(|(field, problem)| format!("{field} {problem}"));
        super::warnings(run).iter().chain(&run.how_much()).chain(&too_much).for_each(|line| progress.tell(line));
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
            Kept::Finished(path, mut report) => {
                console::tell(format_args!(
                    "{}: came to its end before: {}",
                    run.name,
                    path.join("report.html").display()
                ));
                // What is saved may be the verdict of both together, against the baseline of that day.
                report.judgement = if baseline.is_some() { judge(&report.record) } else { judged_again(&report) };
                to_do.extend(what_to_do(&report, arguments));
                let pair = baseline.and_then(|baseline| baseline.hold(&mut report));
                worst = worst.max(Exit::of(report.judgement.verdict));
                suites.ended(&report);
                printer.add(*report)?;
                pair.map_or(Ok(()), |pair| show_held(pair, arguments.output))?;
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
        if is_measured && std::mem::take(&mut is_first) {
            // Not before it was this run's turn: who measured until then may have loaded the same stores.
            if let Err(error) = refused_by_stores(arguments, &runs[position..]) {
                progress.finish();
                return Err(error);
            }
        }
        if is_measured && let Some(how_long) = run.how_long() {
            progress.tell(&how_long);
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
        let mut report = Report { judgement: judge(&record), record };
        // Nothing was measured that could go on, and nothing is left that somebody has to remove: neither the run nor its suite is kept.
        let is_nothing = interrupted && report.record.trials.is_empty() && report.record.left_behind.is_empty();
        to_do.extend(what_to_do(&report, arguments));
        // Before its suite, its folder and its report go by the verdict: one that was interrupted has none yet.
        let held = baseline.filter(|_| !interrupted);
        let pair = held.and_then(|baseline| baseline.hold(&mut report));
        worst = worst.max(Exit::of(report.judgement.verdict));
        if !is_nothing {
            suites.ended(&report);
        }
        printer.add(report.clone())?;
        // Also where nothing else is to be said: nobody else will remove it.
        for left in &report.record.left_behind {
            console::tell(format_args!("{}: {}: {left}", run.name, left.arm));
        }
        // Kept whatever the comparison says, or whether there is one.
        if let Some(folder) = folder.filter(|_| !is_nothing) {
            let path = folder.finish(&report, &objects, interrupted)?;
            tell_where(&path, resume(arguments, &report.record).filter(|_| interrupted));
        }
        if let Some(error) = lost {
            return Err(error);
        }
        pair.map_or(Ok(()), |pair| show_held(pair, arguments.output))?;
        if interrupted {
            return Ok(Exit::Interrupted);
        }
    }
    // After the last report, where it is seen.
    for line in to_do.iter().filter(|_| !arguments.quiet) {
        console::tell(line);
    }
    Ok(worst)
}

/// Looks at all stores of these runs that were there already. Errors: some would not be loaded, and why; one line for each.
fn refused_by_stores(arguments: &RunArguments, runs: &[ValidatedRun]) -> anyhow::Result<()> {
    let file = file_names(&arguments.files);
    let problems = embedded::first_look::problems(runs)?.into_iter();
    let mut refused = problems.map(|(field, problem)| InputError { file: file.clone(), field, problem });
    match refused.next() {
        Some(first) => Err(InputErrors { first, others: refused.collect() }.into()),
        None => Ok(()),
    }
}

/// What the user can do about a run whose numbers cannot be trusted, in one line; `None` where they can.
fn what_to_do(report: &Report, arguments: &RunArguments) -> Option<String> {
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
            let is_saved = arguments.save.is_some() || arguments.resume.is_some();
            too_busy(&record.spec, is_saved, resume(arguments, record))
        }
        (None, Some(install)) if available(record).is_empty() => format!("install what it lacks: {install}"),
        _ => {
            let anew = resume(arguments, record)
                .map_or("", |_| "; then begin anew with --save: --resume does not repeat what a store did");
            format!("the report says why: nothing can be said of speed until that is mended{anew}")
        }
    };
    Some(format!("{} is Invalid; to do: {remedy}", record.name))
}

/// What helps a run that was disturbed too often, which goes on by `resume` if it can.
fn too_busy(spec: &BenchmarkRunSpec, is_saved: bool, resume: Option<String>) -> String {
    let mut remedies = vec!["stop those that the report names"];
    // Another spec is another run, which begins anew.
    if resume.is_none() && spec.trials.retries < RETRIES_MAX {
        remedies.push("let more trials be repeated (spec.trials.retries)");
    }
    remedies.push("wait longer for quiet (--wait-for-quiet 30m)");
    // What is kept of a run whose trials share their stores does not go on either.
    let can_be_kept = !is_saved && spec.isolation != Isolation::Shared;
    let again = if can_be_kept { "run it again with --save, so that it can go on" } else { "run it again" };
    let again = resume.unwrap_or_else(|| again.into());
    format!("other programs kept this machine too busy: {}; then {again}", remedies.join(", or "))
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
        (Some(Begun::Unfinished(folder, record)), _) => {
            Kept::Runs(Box::new(prepared.resumed(*record, "interrupted")), Some(folder))
        }
        (Some(Begun::Disturbed(path, record)), Some(directory)) => {
            let name = &record.name;
            console::tell(format_args!(
                "{name}: was disturbed too often: what did not count is repeated: {}",
                path.display()
            ));
            // Killed in the middle of this, nothing that counted is lost.
            let folder = Folder::create(directory, &asked, &record)?;
            let resumed = prepared.resumed(*record, "disturbed too often");
            folder.keep(&resumed.record)?;
            Kept::Runs(Box::new(resumed), Some(folder))
        }
        (Some(Begun::Disturbed(..)) | None, None) => Kept::Runs(Box::new(prepared), None),
        (None, Some(directory)) => {
            let folder = Folder::create(directory, &asked, &prepared.record)?;
            Kept::Runs(Box::new(prepared), Some(folder))
        }
    })
}

fn tell_where(path: &Path, command: Option<String>) {
    console::tell(format_args!("saved to {}", path.join("report.html").display()));
    if let Some(command) = command {
        console::tell(format_args!("to {command}"));
    }
}

/// The command with which a run that is kept goes on. One whose trials share their stores does not: they end with it.
fn resume(arguments: &RunArguments, record: &RunRecord) -> Option<String> {
    if record.spec.isolation == Isolation::Shared {
        return None;
    }
    let directory = arguments.save.as_ref().or(arguments.resume.as_ref())?;
    let files: Vec<_> = arguments.files.iter().map(|file| file.display().to_string()).collect();
    Some(format!("go on: storebench run {} --resume {}", files.join(" "), directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_advised_to_do_what_he_has_done_or_what_does_not_help() {
        let spec = |retries: u32, isolation: &str| -> BenchmarkRunSpec {
            let trials = serde_json::json!({ "retries": retries });
            let spec = serde_json::json!({ "arms": [], "workloads": [], "isolation": isolation, "trials": trials });
            serde_json::from_value(spec).unwrap()
        };
        let (retries, save) = ("spec.trials.retries", "run it again with --save");
        let said = too_busy(&spec(3, "Fresh"), false, None);
        assert!(said.contains(retries) && said.contains(save), "{said}");
        let said = too_busy(&spec(RETRIES_MAX, "Fresh"), false, None);
        assert!(!said.contains(retries) && said.contains(save), "no more may be asked for: {said}");
        let said = too_busy(&spec(3, "Shared"), false, None);
        assert!(said.contains(retries) && said.ends_with("; then run it again"), "it cannot go on: {said}");
        let said = too_busy(&spec(3, "Shared"), true, None);
        assert!(said.ends_with("; then run it again"), "{said}");
        let said = too_busy(&spec(3, "Fresh"), true, Some("go on: storebench run f --resume d".into()));
        assert!(!said.contains(retries), "with another spec it does not go on: {said}");
        assert!(said.ends_with("; then go on: storebench run f --resume d"), "{said}");
    }
}
