//! Text from outside as HTML: shown as it is, never obeyed.

use super::super::safe_line::safe_line;

/// `text` on one line, for an element's content or for an attribute in double quotes.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in safe_line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// `text` with its line ends, for the content of `<pre>`.
pub(super) fn escape_block(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_keep_their_lines() {
        assert_eq!(escape_block("a: <b>\n  c: \"d\"\n"), "a: &lt;b&gt;\n  c: &quot;d&quot;");
    }

    proptest! {
        #[test]
        fn nothing_can_leave_an_element_or_an_attribute(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'', '\n']));
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
            for (position, _) in escaped.match_indices('&') {
                prop_assert!(entities.iter().any(|entity| escaped[position..].starts_with(entity)));
            }
        }
    }
}
