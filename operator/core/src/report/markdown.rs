//! The report as Markdown (GitHub's flavour), for pull requests, issues and job summaries.

use super::Report;
use super::describe;
use super::document::{Document, Section};
use super::ledger;
use super::levels::TwoLevels;
use super::load_curve;
use super::measures;
use super::requests;
use super::resources;
use super::safe_line::safe_line;
use super::table::{Align, Cell, Column, SUBORDINATE, Table, Tone};
use super::wording;

/// GitHub's column of text is narrow: columns that are more dispensable than this are left to the other renderings.
const DISPENSABLE_SHOWN: u8 = 2;

/// Renders a report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut page = Page::default();
    page.head(report);
    if report.record.trials.is_empty() {
        return page.text;
    }
    page.workloads(report);
    if let Some(table) = ledger::gates(report) {
        page.heading(3, "Gates");
        page.table(&table);
    }
    if let Some(table) = resources::table(report) {
        page.heading(3, "Resources");
        page.table(&table);
    }
    if !report.judgement.caveats.is_empty() {
        page.heading(3, "Before you believe a number");
        page.list(&report.judgement.caveats);
    }
    page.trials(report);
    page.arms(report);
    page.fingerprint(report);
    if report.judgement.results.is_empty() {
        return page.text;
    }
    let guide: Vec<String> = describe::reading_guide(report).iter().map(|part| format!("- {}", escape(part))).collect();
    page.details("How to read this", &guide.join("\n"));
    page.text
}

/// Renders what two levels of a comparison say together.
pub fn levels_markdown(levels: &TwoLevels<'_>) -> String {
    document_markdown(levels.document())
}

