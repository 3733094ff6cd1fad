//! The forms in which a report is printed and kept, and what the terminal makes of one that is printed.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use storebench_core::report::{self, Report};
use storebench_core::status::benchmark_run;

/// Forms of a report.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For a terminal
    Text,
    /// For a pull request
    Markdown,
    /// One self-contained page
    Html,
    /// Everything, raw trials included
    Json,
    /// The BenchmarkRun with its status, as the operator would write it
    Yaml,
    /// For pipelines: each gate a test case
    Junit,
}

/// A report in the form asked for.
pub(crate) fn render(report: &Report, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Text => report::text(report, width(), colours()),
        Output::Markdown => report::markdown(report),
        Output::Html => report::html(report)?,
        Output::Json => report::json(report)?,
        Output::Junit => report::junit(std::slice::from_ref(report)),
        Output::Yaml => serde_yaml::to_string(&benchmark_run(report))?,
    })
}

/// Columns of what is printed: what `COLUMNS` says, the terminal's, or enough for a log.
pub(crate) fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    said.unwrap_or_else(|| if std::io::stdout().is_terminal() { terminal_width() } else { 120 }).clamp(60, 160)
}

pub(crate) fn colours() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    std::io::stdout().is_terminal() && !is_dumb && std::env::var_os("NO_COLOR").is_none()
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(100, |size| usize::from(size.ws_col))
}
