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
    known_width().unwrap_or(120)
}

/// The same of lists, each entry of which is a line: `None` in a log of which `COLUMNS` says nothing, where a script looks for whole lines.
pub(crate) fn known_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let known = said.filter(|columns| *columns > 0);
    let known = known.or_else(|| std::io::stdout().is_terminal().then(terminal_width));
    known.map(|columns| columns.clamp(60, 160))
}

/// Prints lines, each in as many as the terminal needs; further ones stand four columns to the right of their first.
pub(crate) fn print_lines(lines: &str) -> anyhow::Result<()> {
    let text = match known_width() {
        None => lines.to_owned(),
        Some(columns) => lines.lines().map(|line| hanging(line, columns)).collect(),
    };
    Ok(console::print(text)?)
}

fn hanging(line: &str, columns: usize) -> String {
    if line.trim().is_empty() {
        return "\n".to_owned();
    }
    let indent = " ".repeat(line.len() - line.trim_start().len());
    wrapped(&indent, &format!("{indent}    "), line, columns)
}

/// Words in lines of so many columns: the first behind one indent, the others behind another. No word is broken, for it may be a name.
pub(crate) fn wrapped(first: &str, others: &str, words: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut words = words.split_whitespace();
    let mut line = words.next().map(|word| format!("{first}{word}"));
    for word in words {
        match line.as_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= columns) {
            Some(line) => *line = format!("{line} {word}"),
            None => text.extend(line.replace(format!("{others}{word}")).map(|full| full + "\n")),
        }
    }
    text.extend(line.map(|last| last + "\n"));
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_names_stay_whole() {
        let line = "  arms: a-name-that-is-longer-than-a-line, another";
        assert_eq!(hanging(line, 20), "  arms:\n      a-name-that-is-longer-than-a-line,\n      another\n");
        assert_eq!(hanging("one two", 7), "one two\n");
        assert_eq!(hanging("one two", 6), "one\n    two\n");
        assert_eq!(wrapped("", "", "", 20), "");
    }
}
