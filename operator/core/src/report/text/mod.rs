//! The report as text for a terminal or a log.

mod grid;
mod paint;

use super::Report;
use super::describe;
use super::document::{Document, Section};
use super::ledger;
use super::levels::TwoLevels;
use super::load_curve;
use super::measures;
use super::requests;
use super::resources;
use super::safe_line::{safe_line, width_columns};
use super::table::Tone;
use super::wording;
use grid::{INDENT, grid, hang, lay_out, left_out};
use paint::{Line, paint};

/// Narrower than this, text runs over rather than break into fragments.
const WIDTH_COLUMNS_MIN: usize = 40;
/// Wider than this, lines of prose are hard to read.
const PROSE_COLUMNS_MAX: usize = 100;
/// No section's rule is longer than this.
const RULE_COLUMNS_MAX: usize = 120;

/// Renders a report as text, `width_columns` wide, with ANSI colours if `colour`.
///
/// Tables adapt: with room to spare they show more percentiles, without it they stand one entry below the other.
/// Only commands to copy are never broken over lines.
pub fn text(report: &Report, width_columns: usize, colour: bool) -> String {
    let mut page = Page { lines: Vec::new(), width: width_columns.max(WIDTH_COLUMNS_MIN) };
    page.head(report);
    page.not_measured(report);
    if report.record.trials.is_empty() {
        // Tables of nothing would hide the remedy.
        return paint(&page.lines, colour);
    }
    page.workloads(report);
    page.gates(report);
    page.resources(report);
    page.caveats(report);
    page.trials(report);
    page.arms(report);
    page.fingerprint(report);
    if report.judgement.results.is_empty() {
        // Without a table there is nothing to be read, nor to scroll past.
        return paint(&page.lines, colour);
    }
    page.guide(report);
    // Whoever scrolled past it all finds the verdict again above the prompt.
    page.blank();
    page.verdict(report);
    paint(&page.lines, colour)
}

/// Renders what two levels of a comparison say together, as [`text()`] does one report.
pub fn levels_text(levels: &TwoLevels<'_>, width_columns: usize, colour: bool) -> String {
    document_text(levels.document(), width_columns, colour)
}

/// Renders what is not one run's report, as [`text()`] does one.
pub fn document_text(document: Document, width_columns: usize, colour: bool) -> String {
    let Document { title, summary, sections } = document;
    let mut page = Page { lines: Vec::new(), width: width_columns.max(WIDTH_COLUMNS_MIN) };
    page.prose(0, &title, Tone::Strong);
    page.prose(INDENT, &summary, Tone::Dim);
    for Section { title, statements, table, notes } in sections {
        page.section(&safe_line(&title));
        statements.iter().for_each(|statement| page.item(statement, Tone::Plain));
        if let Some(table) = table {
            if !statements.is_empty() {
                page.blank();
            }
            page.lines.extend(lay_out(&table, page.width));
            if !notes.is_empty() {
                page.blank();
            }
        }
        notes.iter().for_each(|note| page.item(note, Tone::Dim));
    }
    paint(&page.lines, colour)
}

struct Page {
    lines: Vec<Line>,
    width: usize,
}

impl Page {
    fn blank(&mut self) {
        self.lines.push(Line::default());
    }

    fn prose_width(&self) -> usize {
        self.width.min(PROSE_COLUMNS_MAX)
    }

    fn section(&mut self, title: &str) {
        self.blank();
        let line = Line::default().and(title, Tone::Strong).and(" ", Tone::Plain);
        let rule = self.width.min(RULE_COLUMNS_MAX).saturating_sub(line.width_columns());
        self.lines.push(line.and("─".repeat(rule), Tone::Dim));
    }

    fn prose(&mut self, indent: usize, text: &str, tone: Tone) {
        self.lines.extend(hang(Line::indented(indent), &safe_line(text), tone, self.prose_width()));
    }

    fn item(&mut self, text: &str, tone: Tone) {
        let bullet = Line::indented(INDENT).and("· ", Tone::Dim);
        self.lines.extend(hang(bullet, &safe_line(text), tone, self.prose_width()));
    }

