//! `storebench run FILE…`: the embedded run, from files to report.

use std::path::Path;

use anyhow::Context as _;
use storebench_core::judgement::{available, judge};
use storebench_core::record::FailureCause;
use storebench_core::report::Report;
use storebench_core::validate::for_embedded;
use storebench_crds::DurationText;
use storebench_crds::status::Verdict;

use super::report::render;
use crate::embedded::{self, Options, interrupt, progress::Progress};
use crate::exit::Exit;
use crate::{Output, RunArguments};

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<Exit> {
    let input = super::read_input(&arguments.files)?;
    if input.runs.is_empty() {
        anyhow::bail!("the files hold no BenchmarkRun: write one, or pass the file that has it");
    }
    for run in &input.runs {
        for_embedded(run)?;
    }
    // Found before the first trial, not after the last.
    if let Some(directory) = &arguments.save {
        std::fs::create_dir_all(directory).with_context(|| format!("{}: cannot be created", directory.display()))?;
    }
    let wait_for_quiet = DurationText::new(&arguments.wait_for_quiet).map(|text| text.duration());
    let wait_for_quiet = wait_for_quiet.context("--wait-for-quiet")?;
    interrupt::listen()?;
    let options = Options { data_directory: embedded::data_directory(arguments.data_dir.as_deref())?, wait_for_quiet };
    let mut worst = Exit::Passed;
    let mut to_do = Vec::new();
    for run in &input.runs {
        let progress = Progress::new(run, arguments.quiet);
        let record = embedded::run(run, &options, &progress)?;
        progress.finish();
        let interrupted = interrupt::requested();
        let report = Report { judgement: judge(&record), record };
        if let Some(directory) = &arguments.save {
            save(&report, &directory.join(&run.name))?;
        }
        super::print(&render(&report, arguments.output)?)?;
        worst = worst.max(Exit::of(report.judgement.verdict));
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        to_do.extend(what_to_do(&report));
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
    if report.judgement.verdict != Verdict::Invalid {
        return None;
    }
    let cause = record.trials.iter().filter_map(|trial| trial.failure.as_ref()).map(|failure| failure.cause);
    let install = record.arms.iter().find_map(|arm| arm.unavailable.as_ref()).map(|missing| &missing.install);
    let remedy = match (cause.min_by_key(|cause| cause.rank()), install) {
        (Some(FailureCause::Disturbed), _) => {
            "other programs kept this machine too busy: stop those that the report names, or give it more time to wait for \
             them, as with --wait-for-quiet 30m; then run it again"
                .into()
        }
        (None, Some(install)) if available(record).is_empty() => format!("install what it lacks: {install}"),
        _ => "the report says why: nothing can be said of speed until that is mended".into(),
    };
    Some(format!("{} is Invalid; to do: {remedy}", record.name))
}

fn save(report: &Report, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("{}: cannot be created", directory.display()))?;
    let forms = [
        ("report.json", Output::Json),
        ("report.md", Output::Markdown),
        ("report.html", Output::Html),
        ("run.yaml", Output::Yaml),
    ];
    for (name, form) in forms {
        let path = directory.join(name);
        // Renamed into place, so that a reader never sees half a report.
        let partial = directory.join(format!(".{name}.partial"));
        std::fs::write(&partial, render(report, form)?)
            .and_then(|()| std::fs::rename(&partial, &path))
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    eprintln!("saved to {}", directory.join("report.html").display());
    Ok(())
}
