//! Messages in one line: quoting what a user wrote, and explaining what the YAML parser says.

use serde_yaml::Error;

use crate::line;

/// Bytes of a message from a library that are kept.
const MESSAGE_BYTES_MAX: usize = 200;
/// Characters of a user's text that are quoted in a message.
const QUOTE_CHARACTERS_MAX: usize = 60;

/// Folds a message into one line of bounded length.
pub(super) fn folded(text: &str) -> String {
    line::short_line(text, MESSAGE_BYTES_MAX)
}

/// Cuts user text that is quoted in a message to a readable length, without what would move a terminal's cursor or
/// reorder the line.
pub(super) fn shorten(text: &str) -> String {
    cut(text, QUOTE_CHARACTERS_MAX)
}

fn cut(text: &str, characters_max: usize) -> String {
    let mut characters = text.chars();
    let mut short: String =
        characters.by_ref().take(characters_max).map(|c| if line::is_safe(c) { c } else { ' ' }).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

/// What is wrong with a text that is not YAML, where, and what to do about it.
pub(super) fn not_yaml(error: &Error) -> String {
    let place = match error.location() {
        Some(location) => format!(" at line {}, column {}", location.line(), location.column()),
        None => String::new(),
    };
    let message = error.to_string();
    // The parser says where in its own words, too; the place is given above.
    let message = folded(message.split(" at line ").next().unwrap_or(&message));
    let (problem, remedy) = match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or("a key".into(), |key| format!("`{}`", shorten(key)));
            // Two files, one behind the other.
            let starts_an_object = key == "`apiVersion`" || key == "`kind`";
            let remedy = if starts_an_object {
                "put --- between two objects, or remove one of them"
            } else {
                "remove one of them"
            };
            (format!("{key} is given twice"), remedy)
        }
        Error::UnknownAnchor { .. } => (
            "an alias names no anchor before it".into(),
            "define the anchor with &, or put a text that starts with * in quotes",
        ),
        // Inside an alias the parser passes on that a limit was reached, but only as text.
        _ if ["budget breached", "limit exceeded"].iter().any(|limit| message.contains(limit)) => {
            ("nests or repeats more than any object needs".into(), "write it out without nested aliases")
        }
        _ if message.split_whitespace().any(|word| word.starts_with("tab")) => (message, "indent with spaces"),
        _ => (message, "correct the indentation or the quotes there"),
    };
    format!("is not valid YAML{place}: {problem}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short_and_cannot_break_the_line() {
        assert_eq!(shorten("etcd"), "etcd");
        assert_eq!(shorten("a\nb\u{2028}c\u{1b}[31m"), "a b c [31m");
        assert_eq!(shorten(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(shorten(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
