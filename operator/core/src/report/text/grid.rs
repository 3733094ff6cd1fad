//! Tables in a given width: as a grid, as a grid with fewer columns, with long names on lines of their own, or one entry
//! below the other.
//!
//! Promises: nothing is cut; a column that is not dispensable is shown whatever the width.

use super::super::safe_line::{width_columns, wrap};
use super::super::table::{Align, Cell, Table, Tone};
use super::paint::Line;

/// Spaces before every line of a table.
pub(super) const INDENT: usize = 2;
/// Spaces between columns.
const GAP: usize = 2;
/// The column of names may be squeezed to this, no further.
const NAME_COLUMNS_MIN: usize = 9;

/// Lays a table out in `width` columns of the terminal.
pub(super) fn lay_out(table: &Table, width: usize) -> Vec<Line> {
    grid(table, width).or_else(|| squeezed_grid(table, width)).unwrap_or_else(|| stack(table, width))
}

/// Titles of the columns that [`lay_out`] leaves out, for want of width.
pub(super) fn left_out(table: &Table, width: usize) -> Vec<&str> {
    let shown = match fitting(table, width) {
        Some((shown, _)) => shown,
        None if squeezed_grid(table, width).is_some() => indispensable(table),
        None => return Vec::new(),
    };
    let left_out = table.columns.iter().enumerate().filter(|(column, _)| !shown.contains(column));
    left_out.map(|(_, column)| column.title.as_str()).collect()
}

/// The table as a grid, without its dispensable columns as far as needed. `None`: it is still too wide.
pub(super) fn grid(table: &Table, width: usize) -> Option<Vec<Line>> {
    let (shown, widths) = fitting(table, width)?;
    Some(draw(table, &shown, &widths))
}

/// The columns that fit, and their widths.
fn fitting(table: &Table, width: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    let mut shown: Vec<usize> = (0..table.columns.len()).collect();
    loop {
        let widths: Vec<usize> = shown
            .iter()
            .map(|&column| cells_width(table, column).max(width_columns(&table.columns[column].title)))
            .collect();
        if total_width(&widths) <= width {
            return Some((shown, widths));
        }
        let rank = shown.iter().map(|&column| table.columns[column].dispensable).max().filter(|&rank| rank > 0)?;
        shown.retain(|&column| table.columns[column].dispensable < rank);
    }
}

/// The indispensable columns as a grid, with titles over several lines and names that are too long on lines of their own.
fn squeezed_grid(table: &Table, width: usize) -> Option<Vec<Line>> {
    let shown = indispensable(table);
    let title_width = |column: usize| pieces(&table.columns[column].title).into_iter().map(width_columns).max();
    let mut widths: Vec<usize> =
        shown.iter().map(|&column| cells_width(table, column).max(title_width(column).unwrap_or(0))).collect();
    let excess = total_width(&widths).saturating_sub(width);
    let name = widths.first_mut()?;
    *name = name.saturating_sub(excess).max(NAME_COLUMNS_MIN.min(*name));
    (total_width(&widths) <= width).then(|| draw(table, &shown, &widths))
}

fn indispensable(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).filter(|&column| table.columns[column].dispensable == 0).collect()
}

fn cells_width(table: &Table, column: usize) -> usize {
    table.rows.iter().filter_map(|row| row.get(column)).map(|cell| width_columns(&cell.text)).max().unwrap_or(0)
}