    fn head(&mut self, report: &Report) {
        self.verdict(report);
        let circumstances = describe::circumstances(report).join(" · ");
        self.prose(INDENT, &circumstances, Tone::Dim);
        if let Some(reason) = &report.record.aborted {
            self.prose(INDENT, &format!("The run ended before its schedule did: {reason}"), Tone::Warning);
        }
        for warning in describe::warnings(report) {
            self.prose(INDENT, &warning, Tone::Warning);
        }
        for left in &report.record.left_behind {
            self.prose(INDENT, &format!("{}, {}", left.arm, left.in_words()), Tone::Warning);
            let line = Line::indented(INDENT).and("to remove them:  ", Tone::Dim);
            self.lines.push(line.and(&left.removal, Tone::Strong));
        }
    }

    fn verdict(&mut self, report: &Report) {
        let (sign, word, tone) = wording::headline(report);
        let line = Line::default().and(sign, tone).and(format!(" {word}"), tone);
        self.lines.push(line.and("  ", Tone::Plain).and(&report.record.name, Tone::Strong));
        let (message, warning) = describe::message(report);
        self.prose(INDENT, &message, Tone::Plain);
        if let Some(warning) = warning {
            self.prose(INDENT, warning, Tone::Warning);
        }
    }

    fn not_measured(&mut self, report: &Report) {
        for arm in &report.record.arms {
            if let Some(unavailable) = &arm.unavailable {
                self.blank();
                self.prose(INDENT, &format!("{} was not measured: {}", arm.name, unavailable.reason), Tone::Warning);
                // One line however long, so that it can be copied.
                let line = Line::indented(INDENT).and("to install it:  ", Tone::Dim);
                self.lines.push(line.and(&unavailable.install, Tone::Strong));
            }
        }
    }

    fn workloads(&mut self, report: &Report) {
        for workload in &report.record.spec.workloads {
            self.section(&workload.name);
            let asked = describe::asked(workload, report.record.driver);
            self.prose(INDENT, &asked, Tone::Dim);
            if let Some(line) = measures::nothing_measured(report, workload) {
                self.prose(INDENT, line, Tone::Warning);
                continue;
            }
            self.blank();
            let results = measures::results(report, workload);
            self.lines.extend(lay_out(&results, self.width));
            if let Some(table) = measures::comparisons(report, workload) {
                self.blank();
                self.lines.extend(lay_out(&table, self.width));
            }
            if let Some(table) = load_curve::table(report, workload) {
                self.blank();
                self.lines.extend(lay_out(&table, self.width));
            }
            if let Some(table) = requests::table(report, workload) {
                self.blank();
                self.lines.extend(lay_out(&table, self.width));
            }
            let left_out = left_out(&results, self.width);
            let notes = measures::notes(report, workload, &left_out);
            if !notes.is_empty() {
                self.blank();
            }
            for note in notes {
                self.item(&note, Tone::Dim);
            }
        }
    }

    fn gates(&mut self, report: &Report) {
        let Some(table) = ledger::gates(report) else { return };
        self.section("gates");
        if let Some(lines) = grid(&table, self.width) {
            self.lines.extend(lines);
            return;
        }
        let outcomes = table.rows.iter().filter_map(|row| row.first()).map(|cell| width_columns(&cell.text));
        let start = INDENT + outcomes.max().unwrap_or(0) + 2;
        for row in &table.rows {
            if let [outcome, gate, found] = row.as_slice() {
                let label = Line::indented(INDENT).and(&outcome.text, outcome.tone).fill(start);
                self.lines.extend(hang(label, &gate.text, Tone::Plain, self.width));
                self.lines.extend(hang(Line::indented(start), &found.text, Tone::Dim, self.width));
            }
        }
    }

    fn resources(&mut self, report: &Report) {
        let Some(table) = resources::table(report) else { return };
        self.section("resources");
        self.lines.extend(lay_out(&table, self.width));
    }

    fn caveats(&mut self, report: &Report) {
        if report.judgement.caveats.is_empty() {
            return;
        }
        self.section("before you believe a number");
        for caveat in &report.judgement.caveats {
            let bullet = Line::indented(INDENT).and("! ", Tone::Warning);
            self.lines.extend(hang(bullet, &safe_line(caveat), Tone::Plain, self.prose_width()));
        }
    }

