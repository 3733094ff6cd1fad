//! Text from outside (names, facts, reasons, command lines) made safe to show: one line, no terminal control, no
//! invisible reordering; and how wide it is on a terminal.
//!
//! Escaping for a medium (HTML, Markdown) comes on top of this and lives with the medium.

use storebench_crds::line::is_safe;
use unicode_width::UnicodeWidthChar as _;

/// `text` on one line: line ends and tabs become spaces; control characters (escape sequences of terminals among them)
/// and characters that reorder or hide their neighbours become U+FFFD.
pub(super) fn safe_line(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
            shown if is_safe(shown) => shown,
            _ => '\u{FFFD}',
        })
        .collect()
}

/// Columns that `text` takes on a terminal: two for East Asian wide characters and emoji, none for combining marks.
pub(super) fn width_columns(text: &str) -> usize {
    text.chars().map(character_columns).sum()
}

fn character_columns(character: char) -> usize {
    character.width().unwrap_or(0)
}

/// `text` in lines of at most `columns`, broken at spaces; a word wider than a line is broken inside. At least one line.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in bound_words(text) {
        let mut rest = word.as_str();
        loop {
            let gap = usize::from(used > 0);
            let needed = width_columns(rest);
            if used + gap + needed <= columns {
                push(&mut lines, gap, rest);
                used += gap + needed;
                break;
            }
            if used > 0 {
                lines.push(String::new());
                used = 0;
                continue;
            }
            let (head, tail) = split_at_columns(rest, columns);
            push(&mut lines, 0, head);
            lines.push(String::new());
            rest = tail;
        }
    }
    lines
}

/// Units that stay on the line of their number.
const UNITS: [&str; 14] = ["%", "ns", "µs", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB", "core", "cores", "×"];

/// The words of `text`, a number and its unit as one.
fn bound_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', '.', ';', ':', ')']));
        match words.last_mut() {
            Some(number) if is_unit && number.ends_with(|last: char| last.is_ascii_digit()) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn push(lines: &mut [String], gap: usize, word: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(&" ".repeat(gap));
        line.push_str(word);
    }
}

/// The longest beginning of at most `columns` (one character at least), and the rest.
fn split_at_columns(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    for (position, character) in text.char_indices() {
        used += character_columns(character);
        if used > columns && position > 0 {
            return text.split_at(position);
        }
    }
    (text, "")
}

/// `text` in at most `characters` characters: the middle gives way to `…`, since names differ at either end.
pub(super) fn elide_middle(text: &str, characters: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= characters || characters < 3 {
        return text.to_owned();
    }
    let tail = (characters - 1) / 2;
    let head = characters - 1 - tail;
    all[..head].iter().chain(std::iter::once(&'…')).chain(&all[all.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminals_are_not_controlled_from_outside() {
        assert_eq!(safe_line("a\u{1b}[31mred\u{7}\nb\tc"), "a\u{FFFD}[31mred\u{FFFD} b c");
        assert_eq!(safe_line("rusd\u{202E}dcte"), "rusd\u{FFFD}dcte");
        assert_eq!(safe_line("数据 · µs – ±"), "数据 · µs – ±");
    }

    #[test]
    fn wide_and_combining_characters_are_measured() {
        assert_eq!(width_columns("etcd ±1.2 %"), 11);
        assert_eq!(width_columns("数据库"), 6);
        assert_eq!(width_columns("e\u{301}"), 1);
        assert_eq!(width_columns("✅"), 2);
    }

    #[test]
    fn long_words_are_broken_and_short_ones_are_not() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("its 95 % interval", 6), ["its", "95 %", "interv", "al"]);
    }

    #[test]
    fn both_ends_of_a_long_name_stay() {
        assert_eq!(elide_middle("short", 10), "short");
        assert_eq!(elide_middle("etcd-three-members-tuned", 11), "etcd-…tuned");
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_lose_nothing(text in "[a-z数 ]{0,80}", columns in 2usize..40) {
            let lines = wrap(&text, columns);
            for line in &lines {
                prop_assert!(width_columns(line) <= columns, "{line:?}");
            }
            let kept: String = lines.concat().split(' ').collect();
            prop_assert_eq!(kept, text.split(' ').collect::<String>());
        }
    }
}
