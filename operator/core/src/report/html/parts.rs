//! Pieces of the page: sections, figures, tables, lists. Titles and contents that are texts are escaped here; those that
//! are markup say so in their names.

use super::super::table::{Align, Cell, SUBORDINATE, Table, Tone};
use super::escape::escape;
use super::palette;

/// A section with its heading.
pub(super) fn section(id: &str, title: &str, markup: &str) -> String {
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n{markup}</section>\n",
        escape(title)
    )
}

/// A chart with its name and how to read it.
pub(super) fn figure(title: &str, explanation: &str, chart_markup: &str) -> String {
    let (title, explanation) = (escape(title), escape(explanation));
    format!("<figure>\n<figcaption><h3>{title}</h3><p>{explanation}</p></figcaption>\n{chart_markup}</figure>\n")
}

/// What is folded away until it is asked for.
pub(super) fn details(title: &str, markup: &str) -> String {
    format!("<details>\n<summary>{}</summary>\n{markup}</details>\n", escape(title))
}

/// What must not be overlooked.
pub(super) fn callout(markup: &str) -> String {
    format!("<div class=\"callout tone-warning\">\n{markup}\n</div>\n")
}

/// Statements, one below the other. Nothing if there are none.
pub(super) fn list<T: AsRef<str>>(class: &str, statements: &[T]) -> String {
    let items: String =
        statements.iter().map(|statement| format!("<li>{}</li>\n", escape(statement.as_ref()))).collect();
    if items.is_empty() { items } else { format!("<ul class=\"{class}\">\n{items}</ul>\n") }
}

/// A table that scrolls inside its own box where the screen is narrow.
pub(super) fn table(label: &str, table: &Table) -> String {
    rendered(label, table, "")
}

/// A table that is no wider than it must be.
pub(super) fn compact_table(label: &str, table: &Table) -> String {
    rendered(label, table, " class=\"compact\"")
}

/// A table of sentences, which may break their lines.
pub(super) fn wrapping_table(label: &str, table: &Table) -> String {
    rendered(label, table, " class=\"wrap\"")
}

fn rendered(label: &str, table: &Table, class: &str) -> String {
    let aligned = |align: Align| if align == Align::Right { " class=\"n\"" } else { "" };
    let head: String = table
        .columns
        .iter()
        .map(|column| match column.title.as_str() {
            // An empty heading would be announced as one.
            "" => "<td></td>".to_owned(),
            title => format!("<th scope=\"col\"{}>{}</th>", aligned(column.align), escape(title)),
        })
        .collect();
    let rows: String = table
        .rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&table.columns).enumerate();
            let cells: String =
                cells.map(|(position, (found, column))| cell(found, column.align, position == 0)).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    // A box that scrolls must be reachable by keyboard, and then it needs a name.
    let label = escape(label);
    format!(
        "<div class=\"scroll\" role=\"group\" aria-label=\"{label}\" tabindex=\"0\">\n<table{class}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
    )
}

fn cell(cell: &Cell, align: Align, names_its_row: bool) -> String {
    let number = (align == Align::Right).then_some("n");
    let subordinate = cell.text.starts_with(SUBORDINATE).then_some("subordinate");
    let classes: Vec<&str> = [number, tone_name(cell.tone), subordinate].into_iter().flatten().collect();
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let mark = cell.arm_mark.map_or_else(String::new, |arm| {
        format!("<svg class=\"mark\" aria-hidden=\"true\"><use href=\"#mark-{}\"/></svg>", arm % palette::ARMS)
    });
    let text = escape(cell.text.trim());
    if names_its_row && align == Align::Left {
        format!("<th scope=\"row\"{class}>{mark}{text}</th>")
    } else {
        format!("<td{class}>{mark}{text}</td>")
    }
}

fn tone_name(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Strong => Some("strong"),
        Tone::Dim => Some("dim"),
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Warning => Some("warning"),
    }
}

/// The class of a banner with this tone, after `tone-`.
pub(super) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warning => "warning",
        Tone::Plain | Tone::Strong | Tone::Dim => "plain",
    }
}

/// `p99 latency` as it is, `throughput` as `Throughput`.
pub(super) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) if !text.starts_with("p9") => first.to_uppercase().chain(characters).collect(),
        _ => text.to_owned(),
    }
}