    fn trials(&mut self, report: &Report) {
        self.section("trials");
        for statement in ledger::trials_summary(report) {
            self.prose(INDENT, &statement, Tone::Plain);
        }
        for (which, why) in ledger::lost_trials(report) {
            let label = Line::indented(INDENT).and("✗ ", Tone::Bad).and(which, Tone::Plain).and("  ", Tone::Plain);
            self.lines.extend(hang(label, &safe_line(&why), Tone::Plain, self.width));
        }
    }

    fn arms(&mut self, report: &Report) {
        self.section("arms");
        let names = report.record.arms.iter().map(|arm| Line::default().and(&arm.name, Tone::Plain).width_columns());
        // A long name takes its own line rather than push every other arm's facts to the right.
        let start = INDENT + names.max().unwrap_or(0).min(16) + 2;
        for arm in &report.record.arms {
            let label = Line::indented(INDENT).and(&arm.name, Tone::Strong);
            let facts = safe_line(&ledger::arm_facts(report, arm).join(", "));
            if label.width_columns() + 2 > start {
                self.lines.push(label);
                self.lines.extend(hang(Line::indented(start), &facts, Tone::Plain, self.width));
            } else {
                self.lines.extend(hang(label.fill(start), &facts, Tone::Plain, self.width));
            }
            if arm.unavailable.is_some() {
                self.lines.push(Line::indented(start).and("not measured, see above", Tone::Warning));
            }
        }
    }

    fn fingerprint(&mut self, report: &Report) {
        let fingerprint = &report.record.fingerprint;
        self.section(&format!("fingerprint {}", fingerprint.hash));
        let facts: Vec<String> = fingerprint.facts.iter().map(|(name, fact)| format!("{name}: {fact}")).collect();
        self.prose(INDENT, &facts.join(" · "), Tone::Plain);
    }

    fn guide(&mut self, report: &Report) {
        self.section("how to read this");
        for statement in describe::reading_guide(report) {
            self.item(&statement, Tone::Dim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn reports_look_as_agreed() {
        for (name, report) in fixture::all() {
            for width in [80, 120] {
                insta::assert_snapshot!(format!("text_{name}_{width}"), text(&report, width, false));
            }
        }
    }

    #[test]
    fn two_levels_look_as_agreed() {
        let (store, kubernetes) = fixture::two_levels();
        let levels = TwoLevels::of(&store, &kubernetes).unwrap();
        for width in [80, 120] {
            let text = levels_text(&levels, width, false);
            for line in text.lines() {
                assert!(width_columns(line) <= width, "{width}: {line}");
            }
            insta::assert_snapshot!(format!("text_two_levels_{width}"), text);
        }
    }

    #[test]
    fn lines_keep_to_the_width_but_commands_stay_whole() {
        for (name, report) in fixture::all() {
            let commands: Vec<_> = report.record.arms.iter().filter_map(|arm| arm.unavailable.as_ref()).collect();
            for width in [60, 80, 120, 200] {
                let text = text(&report, width, false);
                for command in &commands {
                    assert!(text.contains(&command.install), "{name}");
                }
                for line in text.lines() {
                    let is_command = commands.iter().any(|command| line.contains(&command.install));
                    assert!(is_command || width_columns(line) <= width, "{name}, {width}: {line}");
                }
            }
        }
    }

    #[test]
    fn colours_only_where_asked_and_never_from_outside() {
        for (name, report) in fixture::all().into_iter().chain([("hostile", fixture::hostile())]) {
            let plain = text(&report, 80, false);
            assert!(!plain.contains(|character: char| character.is_control() && character != '\n'), "{name}");
            let colours = text(&report, 80, true);
            assert!(colours.contains("\x1b[1m"), "{name}");
            let mut stripped = colours;
            for code in ["1", "2", "32", "1;31", "33", "0"] {
                stripped = stripped.replace(&format!("\x1b[{code}m"), "");
            }
            assert_eq!(stripped.replace(' ', ""), plain.replace(' ', ""), "{name}");
        }
    }

    #[test]
    fn who_may_not_be_ranked_is_not_called_better() {
        for report in [fixture::unequal_durability(), fixture::wrong_answer()] {
            let text = text(&report, 120, false);
            for claim in ["faster", "slower", "lower", "higher"] {
                assert!(!text.contains(claim), "{claim}");
            }
            assert!(text.contains("not ranked"));
        }
    }
}