fn total_width(widths: &[usize]) -> usize {
    INDENT + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn draw(table: &Table, shown: &[usize], widths: &[usize]) -> Vec<Line> {
    let mut lines = title_lines(table, shown, widths);
    let aligns: Vec<Align> = shown.iter().map(|&column| table.columns[column].align).collect();
    for row in &table.rows {
        let mut cells: Vec<Cell> = shown.iter().filter_map(|&column| row.get(column)).cloned().collect();
        // A name that does not fit stands on the line above its numbers.
        if let (Some(name), Some(&room)) = (cells.first_mut(), widths.first())
            && width_columns(&name.text) > room
        {
            lines.push(Line::indented(INDENT).and(&name.text, name.tone));
            *name = Cell::default();
        }
        lines.push(row_line(&cells, &aligns, widths));
    }
    lines
}

/// The titles, in as many lines as the narrowest column needs, flush with the first row.
fn title_lines(table: &Table, shown: &[usize], widths: &[usize]) -> Vec<Line> {
    let titles: Vec<Vec<String>> =
        shown.iter().zip(widths).map(|(&column, &width)| title_in_lines(&table.columns[column].title, width)).collect();
    let height = titles.iter().map(Vec::len).max().unwrap_or(0);
    let aligns: Vec<Align> = shown.iter().map(|&column| table.columns[column].align).collect();
    (0..height)
        .map(|line| {
            let part = |title: &Vec<String>| {
                (line + title.len()).checked_sub(height).and_then(|part| title.get(part).cloned())
            };
            let cells: Vec<Cell> =
                titles.iter().map(|title| Cell::toned(part(title).unwrap_or_default(), Tone::Dim)).collect();
            row_line(&cells, &aligns, widths)
        })
        .collect()
}

/// A title in lines of at most `width`, as far as its pieces allow. No line for an empty title.
fn title_in_lines(title: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces(title) {
        match lines.last_mut() {
            Some(line) if width_columns(line) + width_columns(piece.trim_end()) <= width => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A title broken where a name can be broken: after hyphens, underscores and spaces.
fn pieces(title: &str) -> Vec<&str> {
    title.split_inclusive(['-', '_', ' ']).collect()
}

fn row_line(cells: &[Cell], aligns: &[Align], widths: &[usize]) -> Line {
    let mut line = Line::indented(INDENT);
    for (position, ((cell, align), &width)) in cells.iter().zip(aligns).zip(widths).enumerate() {
        if position > 0 {
            line = line.and(" ".repeat(GAP), Tone::Plain);
        }
        let padding = " ".repeat(width.saturating_sub(width_columns(&cell.text)));
        line = match align {
            Align::Left => line.and(&cell.text, cell.tone).and(padding, Tone::Plain),
            Align::Right => line.and(padding, Tone::Plain).and(&cell.text, cell.tone),
        };
    }
    line
}

/// Each row as its name and, below it, every cell with its column's title.
fn stack(table: &Table, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let titles = table.columns.iter().skip(1).map(|column| width_columns(&column.title)).max().unwrap_or(0);
    for row in &table.rows {
        let mut cells = row.iter();
        if let Some(name) = cells.next() {
            // A title that says more than what the names are of belongs to each of them, as in "valkey against redis".
            let title = table.columns.first().map_or("", |column| column.title.as_str());
            let title = if title.contains(' ') { format!(" {title}") } else { String::new() };
            lines.extend(wrapped(Line::indented(INDENT).and(&name.text, name.tone), &title, width));
        }
        for (cell, column) in cells.zip(table.columns.iter().skip(1)).filter(|(cell, _)| !cell.text.is_empty()) {
            let start = INDENT * 2 + titles + GAP;
            let label = Line::indented(INDENT * 2).and(&column.title, Tone::Dim).fill(start);
            lines.extend(hang(label, &cell.text, cell.tone, width));
        }
    }
    lines
}

/// `title` behind `label`, or below it where both are too long for a line.
fn wrapped(label: Line, title: &str, width: usize) -> Vec<Line> {
    match label.width_columns() + width_columns(title) <= width {
        true => vec![label.and(title, Tone::Dim)],
        false => [vec![label], hang(Line::indented(INDENT), title.trim_start(), Tone::Dim, width)].concat(),
    }
}

/// `text` after `label`, its further lines flush with its first.
pub(super) fn hang(label: Line, text: &str, tone: Tone, width: usize) -> Vec<Line> {
    let start = label.width_columns();
    // Where the label leaves no room to read in, the text runs over rather than stand one letter to a line.
    let room = width.saturating_sub(start).max(20);
    let mut label = Some(label);
    let lines = wrap(text, room).into_iter();
    lines.map(|part| label.take().unwrap_or_else(|| Line::indented(start)).and(part, tone)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::table::Column;
    use super::super::paint::paint;
    use super::*;
    use proptest::prelude::*;

    fn table(name: &str) -> Table {
        Table {
            columns: vec![
                Column::words("arm"),
                Column::numbers("throughput"),
                Column::numbers("p90").dispensable(1),
                Column::numbers("p99"),
            ],
            rows: vec![vec![Cell::plain(name), Cell::plain("12.3k/s"), Cell::plain("1.20 ms"), Cell::plain("1.84 ms")]],
        }
    }

    fn shown(name: &str, width: usize) -> String {
        paint(&lay_out(&table(name), width), false)
    }

    #[test]
    fn what_is_left_out_is_what_is_not_shown() {
        for width in 5..90 {
            let shown = shown("a-name-of-some-length", width);
            let table = table("a-name-of-some-length");
            let missing: Vec<&str> = table
                .columns
                .iter()
                .map(|column| column.title.as_str())
                .filter(|title| *title == "p90" && !shown.contains(title))
                .collect();
            assert_eq!(left_out(&table, width), missing, "{width}");
        }
    }

    #[test]
    fn less_room_fewer_columns_then_names_alone_then_one_below_the_other() {
        assert_eq!(shown("etcd", 80), "  arm   throughput      p90      p99\n  etcd     12.3k/s  1.20 ms  1.84 ms\n");
        assert_eq!(shown("etcd", 30), "  arm   throughput      p99\n  etcd     12.3k/s  1.84 ms\n");
        let long = "a-name-of-some-length";
        assert_eq!(
            shown(long, 34),
            format!("  arm          throughput      p99\n  {long}\n                  12.3k/s  1.84 ms\n")
        );
        assert_eq!(
            shown("etcd", 20),
            "  etcd\n    throughput  12.3k/s\n    p90         1.20 ms\n    p99         1.84 ms\n"
        );
    }

    #[test]
    fn what_arms_are_held_against_is_told_at_any_width() {
        let mut compared = table("valkey");
        compared.columns[0] = Column::words("against redis");
        for width in [20, 40, 60, 120] {
            assert!(paint(&lay_out(&compared, width), false).contains("against redis"), "{width}");
        }
        let long = "a".repeat(40);
        compared.rows[0][0] = Cell::plain(&long);
        let narrow = paint(&stack(&compared, 50), false);
        assert!(narrow.starts_with(&format!("  {long}\n  against redis\n")), "{narrow}");
    }

    #[test]
    fn long_titles_break_at_hyphens() {
        assert_eq!(
            title_in_lines("etcd-3-6-experimental-large-page", 13),
            ["etcd-3-6-", "experimental-", "large-page"]
        );
        assert_eq!(title_in_lines("p99", 3), ["p99"]);
    }

    proptest! {
        #[test]
        fn every_indispensable_cell_is_there_at_any_width(name in "[a-z-]{1,40}", width in 1usize..130) {
            let text = shown(&name, width);
            for cell in [name.as_str(), "12.3k/s", "1.84 ms"] {
                prop_assert!(text.replace("\n              ", "").contains(cell) || text.contains(cell), "{text}");
            }
        }
    }
}
