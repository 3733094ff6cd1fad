//! `storebench run FILE…`: the embedded run, from files to report.

use std::path::Path;

use anyhow::Context as _;
use storebench_core::judgement::judge;
use storebench_core::report::Report;
use storebench_core::validate::for_embedded;

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
    interrupt::listen()?;
    let options = Options { data_directory: embedded::data_directory(arguments.data_dir.as_deref())? };
    let mut worst = Exit::Passed;
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
    }
    Ok(worst)
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
