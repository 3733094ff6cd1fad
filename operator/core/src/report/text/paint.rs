//! Lines of text with meanings, and their colours where colours were asked for.

use super::super::safe_line::{safe_line, width_columns};
use super::super::table::Tone;

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    text: String,
    tone: Tone,
}

/// One line, without its end. Whatever is put into it is made safe for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    spans: Vec<Span>,
}

impl Line {
    /// A line that begins with so many spaces.
    pub(super) fn indented(columns: usize) -> Self {
        Self::default().and(" ".repeat(columns), Tone::Plain)
    }

    /// The line with `text` at its end.
    pub(super) fn and(mut self, text: impl AsRef<str>, tone: Tone) -> Self {
        let text = safe_line(text.as_ref());
        if !text.is_empty() {
            self.spans.push(Span { text, tone });
        }
        self
    }

    /// The line, filled with spaces up to `columns`.
    pub(super) fn fill(self, columns: usize) -> Self {
        let missing = columns.saturating_sub(self.width_columns());
        self.and(" ".repeat(missing), Tone::Plain)
    }

    /// Columns on a terminal.
    pub(super) fn width_columns(&self) -> usize {
        self.spans.iter().map(|span| width_columns(&span.text)).sum()
    }

    /// Writes the line and its end. Spaces at the end are left out.
    fn write(&self, colour: bool, out: &mut String) {
        let start = out.len();
        for span in &self.spans {
            match sgr(span.tone) {
                Some(code) if colour && !span.text.trim().is_empty() => {
                    out.push_str(&format!("\x1b[{code}m{}\x1b[0m", span.text));
                }
                _ => out.push_str(&span.text),
            }
        }
        let kept = out[start..].trim_end_matches(' ').len();
        out.truncate(start + kept);
        out.push('\n');
    }
}

/// All lines as one text.
pub(super) fn paint(lines: &[Line], colour: bool) -> String {
    let mut out = String::new();
    for line in lines {
        line.write(colour, &mut out);
    }
    out
}

/// The parameters of the terminal's Select Graphic Rendition sequence (ECMA-48 §8.3.117). The eight basic colours only:
/// they follow the user's own theme.
fn sgr(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Strong => Some("1"),
        Tone::Dim => Some("2"),
        Tone::Good => Some("32"),
        Tone::Bad => Some("1;31"),
        Tone::Warning => Some("33"),
    }
}
