//! A text with tables before it has a medium: for what is not one run's report.

use super::table::Table;

/// What is said, from top to bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its title.
    pub(super) title: String,
    /// What it is about, in a sentence.
    pub(super) summary: String,
    /// Its sections.
    pub(super) sections: Vec<Section>,
}

impl Document {
    /// The same with a line before what it is about.
    #[must_use]
    pub fn saying(self, line: &str) -> Self {
        Self { summary: format!("{line} · {}", self.summary), ..self }
    }
}

/// A section: statements, a table, notes on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Its title.
    pub(super) title: String,
    /// What it says, one sentence each.
    pub(super) statements: Vec<String>,
    /// What it shows.
    pub(super) table: Option<Table>,
    /// How to read it, one statement each.
    pub(super) notes: Vec<String>,
}

impl Section {
    /// A section that says nothing yet.
    pub(super) fn new(title: &str) -> Self {
        Self { title: title.into(), ..Self::default() }
    }
}
