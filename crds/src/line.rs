//! Text from elsewhere as one line of a message: what servers, files and libraries say.

/// `text` as one line that cannot control a terminal: white space in a row is one space, and so is what would move the cursor,
/// reorder the line or hide a part of it.
pub fn one_line(text: &str) -> String {
    let shown: String = text.chars().map(|character| if is_safe(character) { character } else { ' ' }).collect();
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// [`one_line`] of at most `bytes_max` bytes, cut between characters, with an ellipsis where something is missing.
pub fn short_line(text: &str, bytes_max: usize) -> String {
    let mut line = one_line(text);
    if line.len() > bytes_max {
        line.truncate(line.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8())));
        line.push('…');
    }
    line
}

/// Whether a character shows as itself: no control character, and none that reorders or hides its neighbours: bidirectional embeddings,
/// overrides and isolates (Unicode TR 9, "Trojan source"), separators of lines, zero-width spaces and joiners, tags, the byte order mark.
pub fn is_safe(character: char) -> bool {
    let reorders_or_hides = matches!(
        character,
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}'
    );
    !character.is_control() && !reorders_or_hides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stays_one_line_whatever_was_said() {
        assert_eq!(one_line("  first\r\n\tsecond\u{1b}[2J \u{202E}third\n"), "first second [2J third");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line("a\u{E0061}\u{E0062}b"), "a b", "tags, which nobody sees");
    }

    #[test]
    fn a_short_line_is_cut_between_characters() {
        assert_eq!(short_line("a line", 6), "a line");
        assert_eq!(short_line("\nöööö", 7), "öö…");
    }
}
