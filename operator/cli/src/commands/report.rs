//! `storebench report FILE`: renders a saved report again. The raw trials are judged anew, so that a saved report cannot
//! say something that its own data do not.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::Context as _;
use storebench_core::judgement::judge;
use storebench_core::report::{self, Report};
use storebench_core::status::benchmark_run;

use crate::Output;
use crate::exit::Exit;

pub(crate) fn report(file: &Path, output: Output) -> anyhow::Result<Exit> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("{name}: cannot be read"))?;
    let saved = report::from_json(&text).with_context(|| format!("{name}: is not a saved report"))?;
    let judgement = judge(&saved.record);
    if judgement.verdict != saved.judgement.verdict {
        eprintln!(
            "storebench: {name}: was judged {:?} when saved and is {:?} now; shown is the new judgement",
            saved.judgement.verdict, judgement.verdict
        );
    }
    let report = Report { record: saved.record, judgement };
    super::print(&render(&report, output)?)?;
    Ok(Exit::of(report.judgement.verdict))
}

/// A report in the form asked for.
pub(crate) fn render(report: &Report, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Text => {
            let terminal = std::io::stdout().is_terminal();
            let width = if terminal { terminal_width() } else { 120 };
            report::text(report, width, terminal && std::env::var_os("NO_COLOR").is_none())
        }
        Output::Markdown => report::markdown(report),
        Output::Html => report::html(report)?,
        Output::Json => report::json(report)?,
        Output::Yaml => serde_yaml::to_string(&benchmark_run(report))?,
    })
}

fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or(100, |size| usize::from(size.ws_col).clamp(60, 160))
}
