//! Mistyped words of a command line: what was probably meant.

use strsim::osa_distance;

/// The known word that is most like `word`; none where it takes more than a third of the letters to get there, for a guess that is no
/// help is worse than none. Of several that are equally near, the first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let edits_max = (word.chars().count() / 3).max(1);
    let near =
        known.into_iter().map(|known| (osa_distance(&word, known), known)).filter(|(edits, _)| *edits <= edits_max);
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// clap's message as one line: what is wrong, what is missing, what is possible, and a word that it says is similar; where there is none, how
/// to say that what looks like a flag is a value.
pub fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).skip_while(|line| line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut first = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    // "the following required arguments were not provided:", with one in each line below.
    if first.ends_with(':') {
        let missing: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        first = format!("{first} {}", missing.join(" "));
    }
    let rest: Vec<&str> = lines.collect();
    if let Some(possible) = rest.iter().find(|line| line.starts_with("[possible values: ")) {
        first = format!("{first} {possible}");
    }
    let tips = || rest.iter().filter_map(|line| line.strip_prefix("tip: "));
    let tip = tips().find(|tip| tip.contains("similar")).or_else(|| tips().find(|tip| tip.contains("'-- ")));
    match tip {
        Some(tip) => format!("{first}; {tip}"),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["data-dir", "name", "listen-client-urls", "listen-peer-urls", "listen-metrics-urls"];

    #[test]
    fn a_mistyped_word_finds_the_one_that_was_meant() {
        for (word, meant) in [
            ("data-dri", Some("data-dir")),
            ("datadir", Some("data-dir")),
            ("NAME", Some("name")),
            ("nme", Some("name")),
            ("listen-client-url", Some("listen-client-urls")),
            ("listen-peers-urls", Some("listen-peer-urls")),
            ("", None),
            ("port", None),
            ("no-such-flag", None),
        ] {
            assert_eq!(nearest(word, KNOWN), meant, "{word}");
        }
    }

    #[test]
    fn two_letters_that_are_swapped_are_one_edit() {
        for (one, other, expected) in
            [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("dri", "dir", 1), ("kitten", "sitting", 3), ("a", "a", 0)]
        {
            assert_eq!((osa_distance(one, other), osa_distance(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn of_claps_message_the_similar_word_is_kept_and_the_usage_is_not() {
        let text = "error: unexpected argument '--lisen' found\n\n  tip: a similar argument exists: '--listen'\n\nUsage: echo [OPTIONS]\n";
        assert_eq!(one_line(text), "unexpected argument '--lisen' found; a similar argument exists: '--listen'");
        let text = "error: unexpected argument '--x' found\n\n  tip: to pass '--x' as a value, use '-- --x'\n";
        assert_eq!(one_line(text), "unexpected argument '--x' found; to pass '--x' as a value, use '-- --x'");
        let text = "error: invalid value 'x' for '--door <DOOR>'\n  [possible values: unary, first]\n\nFor more information, try '--help'.\n";
        assert_eq!(one_line(text), "invalid value 'x' for '--door <DOOR>' [possible values: unary, first]");
        let text = "error: the following required arguments were not provided:\n  --to <TO>\n  <RUN>\n\nUsage: echo --to <TO> <RUN>\n";
        assert_eq!(one_line(text), "the following required arguments were not provided: --to <TO> <RUN>");
        assert_eq!(one_line(""), "");
    }
}
