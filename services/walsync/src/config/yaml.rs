//! YAML, and what is wrong with it: one line that names the place, the field, and the remedy, whatever the reader says of it.

use super::ConfigError;
use serde::Deserialize;
use service_kit::command_line::nearest;
use std::path::Path;

/// Reads YAML.
pub(super) fn parse<T: for<'de> Deserialize<'de>>(text: &str, path: &Path) -> Result<T, ConfigError> {
    let wrong = |problem| Err(ConfigError::Syntax(path.to_owned(), problem));
    let is_said = |line: &str| !matches!(line.trim().chars().next(), None | Some('#'));
    if !text.lines().any(is_said) {
        return wrong("is empty: walsync.yml says store: and databases:, litestream.yml says dbs:".into());
    }
    serde_yaml::from_str(text).or_else(|error| wrong(told(text, &error.to_string())))
}

/// The first line of what the reader says, in words of ours where there are better ones.
fn told(text: &str, said: &str) -> String {
    let line = said.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let Some((place, problem)) = placed(line) else { return line.to_owned() };
    let field = field(text, place);
    let named = |what: &str| match field {
        Some(field) => format!("{field}: {what}"),
        None => what.to_owned(),
    };
    let problem = match problem {
        "alias references unknown anchor" => named("what begins with * stands in quotes, as in \"*.db\""),
        "expected mapping start" if field == Some("databases") => named("each is written as - path: /data/app.db"),
        "expected mapping start" => named("has words of its own, as in WORD: {word: value}"),
        "expected sequence start" => named("is a list, as in [one, other], or with each behind a - in its own line"),
        "missing field `store`" => {
            format!("{problem}: say where to, as in store: s3://bucket/prefix, or file:///folder")
        }
        "missing field `databases`" => format!("{problem}: say which, as in databases: [{{path: /data/app.db}}]"),
        "invalid boolean" | "invalid bool" => named("must be true or false"),
        _ => match (problem.strip_prefix("duplicate mapping key: "), known(problem)) {
            (Some(rest), _) => {
                let word = rest.split(',').next().unwrap_or_default();
                format!("{word} is there twice: leave one of them out")
            }
            (None, Some((what, word))) => format!("{what}; did you mean {word}?"),
            _ if is_number(problem) => named("must be a whole number, and not less than 0"),
            _ if problem.starts_with("multiple YAML documents") => {
                "a configuration is one document: leave --- out".into()
            }
            _ => problem.to_owned(),
        },
    };
    let (line, column) = place;
    format!("line {line} column {column}: {problem}")
}

/// Parts `line 2 column 18: invalid u64`.
fn placed(line: &str) -> Option<((usize, usize), &str)> {
    let (number, rest) = line.strip_prefix("line ")?.split_once(" column ")?;
    let (column, problem) = rest.split_once(": ")?;
    Some(((number.parse().ok()?, column.parse().ok()?), problem))
}

/// The word before the place, of which it has the value.
fn field(text: &str, (line, column): (usize, usize)) -> Option<&str> {
    let before = |at: usize| text.lines().nth(at.checked_sub(1)?);
    let here: &str = before(line)?;
    let (end, _) = here.char_indices().nth(column.checked_sub(1)?).unwrap_or((here.len(), ' '));
    let mut rows = std::iter::once(&here[..end]).chain((1..line).rev().filter_map(before));
    rows.find_map(|row| {
        let (word, _) = row.rsplit_once(':')?;
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        word.rsplit(|letter| !is_of_word(letter)).next().filter(|word| !word.is_empty())
    })
}

fn is_number(problem: &str) -> bool {
    ["u8", "u16", "u32", "u64", "usize"].iter().any(|kind| problem.strip_prefix("invalid ") == Some(kind))
}

/// Of a word that is not known what is said of it, and the known one that is most like it.
fn known(problem: &str) -> Option<(&str, &str)> {
    let (what, words) = problem.split_once(", expected one of ").or_else(|| problem.split_once(", expected "))?;
    let word = what.split('`').nth(1)?;
    nearest(word, words.split(", ").map(|word| word.trim_matches('`'))).map(|word| (what, word))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::litestream::Litestream;

    #[test]
    fn a_word_behind_a_letter_of_several_bytes_ends_nobody() {
        // What a fuzzer found.
        assert_eq!(super::field("[0S:\u{63c}:0/@", (1, 8)), None);
        assert_eq!(super::field("{\u{63c}store: 1", (1, 10)), Some("store"));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_field_and_the_remedy() {
        for (text, expected) in [
            (
                "store: /b\ninterval-millis: abc\n",
                "line 2 column 18: interval-millis: must be a whole number, and not less than 0",
            ),
            (
                "store: /b\nretention: {hourly: -1}\n",
                "line 2 column 21: hourly: must be a whole number, and not less than 0",
            ),
            ("store: /b\nstore: /c\n", "line 2 column 1: store is there twice: leave one of them out"),
            ("databases:\n  - path: *.db\n", "path: what begins with * stands in quotes, as in \"*.db\""),
            ("databases:\n  - *.db\n", "databases: what begins with * stands in quotes, as in \"*.db\""),
            ("stoer: /b\n", "line 1 column 1: unknown field `stoer`; did you mean store?"),
            ("databases: [{paht: /a.db}]\n", "unknown field `paht`; did you mean path?"),
            ("s3: {endpont: x}\n", "unknown field `endpont`; did you mean endpoint?"),
            ("pin: lock\n", "unknown variant `lock`; did you mean locks?"),
            ("what: ever\n", "unknown field `what`, expected one of store, "),
            ("store: /b\ndatabases: [/a.db]\n", "databases: each is written as - path: /data/app.db"),
            ("store: /b\ndatabases: /a.db\n", "databases: is a list"),
            ("store: /b\n", "missing field `databases`: say which, as in databases: [{path: /data/app.db}]"),
            ("databases: []\n", "missing field `store`: say where to"),
            ("", "configuration: is empty: walsync.yml says store: and databases:"),
            ("# nothing\n\n", "configuration: is empty"),
            ("store: /b\ndatabases: []\n---\nstore: /c\n", "a configuration is one document"),
        ] {
            let said = Config::parse(text).unwrap_err().to_string();
            assert!(said.contains(expected) && said.lines().count() == 1, "{text}: {said}");
        }
        for (text, expected) in [
            ("retention: 24h\n", "retention: say snapshot: {retention: 24h}"),
            (
                "dbs: [{path: /a.db, replica: {path: /r, retention: 24h}}]",
                "`retention`: say snapshot: {retention: …} beside dbs",
            ),
            ("retnetion: {enabled: true}\n", "did you mean retention?"),
        ] {
            let said = Litestream::parse(text).err().unwrap().to_string();
            assert!(said.contains(expected) && said.lines().count() == 1, "{text}: {said}");
        }
    }

    #[test]
    fn what_the_readme_shows_can_be_read() {
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
        let samples: Vec<&str> =
            readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(!samples.is_empty());
        for sample in samples {
            let config = Config::parse(sample).unwrap_or_else(|error| panic!("{error}: {sample}"));
            config.settings().unwrap();
        }
    }
}
