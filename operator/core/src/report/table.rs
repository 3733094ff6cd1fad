//! A table before it has a medium: what text, Markdown and HTML all render, so that they cannot disagree.

use super::safe_line::safe_line;

/// What a cell means, for media that can show it beside its words. Never the only carrier of a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// Read this first.
    Strong,
    /// Secondary.
    Dim,
    /// Better, met, passed.
    Good,
    /// Worse, missed, wrong.
    Bad,
    /// Do not rely on this.
    Warning,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// What it says, on one line, safe for a terminal.
    pub(super) text: String,
    /// What that means.
    pub(super) tone: Tone,
    /// The arm whose mark (colour and shape in charts) belongs beside the text, by position in the record.
    pub(super) arm_mark: Option<usize>,
}

/// What stands where nothing was measured.
pub(super) const ABSENT: &str = "—";

/// What the name of a row begins with that belongs to the row above it.
pub(super) const SUBORDINATE: &str = "  ";

impl Cell {
    /// A cell with nothing special about it.
    pub(super) fn plain(text: impl AsRef<str>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    /// A cell with a meaning.
    pub(super) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: safe_line(text.as_ref()), tone, arm_mark: None }
    }

    /// An arm's name with its mark.
    pub(super) fn arm(name: &str, position: usize) -> Self {
        Self { arm_mark: Some(position), ..Self::toned(name, Tone::Strong) }
    }

    /// A cell for what was not measured.
    pub(super) fn absent() -> Self {
        Self::toned(ABSENT, Tone::Dim)
    }

    /// A value if there is one.
    pub(super) fn or_absent(text: Option<String>) -> Self {
        text.map_or_else(Self::absent, Self::plain)
    }
}

/// To which side a column's cells are flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// What stands above it.
    pub(super) title: String,
    /// To which side its cells are flush.
    pub(super) align: Align,
    /// 0: always shown. Above: left out where space is short, the highest first.
    pub(super) dispensable: u8,
}

impl Column {
    /// A column of words that is always shown.
    pub(super) fn words(title: impl AsRef<str>) -> Self {
        Self { title: safe_line(title.as_ref()), align: Align::Left, dispensable: 0 }
    }

    /// A column of numbers that is always shown.
    pub(super) fn numbers(title: impl AsRef<str>) -> Self {
        Self { align: Align::Right, ..Self::words(title) }
    }

    /// The same, left out where space is short.
    pub(super) fn dispensable(self, rank: u8) -> Self {
        Self { dispensable: rank, ..self }
    }
}

/// Columns and rows. Every row has as many cells as there are columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The columns, from left to right. The first one names its row.
    pub(super) columns: Vec<Column>,
    /// The rows, from top to bottom.
    pub(super) rows: Vec<Vec<Cell>>,
}