/// Renders what is not one run's report.
pub fn document_markdown(document: Document) -> String {
    let Document { title, summary, sections } = document;
    let mut page = Page::default();
    page.heading(2, &title);
    page.paragraph(&escape(&summary));
    for Section { title, statements, table, notes } in sections {
        page.heading(3, &title);
        page.list(&statements);
        if let Some(table) = table {
            page.table(&table);
        }
        page.list(&notes);
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn paragraph(&mut self, markup: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(markup);
        self.text.push('\n');
    }

    fn heading(&mut self, level: usize, title: &str) {
        self.paragraph(&format!("{} {}", "#".repeat(level), escape(title)));
    }

    /// What is folded away until it is asked for.
    fn details(&mut self, title: &str, markup: &str) {
        self.paragraph(&format!("<details><summary>{title}</summary>\n\n{markup}\n\n</details>"));
    }

    fn list<T: AsRef<str>>(&mut self, items: &[T]) {
        let lines: Vec<String> = items.iter().map(|item| format!("- {}", escape(item.as_ref()))).collect();
        if !lines.is_empty() {
            self.paragraph(&lines.join("\n"));
        }
    }

    fn table(&mut self, table: &Table) {
        let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let columns: Vec<&Column> = table.columns.iter().filter(|column| is_shown(column)).collect();
        let mut lines = vec![row(columns.iter().map(|column| bound(escape(&column.title), column.align)).collect())];
        let dashes = columns.iter().map(|column| match column.align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        lines.push(row(dashes.collect()));
        for cells in &table.rows {
            let cells = cells.iter().zip(&table.columns).filter(|(_, column)| is_shown(column));
            lines.push(row(cells.map(|(found, column)| bound(cell(found), column.align)).collect()));
        }
        self.paragraph(&lines.join("\n"));
    }

    fn head(&mut self, report: &Report) {
        let (sign, word, _) = wording::headline(report);
        self.heading(2, &format!("{sign} {word}: {}", report.record.name));
        let (message, warning) = describe::message(report);
        self.paragraph(&format!("**{}**", escape(&message)));
        if let Some(warning) = warning {
            self.paragraph(warning);
        }
        self.paragraph(&escape(&describe::circumstances(report).join(" · ")));
        if let Some(reason) = &report.record.aborted {
            self.paragraph(&format!("The run ended before its schedule did: {}", escape(reason)));
        }
        for warning in describe::warnings(report) {
            self.paragraph(&escape(&warning));
        }
        for left in &report.record.left_behind {
            let (arm, words, removal) = (escape(&left.arm), escape(&left.in_words()), code(&left.removal));
            self.paragraph(&format!("**{arm}**, {words}. To remove them: {removal}"));
        }
        for arm in &report.record.arms {
            if let Some(unavailable) = &arm.unavailable {
                let (name, reason) = (escape(&arm.name), escape(&unavailable.reason));
                let install = code(&unavailable.install);
                self.paragraph(&format!("**{name}** was not measured: {reason}. To install it: {install}"));
            }
        }
    }

    fn workloads(&mut self, report: &Report) {
        for workload in &report.record.spec.workloads {
            self.heading(3, &workload.name);
            let asked = describe::asked(workload, report.record.driver);
            self.paragraph(&escape(&asked));
            if let Some(line) = measures::nothing_measured(report, workload) {
                self.paragraph(line);
                continue;
            }
            let results = measures::results(report, workload);
            self.table(&results);
            if let Some(table) = measures::comparisons(report, workload) {
                self.table(&table);
            }
            if let Some(table) = load_curve::table(report, workload) {
                self.table(&table);
            }
            if let Some(table) = requests::table(report, workload) {
                self.table(&table);
            }
            let left_out: Vec<&str> =
                results.columns.iter().filter(|column| !is_shown(column)).map(|column| column.title.as_str()).collect();
            self.list(&measures::notes(report, workload, &left_out));
        }
    }

    fn trials(&mut self, report: &Report) {
        self.heading(3, "Trials");
        let mut statements = ledger::trials_summary(report);
        statements.extend(ledger::lost_trials(report).into_iter().map(|(which, why)| format!("{which}: {why}")));
        self.list(&statements);
    }

    fn arms(&mut self, report: &Report) {
        self.heading(3, "Arms");
        self.table(&ledger::arms(report));
        let commands: Vec<String> = report
            .record
            .arms
            .iter()
            .filter(|arm| !arm.command.is_empty())
            .map(|arm| format!("- {}: {}", escape(&arm.name), code(&ledger::command_line(arm))))
            .collect();
        if !commands.is_empty() {
            let list = commands.join("\n");
            self.details("Command lines", &list);
        }
    }

    fn fingerprint(&mut self, report: &Report) {
        let fingerprint = &report.record.fingerprint;
        self.heading(3, "Fingerprint");
        let facts = fingerprint.facts.iter().map(|(name, fact)| format!("{}: {}", escape(name), escape(fact)));
        let facts: Vec<String> = facts.collect();
        self.paragraph(&format!("{} {}", code(&fingerprint.hash), facts.join(" · ")));
    }
}

/// Numbers in one piece: GitHub breaks lines in cells where it can.
fn is_shown(column: &Column) -> bool {
    column.dispensable <= DISPENSABLE_SHOWN
}

fn bound(markup: String, align: Align) -> String {
    if align == Align::Right { markup.replace(' ', "\u{A0}") } else { markup }
}

fn cell(cell: &Cell) -> String {
    let text = escape(cell.text.trim());
    match cell.tone {
        _ if cell.text.starts_with(SUBORDINATE) => format!("↳ {text}"),
        Tone::Strong | Tone::Good | Tone::Bad if !text.is_empty() => format!("**{text}**"),
        _ => text,
    }
}

/// What a page does not show and GitHub does not look across. It looks for names of people and for numbers of issues in the finished page, where an
/// escaped or encoded `@` is one like any other.
const NOTHING: &str = "<!-- -->";

/// Text that Markdown shows as it is, in a paragraph, a heading or a cell of a table: nobody is mentioned, and no address and no number of an
/// issue is a link, whatever names and messages hold.
fn escape(text: &str) -> String {
    let text = safe_line(text);
    let mut escaped = String::with_capacity(text.len());
    for (position, character) in text.char_indices() {
        let rest = &text[position + character.len_utf8()..];
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
        let is_link = match character {
            '@' => true,
            '#' => rest.starts_with(|next: char| next.is_ascii_digit()),
            ':' => rest.starts_with("//"),
            'w' => rest.starts_with('.') && escaped.ends_with("www"),
            _ => false,
        };
        if is_link {
            escaped.push_str(NOTHING);
        }
    }
    escaped
}

/// Text as code: what is in it is shown as it is. Not for tables, where a bar would end the cell.
fn code(text: &str) -> String {
    let text = safe_line(text);
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // A backtick beside the fence would lengthen it; CommonMark strips one space from either side.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    if text.trim().is_empty() { String::new() } else { format!("{fence}{space}{text}{space}{fence}") }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn reports_look_as_agreed() {
        for (name, report) in fixture::all() {
            insta::assert_snapshot!(format!("markdown_{name}"), markdown(&report));
        }
    }

    #[test]
    fn how_far_apart_load_processes_began_is_told() {
        let (_, mut report) = fixture::all().swap_remove(0);
        report.record.spec.parallelism = 3;
        let measured = report.record.trials.iter_mut().flat_map(|trial| &mut trial.workloads);
        for (nanos, workload) in (1..).zip(measured) {
            workload.start_skew_nanos = Some(nanos * 1_000);
        }
        let told = "the 3 load processes of a trial began to measure within";
        assert!(markdown(&report).contains(told), "{}", markdown(&report));
    }

    #[test]
    fn markup_from_outside_is_shown_not_obeyed() {
        assert_eq!(escape("a|b *c* <img src=x> [d](e) `f`\n# g"), r"a\|b \*c\* &lt;img src=x&gt; \[d\](e) \`f\` \# g");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`a`"), "`` `a` ``");
    }

    /// A report in a pull request would write to whoever has the name.
    #[test]
    fn nobody_is_mentioned_and_nothing_is_a_link() {
        assert_eq!(escape("store@octocat"), "store@<!-- -->octocat");
        assert_eq!(
            escape("see http://h/x, www.h.org, #12"),
            r"see http:<!-- -->//h/x, www<!-- -->.h.org, \#<!-- -->12"
        );
        assert_eq!(escape("at: 5, new. # 1"), r"at: 5, new. \# 1");
        assert_eq!(code("@octocat"), "`@octocat`", "nobody is looked for in code");
        let (_, mut report) = fixture::all().swap_remove(0);
        report.record.name = "@octocat".into();
        report.record.caveats.push("asked http://example.org".into());
        report.judgement.caveats.push("asked http://example.org".into());
        let page = markdown(&report);
        assert!(page.contains("@<!-- -->octocat") && page.contains("asked http:<!-- -->//example.org"), "{page}");
        assert!(!page.contains("@octocat") && !page.contains("asked http://"), "{page}");
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_head() {
        for (name, report) in fixture::all() {
            let mut expected = None;
            for line in markdown(&report).lines() {
                if !line.starts_with('|') {
                    expected = None;
                    continue;
                }
                let bars = line.replace(r"\\", "").replace(r"\|", "").matches('|').count();
                assert_eq!(*expected.get_or_insert(bars), bars, "{name}: {line}");
            }
        }
    }
}
