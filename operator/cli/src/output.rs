//! The forms in which reports are printed and kept, how several become one document, and what the terminal makes of what is printed.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use service_kit::console;
use storebench_core::report::{self, Document, Report};
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

/// Shows what stands beside a report, where reports for people go.
pub(crate) fn show_beside(document: Document, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Text => console::print(format!("\n{}", report::document_text(document, width(), colours())))?,
        Output::Markdown => console::print(format!("\n{}", report::document_markdown(document)))?,
        // One document for machines stays one.
        Output::Html | Output::Json | Output::Yaml | Output::Junit => {
            console::tell(report::document_text(document, 100, false).trim_end());
        }
    }
    Ok(())
}

/// Puts reports on standard output: those for people, and YAML, one behind the other as they come; JSON and HTML, of which there is one
/// document whatever it holds, when all are there.
pub(crate) struct Printer {
    output: Output,
    /// Several are a list, even where only one came about.
    is_list: bool,
    printed: usize,
    kept: Vec<Report>,
}

impl Printer {
    pub(crate) fn new(output: Output, is_list: bool) -> Self {
        Self { output, is_list, printed: 0, kept: Vec::new() }
    }

    pub(crate) fn add(&mut self, report: Report) -> anyhow::Result<()> {
        if (self.is_list && matches!(self.output, Output::Json | Output::Html)) || self.output == Output::Junit {
            self.kept.push(report);
            return Ok(());
        }
        let between = match (self.printed, self.output) {
            (0, _) => "",
            (_, Output::Yaml) => "---\n",
            (..) => "\n",
        };
        console::print(format!("{between}{}", render(&report, self.output)?))?;
        self.printed += 1;
        Ok(())
    }

    /// `above` stands above the runs where they are one page.
    pub(crate) fn finish(self, above: Option<Document>) -> anyhow::Result<()> {
        if self.kept.is_empty() && above.is_none() {
            return Ok(());
        }
        let text = match (self.output, above) {
            (Output::Json, _) => report::json_list(&self.kept)?,
            (Output::Html, Some(document)) => report::suite_html(document, &self.kept)?,
            (Output::Html, None) => report::html_of_several(&self.kept)?,
            (Output::Junit, _) => report::junit(&self.kept),
            (Output::Text | Output::Markdown | Output::Yaml, _) => return Ok(()),
        };
        Ok(console::print(text)?)
    }
}
